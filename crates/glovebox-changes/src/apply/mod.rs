//! Brings changes to a folder of the host, all of them or none.
//!
//! The way of an apply: lock the folder, mend what an earlier one left, look at everything and refuse when the host is
//! not as the run saw it, write all new files beside, and only then change the folder, step by step, with a journal (see
//! `journal`). Each step checks again that it moves what was looked at.

mod applies;
mod journal;
mod plan;

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use glovebox_core::{Change, ChangeSource, Error, ErrorCode, FileKind, Result};
use glovebox_ledger::{Blobs, Sha256Hash};
use jiff::Timestamp;

pub use applies::{Applied, Applies};
pub use journal::JOURNAL_FOLDER;
pub use plan::{Conflict, Plan};

use journal::{Journal, JournalFolder, Step, Stopped};
use plan::{Fill, Planned};

use crate::folder::Folder;

/// A folder that changes can be applied to. Nobody else applies to it while this value lives.
pub struct Target {
    path: PathBuf,
    folder: Folder,
    applies: Applies,
}

/// How an apply that was cut short was mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mended {
    /// What it had done was undone: the folder is as it was before.
    Undone,
    /// It had done everything; only its journal was left.
    Finished,
}

/// How an apply ended that did not fail.
#[derive(Debug)]
pub enum Ended {
    /// Everything was applied.
    Applied,
    /// The folder was changed between the look at it and the change. Nothing was applied.
    Conflicts(Vec<Conflict>),
}

