//! Which paths are left out: those that `.gitignore` files name, and those of Git itself.

use std::{collections::HashMap, io::Read, path::Path};

use glovebox_core::{ChangeRecord, FileKind, FileState};
use glovebox_ledger::Blobs;
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};

use crate::{diff::read_text, folder::Folder};

/// A longer file of rules is not read.
const LONGEST: u64 = 1 << 20;
const RULES: &str = ".gitignore";

/// Why a path is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// A rule of a `.gitignore` says so.
    Rule,
    /// It belongs to Git itself.
    Git,
}

/// The rules that hold in a working folder after a run: the run's own where it wrote some, else the host's.
pub(crate) struct Ignored<'a> {
    record: HashMap<&'a str, Option<&'a FileState>>,
    blobs: &'a Blobs,
    host: Option<Folder>,
    rules: HashMap<String, Gitignore>,
    decided: HashMap<String, Option<Why>>,
}

impl<'a> Ignored<'a> {
    /// `host` is the folder that the working folder shows; `prefix` is what stands before its paths in the record.
    pub(crate) fn new(record: &'a ChangeRecord, prefix: &str, blobs: &'a Blobs, host: Option<&Path>) -> Self {
        let rules = record.changes.iter().filter_map(|change| {
            let path = change.path.strip_prefix(prefix)?;
            (path.rsplit('/').next() == Some(RULES)).then_some((path, change.after.as_ref()))
        });
        let host = host.and_then(|path| Folder::open(path).ok());
        Ignored { record: rules.collect(), blobs, host, rules: HashMap::new(), decided: HashMap::new() }
    }

    /// Why a path of the working folder is left out, if it is.
    pub(crate) fn why(&mut self, path: &str, is_folder: bool) -> Option<Why> {
        let mut end = 0;
        loop {
            let next = path[end..].find('/').map(|at| end + at);
            let part = &path[..next.unwrap_or(path.len())];
            let why = self.decide(part, next.is_some() || is_folder);
            match next {
                Some(at) if why.is_none() => end = at + 1,
                _ => return why,
            }
        }
    }

    /// The same of one part of the way to it.
    fn decide(&mut self, path: &str, is_folder: bool) -> Option<Why> {
        if let Some(decided) = self.decided.get(path) {
            return *decided;
        }
        let name = path.rsplit('/').next().unwrap_or(path);
        let decided = match name.eq_ignore_ascii_case(".git") {
            true => Some(Why::Git),
            false => self.is_ruled_out(path, is_folder).then_some(Why::Rule),
        };
        self.decided.insert(path.to_owned(), decided);
        decided
    }

    /// The rules of the nearest folder that say something decide.
    fn is_ruled_out(&mut self, path: &str, is_folder: bool) -> bool {
        let mut folder = path;
        while !folder.is_empty() {
            folder = folder.rsplit_once('/').map_or("", |(parent, _)| parent);
            let below = path[folder.len()..].trim_start_matches('/');
            match self.rules_of(folder).matched(below, is_folder) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }

    fn rules_of(&mut self, folder: &str) -> &Gitignore {
        if !self.rules.contains_key(folder) {
            let path = if folder.is_empty() { RULES.to_owned() } else { format!("{folder}/{RULES}") };
            let rules = self.text(&path).map_or_else(Gitignore::empty, |text| parse(&text));
            self.rules.insert(folder.to_owned(), rules);
        }
        &self.rules[folder]
    }

    fn text(&self, path: &str) -> Option<String> {
        match self.record.get(path) {
            Some(Some(FileState { kind: FileKind::File { sha256: Some(sha256), .. }, .. })) => {
                read_text(self.blobs, sha256, LONGEST).ok().flatten()
            }
            Some(_) => None,
            None => {
                let mut text = String::new();
                let file = self.host.as_ref()?.read(path).ok()?;
                file.metadata().ok().filter(std::fs::Metadata::is_file)?;
                file.take(LONGEST).read_to_string(&mut text).ok()?;
                Some(text)
            }
        }
    }
}

/// A line that is no rule is left out, as Git does.
fn parse(text: &str) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    for line in text.lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}
