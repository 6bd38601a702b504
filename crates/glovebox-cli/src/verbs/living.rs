//! `glovebox list|show`: sandboxes that stay.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::Path,
};

use glovebox_core::{Access, Error, ErrorCode, Label, Network, Result, SandboxId, SandboxState, printable};
use glovebox_engine::{Engine, SandboxStatus};
use glovebox_ledger::{Filter, Ledger, Summary};
use glovebox_native::NativeBackend;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    attach,
    create::end_of,
    data_dir,
    runs::{self, ago},
    runtime,
};
use crate::{
    args::{Globals, ListSandboxesArgs, SandboxArg},
    backends::{self, Kind},
    flags::Flags,
    report,
    table::{of_columns, table},
    terminal,
};

/// The word by which this program is started to keep a sandbox that lost its keeper.
pub(crate) const KEEP: &str = "__keep";

/// So many of the runs that ended are shown with a sandbox.
const LAST_ENDED: u32 = 10;
/// On fewer columns a sandbox is shown by its name or the beginning of its id.
const NARROW: usize = 72;
/// And so many of those at work: as many as a sandbox of any size has.
const MOST_AT_WORK: u32 = 10_000;

/// Keeps a sandbox: the launcher of this process stays for it when this process ends.
pub(crate) fn keep(id: Option<&OsString>) -> u8 {
    let kept = || -> Result<()> {
        let wrong = || Error::new(ErrorCode::Usage, "an id is needed");
        let id: SandboxId = id.and_then(|id| id.to_str()?.parse().ok()).ok_or_else(wrong)?;
        NativeBackend::start()?.keep(id)
    };
    kept().map_or_else(|error| report::error(&error, false), |()| 0)
}

/// An engine for work with sandboxes that are there. It forks nothing.
pub(super) fn engine(globals: &Globals, flags: &Flags) -> Result<Engine> {
    backends::reaching(backends::typed(globals, flags)?, &data_dir(globals), || Ok(backends::native_without_launcher()))
}

/// The same for a data folder.
pub(super) fn engine_below(data_dir: &Path) -> Engine {
    backends::reaching(None, data_dir, || Ok(backends::native_without_launcher())).expect("it is there without asking")
}

/// An engine that also makes sandboxes and removes files.
pub(super) fn making_engine(
    globals: &Globals,
    flags: &Flags,
    backend: Option<Result<NativeBackend>>,
) -> Result<Engine> {
    let typed = backends::typed(globals, flags)?;
    backends::reaching(typed, &data_dir(globals), || backend.unwrap_or_else(NativeBackend::start))
}

pub(crate) fn list(globals: &Globals, args: &ListSandboxesArgs, flags: &Flags) -> Result<u8> {
    let engine = engine(globals, flags)?;
    attach::follow_left_behind(globals);
    let state = args.state.as_deref().map(|text| flags.check("state", text, parse_state)).transpose()?;
    let labels = flags.list("label", &args.label).into_iter().map(|text| flags.check("label", text, Label::parse));
    let labels = Label::collect(&labels.collect::<Result<Vec<_>>>()?);
    let mut found = runtime()?.block_on(engine.sandboxes())?;
    let shown = |status: &SandboxStatus| match state {
        Some(state) => status.state == state,
        None => args.ended || status.state != SandboxState::Gone,
    };
    keep_asked(&mut found, backends::typed(globals, flags)?);
    warn_of_unknown(&found);
    found.retain(|status| shown(status) && labels.iter().all(|(key, value)| status.labels.get(key) == Some(value)));
    if globals.json {
        report::document(&json!({ "sandboxes": found }))?;
    } else if args.ids {
        report::print(&found.iter().map(|status| format!("{}\n", status.sandbox)).collect::<String>())?;
    } else if found.is_empty() {
        let filtered = !labels.is_empty() || state.is_some();
        report::say(match filtered {
            true => "no sandbox fits; glovebox list without flags shows all that live",
            false => "there is no sandbox; glovebox create makes one",
        });
    } else {
        report::print(&listing(&found, Timestamp::now(), terminal::output_columns()))?;
    }
    Ok(0)
}

/// Where a backend was typed, only its sandboxes are meant.
pub(super) fn keep_asked(found: &mut Vec<SandboxStatus>, typed: Option<Kind>) {
    found.retain(|status| typed.is_none_or(|kind| status.backend == kind.name()));
}

/// Says why states are not known, each reason once.
fn warn_of_unknown(found: &[SandboxStatus]) {
    let why: BTreeSet<&str> = found.iter().filter_map(|status| status.trouble.as_deref()).collect();
    why.iter().for_each(|why| report::say(&format!("warning: states are not known: {why}")));
}

