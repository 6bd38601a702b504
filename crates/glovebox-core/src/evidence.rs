//! What the host itself saw of a sandbox. Nothing here is taken from the guest's word.

use serde::{Deserialize, Serialize};

/// What was used, as the kernel counted it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time of all processes, milliseconds.
    pub cpu_ms: f64,
    /// Highest memory use, bytes; files that were written inside count where they live in memory.
    pub memory_peak_bytes: u64,
    /// Most processes and threads at one time.
    pub processes_peak: u64,
    /// Bytes read from storage; those of runs at the same time in the same sandbox count too.
    pub read_bytes: u64,
    /// Bytes written to storage; those of runs at the same time in the same sandbox count too.
    pub written_bytes: u64,
}

/// What a sandbox uses now, and has used since it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageNow {
    /// CPU time of all processes since it started, milliseconds.
    pub cpu_ms: f64,
    /// Memory in use, bytes, without cache of files on disk, which the kernel takes back by itself.
    pub memory_bytes: u64,
    /// Highest memory use since it started, bytes.
    pub memory_peak_bytes: u64,
    /// Processes and threads; those of Glovebox itself do not count.
    pub processes: u64,
    /// Bytes read from storage since it started.
    pub read_bytes: u64,
    /// Bytes written to storage since it started.
    pub written_bytes: u64,
    /// What its files take, bytes; nothing when that cannot be seen, or there are more of them than can be looked at.
    pub disk_bytes: Option<u64>,
}

/// How full the limited file system of a sandbox is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreUse {
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Files and folders that can still be made.
    pub free_inodes: u64,
}

/// What the host saw of a sandbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// What was used.
    pub usage: Usage,
    /// Processes that were killed for memory.
    pub memory_kills: u64,
    /// It was a watcher that killed them, because no control group holds the limit.
    pub watched_memory: bool,
    /// Processes that were refused because of the limit.
    pub pids_refused: u64,
    /// The limited file system.
    pub store: StoreUse,
    /// Whether it is what was seen of one run alone, and not of all its sandbox.
    pub of_run: bool,
}

/// A file that was copied in before the command started. As long as it is as it was given, it is no change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GivenFile {
    /// Its path below `/workspace`.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// When it was last modified, nanoseconds since 1970.
    pub modified_ns: i64,
}

impl Evidence {
    /// What was seen since something else had been of the same: counts are those in between, peaks are what they were.
    #[must_use]
    pub fn since(self, before: &Evidence) -> Self {
        if self.of_run != before.of_run {
            return self;
        }
        let Usage { cpu_ms, read_bytes, written_bytes, .. } = &before.usage;
        Evidence {
            usage: Usage {
                cpu_ms: (self.usage.cpu_ms - cpu_ms).max(0.0),
                read_bytes: self.usage.read_bytes.saturating_sub(*read_bytes),
                written_bytes: self.usage.written_bytes.saturating_sub(*written_bytes),
                ..self.usage
            },
            memory_kills: self.memory_kills.saturating_sub(before.memory_kills),
            pids_refused: self.pids_refused.saturating_sub(before.pids_refused),
            ..self
        }
    }

    /// Nothing was seen, and nothing was full: what is known of a sandbox that went away.
    #[must_use]
    pub fn unknown() -> Self {
        Evidence { store: StoreUse { used_bytes: 0, free_bytes: 1, free_inodes: 1 }, ..Evidence::default() }
    }
}
