//! When a sandbox was paused: the time of its runs stands still meanwhile. All times are milliseconds since 1970.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// For so long it is tried to freeze a sandbox.
pub const FREEZING: Duration = Duration::from_secs(2);

/// Pauses that are remembered one by one.
const MOST_PAUSES: usize = 1000;

/// A pause in milliseconds of the clock on the wall: from when, and until when, once that was noted.
type Pause = (i64, Option<i64>);

/// When a sandbox was paused. A pause is noted before the processes are frozen, and its end before they go on, so whatever
/// dies in between: the last pause lasts until now where they are frozen; where they are not, one without an end was given up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pauses {
    /// How long those took together that are no longer remembered one by one, and when the last of them was over.
    older: (i64, i64),
    last: Vec<Pause>,
}

impl Pauses {
    /// Notes that a pause begins. That of a sandbox that is frozen goes on.
    pub fn begin(&mut self, now: i64, is_frozen: bool) {
        match self.last.last_mut().filter(|_| is_frozen) {
            Some((_, until)) => *until = None,
            None => {
                self.end(now, false);
                self.last.push((now, None));
            }
        }
        for (from, until) in self.last.drain(..self.last.len().saturating_sub(MOST_PAUSES)) {
            let until = until.unwrap_or(from);
            self.older = (self.older.0 + (until - from).max(0), until);
        }
    }

    /// Notes that the pause is over, if there is one.
    pub fn end(&mut self, now: i64, is_frozen: bool) {
        if let Some((from, until)) = self.last.last_mut() {
            *until = Some(end_of((*from, *until), now, is_frozen));
        }
    }

    /// When the last one began.
    pub fn last_begun(&self) -> Option<i64> {
        self.last.last().map(|(from, _)| *from)
    }

    /// Whether the last one has not ended.
    pub fn is_open(&self) -> bool {
        self.last.last().is_some_and(|(_, until)| until.is_none())
    }

    /// Whether the pause that is known by a moment has neither ended nor given way to another.
    pub fn is_open_since(&self, begun: i64) -> bool {
        self.last.last() == Some(&(begun, None))
    }

    /// How long they took since a moment.
    pub fn since(&self, since: i64, now: i64, is_frozen: bool) -> i64 {
        // Which of the older ones were before that moment is not known; a run may have too much time, and never too little.
        let older = self.older.0.min(self.older.1 - since).max(0);
        let last = self.last.len();
        let lengths = self.last.iter().zip(1..).map(|(pause, number)| {
            let until = end_of(*pause, now, is_frozen && number == last);
            until.saturating_sub(pause.0.max(since)).max(0)
        });
        older + lengths.sum::<i64>()
    }
}

/// When a pause was over, or would be if it were now. A sandbox that could not be frozen was in part, for as long as that was
/// tried.
fn end_of((from, until): Pause, now: i64, is_frozen: bool) -> i64 {
    match until {
        _ if is_frozen => now,
        Some(until) => until,
        None => now.min(from + FREEZING.as_millis() as i64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_was_noted_and_never_was_counts_for_as_long_as_it_was_tried() {
        let mut pauses = Pauses::default();
        pauses.begin(1_000, false);
        // The keeper dies here.
        assert_eq!(pauses.since(0, 1_500, false), 500);
        assert_eq!(pauses.since(0, 900_000, false), 2_000);
        pauses.begin(900_000, false);
        assert_eq!(pauses.since(0, 900_100, true), 2_100);
        pauses.end(900_200, true);
        assert_eq!(pauses.since(0, 999_000, false), 2_200);
    }

    #[test]
    fn a_pause_whose_end_was_noted_lasts_for_as_long_as_the_sandbox_is_frozen() {
        let mut pauses = Pauses::default();
        pauses.begin(1_000, false);
        pauses.end(2_000, true);
        // The keeper dies here.
        assert_eq!(pauses.since(0, 5_000, true), 4_000);
        pauses.begin(6_000, true);
        assert_eq!(pauses.since(0, 7_000, true), 6_000);
        pauses.end(8_000, true);
        assert_eq!(pauses.since(0, 9_000, false), 7_000);
        // It was not paused again.
        pauses.end(9_500, false);
        assert_eq!(pauses.since(0, 9_900, false), 7_000);
    }

    #[test]
    fn what_is_too_much_to_be_remembered_one_by_one_still_counts() {
        let mut pauses = Pauses::default();
        let many = 2 * MOST_PAUSES as i64;
        for number in 0..many {
            pauses.begin(number * 100, false);
            pauses.end(number * 100 + 10, true);
        }
        assert_eq!(pauses.last.len(), MOST_PAUSES);
        let now = many * 100;
        assert_eq!(pauses.since(0, now, false), many * 10);
        // One that began between two that are remembered, and one that began just before the last that is not.
        assert_eq!(pauses.since(now - 200, now, false), 20);
        let forgotten = (many / 2 - 1) * 100;
        assert_eq!(pauses.since(forgotten, now, false), many / 2 * 10 + 10);
    }
}
