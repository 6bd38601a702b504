//! `glovebox sessions`: interpreters that stay in a sandbox.

use glovebox_core::{ErrorCode, Result, SessionName};
use glovebox_engine::{RunEnd, SessionStatus};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{living::engine, runs::ago, runtime, several::each};
use crate::{
    args::{Globals, ManySessionsArgs, SandboxArg, SessionArgs, SessionsArgs, SessionsVerb},
    flags::Flags,
    report,
    table::table,
    terminal,
};

pub(crate) fn execute(globals: &Globals, args: &SessionsArgs, flags: &Flags) -> Result<u8> {
    match &args.verb {
        SessionsVerb::List(args) => list(globals, args, flags),
        SessionsVerb::Interrupt(args) => interrupt(globals, args, flags),
        SessionsVerb::Restart(args) => restart(globals, args, flags),
        SessionsVerb::Close(args) => close(globals, args, flags),
    }
}

fn name(flags: &Flags, text: &str) -> Result<SessionName> {
    SessionName::parse(text).map_err(|forms| flags.not_a_name("session", text, &forms))
}

fn list(globals: &Globals, args: &SandboxArg, flags: &Flags) -> Result<u8> {
    let engine = engine(globals, flags)?;
    let mut sessions = runtime()?.block_on(async { engine.open(&args.id).await?.sessions().await })?;
    sessions.sort_by(|a, b| a.name.cmp(&b.name));
    if globals.json {
        let sessions: Vec<Value> = sessions.iter().map(document).collect();
        report::document(&json!({ "sessions": sessions }))?;
        return Ok(0);
    }
    if sessions.is_empty() {
        report::say(&format!(
            "there are no sessions; glovebox exec {} -l python --session main -c CODE begins one",
            args.id
        ));
        return Ok(0);
    }
    let now = Timestamp::now();
    let rows: Vec<[String; 5]> = sessions
        .iter()
        .map(|session| {
            [
                session.name.clone(),
                session.language.clone(),
                state(session),
                session.runs.to_string(),
                ago(now, session.started_at),
            ]
        })
        .collect();
    report::print(&table(["NAME", "LANGUAGE", "STATE", "RUNS", "STARTED"], &rows, terminal::output_columns()))?;
    Ok(0)
}

fn state(session: &SessionStatus) -> String {
    match (&session.ended, session.busy) {
        (Some(RunEnd { code: Some(code), .. }), _) => format!("ended with code {code}"),
        (Some(RunEnd { signal, .. }), _) => format!("ended by signal {}", signal.unwrap_or_default()),
        (None, Some(run)) => match session.waiting.len() {
            0 => format!("busy with {run}"),
            waiting => format!("busy with {run}, {waiting} waiting"),
        },
        (None, None) => "ready".to_owned(),
    }
}

fn document(session: &SessionStatus) -> Value {
    json!({
        "name": session.name,
        "language": session.language,
        "state": match (&session.ended, session.busy) {
            (Some(_), _) => "ended",
            (None, Some(_)) => "busy",
            (None, None) => "ready",
        },
        "run": session.busy,
        "waiting": session.waiting,
        "runs": session.runs,
        "pid": session.pid,
        "started_at": session.started_at,
        "ended": session.ended.map(|RunEnd { code, signal }| json!({ "code": code, "signal": signal })),
    })
}

fn interrupt(globals: &Globals, args: &SessionArgs, flags: &Flags) -> Result<u8> {
    let (engine, name) = (engine(globals, flags)?, name(flags, &args.name)?);
    runtime()?.block_on(async { engine.open(&args.id).await?.interrupt_session(&name).await })?;
    told(globals, &name)
}

/// Ends the interpreter; the session keeps its name and its language.
fn restart(globals: &Globals, args: &SessionArgs, flags: &Flags) -> Result<u8> {
    let (engine, name) = (engine(globals, flags)?, name(flags, &args.name)?);
    runtime()?.block_on(async { engine.open(&args.id).await?.restart_session(&name).await })?;
    told(globals, &name)
}

fn told(globals: &Globals, name: &SessionName) -> Result<u8> {
    if globals.json {
        report::document(&json!({ "session": name }))?;
    } else {
        report::print(&format!("{name}\n"))?;
    }
    Ok(0)
}

fn close(globals: &Globals, args: &ManySessionsArgs, flags: &Flags) -> Result<u8> {
    let (engine, runtime) = (engine(globals, flags)?, runtime()?);
    let sandbox = runtime.block_on(engine.open(&args.id))?;
    let close = async |text: &String| {
        let name = name(flags, text)?;
        sandbox.close_session(&name).await.map(|()| name).map_err(|error| match error.code {
            ErrorCode::SessionNotFound => {
                error.hint(format!("glovebox sessions list {} shows which there are", args.id))
            }
            _ => error,
        })
    };
    runtime.block_on(each(globals, &args.names, close)).report(globals, "closed")
}
