//! A run in a sandbox that stays, with usage of the run alone.

use anyhow::Result;
use glovebox_engine::NewSandbox;

use crate::{
    Bench, peers,
    report::{Goal, Report},
    samples::{Contestant, take_turns},
    succeeded, true_request,
};

const MEASURE: &str = "run in a sandbox that stays, library";

pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let per_run = bench.runtime.block_on(bench.engine.features())?.run_groups;
    // First the container, of which nothing is left whatever fails; the sandbox stays until it is destroyed.
    let container = bench.flags.peers.container()?;
    let sandbox = bench.runtime.block_on(bench.engine.create_living(NewSandbox::default()))?;
    let contestants = vec![
        Contestant::new("glovebox, sandbox that stays", || {
            succeeded(&bench.runtime.block_on(sandbox.run(true_request()?))?)
        }),
        Contestant::new("fork+exec with pipes", peers::fork_exec_with_pipes),
        Contestant::new("docker exec", || container.exec()),
    ];
    let samples = take_turns(bench.flags.count, contestants);
    bench.runtime.block_on(sandbox.destroy())?;
    let samples = samples?;
    let [ours, bare, docker] = [0, 1, 2].map(|at| samples[at].median());
    let goal = match per_run {
        true => ("≤ 2 × bare fork+exec with pipes, usage of the run alone", Goal::AtMost(2.0)),
        false => ("≤ 1.5 × bare fork+exec with pipes", Goal::AtMost(1.5)),
    };
    report.compare(MEASURE, goal, ours, ("fork+exec with pipes", bare));
    let goal = ("≥ 40 × faster than `docker exec`", Goal::AtLeast(40.0));
    report.compare(MEASURE, goal, ours, ("docker exec", docker));
    report.samples("living", samples);
    Ok(())
}
