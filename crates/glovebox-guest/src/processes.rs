//! Finding and signalling the processes of a run.
//!
//! The guest sees every process of the sandbox in its own /proc, or in the host's, where a mark tells them from others.
//! What it reads there is written by the kernel, except
//! the name in parentheses, which a program can choose; it is skipped up to its last parenthesis.

use std::{fs, path::Path};

use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, kill_process_group, pidfd_open, pidfd_send_signal,
};

use crate::{Members, marks};

/// A process as /proc shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    /// Whether its first thread has ended.
    zombie: bool,
    threads: usize,
}

impl Process {
    /// Whether nothing of it runs any more. The first thread may end and leave the others to go on.
    fn is_over(&self) -> bool {
        self.zombie && self.threads <= 1
    }

    /// Whether it came in from outside, whose processes have no number here: none of the sandbox's own, whose parents are inside.
    fn entered(&self) -> bool {
        self.parent == 0
    }
}

/// Which processes a signal is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'a> {
    /// All but the guest and the zygote.
    Everything { zygote: i32 },
    /// The command, its descendants, and all in its session.
    Command { main: i32, zygote: i32 },
    /// All in a group whose path ends so.
    Leaf { name: &'a str },
}

/// Ends a child of this process that has not been waited for, so that its id is nobody else's.
pub(crate) fn end(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Ends all processes that are in the group of a command which has not been waited for, so that its id is nobody else's. The kernel
/// does it in one step: nobody in the group can fork meanwhile.
pub(crate) fn end_group(main: i32, members: Members) {
    if let (Members::Visible, Some(main)) = (members, Pid::from_raw(main)) {
        let _ = kill_process_group(main, Signal::KILL);
    }
}

/// What a look at the processes found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Signalled {
    /// Processes of the target, which have got the signal.
    pub(crate) found: usize,
    /// Processes that ended before it was known whose they were.
    pub(crate) vanished: usize,
}

/// Whether there is a process of commands, but for those of interpreters that only wait, which are given by their ids.
pub(crate) fn are_at_work(zygote: i32, resting: &[i32]) -> bool {
    let (processes, _) = list(Members::Visible);
    let rests = |process: &Process| {
        resting.iter().any(|main| is_in(&processes, process, Target::Command { main: *main, zygote }))
    };
    let guest = getpid().as_raw_nonzero().get();
    processes.iter().any(|process| {
        process.pid != guest
            && is_in(&processes, process, Target::Everything { zygote })
            && !process.is_over()
            && !rests(process)
    })
}

/// Sends a signal to each process of the target once.
pub(crate) fn signal(target: Target<'_>, number: i32, members: Members) -> Signalled {
    let Some(signal) = Signal::from_named_raw(number) else { return Signalled::default() };
    let guest = getpid().as_raw_nonzero().get();
    let (processes, vanished) = list(members);
    let chosen: Vec<&Process> =
        processes.iter().filter(|p| !p.is_over() && p.pid != guest && is_in(&processes, p, target)).collect();
    for process in &chosen {
        match (members, Pid::from_raw(process.pid)) {
            (Members::Visible, Some(pid)) if matches!(target, Target::Leaf { .. }) => {
                signal_in_leaf(pid, process, target, signal);
            }
            (Members::Marked(mark), _) => {
                marks::signal(process.pid, mark, signal);
            }
            // A process may end between the look and the signal; inside this namespace its id is not used again so soon,
            // and every process here is one of the sandbox's own.
            (Members::Visible, Some(pid)) => {
                let _ = kill_process(pid, signal);
                kill_group(process, signal);
            }
            (Members::Visible, None) => {}
        }
    }
    Signalled { found: chosen.len(), vanished }
}

/// Signals a process that is still in its leaf once a descriptor of it is open, so that no process of another run is meant.
fn signal_in_leaf(pid: Pid, process: &Process, target: Target<'_>, signal: Signal) {
    let Target::Leaf { name } = target else { return };
    if let Ok(handle) = pidfd_open(pid, PidfdFlags::empty())
        && is_in_leaf(process, name)
    {
        let _ = pidfd_send_signal(&handle, signal);
        kill_group(process, signal);
    }
}

