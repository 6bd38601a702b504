//! A backend under test, with what the suite must know of it beyond the `Backend` trait.

use std::{cell::OnceCell, collections::BTreeSet, sync::Arc};

use glovebox_core::{Backend, SandboxId};
use glovebox_native::NativeBackend;
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    Leftovers, Traces,
    leftovers::{native_traces, native_traces_of, owner_name},
    through_guest::ThroughGuest,
};

/// A backend under test.
pub trait Subject {
    /// The backend.
    fn backend(&self) -> Arc<dyn Backend>;

    /// Everything of the backend that is on the host at this moment.
    fn traces(&self) -> Traces;

    /// What is on the host of these sandboxes, which are gone.
    fn traces_of(&self, sandboxes: &BTreeSet<SandboxId>) -> Leftovers;

    /// Ends the guest of a sandbox from outside, as an accident would.
    fn kill_guest(&self, sandbox: SandboxId);

    /// Memory of a sandbox's guest that lies in RAM, bytes.
    fn guest_memory(&self, sandbox: SandboxId) -> u64 {
        memory_of(self.guest(sandbox))
    }

    /// The process of a sandbox's guest on this host.
    fn guest(&self, sandbox: SandboxId) -> i32;

    /// The processes whose memory and descriptors must stay flat, by name.
    fn processes(&self) -> Vec<(&'static str, i32)>;
}

/// The native backend.
pub struct NativeSubject {
    backend: Arc<NativeBackend>,
    /// The same, as the suite is to see it.
    shown: Arc<dyn Backend>,
    /// The name that the launcher gives to everything it makes; known once it has made its first sandbox.
    owner: OnceCell<String>,
}

impl NativeSubject {
    /// Wraps the backend that `main` started.
    pub fn new(backend: NativeBackend) -> Self {
        let backend = Arc::new(backend);
        NativeSubject { shown: backend.clone(), backend, owner: OnceCell::new() }
    }

    /// Hides the files of its sandboxes from the host, so that the guest is asked for them.
    #[must_use]
    pub fn through_guest(mut self) -> Self {
        self.shown = Arc::new(ThroughGuest::new(self.shown));
        self
    }
}

impl Subject for NativeSubject {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.shown)
    }

    fn traces(&self) -> Traces {
        let launcher = self.backend.launcher_pid();
        let owner = self.owner.get_or_init(|| owner_name(launcher).expect("a living launcher holds its lock"));
        native_traces(launcher, owner)
    }

    fn traces_of(&self, sandboxes: &BTreeSet<SandboxId>) -> Leftovers {
        native_traces_of(sandboxes)
    }

    fn kill_guest(&self, sandbox: SandboxId) {
        kill_process(Pid::from_raw(self.guest(sandbox)).expect("a process id is not 0"), Signal::KILL)
            .expect("the guest can be ended");
    }

    fn guest(&self, sandbox: SandboxId) -> i32 {
        self.backend.guest_pid(sandbox).expect("the sandbox has a guest")
    }

    fn processes(&self) -> Vec<(&'static str, i32)> {
        vec![("glovebox", std::process::id() as i32), ("launcher", self.backend.launcher_pid())]
    }
}

/// Memory of a process that lies in RAM, bytes.
pub(crate) fn memory_of(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel says so");
    let kib = line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
    1024 * kib
}
