//! `glovebox stop|start|pause|resume|reset|destroy`: the states of sandboxes that stay.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io::{Write, stderr, stdin},
};

use glovebox_core::{Error, ErrorCode, Label, Result, SandboxState};
use glovebox_engine::{Engine, SandboxStatus};
use glovebox_native::NativeBackend;
use serde_json::{Value, json};

use super::{
    living::{engine, keep_asked, making_engine},
    runtime,
    several::each,
};
use crate::{
    args::{DestroyArgs, Globals, SandboxesArg},
    backends,
    flags::{Flags, Origin},
    report, request, terminal,
};

/// What is done with sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Stop,
    Start,
    Pause,
    Resume,
    Reset,
}

/// Does one thing with each sandbox that was named, and says to programs in which state it is then.
pub(crate) fn act(
    act: Act,
    globals: &Globals,
    args: &SandboxesArg,
    flags: &Flags,
    backend: Option<Result<NativeBackend>>,
) -> Result<u8> {
    let engine = match act {
        Act::Start | Act::Reset => making_engine(globals, flags, backend)?,
        Act::Stop | Act::Pause | Act::Resume => engine(globals, flags)?,
    };
    let several = runtime()?.block_on(each(globals, &args.ids, async |id: &String| one(act, &engine, id).await));
    match &several.done[..] {
        // The document of one alone is that of the sandbox.
        [status] if globals.json && args.ids.len() == 1 => report::document(status).map(|()| 0),
        _ => several.report(globals, "sandboxes"),
    }
}

/// Does one thing with one sandbox, and returns what is known of it then.
async fn one(act: Act, engine: &Engine, text: &str) -> Result<Value> {
    let mut reclaimed = None;
    let id = match act {
        Act::Stop => engine.stop(text).await?,
        Act::Start => engine.restart(text).await?.id(),
        Act::Pause => {
            let paused = engine.pause(text).await?;
            reclaimed = paused.reclaimed_bytes;
            paused.sandbox
        }
        Act::Resume => engine.resume(text).await?,
        Act::Reset => engine.reset(text).await?.id(),
    };
    let status = engine.status(&id.to_string()).await?;
    let unwritable = |error| Error::new(ErrorCode::Internal, "the sandbox cannot be written as JSON").because(error);
    let mut document = serde_json::to_value(&status).map_err(unwritable)?;
    if act == Act::Pause {
        document["reclaimed_bytes"] = json!(reclaimed);
    }
    Ok(document)
}

pub(crate) fn destroy(
    globals: &Globals,
    args: &DestroyArgs,
    flags: &Flags,
    backend: Option<Result<NativeBackend>>,
) -> Result<u8> {
    // Neither a variable nor a file destroys what nobody named.
    let all = args.all && flags.origin("all") == Origin::Flag;
    match (all, args.ids.is_empty()) {
        (true, false) => {
            let error = Error::new(ErrorCode::Usage, "--all destroys every sandbox, and some are named beside it");
            return Err(error.hint("leave out either --all or the names"));
        }
        (false, true) => {
            return Err(Error::new(ErrorCode::Usage, "no sandbox is named").hint(
                "glovebox destroy ID..., or glovebox destroy --all, which is fine with none; glovebox list shows them",
            ));
        }
        (false, false) if flags.origin("label") == Origin::Flag => {
            let error = Error::new(ErrorCode::Usage, "--label chooses among all sandboxes, and these are named");
            return Err(error.hint("leave out either --label or the names"));
        }
        _ => {}
    }
    let engine = making_engine(globals, flags, backend)?;
    let ids = match all {
        true => chosen(globals, args, flags, &engine)?,
        false => args.ids.clone(),
    };
    // What each name means is settled before anything goes: the beginning of an id may mean another sandbox afterwards.
    let meant: RefCell<VecDeque<_>> = RefCell::new(ids.iter().map(|text| engine.id_of(text)).collect());
    let destroy = async |_: &String| {
        let id = meant.borrow_mut().pop_front().expect("each name means something or nothing")?;
        engine.destroy(&id.to_string()).await
    };
    runtime()?.block_on(each(globals, &ids, destroy)).report(globals, "destroyed")
}

/// The sandboxes that `--all` means: those that `glovebox list` shows. At a terminal somebody has to agree.
fn chosen(globals: &Globals, args: &DestroyArgs, flags: &Flags, engine: &Engine) -> Result<Vec<String>> {
    let labels = Label::collect(&request::labels(&args.label, flags)?);
    let mut found = runtime()?.block_on(engine.sandboxes())?;
    let has_labels = |status: &SandboxStatus| labels.iter().all(|(key, value)| status.labels.get(key) == Some(value));
    keep_asked(&mut found, backends::typed(globals, flags)?);
    found.retain(|status| status.state != SandboxState::Gone && has_labels(status));
    if found.is_empty() && !globals.json {
        report::say(if labels.is_empty() { "there is no sandbox" } else { "no sandbox has these labels" });
    }
    // A program that reads the document cannot answer; a file or variable that asks for documents does not agree to this.
    let is_asked = !args.yes && flags.origin("json") != Origin::Flag && terminal::is_here();
    if !found.is_empty() && is_asked && !agrees(&found)? {
        report::say("nothing was destroyed");
        return Ok(Vec::new());
    }
    Ok(found.iter().map(|status| status.sandbox.to_string()).collect())
}

/// Asks whether all of these are to be destroyed.
fn agrees(found: &[SandboxStatus]) -> Result<bool> {
    let called = |status: &SandboxStatus| status.name.as_ref().map_or(status.sandbox.to_string(), ToString::to_string);
    let names = found.iter().map(called).collect::<Vec<_>>().join(", ");
    let failed = |error| Error::new(ErrorCode::HostIo, "the question cannot be asked").because(error);
    let question = format!("destroy {} with all files: {names}? [y/N] ", report::counted(found.len(), "sandbox"));
    stderr().write_all(question.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    stdin().read_line(&mut answer).map_err(failed)?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}
