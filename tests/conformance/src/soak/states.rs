//! Random lives of sandboxes, by two processes, against a model.

use std::time::Duration;

use serde_json::json;

use super::kill::random_below;
use crate::{Subject, leftovers::wait_until_clean, states::explore};

/// How long an ending in the background may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether every life went as the model says.
pub async fn states(subject: &dyn Subject, time: Duration, seed: Option<u64>) -> anyhow::Result<bool> {
    let features = subject.backend().probe().await?;
    let data = tempfile::tempdir()?;
    let seed = seed.unwrap_or_else(|| random_below(u64::MAX));
    let before = subject.traces();
    let explored = explore(data.path(), seed, time, &features);
    // What a killed process had asked for may still be made, and is removed when nobody comes for it.
    let left = wait_until_clean(|| subject.traces().things_since(&before), PATIENCE).await;
    let (steps, races) = explored.as_ref().map_or((0, 0), |explored| (explored.steps, explored.races));
    let failure = explored.as_ref().err().map(|error| format!("{error:#}"));
    let summary = json!({
        "soak": "soak-states", "ok": failure.is_none() && left.0.is_empty(), "seed": seed.to_string(), "seconds": time.as_secs(),
        "steps": steps, "races": races, "failure": failure, "left": left.0,
    });
    println!("{summary}");
    Ok(explored.is_ok() && left.0.is_empty())
}
