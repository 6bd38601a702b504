//! Processes in the background: `start_process`, `read_process`, `write_process`, `stop_process`, `list_processes`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use glovebox_core::{Error, ErrorCode, Result};
use glovebox_engine::{Capture, Stdin};
use regex::bytes::Regex;
use rmcp::model::{ContentBlock, JsonObject, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{sync::mpsc, time::Instant};

use super::{
    Effect, ToolCall,
    what::{Variables, What},
};
use crate::{
    answer::{Answer, schema},
    call::Call,
    conversation::Conversation,
    pattern,
    process::Process,
    report::in_words,
    resources::run_uri,
    running,
    text::{self, shorten},
};

/// A process without a limit of its own ends with the conversation; this is longer than one lasts.
const FOR_EVER: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a text is waited for when nobody says.
const USUAL_WAIT: f64 = 30.0;
/// How long a process that was asked to end has for that.
const POLITE: Duration = Duration::from_secs(2);
/// Messages to a process that wait until it reads.
const INPUT: usize = 16;

/// A process as it is now.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProcessReport {
    /// Its name, for the other tools.
    process: String,
    /// running or ended.
    state: String,
    /// How it ended, in words.
    ended: Option<String>,
    /// Its exit code, or what a shell would say.
    exit_code: Option<u8>,
    /// What it wrote since it was last read: stdout and stderr as they came; head and tail when it is long.
    output: String,
    /// Bytes that are not in output.
    output_omitted_bytes: u64,
    /// Whether the text that was waited for came.
    found: Option<bool>,
    /// Seconds since it was started, or until it ended.
    seconds: f64,
}

/// A process to start.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartProcess {
    /// A line for bash, such as "python3 -m http.server 8000". Either this or argv.
    #[serde(default)]
    command: Option<String>,
    /// A program and its arguments, without a shell. Either this or command.
    #[serde(default)]
    argv: Option<Vec<String>>,
    /// The folder to start in; by default the working directory.
    #[serde(default)]
    cwd: Option<String>,
    /// Variables to set. Their values stand in the record of the run.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    env: Variables,
    /// Ends the process after this many seconds; by default it lasts as long as the sandbox.
    #[serde(default)]
    timeout_seconds: Option<f64>,
}

impl ToolCall for StartProcess {
    const NAME: &'static str = "start_process";
    const TITLE: &'static str = "Start a process";
    const ABOUT: &'static str = "Starts a server or a long job in the background and returns its name at once. read_process shows \
        what it writes.";
    const EFFECT: Effect = Effect::Acts;

    fn output() -> Option<Arc<JsonObject>> {
        schema::<ProcessReport>()
    }

    async fn call(self, talk: &Conversation, call: &Call) -> Result<Answer> {
        let room = talk.processes.room()?;
        let (command, argv) = (self.command.as_deref(), self.argv.as_deref());
        let what = What { command, argv, cwd: self.cwd.as_deref(), env: &self.env };
        let limit = match self.timeout_seconds {
            Some(seconds) if !(seconds.is_finite() && seconds > 0.0) => {
                return Err(Error::new(ErrorCode::InvalidValue, "timeout_seconds must be above 0"));
            }
            Some(seconds) => Duration::try_from_secs_f64(seconds).unwrap_or(FOR_EVER).min(FOR_EVER),
            None => FOR_EVER,
        };
        let sandbox = talk.sandbox().await?;
        let start = async || {
            let (stdin, typed) = mpsc::channel(INPUT);
            let mut request = what.request(talk)?;
            request.spec.limits.timeout = limit;
            request.stdin = Stdin::Stream(typed);
            request.capture = if talk.settings.ledger.is_some() { Capture::Keep } else { Capture::Count };
            let run = tokio::select! {
                run = sandbox.start(request) => run?,
                () = call.cancelled() => return Err(running::cancelled()),
            };
            Ok((run, stdin))
        };
        let started = match start().await {
            Err(error) if what.needs_sh(&error, talk) => start().await,
            other => other,
        };
        let (run, stdin) = started.map_err(|error| what.explain(error))?;
        let process = talk.processes.add(room, what.shown(), run, stdin);
        Ok(answer(talk, &process, None, None))
    }
}

/// A process to read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadProcess {
    /// The name that start_process gave.
    process: String,
    /// Wait up to this many seconds for the process to end, or for until; never longer than the time limit of a call. By default
    /// 30 with until, else 0.
    #[serde(default)]
    wait_seconds: Option<f64>,
    /// Wait until what it wrote since it was last read matches this regular expression (at most 1000 bytes; ^ and $ match at
    /// lines).
    #[serde(default)]
    until: Option<String>,
}

