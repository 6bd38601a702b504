//! `glovebox attach|wait|cancel` and `exec --detach`: runs in sandboxes that stay, from elsewhere.
//!
//! A detached run has a process of its own that follows it and records it: this program once more, in a session of its own.
//! When that one is killed, the run goes on in its sandbox, and the next command that meets it starts another follower.

use std::{
    ffi::OsString,
    fs::File,
    io::{BufRead, BufReader, IsTerminal, Read, Write},
    os::unix::process::CommandExt,
    path::Path,
    pin::pin,
    process::{Command, Stdio as HostStdio},
    time::{Duration, Instant},
};

use glovebox_core::{Error, ErrorCode, Outcome, Result, RunId, RunResult, SandboxId};
use glovebox_engine::{Engine, Run, Sandbox, Stdin, TerminalSize};
use glovebox_ledger::{Ledger, Stream};
use serde_json::{Value, json};

use super::{
    data_dir,
    exec::parse_keys,
    living,
    run::{self, Driven, Front, OnSignal},
    runtime,
};
use crate::{
    args::{AttachArgs, Globals, RunArg},
    flags::Flags,
    report, stdio,
    terminal::{self, Keyboard},
};

/// How long a follower has to write down the end of a run that it has heard of.
const FOLLOWERS_TIME: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The word by which this program is started to follow a run that lost its follower.
pub(crate) const FOLLOW: &str = "__follow";

/// The variable that says to a copy of this program that it is the follower of a detached run. It holds the size of a terminal.
const DETACHED: &str = "__GLOVEBOX_DETACHED";

/// The file that is there once the caller was told how to leave a terminal.
const TOLD_KEYS: &str = "told-detach-keys";

/// How long a follower tries to take over a run whose process lets go of it.
const TAKE_OVER: Duration = Duration::from_secs(2);

/// A run that somebody named.
enum Named {
    /// Its sandbox knows it, or may.
    In(Box<Sandbox>, RunId),
    /// It is over, and this is its record.
    Over(Box<RunResult>),
}

/// An engine that records.
fn engine(globals: &Globals, flags: &Flags) -> Result<(Engine, Ledger)> {
    let ledger = Ledger::below(data_dir(globals));
    Ok((living::engine(globals, flags)?.with_ledger(ledger.clone()), ledger))
}

/// Finds a run by its id, or the beginning of its id.
async fn find(engine: &Engine, ledger: &Ledger, text: &str) -> Result<Named> {
    let run = match text.parse::<RunId>() {
        Ok(run) => run,
        Err(_) => match ledger.find(text).await {
            Ok(run) => run,
            Err(error) if error.code == ErrorCode::RunNotFound && engine.status(text).await.is_ok() => {
                let message = format!("{text} is a sandbox, and a run is needed");
                let hint = format!("glovebox runs list --sandbox {text} shows its runs");
                return Err(Error::new(ErrorCode::RunNotFound, message).hint(hint));
            }
            Err(error) => return Err(error),
        },
    };
    let recorded = match ledger.document(run).await {
        Ok(document) => Some(serde_json::from_str::<Value>(&document).map_err(|error| damaged(run, error))?),
        Err(error) if error.code == ErrorCode::RunNotFound => None,
        Err(error) => return Err(error),
    };
    if let Some(document) = recorded {
        if !document["outcome"].is_null() {
            return Ok(Named::Over(Box::new(serde_json::from_value(document).map_err(|error| damaged(run, error))?)));
        }
        let sandbox = document["sandbox"].as_str().unwrap_or_default();
        return match engine.open_paused(sandbox).await {
            Ok(sandbox) => Ok(Named::In(Box::new(sandbox), run)),
            Err(error) if error.code == ErrorCode::SandboxNotFound => {
                let message =
                    format!("the run {run} is under way in a sandbox of its own, which only its caller reaches");
                Err(Error::new(ErrorCode::WrongState, message).hint("Ctrl-C where it was started ends it"))
            }
            Err(error) => Err(error),
        };
    }
    // A run without a record is known to its sandbox only.
    for status in engine.sandboxes().await? {
        if let Ok(sandbox) = engine.open_paused(&status.sandbox.to_string()).await
            && sandbox.runs().await?.iter().any(|known| known.run == run)
        {
            return Ok(Named::In(Box::new(sandbox), run));
        }
    }
    Err(Error::new(ErrorCode::RunNotFound, format!("there is no run {run}"))
        .hint("glovebox runs list shows the runs there are"))
}

