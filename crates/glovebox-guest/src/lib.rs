//! The guest: the process that is PID 1 inside a sandbox.
//!
//! Theory of operation. Two processes of ours live inside. The **guest** is PID 1: it speaks HTTP/2 with the host on
//! an inherited socket, reaps every orphan, carries input and output, and reads and writes files under the id of the
//! commands. The **zygote** is PID 2: it sits in the commands' control group and does nothing but start commands when
//! the guest asks it to. Because it forks with `CLONE_PARENT`, commands are children of the guest, which so learns
//! how they end; because it sits where they must sit, no process ever has to be moved between groups to start one.
//!
//! A **run** belongs to the guest: it goes on when whoever started it is gone, keeps the last of what it wrote for others,
//! and how it ended until its owner has heard of it. Where to read first: `server` takes connections and requests, `run`
//! sees one command through, `runs` knows all of them and serves those who attach, `output` holds what they read.
//!
//! Neither trusts what runs beside it: both are not dumpable, run under another id than the commands, and read
//! nothing from a command but the bytes of its pipes. Neither keeps a secret once it is handed over.

mod attributes;
pub mod container;
mod files;
mod ground;
mod input;
mod leaves;
pub mod marks;
mod modes;
pub mod mounts;
mod output;
pub mod own;
mod processes;
mod reaper;
mod run;
mod runs;
pub mod seccomp;
mod server;
mod sessions;
mod stream;
pub mod sys;
pub mod zygote;

pub use attributes::serve_attributes;
pub use ground::{Ground, Members};
pub use server::{GuestChannel, GuestSockets, Server};

/// How long one of our processes waits for something to do before it counts as idle.
pub const IDLE: std::time::Duration = std::time::Duration::from_millis(100);

/// Gives back memory that a process does not need while it only waits. Call it when nothing came for [`IDLE`].
pub fn rest() {
    sys::release_text();
}
