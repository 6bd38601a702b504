//! From changes to steps, or to the reasons why not. Looks at the folder, and changes nothing.

use std::{
    collections::{BTreeSet, HashSet},
    io,
};

use glovebox_core::{Change, FileKind, FileState, Obstacle};
use rustix::{
    fs::{FileType, Stat},
    io::Errno,
};
use serde::Serialize;

use super::journal::{Identity, JOURNAL_FOLDER, Step};
use crate::folder::{Folder, Seen};

/// Why a change cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// The path below the folder.
    pub path: String,
    /// The reason, to stand behind the path.
    pub reason: String,
}

/// What an apply would do.
#[derive(Debug, Default)]
pub struct Plan {
    /// The changes that it would make.
    pub changes: Vec<Change>,
    /// What stands in its way; when there is anything, nothing is applied.
    pub conflicts: Vec<Conflict>,
    /// Paths that are already as they should be.
    pub already: Vec<String>,
    /// Folders that should go but hold something that is no part of the change set, so they stay.
    pub kept_folders: Vec<String>,
    pub(super) steps: Vec<Planned>,
}

/// A step without its slot, and what that is to be filled with.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) step: Step,
    pub(super) fill: Option<Fill>,
}

#[derive(Debug)]
pub(super) struct Fill {
    pub(super) state: FileState,
    pub(super) owner: (u32, u32),
}

/// Looks at a folder and plans what is to be done to it. The changes are sorted by path.
pub(super) fn make(folder: &Folder, changes: &[Change]) -> Plan {
    let mut planner = Planner { folder, plan: Plan::default(), parts: Parts::default(), writable: HashSet::new() };
    for change in changes {
        if let Err(reason) = planner.add(change) {
            planner.plan.conflicts.push(Conflict { path: change.path.clone(), reason });
        }
    }
    planner.finish()
}

/// Steps by what they do, because that decides their order.
#[derive(Default)]
struct Parts {
    opened: Vec<Planned>,
    takes: Vec<Planned>,
    removed_folders: Vec<RemovedFolder>,
    made_folders: Vec<Planned>,
    puts: Vec<Planned>,
    modes: Vec<Planned>,
}

/// A folder that goes, if nothing else is in it.
struct RemovedFolder {
    change: Change,
    stat: Stat,
    /// Its mode while it is being emptied.
    open: u32,
}

struct Planner<'a> {
    folder: &'a Folder,
    plan: Plan,
    parts: Parts,
    /// Folders that can be written to when it is their turn: new ones, and those that are opened first.
    writable: HashSet<String>,
}

