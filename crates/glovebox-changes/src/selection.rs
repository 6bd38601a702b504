//! From a record to the changes that are to be shown or applied.

use std::path::Path;

use glovebox_core::{Change, ChangeRecord, Error, ErrorCode, FileKind, FileState, Result};
use glovebox_ledger::Blobs;
use serde::Serialize;

use crate::ignored::{Ignored, Why};

/// What stands before the paths of the working folder in a record.
pub const WORKING: &str = "agent_workspace/";

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
    /// How many files were left out because they are Git's own.
    pub of_git: usize,
}

/// Takes what is wanted from a record. `host` is the folder of the host that the working folder showed.
pub fn select(record: &ChangeRecord, wish: Wish<'_>, blobs: &Blobs, host: Option<&Path>) -> Result<Selection> {
    let only: Vec<&str> = wish.only.iter().map(|path| path.trim_start_matches("./").trim_end_matches('/')).collect();
    let mut ignored = Ignored::new(record, WORKING, blobs, host);
    let (mut by_rule, mut of_git) = (0, 0);
    let mut met = vec![false; only.len()];
    let record = narrow(record, |change| {
        let path = change.path.strip_prefix(WORKING);
        let hits = |only: &&str| path.is_some_and(|path| path == *only || *only == "." || is_below(path, only));
        for (met, _) in met.iter_mut().zip(&only).filter(|(_, only)| hits(only)) {
            *met = true;
        }
        let wanted = only.is_empty() || only.iter().any(hits);
        match path.filter(|_| wanted && !wish.all).and_then(|path| ignored.why(path, stays_folder(change))) {
            None => return wanted,
            Some(Why::Rule) => by_rule += usize::from(!stays_folder(change)),
            Some(Why::Git) => of_git += usize::from(!stays_folder(change)),
        }
        false
    });
    if let Some(at) = met.iter().position(|met| !met) {
        let message = format!("the run changed nothing at {:?}", wish.only[at]);
        return Err(Error::new(ErrorCode::FileNotFound, message)
            .hint("paths count from this folder, or from the workspace; glovebox changes --summary lists them"));
    }
    Ok(Selection { record, ignored: by_rule, of_git })
}

/// Takes the changes that somebody wants. Folders that come or go are taken along with what is in them; for an empty one,
/// and for one whose mode changed, somebody is asked.
pub fn narrow(record: &ChangeRecord, wanted: impl FnMut(&Change) -> bool) -> ChangeRecord {
    let changes = &record.changes;
    let mut kept: Vec<bool> = changes.iter().map(wanted).collect();
    for (at, change) in changes.iter().enumerate().rev() {
        let only_mode = change.before.is_some() && change.after.is_some();
        let mut below = (at + 1..changes.len()).take_while(|other| changes[*other].is_below(&change.path)).peekable();
        if stays_folder(change) && !only_mode && below.peek().is_some() {
            kept[at] = below.any(|other| kept[other]);
        }
    }
    let changes = changes.iter().zip(kept).filter(|(_, kept)| *kept).map(|(change, _)| change.clone());
    ChangeRecord { changes: changes.collect(), truncated: record.truncated }
}

