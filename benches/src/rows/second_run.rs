//! A further run in a sandbox that lives.

use anyhow::Result;
use glovebox_core::SandboxSpec;

use crate::{
    Bench, peers,
    report::{Goal, Line, Report},
    samples::{Contestant, take_turns},
    succeeded, true_request,
};

pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let sandbox = bench.runtime.block_on(bench.engine.create(SandboxSpec::default()))?;
    let contestants = vec![
        Contestant::new("glovebox, living sandbox", || {
            succeeded(&bench.runtime.block_on(sandbox.run(true_request()?))?)
        }),
        Contestant::new("fork+exec with pipes", peers::fork_exec_with_pipes),
    ];
    let samples = take_turns(bench.flags.count, contestants)?;
    bench.runtime.block_on(sandbox.destroy())?;
    let [ours, bare] = [0, 1].map(|at| samples[at].median());
    report.line(Line {
        measure: "second run in the same sandbox, library",
        goal_text: "≤ 1.5 × bare fork+exec with pipes",
        goal: Goal::AtMost(1.5),
        measured: format!("{ours:.2} ms"),
        compared: format!("fork+exec with pipes {bare:.2} ms"),
        value: ours / bare,
    });
    report.samples("second", samples);
    Ok(())
}