fn damaged(run: RunId, error: serde_json::Error) -> Error {
    Error::new(ErrorCode::LedgerDamaged, format!("the document of {run} cannot be read")).because(error)
}

/// The only terminal that is at work.
async fn only_terminal(engine: &Engine) -> Result<Named> {
    let mut found: Vec<(SandboxId, RunId)> = Vec::new();
    for status in engine.sandboxes().await? {
        // One that cannot be reached has no terminal to come back to.
        let Ok(sandbox) = engine.open_paused(&status.sandbox.to_string()).await else { continue };
        let runs = sandbox.runs().await.unwrap_or_default();
        let at_work = runs.iter().filter(|run| run.terminal && run.ended.is_none());
        found.extend(at_work.map(|run| (sandbox.id(), run.run)));
    }
    let (message, hint) = match found.as_slice() {
        [(sandbox, run)] => return Ok(Named::In(Box::new(engine.open_paused(&sandbox.to_string()).await?), *run)),
        [] => {
            let hint = "glovebox attach RUN; no terminal is at work, and glovebox runs list --outcome running shows the runs that are";
            ("a run must be named", hint.to_owned())
        }
        several => {
            let names: Vec<String> = several.iter().map(|(sandbox, run)| format!("{run} in {sandbox}")).collect();
            (
                "several terminals are at work, and one must be named",
                format!("glovebox attach with one of {}", names.join(", ")),
            )
        }
    };
    Err(Error::new(ErrorCode::Usage, message).hint(hint))
}

pub(crate) fn attach(globals: &Globals, args: &AttachArgs, flags: &Flags) -> Result<u8> {
    let keys = flags.check("detach-keys", &args.detach_keys, parse_keys)?;
    let (engine, ledger) = engine(globals, flags)?;
    runtime()?.block_on(async {
        let named = match &args.run {
            Some(run) => find(&engine, &ledger, run).await?,
            None => only_terminal(&engine).await?,
        };
        let result = match named {
            Named::Over(result) => {
                if !globals.json {
                    replay(&ledger, &result).await?;
                }
                *result
            }
            Named::In(sandbox, run) => {
                let terminal = sandbox.runs().await?.iter().any(|known| known.run == run && known.terminal);
                let (keyboard, stdin) = if globals.json {
                    (None, Stdin::Empty)
                } else if terminal && terminal::is_here() {
                    let (keyboard, stdin) = Keyboard::new(keys);
                    (Some(keyboard), stdin)
                } else {
                    (None, stdio::standard_input(None)?)
                };
                let front = Front { keyboard, terminal, json: globals.json, on_signal: OnSignal::Leave };
                match run::drive(pin!(sandbox.attach(run, stdin)), front).await {
                    Ok(Driven::Finished(finished)) => finished.result,
                    Err(error) => {
                        let result = recorded_soon(&ledger, run, error).await?;
                        if !globals.json {
                            replay(&ledger, &result).await?;
                        }
                        result
                    }
                    Ok(Driven::Left(run, sandbox)) if terminal => return leave(globals, sandbox, run),
                    Ok(Driven::Abandoned | Driven::Left(..)) => {
                        report::say(&format!("the run goes on; glovebox cancel {run} ends it"));
                        return Ok(Outcome::Cancelled.exit_code());
                    }
                }
            }
        };
        end(globals, &result)
    })
}

