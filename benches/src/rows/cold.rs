//! Library, cold: from nothing to a run of `/bin/true` to nothing.

use anyhow::Result;

use crate::{
    Bench, peers,
    report::{Goal, Report},
    samples::{Contestant, take_turns},
};

const MEASURE: &str = "library, cold: create + run `/bin/true` + destroy";

pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let given = &bench.flags.peers;
    let mut round = 0;
    let contestants = vec![
        Contestant::new("glovebox", || bench.cold_run().map(drop)),
        Contestant::new("fork+exec", peers::fork_exec),
        Contestant::new("bwrap, all namespaces", peers::bwrap),
        Contestant::new("runc run", || {
            round += 1;
            given.runc(round)
        }),
        Contestant::new("docker run --network none", || given.docker()),
    ];
    let samples = take_turns(bench.flags.count, contestants)?;
    let [ours, bare, bwrap, _, docker] = [0, 1, 2, 3, 4].map(|at| samples[at].median());
    for (goal_text, goal, peer, theirs) in [
        ("≤ 0.7 × bubblewrap", Goal::AtMost(0.7), "bwrap", bwrap),
        ("≤ 7 × bare fork+exec", Goal::AtMost(7.0), "fork+exec", bare),
        ("≥ 60 × faster than `docker run`", Goal::AtLeast(60.0), "docker run", docker),
    ] {
        report.compare(MEASURE, (goal_text, goal), ours, (peer, theirs));
    }
    report.samples("cold", samples);
    Ok(())
}
