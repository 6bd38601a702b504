//! `glovebox run`: one run in a fresh sandbox that is gone afterwards.

use std::{
    ffi::OsString,
    io::IsTerminal,
    mem::ManuallyDrop,
    path::Path,
    pin::{Pin, pin},
    time::Duration,
};

use glovebox_core::{
    ChangeSet, Error, ErrorCode, Image, Label, Language, Lifetime, Network, Outcome, Result, RunId, RunResult,
    SandboxId, SandboxSpec, Step, WorkspaceMode,
};
use glovebox_engine::{Engine, Event, NewSandbox, Run, RunRequest};
use glovebox_ledger::Ledger;
use glovebox_native::NativeBackend;
use glovebox_terminal::Keys;

use super::{
    create::{end_of, parse_time_or_never},
    data_dir,
    living::engine_below,
    runtime,
};
use crate::{
    args::{CommandArgs, Globals, RunArgs},
    backends,
    flags::{Flags, Origin},
    program, report,
    request::{self, Plan},
    signals::{EndSignal, EndSignals},
    stdio::{Chunk, Output, Unread},
    terminal::{Keyboard, Seat},
};

/// How long a sandbox without use stays when `--keep` does not say.
const DEFAULT_KEEP: &str = "1h";
/// How long it stays at the most.
const LONGEST_KEPT: Duration = Duration::from_secs(24 * 3600);
/// How long output that is already here may take to reach a slow reader once the run was interrupted.
const LAST_OUTPUT: Duration = Duration::from_secs(1);
/// How much of the end of standard error is kept to look for hints.
const TAIL_BYTES: usize = 4096;

pub(crate) fn execute(
    globals: &Globals,
    args: &RunArgs,
    flags: &Flags,
    after_dashes: Option<Vec<OsString>>,
    backend: Option<Result<NativeBackend>>,
) -> Result<u8> {
    let mut args = with_file_after_keep(args.clone(), flags);
    let program = (args.program.as_slice(), after_dashes.as_deref());
    args.command = typed_wins(args.command, flags, program, globals.json);
    let args = &args;
    let kept_for = args.keep.as_deref().map(|text| flags.check("keep", text, parse_time_or_never)).transpose()?;
    let chosen = backends::choose(globals, &args.sandbox, flags)?;
    let kind = chosen.0;
    let planned = request::plan(globals, args, flags, after_dashes, chosen);
    let Plan { mut request, language, left_behind } = planned.map_err(|error| explain_no_file(error, globals, args))?;
    if globals.verbose {
        for file in flags.config.files() {
            report::say(&format!("configuration: {}", file.display()));
        }
    }
    let data_dir = data_dir(globals);
    let mut engine = Engine::new(backends::making(globals, kind, backend)?).with_data_dir(&data_dir);
    if !args.command.no_record {
        engine = engine.with_ledger(Ledger::for_one_run(data_dir));
    }
    // Neither engine nor runtime is taken apart at the end: this process ends next, which does it faster. To close the
    // ledger would also wait for the disk.
    let (engine, runtime) = (ManuallyDrop::new(engine), ManuallyDrop::new(runtime()?));
    let (argv, spec) = (request.command.argv.clone(), request.spec.clone());
    // There is no way back to a fresh sandbox, so no keys lead away from it.
    let keyboard = take_keyboard(&mut request, Keys::none());
    let front = Front { terminal: keyboard.is_some(), keyboard, json: globals.json, on_signal: OnSignal::Cancel };
    let driving = async {
        let starting = async {
            match kept_for {
                Some(idle) => start_in_living(&engine, request, idle).await,
                None => engine.start(request).await,
            }
        };
        drive(pin!(starting), front).await
    };
    let Finished { result, stderr_tail } = match runtime.block_on(driving) {
        Ok(Driven::Finished(finished)) => *finished,
        Ok(Driven::Abandoned | Driven::Left(..)) => return Ok(Outcome::Cancelled.exit_code()),
        Err(error) => return Err(explain_not_found(error, language, (&argv, &spec.image), None)),
    };
    report::warnings(&result);
    let stderr_tail = if result.step == Step::Compile { result.stderr.to_bytes() } else { stderr_tail };
    if globals.verbose {
        report::details(&result);
    }
    if globals.json {
        report::document(&result)?;
    } else {
        report::run(&result, Some(&spec), &engine.artifact_dir(result.run));
        if kept_for.is_some() {
            let status = runtime.block_on(engine.status(&result.sandbox.to_string()));
            let end = status.ok().and_then(|status| end_of(&status)).map_or(String::new(), |end| format!("; {end}"));
            report::say(&format!("the sandbox stays: {}{end}", result.sandbox));
        }
        hint_at_changes(&result, &spec);
        hint_at_workspace(&result, &stderr_tail, left_behind.as_deref(), None);
        hint_at_network(&result, &stderr_tail, &spec);
    }
    Ok(result.outcome.exit_code())
}

