//! What a sandbox used, look by look.

use std::{collections::VecDeque, time::Instant};

use glovebox_core::UsageNow;

/// So many looks are kept: more than the widest terminal shows.
const KEPT: usize = 600;

/// What was used between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// CPU time for each second, percent of one CPU.
    pub(crate) cpu: f64,
    /// Memory in use, bytes.
    pub(crate) memory: u64,
    /// Bytes read for each second.
    pub(crate) read: u64,
    /// Bytes written for each second.
    pub(crate) written: u64,
}

/// The samples of one sandbox, and the answer that the next one is counted from.
#[derive(Debug, Default)]
pub(crate) struct History {
    samples: VecDeque<Option<Sample>>,
    last: Option<(Instant, UsageNow)>,
}

impl History {
    /// Takes an answer. The first one says what is there, and from the second on it is known how fast it grows.
    pub(crate) fn add(&mut self, at: Instant, usage: UsageNow) {
        if let Some((before, last)) = &self.last {
            let seconds = at.saturating_duration_since(*before).as_secs_f64();
            // A sandbox that was started anew counts from nothing.
            let goes_on = usage.cpu_ms >= last.cpu_ms;
            if goes_on && seconds > 0.0 {
                let rate = |now: u64, then: u64| (now.saturating_sub(then) as f64 / seconds) as u64;
                self.push(Some(Sample {
                    cpu: (usage.cpu_ms - last.cpu_ms) / seconds / 10.0,
                    memory: usage.memory_bytes,
                    read: rate(usage.read_bytes, last.read_bytes),
                    written: rate(usage.written_bytes, last.written_bytes),
                }));
            }
        }
        self.last = Some((at, usage));
    }

    /// There was no answer, or nothing to ask.
    pub(crate) fn skip(&mut self) {
        self.last = None;
        if !self.samples.is_empty() {
            self.push(None);
        }
    }

    /// The last answer, unless there was none in time.
    pub(crate) fn usage(&self) -> Option<&UsageNow> {
        self.last.as_ref().map(|(_, usage)| usage)
    }

    /// The last sample, unless something is missing since.
    pub(crate) fn latest(&self) -> Option<&Sample> {
        self.last.as_ref()?;
        self.samples.back()?.as_ref()
    }

    /// The samples, the newest first, each as a number; nothing where there was no answer.
    pub(crate) fn newest_first(&self, number: impl Fn(&Sample) -> u64) -> Vec<Option<u64>> {
        self.samples.iter().rev().map(|sample| sample.as_ref().map(&number)).collect()
    }

    fn push(&mut self, sample: Option<Sample>) {
        if self.samples.len() == KEPT {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn usage(cpu_ms: f64, written_bytes: u64) -> UsageNow {
        UsageNow { cpu_ms, memory_bytes: 7, written_bytes, ..UsageNow::default() }
    }

    #[test]
    fn rates_are_counted_from_answer_to_answer_and_never_below_nothing() {
        let (start, mut history) = (Instant::now(), History::default());
        history.add(start, usage(1000.0, 0));
        assert_eq!((history.latest(), history.usage().map(|usage| usage.memory_bytes)), (None, Some(7)));
        history.add(start + Duration::from_secs(2), usage(2000.0, 4096));
        assert_eq!(history.latest(), Some(&Sample { cpu: 50.0, memory: 7, read: 0, written: 2048 }));
        // Stopped and started again: it counts from nothing.
        history.add(start + Duration::from_secs(3), usage(10.0, 0));
        assert_eq!(history.newest_first(|sample| sample.cpu as u64), [Some(50)]);
        history.add(start + Duration::from_secs(4), usage(1010.0, 0));
        assert_eq!(history.newest_first(|sample| sample.cpu as u64), [Some(100), Some(50)]);
    }

    #[test]
    fn what_was_not_answered_is_a_gap_and_not_nothing() {
        let (start, mut history) = (Instant::now(), History::default());
        history.skip();
        assert!(history.newest_first(|sample| sample.memory).is_empty());
        history.add(start, usage(0.0, 0));
        history.add(start + Duration::from_secs(1), usage(0.0, 0));
        history.skip();
        assert_eq!((history.latest(), history.usage()), (None, None));
        assert_eq!(history.newest_first(|sample| sample.memory), [None, Some(7)]);
    }

    #[test]
    fn only_so_many_samples_are_kept() {
        let (start, mut history) = (Instant::now(), History::default());
        for second in 0..2 * KEPT as u64 {
            history.add(start + Duration::from_secs(second), usage(second as f64, 0));
        }
        assert_eq!(history.newest_first(|_| 0).len(), KEPT);
    }
}
