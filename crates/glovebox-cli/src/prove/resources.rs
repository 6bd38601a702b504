//! Limits that are tried for real, in a sandbox that has little of everything.

use std::time::Duration;

use glovebox_core::{Enforcement, Outcome};

use super::{
    Ground,
    canaries::Canaries,
    judge::{Seen, Verdict, facts},
};

/// Memory, above what the probe itself needs.
pub(super) const MEMORY: u64 = 64 << 20;
/// Disk, beside the probe itself.
pub(super) const DISK: u64 = 16 << 20;
pub(super) const CPUS: f64 = 0.25;
pub(super) const PIDS: u64 = 24;
pub(super) const INODES: u64 = 200;
pub(super) const OPEN_FILES: u64 = 64;
/// What is kept of an output stream.
pub(super) const OUTPUT: u64 = 256 << 10;
/// The time of a program that does not end by itself.
pub(super) const TIME: Duration = Duration::from_millis(200);

pub(super) fn processes(seen: &Seen, _: &mut Canaries) -> Verdict {
    facts(seen, |seen| {
        let forked = seen.number("forked")?;
        Some(at_most(forked, PIDS, seen.fact("stopped")? != "none", "processes"))
    })
}

/// A program that was refused more than its limit, and less than all that it asked for.
fn at_most(had: u64, limit: u64, refused: bool, what: &str) -> Verdict {
    match refused && had <= limit {
        true => Verdict::Holds(format!("{had} {what} at a limit of {limit}")),
        false => Verdict::Broken(format!("there were {had} {what} at a limit of {limit}")),
    }
}

pub(super) fn disk(seen: &Seen, _: &mut Canaries) -> Verdict {
    refused_at_the_end(seen, "wrote", seen.about.room, "bytes")
}

pub(super) fn files(seen: &Seen, _: &mut Canaries) -> Verdict {
    refused_at_the_end(seen, "made", INODES, "files")
}

pub(super) fn open_files(seen: &Seen, _: &mut Canaries) -> Verdict {
    refused_at_the_end(seen, "opened", OPEN_FILES, "open files")
}

/// The probe ends with 1 when it met a limit, and says how far it came.
fn refused_at_the_end(seen: &Seen, fact: &str, limit: u64, what: &str) -> Verdict {
    match (&seen.outcome, seen.number(fact)) {
        (Outcome::Exited { code: 1 } | Outcome::DiskFull { .. }, Some(had)) => at_most(had, limit, true, what),
        (Outcome::Exited { code: 0 }, Some(had)) => at_most(had, limit, false, what),
        // Where a watch holds the limit, the program is ended, and has no time to say how far it came; a single file that is
        // too large is refused by a signal.
        (Outcome::DiskFull { .. }, None) => Verdict::Holds("the watch ended the program".into()),
        (Outcome::Signaled { signal: 25 }, None) if seen.enforcement("disk") == Enforcement::Watched => {
            Verdict::Holds("so large a file was refused".into())
        }
        _ => seen.strange(),
    }
}

/// The program spins for a known CPU time, which must take as much longer as the limit is below one CPU. A first part of a
/// period comes at once.
pub(super) fn cpu(seen: &Seen, _: &mut Canaries) -> Verdict {
    facts(seen, |seen| {
        let wall = seen.number("wall_ms")?;
        if seen.about.ground == Ground::OwnKernel {
            return Some(by_the_hosts_count(wall, seen.cpu_ms));
        }
        Some(match wall {
            400.. => Verdict::Holds(format!("150 ms took {wall} ms at a limit of {CPUS} CPUs")),
            _ => Verdict::Broken(format!("150 ms took only {wall} ms at a limit of {CPUS} CPUs")),
        })
    })
}

/// A kernel of its own takes time in which it did not run itself for time that its programs used, so only the host's count tells.
fn by_the_hosts_count(wall: u64, used: f64) -> Verdict {
    // What was left of the first period comes at once.
    let most = wall as f64 * CPUS + 60.0;
    let told = format!("{used:.0} ms were used in {wall} ms at a limit of {CPUS} CPUs");
    if used <= most { Verdict::Holds(told) } else { Verdict::Broken(told) }
}

pub(super) fn memory(seen: &Seen, _: &mut Canaries) -> Verdict {
    let held = seen.enforcement("memory");
    match &seen.outcome {
        _ if seen.fact("ate").is_some() => {
            Verdict::Broken(format!("512 MiB were given at a limit of {}", seen.limits.memory_bytes >> 20))
        }
        Outcome::OutOfMemory { limit_bytes, evidence, .. } => {
            let by = evidence.as_deref().unwrap_or("the kernel");
            Verdict::Holds(format!("at {} MiB, seen by {by}", limit_bytes >> 20))
        }
        // Memory that is refused ends a Rust program by SIGABRT; the disk may be full of what was tried before.
        Outcome::Signaled { signal: 6 } | Outcome::DiskFull { code: 134, .. }
            if [Enforcement::Rlimit, Enforcement::Watched].contains(&held) =>
        {
            Verdict::Holds("it was refused".into())
        }
        // The host sees one program there, which is all of the sandbox. That it may have been so is not enough.
        Outcome::Lost if seen.warnings.iter().any(|warning| warning.message.ends_with("was out of memory")) => {
            Verdict::Holds("the sandbox ended with it".into())
        }
        _ => seen.strange(),
    }
}

pub(super) fn output(seen: &Seen, _: &mut Canaries) -> Verdict {
    let kept = seen.out.len() as u64;
    match seen.outcome == (Outcome::Exited { code: 0 }) && seen.out_bytes == 1_000_000 {
        false => seen.strange(),
        // A line in the middle says how much was left out.
        true if kept <= OUTPUT + 1024 => Verdict::Holds(format!("{kept} of 1000000 bytes were kept")),
        true => Verdict::Broken(format!("{kept} bytes were kept at a limit of {OUTPUT}")),
    }
}

pub(super) fn time(seen: &Seen, _: &mut Canaries) -> Verdict {
    match seen.outcome {
        Outcome::TimedOut { limit_ms } => Verdict::Holds(format!("after {limit_ms} ms")),
        _ => seen.strange(),
    }
}