impl Target {
    /// Opens and locks a folder, and mends it when an earlier apply was cut short.
    pub fn open(path: &Path, applies: &Applies) -> Result<(Target, Option<Mended>)> {
        let failed = |what: &str, error| folder_error(path, what, error);
        let canonical = path.canonicalize().map_err(|error| failed("opened", error))?;
        let folder = Folder::open(&canonical).map_err(|error| failed("opened", error))?;
        folder.lock().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                Error::new(ErrorCode::FolderBusy, format!("another apply is at work in {}", path.display()))
                    .hint("wait until it has ended")
            }
            _ => failed("locked", error),
        })?;
        let target = Target { path: canonical, folder, applies: applies.clone() };
        let mended = target.mend()?;
        Ok((target, mended))
    }

    /// The folder, without links in its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes those applies to this folder off the list that did not come to their end.
    fn forget_unfinished(&self) -> Result<()> {
        let unfinished = |applied: &Applied| applied.folder == self.path && !applied.done;
        for applied in self.applies.all()?.into_iter().filter(unfinished) {
            self.applies.remove(&applied.id)?;
        }
        Ok(())
    }

    /// Plans changes, whose paths count from the folder and are sorted.
    pub fn plan(&self, changes: &[Change]) -> Plan {
        plan::make(&self.folder, changes)
    }

    /// Carries a plan out. `undoes` is the apply that this one takes back.
    pub fn carry_out(
        &self,
        plan: Plan,
        source: impl Into<ChangeSource>,
        blobs: &Blobs,
        undoes: Option<&Applied>,
    ) -> Result<Ended> {
        if !plan.conflicts.is_empty() {
            return Ok(Ended::Conflicts(plan.conflicts));
        }
        let applied = Applied {
            id: uuid::Uuid::now_v7().simple().to_string(),
            source: source.into(),
            folder: self.path.clone(),
            at: Timestamp::now(),
            changes: plan.changes,
            undoes: undoes.map(|undone| undone.id.clone()),
            done: false,
        };
        self.applies.write(&applied)?;
        match self.perform(plan.steps, &applied.id, blobs) {
            Ok(None) => Ok(Ended::Applied),
            Ok(Some(conflict)) => {
                self.applies.remove(&applied.id)?;
                Ok(Ended::Conflicts(vec![conflict]))
            }
            // A journal that had to stay needs its entry, so that `gc` finds it.
            Err(error) => {
                if matches!(JournalFolder::find(&self.folder), Ok(None)) {
                    self.applies.remove(&applied.id)?;
                }
                Err(error)
            }
        }
    }

    /// Stages, writes the journal, and does the steps. A conflict that only showed now is given back.
    fn perform(&self, planned: Vec<Planned>, id: &str, blobs: &Blobs) -> Result<Option<Conflict>> {
        let failed = |error| folder_error(&self.path, "written to", error);
        let journal_folder = JournalFolder::make(&self.folder).map_err(failed)?;
        let steps = match stage(&journal_folder, planned, blobs) {
            Ok(steps) => steps,
            Err(error) => {
                journal_folder.remove().map_err(failed)?;
                return Err(match error {
                    StageError::Blob(error) => error,
                    StageError::Folder(error) => failed(error).hint("nothing was changed"),
                });
            }
        };
        let journal = Journal { version: 1, id: id.to_owned(), steps };
        if let Err(error) = journal_folder.write(&journal) {
            journal_folder.remove().map_err(failed)?;
            return Err(failed(error).hint("nothing was changed"));
        }
        match journal_folder.perform_all(&journal.steps) {
            Ok(()) => {
                journal_folder.finish().map_err(failed)?;
                self.applies.finish(id)?;
                journal_folder.remove().map_err(failed)?;
                Ok(None)
            }
            Err(Stopped::Changed { path }) => {
                journal_folder.remove().map_err(failed)?;
                let reason = "was changed on the host at this very moment, or differs from another name only in case";
                Ok(Some(Conflict { path, reason: reason.into() }))
            }
            Err(Stopped::Failed { path, error }) => {
                journal_folder.remove().map_err(failed)?;
                let message = format!("{path} in {} cannot be changed", self.path.display());
                Err(Error::new(ErrorCode::HostIo, message).because(error).hint("nothing was changed"))
            }
            Err(Stopped::Stuck { path, error }) => Err(stuck(&self.path, &path, error)),
        }
    }

    /// Mends what an apply left that was cut short.
    fn mend(&self) -> Result<Option<Mended>> {
        let failed = |error| folder_error(&self.path, "mended after an apply that was cut short", error);
        let Some(found) = JournalFolder::find(&self.folder).map_err(failed)? else {
            return Ok(None);
        };
        if let Some(done) = found.read_done().map_err(failed)? {
            self.applies.finish(&done.id)?;
            found.remove().map_err(failed)?;
            return Ok(Some(Mended::Finished));
        }
        let journal = found.read().map_err(failed)?;
        if let Some(journal) = &journal {
            // A program that can write to the folder can write a journal too, whose steps would be done with our rights. The
            // list is where no program can write.
            if !self.is_listed(&journal.id)? {
                return Err(failed(journal::not_ours()));
            }
            match found.undo_all(&journal.steps) {
                Ok(()) => {}
                Err(Stopped::Stuck { path, error } | Stopped::Failed { path, error }) => {
                    return Err(stuck(&self.path, &path, error));
                }
                Err(Stopped::Changed { path }) => return Err(stuck(&self.path, &path, io::ErrorKind::Other.into())),
            }
        }
        // The entry goes last: without it the journal would not be believed.
        found.remove().map_err(failed)?;
        if let Some(journal) = journal {
            self.applies.remove(&journal.id)?;
        }
        Ok(Some(Mended::Undone))
    }

    fn is_listed(&self, id: &str) -> Result<bool> {
        Ok(self.applies.all()?.iter().any(|applied| applied.id == id && applied.folder == self.path))
    }
}

/// Mends every folder in which an apply was cut short, and says which those were, and which could not be mended.
pub fn mend_all(applies: &Applies) -> Result<Vec<(PathBuf, Result<Mended>)>> {
    let mut mended = Vec::new();
    // What is noted as done may have been cut short while its journal was being removed.
    let folders: BTreeSet<PathBuf> = applies.all()?.into_iter().map(|applied| applied.folder).collect();
    for folder in folders {
        match Target::open(&folder, applies) {
            Ok((target, how)) => {
                mended.extend(how.map(|how| (folder.clone(), Ok(how))));
                // Nobody is at work here, and what left a journal is dealt with: the rest had not begun.
                target.forget_unfinished()?;
            }
            Err(_) if !folder.exists() => {
                for applied in applies.all()?.into_iter().filter(|applied| applied.folder == folder) {
                    applies.remove(&applied.id)?;
                }
            }
            // Whoever is at work there mends it first.
            Err(error) if error.code == ErrorCode::FolderBusy => {}
            Err(error) => mended.push((folder, Err(error))),
        }
    }
    Ok(mended)
}

enum StageError {
    Blob(Error),
    Folder(io::Error),
}

