//! CLI, cold: `glovebox run -- /bin/true` from the shell.

use anyhow::Result;

use crate::{
    Bench, peers,
    report::{Goal, Report},
    samples::{Contestant, take_turns},
};

pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let glovebox = bench.flags.glovebox.to_string_lossy();
    // What the caller has recorded is left alone.
    let data = tempfile::tempdir()?;
    let run = format!("\"$0\" --data-dir {} run -- /bin/true", data.path().display());
    let contestants = vec![
        Contestant::new("sh -c 'glovebox run -- /bin/true'", || peers::shell(&run, &glovebox)),
        Contestant::new("sh -c 'bwrap … /bin/true'", || peers::shell(peers::BWRAP, "sh")),
        Contestant::new("sh -c /bin/true", || peers::shell("/bin/true", "sh")),
    ];
    let samples = take_turns(bench.flags.count, contestants)?;
    let [ours, bwrap] = [0, 1].map(|at| samples[at].median());
    let goal = ("≤ 1.0 × `bwrap` with all namespaces from the shell", Goal::AtMost(1.0));
    report.compare("CLI, cold: `glovebox run -- /bin/true` from the shell", goal, ours, ("bwrap", bwrap));
    report.samples("cli", samples);
    Ok(())
}
