//! What the kernel counted in a sandbox's groups, and the watch over its memory.

use std::{fs, io, path::PathBuf};

use super::{Controller, Groups, Version};
use crate::{plan::Counted, sys};

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
        let text = |controller, one: &str, two: &str| {
            self.file_in(leaf, controller, one, two).and_then(|path| sys::read_small(path).ok()).unwrap_or_default()
        };
        let number = |controller, one: &str, two: &str| text(controller, one, two).trim().parse::<u64>().unwrap_or(0);
        let cpu = match self.file(Controller::CpuAccount, "cpuacct.usage", "cpu.stat") {
            Some(_) => number(Controller::CpuAccount, "cpuacct.usage", "cpu.stat") as f64 / 1e6,
            None => keyed(&text(Controller::Cpu, "cpu.stat", "cpu.stat"), "usage_usec") as f64 / 1e3,
        };
        Counted {
            cpu_ms: cpu,
            memory_peak: number(Controller::Memory, "memory.max_usage_in_bytes", "memory.peak"),
            processes_peak: number(Controller::Pids, "pids.peak", "pids.peak"),
            memory_kills: keyed(&text(Controller::Memory, "memory.oom_control", "memory.events"), "oom_kill"),
            watcher_kills: 0,
            pids_refused: keyed(&text(Controller::Pids, "pids.events", "pids.events"), "max"),
            storage: None,
        }
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
