//! What the kernel counted in a sandbox's groups, and the watch over its memory.

use std::{fs, io, os::fd::OwnedFd, path::PathBuf};

use rustix::fs::{Mode, OFlags};

use super::{Controller, Groups, Version};
use crate::{plan::Counted, sys};

/// What a group counts.
#[derive(Clone, Copy)]
enum Counter {
    CpuTime,
    MemoryPeak,
    MemoryEvents,
    ProcessesPeak,
    ProcessesEvents,
}

impl Counter {
    const ALL: [Counter; 5] = [
        Counter::CpuTime,
        Counter::MemoryPeak,
        Counter::MemoryEvents,
        Counter::ProcessesPeak,
        Counter::ProcessesEvents,
    ];
}

/// The counters of a group, open.
pub(crate) struct Counters([Option<OwnedFd>; Counter::ALL.len()]);

/// No file of a counter is longer.
const LONGEST_COUNTER: usize = 1024;

impl Groups {
    /// Reads the counters. One that the kernel does not have reads as zero.
    pub(crate) fn count(&self) -> Counted {
        let counted = self.count_in("");
        // The zygote is one of the group's processes but none of the program's; so is the child that waits for the next run.
        let ours = if self.is_living() && !self.leaf_numbers().is_empty() { 2 } else { 1 };
        Counted { processes_peak: counted.processes_peak.saturating_sub(ours), ..counted }
    }

    /// Reads the counters of a group below it.
    pub(super) fn count_in(&self, leaf: &str) -> Counted {
        self.counted(|counter| sys::read_small(self.counter_in(leaf, counter)?).ok())
    }

    /// The file of a counter of a group below it.
    fn counter_in(&self, leaf: &str, counter: Counter) -> Option<PathBuf> {
        let file = |controller, one, two| self.file_in(leaf, controller, one, two);
        match counter {
            Counter::CpuTime => file(Controller::CpuAccount, "cpuacct.usage", "cpu.stat")
                .or_else(|| file(Controller::Cpu, "cpu.stat", "cpu.stat")),
            Counter::MemoryPeak => file(Controller::Memory, "memory.max_usage_in_bytes", "memory.peak"),
            Counter::MemoryEvents => file(Controller::Memory, "memory.oom_control", "memory.events"),
            Counter::ProcessesPeak => file(Controller::Pids, "pids.peak", "pids.peak"),
            Counter::ProcessesEvents => file(Controller::Pids, "pids.events", "pids.events"),
        }
    }

    fn counted(&self, read: impl Fn(Counter) -> Option<String>) -> Counted {
        let text = |counter| read(counter).unwrap_or_default();
        let number = |counter| text(counter).trim().parse::<u64>().unwrap_or(0);
        let cpu_ms = match self.file(Controller::CpuAccount, "cpuacct.usage", "cpu.stat") {
            Some(_) => number(Counter::CpuTime) as f64 / 1e6,
            None => keyed(&text(Counter::CpuTime), "usage_usec") as f64 / 1e3,
        };
        Counted {
            cpu_ms,
            memory_peak: number(Counter::MemoryPeak),
            processes_peak: number(Counter::ProcessesPeak),
            memory_kills: keyed(&text(Counter::MemoryEvents), "oom_kill"),
            watcher_kills: 0,
            pids_refused: keyed(&text(Counter::ProcessesEvents), "max"),
            storage: None,
        }
    }

    /// Opens the counters of the leaf of a run, so that they are read at once when somebody waits for them.
    pub(crate) fn open_counters(&self, leaf: u64) -> Counters {
        let leaf = leaf.to_string();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let open = |counter| rustix::fs::open(self.counter_in(&leaf, counter)?, flags, Mode::empty()).ok();
        Counters(Counter::ALL.map(open))
    }

    /// Reads counters that are open.
    pub(crate) fn count_open(&self, counters: &Counters) -> Counted {
        self.counted(|counter| {
            let mut text = [0; LONGEST_COUNTER];
            let file = counters.0.get(counter as usize)?.as_ref()?;
            let length = rustix::io::pread(file, &mut text, 0).ok()?;
            Some(String::from_utf8_lossy(&text[..length]).into_owned())
        })
    }

    /// Memory that the commands use now, without cache of files on disk.
    pub(crate) fn memory_in_use(&self) -> u64 {
        let Some(files) = self.memory_files() else { return 0 };
        files.usage().unwrap_or(0).saturating_sub(files.cache().unwrap_or(0))
    }

    /// Processes and threads on the commands' side now, the zygote among them.
    pub(crate) fn process_count(&self) -> u64 {
        let file = self.file(Controller::Pids, "pids.current", "pids.current");
        file.and_then(|path| sys::read_small(path).ok()?.trim().parse().ok()).unwrap_or(0)
    }

    /// What a watch over the memory of the commands needs.
    pub(crate) fn memory_files(&self) -> Option<MemoryFiles> {
        let file = |one, two| self.file(Controller::Memory, one, two);
        let version = self.hierarchies.iter().find(|h| h.controllers.contains(&Controller::Memory))?.version;
        Some(MemoryFiles {
            version,
            usage: file("memory.usage_in_bytes", "memory.current")?,
            stat: file("memory.stat", "memory.stat")?,
            limit: file("memory.limit_in_bytes", "memory.max")?,
        })
    }
}

/// Files of the memory controller.
#[derive(Clone, Debug)]
pub(crate) struct MemoryFiles {
    version: Version,
    usage: PathBuf,
    stat: PathBuf,
    limit: PathBuf,
}

impl MemoryFiles {
    /// Memory in use.
    pub(crate) fn usage(&self) -> io::Result<u64> {
        sys::read_small(&self.usage)?.trim().parse().map_err(io::Error::other)
    }

    /// The part of the memory in use that is cache of files on disk, which the kernel takes back by itself.
    pub(crate) fn cache(&self) -> io::Result<u64> {
        let stat = sys::read_small(&self.stat)?;
        Ok(match self.version {
            Version::One => keyed(&stat, "total_cache").saturating_sub(keyed(&stat, "total_shmem")),
            Version::Two => keyed(&stat, "file").saturating_sub(keyed(&stat, "shmem")),
        })
    }

    /// Lowers the hard limit to what is in use now, so that the next page makes the kernel choose a victim.
    pub(crate) fn clamp(&self) -> io::Result<()> {
        let mut limit = self.usage()?;
        // Version 1 refuses a limit below what is in use, which may have grown since it was read.
        for _ in 0..64 {
            match fs::write(&self.limit, limit.to_string()) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => limit = self.usage()? + (1 << 20),
                other => return other,
            }
        }
        Ok(())
    }
}

/// Bytes read from and written to storage, as counted by the guest's own process for itself and all that it reaped.
pub(crate) fn storage_bytes(guest: i32) -> (u64, u64) {
    let text = sys::read_small(format!("/proc/{guest}/io")).unwrap_or_default();
    (keyed(&text, "read_bytes:"), keyed(&text, "write_bytes:"))
}

/// The number behind a key in a table of `key number` lines.
fn keyed(table: &str, key: &str) -> u64 {
    table
        .lines()
        .find_map(|line| line.split_once(' ').filter(|(name, _)| *name == key))
        .and_then(|(_, number)| number.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_matched_whole() {
        let table = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(keyed(table, "oom_kill"), 3);
        assert_eq!(keyed(table, "oom"), 0);
    }
}
