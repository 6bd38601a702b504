//! What the kernel says of a process of this machine.

use std::fs;

/// The kernel has begun to take it apart.
const EXITING: u64 = 0x4;

/// A process as it is now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// It has ended, and its parent was not told yet.
    pub(crate) has_ended: bool,
    flags: u64,
    /// In ticks since the boot; no other process with its number has the same.
    pub(crate) start: u64,
}

impl Stat {
    pub(crate) fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Whether it was killed, or ends by itself: nothing of its program goes on. The end of the first process of a container waits for that of all
    /// others there.
    pub(crate) fn is_ending(&self) -> bool {
        self.has_ended || self.flags & EXITING != 0
    }

    /// See proc(5); the field after the name is the third.
    fn parse(stat: &str) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let number = |at: usize| fields.get(at)?.parse().ok();
        Some(Stat { has_ended: ["Z", "X"].contains(fields.first()?), flags: number(6)?, start: number(19)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start_and_shows_that_it_ends() {
        let own = Stat::of(std::process::id() as i32).unwrap();
        assert!(own.start > 0 && !own.is_ending(), "{own:?}");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        while Stat::of(pid).is_some_and(|stat| !stat.has_ended) {
            std::thread::yield_now();
        }
        let ended = Stat::of(pid).unwrap();
        assert!(ended.flags & EXITING != 0 && ended.start >= own.start, "{ended:?}");
        child.wait().unwrap();
        assert_eq!(Stat::of(pid), None);
    }

    #[test]
    fn a_name_with_brackets_and_spaces_hides_nothing() {
        let stat = "7 (a) Z (b) S 1 1 1 0 -1 4194564 0 0 0 0 0 0 0 0 20 0 1 0 4711 0";
        let told = Stat { has_ended: false, flags: 4_194_564, start: 4711 };
        assert!(told.is_ending());
        assert_eq!(Stat::parse(stat), Some(told));
        assert_eq!(Stat::parse("7 (a) S 1"), None);
    }
}
