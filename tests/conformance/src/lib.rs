//! What every backend must do, as one suite of cases that is run unchanged against each.
//!
//! A case is an async function whose name is a sentence. It is written against the engine and knows nothing of the
//! backend; what a backend leaves on the host, and how to reach into it from outside, is told by a [`Subject`].
//! A failed expectation is a panic; the suite catches it, and checks for leftovers after every case, failed or not.
//!
//! Inside the sandbox the program of `glovebox-probe` tries things; on the host it plants what must not be reachable.

mod as_user;
mod case;
mod cases;
mod client;
mod cutting;
mod docker;
mod file_lies;
mod finished;
mod inside_files;
mod leftovers;
mod liar;
mod reading;
mod setup;
pub mod soak;
mod states;
mod stuck;
mod subject;
mod suite;
mod through_guest;
mod world;

pub use as_user::{APART, UserKind, run_as, run_without_namespaces};
pub use case::{Case, Need, Proof};
pub use cases::all;
pub use client::run_client;
pub use docker::DockerSubject;
pub use leftovers::{Leftovers, Traces};
pub use states::run_actor;
pub use subject::{NativeSubject, Subject};
pub use suite::{Options, Summary, run_suite};
pub use world::{CALLER_MARK, World};
