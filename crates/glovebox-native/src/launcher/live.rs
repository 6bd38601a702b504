//! What the launcher holds of a sandbox.

use std::os::fd::OwnedFd;

use glovebox_core::{RunId, SandboxId, UsageNow};
use glovebox_guest::mounts::Mapped;
use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use super::{Launcher, keeping::Kept, leaves::hand_out, making::Reporting};
use crate::{
    cgroup::{Groups, Side, storage_bytes},
    checks::{self, Settings},
    plan::Counted,
    ranges::Range,
    standing::Standing,
    sys::KillOnDrop,
    watch::{self, MemoryWatch},
};

/// A sandbox that lives, or is being made, or is being ended.
pub(super) struct Live {
    pub(super) id: SandboxId,
    pub(super) pid: Pid,
    pub(super) process: OwnedFd,
    pub(super) groups: Groups,
    pub(super) store: OwnedFd,
    /// Held so that its mounts are taken down by the launcher, after it has answered, and not by the dying guest. Of a living
    /// sandbox only while it ends.
    pub(super) mounts: Option<OwnedFd>,
    pub(super) memory: Option<MemoryWatch>,
    pub(super) disk_watch: Option<KillOnDrop>,
    pub(super) mapped: Mapped,
    pub(super) host_network: bool,
    pub(super) user: u32,
    pub(super) pending: Option<Pending>,
    pub(super) exited: bool,
    /// Who waits for the end.
    pub(super) ending: Vec<OwnedFd>,
    /// The zygote, which is killed along so that it does not end only after the guest. Of a living sandbox only while it ends.
    pub(super) zygote: Option<OwnedFd>,
    /// Whether the end was asked for.
    pub(super) destroy: bool,
    /// Its range of host ids, if it is a one-shot sandbox of root. That of a living one is its guest's.
    pub(super) range: Option<Range>,
    /// What belongs to a living sandbox only.
    pub(super) living: Option<Kept>,
}

/// What is needed until the guest has reported.
pub(super) struct Pending {
    pub(super) reporting: Reporting,
    pub(super) reply: OwnedFd,
    pub(super) watch: Option<OwnedFd>,
    /// The range of host ids of a living sandbox, until its guest holds it.
    pub(super) range: Option<Range>,
}

impl Live {
    /// What was counted so far.
    pub(super) fn count(&self) -> Counted {
        let mut counted = self.groups.count();
        if let Some(memory) = &self.memory {
            memory.complete(&mut counted);
        }
        counted
    }

    /// What was counted so far of one run, or of all where no run is told apart.
    pub(super) fn count_of(&mut self, run: Option<RunId>) -> Counted {
        match run {
            None => self.count_all(),
            Some(run) => Launcher::count_run(self, run).unwrap_or_else(|| self.count_beside_leaves()),
        }
    }

    /// Puts away what a run leaves behind, once it was told of.
    pub(super) fn run_was_counted(&mut self, run: Option<RunId>) {
        // Where it fails, the connection is over, which its own event tells.
        let _ = hand_out(self);
        let Some(kept) = &mut self.living else { return };
        let Some(run) = run else { return };
        if let Some(leaves) = &mut kept.leaves {
            leaves.put_away(run, &self.groups);
        }
        kept.note_run();
    }

    /// The leaf in which a child waits for the next run.
    pub(super) fn spare(&self) -> Option<u64> {
        self.living.as_ref()?.leaves.as_ref()?.spare
    }

    /// What is used now. Of the files only the backend's face knows.
    pub(super) fn usage(&self) -> UsageNow {
        let counted = self.count();
        let guest = self.pid.as_raw_nonzero().get();
        let commands = self.commands();
        let storage = commands
            .iter()
            .map(|pid| storage_bytes(*pid))
            .fold(storage_bytes(guest), |sum, one| (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1)));
        let mut now = UsageNow {
            cpu_ms: counted.cpu_ms,
            memory_bytes: self.groups.memory_in_use(),
            memory_peak_bytes: counted.memory_peak,
            // The zygote is one of the processes but none of the program's; so is the child that waits for the next run.
            processes: self.groups.process_count().saturating_sub(1 + u64::from(self.spare().is_some())),
            read_bytes: storage.0,
            written_bytes: storage.1,
            disk_bytes: None,
        };
        if let Some(memory) = &self.memory {
            memory.complete_now(&mut now);
        }
        now
    }

    /// The processes of the commands' side, the zygote among them; host ids.
    pub(super) fn commands(&self) -> Vec<i32> {
        let in_group = match self.spare() {
            Some(spare) => self.groups.processes_but(Some(spare)),
            None => self.groups.processes(Side::Run),
        };
        if !in_group.is_empty() {
            return in_group;
        }
        let mut found = Vec::new();
        watch::descendants(self.pid.as_raw_nonzero().get(), &mut found);
        found
    }

    /// Whether something runs besides our own processes.
    pub(super) fn is_busy(&self) -> bool {
        self.commands().len() > 1
    }

    /// Takes hold of what makes for a quick end: the mounts, and the zygote where it is still one of the sandbox's once it is
    /// open, so that no recycled id is meant.
    pub(super) fn take_hold(&mut self, zygote: Option<i32>) {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mounts = format!("/proc/{}/ns/mnt", self.pid.as_raw_nonzero());
        self.mounts = rustix::fs::open(mounts, flags, Mode::empty()).ok();
        let open = |pid: i32| Some((pid, pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?));
        let ours = |pid: i32| self.groups.hold(Side::Run, pid) || checks::zygote_of(self.pid) == Some(pid);
        self.zygote = zygote.and_then(open).filter(|(pid, _)| ours(*pid)).map(|(_, handle)| handle);
    }

    /// What the checks of the layers need to know of the order.
    pub(super) fn settings(&self, standing: Standing) -> Settings {
        Settings { mapped: self.mapped, host_network: self.host_network, user: self.user, standing }
    }
}

/// Ends the guest; the kernel then ends every process of its namespace, and the zygote need not wait for that.
pub(super) fn end(live: &Live) {
    let _ = pidfd_send_signal(&live.process, Signal::KILL);
    if live.living.is_some() {
        // A process that is frozen does not die.
        live.groups.thaw();
    }
    if let Some(zygote) = &live.zygote {
        let _ = pidfd_send_signal(zygote, Signal::KILL);
    }
}

/// Ends processes of a living sandbox that nobody follows; guest and zygote stay.
pub(super) fn end_processes(live: &Live, processes: Vec<i32>) {
    let zygote = checks::zygote_of(live.pid);
    for pid in processes.into_iter().filter(|pid| Some(*pid) != zygote) {
        let Some(process) = Pid::from_raw(pid) else { continue };
        let Ok(handle) = pidfd_open(process, PidfdFlags::empty()) else { continue };
        // The id is looked up again now that it can mean nothing else.
        if live.commands().contains(&pid) {
            let _ = pidfd_send_signal(&handle, Signal::KILL);
        }
    }
}
