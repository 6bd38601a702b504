//! What came of a run, as a document with a schema and as text.

use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use glovebox_core::{Denial, ExceptionRecord, Outcome, OutputRecord, ResultRecord, RunResult, Usage, Warning};
use rmcp::model::{ContentBlock, Resource};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::{
    answer::Answer,
    conversation::shown_change,
    resources::{run_uri, workspace_uri},
    shown,
    text::{self, Shortened, shorten},
    walk::SKIPPED,
};

/// So many paths of a change set are named with a run.
const PATHS: usize = 20;

/// What came of a run.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunReport {
    /// The id of the run.
    run: String,
    /// How it ended.
    outcome: OutcomeReport,
    /// The exit code of the program, or what a shell would say: 124 timed out, 137 out of memory, 128+n signal n.
    exit_code: u8,
    /// Standard output; head and tail when it is long.
    stdout: String,
    /// Standard error; head and tail when it is long.
    stderr: String,
    /// Bytes of standard output that are not in `stdout`.
    stdout_omitted_bytes: u64,
    /// Bytes of standard error that are not in `stderr`.
    stderr_omitted_bytes: u64,
    /// Wall time, milliseconds.
    duration_ms: f64,
    /// What it used.
    usage: UsageReport,
    /// Limits that were touched without deciding the end: memory, disk, pids, output.
    limits_hit: Vec<String>,
    /// What the policy refused, with the option that would allow it.
    denials: Vec<DenialReport>,
    /// What Glovebox could not do for the run.
    warnings: Vec<String>,
    /// Files of the workspace that it added (+), modified (~) or deleted (-); the first ones when there are many.
    changed: Vec<String>,
    /// Files of /workspace/outputs that were kept for the user.
    kept: Vec<String>,
    /// What code in a session shows: the value of its last expression, and what it displayed.
    results: Vec<ShownReport>,
    /// What failed in the code of a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    exception: Option<ExceptionReport>,
}

/// Something that code shows.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ShownReport {
    /// Its type, such as text/plain or image/png.
    mime: String,
    /// It, where it is text; images are in the content of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// How many bytes it has.
    bytes: u64,
}

/// What failed in code.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ExceptionReport {
    /// Its name, such as ValueError.
    name: String,
    /// What it says.
    message: String,
    /// Where it came from.
    traceback: String,
}

/// How a run ended.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OutcomeReport {
    /// exited, signaled, timed_out, out_of_memory, output_exceeded, disk_full, cancelled or lost.
    kind: String,
    /// The same in words.
    text: String,
}

/// What a run used.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UsageReport {
    /// CPU time, milliseconds.
    cpu_ms: f64,
    /// Highest memory use, bytes.
    memory_peak_bytes: u64,
    /// Most processes at one time.
    processes_peak: u64,
}

/// Something that the policy refused.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DenialReport {
    /// What kind of thing: network, artifact.
    kind: String,
    /// What was refused.
    target: String,
    /// The option that would allow it.
    hint: String,
}

impl RunReport {
    fn of(result: &RunResult) -> (Self, Shortened, Shortened) {
        let (stdout, stderr) = (stream(&result.stdout), stream(&result.stderr));
        let changes = &result.changes;
        let lists = [("+", &changes.added), ("~", &changes.modified), ("-", &changes.deleted)];
        let all = lists.iter().flat_map(|(sign, list)| list.iter().map(move |path| (sign, path)));
        // What tools make for themselves is no news.
        let news = all.filter(|(_, path)| !path.split('/').any(|part| SKIPPED.contains(&part.as_bytes())));
        let changed = news.map(|(sign, path)| format!("{sign} {}", shown_change(path)));
        let report = RunReport {
            run: result.run.to_string(),
            outcome: OutcomeReport { kind: result.outcome.kind().into(), text: in_words(&result.outcome) },
            exit_code: result.outcome.exit_code(),
            stdout: stdout.text.clone(),
            stderr: stderr.text.clone(),
            stdout_omitted_bytes: stdout.omitted,
            stderr_omitted_bytes: stderr.omitted,
            duration_ms: (result.duration_ms * 10.0).round() / 10.0,
            usage: usage(&result.usage),
            limits_hit: result.limits_hit.iter().map(name_of).collect(),
            denials: result.denials.iter().map(denial).collect(),
            warnings: result.warnings.iter().map(warning).collect(),
            changed: shortened(changed),
            kept: result.artifacts.iter().map(|artifact| artifact.path.clone()).take(PATHS).collect(),
            results: shown::chosen(result).into_iter().map(shown_report).collect(),
            exception: result.exception.as_ref().map(exception),
        };
        (report, stdout, stderr)
    }
}

