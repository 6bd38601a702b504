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
    let ours = || {
        Contestant::new("glovebox, sandbox that stays", || {
            succeeded(&bench.runtime.block_on(sandbox.run(true_request()?))?)
        })
    };
    // One peer at a time: what a daemon still has to do after `docker exec` would be in the time of whoever comes next.
    let beside_bare = take_turns(
        bench.flags.count,
        vec![ours(), Contestant::new("fork+exec with pipes", peers::fork_exec_with_pipes)],
    );
    let docker = Contestant::new("docker exec", || container.exec());
    let beside_docker = take_turns(bench.flags.count, vec![ours(), docker]);
    bench.runtime.block_on(sandbox.destroy())?;
    let (beside_bare, beside_docker) = (beside_bare?, beside_docker?);
    let goal = match per_run {
        true => ("≤ 2 × bare fork+exec with pipes, usage of the run alone", Goal::AtMost(2.0)),
        false => ("≤ 1.5 × bare fork+exec with pipes", Goal::AtMost(1.5)),
    };
    let (ours, bare) = (beside_bare[0].median(), beside_bare[1].median());
    report.compare(MEASURE, goal, ours, ("fork+exec with pipes", bare));
    let goal = ("≥ 40 × faster than `docker exec`", Goal::AtLeast(40.0));
    let (beside, docker) = (beside_docker[0].median(), beside_docker[1].median());
    report.compare(MEASURE, goal, beside, ("docker exec", docker));
    report.samples("living, beside fork+exec", beside_bare);
    report.samples("living, beside docker exec", beside_docker);
    Ok(())
}
