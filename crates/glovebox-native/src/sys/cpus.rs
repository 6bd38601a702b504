//! Where a new process starts.
//!
//! A scheduler that packs work on few CPUs, as those of virtual machines may, starts a forked process behind its parent
//! on the same CPU. Where the parent goes on to work for the child, as ours do, that turns work side by side into work
//! one after the other. So a new process is sent to another CPU at first, and may use all again once it is set up.
//!
//! There it must not get in the way of somebody whom all wait for. The kernel lets a new process begin at once, before the
//! one that runs; but not where the new one is scheduled as work that can wait (`SCHED_BATCH`), which is as fair otherwise.

use std::{ffi::c_int, io};

use rustix::{
    process::Pid,
    thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity},
};

use super::{Forked, check, fork_with};

/// Sends a process that was just forked to any CPU but the one this process is on. A hint: where it cannot be
/// followed, the process stays where it is.
pub(crate) fn send_elsewhere(process: Pid) {
    let Ok(mut others) = sched_getaffinity(None) else { return };
    if others.count() > 1 {
        others.unset(sched_getcpu());
        let _ = sched_setaffinity(Some(process), &others);
    }
}

/// Forks a process that begins on another CPU, as soon as that is free, and does not take this one first. Until the new
/// process is scheduled as usual again, it waits for those who run.
pub(crate) fn fork_aside() -> io::Result<Forked> {
    let for_now = give_way();
    let forked = fork_with(0);
    if let Ok(Forked::Child) = forked {
        return forked;
    }
    if let Ok(Forked::Parent { pid, .. }) = &forked {
        send_elsewhere(*pid);
    }
    if for_now {
        let _ = schedule_as_usual();
    }
    forked
}

/// Has this process wait for those who run, wherever it is woken. One with a policy of its own keeps that; says whether
/// something changed.
pub(crate) fn give_way() -> bool {
    // SAFETY: plain numbers.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    policy == i64::from(libc::SCHED_OTHER) && schedule_as(libc::SCHED_BATCH).is_ok()
}

/// Lets a process run that waits for this very CPU, if there is one.
pub(crate) fn let_others_go_first() {
    std::thread::yield_now();
}

/// Takes the ordinary scheduling policy. Control groups refuse real-time processes, and a sandbox has no claim to the
/// caller's priority.
pub(crate) fn schedule_as_usual() -> io::Result<()> {
    schedule_as(libc::SCHED_OTHER)
}

fn schedule_as(policy: c_int) -> io::Result<()> {
    let priority: c_int = 0;
    // SAFETY: the kernel reads one number, which is all that its structure holds. The C library's call is not used: musl
    // has none that works.
    check(unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) })
}

/// Lets this process use every CPU that `allowed` names.
pub(crate) fn allow_all_cpus(allowed: &CpuSet) {
    let _ = sched_setaffinity(None, allowed);
}
