//! The beginning of a run: files in, command started.

use std::time::Duration;

use bytes::Bytes;
use glovebox_core::{Command, Error, ErrorCode, GivenFile, Result, RunId, RunResult, Secret};
use glovebox_proto::{Frame, FrameKind, Role, StartFailed, StartRun, Started, bound, path, session::SessionStarted};
use jiff::Timestamp;
use prost::Message;
use tokio::time::Instant;
use zeroize::Zeroize;

use crate::{
    RunRequest, Stdin, artifacts,
    channel::{Channel, Receiving, Sending, ask, in_time, read, unexpected},
    input,
    line::{self, Opened},
    living, result, sessions,
};

/// Arguments and environment together: what the kernel carries in one message between guest and zygote, and a little less.
const LONGEST_START: usize = 192 * 1024;

/// How much later than the host the guest of a living sandbox ends a run whose time is over.
const HEAD_START: Duration = Duration::from_secs(1);

/// A command that has started.
pub(crate) struct Begun {
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    pub(crate) given: Vec<GivenFile>,
    pub(crate) started: Instant,
    pub(crate) started_at: Timestamp,
    /// Before it was asked for: what changed earlier is none of its doing.
    pub(crate) asked_at: Timestamp,
    /// The session that it is in.
    pub(crate) session: Option<SessionStarted>,
}

/// How a run is known to the guest.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) run: RunId,
    /// What those are told who attach to it. Nobody can where there is none.
    pub(crate) note: Option<&'a RunResult>,
}

