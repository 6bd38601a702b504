//! The README's picture: a terminal with real commands and what they really printed.

use std::{fmt::Write as _, path::Path, process::Command};

use anyhow::{Context, Result};

use super::Page;
use crate::tree;

/// What is typed in the picture.
const TYPED: [&str; 5] = [
    "glovebox run examples/hello.py",
    "glovebox run --memory 64m -l python -c 'x = bytearray(10**9)'; echo \"exit code $?\"",
    "glovebox run --timeout 500ms -- sleep 60; echo \"exit code $?\"",
    "glovebox run -- cat /etc/shadow",
    "glovebox run -- id",
];

const LINE: usize = 20;
const TOP: usize = 52;
const LEFT: usize = 20;
/// Width of a character of the picture's font, in tenths of a pixel.
const CHARACTER: usize = 84;
const NARROWEST: usize = 90;

/// The picture of somebody's first minute.
pub(super) fn first_minute(glovebox: &Path) -> Result<Page> {
    let mut lines = Vec::new();
    for typed in TYPED {
        lines.push(("typed", format!("$ {typed}")));
        lines.extend(printed(glovebox, typed)?.lines().map(|line| ("said", line.to_owned())));
    }
    Ok(Page { path: "docs/assets/first-minute.svg".into(), text: draw(&lines) })
}

/// Types a line into a shell that finds the built `glovebox`, and gives what came back on both streams.
fn printed(glovebox: &Path, line: &str) -> Result<String> {
    let folder = glovebox.parent().context("the program lies in a folder")?;
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let output = Command::new("bash")
        .args(["-c", &format!("{{ {line}; }} 2>&1")])
        .env("PATH", path)
        .env("GLOVEBOX_NO_RECORD", "true")
        .current_dir(tree::root())
        .output()
        .context("cannot start bash")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn draw(lines: &[(&str, String)]) -> String {
    let longest = lines.iter().map(|(_, text)| text.chars().count()).max().unwrap_or(0).max(NARROWEST);
    let width = 2 * LEFT + longest * CHARACTER / 10;
    let height = TOP + lines.len() * LINE + 12;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" aria-label=\"A terminal: the first minute with glovebox\">\n\
         <style>text {{ font: 14px ui-monospace, Menlo, Consolas, monospace; white-space: pre; fill: #c9d1d9 }} \
         .typed {{ fill: #7ee787 }}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#0d1117\"/>\n"
    );
    for (x, colour) in [(20, "#ff5f56"), (40, "#ffbd2e"), (60, "#27c93f")] {
        let _ = writeln!(svg, "<circle cx=\"{x}\" cy=\"20\" r=\"6\" fill=\"{colour}\"/>");
    }
    for (at, (class, text)) in lines.iter().enumerate() {
        let y = TOP + at * LINE;
        let _ = writeln!(svg, "<text class=\"{class}\" x=\"{LEFT}\" y=\"{y}\">{}</text>", escape(text.trim_end()));
    }
    svg.push_str("</svg>\n");
    svg
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