/// Adds the right verb to the error for a FILE that is the name of a living sandbox.
fn explain_no_file(error: Error, globals: &Globals, args: &RunArgs) -> Error {
    let words: Vec<&str> = args.program.iter().filter_map(|word| word.to_str()).collect();
    let Some((name, rest)) = words.split_first().filter(|_| error.code == ErrorCode::FileNotFound) else {
        return error;
    };
    let status = runtime().and_then(|runtime| runtime.block_on(engine_below(&data_dir(globals)).status(name)));
    let rest = if rest.is_empty() { "COMMAND".to_owned() } else { rest.join(" ") };
    match status {
        Ok(_) => error.hint(format!("{name} is a sandbox; to run something in it: glovebox exec {name} -- {rest}")),
        Err(_) => error,
    }
}

/// The file to run is no duration: `run --keep main.py`. What begins with a digit, or follows =, was meant to be one.
fn with_file_after_keep(mut args: RunArgs, flags: &Flags) -> RunArgs {
    let is_file = |text: &str| Path::new(text).exists() || !text.starts_with(|first: char| first.is_ascii_digit());
    let joined =
        std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg.as_encoded_bytes().starts_with(b"--keep="));
    let file = args.keep.take_if(|text| {
        flags.origin("keep") == Origin::Flag && !joined && parse_time_or_never(text).is_err() && is_file(text)
    });
    if let Some(file) = file {
        args.program.insert(0, file.into());
        args.keep = Some(DEFAULT_KEEP.to_owned());
    }
    args
}

/// What was typed decides what runs: code, a language or a terminal that only a variable or a file asks for counts where
/// it fits, and is no reason to run something else or nothing.
pub(super) fn typed_wins(
    mut args: CommandArgs,
    flags: &Flags,
    (program, command): (&[OsString], Option<&[OsString]>),
    json: bool,
) -> CommandArgs {
    let typed = |flag: &str| flags.origin(flag) == Origin::Flag;
    let names_program = !program.is_empty() || command.is_some_and(|words| !words.is_empty());
    if names_program && !typed("code") {
        args.code = None;
    }
    if args.code.is_none() && !typed("language") {
        let known_by_itself = program.first().is_none_or(|file| program::knows_language(Path::new(file)));
        if known_by_itself {
            args.language = None;
        }
    }
    if !typed("terminal") && (json || args.stdin.is_some() || !std::io::stdin().is_terminal()) {
        args.terminal = false;
    }
    args
}

/// Starts a run in a sandbox that stays afterwards.
async fn start_in_living(engine: &Engine, mut request: RunRequest, idle: Option<Duration>) -> Result<Run> {
    let new = NewSandbox {
        labels: Label::collect(&request.labels),
        spec: request.spec.clone(),
        toolchains: std::mem::take(&mut request.toolchains),
        lifetime: Lifetime { idle, max_age: Some(LONGEST_KEPT) },
        ..NewSandbox::default()
    };
    let sandbox = engine.create_living(new).await?;
    match sandbox.start(request).await {
        Ok(run) => Ok(run),
        Err(error) => {
            // Nobody would know of it. The first failure is the one that explains.
            let _ = sandbox.destroy().await;
            Err(error)
        }
    }
}

