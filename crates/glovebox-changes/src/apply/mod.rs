//! Brings changes to a folder of the host, all of them or none.
//!
//! The way of an apply: lock the folder, mend what an earlier one left, look at everything and refuse when the host is
//! not as the run saw it, write all new files beside, and only then change the folder, step by step, with a journal (see
//! `journal`). Each step checks again that it moves what was looked at.

mod applies;
mod journal;
mod plan;

use std::{
    io,
    path::{Path, PathBuf},
};

use glovebox_core::{Change, Error, ErrorCode, FileKind, Result, RunId};
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
                Error::new(ErrorCode::HostIo, format!("another apply is at work in {}", path.display()))
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

    /// Plans changes, whose paths count from the folder and are sorted.
    pub fn plan(&self, changes: &[Change]) -> Plan {
        plan::make(&self.folder, changes)
    }

    /// Carries a plan out. `undoes` is the apply that this one takes back.
    pub fn carry_out(&self, plan: Plan, run: RunId, blobs: &Blobs, undoes: Option<&Applied>) -> Result<Ended> {
        if !plan.conflicts.is_empty() {
            return Ok(Ended::Conflicts(plan.conflicts));
        }
        let applied = Applied {
            id: uuid::Uuid::now_v7().simple().to_string(),
            run,
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
        if let Some(journal) = found.read().map_err(failed)? {
            match found.undo_all(&journal.steps) {
                Ok(()) => self.applies.remove(&journal.id)?,
                Err(Stopped::Stuck { path, error } | Stopped::Failed { path, error }) => {
                    return Err(stuck(&self.path, &path, error));
                }
                Err(Stopped::Changed { path }) => return Err(stuck(&self.path, &path, io::ErrorKind::Other.into())),
            }
        }
        found.remove().map_err(failed)?;
        Ok(Some(Mended::Undone))
    }
}

/// Mends every folder in which an apply was cut short, and says which those were.
pub fn mend_all(applies: &Applies) -> Result<Vec<(PathBuf, Mended)>> {
    let mut mended = Vec::new();
    for applied in applies.all()?.into_iter().filter(|applied| !applied.done) {
        match Target::open(&applied.folder, applies) {
            Ok((target, how)) => {
                mended.extend(how.map(|how| (target.path.clone(), how)));
                // What left no journal had not begun, and what did is dealt with.
                if let Some(left) = applies.all()?.into_iter().find(|left| left.id == applied.id && !left.done) {
                    applies.remove(&left.id)?;
                }
            }
            // A folder that is gone needs no mending; one that is in use is mended by its user.
            Err(_) if !applied.folder.exists() => applies.remove(&applied.id)?,
            Err(_) => {}
        }
    }
    Ok(mended)
}

enum StageError {
    Blob(Error),
    Folder(io::Error),
}

/// Fills the slots.
fn stage(folder: &JournalFolder<'_>, planned: Vec<Planned>, blobs: &Blobs) -> Result<Vec<Step>, StageError> {
    let mut steps = Vec::with_capacity(planned.len());
    for Planned { mut step, fill } in planned {
        if let (Some(fill), Step::Put { slot, inode, .. } | Step::Swap { slot, inode, .. }) = (fill, &mut step) {
            *inode = fill_slot(folder, *slot, &fill, blobs)?;
        }
        steps.push(step);
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
    Error::new(code, format!("the folder {} cannot be {what}", path.display())).because(error)
}

fn stuck(folder: &Path, path: &str, error: io::Error) -> Error {
    let message = format!("{path} in {} cannot be put back as it was", folder.display());
    Error::new(ErrorCode::HostIo, message).because(error).hint(format!(
        "the former files are in {}; make the path free and apply again, which goes on with putting back",
        folder.join(JOURNAL_FOLDER).display()
    ))
}
