//! What recording adds to a run: the same run with and without, taking turns.

use anyhow::Result;
use glovebox_ledger::Ledger;

use crate::{
    Bench, peers,
    report::{Goal, Line, Report},
    samples::{Contestant, take_turns},
    succeeded, true_request,
};

pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let data = tempfile::tempdir()?;
    let recording = bench.engine.clone().with_ledger(Ledger::below(data.path().join("library")));
    let glovebox = bench.flags.glovebox.to_string_lossy();
    let shell = |flags: &str| format!("\"$0\" --data-dir {} run {flags} -- /bin/true", data.path().display());
    let (recorded, unrecorded) = (shell(""), shell("--no-record"));
    let contestants = vec![
        Contestant::new("library, recorded", || succeeded(&bench.runtime.block_on(recording.run(true_request()?))?)),
        Contestant::new("library, not recorded", || bench.cold_run().map(drop)),
        Contestant::new("glovebox run", || peers::shell(&recorded, &glovebox)),
        Contestant::new("glovebox run --no-record", || peers::shell(&unrecorded, &glovebox)),
    ];
    let samples = take_turns(bench.flags.count, contestants)?;
    let [library, library_without, cli, cli_without] = [0, 1, 2, 3].map(|at| samples[at].median());
    for (measure, with, without) in
        [("recording a run, library", library, library_without), ("recording a run, `glovebox run`", cli, cli_without)]
    {
        report.line(Line {
            measure,
            goal_text: "adds ≤ 1 ms",
            goal: Goal::AtMost(1.0),
            measured: format!("{:.2} ms ({with:.2} − {without:.2})", with - without),
            compared: String::new(),
            value: with - without,
        });
    }
    report.samples("recording", samples);
    Ok(())
}
