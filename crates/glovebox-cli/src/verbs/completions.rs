//! `glovebox completions SHELL`.

use glovebox_core::Result;
use serde_json::json;

use crate::{
    args::{self, CompletionsArgs, Globals},
    report,
};

pub(crate) fn execute(globals: &Globals, args: &CompletionsArgs) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::command(), "glovebox", &mut script);
    let script = String::from_utf8_lossy(&script);
    if globals.json {
        report::document(&json!({ "shell": args.shell.to_string(), "script": script }))?;
    } else {
        report::print(&script)?;
    }
    Ok(0)
}
