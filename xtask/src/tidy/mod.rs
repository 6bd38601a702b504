//! The house rules, checked over the whole tree. A rule that people must remember is a rule that is broken.

mod code;
mod lengths;
mod licences;
mod manifests;
mod markdown;
mod text;
mod unsafe_fence;

use anyhow::{Result, bail};

use crate::tree::{SourceFile, source_files};

/// A place where a rule is broken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Offence {
    /// The file, below the root.
    path: String,
    /// The line, from 1; 0 for the file as a whole.
    line: usize,
    /// What is wrong, and what is right.
    message: String,
}

impl Offence {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Offence { path: path.to_owned(), line, message: message.into() }
    }
}

/// A rule: all files in, offences out.
type Rule = fn(&[SourceFile]) -> Vec<Offence>;

/// Every rule by its name.
const RULES: [(&str, Rule); 11] = [
    ("dependencies point down", manifests::dependencies_point_down),
    ("crates inherit the workspace's lints", manifests::crates_inherit_lints),
    ("dependencies are explained", manifests::dependencies_are_explained),
    ("dependencies are allowed by deny.toml", licences::dependencies_are_allowed),
    ("unsafe stays in its fence", unsafe_fence::unsafe_stays_in_its_fence),
    ("functions and files are short", lengths::functions_and_files_are_short),
    ("file names say what is inside", text::file_names_say_what_is_inside),
    ("nothing is left unfinished", text::nothing_is_left_unfinished),
    ("lines end cleanly", text::lines_end_cleanly),
    ("no machine or registry is named", text::no_machine_or_registry_is_named),
    ("links of the docs resolve", markdown::links_resolve),
];

/// Checks every rule, prints what is broken, and gives the number of rules that hold.
pub(crate) fn check() -> Result<u64> {
    let files = source_files()?;
    let mut offences = 0;
    for (name, rule) in RULES {
        for Offence { path, line, message } in rule(&files) {
            println!("{path}:{line}: {message} (rule: {name})");
            offences += 1;
        }
    }
    if offences > 0 {
        bail!("house rules are broken in {offences} places");
    }
    Ok(RULES.len() as u64)
}

/// The verb `tidy`.
pub(crate) fn tidy() -> Result<()> {
    let rules = check()?;
    println!("tidy: {rules} rules hold");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn the_tree_is_tidy() {
        check().unwrap();
    }
}