/// Gives the steps their slots, and fills those of new files.
fn stage(folder: &JournalFolder<'_>, planned: Vec<Planned>, blobs: &Blobs) -> Result<Vec<Step>, StageError> {
    let exchanges = folder.can_exchange().map_err(StageError::Folder)?;
    let mut steps = Vec::with_capacity(planned.len());
    for (Planned { mut step, fill }, number) in planned.into_iter().zip((0..).step_by(2)) {
        if let Step::Take { slot, .. } | Step::Put { slot, .. } | Step::Swap { slot, .. } = &mut step {
            *slot = number;
        }
        if let (Some(fill), Step::Put { slot, inode, .. } | Step::Swap { slot, inode, .. }) = (fill, &mut step) {
            *inode = fill_slot(folder, *slot, &fill, blobs)?;
        }
        match step {
            // Where files cannot change places in one call, the former one goes first, to a slot of its own.
            Step::Swap { path, slot, inode, was } if !exchanges => {
                steps.push(Step::Take { path: path.clone(), slot: number + 1, was });
                steps.push(Step::Put { path, slot, inode });
            }
            step => steps.push(step),
        }
    }
    Ok(steps)
}

fn fill_slot(folder: &JournalFolder<'_>, slot: u64, fill: &Fill, blobs: &Blobs) -> Result<u64, StageError> {
    let filled = match &fill.state.kind {
        FileKind::Symlink { target } => folder.stage_link(slot, target, fill.owner),
        FileKind::File { sha256: Some(sha256), .. } => {
            let hash: Sha256Hash = sha256.parse().map_err(|_| {
                StageError::Blob(Error::new(ErrorCode::LedgerDamaged, format!("{sha256:?} is not a SHA-256")))
            })?;
            let content = blobs.open_blob(&hash).map_err(StageError::Blob)?;
            // Neither set-user-id nor its kin ever comes out of a sandbox.
            folder.stage_file(slot, content, fill.state.mode & 0o777, fill.owner)
        }
        _ => Err(io::Error::other("there is nothing to fill a slot with")),
    };
    filled.map_err(StageError::Folder)
}

fn folder_error(path: &Path, what: &str, error: io::Error) -> Error {
    let code = match error.kind() {
        io::ErrorKind::NotFound => ErrorCode::FileNotFound,
        io::ErrorKind::NotADirectory => ErrorCode::NotADirectory,
        _ => ErrorCode::HostIo,
    };
    let error = Error::new(code, format!("the folder {} cannot be {what}", path.display())).because(error);
    match code {
        ErrorCode::FileNotFound => error.hint("make it, or name another with --to DIR"),
        _ => error,
    }
}

