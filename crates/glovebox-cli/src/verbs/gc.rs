//! `glovebox gc`: removes what dead processes left, and mends folders in which they applied changes.

use glovebox_core::Result;
use glovebox_ledger::Ledger;
use glovebox_native::NativeBackend;
use serde_json::json;

use super::{apply, data_dir, require_native, runtime};
use crate::{args::Globals, flags::Flags, report};

pub(crate) fn execute(globals: &Globals, flags: &Flags) -> Result<u8> {
    require_native(&globals.backend, flags)?;
    let mut removed = NativeBackend::collect_garbage_now()?;
    match runtime()?.block_on(Ledger::below(data_dir(globals)).sweep())? {
        0 => {}
        blobs => removed.push(format!("{blobs} unfinished blobs")),
    }
    let mended = glovebox_changes::mend_all(&apply::applies(&data_dir(globals)))?;
    if globals.json {
        report::document(&json!({
            "removed": removed,
            "mended": mended.iter().map(|(folder, _)| folder).collect::<Vec<_>>(),
        }))?;
    } else if removed.is_empty() && mended.is_empty() {
        report::print("nothing to remove\n")?;
    } else {
        let removed = removed.iter().map(|what| format!("removed {what}\n"));
        let mended = mended.iter().map(|(folder, how)| format!("{}\n", apply::mended_line(folder, *how)));
        report::print(&removed.chain(mended).collect::<String>())?;
    }
    Ok(0)
}