/// The table of sandboxes, with what there is room for.
fn listing(found: &[SandboxStatus], now: Timestamp, width: Option<usize>) -> String {
    let rows = || found.iter().map(|status| row(status, now));
    if width.is_some_and(|width| width < NARROW) {
        let shown = |[id, name, state, backend, _, ends, project, labels]: [String; 8]| {
            let known_by = if name == "-" { short_id(&id, found) } else { name };
            let backend = if backend == Kind::Native.name() { "-".to_owned() } else { backend };
            let others = [backend, project, labels].into_iter().filter(|text| !["-", ""].contains(&text.as_str()));
            [known_by, state, ends, others.collect::<Vec<_>>().join(" ")]
        };
        return table(["SANDBOX", "STATE", "ENDS", "OF"], &rows().map(shown).collect::<Vec<_>>(), width);
    }
    // What would be the same in every row is not told.
    let backends = found.iter().any(|status| status.backend != Kind::Native.name());
    let projects = found.iter().any(|status| status.project.is_some());
    let heading = ["SANDBOX", "NAME", "STATE", "BACKEND", "CREATED", "ENDS", "PROJECT", "LABELS"];
    let shown = [true, true, true, backends, true, true, projects, true];
    of_columns(shown, heading, &rows().collect::<Vec<_>>(), width)
}

/// As much of an id as no other has, which is enough for every verb.
fn short_id(id: &str, among: &[SandboxStatus]) -> String {
    const SHORTEST: usize = 14;
    let is_of_one = |length: &usize| {
        among.iter().filter(|status| status.sandbox.to_string().starts_with(&id[..*length])).count() < 2
    };
    let length = (SHORTEST..id.len()).find(is_of_one).unwrap_or(id.len());
    id[..length].to_owned()
}

fn parse_state(text: &str) -> Result<SandboxState, String> {
    use SandboxState::{Creating, Destroying, Gone, Paused, Ready, Stopped, Stopping, Unknown};
    let states = [Creating, Ready, Paused, Stopping, Stopped, Destroying, Gone, Unknown];
    let found = states.into_iter().find(|state| state.as_str() == text);
    found.ok_or_else(|| "expected creating, ready, paused, stopping, stopped, destroying, gone or unknown".to_owned())
}

fn row(status: &SandboxStatus, now: Timestamp) -> [String; 8] {
    let labels = status.labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ");
    let ends = match (&status.ended, status.ends_at) {
        (Some(ended), _) => format!("{} {}", reason(ended), ago(now, ended.at)),
        // Only one that is stopped can have outlived its time.
        (None, Some(at)) if at <= now => format!("over {}", ago(now, at)),
        (None, Some(at)) => format!("in {}", report::coarse(at.duration_since(now).unsigned_abs())),
        (None, None) => "-".to_owned(),
    };
    let name = status.name.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
    let state = status.state.to_string();
    let project = status.project.clone().unwrap_or_else(|| "-".to_owned());
    let (backend, created) = (printable(&status.backend), ago(now, status.created_at));
    [status.sandbox.to_string(), name, state, backend, created, ends, project, printable(&labels)]
}

fn reason(ended: &glovebox_engine::EndedAt) -> &'static str {
    match ended.reason {
        glovebox_core::EndReason::IdleTimeout => "unused",
        glovebox_core::EndReason::MaxAge => "too old",
    }
}

pub(crate) fn show(globals: &Globals, args: &SandboxArg, flags: &Flags) -> Result<u8> {
    let engine = engine(globals, flags)?;
    attach::follow_left_behind(globals);
    let ledger = Ledger::below(data_dir(globals));
    let (status, runs) = runtime()?.block_on(async {
        let status = engine.status(&args.id).await?;
        let runs = runs_of(&ledger, &status).await;
        Ok::<_, Error>((status, runs))
    })?;
    // A record that cannot be read keeps nobody from seeing the rest.
    let runs = runs.inspect_err(|error| report::say(&format!("warning: its runs are not shown: {}", error.message)));
    if globals.json {
        let mut document = document(&status)?;
        document["runs"] = json!(runs.ok().map(|(runs, _)| runs));
        report::document(&document)?;
    } else {
        report::print(&page(&status))?;
        if let Some((runs, more)) = runs.ok().filter(|(runs, _)| !runs.is_empty()) {
            report::print(&format!("\n{}", runs::rows(&runs)))?;
            if more {
                report::say(&format!("glovebox runs list --sandbox {} shows all of its runs", args.id));
            }
        }
    }
    Ok(0)
}

