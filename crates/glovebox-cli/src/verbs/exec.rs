//! `glovebox exec`: a run in a sandbox that stays.

use std::{ffi::OsString, mem::ManuallyDrop, pin::pin};

use glovebox_core::{Outcome, Result};
use glovebox_engine::Toolchains;
use glovebox_ledger::Ledger;

use super::{
    attach, data_dir, living,
    run::{self, Finished, OnSignal},
    runtime,
};
use crate::{
    args::{ExecArgs, Globals},
    flags::Flags,
    program::{self, Typed},
    report,
    request::{self, Plan},
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
    let program = (args.program.as_slice(), after_dashes.as_deref());
    let command = run::typed_wins(args.command.clone(), flags, program, globals.json);
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
    let typed = Typed { call: format!("glovebox exec {}", args.id), program: &args.program, after_dashes };
    let Plan { request, language, left_behind } =
        request::command_plan(globals, typed, &command, flags, (spec.clone(), Toolchains::default()))?;
    let (argv, with_terminal) = (request.command.argv.clone(), request.terminal.is_some());
    if args.detach {
        let following = async { attach::follow_detached(sandbox.start(request).await?).await };
        let followed = runtime.block_on(following);
        return followed
            .map(|result| result.outcome.exit_code())
            .map_err(|e| run::explain_not_found(e, language, &argv, Some(&args.id)));
    }
    attach::follow_left_behind(globals);
    let starting =
        async { run::drive(pin!(sandbox.start(request)), with_terminal, globals.json, OnSignal::Cancel).await };
    let Finished { result, stderr_tail } = match runtime.block_on(starting) {
        Ok(Some(finished)) => finished,
        Ok(None) => return Ok(Outcome::Cancelled.exit_code()),
        Err(error) => return Err(run::explain_not_found(error, language, &argv, Some(&args.id))),
    };
    report::warnings(&result);
    if globals.verbose {
        report::details(&result);
    }
    if globals.json {
        report::document(&result)?;
    } else {
        report::run(&result, None, &engine.artifact_dir(result.run));
        run::hint_at_workspace(&result, &stderr_tail, left_behind.as_deref(), Some(&args.id));
        run::hint_at_network(&result, &stderr_tail, &spec);
    }
    Ok(result.outcome.exit_code())
}
