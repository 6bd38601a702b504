//! Cold sandboxes per second, several at one time.

use std::time::Instant;

use anyhow::Result;
use tokio::task::{JoinSet, LocalSet};

use crate::{
    Bench,
    report::{Goal, Line, Report},
    samples::Samples,
    succeeded, true_request,
};

/// Sandboxes that each worker makes for one sample.
const EACH: usize = 15;

pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let mut samples = Samples::new(format!("glovebox, {} at once", bench.flags.at_once), "per second");
    for _ in 0..bench.flags.count {
        let started = Instant::now();
        LocalSet::new().block_on(&bench.runtime, batch(bench))?;
        samples.values.push((bench.flags.at_once * EACH) as f64 / started.elapsed().as_secs_f64());
    }
    let rate = samples.median();
    report.line(Line {
        measure: "cold sandboxes per second on 2 cores",
        goal_text: "≥ 200",
        goal: Goal::AtLeast(200.0),
        measured: format!("{rate:.0} per second"),
        compared: String::new(),
        value: rate,
    });
    report.samples("rate", [samples]);
    Ok(())
}

/// Each worker makes one sandbox after the other; all workers together are one batch.
async fn batch(bench: &Bench) -> Result<()> {
    let mut workers = JoinSet::new();
    for _ in 0..bench.flags.at_once {
        let engine = bench.engine.clone();
        workers.spawn_local(async move {
            for _ in 0..EACH {
                succeeded(&engine.run(true_request()?).await?)?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    Ok(())
}
