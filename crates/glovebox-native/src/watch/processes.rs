//! The watch over a sandbox that no group holds.
//!
//! Theory of operation. An ordinary user may have no control group. Then a resource limit bounds the data of each process, and
//! this watch adds up what all of them have: what is their own, swapped out or not, the page tables for it, and what they
//! share, counted once. When that is over the limit, it ends the largest one, as the kernel would.
//!
//! A program that means harm can hold memory that belongs to no process: in files of memory that nobody has mapped, in sockets
//! that nobody reads. Nobody but the kernel could count that. So the watch has an eye on the host too: when that has hardly
//! any memory left, and has lost more since the sandbox was made than the sandbox may have, all of its commands are ended.

use std::time::Duration;

use glovebox_core::UsageNow;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::{checks, plan::Counted, sys};

/// Processes come and go, so they are looked at more often than a group.
pub(super) const LATEST: Duration = Duration::from_millis(25);

/// The processes of a sandbox, and what was seen of them.
pub(super) struct Processes {
    guest: Pid,
    /// What the host had to give when the sandbox was made.
    host_before: Option<HostMemory>,
    memory_peak: u64,
    processes_peak: u64,
    kills: u64,
}

impl Processes {
    /// Those of a guest that was just made.
    pub(super) fn of(guest: Pid) -> Self {
        Processes { guest, host_before: HostMemory::now(), memory_peak: 0, processes_peak: 0, kills: 0 }
    }

    /// Adds what was seen to what groups counted.
    pub(super) fn complete(&self, counted: &mut Counted) {
        counted.memory_peak = self.memory_peak;
        counted.watcher_kills = self.kills;
        counted.processes_peak = counted.processes_peak.max(self.processes_peak);
        if counted.cpu_ms == 0.0 {
            counted.cpu_ms = cpu_of_reaped(self.guest);
        }
    }

    /// Adds what the processes have at this moment.
    pub(super) fn complete_now(&self, now: &mut UsageNow) {
        let found = self.all();
        let held: Vec<Held> = found.iter().filter_map(|pid| Held::by(*pid)).collect();
        now.memory_bytes = held.iter().map(|held| held.own + held.shared).sum();
        now.memory_peak_bytes = now.memory_peak_bytes.max(now.memory_bytes);
        // The zygote is among them, and none of the program's.
        now.processes = held.iter().map(|held| held.threads).sum::<u64>().saturating_sub(1);
        // What groups counted is there already, where there is such a group.
        if now.cpu_ms == cpu_of_reaped(self.guest) {
            now.cpu_ms += found.iter().map(|pid| cpu_of(*pid)).sum::<f64>();
        }
    }

    /// Adds up what the processes have, and ends the largest one if that is over a limit.
    pub(super) fn hold_to(&mut self, limit: u64) -> u64 {
        let found = self.all();
        let sizes: Vec<(i32, Held)> = found.iter().filter_map(|pid| Some((*pid, Held::by(*pid)?))).collect();
        let threads: u64 = sizes.iter().map(|(_, held)| held.threads).sum();
        let own: u64 = sizes.iter().map(|(_, held)| held.own).sum();
        let mut total = own + sizes.iter().map(|(_, held)| held.shared).sum::<u64>();
        if total > limit {
            // What is shared was counted for each that has it; looking closer takes time.
            total = own + sizes.iter().map(|(pid, held)| part_of_shared(*pid).unwrap_or(held.shared)).sum::<u64>();
        }
        // The zygote is among them, and none of the program's.
        self.processes_peak = self.processes_peak.max(threads.saturating_sub(1));
        self.memory_peak = self.memory_peak.max(total);
        if total > limit
            && let Some((pid, _)) = sizes.iter().max_by_key(|(_, held)| held.own + held.shared)
            && self.end(*pid)
        {
            self.kills += 1;
        }
        if let (Some(before), Some(now)) = (self.host_before, HostMemory::now())
            && now.is_running_out(before, limit)
        {
            let zygote = checks::zygote_of(self.guest);
            self.kills += found.iter().filter(|pid| Some(**pid) != zygote && self.end(**pid)).count() as u64;
        }
        total
    }

    fn all(&self) -> Vec<i32> {
        let mut found = Vec::new();
        descendants(self.guest.as_raw_nonzero().get(), &mut found);
        found
    }

    /// Ends a process that is still one of ours once a descriptor of it is open.
    fn end(&self, pid: i32) -> bool {
        let Some(process) = Pid::from_raw(pid) else { return false };
        let Ok(handle) = pidfd_open(process, PidfdFlags::empty()) else { return false };
        self.all().contains(&pid) && pidfd_send_signal(&handle, Signal::KILL).is_ok()
    }
}

