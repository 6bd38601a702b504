//! Files that went at one path and came at another.

use std::collections::HashMap;

use glovebox_core::{Change, FileKind, FileState, Result};
use glovebox_ledger::Blobs;
use serde::Serialize;
use similar::TextDiff;

use crate::diff::read_text;

/// Only so many pairs of files are compared; hostile change sets have more.
const MOST_PAIRS: usize = 2_000;
/// Larger files are only compared by their hash.
const LARGEST: u64 = 64 * 1024;
/// How much of the lines must be the same.
const ALIKE: f32 = 0.5;

/// A file that was renamed, and perhaps changed on the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rename {
    /// The path that went.
    pub from: String,
    /// The path that came.
    pub to: String,
}

/// Finds renames among changes: files with the same content first, then texts that are alike.
pub fn find_renames(blobs: &Blobs, changes: &[Change]) -> Result<Vec<Rename>> {
    let mut gone: Vec<Candidate<'_>> = changes.iter().filter_map(|change| candidate(change, Way::Went)).collect();
    let mut new: Vec<Candidate<'_>> = changes.iter().filter_map(|change| candidate(change, Way::Came)).collect();
    let mut renames = same_content(&mut gone, &mut new);
    renames.extend(alike(blobs, &mut gone, &new)?);
    renames.sort_by(|a, b| a.to.cmp(&b.to));
    Ok(renames)
}

struct Candidate<'a> {
    path: &'a str,
    sha256: &'a str,
    bytes: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Went,
    Came,
}

fn candidate(change: &Change, way: Way) -> Option<Candidate<'_>> {
    let state = match (&change.before, &change.after, way) {
        (Some(before), None, Way::Went) => before,
        (None, Some(after), Way::Came) => after,
        _ => return None,
    };
    match state {
        // Empty files are all the same; that says nothing.
        FileState { kind: FileKind::File { bytes, sha256: Some(sha256), .. }, .. } if *bytes > 0 => {
            Some(Candidate { path: &change.path, sha256, bytes: *bytes })
        }
        _ => None,
    }
}

fn same_content(gone: &mut Vec<Candidate<'_>>, new: &mut Vec<Candidate<'_>>) -> Vec<Rename> {
    let mut by_content: HashMap<&str, Vec<&str>> = HashMap::new();
    for file in gone.iter().rev() {
        by_content.entry(file.sha256).or_default().push(file.path);
    }
    let mut renames = Vec::new();
    new.retain(|file| match by_content.get_mut(file.sha256).and_then(Vec::pop) {
        Some(from) => {
            renames.push(Rename { from: from.to_owned(), to: file.path.to_owned() });
            false
        }
        None => true,
    });
    let left: std::collections::HashSet<&str> = by_content.into_values().flatten().collect();
    gone.retain(|file| left.contains(file.path));
    renames
}

fn alike(blobs: &Blobs, gone: &mut Vec<Candidate<'_>>, new: &[Candidate<'_>]) -> Result<Vec<Rename>> {
    let mut renames = Vec::new();
    let mut pairs = MOST_PAIRS;
    for file in new.iter().filter(|file| file.bytes <= LARGEST) {
        // Files whose sizes are far apart cannot be alike.
        let close = |other: &Candidate<'_>| other.bytes <= 2 * file.bytes && file.bytes <= 2 * other.bytes;
        let others: Vec<usize> = (0..gone.len()).filter(|at| gone[*at].bytes <= LARGEST && close(&gone[*at])).collect();
        if others.is_empty() {
            continue;
        }
        if pairs < others.len() {
            break;
        }
        pairs -= others.len();
        let Some(text) = read_text(blobs, file.sha256, LARGEST)? else { continue };
        let mut best = (ALIKE, None);
        for at in others {
            let Some(other) = read_text(blobs, gone[at].sha256, LARGEST)? else { continue };
            let config = TextDiff::configure().timeout(std::time::Duration::from_millis(20)).clone();
            let ratio = config.diff_lines(&other, &text).ratio();
            if ratio >= best.0 {
                best = (ratio, Some(at));
            }
        }
        if let Some(at) = best.1 {
            let from = gone.swap_remove(at);
            renames.push(Rename { from: from.path.to_owned(), to: file.path.to_owned() });
        }
    }
    Ok(renames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_the_same_or_much_the_same_content_were_renamed() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(folder.path()).unwrap();
        let state = |text: &str| {
            let blob = blobs.put(text.as_bytes()).unwrap();
            let kind = FileKind::File { bytes: blob.bytes, sha256: Some(blob.sha256.to_string()), not_kept: None };
            Some(FileState { mode: 0o644, kind })
        };
        let change = |path: &str, before, after| Change { path: path.into(), before, after, obstacle: None };
        let long = (0..50).map(|n| format!("line {n}\n")).collect::<String>();
        let changes = [
            change("a", state("same"), None),
            change("b", state(&long), None),
            change("c", state("quite another"), None),
            change("x", None, state("same")),
            change("y", None, state(&long.replace("line 7\n", "changed\n"))),
            change("z", None, state("nothing alike\n")),
        ];
        let found = find_renames(&blobs, &changes).unwrap();
        let rename = |from: &str, to: &str| Rename { from: from.into(), to: to.into() };
        assert_eq!(found, [rename("a", "x"), rename("b", "y")]);
    }
}
