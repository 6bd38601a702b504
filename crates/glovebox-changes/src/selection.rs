//! From a record to the changes that are to be shown or applied.

use std::path::Path;

use glovebox_core::{Change, ChangeRecord, Error, ErrorCode, FileKind, FileState, Result};
use glovebox_ledger::Blobs;
use serde::Serialize;

use crate::ignored::Ignored;

/// What stands before the paths of the working folder in a record.
const WORKING: &str = "agent_workspace/";

/// Which changes somebody wants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish<'a> {
    /// Also those that `.gitignore` leaves out, and those of Git itself.
    pub all: bool,
    /// Only these paths of the working folder and what is below them; all when there are none.
    pub only: &'a [String],
}

/// The changes that are wanted.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The changes, with paths below `/workspace`.
    pub record: ChangeRecord,
    /// How many files `.gitignore` left out.
    pub ignored: usize,
}

/// Takes what is wanted from a record. `host` is the folder of the host that the working folder showed.
pub fn select(record: &ChangeRecord, wish: Wish<'_>, blobs: &Blobs, host: Option<&Path>) -> Result<Selection> {
    let only: Vec<&str> = wish.only.iter().map(|path| path.trim_start_matches("./").trim_end_matches('/')).collect();
    let mut ignored = Ignored::new(record, WORKING, blobs, host);
    let mut selection = Selection::default();
    let mut met = vec![false; only.len()];
    let mut wanted = Vec::with_capacity(record.changes.len());
    for change in &record.changes {
        let inner = change.path.strip_prefix(WORKING);
        let hits = |only: &&str| inner.is_some_and(|path| path == *only || *only == "." || is_below(path, only));
        let hit = only.iter().position(hits);
        if let Some(at) = hit {
            met[at] = true;
        }
        let out = !wish.all && inner.is_some_and(|path| ignored.contains(path, stays_folder(change)));
        selection.ignored += usize::from(out && !stays_folder(change));
        wanted.push(!out && (only.is_empty() || hit.is_some()));
    }
    if let Some(at) = met.iter().position(|met| !met) {
        let message = format!("the run changed nothing at {:?}", wish.only[at]);
        return Err(Error::new(ErrorCode::FileNotFound, message).hint("paths count from the working directory"));
    }
    let chosen = |(change, _): &(&Change, &bool)| Change::clone(change);
    let kept = keep_folders(&record.changes, &wanted);
    let changes = record.changes.iter().zip(&kept).filter(|(_, kept)| **kept).map(|pair| chosen(&pair)).collect();
    selection.record = ChangeRecord { changes, truncated: record.truncated };
    Ok(selection)
}

/// Adds the folders on the way to what is wanted, and drops those that are there only for what is not.
fn keep_folders(changes: &[Change], wanted: &[bool]) -> Vec<bool> {
    let mut kept = wanted.to_vec();
    for (at, change) in changes.iter().enumerate().rev() {
        if stays_folder(change) {
            let mut below =
                (at + 1..changes.len()).take_while(|other| changes[*other].is_below(&change.path)).peekable();
            let is_mode = change.before.is_some() && change.after.is_some();
            if below.peek().is_some() && !is_mode {
                kept[at] = below.any(|other| kept[other]);
            }
        }
    }
    kept
}

/// Whether a change is about a folder and nothing else.
fn stays_folder(change: &Change) -> bool {
    [&change.before, &change.after].into_iter().flatten().all(FileState::is_directory)
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// A change that is not brought to the host, or not as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The path of the working folder.
    pub path: String,
    /// What is left out and why, to stand behind the path.
    pub reason: String,
}

/// Changes as they can be applied to a folder.
#[derive(Clone, Debug, Default)]
pub struct ForHost {
    /// The changes, with paths that count from the folder.
    pub changes: Vec<Change>,
    /// What never leaves a sandbox.
    pub left_out: Vec<LeftOut>,
}

/// Turns changes into such that can be applied: only those of the working folder, without devices and the like, without
/// set-user-id bits, and, unless wanted, without links that lead out of the folder.
pub fn for_host(record: &ChangeRecord, outward_links: bool) -> ForHost {
    let mut result = ForHost::default();
    for change in &record.changes {
        let Some(path) = change.path.strip_prefix(WORKING) else { continue };
        let mut change = Change { path: path.to_owned(), ..change.clone() };
        let mut leave_out = |reason: String| result.left_out.push(LeftOut { path: path.to_owned(), reason });
        let Some(after) = &mut change.after else {
            result.changes.push(change);
            continue;
        };
        match &after.kind {
            FileKind::Special => {
                leave_out("is a pipe, a socket or a device".into());
                continue;
            }
            FileKind::Symlink { target } if !outward_links && leads_out(path, target) => {
                leave_out(format!("is a link that leads out of the folder, to {target}; --outward-links brings it"));
                continue;
            }
            _ => {}
        }
        let own = change.before.as_ref().map_or(0, |before| before.mode);
        if after.mode & 0o7000 & !own != 0 {
            leave_out(format!("comes without its special mode bits ({:04o})", after.mode));
        }
        after.mode &= if after.is_directory() { 0o777 | own & 0o7000 } else { 0o777 };
        result.changes.push(change);
    }
    result
}

/// Whether a link at a path leads out of the folder, or could. A way up is followed only at its beginning: behind a name,
/// which may be a link itself, nobody can tell where it leads.
fn leads_out(path: &str, target: &str) -> bool {
    let depth = path.matches('/').count();
    let parts: Vec<&str> = target.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let ups = parts.iter().take_while(|part| **part == "..").count();
    target.starts_with('/') || ups > depth || parts[ups..].contains(&"..")
}

/// The changes that take these back.
pub fn reversed(changes: &[Change]) -> Vec<Change> {
    let turn = |change: &Change| Change {
        path: change.path.clone(),
        before: change.after.clone(),
        after: change.before.clone(),
        obstacle: None,
    };
    changes.iter().map(turn).collect()
}
