//! Text through a run's terminal and the filter before the caller's.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use glovebox_core::{Command, SandboxSpec};
use glovebox_engine::{Capture, Event, RunRequest, TerminalSize};
use glovebox_terminal::Filter;

use crate::{
    Bench, peers,
    report::{Goal, Line, Report},
    samples::Samples,
    succeeded,
};

/// Lines of 79 characters. The terminal makes two characters of each end of line.
const LINE: &str = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789 (){}[]<>.,;:-+";
const BYTES: u64 = 200_000_000;
const MB: f64 = 1e6;

pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let mut rate = Samples::new("glovebox, filtered", "MB/s");
    let mut bare = Samples::new("bare pseudo-terminal", "MB/s");
    let memory = tempfile::tempdir_in("/dev/shm")?;
    let folder = memory.path().to_str().context("the folder has a name")?;
    peers::shell(&text(folder), "sh")?;
    for _ in 0..bench.flags.count.div_ceil(5) {
        rate.values.push(bench.runtime.block_on(run(bench))?);
        let started = Instant::now();
        let bytes = peers::output_through_a_terminal(&format!("cat {folder}/text"))?;
        bare.values.push(bytes as f64 / MB / started.elapsed().as_secs_f64());
    }
    let speed = rate.median();
    report.line(Line {
        measure: "200 MB of text through a terminal and the filter",
        goal_text: "≥ 100 MB/s",
        goal: Goal::AtLeast(100.0),
        measured: format!("{speed:.0} MB/s; a bare pseudo-terminal {:.0} MB/s", bare.median()),
        compared: String::new(),
        value: speed,
    });
    report.samples("terminal", [rate, bare]);
    Ok(())
}

/// What makes the text: a file in memory, so that printing it is the work of one process.
fn text(folder: &str) -> String {
    format!("yes '{LINE}' | head -c {BYTES} > {folder}/text")
}

/// MB a second of one run in a new sandbox.
async fn run(bench: &Bench) -> Result<f64> {
    let sandbox = bench.engine.create(SandboxSpec::default()).await?;
    let making = RunRequest::new(Command::argv(["sh", "-c", &text("/tmp")])?);
    succeeded(&sandbox.run(making).await?)?;
    let mut request = RunRequest::new(Command::argv(["cat", "/tmp/text"])?);
    request.terminal = Some(TerminalSize { rows: 24, columns: 80 });
    request.capture = Capture::Count;
    let started = Instant::now();
    let mut run = sandbox.start(request).await?;
    let (mut filter, mut shown, mut bytes) = (Filter::new(), Vec::new(), 0);
    while let Some(event) = run.next_event().await {
        if let Event::Stdout(piece) = event {
            shown.clear();
            filter.push(&piece, &mut shown);
            bytes += shown.len() as u64;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let result = run.wait().await?;
    succeeded(&result)?;
    ensure!(bytes == result.stdout.bytes && bytes > BYTES, "{bytes} bytes arrived");
    sandbox.destroy().await?;
    Ok(bytes as f64 / MB / seconds)
}
