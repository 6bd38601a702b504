//! `glovebox mcp`: a sandbox for each conversation with an AI agent.

use std::{io::IsTerminal, mem::ManuallyDrop};

use glovebox_core::{Command, Error, ErrorCode, Language, Result, WorkspaceMode, parse_duration, parse_size};
use glovebox_engine::Engine;
use glovebox_ledger::Ledger;
use glovebox_mcp::Settings;
use glovebox_native::NativeBackend;

use super::{data_dir, living, runtime};
use crate::{
    args::{Globals, McpArgs},
    backends::{self, Kind},
    environment, files,
    flags::{Flags, Origin},
    report, request,
    signals::EndSignals,
};

/// What agents write code in, unless they say something else.
const USUAL_LANGUAGE: &str = "python";

pub(crate) fn execute(
    globals: &Globals,
    args: &McpArgs,
    flags: &Flags,
    backend: Option<Result<NativeBackend>>,
) -> Result<u8> {
    let kind = kind(globals, args, flags)?;
    let settings = settings(globals, args, flags, kind)?;
    if std::io::stdin().is_terminal() {
        report::say("this speaks the Model Context Protocol and waits for a client on standard input; Ctrl-C ends it");
    }
    let engine = match args.sandbox {
        Some(_) => living::making_engine(globals, flags, backend)?,
        None => Engine::new(backends::making(globals, kind, backend)?).with_data_dir(data_dir(globals)),
    };
    // Not taken apart at the end: it would wait for a read of standard input that nobody will answer.
    let runtime = ManuallyDrop::new(runtime()?);
    runtime.block_on(async {
        let mut signals = EndSignals::listen()?;
        glovebox_mcp::serve(engine, settings, async {
            signals.next().await;
        })
        .await
    })?;
    Ok(0)
}

/// The backend: of a sandbox that is there its own, else the one that was asked for.
fn kind(globals: &Globals, args: &McpArgs, flags: &Flags) -> Result<Kind> {
    let asked = backends::kind(globals, flags)?;
    let Some(name) = &args.sandbox else { return Ok(asked) };
    // One that is not there yet may be when it is needed.
    let status = runtime()?.block_on(living::engine_below(&data_dir(globals)).status(name));
    let is_of = |kind: &Kind| status.as_ref().is_ok_and(|status| status.backend == kind.name());
    Ok([Kind::Native, Kind::Docker].into_iter().find(is_of).unwrap_or(asked))
}

fn settings(globals: &Globals, args: &McpArgs, flags: &Flags, kind: Kind) -> Result<Settings> {
    let mut spec = request::sandbox_spec(&args.of_sandbox, flags)?;
    backends::choose_image(&mut spec, flags, kind, Language::by_name(USUAL_LANGUAGE))?;
    spec.limits.timeout = flags.check("timeout", &args.timeout, parse_duration)?;
    spec.limits.output = flags.check("output-limit", &args.output_limit, parse_size)?;
    check_combinations(args, flags)?;
    if let Some(workspace) = spec.workspace.as_mut().filter(|_| args.read_only) {
        workspace.mode = WorkspaceMode::ReadOnly;
    }
    // A command is what variables are checked for.
    let variables = environment::add_plain(Command::argv(["-"])?, &args.env_file, &args.env, flags)?;
    let variables = environment::add_secrets(variables, &args.secret, flags)?;
    let data_dir = data_dir(globals);
    Ok(Settings {
        ledger: (!args.no_record).then(|| Ledger::below(&data_dir)),
        data_dir,
        name: flags.check("name", &args.name, parse_name)?,
        spec,
        toolchains: backends::toolchains(kind, files::toolchains(&args.of_sandbox, flags)?)?,
        sandbox: args.sandbox.clone(),
        variables,
        labels: request::labels(&args.label, flags)?,
        roots: glovebox_mcp::roots(&McpArgs::roots(flags.list("root", &args.root)))
            .map_err(|error| flags.named("root", error))?,
        allow_apply: args.allow_apply,
    })
}

/// Refuses what does not go together.
fn check_combinations(args: &McpArgs, flags: &Flags) -> Result<()> {
    let refuse = |message: &str, hint: &str| Err(Error::new(ErrorCode::Usage, message).hint(hint));
    let has_workspace = args.of_sandbox.workspace.is_some();
    let typed = |flag: &str| flags.origin(flag) == Origin::Flag;
    if args.sandbox.is_some() && typed("workspace") {
        return refuse(
            "--sandbox and --workspace do not go together",
            "a sandbox that is there has its workspace already",
        );
    }
    if args.read_only && !has_workspace && typed("read-only") {
        return refuse("--read-only needs --workspace", "it is about the folder that the agent sees");
    }
    if args.read_only && typed("workspace-mode") {
        return refuse("--read-only and --workspace-mode do not go together", "leave one of them out");
    }
    if args.allow_apply && args.sandbox.is_none() && !has_workspace && typed("allow-apply") {
        return refuse("--allow-apply needs --workspace", "without a folder there is nothing to apply changes to");
    }
    if args.allow_apply && args.no_record && typed("no-record") {
        return refuse(
            "--allow-apply and --no-record do not go together",
            "what is to be applied is kept in the record",
        );
    }
    Ok(())
}

fn parse_name(text: &str) -> Result<String, String> {
    let plain = |c: char| !c.is_control();
    match (1..=63).contains(&text.chars().count()) && text.chars().all(plain) {
        true => Ok(text.to_owned()),
        false => Err("expected 1 to 63 characters without control characters".to_owned()),
    }
}
