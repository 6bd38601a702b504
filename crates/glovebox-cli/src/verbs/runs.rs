//! `glovebox runs list|show|logs`: looks back at runs.

use std::time::Duration;

use glovebox_core::{
    Error, ErrorCode, Label, Language, Outcome, ProjectName, Result, RunId, RunResult, SandboxId, parse_count,
    parse_duration, printable,
};
use glovebox_engine::{Engine, Projects};
use glovebox_ledger::{Filter, Ledger, Listed, Stream, Summary};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{attach, data_dir, living, runtime};
use crate::{
    args::{Globals, ListArgs, LogsArgs, RunsArgs, RunsVerb, ShowArgs},
    flags::Flags,
    report,
    table::{table, typed},
    terminal,
};

/// So many changed paths of a kind are shown with a run; `changes` shows all.
const MOST_PATHS: usize = 10;

pub(crate) fn execute(globals: &Globals, args: &RunsArgs, flags: &Flags) -> Result<u8> {
    attach::follow_left_behind(globals);
    let ledger = Ledger::below(data_dir(globals));
    let doing = async {
        match &args.verb {
            RunsVerb::List(args) => list(globals, args, flags, &ledger).await,
            RunsVerb::Show(args) => show(globals, args, &ledger).await,
            RunsVerb::Logs(args) => logs(globals, args, &ledger).await,
        }
    };
    runtime()?.block_on(doing)?;
    Ok(0)
}

async fn list(globals: &Globals, args: &ListArgs, flags: &Flags, ledger: &Ledger) -> Result<()> {
    let mut filter = filter(args, flags)?;
    if let Some(before) = &args.before {
        filter.before = Some(ledger.find(before).await?);
    }
    if let Some(text) = &args.sandbox {
        filter.sandbox = Some(find_sandbox(&living::engine_below(&data_dir(globals)), text).await?);
    }
    let listed = ledger.list(&filter).await?;
    if listed.runs.is_empty() {
        check_names(globals, &filter, ledger).await?;
    }
    if globals.json {
        return report::document(&listed);
    }
    if listed.runs.is_empty() && ledger.last().await.is_err() {
        report::say("no run is recorded yet");
    } else if listed.runs.is_empty() {
        report::say("no run is recorded that fits");
    } else {
        print_list(&listed)?;
    }
    Ok(())
}

fn filter(args: &ListArgs, flags: &Flags) -> Result<Filter> {
    let mut filter = Filter::default();
    if let Some(kind) = &args.outcome {
        filter.outcome = Some(flags.check("outcome", kind, parse_kind)?);
    }
    if let Some(name) = &args.language {
        filter.language = Some(flags.check("language", name, parse_language)?);
    }
    if let Some(name) = &args.project {
        filter.project = Some(flags.check("project", name, ProjectName::parse)?.to_string());
    }
    let labels = flags.list("label", &args.label).into_iter().map(|text| flags.check("label", text, Label::parse));
    filter.labels = Label::collect(&labels.collect::<Result<Vec<_>>>()?);
    if let Some(since) = &args.since {
        let ago = flags.check("since", since, parse_duration)?;
        filter.since = Some(Timestamp::now() - ago);
    }
    filter.limit = flags.check("limit", &args.limit, parse_limit)?;
    Ok(filter)
}

/// Finds a sandbox that is there, or takes the whole id of one that is gone.
async fn find_sandbox(engine: &Engine, text: &str) -> Result<SandboxId> {
    match (engine.status(text).await, text.parse()) {
        (Ok(status), _) => Ok(status.sandbox),
        (Err(error), Ok(gone)) if error.code == ErrorCode::SandboxNotFound => Ok(gone),
        (Err(error), _) => Err(error),
    }
}

/// An error for a project or a sandbox that is not there and that no run is recorded of. What is gone has its runs.
async fn check_names(globals: &Globals, filter: &Filter, ledger: &Ledger) -> Result<()> {
    let data_dir = data_dir(globals);
    if let Some(name) = &filter.project {
        let there = ProjectName::parse(name).is_ok_and(|name| Projects::below(&data_dir).files(&name).is_ok());
        let of_it = Filter { project: Some(name.clone()), limit: 1, ..Filter::default() };
        if !there && ledger.list(&of_it).await?.runs.is_empty() {
            let message = format!("there is no project {name}, and no run of it is recorded");
            return Err(
                Error::new(ErrorCode::ProjectNotFound, message).hint("glovebox projects list shows the projects")
            );
        }
    }
    if let Some(sandbox) = filter.sandbox {
        let there = living::engine_below(&data_dir).status(&sandbox.to_string()).await.is_ok();
        let of_it = Filter { sandbox: Some(sandbox), limit: 1, ..Filter::default() };
        if !there && ledger.list(&of_it).await?.runs.is_empty() {
            let message = format!("there is no sandbox {sandbox}, and no run in it is recorded");
            return Err(Error::new(ErrorCode::SandboxNotFound, message).hint("glovebox list shows the sandboxes"));
        }
    }
    Ok(())
}

