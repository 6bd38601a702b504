//! Ending all processes of a sandbox that has no process namespace.
//!
//! There is no first process whose end the kernel makes the end of all. Where the commands have an id of their own, one
//! signal to everything of that id does it at once. Elsewhere processes are found by their mark and killed one by one,
//! again and again; against programs that fork faster than that, the caller's places for processes are filled up to the
//! limit that the sandbox has, so that nothing of it can fork any more.

use std::time::{Duration, Instant};

use glovebox_core::SandboxId;
use glovebox_guest::marks;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use super::ids::CommandIds;
use crate::{
    sys::{self, Forked, KillOnDrop},
    wire,
};

/// The mark of a sandbox: large enough to limit nothing, small enough for a signed number.
pub(crate) fn mark_of(id: SandboxId) -> u64 {
    const LEAST: u64 = 1 << 60;
    LEAST | (id.as_u128() as u64 & (LEAST - 1))
}

/// So many rounds come before harder means.
const QUICK_ROUNDS: usize = 20;
/// No end takes longer; what is left then is found by the next start.
const LONGEST: Duration = Duration::from_secs(10);

/// Ends every process of a sandbox. Says whether none is left.
pub(crate) fn end_all(mark: u64, ids: CommandIds) -> bool {
    let deadline = Instant::now() + LONGEST;
    let mut filled = None;
    for round in 0.. {
        let found = marks::find(mark);
        if found.is_empty() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        if ids.separate {
            end_by_id(ids.uid);
        }
        // The guest and what else has another id, and everything where there is but one.
        for pid in &found {
            marks::signal(*pid, mark, Signal::KILL);
        }
        if round == QUICK_ROUNDS && !ids.separate {
            filled = found.first().and_then(|pid| Filling::start(*pid));
        }
        std::thread::yield_now();
    }
    drop(filled);
    false
}

/// Kills everything that has an id which only one sandbox has. The kernel does it at once: nothing forks meanwhile.
fn end_by_id(uid: u32) {
    match sys::fork_with(0) {
        Ok(Forked::Child) => {
            if uid != 0 && sys::become_user(uid).is_ok() {
                sys::kill_everybody_else();
            }
            sys::exit_now(0)
        }
        Ok(Forked::Parent { pidfd, .. }) => sys::wait_for(&pidfd),
        // The rounds go on without it.
        Err(_) => {}
    }
}

/// Processes that do nothing but count, so that a sandbox at its limit cannot fork.
struct Filling {
    _leader: KillOnDrop,
}

impl Filling {
    /// Fills up what a process of the sandbox may still fork. Nothing when its limit is not known any more.
    fn start(pid: i32) -> Option<Self> {
        let limit = process_limit(pid)?;
        let (here, there) = wire::message_pair().ok()?;
        match sys::fork_with(0).ok()? {
            Forked::Child => {
                drop(here);
                let _ = sys::die_with_parent();
                fill(limit);
                let _ = wire::send(&there, &(), &[]);
                sys::wait_for_ever()
            }
            Forked::Parent { pidfd, .. } => {
                drop(there);
                let leader = KillOnDrop::new(pidfd);
                let _ = wire::receive::<()>(&here);
                Some(Filling { _leader: leader })
            }
        }
    }
}

/// Forks until the limit that the sandbox has is reached.
fn fill(limit: u64) {
    let most = getrlimit(Resource::Nproc).maximum.map_or(limit, |most| most.min(limit));
    if setrlimit(Resource::Nproc, Rlimit { current: Some(most), maximum: Some(most) }).is_err() {
        return;
    }
    while let Ok(forked) = sys::fork_with(0) {
        if let Forked::Child = forked {
            if sys::die_with_parent().is_ok() {
                sys::wait_for_ever();
            }
            sys::exit_now(0)
        }
    }
}

/// How many processes the user of a process may have, as far as that process is concerned.
fn process_limit(pid: i32) -> Option<u64> {
    let limits = sys::read_small(format!("/proc/{pid}/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max processes"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_differ_and_limit_nothing() {
        let (a, b) = (mark_of(SandboxId::new()), mark_of(SandboxId::new()));
        assert_ne!(a, b);
        assert!(a >= 1 << 60 && i64::try_from(a).is_ok());
    }
}
