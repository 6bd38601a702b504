//! What the kernel counted in the control groups of a container, read on the same machine.

use std::{fs, io::Read, path::PathBuf};

use glovebox_core::{Evidence, StoreUse, Usage, UsageNow};

/// Guest and zygote, which are in the container's groups and none of the program's.
pub(crate) const OWN_PROCESSES: u64 = 2;

/// Where the groups of a host are.
const ROOT: &str = "/sys/fs/cgroup";

/// No file of a counter is longer.
const LONGEST: u64 = 64 * 1024;

/// The groups of a container: for each controller its folder, whatever version it is of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    folders: Vec<(String, PathBuf)>,
    unified: Option<PathBuf>,
}

impl Groups {
    /// The groups that a process is in, as the host names them.
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
        groups
    }

    /// Whether memory is counted and limited in a group of the container's own.
    pub(crate) fn hold_memory(&self) -> bool {
        self.text("memory", "memory.limit_in_bytes", "memory.max")
            .is_some_and(|limit| limit.trim().parse::<u64>().is_ok_and(|bytes| bytes < 1 << 60))
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

/// The number behind a key in a table of `key number` lines.
fn keyed(table: &str, key: &str) -> u64 {
    let pairs = table.lines().filter_map(|line| line.split_once(' '));
    pairs.filter(|(name, _)| *name == key).find_map(|(_, number)| number.trim().parse().ok()).unwrap_or(0)
}
