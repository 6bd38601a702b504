//! Many runs, one after the other or some at a time. Each prints a token of its own that must come back.

use std::{rc::Rc, time::Instant};

use glovebox_core::{Command, Outcome};
use glovebox_engine::{Engine, RunRequest};
use serde_json::json;
use tokio::task::{JoinSet, LocalSet};

use super::sample::Samples;
use crate::Subject;

/// Runs before the first sample: what is made once and kept is there afterwards.
const WARM_UP: usize = 20;

/// Runs one after the other. Whether nothing failed, nothing was left and nothing grew.
pub async fn runs(subject: Rc<dyn Subject>, count: usize) -> anyhow::Result<bool> {
    LocalSet::new().run_until(soak("soak-runs", subject, count, 1)).await
}

/// The same with some at a time.
pub async fn concurrent(subject: Rc<dyn Subject>, count: usize, at_once: usize) -> anyhow::Result<bool> {
    LocalSet::new().run_until(soak("soak-concurrent", subject, count, at_once)).await
}

async fn soak(name: &str, subject: Rc<dyn Subject>, count: usize, at_once: usize) -> anyhow::Result<bool> {
    let data_dir = tempfile::tempdir()?;
    let engine = Engine::new(subject.backend()).with_data_dir(data_dir.path());
    let mut failures = batch(&engine, WARM_UP.max(at_once), at_once).await;
    let before = subject.traces();
    let start = Instant::now();
    let first = Samples::take(&subject.processes()).await;
    failures.extend(batch(&engine, count / 2, at_once).await);
    let middle = Samples::take(&subject.processes()).await;
    failures.extend(batch(&engine, count - count / 2, at_once).await);
    let end = Samples::take(&subject.processes()).await;
    let seconds = start.elapsed().as_secs_f64();
    let left = subject.traces().things_since(&before);
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
async fn batch(engine: &Engine, count: usize, at_once: usize) -> Vec<String> {
    let mut failures = Vec::new();
    let mut under_way = JoinSet::new();
    for number in 0..count {
        if under_way.len() == at_once {
            failures.extend(under_way.join_next().await.and_then(told));
        }
        under_way.spawn_local(echo_token(engine.clone(), number));
    }
    while let Some(ended) = under_way.join_next().await {
        failures.extend(told(ended));
    }
    failures
}

fn told(ended: Result<Result<(), String>, tokio::task::JoinError>) -> Option<String> {
    ended.map_err(|error| error.to_string()).and_then(|result| result).err()
}

/// One run that prints a token of its own.
async fn echo_token(engine: Engine, number: usize) -> Result<(), String> {
    let token = format!("token-{number}-{}", std::process::id());
    let command = Command::argv(["/bin/sh", "-c", "echo $TOKEN; echo $TOKEN >&2"])
        .and_then(|command| command.env("TOKEN", &token))
        .map_err(|error| error.to_string())?;
    let result = engine.run(RunRequest::new(command)).await.map_err(|error| format!("run {number}: {error}"))?;
    let expected = Some(format!("{token}\n"));
    let fine = result.outcome == Outcome::Exited { code: 0 }
        && result.stdout.text == expected
        && result.stderr.text == expected;
    if fine { Ok(()) } else { Err(format!("run {number}: {:?} {:?}", result.outcome, result.stdout)) }
}