/// The record of a run that its sandbox no longer knows: its follower has heard of the end and is about to write it down.
/// Where nobody is, the sandbox's own error stands.
async fn recorded_soon(ledger: &Ledger, run: RunId, error: Error) -> Result<RunResult> {
    if error.code != ErrorCode::RunNotFound {
        return Err(error);
    }
    let deadline = Instant::now() + FOLLOWERS_TIME;
    while Instant::now() < deadline {
        let Ok(document) = ledger.document(run).await else { return Err(error) };
        let document: Value = serde_json::from_str(&document).map_err(|error| damaged(run, error))?;
        if !document["outcome"].is_null() {
            return serde_json::from_value(document).map_err(|error| damaged(run, error));
        }
        // The follower is another process, and tells nobody but the ledger.
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Err(error)
}

/// Writes what a run that is over wrote.
async fn replay(ledger: &Ledger, result: &RunResult) -> Result<()> {
    let run = result.run;
    let (stdout, stderr) = (ledger.output(run, Stream::Stdout).await?, ledger.output(run, Stream::Stderr).await?);
    report::write_all(std::io::stdout(), &terminal::of_the_past(stdout, result.command.terminal))?;
    report::write_all(std::io::stderr(), &stderr)
}

pub(crate) fn wait(globals: &Globals, args: &RunArg, flags: &Flags) -> Result<u8> {
    let (engine, ledger) = engine(globals, flags)?;
    runtime()?.block_on(async {
        let result = match find(&engine, &ledger, &args.run).await? {
            Named::Over(result) => *result,
            Named::In(sandbox, run) => match sandbox.attach(run, Stdin::Empty).await {
                Ok(run) => run.wait().await?,
                Err(error) => recorded_soon(&ledger, run, error).await?,
            },
        };
        end(globals, &result)
    })
}

/// Says how a run ended, and gives its exit code.
fn end(globals: &Globals, result: &RunResult) -> Result<u8> {
    if globals.json {
        report::document(result)?;
    } else {
        report::ending(result);
    }
    Ok(result.outcome.exit_code())
}

pub(crate) fn cancel(globals: &Globals, args: &RunArg, flags: &Flags) -> Result<u8> {
    let (engine, ledger) = engine(globals, flags)?;
    runtime()?.block_on(async {
        let (run, was_running) = match find(&engine, &ledger, &args.run).await? {
            Named::Over(result) => (result.run, false),
            Named::In(sandbox, run) => match sandbox.cancel(run).await {
                Ok(()) => (run, true),
                // It ended while it was looked for.
                Err(error) if error.code == ErrorCode::RunNotFound => (run, false),
                Err(error) => return Err(error),
            },
        };
        if globals.json {
            report::document(&json!({ "run": run, "cancelled": was_running }))?;
        } else if !was_running {
            report::say(&format!("the run {run} is over already"));
        }
        Ok(0)
    })
}

/// The size of the terminal that this process, the follower of a detached run, is to give it.
pub(crate) fn size_for_follower() -> Option<TerminalSize> {
    let text = std::env::var(DETACHED).ok()?;
    let (rows, columns) = text.split_once('x')?;
    Some(TerminalSize { rows: rows.parse().ok()?, columns: columns.parse().ok()? })
}

/// Says how to leave a terminal, the first time that there is one to leave.
pub(super) fn tell_keys(globals: &Globals, keys: &str) {
    let file = data_dir(globals).join(TOLD_KEYS);
    // Where it cannot be noted it was not told, or will be told again; both harm nobody.
    if File::options().write(true).create_new(true).open(file).is_ok() {
        report::say(&format!("{keys} leaves this terminal, and what runs in it goes on (said once)"));
    }
}

/// Leaves a run that goes on. Another process takes over what this one did for it, once this one is gone.
pub(super) fn leave(globals: &Globals, sandbox: SandboxId, run: RunId) -> Result<u8> {
    let program = std::env::current_exe();
    let started = program.and_then(|program| {
        let words = [sandbox.to_string(), run.to_string()];
        let mut follower = follower(&program, globals);
        follower.args(words).stdin(HostStdio::piped()).spawn()
    });
    // It begins when its standard input ends, which is when this process ends. Without it the next command starts one.
    std::mem::forget(started);
    if std::io::stderr().is_terminal() {
        // The cursor is where the program left it.
        let _ = std::io::stderr().write_all(b"\n");
    }
    report::say(&format!("left; the run goes on: glovebox attach {run}"));
    Ok(0)
}

/// This program once more, as the follower of a run that lost its own.
fn follower(program: &Path, globals: &Globals) -> Command {
    let mut command = Command::new(program);
    command.arg(FOLLOW).arg(data_dir(globals)).stdout(HostStdio::null()).stderr(HostStdio::null()).process_group(0);
    command
}

/// Whether this process is the follower of a detached run.
pub(super) fn is_follower() -> bool {
    std::env::var_os(DETACHED).is_some()
}

/// Starts this program once more as the follower of a run, with the same arguments, and tells the run's id once it has
/// started.
pub(super) fn detach(globals: &Globals) -> Result<u8> {
    let failed = |error| Error::new(ErrorCode::HostIo, "the follower of the run cannot be started").because(error);
    let program = std::env::current_exe().map_err(failed)?;
    let size = terminal::size().unwrap_or(terminal::CLASSIC);
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(DETACHED, format!("{}x{}", size.rows, size.columns))
        // Nobody types for a run in the background; what is typed from now on is for whoever is in front.
        .stdin(if std::io::stdin().is_terminal() { HostStdio::null() } else { HostStdio::inherit() })
        .stdout(HostStdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut told = String::new();
    let mut stdout = child.stdout.take().map(BufReader::new);
    if let Some(stdout) = &mut stdout {
        stdout.read_line(&mut told).map_err(failed)?;
    }
    let started = told.trim_end().split_once(' ').filter(|(run, _)| run.parse::<RunId>().is_ok());
    let Some((run, sandbox)) = started else {
        // It has said why; what it ended with is what this command ends with.
        if let Some(stdout) = &mut stdout {
            stdout.read_to_string(&mut told).map_err(failed)?;
        }
        report::print(&told)?;
        let code = child.wait().map_err(failed)?.code().unwrap_or(125);
        return Ok(u8::try_from(code).unwrap_or(125));
    };
    match globals.json {
        true => report::document(&json!({ "run": run, "sandbox": sandbox }))?,
        false => report::print(&format!("{run}\n"))?,
    }
    Ok(0)
}

/// The follower's part: tells that the run has started, lets go of the caller's session and streams, and waits for the end.
pub(super) async fn follow_detached(run: Run) -> Result<RunResult> {
    report::print(&format!("{} {}\n", run.id(), run.sandbox()))?;
    leave_caller()
        .map_err(|error| Error::new(ErrorCode::HostIo, "the caller's session cannot be left").because(error))?;
    run.wait().await
}

/// Leaves the caller's session and its standard streams.
fn leave_caller() -> std::io::Result<()> {
    // Whoever leads a session already has none to leave.
    let _ = rustix::process::setsid();
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Follows a run that lost its follower, to its end and into the ledger.
pub(crate) fn follow(words: &[OsString]) -> u8 {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let [data_dir, sandbox, run] = words[..] else { return 2 };
    let followed = || -> Result<()> {
        let wrong = |_| Error::new(ErrorCode::Usage, "an id is needed");
        let (sandbox, run): (SandboxId, RunId) = (sandbox.parse().map_err(wrong)?, run.parse().map_err(wrong)?);
        let engine = living::engine_below(data_dir.as_ref()).with_ledger(Ledger::below(data_dir));
        let _ = leave_caller();
        // Whoever leaves a run has it until its process ends, and holds the other end of this until then.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        runtime()?.block_on(async {
            match engine.open_paused(&sandbox.to_string()).await {
                Ok(sandbox) => follow_once_free(&sandbox, run).await,
                // One that cannot be reached just now, for want of a descriptor perhaps, has not lost its runs.
                Err(_) if engine.status(&sandbox.to_string()).await.is_ok_and(|found| found.state.has_processes()) => {
                    Ok(())
                }
                Err(_) => engine.give_up(run).await.map(drop),
            }
        })
    };
    u8::from(followed().is_err())
}

/// Follows a run as soon as its process has let go of it.
async fn follow_once_free(sandbox: &Sandbox, run: RunId) -> Result<()> {
    let deadline = Instant::now() + TAKE_OVER;
    loop {
        if let Some(run) = sandbox.follow_again(run).await? {
            return run.wait().await.map(drop);
        }
        if Instant::now() > deadline {
            return Ok(());
        }
        // The kernel lets go of the descriptors of a process one by one, and tells nobody.
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Starts followers for runs whose followers were killed. Nobody waits for them.
pub(super) fn follow_left_behind(globals: &Globals) {
    let data_dir = data_dir(globals);
    let Ok(left) = Ledger::below(&data_dir).unfollowed() else { return };
    let Ok(program) = std::env::current_exe() else { return };
    for unfollowed in left {
        let words = [unfollowed.sandbox.to_string(), unfollowed.run.to_string()];
        // What cannot be followed now is met by the next command.
        let _ = follower(&program, globals).args(words).stdin(HostStdio::null()).spawn();
    }
}
