//! The command line's own help as a page, and its man pages.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};

use super::{Page, REFERENCE};
use crate::suites::read;

/// The page of all verbs with their flags.
pub(super) fn help(glovebox: &Path) -> Result<Page> {
    let glovebox = glovebox.to_string_lossy().into_owned();
    let mut text = String::from("# The command line\n\nWhat `--help` says, verb by verb.\n");
    describe(&glovebox, &mut Vec::new(), &mut text)?;
    Ok(Page::markdown("cli", &text))
}

/// The man pages, as `glovebox man` writes them into a folder.
pub(super) fn man(glovebox: &Path) -> Result<Vec<Page>> {
    let folder = PathBuf::from(read(&["mktemp", "-d"])?.trim());
    let written = read(&[&glovebox.to_string_lossy(), "man", &folder.to_string_lossy()]);
    let pages = written.and_then(|_| man_pages(&folder));
    std::fs::remove_dir_all(&folder)?;
    pages
}

fn man_pages(folder: &Path) -> Result<Vec<Page>> {
    let mut pages = Vec::new();
    for entry in folder.read_dir()? {
        let entry = entry?;
        let text = std::fs::read_to_string(entry.path())?;
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        let path = format!("{REFERENCE}/man/{}", entry.file_name().to_string_lossy());
        pages.push(Page { path, text: format!("{}\n", lines.join("\n").trim_end()) });
    }
    ensure!(!pages.is_empty(), "`glovebox man` wrote no page");
    Ok(pages)
}

/// Writes the help of a verb and of the verbs below it.
fn describe(glovebox: &str, verbs: &mut Vec<String>, text: &mut String) -> Result<()> {
    let mut argv = vec![glovebox];
    argv.extend(verbs.iter().map(String::as_str));
    argv.push("--help");
    let help = read(&argv)?;
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    let name = [&["glovebox".to_owned()], verbs.as_slice()].concat().join(" ");
    let _ = write!(text, "\n## {name}\n\n```text\n{}\n```\n", help.join("\n").trim());
    let below = verbs_in(&help);
    ensure!(!verbs.is_empty() || !below.is_empty(), "no verb was found in the help of {name}");
    for verb in below {
        verbs.push(verb);
        describe(glovebox, verbs, text)?;
        verbs.pop();
    }
    Ok(())
}

/// The names under `Commands:` in a help text.
fn verbs_in(help: &[&str]) -> Vec<String> {
    let listed = help.iter().skip_while(|line| **line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_are_read_from_the_help_and_their_wrapped_lines_are_not() {
        let help = [
            "Usage: x",
            "",
            "Commands:",
            "  run   Runs",
            "          more",
            "  gc    Cleans",
            "  help  Help",
            "",
            "Options:",
            "  -v",
        ];
        assert_eq!(verbs_in(&help), ["run", "gc"]);
    }
}