/// What a process has, bytes.
struct Held {
    own: u64,
    shared: u64,
    threads: u64,
}

impl Held {
    fn by(pid: i32) -> Option<Self> {
        let status = sys::read_small(format!("/proc/{pid}/status")).ok()?;
        let number = |name: &str| kibibytes(&status, name).unwrap_or(0);
        let own = number("RssAnon") + number("VmSwap") + number("VmPTE");
        Some(Held { own: own * 1024, shared: number("RssShmem") * 1024, threads: number("Threads") })
    }
}

/// A process's part of the memory that it shares: pages that two have mapped count half for each.
fn part_of_shared(pid: i32) -> Option<u64> {
    let parts = sys::read_small(format!("/proc/{pid}/smaps_rollup")).ok()?;
    Some(kibibytes(&parts, "Pss_Shmem")? * 1024)
}

/// The number of a line `name: number` in one of the kernel's tables.
fn kibibytes(table: &str, name: &str) -> Option<u64> {
    sys::status_field(table, name)?.split_ascii_whitespace().next()?.parse().ok()
}

/// What the host has of memory, bytes.
#[derive(Clone, Copy)]
struct HostMemory {
    all: u64,
    available: u64,
}

impl HostMemory {
    fn now() -> Option<Self> {
        let table = sys::read_small("/proc/meminfo").ok()?;
        let number = |name| Some(kibibytes(&table, name)? * 1024);
        Some(HostMemory { all: number("MemTotal")?, available: number("MemAvailable")? })
    }

    /// Whether there is hardly any left, and more has gone since `before` than `limit`.
    fn is_running_out(self, before: HostMemory, limit: u64) -> bool {
        const LEAST: u64 = 256 << 20;
        let hardly_any = (self.all / 16).max(LEAST).min(self.all / 4);
        self.available < hardly_any && before.available.saturating_sub(self.available) > limit
    }
}

/// No sandbox has more processes than can be looked at.
const MOST_PROCESSES: usize = 10_000;

/// The processes below one, host ids.
pub(crate) fn descendants(pid: i32, found: &mut Vec<i32>) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for task in tasks {
        let children = sys::read_small(task.path().join("children")).unwrap_or_default();
        for child in children.split_ascii_whitespace().filter_map(|word| word.parse().ok()) {
            if found.len() < MOST_PROCESSES && !found.contains(&child) {
                found.push(child);
                descendants(child, found);
            }
        }
    }
}

/// In what the kernel shows CPU time, on every architecture that Linux has today.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU time of all processes that one has waited for, milliseconds.
fn cpu_of_reaped(guest: Pid) -> f64 {
    // Fields 16 and 17 of proc(5).
    cpu_fields(guest.as_raw_nonzero().get(), 16, 2)
}

/// CPU time of a process and of all that it has waited for, milliseconds.
fn cpu_of(pid: i32) -> f64 {
    cpu_fields(pid, 14, 4)
}

/// The sum of fields of proc(5) that hold CPU time, milliseconds.
fn cpu_fields(pid: i32, first: usize, count: usize) -> f64 {
    let stat = sys::read_small(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, fields)) = stat.rsplit_once(") ") else { return 0.0 };
    // The field after the name is the third.
    let ticks: u64 = fields.split(' ').skip(first - 3).take(count).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 * 1000.0 / TICKS_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_runs_out_by_a_sandbox_only_when_more_is_gone_than_that_may_have() {
        const GIB: u64 = 1 << 30;
        let host = |available| HostMemory { all: 16 * GIB, available };
        assert!(host(GIB / 2).is_running_out(host(8 * GIB), 2 * GIB));
        assert!(!host(4 * GIB).is_running_out(host(8 * GIB), 2 * GIB), "there is enough left");
        assert!(!host(GIB / 2).is_running_out(host(2 * GIB), 2 * GIB), "somebody else took it");
        assert!(!host(GIB / 2).is_running_out(host(GIB / 4), 0), "there is more than before");
        let small = |available| HostMemory { all: GIB / 2, available };
        assert!(!small(GIB / 4).is_running_out(small(GIB / 2), 0), "a small host needs its memory too");
    }

    #[test]
    fn the_memory_of_this_process_and_of_the_host_is_read() {
        let held = Held::by(std::process::id() as i32).expect("the kernel tells");
        assert!(held.own > 0 && held.threads > 0);
        assert!(part_of_shared(std::process::id() as i32).is_some());
        assert!(HostMemory::now().is_some_and(|host| host.all > host.available));
    }
}
