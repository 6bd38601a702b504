//! `glovebox create`: makes a sandbox that stays.

use std::time::Duration;

use glovebox_core::{Command, Error, ErrorCode, Label, Lifetime, Result, SandboxName, Warning, parse_duration};
use glovebox_engine::{Engine, NewSandbox, SandboxStatus};
use glovebox_native::NativeBackend;
use serde_json::{Value, json};

use super::{data_dir, runtime};
use crate::{
    args::{CreateArgs, Globals},
    backends::{self, Kind},
    environment, files,
    flags::Flags,
    report, request,
};

pub(crate) fn execute(
    globals: &Globals,
    args: &CreateArgs,
    flags: &Flags,
    backend: Option<Result<NativeBackend>>,
) -> Result<u8> {
    let (kind, fell_back) = backends::choose(globals, &args.sandbox, flags)?;
    let new = plan(args, flags, kind)?;
    let engine = Engine::new(backends::making(globals, kind, backend)?).with_data_dir(data_dir(globals));
    let status = runtime()?.block_on(async {
        let sandbox = engine.create_living(new).await?;
        let status = engine.status(&sandbox.id().to_string()).await?;
        report::missing(&sandbox.created().isolation, &status.record.spec);
        report::not_held(&sandbox.created().limits);
        Ok(status)
    })?;
    if let Some(warning) = &fell_back {
        report::warning(warning);
    }
    if globals.json {
        report::document(&document(&status, fell_back)?)?;
    } else {
        report::print(&format!("{}\n", status.sandbox))?;
        if let Some(line) = end_of(&status) {
            report::say(&line);
        }
    }
    Ok(0)
}

/// The document of a new sandbox. It has warnings where there are any.
fn document(status: &SandboxStatus, warning: Option<Warning>) -> Result<Value> {
    let unwritable = |error| Error::new(ErrorCode::Internal, "the sandbox cannot be written as JSON").because(error);
    let mut document = serde_json::to_value(status).map_err(unwritable)?;
    if let Some(warning) = warning {
        document["warnings"] = json!([warning]);
    }
    Ok(document)
}

fn plan(args: &CreateArgs, flags: &Flags, kind: Kind) -> Result<NewSandbox> {
    let mut spec = request::sandbox_spec(&args.sandbox, flags)?;
    backends::choose_image(&mut spec, flags, kind, None)?;
    // A command is what variables are checked for.
    let command = environment::add_plain(Command::argv(["-"])?, &args.env_file, &args.env, flags)?;
    Ok(NewSandbox {
        name: args.name.as_deref().map(|name| checked_name(name, flags)).transpose()?,
        labels: Label::collect(&request::labels(&args.label, flags)?),
        env: command.env.iter().map(|(name, value)| (name.as_str().to_owned(), value.clone())).collect(),
        spec,
        toolchains: backends::toolchains(kind, files::toolchains(&args.sandbox, flags)?)?,
        lifetime: Lifetime {
            idle: flags.check("idle-timeout", &args.idle_timeout, parse_time_or_never)?,
            max_age: flags.check("max-age", &args.max_age, parse_time_or_never)?,
        },
    })
}

/// A name. The error for one that cannot be offers the nearest that can.
fn checked_name(text: &str, flags: &Flags) -> Result<SandboxName> {
    flags.check("name", text, SandboxName::parse).map_err(|error| {
        let dashed = text.trim().replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
        let near = dashed.trim_matches(['-', '.']);
        let usable = SandboxName::parse(near).is_ok() && error.hint.is_none();
        if usable { error.hint(format!("--name {near}")) } else { error }
    })
}

/// A duration, or 0 for never.
pub(super) fn parse_time_or_never(text: &str) -> Result<Option<Duration>, String> {
    match text {
        "0" | "0ms" | "0s" | "0m" | "0h" => Ok(None),
        _ => parse_duration(text).map(Some).map_err(|forms| format!("{forms}, or 0 for never")),
    }
}

/// When a sandbox ends by itself, in words.
pub(super) fn end_of(status: &SandboxStatus) -> Option<String> {
    let idle =
        status.idle_timeout_ms.map(|ms| format!("after {} without use", report::duration(Duration::from_millis(ms))));
    let latest = status.expires_at.map(|at| format!("at the latest {}", report::time(at)));
    let parts: Vec<String> = [idle, latest].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("it ends by itself {}", parts.join(", ")))
}
