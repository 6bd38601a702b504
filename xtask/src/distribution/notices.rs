//! The notices of what is linked into the program. Most licences ask that their text goes where the program goes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value as Json;

use crate::suites::read;

/// How the names of files with licences and notices begin.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// What is linked and is no package of cargo's.
const BUILT_IN: &str = "\
This program is linked with the packages below, with the standard library of Rust (Copyright The Rust Project
Contributors, MIT OR Apache-2.0) and with musl (Copyright Rich Felker and others, MIT).
";

/// Every package that is linked into the program, with its licence, and every text that comes with one, each text once.
pub(super) fn third_party(package: &str, target: &str) -> Result<String> {
    let linked = linked(package, target)?;
    let metadata: Json = serde_json::from_str(&read(&[
        "cargo",
        "metadata",
        "--quiet",
        "--locked",
        "--format-version",
        "1",
        "--filter-platform",
        target,
    ])?)?;
    let mut list = BTreeSet::new();
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in metadata["packages"].as_array().context("cargo metadata lists no packages")? {
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        let name = format!("{} {}", field("name"), field("version"));
        if package["source"].is_null() || !linked.contains(&name) {
            continue;
        }
        list.insert(format!("{name}: {}", field("license")));
        let folder = Path::new(field("manifest_path")).parent().context("a manifest lies in no folder")?;
        for text in texts_in(folder)? {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    ensure!(!list.is_empty(), "{package} is linked with nothing, which cannot be");
    let mut notices = format!("{BUILT_IN}\n{}\n", list.into_iter().collect::<Vec<_>>().join("\n"));
    for (text, names) in texts {
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        notices.push_str(&format!("\n{}\nOf {names}:\n\n{}\n", "=".repeat(80), text.trim_end()));
    }
    Ok(notices)
}

/// `name version` of every package that is linked, from cargo's own resolution: no build or test dependencies.
fn linked(package: &str, target: &str) -> Result<BTreeSet<String>> {
    let argv = ["cargo", "tree", "--quiet", "--locked", "--package", package, "--target", target];
    let tree =
        read(&[&argv[..], &["--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"]].concat())?;
    let names = tree.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" v")?;
        Some(format!("{name} {}", rest.split_whitespace().next()?))
    });
    Ok(names.collect())
}

fn texts_in(folder: &Path) -> Result<BTreeSet<String>> {
    let mut texts = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if entry.file_type()?.is_file() && NAMES.iter().any(|begin| name.starts_with(begin)) {
            texts.insert(String::from_utf8_lossy(&fs::read(entry.path())?).replace("\r\n", "\n"));
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_listed_and_what_only_builds_is_not() {
        let notices = third_party("glovebox-cli", "x86_64-unknown-linux-musl").unwrap();
        let line = |name: &str| notices.lines().find(|line| line.starts_with(&format!("{name} ")));
        assert!(line("clap").is_some_and(|line| line.ends_with("MIT OR Apache-2.0")), "{:?}", line("clap"));
        assert_eq!(line("syn"), None);
        assert_eq!(line("glovebox-core"), None);
        assert!(notices.contains("Permission is hereby granted"));
    }
}