/// The recorded runs of a sandbox, the newest first: all that are at work, and the last that ended. Says whether there are more.
async fn runs_of(ledger: &Ledger, status: &SandboxStatus) -> Result<(Vec<Summary>, bool)> {
    let own = Filter { sandbox: Some(status.sandbox), since: Some(status.created_at), ..Filter::default() };
    let at_work = Filter { outcome: Some("running".to_owned()), limit: MOST_AT_WORK, ..own.clone() };
    let at_work = ledger.list(&at_work).await?.runs;
    let last = ledger.list(&Filter { limit: at_work.len() as u32 + LAST_ENDED, ..own }).await?;
    let ended: Vec<Summary> = last.runs.into_iter().filter(|run| run.outcome.is_some()).collect();
    let more = last.next.is_some() || ended.len() > LAST_ENDED as usize;
    // Of one that ended in between, its end counts: it comes later.
    let runs = at_work.into_iter().chain(ended.into_iter().take(LAST_ENDED as usize));
    let runs: BTreeMap<_, _> = runs.map(|run| (Reverse(run.run), run)).collect();
    Ok((runs.into_values().collect(), more))
}

/// The status of a sandbox with how it was made.
fn document(status: &SandboxStatus) -> Result<Value> {
    let spec = &status.record.spec;
    let unwritable = |error| Error::new(ErrorCode::Internal, "the sandbox cannot be written as JSON").because(error);
    let mut document = serde_json::to_value(status).map_err(unwritable)?;
    let limits = &spec.limits;
    document["limits"] = json!({
        "memory_bytes": limits.memory, "cpus": limits.cpus, "pids": limits.pids, "disk_bytes": limits.disk,
        "inodes": limits.inodes, "open_files": limits.open_files,
    });
    document["workspace"] = json!(spec.workspace.as_ref().map(|w| json!({ "source": w.source, "mode": w.mode })));
    let mount = |m: &glovebox_core::Mount| json!({ "source": m.source, "target": m.target, "access": m.access });
    document["mounts"] = spec.mounts.iter().map(mount).collect();
    let volume = |v: &glovebox_core::VolumeMount| json!({ "name": v.name, "target": v.target, "access": v.access });
    document["volumes"] = spec.volumes.iter().map(volume).collect();
    document["caches"] = json!(spec.caches);
    document["network"] = json!(spec.network);
    document["env"] = json!(status.record.env);
    Ok(document)
}

/// All that is known of a sandbox, a line for each thing.
fn page(status: &SandboxStatus) -> String {
    let spec = &status.record.spec;
    let limits = &spec.limits;
    let state =
        status.trouble.iter().fold(status.state.to_string(), |state, why| format!("{state}: {}", printable(why)));
    let mut lines = vec![("state", state)];
    if status.backend != Kind::Native.name() {
        lines.push(("backend", printable(&format!("{}, image {}", status.backend, status.image))));
    }
    lines.extend(status.name.as_ref().map(|name| ("name", name.to_string())));
    if let Some(ended) = &status.ended {
        lines.push(("ended", format!("{} at {}", reason(ended), report::time(ended.at))));
    }
    lines.push(("created", report::time(status.created_at)));
    lines.extend(
        end_of(status)
            .filter(|_| status.ended.is_none())
            .map(|line| ("ends", line.replacen("it ends by itself ", "", 1))),
    );
    if let Some(at) = status.ends_at.filter(|at| status.ended.is_none() && Some(*at) != status.expires_at) {
        lines.push(("unused", format!("now; it ends at {} when that stays so", report::time(at))));
    }
    let lacks = status.isolation.as_ref().and_then(|isolation| report::missing_words(isolation, spec));
    lines.extend(lacks.map(|layers| ("lacks", format!("these layers of isolation: {layers}"))));
    lines.push((
        "limits",
        format!(
            "{} memory, {} CPU, {} processes, {} disk",
            report::size(limits.memory),
            limits.cpus,
            limits.pids,
            report::size(limits.disk)
        ),
    ));
    let network = match spec.network {
        Network::None => "none",
        Network::Full => "all that this machine reaches",
    };
    lines.push(("network", network.to_owned()));
    if let Some(workspace) = &spec.workspace {
        lines.push(("workspace", printable(&workspace.source.display().to_string())));
    }
    lines.extend(status.project.iter().map(|project| ("project", project.clone())));
    let access = |access| if access == Access::ReadWrite { "read-write" } else { "read-only" };
    for volume in &spec.volumes {
        lines.push(("volume", format!("{} at {}, {}", volume.name, volume.target, access(volume.access))));
    }
    lines.extend(spec.caches.iter().map(|cache| ("cache", cache.to_string())));
    for mount in &spec.mounts {
        let access = access(mount.access);
        lines.push(("mount", printable(&format!("{} at {}, {access}", mount.source.display(), mount.target))));
    }
    lines.extend(status.labels.iter().map(|(key, value)| ("label", printable(&format!("{key}={value}")))));
    lines.extend(status.record.env.iter().map(|(name, value)| ("variable", printable(&format!("{name}={value}")))));
    let body: String = lines.iter().map(|(name, text)| format!("  {name:10}{text}\n")).collect();
    format!("{}\n{body}", status.sandbox)
}
