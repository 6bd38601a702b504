//! Memory and descriptors of processes at one moment.

use std::{collections::BTreeMap, fs, time::Duration};

use serde_json::{Value, json};

/// How much a process may grow between the middle and the end: a tenth and one MiB.
const GROWTH_BYTES: u64 = 1 << 20;

/// How many times a sample looks.
const LOOKS: usize = 10;

/// What one process holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Resident memory, bytes.
    pub(super) memory: u64,
    /// Open descriptors.
    pub(super) descriptors: u64,
}

/// What each process holds, by name.
#[derive(Clone, Debug)]
pub(super) struct Samples(pub(super) BTreeMap<&'static str, Sample>);

impl Samples {
    /// Looks at each process a few times, and takes the least memory and the last number of descriptors: a helper that has just
    /// answered is still busy closing what it answered on, and then makes ahead what the next one will need.
    pub(super) async fn take(processes: &[(&'static str, i32)]) -> Self {
        let mut least: BTreeMap<&'static str, Sample> = BTreeMap::new();
        for _ in 0..LOOKS {
            for (name, pid) in processes {
                let now = Sample::take(*pid);
                let sample = least.entry(name).or_insert(now);
                sample.memory = sample.memory.min(now.memory);
                sample.descriptors = now.descriptors;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Samples(least)
    }

    /// Names of processes that grew since `middle`.
    pub(super) fn grown_since(&self, middle: &Samples) -> Vec<&'static str> {
        let grew = |name: &&'static str| match (middle.0.get(name), self.0.get(name)) {
            (Some(before), Some(now)) => {
                now.memory > before.memory + before.memory / 10 + GROWTH_BYTES || now.descriptors > before.descriptors
            }
            _ => true,
        };
        self.0.keys().copied().filter(grew).collect()
    }

    /// For the summary.
    pub(super) fn to_json(&self) -> Value {
        let one = |sample: &Sample| json!({"rss_bytes": sample.memory, "descriptors": sample.descriptors});
        self.0.iter().map(|(name, sample)| ((*name).to_owned(), one(sample))).collect()
    }
}

impl Sample {
    fn take(pid: i32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).and_then(|rest| {
            let number = rest.split_whitespace().next()?;
            number.parse::<u64>().ok()
        });
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |entries| entries.count() as u64);
        Sample { memory: kib.unwrap_or(0) << 10, descriptors }
    }
}
