//! What the launcher holds of a sandbox.

use std::os::fd::OwnedFd;

use glovebox_core::SandboxId;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::{
    cgroup::{Groups, Side},
    mounts::Mapped,
    plan::Counted,
    sys::KillOnDrop,
    watch::MemoryWatch,
};

/// A sandbox that lives, or is being made, or is being ended.
pub(super) struct Live {
    pub(super) id: SandboxId,
    pub(super) pid: Pid,
    pub(super) process: OwnedFd,
    pub(super) groups: Groups,
    pub(super) store: OwnedFd,
    /// Held so that its mounts are taken down by the launcher, after it has answered, and not by the dying guest.
    pub(super) mounts: Option<OwnedFd>,
    pub(super) memory: Option<MemoryWatch>,
    pub(super) _disk_watch: Option<KillOnDrop>,
    pub(super) mapped: Mapped,
    pub(super) host_network: bool,
    pub(super) user: u32,
    pub(super) pending: Option<Pending>,
    pub(super) exited: bool,
    /// Who waits for the end.
    pub(super) ending: Vec<OwnedFd>,
    /// The zygote, which is killed along so that it does not end only after the guest.
    pub(super) zygote: Option<OwnedFd>,
    /// Whether the end was asked for.
    pub(super) destroy: bool,
    /// What was counted when the end was asked for.
    pub(super) counted: Option<Counted>,
}

/// What is needed until the guest has reported.
pub(super) struct Pending {
    pub(super) report: OwnedFd,
    pub(super) reply: OwnedFd,
    pub(super) watch: Option<OwnedFd>,
}

/// A descriptor of a process that is still in the commands' group once it is open, so that no recycled id is meant.
pub(super) fn handle_on(pid: i32, groups: &Groups) -> Option<OwnedFd> {
    let handle = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    groups.hold(Side::Run, pid).then_some(handle)
}

/// Ends the guest; the kernel then ends every process of its namespace, and the zygote need not wait for that.
pub(super) fn end(live: &Live) {
    let _ = pidfd_send_signal(&live.process, Signal::KILL);
    if let Some(zygote) = &live.zygote {
        let _ = pidfd_send_signal(zygote, Signal::KILL);
    }
}
