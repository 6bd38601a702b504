//! The fate of a program, decided from evidence.

use serde::{Deserialize, Serialize};

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The main process ended by itself.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// A signal ended the main process.
    Signaled {
        /// The signal's number.
        signal: i32,
    },
    /// The wall time passed and Glovebox ended the run.
    TimedOut {
        /// The limit, milliseconds.
        limit_ms: u64,
    },
    /// The kernel killed the main process because the memory limit was reached.
    OutOfMemory {
        /// The limit, bytes.
        limit_bytes: u64,
        /// The name of the process that was killed.
        process: String,
        /// What saw it, where it was not the kernel's own count: `watcher`.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        evidence: Option<String>,
    },
    /// A stream passed the output limit and the run was to be ended for it.
    OutputExceeded {
        /// The limit, bytes.
        limit_bytes: u64,
    },
    /// The main process ended non-zero and there was no room left on a limited file system.
    DiskFull {
        /// Its exit code; 128 + n when signal n ended it.
        code: i32,
        /// What there was no room for: `disk` for bytes, `inodes` for files and folders, `volume` for bytes in a volume.
        limit: LimitKind,
    },
    /// Somebody asked for the end.
    Cancelled,
    /// The sandbox went away under the run.
    Lost,
}

impl Outcome {
    /// Every kind, as [`Outcome::kind`] names it.
    pub const KINDS: [&'static str; 8] =
        ["exited", "signaled", "timed_out", "out_of_memory", "output_exceeded", "disk_full", "cancelled", "lost"];

    /// The name of its kind, as it stands in a result.
    pub fn kind(&self) -> &'static str {
        match self {
            Outcome::Exited { .. } => "exited",
            Outcome::Signaled { .. } => "signaled",
            Outcome::TimedOut { .. } => "timed_out",
            Outcome::OutOfMemory { .. } => "out_of_memory",
            Outcome::OutputExceeded { .. } => "output_exceeded",
            Outcome::DiskFull { .. } => "disk_full",
            Outcome::Cancelled => "cancelled",
            Outcome::Lost => "lost",
        }
    }

    /// The exit code of the command line for this outcome.
    pub fn exit_code(&self) -> u8 {
        match self {
            Outcome::Exited { code } | Outcome::DiskFull { code, .. } => *code as u8,
            Outcome::Signaled { signal } => (128 + signal) as u8,
            Outcome::TimedOut { .. } => 124,
            Outcome::OutOfMemory { .. } => 137,
            Outcome::OutputExceeded { .. } => 123,
            Outcome::Cancelled => 130,
            Outcome::Lost => 125,
        }
    }
}

/// A limit by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// Memory.
    Memory,
    /// CPU time per second.
    Cpus,
    /// Processes and threads.
    Pids,
    /// Bytes on disk, or files where `inodes` stands beside it.
    Disk,
    /// Files and folders.
    Inodes,
    /// Bytes in a volume, which has a size of its own.
    Volume,
    /// Open files.
    OpenFiles,
    /// Bytes of output.
    Output,
}

/// What ended a run, as the host saw it. Input of [`decide_outcome`].
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// Exit code of the main process, when it exited.
    pub code: Option<i32>,
    /// Signal that ended the main process.
    pub signal: Option<i32>,
    /// The host ended the run because its time was over; the limit in milliseconds.
    pub timed_out: Option<u64>,
    /// The host ended the run because somebody asked.
    pub cancelled: bool,
    /// The host ended the run because of its output; the limit in bytes.
    pub output_exceeded: Option<u64>,
    /// The kernel counted a memory kill in the run's group.
    pub memory_kill: bool,
    /// It was not the kernel but a watcher that killed.
    pub watched_memory: bool,
    /// The memory limit, bytes.
    pub memory_limit: u64,
    /// Name of the main process.
    pub process: String,
    /// No block or inode was free on a limited file system at the end: which of the two.
    pub disk_full: Option<LimitKind>,
}