fn stuck(folder: &Path, path: &str, error: io::Error) -> Error {
    let message = format!("{path} in {} cannot be put back as it was", folder.display());
    Error::new(ErrorCode::HostIo, message).because(error).hint(format!(
        "the former files are in {}; make the path free and apply again, which goes on with putting back",
        folder.join(JOURNAL_FOLDER).display()
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use glovebox_core::FileState;

    use super::*;

    /// A folder, and changes to it of every kind of step.
    fn bench() -> (tempfile::TempDir, Blobs, Applies, Vec<Change>) {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path().join("blobs")).unwrap();
        let host = dir.path().join("host");
        fs::create_dir_all(host.join("gone/below")).unwrap();
        fs::create_dir(host.join("was_folder")).unwrap();
        for name in ["swapped", "taken", "mode", "gone/below/file", "was_file", "was_folder/file"] {
            fs::write(host.join(name), "old").unwrap();
        }
        let file = |text: &str, mode| {
            let blob = blobs.put(text.as_bytes()).unwrap();
            let kind = FileKind::File { bytes: blob.bytes, sha256: Some(blob.sha256.to_string()), not_kept: None };
            Some(FileState { mode, kind })
        };
        let folder = |mode| Some(FileState { mode, kind: FileKind::Directory });
        let link = || Some(FileState { mode: 0o777, kind: FileKind::Symlink { target: "swapped".into() } });
        let change = |path: &str, before, after| Change { path: path.into(), before, after, obstacle: None };
        let changes = vec![
            change("gone", folder(0o755), None),
            change("gone/below", folder(0o755), None),
            change("gone/below/file", file("old", 0o644), None),
            change("link", None, link()),
            change("made", None, folder(0o555)),
            change("made/file", None, file("new", 0o600)),
            change("mode", file("old", 0o644), file("old", 0o755)),
            change("swapped", file("old", 0o644), file("new", 0o644)),
            change("taken", file("old", 0o644), None),
            change("was_file", file("old", 0o644), folder(0o500)),
            change("was_file/file", None, file("new", 0o644)),
            change("was_folder", folder(0o755), file("new", 0o644)),
            change("was_folder/file", file("old", 0o644), None),
        ];
        let applies = Applies::new(dir.path().join("applies"));
        (dir, blobs, applies, changes)
    }

    /// Notes an apply on the list, as it is before its journal is written.
    fn begin(applies: &Applies, target: &Target) {
        let (folder, at) = (target.path.clone(), Timestamp::now());
        let applied = Applied {
            id: "x".into(),
            source: glovebox_core::RunId::new().into(),
            folder,
            at,
            changes: Vec::new(),
            undoes: None,
            done: false,
        };
        applies.write(&applied).unwrap();
    }

    fn tree(folder: &Path) -> Vec<String> {
        let mut lines = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let facts = fs::symlink_metadata(&path).unwrap();
            lines.push(format!("{path:?} {:?} {:?}", facts.permissions(), fs::read(&path).ok()));
            if facts.is_dir() {
                lines.extend(tree(&path));
            }
        }
        lines.sort();
        lines
    }

    #[test]
    fn an_apply_cut_short_after_any_step_is_undone_and_so_is_an_undoing_that_was_cut_short() {
        let (dir, blobs, applies, changes) = bench();
        let host = dir.path().join("host");
        let before = tree(&host);
        let count = Target::open(&host, &applies).unwrap().0.plan(&changes).steps.len();
        assert_eq!(count, 17, "a kind of step is missing");
        for cut in 0..=count {
            for undone in 0..=cut {
                let (target, _) = Target::open(&host, &applies).unwrap();
                let plan = target.plan(&changes);
                assert!(plan.conflicts.is_empty(), "{:?}", plan.conflicts);
                let journal_folder = JournalFolder::make(&target.folder).unwrap();
                let Ok(steps) = stage(&journal_folder, plan.steps, &blobs) else { panic!("staging failed") };
                let journal = Journal { version: 1, id: "x".into(), steps };
                begin(&applies, &target);
                journal_folder.write(&journal).unwrap();
                for step in &journal.steps[..cut] {
                    assert!(journal_folder.perform(step).is_ok(), "{step:?}");
                }
                // Whoever mends cannot know how far the other came, so it begins with the last step of all.
                assert!(journal_folder.undo_all(&journal.steps[cut - undone..]).is_ok());
                drop(target);
                let (_, mended) = Target::open(&host, &applies).unwrap();
                assert_eq!(mended, Some(Mended::Undone));
                assert_eq!(tree(&host), before, "cut after {cut} steps, {undone} of them undone");
            }
        }
    }

    #[test]
    fn what_cannot_be_put_back_is_kept_and_put_back_as_soon_as_it_can_be() {
        let (dir, blobs, applies, changes) = bench();
        let host = dir.path().join("host");
        let before = tree(&host);
        {
            let (target, _) = Target::open(&host, &applies).unwrap();
            let journal_folder = JournalFolder::make(&target.folder).unwrap();
            let Ok(steps) = stage(&journal_folder, target.plan(&changes).steps, &blobs) else { panic!("no stage") };
            let journal = Journal { version: 1, id: "x".into(), steps };
            begin(&applies, &target);
            journal_folder.write(&journal).unwrap();
            assert!(journal_folder.perform_all(&journal.steps).is_ok());
        }
        fs::write(host.join("taken"), "somebody else's").unwrap();
        let error = Target::open(&host, &applies).err().expect("the place is taken");
        assert_eq!(error.code, ErrorCode::HostIo);
        assert!(error.message.contains("taken") && error.hint.unwrap().contains(JOURNAL_FOLDER));
        assert_eq!(fs::read_to_string(host.join("taken")).unwrap(), "somebody else's");
        fs::remove_file(host.join("taken")).unwrap();
        assert_eq!(Target::open(&host, &applies).unwrap().1, Some(Mended::Undone));
        assert_eq!(tree(&host), before);
    }
}