/// Whoever is to end ends with the whole of its group, in one step of the kernel's: all in a group are of one session, and so of one
/// run; and one that forks another and ends is rarely met itself. Guest and zygote are in a group that is none of this namespace.
fn kill_group(process: &Process, signal: Signal) {
    if let Some(group) = Pid::from_raw(process.group).filter(|_| signal == Signal::KILL && process.group > 1) {
        let _ = kill_process_group(group, signal);
    }
}

/// Whether the kernel says that a process is in a group whose path ends in this name. Of a thread that has ended it says nothing, so
/// that others are asked where the first one has.
fn is_in_leaf(process: &Process, name: &str) -> bool {
    let is_in = |file: &Path| {
        let groups = fs::read_to_string(file).unwrap_or_default();
        groups.lines().any(|line| line.strip_suffix(name).is_some_and(|rest| rest.ends_with('/')))
    };
    let folder = Path::new("/proc").join(process.pid.to_string());
    if !process.zombie {
        return is_in(&folder.join("cgroup"));
    }
    let threads = fs::read_dir(folder.join("task")).into_iter().flatten().flatten();
    threads.into_iter().any(|thread| is_in(&thread.path().join("cgroup")))
}

fn is_in(processes: &[Process], process: &Process, target: Target<'_>) -> bool {
    match target {
        Target::Leaf { name } => is_in_leaf(process, name),
        Target::Everything { zygote } => process.pid != zygote && !process.entered(),
        Target::Command { main, zygote } => {
            if process.pid == zygote {
                return false;
            }
            if process.session == main {
                return true;
            }
            let mut at = *process;
            // The bound keeps a list that changes while it is read from making this loop forever.
            for _ in 0..processes.len() {
                if at.pid == main {
                    return true;
                }
                match processes.iter().find(|p| p.pid == at.parent) {
                    Some(parent) => at = *parent,
                    None => return false,
                }
            }
            false
        }
    }
}

/// The processes there are, and how many ended while they were looked at.
fn list(members: Members) -> (Vec<Process>, usize) {
    let pids: Vec<i32> = match members {
        Members::Marked(mark) => marks::find(mark),
        Members::Visible => {
            let folder = fs::read_dir("/proc").into_iter().flatten().flatten();
            folder.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
        }
    };
    let all = pids.len();
    let found = pids.into_iter().filter_map(|pid| parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?));
    let found: Vec<Process> = found.collect();
    let vanished = all - found.len();
    (found, vanished)
}

fn parse(stat: &str) -> Option<Process> {
    let pid = stat.split(' ').next()?.parse().ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    let threads = fields.nth(13).and_then(|threads| threads.parse().ok()).unwrap_or(1);
    Some(Process { pid, parent, group, session, zombie, threads })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_parentheses_does_not_confuse_the_reading() {
        let process = parse("7 (a) R 1 (x) ) S 3 7 5 0 -1").unwrap();
        let wanted = Process { pid: 7, parent: 3, group: 7, session: 5, zombie: false, threads: 1 };
        assert_eq!(process, wanted);
        assert_eq!(parse("7 (a) Z 1 7 7 0").map(|p| p.zombie), Some(true));
        assert_eq!(parse(""), None);
        assert_eq!(parse("7 (a"), None);
    }

    #[test]
    fn a_process_whose_first_thread_ended_is_not_over_before_the_others_end() {
        let stat = |threads| format!("7 (a) Z 1 7 7 0 -1 4227084 141 0 0 0 0 0 0 0 20 0 {threads} 0 5 0 0");
        let process = |threads| parse(&stat(threads)).unwrap();
        assert_eq!((process(1).is_over(), process(2).is_over()), (true, false));
    }

    #[test]
    fn a_command_is_its_descendants_and_its_session() {
        let process =
            |pid, parent, session| Process { pid, parent, group: session, session, zombie: false, threads: 1 };
        let all = [process(2, 1, 0), process(10, 1, 10), process(11, 10, 11), process(12, 1, 10), process(20, 1, 20)];
        let target = Target::Command { main: 10, zygote: 2 };
        let chosen: Vec<i32> = all.iter().filter(|p| is_in(&all, p, target)).map(|p| p.pid).collect();
        assert_eq!(chosen, [10, 11, 12]);
    }
}
