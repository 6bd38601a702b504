//! Many runs, one after the other or some at a time, each in a fresh sandbox or in one that is made to stay and then destroyed.
//! Each prints a token of its own that must come back.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    rc::Rc,
    time::{Duration, Instant},
};

use glovebox_core::{Command, Outcome, RunResult, SandboxId};
use glovebox_engine::{Engine, NewSandbox, RunRequest};
use serde_json::json;
use tokio::task::{JoinSet, LocalSet};

use super::sample::Samples;
use crate::{Leftovers, Subject, leftovers::wait_until_clean};

/// Runs before the first sample: what is made once and kept is there afterwards.
const WARM_UP: usize = 20;

/// How long the kernel may take to let go of the last sandboxes.
const PATIENCE: Duration = Duration::from_secs(10);

/// In what the runs of a soak are.
#[derive(Clone)]
enum Place {
    /// Each in a sandbox of its own, which ends with it.
    Fresh,
    /// Each in a sandbox of its own that is made to stay; all of them.
    Living(Rc<RefCell<BTreeSet<SandboxId>>>),
}

/// Runs one after the other. Whether nothing failed, nothing was left and nothing grew.
pub async fn runs(subject: Rc<dyn Subject>, count: usize) -> anyhow::Result<bool> {
    LocalSet::new().run_until(soak("soak-runs", subject, count, 1, Place::Fresh)).await
}

/// The same with some at a time.
pub async fn concurrent(subject: Rc<dyn Subject>, count: usize, at_once: usize) -> anyhow::Result<bool> {
    LocalSet::new().run_until(soak("soak-concurrent", subject, count, at_once, Place::Fresh)).await
}

/// The same, each in a sandbox that is made to stay, and destroyed after its run.
pub async fn living(subject: Rc<dyn Subject>, count: usize, at_once: usize) -> anyhow::Result<bool> {
    LocalSet::new().run_until(soak("soak-living", subject, count, at_once, Place::Living(Rc::default()))).await
}

async fn soak(
    name: &str,
    subject: Rc<dyn Subject>,
    count: usize,
    at_once: usize,
    place: Place,
) -> anyhow::Result<bool> {
    let data_dir = tempfile::tempdir()?;
    let engine = Engine::new(subject.backend()).with_data_dir(data_dir.path());
    let mut failures = batch(&engine, WARM_UP.max(at_once), at_once, &place).await;
    let before = subject.traces();
    let start = Instant::now();
    let first = Samples::take(&subject.processes()).await;
    failures.extend(batch(&engine, count / 2, at_once, &place).await);
    let middle = Samples::take(&subject.processes()).await;
    failures.extend(batch(&engine, count - count / 2, at_once, &place).await);
    let end = Samples::take(&subject.processes()).await;
    let seconds = start.elapsed().as_secs_f64();
    let look = || {
        let mut left = subject.traces().things_since(&before);
        if let Place::Living(made) = &place {
            left.0.extend(subject.traces_of(&made.borrow()).0);
            left.0.extend(crate::leftovers::strangers_in_data_dir(data_dir.path()).0);
        }
        left
    };
    let left: Leftovers = wait_until_clean(look, PATIENCE).await;
    let grown = end.grown_since(&middle);
    let ok = failures.is_empty() && left.0.is_empty() && grown.is_empty();
    let summary = json!({
        "soak": name, "ok": ok, "count": count, "at_once": at_once, "seconds": seconds,
        "runs_per_second": count as f64 / seconds,
        "failures": failures.len(), "first_failures": &failures[..failures.len().min(3)],
        "leftovers": left.0, "grown": grown,
        "start": first.to_json(), "middle": middle.to_json(), "end": end.to_json(),
    });
    println!("{summary}");
    Ok(ok)
}

/// Makes runs, at most so many at a time, and returns what went wrong.
async fn batch(engine: &Engine, count: usize, at_once: usize, place: &Place) -> Vec<String> {
    let mut failures = Vec::new();
    let mut under_way = JoinSet::new();
    for number in 0..count {
        if under_way.len() == at_once {
            failures.extend(under_way.join_next().await.and_then(told));
        }
        under_way.spawn_local(echo_token(engine.clone(), number, place.clone()));
    }
    while let Some(ended) = under_way.join_next().await {
        failures.extend(told(ended));
    }
    failures
}

fn told(ended: Result<Result<(), String>, tokio::task::JoinError>) -> Option<String> {
    ended.map_err(|error| error.to_string()).and_then(|result| result).err()
}

/// A run in a sandbox that is made for it, which is gone afterwards.
async fn run(engine: &Engine, request: RunRequest, place: &Place) -> glovebox_core::Result<RunResult> {
    let Place::Living(made) = place else { return engine.run(request).await };
    let sandbox = engine.create_living(NewSandbox::default()).await?;
    made.borrow_mut().insert(sandbox.id());
    let result = sandbox.run(request).await;
    sandbox.destroy().await?;
    result
}

/// One run that prints a token of its own.
async fn echo_token(engine: Engine, number: usize, place: Place) -> Result<(), String> {
    let token = format!("token-{number}-{}", std::process::id());
    let command = Command::argv(["/bin/sh", "-c", "echo $TOKEN; echo $TOKEN >&2"])
        .and_then(|command| command.env("TOKEN", &token))
        .map_err(|error| error.to_string())?;
    let result = run(&engine, RunRequest::new(command), &place).await;
    let result = result.map_err(|error| format!("run {number}: {error}"))?;
    let expected = Some(format!("{token}\n"));
    let fine = result.outcome == Outcome::Exited { code: 0 }
        && result.stdout.text == expected
        && result.stderr.text == expected;
    if fine { Ok(()) } else { Err(format!("run {number}: {:?} {:?}", result.outcome, result.stdout)) }
}