fn parse_kind(text: &str) -> Result<String, String> {
    let known = || Outcome::KINDS.iter().chain(["running"].iter());
    match known().any(|kind| *kind == text) {
        true => Ok(text.to_owned()),
        false => Err(format!("expected one of {}", known().copied().collect::<Vec<_>>().join(", "))),
    }
}

fn parse_language(text: &str) -> Result<String, String> {
    let known = Language::by_name(text).map(|language| language.name.to_owned());
    known.ok_or_else(|| format!("expected one of {}", Language::names()))
}

fn parse_limit(text: &str) -> Result<u32, String> {
    const MOST: u64 = 10_000;
    match parse_count(text)? {
        limit if limit <= MOST => Ok(limit as u32),
        _ => Err(format!("expected a number from 1 to {MOST}; --before gives the next page")),
    }
}

fn print_list(listed: &Listed) -> Result<()> {
    report::print(&rows(&listed.runs))?;
    if let Some(next) = listed.next {
        report::say(&format!("there are more; --before {next} gives the next page"));
    }
    Ok(())
}

/// A table of runs.
pub(super) fn rows(runs: &[Summary]) -> String {
    let now = Timestamp::now();
    let rows: Vec<[String; 5]> = runs.iter().map(|run| row(run, now)).collect();
    table(["RUN", "STARTED", "TOOK", "OUTCOME", "COMMAND"], &rows, terminal::output_columns())
}

fn row(run: &Summary, now: Timestamp) -> [String; 5] {
    let took = run.duration_ms.map_or_else(|| "-".to_owned(), took);
    let ended = run.outcome.as_ref().map_or_else(|| "running".to_owned(), short);
    [run.run.to_string(), ago(now, run.started_at), took, ended, typed(&run.command.argv)]
}

/// How long ago something was, in its largest unit.
pub(super) fn ago(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds}s ago"),
        60..3600 => format!("{}m ago", seconds / 60),
        3600..86_400 => format!("{}h ago", seconds / 3600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}

fn took(ms: f64) -> String {
    match ms {
        ms if ms < 1000.0 => format!("{ms:.0} ms"),
        ms if ms < 100_000.0 => format!("{:.1} s", ms / 1000.0),
        ms => report::duration(Duration::from_secs((ms / 1000.0) as u64)),
    }
}

/// An outcome in a word or two.
fn short(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Exited { code } => format!("exit {code}"),
        Outcome::Signaled { signal } => format!("signal {signal}"),
        other => other.kind().replace('_', " "),
    }
}

async fn named_or_last(ledger: &Ledger, named: Option<&str>) -> Result<RunId> {
    match named {
        Some(text) => ledger.find(text).await,
        None => ledger.last().await,
    }
}

async fn show(globals: &Globals, args: &ShowArgs, ledger: &Ledger) -> Result<()> {
    let run = named_or_last(ledger, args.run.as_deref()).await?;
    let document = ledger.document(run).await?;
    if globals.json {
        return report::print(&format!("{document}\n"));
    }
    let unreadable =
        |error| Error::new(ErrorCode::LedgerDamaged, format!("the document of {run} cannot be read")).because(error);
    let mut document: Value = serde_json::from_str(&document).map_err(unreadable)?;
    let under_way = document["outcome"].is_null();
    if under_way {
        document["outcome"] = json!({ "kind": "lost" });
    }
    let result: RunResult = serde_json::from_value(document).map_err(unreadable)?;
    report::print(&page(&result, under_way))?;
    if under_way {
        report::say(&how_to_follow(globals, run, &result.sandbox.to_string()).await);
    }
    Ok(())
}

/// What there is to say of a run that is still at work: its output is not recorded yet.
async fn how_to_follow(globals: &Globals, run: RunId, sandbox: &str) -> String {
    match living::engine_below(&data_dir(globals)).status(sandbox).await {
        Ok(_) => format!("{run} is still at work; glovebox attach {run} shows what it wrote and follows it"),
        Err(_) => format!("{run} is still at work; what it writes is recorded when it is over"),
    }
}

