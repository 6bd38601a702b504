//! Telling the processes of a sandbox that has no process namespace.
//!
//! Each carries a mark that it cannot shed: a hard limit on real-time CPU time, of a value that no other sandbox has. It
//! is so large that it limits nothing. Every descendant inherits it, the kernel lets nobody raise it, the filter lets
//! nobody lower it, and `/proc/PID/limits` shows it to everybody.

use std::{fs, io};

use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, pidfd_open, pidfd_send_signal, setrlimit};

/// Marks this process and all that descend from it.
pub fn carry(mark: u64) -> io::Result<()> {
    Ok(setrlimit(Resource::Rttime, Rlimit { current: Some(mark), maximum: Some(mark) })?)
}

/// The processes that carry a mark and have not ended.
pub fn find(mark: u64) -> Vec<i32> {
    let Ok(folder) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| of(*pid) == Some(mark) && !has_ended(*pid)).collect()
}

/// Sends a signal to a process that still carries the mark once a descriptor means it, so that no recycled id is hit.
/// Says whether there was one.
pub fn signal(pid: i32, mark: u64, signal: Signal) -> bool {
    let Some(process) = Pid::from_raw(pid) else { return false };
    let Ok(handle) = pidfd_open(process, PidfdFlags::empty()) else { return false };
    of(pid) == Some(mark) && pidfd_send_signal(&handle, signal).is_ok()
}

/// The hard limit on real-time CPU time of a process, unless it has none.
pub fn of(pid: i32) -> Option<u64> {
    parse(&fs::read_to_string(format!("/proc/{pid}/limits")).ok()?)
}

fn parse(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn has_ended(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_the_hard_limit_and_no_limit_is_none() {
        let line =
            "Max open files            1024  4096  files\nMax realtime timeout      7  1152921504606846977  us\n";
        assert_eq!(parse(line), Some(1_152_921_504_606_846_977));
        assert_eq!(parse("Max realtime timeout      unlimited            unlimited            us\n"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn this_process_carries_no_mark() {
        assert_eq!(of(std::process::id() as i32), None);
    }
}