/// Whether a change is about a folder and nothing else.
pub fn stays_folder(change: &Change) -> bool {
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

/// What becomes of links that lead out of the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutwardLinks {
    /// They are brought as they are.
    Bring,
    /// They are left out; the text says what whoever asked can do about it.
    LeaveOut(&'static str),
}

/// Turns changes into such that can be applied: only those of the working folder, without devices and the like, without
/// set-user-id bits, and, unless wanted, without links that lead out of the folder.
pub fn for_host(record: &ChangeRecord, outward_links: OutwardLinks) -> ForHost {
    let mut result = ForHost::default();
    for change in &record.changes {
        let Some(path) = change.path.strip_prefix(WORKING) else { continue };
        let mut change = Change { path: path.to_owned(), ..change.clone() };
        let mut leave_out = |reason: String| result.left_out.push(LeftOut { path: path.to_owned(), reason });
        let Some(after) = &mut change.after else {
            result.changes.push(change);
            continue;
        };
        match (&after.kind, outward_links) {
            (FileKind::Special, _) => {
                leave_out("is left out: a pipe, a socket or a device".into());
                continue;
            }
            (FileKind::Symlink { target }, OutwardLinks::LeaveOut(hint)) if leads_out(path, target) => {
                leave_out(format!("is left out: a link that leads out of the folder, to {target}; {hint}"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Bench {
        dir: tempfile::TempDir,
        blobs: Blobs,
        record: ChangeRecord,
    }

    impl Bench {
        /// A record of new files; a path that ends with `/` is a folder.
        fn new(files: &[(&str, &str)]) -> Bench {
            let dir = tempfile::tempdir().unwrap();
            let blobs = Blobs::open(dir.path().join("blobs")).unwrap();
            let mut record = ChangeRecord::default();
            for (path, text) in files {
                let blob = blobs.put(text.as_bytes()).unwrap();
                let file = FileKind::File { bytes: blob.bytes, sha256: Some(blob.sha256.to_string()), not_kept: None };
                let kind = if path.ends_with('/') { FileKind::Directory } else { file };
                let path = path.trim_end_matches('/').to_owned();
                let after = Some(FileState { mode: 0o644, kind });
                record.changes.push(Change { path, before: None, after, obstacle: None });
            }
            record.sort();
            Bench { dir, blobs, record }
        }

        /// The paths that are chosen, and how many are left out by a rule or for being Git's.
        fn chosen(&self, wish: Wish<'_>) -> Result<(Vec<String>, (usize, usize))> {
            let selection = select(&self.record, wish, &self.blobs, Some(&self.dir.path().join("host")))?;
            let paths = selection.record.changes.into_iter().map(|change| change.path).collect();
            Ok((paths, (selection.ignored, selection.of_git)))
        }
    }

    #[test]
    fn the_rules_of_the_host_and_of_the_run_leave_files_out() {
        let bench = Bench::new(&[
            ("agent_workspace/a.log", ""),
            ("agent_workspace/keep.log", ""),
            ("agent_workspace/node_modules/", ""),
            ("agent_workspace/node_modules/x/", ""),
            ("agent_workspace/node_modules/x/index.js", ""),
            ("agent_workspace/sub/", ""),
            ("agent_workspace/sub/.gitignore", "/only_here\n!a.log\n"),
            ("agent_workspace/sub/only_here", ""),
            ("agent_workspace/sub/a.log", ""),
            ("agent_workspace/sub/deep/", ""),
            ("agent_workspace/sub/deep/only_here", ""),
            ("outputs/a.log", ""),
        ]);
        fs::create_dir(bench.dir.path().join("host")).unwrap();
        fs::write(bench.dir.path().join("host/.gitignore"), "*.log\n!keep.log\nnode_modules/\n").unwrap();
        let (paths, ignored) = bench.chosen(Wish::default()).unwrap();
        assert_eq!(
            paths,
            [
                "agent_workspace/keep.log",
                "agent_workspace/sub",
                "agent_workspace/sub/.gitignore",
                "agent_workspace/sub/a.log",
                "agent_workspace/sub/deep",
                "agent_workspace/sub/deep/only_here",
                "outputs/a.log",
            ]
        );
        assert_eq!(ignored, (3, 0));
        assert_eq!(bench.chosen(Wish { all: true, only: &[] }).unwrap().0.len(), 12);
    }

    #[test]
    fn what_belongs_to_git_itself_is_left_out_at_any_depth_and_in_any_case() {
        let bench = Bench::new(&[
            ("agent_workspace/.git/hooks/pre-commit", "evil"),
            ("agent_workspace/sub/.GIT/config", "evil"),
            ("agent_workspace/.gitattributes", ""),
        ]);
        let (paths, ignored) = bench.chosen(Wish::default()).unwrap();
        assert_eq!((paths, ignored), (vec!["agent_workspace/.gitattributes".to_owned()], (0, 2)));
    }

    #[test]
    fn only_some_paths_can_be_wanted_and_one_that_is_not_there_is_named() {
        let bench = Bench::new(&[
            ("agent_workspace/a", ""),
            ("agent_workspace/src/", ""),
            ("agent_workspace/src/b", ""),
            ("agent_workspace/src/deep/", ""),
            ("agent_workspace/src/deep/c", ""),
            ("agent_workspace/srcfile", ""),
        ]);
        let only = |paths: &[&str]| {
            let only: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
            bench.chosen(Wish { all: false, only: &only }).map(|(paths, _)| paths)
        };
        assert_eq!(only(&["./src/deep/"]).unwrap().len(), 3, "its folders come along");
        assert_eq!(only(&["src"]).unwrap().len(), 4);
        assert_eq!(only(&["."]).unwrap().len(), 6);
        assert!(only(&["a", "nothing"]).unwrap_err().message.contains("nothing"));
    }
}
