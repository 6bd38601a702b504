//! A text that is longer than the terminal goes through a pager, as Git's does.

use std::{
    env,
    io::Write,
    process::{Command, Stdio},
};

use glovebox_core::Result;

use crate::{report, signals, terminal};

/// What a shell says when it does not find a command.
const NOT_FOUND: i32 = 127;

/// Shows a text with colours. `wanted` is the caller's pager; without it, it is that of their other programs.
pub(crate) fn show(text: &str, wanted: Option<&str>) -> Result<()> {
    let rows = terminal::output_rows().unwrap_or(usize::MAX);
    let pager = match text.lines().count() < rows {
        true => None,
        false => wanted.map(str::to_owned).or_else(|| env::var("PAGER").ok()).or_else(default),
    };
    match pager.as_deref().map(str::trim) {
        None | Some("" | "cat") => report::print_coloured(text),
        Some(pager) if through(pager, text)? => Ok(()),
        Some(_) => report::print_coloured(text),
    }
}

fn default() -> Option<String> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).any(|folder| folder.join("less").is_file()).then(|| "less".to_owned())
}

/// Whether the pager took it.
fn through(pager: &str, text: &str) -> Result<bool> {
    // Ctrl-C is for the pager, which would otherwise be left alone with the terminal.
    let _ours_no_more = signals::take_interrupt()?;
    let mut command = Command::new("sh");
    command.args(["-c", pager]).stdin(Stdio::piped());
    if env::var_os("LESS").is_none() {
        // Colours, no clearing of the screen, and no waiting where one screen is enough.
        command.env("LESS", "FRX");
    }
    let Ok(mut child) = command.spawn() else { return Ok(false) };
    if let Some(mut input) = child.stdin.take() {
        // Whoever leaves the pager has seen enough.
        let _ = input.write_all(report::coloured(text).as_bytes());
    }
    Ok(child.wait().is_ok_and(|status| status.code() != Some(NOT_FOUND)))
}
