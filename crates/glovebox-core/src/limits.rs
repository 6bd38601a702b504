//! How much a sandbox may use.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::LimitKind;

/// How long a program has between SIGTERM and SIGKILL when its time is over.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(2);

/// How much a sandbox may use. All values are above zero; the parsers see to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of all processes together, bytes. Swap is off.
    pub memory: u64,
    /// CPU time per second of wall time, in CPUs.
    pub cpus: f64,
    /// Processes and threads at one time.
    pub pids: u64,
    /// Bytes of all that can be written: working directory, home, /tmp, /dev/shm.
    pub disk: u64,
    /// Files and folders of all that can be written.
    pub inodes: u64,
    /// Open files of one process.
    pub open_files: u64,
    /// Wall time of a run.
    pub timeout: Duration,
    /// Time between SIGTERM and SIGKILL once the wall time is over.
    pub grace: Duration,
    /// Bytes kept of each output stream.
    pub output: u64,
    /// End the run when a stream passes [`Limits::output`].
    pub output_kill: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            memory: 2 << 30,
            cpus: 1.0,
            pids: 100,
            disk: 1 << 30,
            inodes: 100_000,
            open_files: 1024,
            timeout: Duration::from_secs(300),
            grace: DEFAULT_GRACE,
            output: 10 << 20,
            output_kill: false,
        }
    }
}

/// By what a limit is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// The kernel's control groups.
    Cgroup,
    /// The size of the file system.
    Filesystem,
    /// A resource limit of each process.
    Rlimit,
    /// A timer of the host.
    Timer,
    /// The host looks again and again, and ends the run when it is over: short overshoots are possible.
    Watched,
    /// Nothing holds it.
    None,
}

/// The limits that were really in force, as they stand in a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitsInForce {
    /// Memory of all processes, bytes.
    pub memory_bytes: u64,
    /// CPUs.
    pub cpus: f64,
    /// Processes and threads.
    pub pids: u64,
    /// Bytes that can be written.
    pub disk_bytes: u64,
    /// Files and folders that can be made.
    pub inodes: u64,
    /// Open files of one process.
    pub open_files: u64,
    /// Wall time, milliseconds.
    pub timeout_ms: u64,
    /// Bytes kept of each output stream.
    pub output_bytes: u64,
    /// The kernel's hard limit on the group. Above `memory_bytes` where files written inside live in memory:
    /// there it is memory + disk, and a watcher holds the programs' own share to `memory_bytes`.
    pub memory_group_bytes: Option<u64>,
    /// Where what is written inside lives: `tmpfs`.
    pub store: String,
    /// Limits that were lowered to what the host has.
    pub lowered: Vec<LimitKind>,
    /// By what each limit is held.
    pub enforcement: BTreeMap<String, Enforcement>,
}
