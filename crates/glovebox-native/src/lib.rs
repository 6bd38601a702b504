//! The native backend: sandboxes made of what the Linux kernel has, without KVM, Docker or a daemon.
//!
//! Where to read first: [`NativeBackend`] is the face to the engine; `launcher` makes sandboxes on the host's side,
//! `inside` on theirs; `checks` says which layers are really there; `owner` removes what a crash left.

mod answers;
mod backend;
mod cgroup;
mod changes;
mod checks;
mod confined;
pub mod host_facts;
mod host_image;
mod idmap;
mod inside;
mod launcher;
mod living;
mod mounts;
mod network;
mod owner;
mod plan;
mod ranges;
mod skeleton;
mod standing;
mod store;
mod sys;
mod watch;
mod wire;

pub use backend::NativeBackend;

/// Has this process give way to the processes of its sandboxes: where it is woken by a word from inside, it waits for those
/// who are at work there. For a program that does nothing but see to one run.
pub fn give_way() {
    sys::give_way();
}

/// The host name inside every sandbox.
const HOST_NAME: &str = "glovebox";