impl ToolCall for ReadProcess {
    const NAME: &'static str = "read_process";
    const TITLE: &'static str = "Read a process";
    const ABOUT: &'static str = "Gives what a background process wrote since it was last read, and whether it has ended. Can wait \
        for a text, or for its end.";
    const EFFECT: Effect = Effect::Reads;

    fn output() -> Option<Arc<JsonObject>> {
        schema::<ProcessReport>()
    }

    async fn call(self, talk: &Conversation, call: &Call) -> Result<Answer> {
        let process = talk.processes.find(&self.process)?;
        let until = self.until.as_deref().map(|text| pattern::parse("until", text, false)).transpose()?;
        let usual = if until.is_some() { USUAL_WAIT } else { 0.0 };
        let (asked, longest) = (self.wait_seconds.unwrap_or(usual).max(0.0), talk.settings.longest());
        let wait = Duration::try_from_secs_f64(asked).unwrap_or(longest).min(longest);
        let progress = call.progress();
        progress.say(format!("waiting for {}", process.name));
        let found = tokio::select! {
            found = wait_for(&process, until.as_ref(), wait) => found,
            () = call.cancelled() => return Err(running::cancelled()),
        };
        let cut_short = (!found && process.ended().is_none() && asked > longest.as_secs_f64()).then_some(longest);
        Ok(answer(talk, &process, until.map(|_| found), cut_short))
    }
}

/// Waits for a text or for the end. Says whether the text came.
async fn wait_for(process: &Process, until: Option<&Regex>, wait: Duration) -> bool {
    let deadline = Instant::now() + wait;
    let mut looked = 0;
    loop {
        let change = process.change();
        // Before it is looked at what came: the last bytes come before the end.
        let ended = process.ended().is_some();
        let found = match until {
            Some(until) => has_come(process, until, &mut looked).await,
            None => false,
        };
        if found || ended {
            return found;
        }
        if tokio::time::timeout_at(deadline, change).await.is_err() {
            return false;
        }
    }
}

/// Whether a text is in what came since it was last looked. A pattern that takes long does not keep other calls waiting.
async fn has_come(process: &Process, until: &Regex, looked: &mut u64) -> bool {
    while let Some(piece) = process.piece(looked) {
        let until = until.clone();
        let searching = tokio::task::spawn_blocking(move || until.is_match_at(&piece.bytes, piece.from));
        // It fails only by a panic, which has been printed.
        if searching.await.unwrap_or(false) {
            return true;
        }
    }
    false
}

/// Input for a process.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteProcess {
    /// The name that start_process gave.
    process: String,
    /// What to write to its standard input. Most programs wait for a line, so end it with a newline.
    #[serde(default)]
    input: String,
    /// Close its standard input afterwards.
    #[serde(default)]
    close: bool,
}

impl ToolCall for WriteProcess {
    const NAME: &'static str = "write_process";
    const TITLE: &'static str = "Write to a process";
    const ABOUT: &'static str = "Writes to the standard input of a background process, or closes it.";
    const EFFECT: Effect = Effect::Acts;

    async fn call(self, talk: &Conversation, _call: &Call) -> Result<Answer> {
        let process = talk.processes.find(&self.process)?;
        let bytes = self.input.len();
        if bytes > 0 {
            process.write(Bytes::from(self.input)).await?;
        }
        if self.close {
            process.close_input();
        }
        let closed = if self.close { " and closed its input" } else { "" };
        Ok(Answer::text(format!("wrote {} to {}{closed}", text::size(bytes as u64), process.name)))
    }
}

/// A process to stop.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StopProcess {
    /// The name that start_process gave.
    process: String,
    /// End it at once, without asking it first.
    #[serde(default)]
    force: bool,
}

impl ToolCall for StopProcess {
    const NAME: &'static str = "stop_process";
    const TITLE: &'static str = "Stop a process";
    const ABOUT: &'static str = "Ends a background process with all that it started, and gives its last output.";
    const EFFECT: Effect = Effect::Acts;

    fn output() -> Option<Arc<JsonObject>> {
        schema::<ProcessReport>()
    }

