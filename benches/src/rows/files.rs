//! Files of a living sandbox: 1 GiB in and out, and the list of a large folder.

use std::{io, time::Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use glovebox_core::{Command, FilePath, SandboxSpec};
use glovebox_engine::{Content, Files, Page, Range, RunRequest, Sandbox, WriteOptions};
use tokio::sync::mpsc;

use crate::{
    Bench, peers,
    process::{forget_peak, peak_kib, with_descendants},
    report::{Goal, Line, Report},
    samples::{Contestant, Samples, take_turns},
    succeeded,
};

const BYTES: u64 = 1 << 30;
const MIB: f64 = (BYTES >> 20) as f64;
const ENTRIES: usize = 100_000;
/// A gibibyte takes a second, so there are fewer of these than of other samples.
const FEWER: usize = 5;

pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    copies(bench, report)?;
    listing(bench, report)
}

fn copies(bench: &Bench, report: &mut Report) -> Result<()> {
    let mut upload = Samples::new("upload", "MiB/s");
    let mut download = Samples::new("download", "MiB/s");
    let mut peak = Samples::new("glovebox, this process + launcher + guest", "MiB");
    for _ in 0..bench.flags.count.div_ceil(FEWER) {
        let (up, down, mib) = bench.runtime.block_on(copy(bench))?;
        upload.values.push(MIB / up);
        download.values.push(MIB / down);
        peak.values.push(mib);
    }
    let mut line = |measure, goal_text, goal, unit, value: f64| {
        let (measured, compared) = (format!("{value:.0} {unit}"), String::new());
        report.line(Line { measure, goal_text, goal, measured, compared, value });
    };
    line("upload of 1 GiB", "≥ 500 MiB/s", Goal::AtLeast(500.0), "MiB/s", upload.median());
    line("download of 1 GiB", "≥ 500 MiB/s", Goal::AtLeast(500.0), "MiB/s", download.median());
    line(
        "upload and download of 1 GiB: Glovebox's own peak memory",
        "≤ 32 MiB",
        Goal::AtMost(32.0),
        "MiB",
        peak.median(),
    );
    report.samples("files", [upload, download, peak]);
    Ok(())
}

/// Seconds of an upload, of a download, and the sum of the highest resident sizes in MiB.
async fn copy(bench: &Bench) -> Result<(f64, f64, f64)> {
    let (own, launcher) = (std::process::id() as i32, bench.backend.launcher_pid());
    let sandbox = large_sandbox(bench).await?;
    let guest = bench.backend.guest_pid(sandbox.id()).context("the guest has no process")?;
    let watched: Vec<i32> = with_descendants(guest)?.into_iter().chain([own, launcher]).collect();
    for pid in &watched {
        forget_peak(*pid)?;
    }
    let files = sandbox.files();
    let path = FilePath::absolute("/workspace/agent_workspace/large")?;
    let started = Instant::now();
    let written = files.write(&path, WriteOptions::default(), Content::Channel(a_gibibyte())).await?;
    let up = started.elapsed().as_secs_f64();
    ensure!(written == BYTES, "{written} bytes were written");
    let started = Instant::now();
    let read = download(&files, &path).await?;
    let down = started.elapsed().as_secs_f64();
    ensure!(read == BYTES, "{read} bytes were read");
    let mut kib = 0;
    for pid in watched {
        kib += peak_kib(pid)?;
    }
    sandbox.destroy().await?;
    Ok((up, down, kib as f64 / 1024.0))
}

/// A sandbox with room for a gibibyte and for the entries.
async fn large_sandbox(bench: &Bench) -> Result<Sandbox> {
    let mut spec = SandboxSpec::default();
    spec.limits.disk = 2 << 30;
    spec.limits.inodes = 2 * ENTRIES as u64;
    Ok(bench.engine.create(spec).await?)
}

/// A gibibyte in pieces, from a task of its own.
fn a_gibibyte() -> mpsc::Receiver<io::Result<Bytes>> {
    let (sender, receiver) = mpsc::channel(4);
    tokio::spawn(async move {
        let piece = Bytes::from(vec![7; 64 * 1024]);
        for _ in 0..BYTES / piece.len() as u64 {
            if sender.send(Ok(piece.clone())).await.is_err() {
                return;
            }
        }
    });
    receiver
}

async fn download(files: &Files, path: &FilePath) -> Result<u64> {
    let mut stream = files.read(path, Range::default()).await?;
    let mut bytes = 0;
    while let Some(chunk) = stream.next().await? {
        bytes += chunk.len() as u64;
    }
    Ok(bytes)
}

fn listing(bench: &Bench, report: &mut Report) -> Result<()> {
    let sandbox = bench.runtime.block_on(large_sandbox(bench))?;
    let line = format!("mkdir many; cd many; seq {ENTRIES} | xargs touch");
    let request = RunRequest::new(Command::argv(["sh", "-c", &line])?);
    succeeded(&bench.runtime.block_on(sandbox.run(request))?)?;
    // The same folder on the host, in memory as well.
    let host = tempfile::tempdir_in("/dev/shm").context("no folder in memory")?;
    for number in 1..=ENTRIES {
        std::fs::File::create(host.path().join(number.to_string()))?;
    }
    let (files, folder) = (sandbox.files(), FilePath::absolute("/workspace/agent_workspace/many")?);
    let list = || -> Result<()> {
        let count = bench.runtime.block_on(count_entries(&files, &folder))?;
        ensure!(count == ENTRIES, "{count} entries were listed");
        Ok(())
    };
    let ls = || peers::shell("ls -lU \"$0\" > /dev/null", &host.path().to_string_lossy());
    let contestants = vec![Contestant::new("glovebox, 100,000 entries", list), Contestant::new("ls -lU", ls)];
    let samples = take_turns(bench.flags.count.div_ceil(FEWER), contestants)?;
    bench.runtime.block_on(sandbox.destroy())?;
    let [ours, theirs] = [0, 1].map(|at| samples[at].median());
    report.line(Line {
        measure: "list of a folder with 100,000 entries",
        goal_text: "≤ 3 × `ls -lU` on the host",
        goal: Goal::AtMost(3.0),
        measured: format!("{ours:.0} ms"),
        compared: format!("ls -lU {theirs:.0} ms"),
        value: ours / theirs,
    });
    report.samples("list", samples);
    Ok(())
}

async fn count_entries(files: &Files, folder: &FilePath) -> Result<usize> {
    let mut entries = files.list(folder, Page::default()).await?;
    let mut count = 0;
    while entries.next().await?.is_some() {
        count += 1;
    }
    Ok(count)
}
