//! Ending all processes of a sandbox that has no process namespace.
//!
//! There is no first process whose end the kernel makes the end of all. Where the commands have an id of their own, one
//! signal to everything of that id does it at once. Elsewhere processes are found by their mark and killed one by one,
//! again and again; against programs that fork faster than that, the caller's places for processes are filled up to the
//! limit that the sandbox has, so that nothing of it can fork any more.

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use glovebox_core::SandboxId;
use glovebox_guest::marks;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Resource, Rlimit, Signal, getrlimit, setrlimit},
};

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
/// How long a round waits for its effect.
const ROUND: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Ends every process below a reaper, whose own end is the proof that none is left: a look at all processes is none, since
/// they change while one looks. Says whether that was so.
pub(crate) fn end_below(reaper: &OwnedFd, mark: u64, ids: CommandIds) -> bool {
    let deadline = Instant::now() + LONGEST;
    let mut filling = None;
    for round in 0.. {
        if round > 0 && poll(&mut [PollFd::new(reaper, PollFlags::IN)], Some(&ROUND)) == Ok(1) {
            sys::wait_for(reaper);
            return true;
        }
        if Instant::now() > deadline {
            break;
        }
        let found = kill_marked(mark, ids);
        if round >= QUICK_ROUNDS && filling.is_none() && !ids.separate {
            filling = found.first().and_then(|pid| Filling::start(*pid));
        }
    }
    drop(filling);
    false
}

/// Ends what is found of a sandbox that nobody reaps any more. Says whether nothing was found in the end.
pub(crate) fn end_found(mark: u64, ids: CommandIds) -> bool {
    let deadline = Instant::now() + LONGEST;
    let mut filling = None;
    let mut quiet = 0;
    while quiet < QUICK_ROUNDS {
        let found = kill_marked(mark, ids);
        quiet = if found.is_empty() { quiet + 1 } else { 0 };
        if filling.is_none() && !ids.separate {
            filling = found.first().and_then(|pid| Filling::start(*pid));
        }
        if Instant::now() > deadline {
            return false;
        }
    }
    true
}

/// Kills all that can be found, and says what that was.
fn kill_marked(mark: u64, ids: CommandIds) -> Vec<i32> {
    if ids.separate {
        end_by_id(ids.uid);
    }
    let found = marks::find(mark);
    for pid in &found {
        marks::signal(*pid, mark, Signal::KILL);
    }
    found
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
