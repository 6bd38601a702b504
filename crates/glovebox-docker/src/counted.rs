//! What the kernel counted in the control groups of a container, read on the same machine.

use std::{fs, io::Read, path::PathBuf};

use glovebox_core::{Evidence, StoreUse, Usage, UsageNow};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::process::Stat;

/// Guest and zygote, which are in the container's groups and none of the program's.
pub(crate) const OWN_PROCESSES: u64 = 2;

/// Where the groups of a host are.
const ROOT: &str = "/sys/fs/cgroup";

/// No file of a counter is longer.
const LONGEST: u64 = 64 * 1024;

/// No limit is as high as this, but for none.
const UNLIMITED: u64 = 1 << 60;

/// The groups of a container: for each controller its folder, whatever version it is of.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Groups {
    folders: Vec<(String, PathBuf)>,
    unified: Option<PathBuf>,
}

impl Groups {
    /// The groups that a process is in, as the host names them; none of one that ends, as the kernel then names the groups of all.
    pub(crate) fn of(pid: i32) -> Self {
        let mut groups = Groups::default();
        for line in read(format!("/proc/{pid}/cgroup").into()).unwrap_or_default().lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let path = path.trim_start_matches('/');
            // A path that leads upwards is one of another group namespace, in which this one cannot be named.
            if path.starts_with("..") {
                continue;
            }
            if controllers.is_empty() {
                let places = [PathBuf::from(ROOT).join(path), PathBuf::from(ROOT).join("unified").join(path)];
                groups.unified = places.into_iter().find(|folder| folder.join("cgroup.procs").exists());
            }
            for name in controllers.split(',').filter(|name| !name.is_empty()) {
                let folder = PathBuf::from(ROOT).join(name).join(path);
                if folder.is_dir() {
                    groups.folders.push((name.to_owned(), folder));
                }
            }
        }
        match Stat::of(pid) {
            Some(process) if !process.is_ending() => groups,
            _ => Groups::default(),
        }
    }

    /// Whether memory is counted and limited in a group of the container's own.
    pub(crate) fn hold_memory(&self) -> bool {
        self.memory_limit().is_some_and(|bytes| bytes < UNLIMITED)
    }

    /// Whether the groups can be looked at, and do not hold memory to what was asked for: the engine made none of its own.
    pub(crate) fn let_go(&self, asked: u64) -> bool {
        let are_known = !self.folders.is_empty() || self.unified.is_some();
        are_known && self.memory_limit().is_none_or(|bytes| bytes > asked)
    }

    fn memory_limit(&self) -> Option<u64> {
        let limit = self.text("memory", "memory.limit_in_bytes", "memory.max")?;
        Some(if limit.trim() == "max" { u64::MAX } else { limit.trim().parse().ok()? })
    }

    fn text(&self, controller: &str, one: &str, two: &str) -> Option<String> {
        let first = self.folders.iter().find(|(name, _)| name == controller).map(|(_, folder)| folder.join(one));
        let file = first.or_else(|| self.unified.as_ref().map(|folder| folder.join(two)))?;
        read(file)
    }

    fn number(&self, controller: &str, one: &str, two: &str) -> u64 {
        self.text(controller, one, two).and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    fn cpu_ms(&self) -> f64 {
        match self.text("cpuacct", "cpuacct.usage", "") {
            Some(text) if !text.is_empty() => text.trim().parse::<u64>().unwrap_or(0) as f64 / 1e6,
            _ => keyed(&self.text("", "", "cpu.stat").unwrap_or_default(), "usage_usec") as f64 / 1e3,
        }
    }

    /// Bytes read from and written to storage.
    fn storage(&self) -> (u64, u64) {
        if let Some(text) = self.text("blkio", "blkio.throttle.io_service_bytes_recursive", "") {
            let sum = |word: &str| {
                let of_word = text.lines().filter(|line| line.split(' ').nth(1) == Some(word));
                of_word.filter_map(|line| line.split(' ').nth(2)?.parse::<u64>().ok()).sum()
            };
            return (sum("Read"), sum("Write"));
        }
        let text = self.text("", "", "io.stat").unwrap_or_default();
        let sum = |key: &str| {
            let words = text.split_ascii_whitespace().filter_map(|word| word.strip_prefix(key));
            words.filter_map(|number| number.parse::<u64>().ok()).sum()
        };
        (sum("rbytes="), sum("wbytes="))
    }

    /// Gives back memory that the processes do not need while they stand still. Says how many bytes, where this process may.
    pub(crate) fn reclaim(&self) -> Option<u64> {
        let in_use = || self.number("memory", "memory.usage_in_bytes", "memory.current");
        let before = in_use();
        let file = match self.folders.iter().find(|(name, _)| name == "memory") {
            Some((_, folder)) => (folder.join("memory.force_empty"), "0".to_owned()),
            None => (self.unified.as_ref()?.join("memory.reclaim"), before.to_string()),
        };
        // The kernel says that it did not get all, which nobody expects it to.
        let _ = fs::write(file.0, file.1);
        Some(before.saturating_sub(in_use()))
    }

    /// The processes of the container, as the host knows them.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let text = self.text("pids", "cgroup.procs", "cgroup.procs").unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Ends all processes of the container but the guest and its helper.
    pub(crate) fn end_commands(&self) {
        let open = |pid| Some((pid, pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?));
        let opened: Vec<_> = self.processes().into_iter().filter_map(open).collect();
        // A number may have become another process's before it was opened, but not since: those that are still here are meant.
        let here = self.processes();
        for (_, process) in opened.into_iter().filter(|(pid, _)| here.contains(pid) && is_command(*pid)) {
            // One that has just ended needs no signal.
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    }

    /// What was counted so far.
    pub(crate) fn evidence(&self, store: StoreUse) -> Evidence {
        let (read_bytes, written_bytes) = self.storage();
        let events = self.text("memory", "memory.oom_control", "memory.events").unwrap_or_default();
        let refused = self.text("pids", "pids.events", "pids.events").unwrap_or_default();
        Evidence {
            usage: Usage {
                cpu_ms: self.cpu_ms(),
                memory_peak_bytes: self.number("memory", "memory.max_usage_in_bytes", "memory.peak"),
                processes_peak: self.number("pids", "pids.peak", "pids.peak").saturating_sub(OWN_PROCESSES),
                read_bytes,
                written_bytes,
            },
            memory_kills: keyed(&events, "oom_kill"),
            watched_memory: false,
            pids_refused: keyed(&refused, "max"),
            store,
            of_run: false,
        }
    }

    /// What is in use now.
    pub(crate) fn usage(&self, disk_bytes: Option<u64>) -> UsageNow {
        let stat = self.text("memory", "memory.stat", "memory.stat").unwrap_or_default();
        let in_use = self.number("memory", "memory.usage_in_bytes", "memory.current");
        let cache = match self.unified.is_some() && self.folders.is_empty() {
            true => keyed(&stat, "file").saturating_sub(keyed(&stat, "shmem")),
            false => keyed(&stat, "total_cache").saturating_sub(keyed(&stat, "total_shmem")),
        };
        let seen = self.evidence(StoreUse::default()).usage;
        UsageNow {
            cpu_ms: seen.cpu_ms,
            memory_bytes: in_use.saturating_sub(cache),
            memory_peak_bytes: seen.memory_peak_bytes,
            processes: self.number("pids", "pids.current", "pids.current").saturating_sub(OWN_PROCESSES),
            read_bytes: seen.read_bytes,
            written_bytes: seen.written_bytes,
            disk_bytes,
        }
    }
}

fn read(path: PathBuf) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Whether a process of a container is neither its first nor its second, by the numbers that it has in each process namespace.
fn is_command(pid: i32) -> bool {
    let status = read(format!("/proc/{pid}/status").into()).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let numbers: Vec<u64> = numbers.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect();
    numbers.len() > 1 && numbers.last().is_some_and(|inside| *inside > OWN_PROCESSES)
}

/// The number behind a key in a table of `key number` lines.
fn keyed(table: &str, key: &str) -> u64 {
    let pairs = table.lines().filter_map(|line| line.split_once(' '));
    pairs.filter(|(name, _)| *name == key).find_map(|(_, number)| number.trim().parse().ok()).unwrap_or(0)
}