/// What came of a run, as an answer. The text holds what a model needs, and the document the same for programs.
pub(crate) fn answer(result: &RunResult) -> Answer {
    let (report, stdout, stderr) = RunReport::of(result);
    let mut text = stdout.text.clone();
    if !stderr.text.trim().is_empty() {
        end_line(&mut text);
        text.push_str("[stderr]\n");
        text.push_str(&stderr.text);
    }
    if let Some(exception) = report.exception.as_ref().filter(|exception| !stderr.text.contains(exception.last_line()))
    {
        end_line(&mut text);
        text.push_str(&exception.traceback);
    }
    let (texts, others) = shown::content(result);
    for shown in texts {
        end_line(&mut text);
        text.push_str(&shown);
    }
    end_line(&mut text);
    text.push_str(&closing_line(result, &report));
    let mut answer = Answer::text(text).with_document(&report);
    answer.content.extend(others);
    for (stream, short) in [("stdout", &stdout), ("stderr", &stderr)] {
        if short.omitted > 0 && result.recorded {
            let link = Resource::new(run_uri(result.run, stream), format!("the whole {stream} of the run"))
                .with_mime_type("text/plain");
            answer.content.push(ContentBlock::resource_link(link));
        }
    }
    for artifact in result.artifacts.iter().take(PATHS) {
        let link = Resource::new(workspace_uri(artifact.path.as_bytes()), artifact.path.clone())
            .with_size(artifact.bytes)
            .with_mime_type(crate::resources::mime_by_name(&artifact.path));
        answer.content.push(ContentBlock::resource_link(link));
    }
    answer
}

fn stream(record: &OutputRecord) -> Shortened {
    match (&record.text, &record.base64) {
        (Some(text), _) => shorten(text.as_bytes(), record.bytes),
        (None, Some(base64)) => shorten(&BASE64_STANDARD.decode(base64).unwrap_or_default(), record.bytes),
        (None, None) => Shortened { text: String::new(), omitted: record.bytes },
    }
}

/// The last line of the text: how it ended, and whatever else there is to say.
fn closing_line(result: &RunResult, report: &RunReport) -> String {
    let took = Duration::from_secs_f64(result.duration_ms.max(0.0) / 1000.0);
    let mut lines = vec![format!("[{}, {took:.1?}]", report.outcome.text)];
    if matches!(result.outcome, Outcome::TimedOut { .. }) {
        lines.push("[for what takes longer: a larger timeout_seconds, or start_process]".to_owned());
    }
    if !report.limits_hit.is_empty() {
        lines.push(format!("[limits touched: {}]", report.limits_hit.join(", ")));
    }
    lines.extend(report.denials.iter().map(|denial| format!("[refused: {} {}]", denial.kind, denial.target)));
    lines.extend(report.warnings.iter().map(|warning| format!("[{warning}]")));
    if !report.changed.is_empty() {
        lines.push(format!("[changed: {}]", report.changed.join(", ")));
    }
    lines.join("\n")
}

/// How a run ended, in words.
pub(crate) fn in_words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Exited { code } => format!("exit code {code}"),
        Outcome::Signaled { signal } => format!("ended by signal {signal}"),
        Outcome::TimedOut { limit_ms } => {
            format!("timed out after {:?}, and was ended", Duration::from_millis(*limit_ms))
        }
        Outcome::OutOfMemory { limit_bytes, .. } => {
            format!("out of memory: it was killed at the limit of {}", text::size(*limit_bytes))
        }
        Outcome::OutputExceeded { limit_bytes } => {
            format!("ended because it wrote more than {}", text::size(*limit_bytes))
        }
        Outcome::DiskFull { code, .. } => format!("exit code {code}, and there was no room left on the disk"),
        Outcome::Cancelled => "cancelled".to_owned(),
        Outcome::Lost => "lost: the sandbox went away under it".to_owned(),
        other => other.kind().to_owned(),
    }
}

/// The first of many, and a word about the rest.
fn shortened(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = all.collect();
    let more = all.len().saturating_sub(PATHS);
    all.truncate(PATHS);
    all.extend((more > 0).then(|| format!("and {more} more")));
    all
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

impl ExceptionReport {
    fn last_line(&self) -> &str {
        self.traceback.trim_end().lines().next_back().unwrap_or_default()
    }
}

fn exception(record: &ExceptionRecord) -> ExceptionReport {
    let short = |text: &str| shorten(text.as_bytes(), text.len() as u64).text;
    let traceback = if record.traceback.trim().is_empty() {
        format!("{}: {}", record.name, record.message)
    } else {
        record.traceback.clone()
    };
    ExceptionReport { name: short(&record.name), message: short(&record.message), traceback: short(&traceback) }
}

fn shown_report(record: &ResultRecord) -> ShownReport {
    let short = |text: &String| shorten(text.as_bytes(), text.len() as u64).text;
    ShownReport { mime: text::cut(&record.mime, 100), text: record.text.as_ref().map(short), bytes: record.bytes }
}

fn usage(usage: &Usage) -> UsageReport {
    UsageReport {
        cpu_ms: usage.cpu_ms,
        memory_peak_bytes: usage.memory_peak_bytes,
        processes_peak: usage.processes_peak,
    }
}

fn denial(denial: &Denial) -> DenialReport {
    let Denial { kind, target, hint } = denial.clone();
    DenialReport { kind, target, hint }
}

fn warning(warning: &Warning) -> String {
    match &warning.hint {
        Some(hint) => format!("{}; {hint}", warning.message),
        None => warning.message.clone(),
    }
}

/// The name that a value has in JSON.
fn name_of(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => name,
        _ => String::new(),
    }
}
