//! Looking from time to time at what no event tells: memory without a group, lifetimes, disks.

use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use super::{DISK, KIND_BITS, Launcher, live::end, watch_for};
use crate::watch::MemoryWatch;

/// How often a keeper looks whether something still runs that nobody follows.
const BUSY_REST: Duration = Duration::from_secs(2);
/// A keeper looks at its sandboxes at least so often.
const LONGEST_REST: Duration = Duration::from_secs(3600);

impl Launcher {
    /// Looks at what must be looked at from time to time, when its time has come. Says how long it is until then. To go through
    /// thousands of sandboxes takes longer than to serve one event.
    pub(super) fn look(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if self.next_look.is_none_or(|next| next <= now) {
            let soonest = [self.look_at_memory(), self.look_at_lives()].into_iter().flatten().min();
            self.next_look = soonest.map(|wait| now + wait);
        }
        Some(self.next_look?.saturating_duration_since(now))
    }

    /// Looks at the memory of every sandbox whose time has come. Says how long it is until the next one's.
    fn look_at_memory(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let mut soonest: Option<Instant> = None;
        for live in self.sandboxes.values_mut().filter(|live| !live.exited) {
            let due = live.memory.as_ref().and_then(MemoryWatch::next).is_some_and(|next| next <= now);
            let idle = due && live.living.is_some() && !live.is_busy();
            let Some(watch) = &mut live.memory else { continue };
            if idle {
                // Whoever starts a run says so first.
                watch.rest();
            } else if due {
                // A group that cannot be read is going away; the hard limit still holds.
                let _ = watch.look(live.store.as_fd());
            }
            soonest = [soonest, watch.next()].into_iter().flatten().min();
        }
        Some(soonest?.saturating_duration_since(now))
    }

    /// Looks at lifetimes and disks whose time has come. Says how long it is until the next one's.
    fn look_at_lives(&mut self) -> Option<Duration> {
        let mut soonest: Option<Duration> = None;
        let now = Instant::now();
        let numbers: Vec<u64> = self.sandboxes.keys().copied().collect();
        for number in numbers {
            let Some(live) = self.sandboxes.get_mut(&number).filter(|live| !live.exited) else { continue };
            match live.living.as_ref().map(|kept| kept.due.saturating_duration_since(now)) {
                None => continue,
                Some(wait) if !wait.is_zero() => {
                    soonest = Some(soonest.map_or(wait, |soonest| soonest.min(wait)));
                    continue;
                }
                Some(_) => {}
            }
            let followed = self.clients.values().any(|client| client.waits_for == Some(number));
            let commands = live.commands();
            // The zygote is one of them.
            let busy = commands.len() > 1;
            let groups = &live.groups;
            let Some(kept) = &mut live.living else { continue };
            // A running process is use, and whoever pauses a sandbox wants it to be there later. An interpreter that waits for the next
            // run in its session is none.
            let at_rest = || kept.leaves.as_ref().map_or(0, |leaves| leaves.at_rest(groups));
            let at_work = || busy && commands.len() > 1 + at_rest();
            let until_end = match kept.look_at_life(|| groups.is_frozen() || at_work()) {
                Ok(until) => until,
                Err(reason) if !live.destroy => {
                    kept.ended = Some(reason);
                    live.destroy = true;
                    end(live);
                    continue;
                }
                Err(_) => continue,
            };
            let disk = &mut kept.disk;
            if disk.looking.is_none() && disk.next.is_some_and(|next| next <= now) {
                disk.next = None;
                if (followed || busy || std::mem::take(&mut disk.has_run))
                    && let Ok(told) = disk.begin_look(&live.store, &commands)
                {
                    let _ = watch_for(&self.events, told, number << KIND_BITS | DISK);
                }
            }
            if busy && disk.looking.is_none() && disk.next.is_none() {
                disk.next = Some(now + BUSY_REST);
            }
            let until_disk = disk.next.map(|next| next.saturating_duration_since(now));
            let wait = [until_end, until_disk].into_iter().flatten().min().unwrap_or(LONGEST_REST);
            kept.due = now + wait;
            soonest = Some(soonest.map_or(wait, |soonest| soonest.min(wait)));
        }
        soonest
    }
}
