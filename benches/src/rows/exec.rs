//! A run in a sandbox that stays, from the shell: `glovebox exec`.

use anyhow::Result;
use glovebox_engine::NewSandbox;

use crate::{
    Bench, peers,
    report::{Goal, Report},
    samples::{Contestant, take_turns},
};

pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let glovebox = bench.flags.glovebox.to_string_lossy();
    // What the caller has is left alone.
    let data = tempfile::tempdir()?;
    let engine = bench.engine.clone().with_data_dir(data.path());
    let sandbox = bench.runtime.block_on(engine.create_living(NewSandbox::default()))?;
    let exec = format!("\"$0\" --data-dir {} exec {} -- /bin/true", data.path().display(), sandbox.id());
    let contestants = vec![
        Contestant::new("sh -c 'glovebox exec ID -- /bin/true'", || peers::shell(&exec, &glovebox)),
        Contestant::new("sh -c /bin/true", || peers::shell("/bin/true", "sh")),
    ];
    let samples = take_turns(bench.flags.count, contestants);
    bench.runtime.block_on(sandbox.destroy())?;
    let samples = samples?;
    let [ours, bare] = [0, 1].map(|at| samples[at].median());
    let goal = ("≤ 3 × bare `/bin/true` from the shell", Goal::AtMost(3.0));
    report.compare("CLI: `glovebox exec ID -- /bin/true` from the shell", goal, ours, ("/bin/true", bare));
    report.samples("exec", samples);
    Ok(())
}
