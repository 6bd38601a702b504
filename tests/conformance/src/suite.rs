//! Runs the cases one after the other, and looks for leftovers after each.

use std::{
    cell::RefCell,
    path::PathBuf,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use glovebox_core::{Backend, Features, SandboxSpec, Tier};
use glovebox_engine::Engine;
use serde_json::json;

use crate::{
    Case, Leftovers, Subject, World,
    cases::{OF_BACKENDS, OF_NAMESPACES},
    leftovers::{files_in, strangers_in_data_dir, wait_until_clean},
};

/// A helper process answers on a descriptor that it can close only afterwards; so long may that take.
const SETTLING: Duration = Duration::from_millis(500);
/// How long an ending in the background may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Which cases to run and how to tell of them.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only cases whose group is one of these, or whose name holds one of them; all without any.
    pub filter: Vec<String>,
    /// One JSON document at the end in place of lines.
    pub json: bool,
    /// The probe on the host.
    pub probe: PathBuf,
    /// No case takes so long on this machine; one that does hangs.
    pub longest: Duration,
}

/// How the suite went.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Cases that passed.
    pub passed: usize,
    /// Cases that failed, with why.
    pub failed: Vec<(String, String)>,
    /// Cases that were skipped, with what is missing.
    pub skipped: Vec<(String, String)>,
}

enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

thread_local! {
    /// The text of the last panic of this thread, for the report of the case.
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs all cases that fit the filter.
pub async fn run_suite(subject: Rc<dyn Subject>, options: &Options) -> anyhow::Result<Summary> {
    let backend = subject.backend();
    let features = backend.probe().await.context("the backend cannot work here")?;
    warm_up(&backend, &features).await?;
    let mut summary = Summary::default();
    let mut lines = Vec::new();
    for case in crate::all().filter(|case| fits(case, &options.filter)) {
        let start = Instant::now();
        let verdict = run_case(&case, &subject, &features, options).await?;
        let ms = start.elapsed().as_millis() as u64;
        lines.push(tell(&case, &verdict, ms, options.json));
        summary.count(case.name(), verdict);
    }
    summary.tell(backend.name(), lines, options.json);
    Ok(summary)
}

/// Makes one sandbox, so that what a backend makes once and keeps is there before the first case.
async fn warm_up(backend: &Arc<dyn Backend>, features: &Features) -> anyhow::Result<()> {
    let isolation = if features.namespaces { Tier::Namespaces } else { Tier::Landlock };
    let spec = SandboxSpec { isolation, ..SandboxSpec::default() };
    let sandbox = Engine::new(Arc::clone(backend)).create(spec).await.context("no sandbox")?;
    sandbox.destroy().await.context("the first sandbox cannot be destroyed")
}

fn fits(case: &Case, filter: &[String]) -> bool {
    let fits = |text: &String| case.group == text || case.name().contains(text) || case.function.contains(text);
    filter.is_empty() || filter.iter().any(fits)
}

async fn run_case(
    case: &Case,
    subject: &Rc<dyn Subject>,
    features: &Features,
    options: &Options,
) -> anyhow::Result<Verdict> {
    if let Some(missing) = case.needs.and_then(|need| need.missing(features)) {
        return Ok(Verdict::Skipped(missing));
    }
    if !features.namespaces && OF_NAMESPACES.contains(&case.function) {
        return Ok(Verdict::Skipped("the backend does not declare namespaces".to_owned()));
    }
    let about = OF_BACKENDS.iter().filter(|(_, has, _)| !has(features));
    if let Some((why, ..)) = about.into_iter().find(|(.., cases)| cases.contains(&case.function)) {
        return Ok(Verdict::Skipped((*why).to_owned()));
    }
    let scratch = tempfile::Builder::new().prefix("conformance-").tempdir().context("no scratch folder")?;
    let world = World::new(Rc::clone(subject), features.clone(), options.probe.clone(), scratch.path().canonicalize()?);
    let data_dir = world.data_dir();
    let before = subject.traces();
    let failure = prove(case, world, options.longest).await;
    let patience = if case.ends_in_background || failure.is_some() { PATIENCE } else { Duration::ZERO };
    let mut left = wait_until_clean(|| subject.traces().things_since(&before), patience).await;
    left.0.extend(wait_until_clean(|| subject.traces().counts_since(&before), patience.max(SETTLING)).await.0);
    left.0.extend(strangers_in_data_dir(&data_dir).0);
    Ok(judge(failure, &left))
}

/// Runs the case in a task of its own, so that a panic or a hang ends only the case.
async fn prove(case: &Case, world: World, longest: Duration) -> Option<String> {
    record_panics();
    let tasks = tokio::task::LocalSet::new();
    let task = tasks.spawn_local((case.prove)(world));
    let abort = task.abort_handle();
    let ended = tasks.run_until(tokio::time::timeout(longest, task)).await;
    // A panic of the suite itself is printed as usual.
    drop(std::panic::take_hook());
    match ended {
        Ok(Ok(())) => None,
        Ok(Err(_)) => Some(LAST_PANIC.take()),
        Err(_) => {
            abort.abort();
            Some(format!("it was still running after {} s", longest.as_secs()))
        }
    }
}

fn judge(failure: Option<String>, left: &Leftovers) -> Verdict {
    let remains = match left.0.is_empty() {
        true => None,
        // What lies in a folder says most about who left it.
        false => Some(format!("left behind:\n  {}\n  {}", left.0.join("\n  "), files_in(left).join("\n  "))),
    };
    match (failure, remains) {
        (None, None) => Verdict::Passed,
        (failure, remains) => Verdict::Failed(failure.into_iter().chain(remains).collect::<Vec<_>>().join("\n")),
    }
}

fn record_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.payload_as_str().unwrap_or("a panic without words");
        let place = panic.location().map(|at| format!("{}:{}: ", at.file(), at.line())).unwrap_or_default();
        LAST_PANIC.set(format!("{place}{text}"));
    }));
}

/// Prints the line of a case, or keeps it for the document at the end.
fn tell(case: &Case, verdict: &Verdict, ms: u64, json: bool) -> serde_json::Value {
    let (word, text) = match verdict {
        Verdict::Passed => ("ok", None),
        Verdict::Failed(why) => ("FAILED", Some(why)),
        Verdict::Skipped(missing) => ("skipped", Some(missing)),
    };
    if !json {
        println!("{word} {}", case.name());
        for line in text.iter().flat_map(|text| text.lines()) {
            println!("    {line}");
        }
    }
    json!({"group": case.group, "name": case.name(), "verdict": word.to_lowercase(), "text": text, "ms": ms})
}

impl Summary {
    fn count(&mut self, name: String, verdict: Verdict) {
        match verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Failed(why) => self.failed.push((name, why)),
            Verdict::Skipped(missing) => self.skipped.push((name, missing)),
        }
    }

    fn tell(&self, backend: &str, cases: Vec<serde_json::Value>, json: bool) {
        let (passed, failed, skipped) = (self.passed, self.failed.len(), self.skipped.len());
        if json {
            let document = json!({
                "backend": backend, "passed": passed, "failed": failed, "skipped": skipped, "cases": cases,
            });
            println!("{document}");
            return;
        }
        println!("conformance {backend}: {passed} passed, {failed} failed, {skipped} skipped");
        for (name, missing) in &self.skipped {
            println!("  skipped: {name}: {missing}");
        }
    }
}
