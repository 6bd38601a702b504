//! 1 GiB of output through a run: how fast, and how much memory Glovebox needs for it.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use glovebox_core::{Command, SandboxSpec};
use glovebox_engine::RunRequest;

use crate::{
    Bench, peers,
    process::{forget_peak, peak_kib, with_descendants},
    report::{Goal, Line, Report},
    samples::Samples,
    succeeded,
};

const BYTES: u64 = 1 << 30;
const MIB: f64 = (BYTES >> 20) as f64;

pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let mut rate = Samples::new("glovebox", "MiB/s");
    let mut bare = Samples::new("bare pipe", "MiB/s");
    let mut peak = Samples::new("glovebox, this process + launcher + guest", "MiB");
    for _ in 0..bench.flags.count {
        let (seconds, mib) = bench.runtime.block_on(run(bench))?;
        rate.values.push(MIB / seconds);
        peak.values.push(mib);
        let started = Instant::now();
        peers::output_through_a_pipe(BYTES)?;
        bare.values.push(MIB / started.elapsed().as_secs_f64());
    }
    let line = |measure, goal_text, goal, measured, value| Line {
        measure,
        goal_text,
        goal,
        measured,
        compared: String::new(),
        value,
    };
    let (speed, memory) = (rate.median(), peak.median());
    report.line(line(
        "1 GiB of output through a run: Glovebox's own peak memory",
        "≤ 48 MiB",
        Goal::AtMost(48.0),
        format!("{memory:.1} MiB"),
        memory,
    ));
    report.line(line(
        "1 GiB of output through a run: speed",
        "≥ 400 MiB/s",
        Goal::AtLeast(400.0),
        format!("{speed:.0} MiB/s"),
        speed,
    ));
    report.samples("output", [rate, bare, peak]);
    Ok(())
}

/// One run of `head` in a new sandbox: seconds of the run, and the sum of the highest resident sizes in MiB.
async fn run(bench: &Bench) -> Result<(f64, f64)> {
    let (own, launcher) = (std::process::id() as i32, bench.backend.launcher_pid());
    let sandbox = bench.engine.create(SandboxSpec::default()).await?;
    let guest = bench.backend.guest_pid(sandbox.id()).context("the guest has no process")?;
    let inside = with_descendants(guest)?;
    for pid in inside.iter().copied().chain([own, launcher]) {
        forget_peak(pid)?;
    }
    let started = Instant::now();
    let request = RunRequest::new(Command::argv(["head", "-c", &BYTES.to_string(), "/dev/zero"])?);
    let result = sandbox.run(request).await?;
    let seconds = started.elapsed().as_secs_f64();
    succeeded(&result)?;
    ensure!(result.stdout.bytes == BYTES, "{} bytes arrived", result.stdout.bytes);
    let mut kib = 0;
    for pid in inside.into_iter().chain([own, launcher]) {
        kib += peak_kib(pid)?;
    }
    sandbox.destroy().await?;
    Ok((seconds, kib as f64 / 1024.0))
}