/// A run that is over.
pub(super) struct Finished {
    pub(super) result: RunResult,
    pub(super) stderr_tail: Vec<u8>,
}

/// How following a run ended.
pub(super) enum Driven {
    /// With the run.
    Finished(Box<Finished>),
    /// The caller was in a hurry, and the launcher cleans up behind us.
    Abandoned,
    /// The caller left the run, which goes on.
    Left(RunId, SandboxId),
}

/// What a signal of the caller means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnSignal {
    /// The end of the run.
    Cancel,
    /// The same, but for a terminal that went away: then the run goes on without one.
    CancelUnlessHungUp,
    /// The end of looking at it.
    Leave,
}

impl OnSignal {
    fn leaves(self, signal: EndSignal) -> bool {
        match self {
            OnSignal::Cancel => false,
            OnSignal::CancelUnlessHungUp => signal == EndSignal::HungUp,
            OnSignal::Leave => true,
        }
    }
}

/// How the caller takes part in a run.
pub(super) struct Front {
    /// The caller's keys, for a run with a terminal.
    pub(super) keyboard: Option<Keyboard>,
    /// Whether the run has a terminal.
    pub(super) terminal: bool,
    /// Nothing is shown: the result holds it.
    pub(super) json: bool,
    pub(super) on_signal: OnSignal,
}

/// Gives a run that is to have a terminal the caller's keys.
pub(super) fn take_keyboard(request: &mut RunRequest, keys: Keys) -> Option<Keyboard> {
    request.terminal?;
    let (keyboard, stdin) = Keyboard::new(keys);
    request.stdin = stdin;
    Some(keyboard)
}

/// Sees a run through that is being started.
pub(super) async fn drive(starting: Pin<&mut impl Future<Output = Result<Run>>>, front: Front) -> Result<Driven> {
    let Front { keyboard, terminal, json, on_signal } = front;
    let mut signals = EndSignals::listen()?;
    let Some(mut run) = start(starting, &mut signals).await? else { return Ok(Driven::Abandoned) };
    let left = keyboard.as_ref().map(Keyboard::detached).unwrap_or_default();
    let mut seat = match keyboard {
        Some(keyboard) => Some(Seat::take(keyboard, &run)?),
        None => terminal.then(Seat::looking_on),
    };
    let canceller = run.canceller();
    let mut output = Output::new(match on_signal {
        OnSignal::Cancel => Unread::Cancel(canceller.clone()),
        OnSignal::CancelUnlessHungUp | OnSignal::Leave => Unread::Leave(left.clone()),
    });
    let mut stderr_tail = Vec::new();
    let leaves = {
        let mut forwarding = pin!(forward(&mut run, seat.as_mut(), &mut output, &mut stderr_tail, json));
        let signal = tokio::select! {
            forwarded = &mut forwarding => {
                forwarded?;
                None
            }
            signal = signals.next() => Some(signal),
            () = left.notified() => Some(EndSignal::HungUp),
        };
        match signal {
            None => false,
            Some(signal) if on_signal.leaves(signal) => true,
            Some(_) => {
                canceller.cancel();
                // What the program said until now still reaches a reader who reads.
                tokio::select! {
                    forwarded = &mut forwarding => forwarded?,
                    () = tokio::time::sleep(LAST_OUTPUT) => {}
                    _ = signals.next() => return Ok(Driven::Abandoned),
                }
                false
            }
        }
    };
    if leaves {
        // A terminal that is gone, or that stands still, does not keep us.
        let _ = tokio::time::timeout(LAST_OUTPUT, output.finish()).await;
        return Ok(Driven::Left(run.id(), run.sandbox()));
    }
    // The terminal is the caller's again while the result is collected.
    drop(seat);
    let mut waiting = pin!(run.wait());
    let result = tokio::select! {
        result = &mut waiting => result?,
        _ = signals.next() => {
            canceller.cancel();
            tokio::select! {
                result = &mut waiting => result?,
                _ = signals.next() => return Ok(Driven::Abandoned),
            }
        }
    };
    Ok(Driven::Finished(Box::new(Finished { result, stderr_tail })))
}

