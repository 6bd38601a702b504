//! `glovebox gc`: removes what dead processes left.

use glovebox_core::Result;
use glovebox_native::NativeBackend;
use serde_json::json;

use super::require_native;
use crate::{args::Globals, flags::Flags, report};

pub(crate) fn execute(globals: &Globals, flags: &Flags) -> Result<u8> {
    require_native(&globals.backend, flags)?;
    let removed = NativeBackend::collect_garbage_now()?;
    if globals.json {
        report::document(&json!({ "removed": removed }))?;
    } else if removed.is_empty() {
        report::print("nothing to remove\n")?;
    } else {
        report::print(&removed.iter().map(|what| format!("removed {what}\n")).collect::<String>())?;
    }
    Ok(0)
}
