//! The Docker backend: containers whose first process is the guest.
//!
//! Theory of operation. Docker makes, starts, pauses and removes containers, and nothing else is asked of it. The first
//! process of a container is our guest, a static program that is mounted read-only; it connects to a socket in a folder that
//! both sides see, and from then on everything goes through it as in every backend. What is in a container is described in
//! `describe`, where the folder and its sockets are in `meeting`, what the kernel counted is read in `counted`, and what dead
//! owners left is found by the labels of `owner`.
//!
//! An engine on another machine (`transport`, `place`) sees no folder of ours: `backend/elsewhere` puts there what a container needs, `bridge`
//! is the way to its guest, and `told` what the engine says of it in place of the kernel.
//!
//! A one-shot container ends when its one connection does, and Docker removes it then: a caller who is killed leaves
//! nothing behind. A living one stays until it is removed, and its files are in volumes that outlive it.

mod attaching;
mod backend;
mod bridge;
mod client;
mod counted;
mod credentials;
mod describe;
mod disk;
mod fresh;
mod gvisor;
mod image_volumes;
mod images;
mod layers;
mod looking;
mod mapped;
mod meeting;
mod owner;
mod place;
mod podman;
mod process;
mod told;
mod transport;
mod volumes;

pub use backend::{DockerBackend, Settings};
pub use images::{FoundImage, Listener, Progress, host_is_native_only};
pub use looking::{Look, OLDEST_API, look, without_tls};
