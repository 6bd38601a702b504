//! Library, cold: from nothing to a run of `/bin/true` to nothing.

use anyhow::Result;

use crate::{
    Bench, peers,
    report::{Goal, Line, Report},
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
    let mut line = |goal_text, goal, peer: &str, theirs: f64, value| {
        let (measured, compared) = (format!("{ours:.2} ms"), format!("{peer} {theirs:.2} ms"));
        report.line(Line { measure: MEASURE, goal_text, goal, measured, compared, value });
    };
    line("≤ 0.7 × bubblewrap", Goal::AtMost(0.7), "bwrap", bwrap, ours / bwrap);
    line("≤ 7 × bare fork+exec", Goal::AtMost(7.0), "fork+exec", bare, ours / bare);
    line("≥ 60 × faster than `docker run`", Goal::AtLeast(60.0), "docker run", docker, docker / ours);
    report.samples("cold", samples);
    Ok(())
}
