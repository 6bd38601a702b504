//! Memory of an idle sandbox: its guest with the zygote, and the launcher that keeps it.

use std::time::Duration;

use anyhow::{Context, Result};
use glovebox_core::SandboxSpec;

use crate::{
    Bench,
    process::{pss_kib, with_descendants},
    report::{Goal, Line, Report},
    samples::Samples,
    succeeded, true_request,
};

pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let mut guest = Samples::new("guest and zygote", "MiB");
    let mut keeper = Samples::new("launcher (keeper)", "MiB");
    let mut sum = Samples::new("together", "MiB");
    for _ in 0..bench.flags.count {
        let (inside, outside) = bench.runtime.block_on(idle(bench))?;
        guest.values.push(inside);
        keeper.values.push(outside);
        sum.values.push(inside + outside);
    }
    let value = sum.median();
    report.line(Line {
        measure: "memory of an idle sandbox (PSS of guest and keeper)",
        goal_text: "≤ 1.5 MiB",
        goal: Goal::AtMost(1.5),
        measured: format!("{value:.2} MiB"),
        compared: String::new(),
        value,
    });
    report.samples("memory", [guest, keeper, sum]);
    Ok(())
}

/// How long a sandbox has nothing to do before it is weighed: idle is what it is then.
const REST: Duration = Duration::from_millis(300);

/// Makes a sandbox, uses it once, leaves it alone, and weighs it: MiB of the processes inside, MiB of the launcher.
async fn idle(bench: &Bench) -> Result<(f64, f64)> {
    let sandbox = bench.engine.create(SandboxSpec::default()).await?;
    succeeded(&sandbox.run(true_request()?).await?)?;
    tokio::time::sleep(REST).await;
    let guest = bench.backend.guest_pid(sandbox.id()).context("the guest has no process")?;
    let mut inside = 0;
    for pid in with_descendants(guest)? {
        inside += pss_kib(pid)?;
    }
    let outside = pss_kib(bench.backend.launcher_pid())?;
    sandbox.destroy().await?;
    Ok((inside as f64 / 1024.0, outside as f64 / 1024.0))
}
