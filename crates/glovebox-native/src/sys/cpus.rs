//! Where a new process starts.
//!
//! A scheduler that packs work on few CPUs, as those of virtual machines may, starts a forked process behind its parent
//! on the same CPU. Where the parent goes on to work for the child, as ours do, that turns work side by side into work
//! one after the other. So a new process is sent to another CPU at first, and may use all again once it is set up.

use rustix::{
    process::Pid,
    thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity},
};

/// Sends a process that was just forked to any CPU but the one this process is on. A hint: where it cannot be
/// followed, the process stays where it is.
pub(crate) fn send_elsewhere(process: Pid) {
    let Ok(mut others) = sched_getaffinity(None) else { return };
    if others.count() > 1 {
        others.unset(sched_getcpu());
        let _ = sched_setaffinity(Some(process), &others);
    }
}

/// Lets this process use every CPU that `allowed` names.
pub(crate) fn allow_all_cpus(allowed: &CpuSet) {
    let _ = sched_setaffinity(None, allowed);
}