/// All that is known of a run, a line for each thing.
fn page(result: &RunResult, under_way: bool) -> String {
    let (usage, limits) = (&result.usage, &result.limits);
    let ended = match &result.outcome {
        _ if under_way => "still running".to_owned(),
        Outcome::Exited { code } => format!("exited with code {code}"),
        Outcome::Signaled { signal } => format!("ended by signal {signal}{}", report::signal_name(*signal)),
        Outcome::Lost => match report::why_lost(result) {
            Some(why) => format!("lost: {}", printable(why)),
            None => "lost: Glovebox or the sandbox ended before the run did".to_owned(),
        },
        other => other.kind().replace('_', " "),
    };
    let known = !under_way && result.outcome != Outcome::Lost;
    let mut lines = vec![
        ("command", typed(&result.command.argv)),
        ("in", printable(&result.command.cwd)),
        ("outcome", ended),
        ("started", result.started_at.to_string()),
    ];
    if known {
        lines.push(("took", format!("{:.1} ms, {:.1} ms of CPU time", result.duration_ms, usage.cpu_ms)));
        let processes = if usage.processes_peak == 1 { "process" } else { "processes" };
        lines.push((
            "at most",
            format!("{} memory, {} {processes}", report::size(usage.memory_peak_bytes), usage.processes_peak),
        ));
    }
    lines.push((
        "limits",
        format!(
            "{} memory, {} CPU, {} processes, {} disk, {}",
            report::size(limits.memory_bytes),
            limits.cpus,
            limits.pids,
            report::size(limits.disk_bytes),
            report::duration(Duration::from_millis(limits.timeout_ms))
        ),
    ));
    lines.push(("sandbox", format!("{} on {}, image {}", result.sandbox, result.backend, result.image)));
    let label = |(key, value): (&String, &String)| ("label", printable(&format!("{key}={value}")));
    lines.extend(result.labels.iter().map(label));
    lines.extend(result.command.env.iter().map(|(name, value)| ("variable", printable(&format!("{name}={value}")))));
    let changes = &result.changes;
    for (what, paths) in [("added", &changes.added), ("modified", &changes.modified), ("deleted", &changes.deleted)] {
        lines.extend(paths.iter().take(MOST_PATHS).map(|path| (what, printable(path))));
        if paths.len() > MOST_PATHS {
            lines.push((what, format!("… and {} more, see glovebox changes --all", paths.len() - MOST_PATHS)));
        }
    }
    let artifact = |file: &glovebox_core::Artifact| format!("{} ({})", printable(&file.path), report::size(file.bytes));
    lines.extend(result.artifacts.iter().map(|file| ("artifact", artifact(file))));
    let refused = |d: &glovebox_core::Denial| format!("{}: {}; {}", d.kind, printable(&d.target), printable(&d.hint));
    lines.extend(result.denials.iter().map(|denial| ("refused", refused(denial))));
    for (name, stream) in [("stdout", &result.stdout), ("stderr", &result.stderr)] {
        let cut = if stream.truncated { ", of which the head and the tail were kept" } else { "" };
        lines.push((name, format!("{}{cut}", report::size(stream.bytes))));
    }
    let body: String = lines.iter().map(|(name, text)| format!("  {name:10}{text}\n")).collect();
    format!("{}\n{body}", result.run)
}

async fn logs(globals: &Globals, args: &LogsArgs, ledger: &Ledger) -> Result<()> {
    let run = named_or_last(ledger, args.run.as_deref()).await?;
    let document: Value = serde_json::from_str(&ledger.document(run).await?)
        .map_err(|error| Error::new(ErrorCode::LedgerDamaged, "the document cannot be read").because(error))?;
    if globals.json {
        return report::document(&json!({
            "run": document["run"], "outcome": document["outcome"],
            "stdout": document["stdout"], "stderr": document["stderr"],
        }));
    }
    if document["outcome"].is_null() {
        let sandbox = document["sandbox"].as_str().unwrap_or_default();
        report::say(&how_to_follow(globals, run, sandbox).await);
        return Ok(());
    }
    if args.stderr {
        return report::write_all(std::io::stdout(), &ledger.output(run, Stream::Stderr).await?);
    }
    let (stdout, had_terminal) = (ledger.output(run, Stream::Stdout).await?, document["command"]["terminal"] == true);
    report::write_all(std::io::stdout(), &terminal::of_the_past(stdout, had_terminal))?;
    if !args.stdout {
        report::write_all(std::io::stderr(), &ledger.output(run, Stream::Stderr).await?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_their_largest_unit() {
        let now: Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
        for (then, told) in [
            ("2026-11-15T12:00:05Z", "0s ago"),
            ("2026-11-15T11:59:01Z", "59s ago"),
            ("2026-11-15T10:59:00Z", "1h ago"),
            ("2026-11-13T11:00:00Z", "2d ago"),
        ] {
            assert_eq!(ago(now, then.parse().unwrap()), told);
        }
        assert_eq!((took(12.4).as_str(), took(1234.0).as_str(), took(200_000.0).as_str()), ("12 ms", "1.2 s", "3m20s"));
    }
}
