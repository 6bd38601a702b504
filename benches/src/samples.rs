//! Samples of one contestant, and the taking of turns.

use std::time::Instant;

use anyhow::{Context, Result};

/// Measured values of one contestant.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    /// The contestant.
    pub(crate) name: String,
    /// The unit of the values.
    pub(crate) unit: &'static str,
    /// The values, in the order of measuring.
    pub(crate) values: Vec<f64>,
}

impl Samples {
    /// No sample yet.
    pub(crate) fn new(name: impl Into<String>, unit: &'static str) -> Self {
        Samples { name: name.into(), unit, values: Vec::new() }
    }

    /// The value below which this part of the samples lies.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let at = ((sorted.len() - 1) as f64 * part).round() as usize;
        sorted[at]
    }

    /// The median.
    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

/// Something that is timed.
pub(crate) struct Contestant<'a> {
    name: String,
    act: Box<dyn FnMut() -> Result<()> + 'a>,
}

impl<'a> Contestant<'a> {
    /// A name, and what it does once.
    pub(crate) fn new(name: impl Into<String>, act: impl FnMut() -> Result<()> + 'a) -> Self {
        Contestant { name: name.into(), act: Box::new(act) }
    }
}

/// Times each contestant `count` times, in milliseconds. They take turns, in another order each round, so that nobody
/// always follows the one that leaves the machine busy. One round before the first is not counted.
pub(crate) fn take_turns(count: usize, mut contestants: Vec<Contestant<'_>>) -> Result<Vec<Samples>> {
    let mut samples: Vec<Samples> = contestants.iter().map(|c| Samples::new(c.name.clone(), "ms")).collect();
    let mut order: Vec<usize> = (0..contestants.len()).collect();
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..=count {
        shuffle(&mut order, &mut dice);
        for &at in &order {
            let contestant = &mut contestants[at];
            let started = Instant::now();
            (contestant.act)().with_context(|| contestant.name.clone())?;
            let took = started.elapsed();
            if round > 0 {
                samples[at].values.push(took.as_secs_f64() * 1000.0);
            }
        }
    }
    Ok(samples)
}

/// Fisher and Yates, with a xorshift that gives the same orders in every benchmark.
fn shuffle(order: &mut [usize], dice: &mut u64) {
    for at in (1..order.len()).rev() {
        *dice ^= *dice << 13;
        *dice ^= *dice >> 7;
        *dice ^= *dice << 17;
        order.swap(at, (*dice % (at as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
        let samples = Samples { values: vec![9.0, 1.0, 5.0, 2.0, 7.0], ..Samples::new("a", "ms") };
        assert_eq!(samples.median(), 5.0);
        assert_eq!(samples.quantile(1.0), 9.0);
    }

    #[test]
    fn each_round_holds_every_contestant_once() {
        let seen = RefCell::new(Vec::new());
        let act = |n: usize| {
            let seen = &seen;
            move || {
                seen.borrow_mut().push(n);
                Ok(())
            }
        };
        let contestants = (0..3).map(|n| Contestant::new(n.to_string(), act(n))).collect();
        let samples = take_turns(10, contestants).unwrap();
        assert!(samples.iter().all(|s| s.values.len() == 10));
        for round in seen.borrow().chunks(3) {
            let mut round = round.to_vec();
            round.sort_unstable();
            assert_eq!(round, [0, 1, 2]);
        }
    }
}
