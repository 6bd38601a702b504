//! `glovebox gc`: removes what dead processes left, and mends folders in which they applied changes.

use std::path::Path;

use glovebox_core::{Backend, Result};
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
    if kind == Kind::Docker {
        let docker = backends::docker(&data_dir(globals))?;
        removed.extend(runtime()?.block_on(docker.collect_garbage())?);
    }
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
