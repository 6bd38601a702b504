//! Applying change sets to real folders: what comes out, what is refused, and what a crash leaves.

mod as_user;
mod conflicts;
mod crashes;
mod hostile;
mod ordinary;

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use glovebox_changes::{Applies, Conflict, Ended, ForHost, Mended, OutwardLinks, Plan, Target, for_host, reversed};
use glovebox_core::{Change, ChangeRecord, FileKind, FileState, Result, RunId};
use glovebox_ledger::Blobs;
use tempfile::TempDir;

/// A host folder, the same folder as a sandbox left it, and the stores that an apply needs.
struct Bench {
    dir: TempDir,
    blobs: Blobs,
    applies: Applies,
    run: RunId,
}

impl Bench {
    /// Both folders hold the same files.
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path().join("blobs")).unwrap();
        let applies = Applies::new(dir.path().join("applies"));
        let bench = Bench { dir, blobs, applies, run: RunId::new() };
        for root in [bench.host(), bench.inside()] {
            fs::create_dir_all(root.join("src/deep")).unwrap();
            for (name, text) in
                [("a", "one\n"), ("b", "two\n"), ("src/c", "three\n"), ("src/deep/d", "four\n"), ("script", "#!\n")]
            {
                fs::write(root.join(name), text).unwrap();
            }
            symlink("a", root.join("link")).unwrap();
        }
        bench
    }

    fn host(&self) -> PathBuf {
        self.dir.path().join("host")
    }

    fn inside(&self) -> PathBuf {
        self.dir.path().join("inside")
    }

    /// The record that a run would have left which made `inside` out of `host`.
    fn record(&self) -> ChangeRecord {
        let mut record = ChangeRecord::default();
        let mut paths = paths_below(&self.host());
        paths.extend(paths_below(&self.inside()));
        paths.sort();
        paths.dedup();
        for path in paths {
            let before = self.state(&self.host().join(&path));
            let after = self.state(&self.inside().join(&path));
            if before != after {
                record.changes.push(Change { path: format!("agent_workspace/{path}"), before, after, obstacle: None });
            }
        }
        record.sort();
        record
    }

    fn state(&self, path: &Path) -> Option<FileState> {
        let facts = fs::symlink_metadata(path).ok()?;
        let kind = if facts.is_dir() {
            FileKind::Directory
        } else if facts.is_symlink() {
            FileKind::Symlink { target: fs::read_link(path).unwrap().to_str().unwrap().into() }
        } else if facts.is_file() {
            let blob = self.blobs.put(fs::File::open(path).unwrap()).unwrap();
            FileKind::File { bytes: blob.bytes, sha256: Some(blob.sha256.to_string()), not_kept: None }
        } else {
            FileKind::Special
        };
        Some(FileState { mode: facts.mode() & 0o7777, kind })
    }

    fn changes(&self) -> Vec<Change> {
        let ForHost { changes, .. } = for_host(&self.record(), OutwardLinks::LeaveOut(""));
        changes
    }

    fn open(&self) -> (Target, Option<Mended>) {
        Target::open(&self.host(), &self.applies).unwrap()
    }

    /// Plans and applies.
    fn apply(&self, changes: &[Change]) -> Result<Ended> {
        let (target, _) = self.open();
        let plan = target.plan(changes);
        target.carry_out(plan, self.run, &self.blobs, None)
    }

    #[track_caller]
    fn apply_all(&self) {
        let ended = self.apply(&self.changes()).unwrap();
        assert!(matches!(ended, Ended::Applied), "{ended:?}");
    }

    /// Undoes the last apply.
    fn reverse(&self) -> Result<Ended> {
        let last = self.applies.last(|_| true).unwrap().expect("something was applied");
        let (target, _) = self.open();
        let plan = target.plan(&reversed(&last.changes));
        target.carry_out(plan, last.source, &self.blobs, Some(&last))
    }

    /// The conflicts of a plan that must have some, after which the folder is untouched.
    #[track_caller]
    fn refused(&self, changes: &[Change]) -> Vec<Conflict> {
        let before = tree(&self.host());
        let conflicts = match self.apply(changes).unwrap() {
            Ended::Conflicts(conflicts) => conflicts,
            Ended::Applied => panic!("it was applied"),
        };
        assert_eq!(tree(&self.host()), before, "a refused apply changed something");
        assert!(!conflicts.is_empty());
        conflicts
    }
}

/// Every path below a folder, relative to it.
fn paths_below(root: &Path) -> Vec<String> {
    let mut paths = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if fs::symlink_metadata(&path).unwrap().is_dir() {
                open.push(path.clone());
            }
            paths.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
    }
    paths
}

/// Everything below a folder: kinds, modes, contents, targets.
fn tree(root: &Path) -> Vec<String> {
    let mut lines: Vec<String> = paths_below(root)
        .into_iter()
        .map(|path| {
            let full = root.join(&path);
            let facts = fs::symlink_metadata(&full).unwrap();
            let content = match () {
                () if facts.is_symlink() => format!("-> {}", fs::read_link(&full).unwrap().display()),
                () if facts.is_file() => String::from_utf8_lossy(&fs::read(&full).unwrap()).into_owned(),
                () => String::new(),
            };
            format!("{path} {:o} {content:?}", facts.mode())
        })
        .collect();
    lines.sort();
    lines
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn paths(plan: &Plan) -> Vec<&str> {
    plan.changes.iter().map(|change| change.path.as_str()).collect()
}

/// Makes changes of every kind inside.
fn change_everything(inside: &Path) {
    fs::write(inside.join("a"), "changed\n").unwrap();
    fs::remove_file(inside.join("b")).unwrap();
    fs::write(inside.join("new"), "new\n").unwrap();
    fs::create_dir_all(inside.join("made/below")).unwrap();
    fs::write(inside.join("made/below/file"), "x").unwrap();
    fs::create_dir(inside.join("empty")).unwrap();
    fs::remove_dir_all(inside.join("src/deep")).unwrap();
    fs::write(inside.join("src/deep"), "a file now").unwrap();
    fs::remove_file(inside.join("src/c")).unwrap();
    fs::create_dir(inside.join("src/c")).unwrap();
    fs::write(inside.join("src/c/inner"), "below what was a file").unwrap();
    fs::remove_file(inside.join("link")).unwrap();
    symlink("new", inside.join("link")).unwrap();
    symlink("../a", inside.join("made/up")).unwrap();
    set_mode(&inside.join("script"), 0o755);
    set_mode(&inside.join("made"), 0o550);
}
