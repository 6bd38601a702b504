//! `glovebox gc`: removes what dead processes left.

use glovebox_core::Result;
use glovebox_ledger::Ledger;
use glovebox_native::NativeBackend;
use serde_json::json;

use super::{data_dir, require_native, runtime};
use crate::{args::Globals, flags::Flags, report};

pub(crate) fn execute(globals: &Globals, flags: &Flags) -> Result<u8> {
    require_native(&globals.backend, flags)?;
    let mut removed = NativeBackend::collect_garbage_now()?;
    removed.extend(glovebox_engine::remove_unfinished_programs(&data_dir(globals))?);
    match runtime()?.block_on(Ledger::below(data_dir(globals)).sweep())? {
        0 => {}
        blobs => removed.push(format!("{blobs} unfinished blobs")),
    }
    if globals.json {
        report::document(&json!({ "removed": removed }))?;
    } else if removed.is_empty() {
        report::print("nothing to remove\n")?;
    } else {
        report::print(&removed.iter().map(|what| format!("removed {what}\n")).collect::<String>())?;
    }
    Ok(0)
}
