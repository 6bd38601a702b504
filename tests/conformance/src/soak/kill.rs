//! Sudden deaths: `glovebox run` is killed at a random moment, together with its launcher or without it. Afterwards
//! `glovebox gc`, or just the next start, must leave nothing.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context;
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
    rand::{GetRandomFlags, getrandom},
};
use serde_json::json;

use crate::leftovers::orphaned_things;

/// Programs that are under way when the end comes.
const WORKLOADS: [&str; 5] = [
    "sleep 60",
    "while :; do :; done",
    "head -c 40000000 /dev/zero > file; sleep 60",
    "(setsid sleep 60 &) ; (setsid sleep 60 &) ; sleep 60",
    "yes",
];
/// How long the launcher, when it outlives the process that it serves, may take to clean up.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
enum Victim {
    Glovebox,
    Launcher,
    Both,
}

/// Whether nothing was left after any death.
pub fn kill(count: usize, glovebox: &Path) -> anyhow::Result<bool> {
    let glovebox = glovebox.canonicalize().with_context(|| format!("{} is not there", glovebox.display()))?;
    // What the caller has recorded is left alone.
    let data = tempfile::tempdir()?;
    let before = orphaned_things();
    let (mut failures, mut slowest) = (Vec::new(), Duration::ZERO);
    for number in 0..count {
        let (story, mut troubles) = die_once(&glovebox, data.path(), number)?;
        let start = Instant::now();
        troubles.extend(recover(&glovebox, data.path(), number)?);
        troubles.extend(wait_until_gone(&before));
        slowest = slowest.max(start.elapsed());
        if !troubles.is_empty() {
            failures.push(format!("{story}: {}", troubles.join(", ")));
        }
    }
    let ok = failures.is_empty();
    let first = &failures[..failures.len().min(5)];
    println!(
        "{}",
        json!({
            "soak": "soak-kill", "ok": ok, "count": count, "failures": failures.len(), "first_failures": first,
            "slowest_recovery_ms": slowest.as_millis() as u64,
        })
    );
    Ok(ok)
}

/// Starts a run and kills it at a random moment. Says what was done, and what went wrong with it.
fn die_once(glovebox: &Path, data: &Path, number: usize) -> anyhow::Result<(String, Vec<String>)> {
    let workload = WORKLOADS[random_below(WORKLOADS.len() as u64) as usize];
    let mut child = Command::new(glovebox)
        .args(["run", "--", "/bin/sh", "-c", workload])
        .env("GLOVEBOX_DATA_DIR", data)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("glovebox does not start")?;
    // The random moment is the point of this test; it covers the set-up, which takes a few milliseconds, and the run.
    let moment = Duration::from_micros(random_below(60_000));
    std::thread::sleep(moment);
    let victim = [Victim::Glovebox, Victim::Launcher, Victim::Both][number % 3];
    let troubles = end(&mut child, victim)?.into_iter().collect();
    Ok((format!("death {number} of {victim:?} after {moment:?} in {workload:?}"), troubles))
}

/// Kills, and waits until the glovebox process is gone. Says so when it is not.
fn end(child: &mut Child, victim: Victim) -> anyhow::Result<Option<String>> {
    let glovebox = child.id() as i32;
    let launcher = first_child(glovebox);
    let kill = |pid: i32| {
        // The victim may have ended by itself at this very moment.
        let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
    };
    if matches!(victim, Victim::Launcher | Victim::Both)
        && let Some(launcher) = launcher
    {
        let handle = Pid::from_raw(launcher).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        kill(launcher);
        // A launcher that is still on its way out holds its lock, and rightly counts as alive.
        if let Some(handle) = handle {
            poll(&mut [PollFd::new(&handle, PollFlags::IN)], None)?;
        }
    }
    if matches!(victim, Victim::Glovebox | Victim::Both) || launcher.is_none() {
        kill(glovebox);
    }
    // With its launcher dead, glovebox has lost its sandbox and must say so and end by itself.
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            kill(glovebox);
            child.wait()?;
            return Ok(Some(format!("glovebox still ran {PATIENCE:?} after its launcher was killed")));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(None)
}

/// The first child of a process: of `glovebox run`, the launcher.
fn first_child(pid: i32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Every second time `gc`, else just the next start. Says what went wrong.
fn recover(glovebox: &Path, data: &Path, number: usize) -> anyhow::Result<Option<String>> {
    let args: &[&str] = if number.is_multiple_of(2) { &["gc"] } else { &["run", "--", "/bin/true"] };
    let mut command = Command::new(glovebox);
    let output = command.args(args).env("GLOVEBOX_DATA_DIR", data).output().context("glovebox does not start")?;
    let failed = || format!("glovebox {} failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    Ok((!output.status.success()).then(failed))
}

/// What is there that nobody owns, once it is gone or the patience is over.
fn wait_until_gone(before: &BTreeSet<String>) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left: Vec<String> = orphaned_things().difference(before).cloned().collect();
        if left.is_empty() || Instant::now() > deadline {
            return left;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A random number from 0 to below `limit`.
pub(crate) fn random_below(limit: u64) -> u64 {
    let mut bytes = [0u8; 8];
    getrandom(&mut bytes, GetRandomFlags::empty()).expect("the kernel gives random bytes");
    u64::from_ne_bytes(bytes) % limit
}
