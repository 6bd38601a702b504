//! Freezing the commands of a living sandbox, and what is done while they are frozen.

use std::{fs, io, path::PathBuf, time::Instant};

use glovebox_core::FREEZING;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::{Controller, Groups, Hierarchy, Side, Version, rest_after};
use crate::sys;

/// What giving back memory may take of a CPU.
const RECLAIM_SECONDS: u64 = 5;
/// The bit of SIGKILL in a mask of signals.
const KILL: u64 = 1 << 8;

impl Groups {
    /// Waits until the kernel has frozen all processes of the commands' side, or let them go on. For a process of its own.
    pub(crate) fn wait_until_frozen(&self, frozen: bool) -> io::Result<()> {
        let begin = Instant::now();
        while self.is_frozen() != frozen {
            // A process that waits in the kernel may not be frozen before that is over; so long it is waited for.
            if begin.elapsed() > FREEZING {
                return Err(rustix::io::Errno::TIMEDOUT.into());
            }
            rest_after(begin.elapsed());
        }
        Ok(())
    }

    /// Lets all processes go on, without waiting for it.
    pub(crate) fn thaw(&self) {
        let _ = self.set_frozen(false);
    }

    /// Has the kernel freeze all processes of the commands' side, or let them go on, without waiting for it.
    pub(crate) fn set_frozen(&self, frozen: bool) -> io::Result<()> {
        let hierarchy = self.freezer().ok_or_else(|| io::Error::from(rustix::io::Errno::OPNOTSUPP))?;
        let group = self.path(hierarchy, Side::Run);
        match hierarchy.version {
            Version::One => fs::write(group.join("freezer.state"), if frozen { "FROZEN" } else { "THAWED" }),
            Version::Two => fs::write(group.join("cgroup.freeze"), if frozen { "1" } else { "0" }),
        }
    }

    /// Whether the commands' side is frozen.
    pub(crate) fn is_frozen(&self) -> bool {
        let Some(hierarchy) = self.freezer() else { return false };
        let group = self.path(hierarchy, Side::Run);
        match hierarchy.version {
            Version::One => sys::read_small(group.join("freezer.state")).is_ok_and(|text| text.trim() == "FROZEN"),
            Version::Two => sys::read_small(group.join("cgroup.events"))
                .is_ok_and(|text| text.lines().any(|line| line == "frozen 1")),
        }
    }

    fn freezer(&self) -> Option<&Hierarchy> {
        self.hierarchies.iter().find(|hierarchy| hierarchy.can_freeze())
    }

    /// Lets those die who were killed while they were frozen. Version 2 does so by itself. Version 1 lets a process die only
    /// once it is in a group that is not frozen; what it was killed by then comes before anything else that it does.
    pub(crate) fn let_killed_die(&self) {
        let Some(hierarchy) = self.freezer().filter(|hierarchy| hierarchy.version == Version::One) else { return };
        let awake = hierarchy.folder().join("cgroup.procs");
        let group = self.path(hierarchy, Side::Run).join("cgroup.procs");
        let text = sys::read_small(group).unwrap_or_default();
        for pid in text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| was_killed(*pid)) {
            // One that has ended meanwhile needs nothing.
            let _ = fs::write(&awake, pid.to_string());
        }
    }

    /// Has the kernel take back memory of frozen processes that it can have again later: cache of files and, where there is
    /// room to swap, the rest. Says how many bytes. For a process of its own, whose CPU time it limits.
    pub(crate) fn reclaim(&self) -> u64 {
        let limit = Rlimit { current: Some(RECLAIM_SECONDS), maximum: Some(RECLAIM_SECONDS) };
        let _ = setrlimit(Resource::Cpu, limit);
        let used = || self.memory_files().and_then(|files| files.usage().ok()).unwrap_or(0);
        let before = used();
        if let Some((file, word)) = self.reclaiming(before) {
            // The kernel says that it was not all; that is what the difference tells.
            let _ = fs::write(file, word);
        }
        before.saturating_sub(used())
    }

    fn reclaiming(&self, used: u64) -> Option<(PathBuf, String)> {
        let file = self.file(Controller::Memory, "memory.force_empty", "memory.reclaim")?;
        let word = if file.ends_with("memory.force_empty") { "0".to_owned() } else { used.to_string() };
        Some((file, word))
    }
}

/// Whether a process was killed and has not died of it.
fn was_killed(pid: i32) -> bool {
    let status = sys::read_small(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    };
    (pending("ShdPnd:") | pending("SigPnd:")) & KILL != 0
}