    async fn call(self, talk: &Conversation, _call: &Call) -> Result<Answer> {
        const SIGTERM: i32 = 15;
        let process = talk.processes.find(&self.process)?;
        if process.ended().is_none() && !self.force {
            // One that ends this very moment is what is wanted.
            let _ = talk.sandbox().await?.signal(process.run, SIGTERM).await;
            wait_for(&process, None, POLITE).await;
        }
        if process.ended().is_none() {
            process.cancel();
            wait_for(&process, None, 5 * POLITE).await;
        }
        Ok(answer(talk, &process, None, None))
    }
}

/// Nothing is needed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListProcesses {}

/// All processes.
#[derive(Debug, Serialize, JsonSchema)]
struct ProcessList {
    /// The processes, the oldest first.
    processes: Vec<ListedProcess>,
}

/// A process in the list.
#[derive(Debug, Serialize, JsonSchema)]
struct ListedProcess {
    /// Its name.
    process: String,
    /// What it runs.
    command: String,
    /// running, or how it ended.
    state: String,
    /// Seconds since it was started, or until it ended.
    seconds: f64,
}

impl ToolCall for ListProcesses {
    const NAME: &'static str = "list_processes";
    const TITLE: &'static str = "List processes";
    const ABOUT: &'static str = "Lists the background processes of this conversation, also those that have ended.";
    const EFFECT: Effect = Effect::Reads;

    fn output() -> Option<Arc<JsonObject>> {
        schema::<ProcessList>()
    }

    async fn call(self, talk: &Conversation, _call: &Call) -> Result<Answer> {
        let listed = |process: &Arc<Process>| ListedProcess {
            process: process.name.clone(),
            command: process.command.clone(),
            state: end_of(process).unwrap_or_else(|| "running".to_owned()),
            seconds: seconds(process),
        };
        let processes: Vec<ListedProcess> = talk.processes.all().iter().map(listed).collect();
        let line = |one: &ListedProcess| format!("{}  {}  {} s  {}", one.process, one.state, one.seconds, one.command);
        let mut text: Vec<String> = processes.iter().map(line).collect();
        if text.is_empty() {
            text.push("[no process was started]".to_owned());
        }
        Ok(Answer::text(text.join("\n")).with_document(&ProcessList { processes }))
    }
}

fn end_of(process: &Process) -> Option<String> {
    let ended = process.ended()?;
    Some(match (&ended.outcome, ended.error) {
        (Some(outcome), _) => in_words(outcome),
        (None, error) => error.unwrap_or_else(|| "lost".to_owned()),
    })
}

fn seconds(process: &Process) -> f64 {
    let after = process.ended().map_or_else(|| process.started.elapsed(), |ended| ended.after);
    (after.as_secs_f64() * 10.0).round() / 10.0
}

/// What there is to say of a process, with its new output: also whether a text came that was waited for, and how long a wait may
/// last that was cut short.
fn answer(talk: &Conversation, process: &Process, found: Option<bool>, cut_short: Option<Duration>) -> Answer {
    let ended = process.ended();
    let output = process.take(&talk.secrets());
    let short = shorten(&output.bytes, output.bytes.len() as u64);
    let (end, omitted) = (end_of(process), short.omitted + output.dropped);
    let report = ProcessReport {
        process: process.name.clone(),
        state: if ended.is_some() { "ended" } else { "running" }.to_owned(),
        ended: end.clone(),
        exit_code: ended.as_ref().and_then(|ended| Some(ended.outcome.as_ref()?.exit_code())),
        output: short.text.clone(),
        output_omitted_bytes: omitted,
        found,
        seconds: seconds(process),
    };
    let mut text = String::new();
    if output.dropped > 0 {
        text.push_str(&format!("[{} bytes were dropped unread]\n", output.dropped));
    }
    text.push_str(&short.text);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let missing = if found == Some(false) { "; the text did not come" } else { "" };
    let state = match end {
        None => "running".to_owned(),
        Some(end) if end.starts_with("ended") => end,
        Some(end) => format!("ended: {end}"),
    };
    let cut_short = cut_short.map(|longest| format!("; a call may last {longest:?}, so wait again"));
    let cut_short = cut_short.unwrap_or_default();
    text.push_str(&format!("[{} {state}, {} s{missing}{cut_short}]", process.name, report.seconds));
    let mut answer = Answer::text(text).with_document(&report);
    if omitted > 0 && ended.is_some_and(|ended| ended.recorded) {
        for stream in ["stdout", "stderr"] {
            let name = format!("the whole {stream} of {}", process.name);
            answer.content.push(ContentBlock::resource_link(Resource::new(run_uri(process.run, stream), name)));
        }
    }
    answer
}