impl Planner<'_> {
    fn add(&mut self, change: &Change) -> Result<(), String> {
        check_path(&change.path)?;
        // What stands at a name that is only nearly the right one says nothing.
        match change.obstacle {
            Some(Obstacle::NameNotUtf8) => return Err("has a name that is not UTF-8".into()),
            Some(Obstacle::NameHoldsSecret) => return Err("has a name that holds the value of a --secret".into()),
            Some(Obstacle::ChangedMeanwhile) | None => {}
        }
        let seen = self.folder.look(&change.path).map_err(explain)?;
        if self.is_as_wanted(change, seen.as_ref())? {
            self.plan.already.push(change.path.clone());
            return Ok(());
        }
        self.check_before(change, seen.as_ref())?;
        if let Some(FileState { kind: FileKind::File { sha256: None, not_kept, .. }, .. }) = &change.after {
            return Err(format!(
                "has content that was not kept: {}",
                not_kept.map_or("nobody asked", |why| why.reason())
            ));
        }
        // A mode is the file's own affair; whatever else is changed is an entry of its folder.
        if !changes_mode_only(change) {
            self.check_parent(change)?;
        }
        self.plan.changes.push(change.clone());
        match (seen, &change.after) {
            (Some(seen), Some(after)) => self.replace(change, &seen, after),
            (Some(seen), None) if is_folder(&seen) => {
                self.remove_folder(change, &seen);
                Ok(())
            }
            (Some(seen), None) => {
                self.take(&change.path, &seen);
                Ok(())
            }
            (None, Some(after)) => self.bring(&change.path, after),
            (None, None) => Ok(()),
        }
    }

    /// Whether there is nothing left to do.
    fn is_as_wanted(&self, change: &Change, seen: Option<&Seen>) -> Result<bool, String> {
        Ok(match (seen, &change.after) {
            (None, None) => true,
            // A folder that somebody has made already is there; its mode is theirs.
            (Some(seen), Some(after)) if change.before.is_none() && after.is_directory() => is_folder(seen),
            (Some(seen), Some(after)) => self.folder.is_in(&change.path, seen, after).map_err(explain)?,
            _ => false,
        })
    }

    /// Makes sure that the host is as the run saw it.
    fn check_before(&self, change: &Change, seen: Option<&Seen>) -> Result<(), String> {
        if change.obstacle == Some(Obstacle::ChangedMeanwhile) {
            return Err("was changed on the host while the run lasted".into());
        }
        let (before, seen) = match (&change.before, seen) {
            (None, None) => return Ok(()),
            (None, Some(_)) => return Err("is there already, and it is another".into()),
            (Some(_), None) => return Err("is no longer there".into()),
            (Some(before), Some(seen)) => (before, seen),
        };
        if let FileKind::File { sha256: None, not_kept, .. } = &before.kind {
            let why = not_kept.map_or("nobody asked", |why| why.reason());
            return Err(format!("had content that was not kept ({why}), so it cannot be compared"));
        }
        // A folder that goes, or that a file takes the place of, may have any mode.
        let only_kind = before.is_directory() && !change.after.as_ref().is_some_and(FileState::is_directory);
        let same = match only_kind {
            true => is_folder(seen),
            false => self.folder.is_in(&change.path, seen, before).map_err(explain)?,
        };
        if same { Ok(()) } else { Err("was changed on the host since then".into()) }
    }

    fn check_parent(&self, change: &Change) -> Result<(), String> {
        let parent = change.path.rsplit_once('/').map(|(parent, _)| parent);
        if parent.is_some_and(|parent| self.writable.contains(parent)) {
            return Ok(());
        }
        match self.folder.can_write_beside(&change.path) {
            Ok(true) => Ok(()),
            Ok(false) => Err("lies in a folder that cannot be written to".into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err("lies in a folder that is not there".into()),
            Err(error) => Err(explain(error)),
        }
    }

    fn replace(&mut self, change: &Change, seen: &Seen, after: &FileState) -> Result<(), String> {
        let path = &change.path;
        let from = seen.stat.st_mode & 0o7777;
        match (is_folder(seen), after.is_directory()) {
            (true, true) => {
                let open = self.open_folder(path, seen);
                // The bits beyond the permissions are the host's own.
                self.set_mode(path, true, open, from & 0o7000 | after.mode & 0o777);
                Ok(())
            }
            (true, false) => {
                self.remove_folder(change, seen);
                self.bring(path, after)
            }
            (false, true) => {
                self.take(path, seen);
                self.bring(path, after)
            }
            (false, false) if changes_mode_only(change) => {
                match after.kind {
                    FileKind::File { .. } => self.set_mode(path, false, from, after.mode & 0o777),
                    // A link has no mode of its own.
                    _ => return Ok(()),
                }
                Ok(())
            }
            (false, false) => {
                let step = Step::Swap { path: path.clone(), slot: 0, inode: 0, was: Identity::of(&seen.stat) };
                let owner = (seen.stat.st_uid, seen.stat.st_gid);
                let fill = Some(Fill { state: after.clone(), owner });
                self.parts.puts.push(Planned { step, fill });
                Ok(())
            }
        }
    }

    /// Plans something new, where nothing is or will be.
    fn bring(&mut self, path: &str, after: &FileState) -> Result<(), String> {
        let owner = self.folder.owner_beside(path).map_err(explain)?;
        match &after.kind {
            FileKind::Special => return Err("is neither a file nor a link nor a folder".into()),
            FileKind::Directory => {
                self.writable.insert(path.to_owned());
                // Until everything is in it, it can be written to.
                let (path, mode) = (path.to_owned(), after.mode & 0o777);
                if mode & 0o700 != 0o700 {
                    self.set_mode(&path, true, mode | 0o700, mode);
                }
                let step = Step::MakeFolder { path, mode: mode | 0o700, owner };
                self.parts.made_folders.push(Planned { step, fill: None });
            }
            FileKind::File { .. } | FileKind::Symlink { .. } => {
                let step = Step::Put { path: path.to_owned(), slot: 0, inode: 0 };
                self.parts.puts.push(Planned { step, fill: Some(Fill { state: after.clone(), owner }) });
            }
        }
        Ok(())
    }

    /// Plans that a folder of the caller's which is closed to them is opened before anything in it is changed. Gives the
    /// mode that it has then. A program inside that changed something there opened it too.
    fn open_folder(&mut self, path: &str, seen: &Seen) -> u32 {
        let mode = seen.stat.st_mode & 0o7777;
        let me = rustix::process::geteuid();
        if mode & 0o700 == 0o700 || !(me.is_root() || me.as_raw() == seen.stat.st_uid) {
            return mode;
        }
        self.writable.insert(path.to_owned());
        let step = Step::SetMode { path: path.to_owned(), folder: true, from: mode, to: mode | 0o700 };
        self.parts.opened.push(Planned { step, fill: None });
        mode | 0o700
    }

    fn remove_folder(&mut self, change: &Change, seen: &Seen) {
        let open = self.open_folder(&change.path, seen);
        self.parts.removed_folders.push(RemovedFolder { change: change.clone(), stat: seen.stat, open });
    }

    fn take(&mut self, path: &str, seen: &Seen) {
        let step = Step::Take { path: path.to_owned(), slot: 0, was: Identity::of(&seen.stat) };
        self.parts.takes.push(Planned { step, fill: None });
    }

    fn set_mode(&mut self, path: &str, folder: bool, from: u32, to: u32) {
        if from != to {
            let step = Step::SetMode { path: path.to_owned(), folder, from, to };
            self.parts.modes.push(Planned { step, fill: None });
        }
    }

    /// Puts the steps in their order: folders are opened first; files go before their folders, folders come before their
    /// files, and modes are set at last, the deepest first.
    fn finish(mut self) -> Plan {
        let mut gone: BTreeSet<String> = self.parts.takes.iter().map(|take| take.step.path().to_owned()).collect();
        let mut removed = Vec::new();
        for RemovedFolder { change, stat, open } in std::mem::take(&mut self.parts.removed_folders).into_iter().rev() {
            let holds_others = self
                .folder
                .names(&change.path)
                .map(|names| names.iter().any(|name| !gone.contains(&format!("{}/{name}", change.path))));
            match (holds_others, &change.after) {
                (Ok(false), _) => {
                    gone.insert(change.path.clone());
                    let owner = (stat.st_uid, stat.st_gid);
                    let step = Step::RemoveFolder { path: change.path, mode: open, owner };
                    removed.push(Planned { step, fill: None });
                }
                (Ok(true), None) => {
                    self.plan.changes.retain(|planned| planned.path != change.path);
                    self.set_mode(&change.path, true, open, stat.st_mode & 0o7777);
                    self.plan.kept_folders.push(change.path);
                }
                (Ok(true), Some(_)) => {
                    let reason = "is a folder that holds something which is no part of the changes".into();
                    self.plan.conflicts.push(Conflict { path: change.path, reason });
                }
                (Err(error), _) => self.plan.conflicts.push(Conflict { path: change.path, reason: explain(error) }),
            }
        }
        self.parts.modes.sort_by(|a, b| b.step.path().cmp(a.step.path()));
        let Parts { opened, takes, made_folders, puts, modes, .. } = self.parts;
        let steps = opened.into_iter().chain(takes).chain(removed).chain(made_folders).chain(puts).chain(modes);
        self.plan.steps = steps.collect();
        self.plan
    }
}

fn is_folder(seen: &Seen) -> bool {
    FileType::from_raw_mode(seen.stat.st_mode) == FileType::Directory
}

fn changes_mode_only(change: &Change) -> bool {
    matches!((&change.before, &change.after), (Some(before), Some(after)) if before.kind == after.kind)
}

/// Paths come from inside. The kernel keeps them below the folder; what it would take but nobody means is refused here.
fn check_path(path: &str) -> Result<(), String> {
    let bad_part = |part: &str| part.is_empty() || part == "." || part == ".." || part.contains('\0');
    if path.split('/').any(bad_part) {
        return Err("is no path below the folder".into());
    }
    if path.split('/').next().is_some_and(|part| part.eq_ignore_ascii_case(JOURNAL_FOLDER)) {
        return Err("is the place of the journal".into());
    }
    Ok(())
}

/// What stands in the way, in words.
fn explain(error: io::Error) -> String {
    match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => "lies behind a link".into(),
        Some(Errno::XDEV) => "lies on another file system".into(),
        Some(Errno::NOTDIR) => "lies behind something that is no folder".into(),
        _ => format!("cannot be looked at: {error}"),
    }
}
