//! How long a living sandbox lives: to a point in time, or until nobody has used it for a while.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use glovebox_proto::container::{ENDED_IDLE, ENDED_OLD, Plan};

use crate::{processes, server::Guest};

/// A sandbox is looked at again after so long: clocks are set, and what runs beside no connection may end.
const LONGEST_REST: Duration = Duration::from_secs(10);

/// Waits until the sandbox's time has come, and says with which code it ends then.
pub(super) async fn over(guest: &Guest, plan: &Plan) -> u8 {
    let idle = plan.idle_ms.map(Duration::from_millis);
    let mut used = Instant::now();
    let mut was_in_use = false;
    loop {
        let now = Instant::now();
        used = [Some(used), Some(guest.left()), guest.runs.last_end()].into_iter().flatten().max().unwrap_or(now);
        let in_use = idle.is_some() && is_in_use(guest);
        if in_use || was_in_use {
            // When a process that no run waits for ended is not known, so it is taken for now.
            used = now;
        }
        was_in_use = in_use;
        let until_idle = idle.map(|idle| idle.saturating_sub(now - used));
        let until_end =
            plan.expires_ms.map(|end| Duration::from_millis(end.saturating_sub(since_1970()).max(0) as u64));
        let wait = [until_idle, until_end].into_iter().flatten().min().unwrap_or(LONGEST_REST);
        if wait.is_zero() {
            return if until_end.is_some_and(|left| left.is_zero()) { ENDED_OLD } else { ENDED_IDLE };
        }
        tokio::time::sleep(wait.min(LONGEST_REST)).await;
    }
}

/// A connection is use, and a process that works, and whoever pauses a sandbox wants it to be there later. An interpreter that
/// waits for the next run in its session is none.
fn is_in_use(guest: &Guest) -> bool {
    if guest.connections() > 0 || guest.runs.count() > 0 || *guest.paused.borrow() {
        return true;
    }
    // The number of one that ended may be another process's.
    let resting: Vec<i32> = guest.sessions.resting().into_iter().filter(|pid| guest.reaper.has(*pid)).collect();
    processes::are_at_work(guest.zygote_pid, &resting)
}

fn since_1970() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_millis() as i64)
}
