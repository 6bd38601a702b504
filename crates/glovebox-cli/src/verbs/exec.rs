//! `glovebox exec`: a run in a sandbox that stays.

use std::{ffi::OsString, mem::ManuallyDrop, pin::pin};

use glovebox_core::{Error, ErrorCode, Language, Outcome, Result};
use glovebox_engine::{Sandbox, Toolchains, session_languages};
use glovebox_ledger::Ledger;
use glovebox_terminal::Keys;

use super::{
    attach, data_dir, living,
    run::{self, Driven, Finished, Front, OnSignal},
    runtime,
};
use crate::{
    args::{ExecArgs, Globals},
    backends::Kind,
    flags::Flags,
    program::{self, Typed},
    report,
    request::{self, Plan},
    session::{self, Wanted},
};

pub(crate) fn execute(
    globals: &Globals,
    args: &ExecArgs,
    flags: &Flags,
    after_dashes: Option<Vec<OsString>>,
) -> Result<u8> {
    if args.detach && !attach::is_follower() {
        return attach::detach(globals);
    }
    let keys = flags.check("detach-keys", &args.detach_keys, parse_keys)?;
    let program = (args.program.as_slice(), after_dashes.as_deref());
    let mut command = run::typed_wins(args.command.clone(), flags, program, globals.json);
    let wanted = session::wanted(args, flags, after_dashes.as_deref())?;
    // Before the sandbox is looked for: of `exec -l box ls` the language is wrong, and not the sandbox.
    if let Some(language) = command.language.as_deref().filter(|_| after_dashes.is_none()) {
        program::by_name(language)?;
    }
    let mut engine = living::engine(globals, flags)?;
    if !command.no_record {
        engine = engine.with_ledger(Ledger::for_one_run(data_dir(globals)));
    }
    // Neither is taken apart at the end, as for `run`.
    let (engine, runtime) = (ManuallyDrop::new(engine), ManuallyDrop::new(runtime()?));
    let sandbox = ManuallyDrop::new(runtime.block_on(engine.open(&args.id))?);
    let spec = sandbox.record().map(|record| record.spec.clone()).unwrap_or_default();
    let made_by = sandbox.record().map(|record| record.backend.as_str());
    let toolchains = if made_by == Some(Kind::Docker.name()) { Toolchains::of_image() } else { Toolchains::default() };
    let in_session = wanted.is_some();
    let Plan { mut request, language, left_behind } = match wanted {
        Some(wanted) => {
            command.stdin = None;
            let language = runtime.block_on(language_of(&sandbox, &wanted))?;
            request::session_plan(globals, (wanted, language), &command, flags, spec.clone())?
        }
        None => {
            let typed = Typed { call: format!("glovebox exec {}", args.id), program: &args.program, after_dashes };
            request::command_plan(globals, typed, &command, flags, (spec.clone(), toolchains))?
        }
    };
    let argv = request.command.argv.clone();
    if args.detach {
        let following = async { attach::follow_detached(sandbox.start(request).await?).await };
        let followed = runtime.block_on(following);
        return followed
            .map(|result| result.outcome.exit_code())
            .map_err(|e| run::explain_not_found(e, language, (&argv, &spec.image), Some(&args.id)));
    }
    attach::follow_left_behind(globals);
    let name = keys.name();
    let keyboard = run::take_keyboard(&mut request, keys);
    let (terminal, on_signal) = match keyboard {
        Some(_) => (true, OnSignal::CancelUnlessHungUp),
        None => (false, OnSignal::Cancel),
    };
    if let Some(name) = name.filter(|_| terminal) {
        attach::tell_keys(globals, &name);
    }
    let front = Front { keyboard, terminal, json: globals.json, on_signal };
    let driving = async { run::drive(pin!(sandbox.start(request)), front).await };
    let Finished { result, stderr_tail } = match runtime.block_on(driving) {
        Ok(Driven::Finished(finished)) => *finished,
        Ok(Driven::Abandoned) => return Ok(Outcome::Cancelled.exit_code()),
        Ok(Driven::Left(run, sandbox)) => return attach::leave(globals, sandbox, run),
        Err(error) => return Err(run::explain_not_found(error, language, (&argv, &spec.image), Some(&args.id))),
    };
    report::warnings(&result);
    let written = args.results.as_deref().map(|folder| session::write_results(&result, folder)).transpose()?;
    if globals.verbose {
        report::details(&result);
    }
    if globals.json {
        match &written {
            Some(files) => report::document(&session::document(&result, files)?)?,
            None => report::document(&result)?,
        }
    } else {
        report::run(&result, None, &engine.artifact_dir(result.run));
        match &written {
            Some(files) => files.iter().for_each(|file| report::say(&format!("shown: {}", file.display()))),
            None if in_session => session::report_results(&result),
            None => {}
        }
        run::hint_at_workspace(&result, &stderr_tail, left_behind.as_deref(), Some(&args.id));
        run::hint_at_network(&result, &stderr_tail, &spec);
    }
    Ok(result.outcome.exit_code())
}

/// Reads `--detach-keys`.
pub(super) fn parse_keys(text: &str) -> Result<Keys, String> {
    Keys::parse(text).map_err(|wrong| wrong.to_string())
}

/// The language of a run in a session: what was named, or what the session is in.
async fn language_of(sandbox: &Sandbox, wanted: &Wanted) -> Result<&'static Language> {
    if let Some(language) = wanted.language {
        return Ok(language);
    }
    let known = sandbox.session_language(&wanted.name).await?;
    known.and_then(|language| Language::by_name(&language)).ok_or_else(|| {
        let there: Vec<&str> = session_languages().collect();
        Error::new(
            ErrorCode::Usage,
            format!("there is no session {} yet, and its first run needs --language", wanted.name),
        )
        .hint(format!("-l LANGUAGE, one of {}", there.join(", ")))
    })
}
