//! The verb `docs`: everything in docs/reference, and the README's picture, comes from the code and from real output.
//! A page that was not written again after a change is stale, and `docs --check` fails on it. The picture is a recording
//! of one machine, whose layers may differ from another's, so it is not compared.

mod command_line;
mod fields;
mod mcp;
mod picture;
mod tables;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{need, suites, tree};

/// Where the generated pages live. Nothing else may live there.
const REFERENCE: &str = "docs/reference";

/// The line that every generated page begins with.
const NOTE: &str = "<!-- Written by `cargo xtask docs`. Change the code, not this page. -->\n\n";

/// A generated file.
pub(crate) struct Page {
    /// Its path below the root.
    path: String,
    /// Its content.
    text: String,
}

impl Page {
    fn markdown(name: &str, text: &str) -> Self {
        Page { path: format!("{REFERENCE}/{name}.md"), text: format!("{NOTE}{}\n", text.trim_end()) }
    }
}

/// The verb `docs`.
pub(crate) fn docs(args: &[String]) -> Result<()> {
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => write(),
        ["--check"] => check(),
        _ => bail!("the only flag is --check"),
    }
}

/// Builds the program that is documented.
fn glovebox() -> Result<PathBuf> {
    suites::run(&["cargo", "build", "--quiet", "--locked", "-p", "glovebox-cli"])?;
    Ok(tree::built("debug", "glovebox"))
}

fn pages(glovebox: &Path) -> Result<Vec<Page>> {
    let mut pages = vec![
        tables::errors(),
        tables::layers(),
        tables::limits()?,
        tables::languages(),
        tables::caches(),
        fields::result()?,
    ];
    pages.push(mcp::tools(glovebox)?);
    pages.push(command_line::help(glovebox)?);
    pages.extend(command_line::man(glovebox)?);
    Ok(pages)
}

fn write() -> Result<()> {
    need::root().context("the picture is a recording of real runs")?;
    let glovebox = glovebox()?;
    let mut pages = pages(&glovebox)?;
    pages.push(picture::first_minute(&glovebox)?);
    for Page { path, text } in pages {
        let file = tree::root().join(&path);
        let folder = file.parent().context("a page has a folder")?;
        std::fs::create_dir_all(folder)?;
        std::fs::write(&file, text).with_context(|| format!("cannot write {path}"))?;
        println!("wrote {path}");
    }
    Ok(())
}

/// An error that names each page that is stale, missing or not generated any more.
pub(crate) fn check() -> Result<()> {
    let pages = pages(&glovebox()?)?;
    let mut wrong = Vec::new();
    for Page { path, text } in &pages {
        match std::fs::read_to_string(tree::root().join(path)) {
            Ok(found) if found == *text => {}
            Ok(_) => wrong.push(format!("{path} is stale")),
            Err(_) => wrong.push(format!("{path} is missing")),
        }
    }
    let known: BTreeSet<&str> = pages.iter().map(|page| page.path.as_str()).collect();
    for path in files_below(REFERENCE)?.iter().filter(|path| !known.contains(path.as_str())) {
        wrong.push(format!("{path} is not generated"));
    }
    ensure!(wrong.is_empty(), "{}; run `cargo xtask docs`", wrong.join(", "));
    println!("docs: {} generated files are fresh", pages.len());
    Ok(())
}

fn files_below(folder: &str) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in tree::root().join(folder).read_dir()? {
        let entry = entry?;
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}
