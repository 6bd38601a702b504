//! `glovebox gc`: removes what dead processes left, and mends folders in which they applied changes.

use std::{path::Path, time::Duration};

use glovebox_core::{Backend, Result, Warning};
use glovebox_engine::Engine;
use glovebox_ledger::Ledger;
use glovebox_native::NativeBackend;
use serde_json::json;

use super::{apply, data_dir, runtime};
use crate::{
    args::Globals,
    backends::{self, Kind},
    flags::Flags,
    report,
};

/// How soon a Docker answers that is looked at without being asked for.
const SOON: Duration = Duration::from_secs(2);

pub(crate) fn execute(globals: &Globals, flags: &Flags) -> Result<u8> {
    let kind = backends::kind(globals, flags)?;
    let (mut mended, mut not_mended) = (Vec::new(), Vec::new());
    for (folder, how) in glovebox_changes::mend_all(&apply::applies(&data_dir(globals)))? {
        match how {
            Ok(how) => mended.push((folder, how)),
            Err(error) => not_mended.push((folder, error)),
        }
    }
    let mut removed = remove(&data_dir(globals))?;
    removed.extend(remove_of_docker(kind, &data_dir(globals))?);
    if globals.json {
        report::document(&json!({
            "removed": removed,
            "mended": mended.iter().map(|(folder, _)| folder).collect::<Vec<_>>(),
            "not_mended": not_mended.iter().map(|(folder, _)| folder).collect::<Vec<_>>(),
        }))?;
    } else if removed.is_empty() && mended.is_empty() {
        report::print("nothing to remove\n")?;
    } else {
        let removed = removed.iter().map(|what| format!("removed {what}\n"));
        let mended = mended.iter().map(|(folder, how)| format!("{}\n", apply::mended_line(folder, *how)));
        report::print(&removed.chain(mended).collect::<String>())?;
    }
    for (_, error) in &not_mended {
        report::say(&format!("error: {} [{}]", error.message, error.code));
        report::say(&format!("hint: {}", error.hint.as_deref().unwrap_or("look at the folder")));
    }
    Ok(not_mended.first().map_or(0, |(_, error)| error.code.exit_code()))
}

/// Removes what is left in Docker. Whoever did not ask for that backend is not kept waiting by a Docker that is not there or does
/// not answer.
fn remove_of_docker(kind: Kind, data_dir: &Path) -> Result<Vec<String>> {
    let docker = match (backends::docker(data_dir), kind) {
        (Ok(docker), _) => docker,
        (Err(error), Kind::Docker) => return Err(error),
        (Err(_), Kind::Native) => return Ok(Vec::new()),
    };
    runtime()?.block_on(async {
        if kind == Kind::Native && !docker.answers_within(SOON).await {
            return Ok(Vec::new());
        }
        match docker.collect_garbage().await {
            Err(error) if kind == Kind::Native => {
                report::warning(&Warning::from(&error));
                Ok(Vec::new())
            }
            removed => removed,
        }
    })
}

/// Removes what dead processes left, and says what it was.
pub(super) fn remove(data_dir: &Path) -> Result<Vec<String>> {
    let mut removed = remove_sandboxes(data_dir)?;
    removed.extend(NativeBackend::collect_garbage_now()?);
    removed.extend(glovebox_engine::remove_unfinished_programs(data_dir)?);
    match runtime()?.block_on(Ledger::below(data_dir).sweep())? {
        0 => {}
        blobs => removed.push(format!("{blobs} unfinished blobs")),
    }
    Ok(removed)
}

/// Removes what is left of sandboxes that are no more. Their files may take a launcher to remove, which must be started while
/// there is one thread.
fn remove_sandboxes(data_dir: &Path) -> Result<Vec<String>> {
    if !Engine::has_left_sandboxes(data_dir) {
        return Ok(Vec::new());
    }
    let engine = backends::reaching(None, data_dir, NativeBackend::start)?;
    Ok(runtime()?.block_on(engine.collect_sandboxes()))
}
