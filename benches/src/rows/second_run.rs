//! A further run in a sandbox that lives.

use anyhow::Result;
use glovebox_core::SandboxSpec;

use crate::{
    Bench, peers,
    report::{Goal, Report},
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
    let goal = ("≤ 1.5 × bare fork+exec with pipes", Goal::AtMost(1.5));
    report.compare("second run in the same sandbox, library", goal, ours, ("fork+exec with pipes", bare));
    report.samples("second", samples);
    Ok(())
}
