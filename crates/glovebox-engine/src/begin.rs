//! The beginning of a run: files in, command started.

use glovebox_core::{Error, ErrorCode, GivenFile, Result};
use glovebox_proto::{Frame, FrameKind, StartFailed, StartRun, Started, path};
use jiff::Timestamp;
use prost::Message;
use tokio::time::Instant;
use zeroize::Zeroize;

use crate::{
    RunRequest, Stdin, artifacts,
    channel::{Channel, Receiving, Sending, read, unexpected},
    input, result,
};

/// Arguments and environment together; the guest's zygote takes twice as much.
const LONGEST_START: usize = 512 * 1024;

/// A command that has started.
pub(crate) struct Begun {
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    pub(crate) pid: i32,
    pub(crate) given: Vec<GivenFile>,
    pub(crate) started: Instant,
    pub(crate) started_at: Timestamp,
}

/// Begins a run: files in, command started.
pub(crate) async fn begin(
    channel: &Channel,
    clean: &[(String, String)],
    request: &RunRequest,
    stdin: &Stdin,
) -> Result<Begun> {
    artifacts::check_globs(&request.artifacts)?;
    let given = input::put_files(channel, &request.files).await?;
    let (mut sending, opening) = channel.request(path::RUN).await?;
    let mut start = StartRun {
        argv: request.command.argv.clone(),
        env: environment(clean, request),
        cwd: request.command.cwd.to_string(),
        rows: request.terminal.map(|size| size.rows.into()),
        columns: request.terminal.map(|size| size.columns.into()),
        stdin_empty: matches!(stdin, Stdin::Empty) && request.terminal.is_none(),
    };
    if start.encoded_len() > LONGEST_START {
        return Err(Error::new(ErrorCode::InvalidValue, "arguments and environment are longer than 512 KiB together")
            .hint("pass large input as a file or on standard input"));
    }
    let message = Frame::message(FrameKind::Start, &start);
    start.env.zeroize();
    sending.send(message).await?;
    let mut receiving = opening.answer().await?;
    let mut started = None;
    let mut answer = receiving.next().await?;
    if answer.as_ref().is_some_and(|frame| frame.kind == FrameKind::Starting) {
        started = Some((Instant::now(), Timestamp::now()));
        answer = receiving.next().await?;
    }
    match answer {
        Some(frame) if frame.kind == FrameKind::Started => {
            let pid = read::<Started>(&frame)?.pid;
            let (started, started_at) = started.ok_or_else(|| unexpected(&frame))?;
            Ok(Begun { sending, receiving, pid, given, started, started_at })
        }
        Some(frame) if frame.kind == FrameKind::StartFailed => {
            let mut error = start_error(&read(&frame)?, &request.command);
            error.message = result::mask(&request.command, &error.message);
            Err(error)
        }
        Some(frame) => Err(unexpected(&frame)),
        None => Err(Error::new(ErrorCode::SandboxLost, "the sandbox went away before the command started")),
    }
}

/// The clean environment with the toolchains in its PATH, then the caller's variables, then the secrets.
fn environment(clean: &[(String, String)], request: &RunRequest) -> Vec<String> {
    let command = &request.command;
    let usual = clean.iter().find(|(name, _)| name == "PATH").map_or("", |(_, path)| path);
    let path = request.toolchains.search_path(usual);
    let mut all: std::collections::BTreeMap<&str, &str> =
        clean.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    if !request.toolchains.is_empty() {
        all.insert("PATH", &path);
    }
    all.extend(command.env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    all.extend(command.secrets.iter().map(|(name, secret)| (name.as_str(), secret.expose())));
    all.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

fn start_error(failed: &StartFailed, command: &glovebox_core::Command) -> Error {
    const ENOENT: i32 = 2;
    const ENOTDIR: i32 = 20;
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
            Error::new(ErrorCode::WorkdirUnusable, message).because(reason)
        }
        (step, _) => {
            Error::new(ErrorCode::SandboxSetup, format!("the command could not be started ({step})")).because(reason)
        }
    }
}
