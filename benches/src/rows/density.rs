//! Many sandboxes that stay, alive at one time and idle: what each takes, and whether the last is made as fast as the first.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use glovebox_core::SandboxId;
use glovebox_engine::{Engine, NewSandbox};

use crate::{
    Bench,
    process::{Tree, pss_kib},
    report::{Goal, Line, Report},
    samples::Samples,
    succeeded, true_request,
};

/// The rate is that of so many, the first and the last.
const PART: usize = 100;

/// Made and ended before the first that counts.
const WARM_UP: usize = 10;

/// How long all of them have nothing to do before they are weighed: idle is what they are then.
const REST: Duration = Duration::from_secs(1);

pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let count = bench.flags.alive;
    ensure!(count >= 2 * PART, "--alive must be at least {}", 2 * PART);
    // What the caller has is left alone.
    let data = tempfile::tempdir()?;
    let engine = bench.engine.clone().with_data_dir(data.path());
    let mut alive = Vec::new();
    let measured = bench.runtime.block_on(fill(bench, &engine, count, &mut alive));
    // Whatever went wrong, none of them stays.
    let ended = bench.runtime.block_on(empty(&engine, &alive));
    let (made, weights) = measured?;
    let ended = ended?;
    let per_second = |times: &[f64]| times.len() as f64 * 1000.0 / times.iter().sum::<f64>();
    let (first, last) = (per_second(&made.values[..PART]), per_second(&made.values[count - PART..]));
    let each: f64 = weights.iter().map(|samples| samples.values.iter().sum::<f64>()).sum::<f64>() / count as f64;
    report.line(Line {
        measure: "sandboxes that stay, all alive and idle: PSS of guest and keeper for each",
        goal_text: "≤ 2 MiB with 1,000",
        goal: Goal::AtMost(2.0),
        measured: format!("{each:.2} MiB with {count}"),
        compared: String::new(),
        value: each,
    });
    report.line(Line {
        measure: "sandboxes that stay: the last 100 made of 1,000",
        goal_text: "≥ 0.7 × the rate of the first 100",
        goal: Goal::AtLeast(0.7),
        measured: format!("{last:.0} per second, {count} alive"),
        compared: format!("the first {PART} {first:.0} per second"),
        value: last / first,
    });
    report.samples("density", weights);
    report.samples("density", [made, ended]);
    Ok(())
}

/// Makes all of them, uses each once, and weighs them: how long each took to make, and the MiB of the guests and of the keeper.
async fn fill(
    bench: &Bench,
    engine: &Engine,
    count: usize,
    alive: &mut Vec<SandboxId>,
) -> Result<(Samples, [Samples; 2])> {
    for _ in 0..WARM_UP {
        engine.create_living(NewSandbox::default()).await?.destroy().await?;
    }
    let mut made = Samples::new("making one", "ms");
    let mut pids = Vec::new();
    for _ in 0..count {
        let started = Instant::now();
        let sandbox = engine.create_living(NewSandbox::default()).await?;
        made.values.push(started.elapsed().as_secs_f64() * 1000.0);
        alive.push(sandbox.id());
        pids.push(bench.backend.guest_pid(sandbox.id()).context("the guest has no process")?);
    }
    for (at, id) in alive.iter().enumerate() {
        let sandbox = engine.open(&id.to_string()).await?;
        succeeded(&sandbox.run(true_request()?).await?).with_context(|| format!("sandbox {at}"))?;
    }
    tokio::time::sleep(REST).await;
    let tree = Tree::now()?;
    let mut inside = Samples::new("guest and its processes", "MiB");
    for pid in pids {
        let mut kib = 0;
        for pid in tree.below(pid) {
            kib += pss_kib(pid)?;
        }
        inside.values.push(kib as f64 / 1024.0);
    }
    let mut outside = Samples::new("launcher (keeper of all)", "MiB");
    outside.values.push(pss_kib(bench.backend.launcher_pid())? as f64 / 1024.0);
    Ok((made, [inside, outside]))
}

/// Ends all of them, and says how long each took.
async fn empty(engine: &Engine, alive: &[SandboxId]) -> Result<Samples> {
    let mut ended = Samples::new("ending one", "ms");
    let mut failed = None;
    for id in alive {
        let started = Instant::now();
        // The next is ended whatever became of this one.
        if let Err(error) = engine.destroy(&id.to_string()).await {
            failed = Some(error);
        }
        ended.values.push(started.elapsed().as_secs_f64() * 1000.0);
    }
    failed.map_or(Ok(ended), |error| Err(error).context("a sandbox could not be ended"))
}