/// Begins a run: files in, command started.
pub(crate) async fn begin(
    channel: &Channel,
    clean: &[(String, String)],
    request: &RunRequest,
    stdin: &Stdin,
    (known, session): (Known<'_>, Option<&mut sessions::Beginning>),
) -> Result<Begun> {
    channel.judge(try_begin(channel, clean, request, stdin, (known, session)).await)
}

async fn try_begin(
    channel: &Channel,
    clean: &[(String, String)],
    request: &RunRequest,
    stdin: &Stdin,
    (known, session): (Known<'_>, Option<&mut sessions::Beginning>),
) -> Result<Begun> {
    artifacts::check_globs(&request.artifacts)?;
    let given = input::put_files(channel, &request.files).await?;
    let limits = &request.spec.limits;
    let mut start = Wiped(StartRun {
        argv: argv(request)?,
        env: environment(clean, request),
        cwd: request.command.cwd.to_string(),
        rows: request.terminal.map(|size| size.rows.into()),
        columns: request.terminal.map(|size| size.columns.into()),
        stdin_empty: matches!(stdin, Stdin::Empty) && request.terminal.is_none(),
        run: known.run.to_string(),
        // The host's own clock comes first, for as long as there is a host.
        timeout_ms: known.note.map(|_| (limits.timeout + HEAD_START).as_millis() as u64),
        grace_ms: limits.grace.as_millis() as u64,
        keep_output: known.note.is_some(),
        note: known.note.map(note).unwrap_or_default(),
        session: None,
    });
    if start.0.encoded_len() - start.0.note.len() > LONGEST_START {
        return Err(Error::new(ErrorCode::InvalidValue, "arguments and environment are longer than 192 KiB together")
            .hint("pass large input as a file or on standard input"));
    }
    let asked_at = Timestamp::now();
    if let Some(session) = session {
        let begun = begin_in_session(channel, &mut start.0, session, request).await?;
        return Ok(Begun { given, asked_at, ..begun });
    }
    let message = Frame::message(FrameKind::Start, &start.0);
    drop(start);
    let starting = start_command(channel, message.clone(), request);
    if known.note.is_none() {
        // A fresh sandbox may still be in the making, and its guest has met nobody hostile yet.
        return Ok(Begun { given, asked_at, ..starting.await? });
    }
    let begun = match in_time(starting).await {
        Err(error) if error.code == ErrorCode::SandboxLost => start_again(channel, known.run, message, request).await,
        other => other,
    };
    Ok(Begun { given, asked_at, ..begun? })
}

/// A start whose variables, which may be secrets, are wiped on every way out.
struct Wiped(StartRun);

impl Drop for Wiped {
    fn drop(&mut self) {
        self.0.env.zeroize();
    }
}

/// Starts a command whose start was cut short, perhaps after it was heard. The guest ends a run whose start it could not
/// tell, so at most one goes on.
async fn start_again(channel: &Channel, run: RunId, message: Bytes, request: &RunRequest) -> Result<Begun> {
    match in_time(line::attach(channel, run, [0; 3], Role::Owner)).await {
        Ok(Opened { sending, receiving, .. }) => {
            let (started, now) = (Instant::now(), Timestamp::now());
            Ok(Begun { sending, receiving, given: Vec::new(), started, started_at: now, asked_at: now, session: None })
        }
        Err(error) if error.code == ErrorCode::RunNotFound => in_time(start_command(channel, message, request)).await,
        Err(error) => Err(error),
    }
}

/// What is executed: the command, or the interpreter of a session, which is started if it is not there.
fn argv(request: &RunRequest) -> Result<Vec<String>> {
    match &request.session {
        Some(session) => Ok(sessions::driver_of(session.language)?.argv()),
        None => Ok(request.command.argv.clone()),
    }
}

/// Begins a run in a session: once that has its turn, which may take as long as whoever asks is willing to wait.
async fn begin_in_session(
    channel: &Channel,
    start: &mut StartRun,
    session: &mut sessions::Beginning,
    request: &RunRequest,
) -> Result<Begun> {
    loop {
        start.session = Some(session.run.clone());
        let message = Frame::message(FrameKind::Start, start);
        match send_start(channel, message).await? {
            Ok(begun) => return Ok(begun),
            Err(failed) if session.needs_opening(&failed) => {}
            Err(failed) => return Err(not_started(channel, &failed, request)),
        }
    }
}

/// Sends a command to be started, and waits until it is.
async fn start_command(channel: &Channel, message: Bytes, request: &RunRequest) -> Result<Begun> {
    send_start(channel, message).await?.map_err(|failed| not_started(channel, &failed, request))
}

/// The error for a command that could not be started.
fn not_started(channel: &Channel, failed: &StartFailed, request: &RunRequest) -> Error {
    if let ("paused", Some(id)) = (failed.step.as_str(), channel.sandbox()) {
        return living::paused(id, &id.to_string());
    }
    if let Some(error) = request.session.as_ref().and_then(|session| sessions::refused(failed, session)) {
        return error;
    }
    let mut error = start_error(failed, &request.command);
    error.message = result::mask(&request.command, &error.message);
    error
}

/// Asks for a start. The inner failure is the command's.
async fn send_start(channel: &Channel, message: Bytes) -> Result<Result<Begun, StartFailed>> {
    let (mut sending, opening) = channel.request(path::RUN).await?;
    let asked = Instant::now();
    let mut receiving = ask(&mut sending, opening, message).await?;
    match receiving.next().await? {
        Some(frame) if frame.kind == FrameKind::Started => {
            let Started { took_ns, session, .. } = read(&frame)?;
            let now = Instant::now();
            // Whatever the guest says, it was not before it was asked.
            let took = Duration::from_nanos(took_ns).min(now.duration_since(asked));
            let (started, started_at) = (now - took, Timestamp::now() - took);
            let (given, asked_at) = (Vec::new(), started_at);
            Ok(Ok(Begun { sending, receiving, given, started, started_at, asked_at, session }))
        }
        Some(frame) if frame.kind == FrameKind::StartFailed => Ok(Err(read(&frame)?)),
        Some(frame) => Err(unexpected(&frame)),
        None => Err(Error::new(ErrorCode::SandboxLost, "the sandbox went away before the command started")),
    }
}

/// What a run is known by, in as few bytes as the guest takes.
fn note(if_lost: &RunResult) -> Bytes {
    let mut text = serde_json::to_vec(if_lost).unwrap_or_default();
    if text.len() > bound::NOTE {
        let mut short = if_lost.clone();
        let program: String = short.command.argv[0].chars().take(1000).collect();
        short.command.argv = vec![program, "…".to_owned()];
        short.labels.clear();
        // The names of secrets stay: whoever attaches must know that there are some.
        short.command.env.retain(|name, value| name.len() < 100 && value == Secret::MASK);
        text = serde_json::to_vec(&short).unwrap_or_default();
    }
    if text.len() > bound::NOTE { Bytes::new() } else { text.into() }
}

/// The clean environment with the toolchains in its PATH and where caches are, then the caller's variables, then the secrets.
fn environment(clean: &[(String, String)], request: &RunRequest) -> Vec<String> {
    let command = &request.command;
    let usual = clean.iter().find(|(name, _)| name == "PATH").map_or("", |(_, path)| path);
    let path = request.toolchains.search_path(usual);
    let mut all: std::collections::BTreeMap<&str, &str> =
        clean.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    if !request.toolchains.is_empty() {
        all.insert("PATH", &path);
    }
    all.extend(request.spec.caches.iter().flat_map(|cache| cache.variables()).copied());
    all.extend(command.env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    all.extend(command.secrets.iter().map(|(name, secret)| (name.as_str(), secret.expose())));
    all.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

fn start_error(failed: &StartFailed, command: &Command) -> Error {
    const ENOENT: i32 = 2;
    const ENOTDIR: i32 = 20;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    let program = &command.argv[0];
    let reason = std::io::Error::from_raw_os_error(failed.errno);
    match (failed.step.as_str(), failed.errno) {
        ("exec", ENOENT | ENOTDIR) => {
            Error::new(ErrorCode::CommandNotFound, format!("the command '{program}' was not found inside the sandbox"))
        }
        ("exec", _) => {
            let message = format!("the command '{program}' cannot be executed inside the sandbox");
            Error::new(ErrorCode::CommandNotExecutable, message).because(reason)
        }
        ("chdir", _) => {
            let message = format!("the working directory {} cannot be entered", command.cwd);
            Error::new(ErrorCode::WorkdirUnusable, message).because(reason).hint(
                "name a folder that is there inside, by its path there; a run starts in its workspace without one",
            )
        }
        ("stdio", EMFILE | ENFILE) => {
            let message = "there are as many runs in this sandbox as it has descriptors for";
            Error::new(ErrorCode::TooMany, message).because(reason).hint("wait for one of the runs to end")
        }
        (step, _) => {
            Error::new(ErrorCode::SandboxSetup, format!("the command could not be started ({step})")).because(reason)
        }
    }
}