/// Decides the outcome by the contract's rules. What the host did comes first, then what the kernel counted,
/// then what the program did.
pub fn decide_outcome(ending: &Ending) -> Outcome {
    if ending.cancelled {
        return Outcome::Cancelled;
    }
    if let Some(limit_ms) = ending.timed_out {
        return Outcome::TimedOut { limit_ms };
    }
    if let Some(limit_bytes) = ending.output_exceeded {
        return Outcome::OutputExceeded { limit_bytes };
    }
    let status = match (ending.code, ending.signal) {
        (_, Some(9)) if ending.memory_kill => {
            return Outcome::OutOfMemory {
                limit_bytes: ending.memory_limit,
                process: ending.process.clone(),
                evidence: ending.watched_memory.then(|| "watcher".to_owned()),
            };
        }
        (_, Some(signal)) => Outcome::Signaled { signal },
        (Some(code), None) => Outcome::Exited { code },
        (None, None) => return Outcome::Lost,
    };
    match (&status, ending.disk_full) {
        (Outcome::Exited { code: 0 }, _) | (_, None) => status,
        (_, Some(limit)) => Outcome::DiskFull { code: i32::from(status.exit_code()), limit },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending() -> Ending {
        Ending { memory_limit: 64, process: "python3".into(), ..Ending::default() }
    }

    #[test]
    fn a_kill_that_the_kernel_counted_is_out_of_memory_only_for_its_victim() {
        let victim = Ending { signal: Some(9), memory_kill: true, ..ending() };
        assert!(matches!(decide_outcome(&victim), Outcome::OutOfMemory { limit_bytes: 64, .. }));
        let survivor = Ending { code: Some(0), memory_kill: true, ..ending() };
        assert_eq!(decide_outcome(&survivor), Outcome::Exited { code: 0 });
        let other_signal = Ending { signal: Some(9), ..ending() };
        assert_eq!(decide_outcome(&other_signal), Outcome::Signaled { signal: 9 });
    }

    #[test]
    fn a_full_disk_decides_only_when_the_program_failed() {
        let failed = Ending { code: Some(1), disk_full: Some(LimitKind::Inodes), ..ending() };
        assert_eq!(decide_outcome(&failed), Outcome::DiskFull { code: 1, limit: LimitKind::Inodes });
        let fine = Ending { code: Some(0), disk_full: Some(LimitKind::Disk), ..ending() };
        assert_eq!(decide_outcome(&fine), Outcome::Exited { code: 0 });
    }

    #[test]
    fn what_the_host_did_comes_before_what_the_program_did() {
        let both = Ending { signal: Some(15), timed_out: Some(10), ..ending() };
        assert_eq!(decide_outcome(&both), Outcome::TimedOut { limit_ms: 10 });
        let asked = Ending { cancelled: true, ..both };
        assert_eq!(decide_outcome(&asked), Outcome::Cancelled);
        assert_eq!(decide_outcome(&ending()), Outcome::Lost);
    }

    #[test]
    fn the_name_of_a_kind_is_the_one_in_a_result() {
        let outcomes = [
            Outcome::Exited { code: 0 },
            Outcome::Signaled { signal: 9 },
            Outcome::TimedOut { limit_ms: 1 },
            Outcome::OutOfMemory { limit_bytes: 1, process: "x".into(), evidence: None },
            Outcome::OutputExceeded { limit_bytes: 1 },
            Outcome::DiskFull { code: 1, limit: LimitKind::Disk },
            Outcome::Cancelled,
            Outcome::Lost,
        ];
        for (outcome, kind) in outcomes.iter().zip(Outcome::KINDS) {
            assert_eq!(outcome.kind(), kind);
            assert_eq!(serde_json::to_value(outcome).unwrap()["kind"], kind);
        }
    }

    #[test]
    fn exit_codes_are_those_of_the_contract() {
        assert_eq!(Outcome::TimedOut { limit_ms: 1 }.exit_code(), 124);
        assert_eq!(Outcome::Signaled { signal: 15 }.exit_code(), 143);
        assert_eq!(Outcome::OutputExceeded { limit_bytes: 1 }.exit_code(), 123);
        assert_eq!(Outcome::Cancelled.exit_code(), 130);
        assert_eq!(Outcome::Lost.exit_code(), 125);
        assert_eq!(Outcome::DiskFull { code: 3, limit: LimitKind::Disk }.exit_code(), 3);
    }
}