/// Starts the run. A signal that comes meanwhile ends it as soon as there is something to end; a second one ends us.
async fn start(
    mut starting: Pin<&mut impl Future<Output = Result<Run>>>,
    signals: &mut EndSignals,
) -> Result<Option<Run>> {
    tokio::select! {
        run = &mut starting => return run.map(Some),
        _ = signals.next() => {}
    }
    tokio::select! {
        run = starting => {
            let run = run?;
            run.canceller().cancel();
            Ok(Some(run))
        }
        _ = signals.next() => Ok(None),
    }
}

/// Passes the program's output on as it appears. For a JSON result nothing is passed on: the result holds it. What is on a terminal
/// that was attached to comes first.
async fn forward(
    run: &mut Run,
    mut seat: Option<&mut Seat>,
    output: &mut Output,
    stderr_tail: &mut Vec<u8>,
    json: bool,
) -> Result<()> {
    if let Some(seat) = seat.as_mut().filter(|seat| !json && seat.has_screen())
        && let Some((mut screen, missed)) = run.screen().await
    {
        output.write(Chunk::Stdout(seat.paint(run, &mut screen, missed))).await?;
    }
    while let Some(event) = run.next_event().await {
        match (event, &mut seat) {
            _ if json => {}
            (Event::Stdout(bytes), Some(seat)) => output.write(Chunk::Stdout(seat.show(bytes))).await?,
            (Event::Stdout(bytes), None) => output.write(Chunk::Stdout(bytes)).await?,
            (Event::Stderr(bytes), _) => {
                keep_tail(stderr_tail, &bytes);
                output.write(Chunk::Stderr(bytes)).await?;
            }
            (Event::Missed { .. }, Some(seat)) => output.write(Chunk::Stdout(seat.gap())).await?,
            (Event::Missed { stdout, stderr }, None) => {
                let bytes = stdout.saturating_add(stderr);
                report::say(&format!(
                    "{bytes} bytes of output are missing here; glovebox runs logs has them once the run is over"
                ));
            }
            // What a terminal can show of a value; the rest is said when the run is over.
            (Event::Result(shown), _) if shown.mime == "text/plain" => {
                let line = [&shown.bytes[..], b"\n"].concat();
                output.write(Chunk::Stdout(line.into())).await?;
            }
            _ => {}
        }
    }
    output.finish().await
}

fn keep_tail(tail: &mut Vec<u8>, bytes: &[u8]) {
    tail.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
    tail.drain(..tail.len().saturating_sub(TAIL_BYTES));
}

/// Words that a shell knows by itself, and that are no programs.
const OF_SHELLS: [&str; 10] = ["cd", "source", ".", "export", "alias", "set", "unset", "exit", "ulimit", "umask"];

/// Tells a missing interpreter from a missing program, and says where programs come from. `sandbox` is the living one that was
/// named.
pub(super) fn explain_not_found(
    error: Error,
    language: Option<&Language>,
    (argv, image): (&[String], &Image),
    sandbox: Option<&str>,
) -> Error {
    let program = argv[0].as_str();
    let another =
        if sandbox.is_some() { "glovebox create --image makes a sandbox of another" } else { "--image names another" };
    // A program of this machine is none that somebody would bring into an image.
    let is_own_file = Path::new(program).exists() && (*image == Image::Host || !program.starts_with('/'));
    let hint = match (error.code, language) {
        (ErrorCode::CommandNotFound, Some(language)) => {
            let missing = glovebox_engine::not_found(language, Some(error.message));
            return match image {
                Image::Host => missing,
                // Nothing of this machine helps.
                Image::Reference(image) => {
                    let hint = format!("the image {image} has no {}; {another}", language.name);
                    let has_own = sandbox.is_none() && backends::of_catalog(language.name).is_some();
                    missing.hint(if has_own { hint + ", and without it the language has one of its own" } else { hint })
                }
            };
        }
        _ if error.hint.is_some() => return error,
        (ErrorCode::CommandNotExecutable, _) => {
            format!("chmod +x makes a file executable; or name what runs it, as in python3 {program}")
        }
        (ErrorCode::CommandNotFound, _) if program.contains(' ') => {
            format!("{program:?} is one word here: leave out the quotes, or run it by a shell: sh -c {program:?}")
        }
        (ErrorCode::CommandNotFound, _) if OF_SHELLS.contains(&program) => {
            format!(
                "{program} is a word of shells: sh -c {:?}; --workdir and --env set folder and variables",
                argv.join(" ")
            )
        }
        (ErrorCode::CommandNotFound, _) if program.contains('=') => format!("--env {program} sets a variable"),
        (ErrorCode::CommandNotFound, _) if is_own_file => match sandbox {
            Some(sandbox) => format!("the sandbox has none of your files: glovebox cp {program} {sandbox}: brings one"),
            None => "the sandbox has none of your files: --workspace . brings this folder, --file brings one file"
                .to_owned(),
        },
        (ErrorCode::CommandNotFound, _) => match image {
            Image::Host => "the image host holds the programs of /usr, /bin and /opt of this machine".to_owned(),
            Image::Reference(image) => format!("the image {image} does not have it; {another}"),
        },
        _ => return error,
    };
    error.hint(hint)
}

/// Changes that stayed inside wait for somebody who looks at them. Scripts know that; people at a terminal are told.
fn hint_at_changes(result: &RunResult, spec: &SandboxSpec) {
    let overlay = spec.workspace.as_ref().is_some_and(|workspace| workspace.mode == WorkspaceMode::Overlay);
    let ChangeSet { added, modified, deleted, .. } = &result.changes;
    let count = added.len() + modified.len() + deleted.len();
    if overlay && result.recorded && count > 0 && std::io::stderr().is_terminal() {
        let files = report::counted(count, "file");
        report::say(&format!(
            "changed {files}, inside only; glovebox changes shows that, glovebox apply brings it here"
        ));
    }
}

/// A program that cannot find a host is the commonest second failure.
pub(super) fn hint_at_network(result: &RunResult, stderr_tail: &[u8], spec: &SandboxSpec) {
    const SIGNS: [&str; 6] = [
        "Could not resolve host",
        "Temporary failure in name resolution",
        "Name or service not known",
        "Network is unreachable",
        "EAI_AGAIN",
        "ENETUNREACH",
    ];
    let failed = matches!(result.outcome, Outcome::Exited { code } if code != 0);
    let text = String::from_utf8_lossy(stderr_tail);
    if failed && spec.network == Network::None && SIGNS.iter().any(|sign| text.contains(sign)) {
        let flag = if spec.living.is_some() { "glovebox create --network full" } else { "--network full" };
        report::say(&format!("hint: the sandbox has no network; {flag} gives it all that this machine reaches"));
    }
}

/// A lone file that misses its neighbours is the commonest first failure.
pub(super) fn hint_at_workspace(
    result: &RunResult,
    stderr_tail: &[u8],
    left_behind: Option<&Path>,
    sandbox: Option<&str>,
) {
    const SIGNS: [&str; 4] = ["ModuleNotFoundError", "Cannot find module", "No such file", "FileNotFoundError"];
    let failed = matches!(result.outcome, Outcome::Exited { code } if code != 0);
    let text = String::from_utf8_lossy(stderr_tail);
    let Some(folder) = left_behind.filter(|_| failed && SIGNS.iter().any(|sign| text.contains(sign))) else { return };
    let siblings = std::fs::read_dir(folder).map_or(0, |entries| entries.take(2).count());
    if siblings < 2 {
        return;
    }
    let advice = match folder.to_str() {
        _ if sandbox.is_some() => {
            format!("glovebox cp {}/. {}: brings the files beside it", folder.display(), sandbox.unwrap_or_default())
        }
        Some(".") => "--workspace . brings the files beside it".to_owned(),
        _ => format!("--workspace {} (or --workspace . from there) brings the files beside it", folder.display()),
    };
    report::say(&format!("hint: only the file itself was copied in; {advice}"));
}
