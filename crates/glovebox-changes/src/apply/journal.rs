//! The journal: how a folder gets whole again when an apply was cut short.
//!
//! Theory of operation. Everything that an apply needs lies in one folder next to what it describes, [`JOURNAL_FOLDER`]
//! in the folder that is changed, on the same file system, so that a rename is all it takes. First every new file is
//! written there, under a number: its slot. Then the list of steps is written as the file `journal`. Only now is
//! anything changed, step by step, and each step is one atomic call that loses nothing: a file that goes is moved into
//! its slot, a file that is replaced changes places with its slot. When the last step is done, `journal` is renamed to
//! `done`, and the journal folder is removed.
//!
//! So whoever finds a journal folder knows what to do: with `done` in it everything has happened, and only the folder
//! goes; with `journal` in it the steps are undone, last one first; with neither nothing has happened yet. Undoing looks
//! at what is there rather than at how far somebody came, so it can itself be cut short and begun again.
//!
//! The slot of a step that was undone holds what it held at first. Nothing that stood in the folder is ever removed
//! before `done`.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat, renameat_with},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use crate::folder::{Folder, give, open_below};

/// The folder that an apply keeps its journal in, while it lasts.
pub const JOURNAL_FOLDER: &str = ".glovebox-apply";
const JOURNAL: &str = "journal";
const UNFINISHED: &str = "journal.new";
const DONE: &str = "done";
/// Git must not offer what a crash left here for a commit.
const IGNORE: &str = ".gitignore";
/// A journal is read before it is known to be ours.
const LONGEST: u64 = 256 << 20;

/// What is to be done, as it stands in the journal.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Journal {
    /// The number of this form of journal.
    pub(super) version: u32,
    /// The entry of the list of applies.
    pub(super) id: String,
    pub(super) steps: Vec<Step>,
}

/// One atomic change of the folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(super) enum Step {
    /// Moves a file or link into its slot.
    Take {
        path: String,
        slot: u64,
        was: Identity,
    },
    /// Moves a new file or link out of its slot, to where nothing is.
    Put {
        path: String,
        slot: u64,
        inode: u64,
    },
    /// Lets a new file or link change places with the former one.
    Swap {
        path: String,
        slot: u64,
        inode: u64,
        was: Identity,
    },
    MakeFolder {
        path: String,
        mode: u32,
        owner: (u32, u32),
    },
    RemoveFolder {
        path: String,
        mode: u32,
        owner: (u32, u32),
    },
    SetMode {
        path: String,
        folder: bool,
        from: u32,
        to: u32,
    },
}

/// What a file is known by again after it was moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    mode: u32,
    bytes: i64,
    modified: (i64, i64),
}

impl Identity {
    pub(super) fn of(stat: &Stat) -> Self {
        let modified = (stat.st_mtime, stat.st_mtime_nsec as i64);
        Identity { mode: stat.st_mode, bytes: stat.st_size, modified }
    }
}

/// Why a step was not done.
#[derive(Debug)]
pub(super) enum Stopped {
    /// Something else stands there than when it was looked at.
    Changed {
        path: String,
    },
    Failed {
        path: String,
        error: io::Error,
    },
    /// Neither this step nor what came before it could be undone; the journal must stay.
    Stuck {
        path: String,
        error: io::Error,
    },
}

/// A journal folder that is not to be believed.
pub(super) fn not_ours() -> io::Error {
    io::Error::other(format!(
        "{JOURNAL_FOLDER} in the folder was not made by an apply of yours; look at it and remove it"
    ))
}

/// The journal folder of a folder that changes are applied to.
pub(super) struct JournalFolder<'a> {
    folder: &'a Folder,
    fd: OwnedFd,
}

impl<'a> JournalFolder<'a> {
    /// Makes a journal folder where there is none.
    pub(super) fn make(folder: &'a Folder) -> io::Result<Self> {
        rustix::fs::mkdirat(folder.fd(), JOURNAL_FOLDER, Mode::RWXU)?;
        let found = Self::open(folder)?.ok_or(io::ErrorKind::NotFound)?;
        found.new_file(IGNORE)?.write_all(b"*\n")?;
        Ok(found)
    }

    /// The journal folder that an apply left, if there is one.
    pub(super) fn find(folder: &'a Folder) -> io::Result<Option<Self>> {
        let Some(found) = Self::open(folder)? else { return Ok(None) };
        // A folder that somebody else made, or that came with a repository, is not to be believed.
        let stat = rustix::fs::fstat(&found.fd)?;
        if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o777 != 0o700 {
            return Err(not_ours());
        }
        Ok(Some(found))
    }

    fn open(folder: &'a Folder) -> io::Result<Option<Self>> {
        match open_below(folder.fd(), JOURNAL_FOLDER, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(fd) => Ok(Some(JournalFolder { folder, fd })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether two files can change places here. Most file systems can; network ones often cannot.
    pub(super) fn can_exchange(&self) -> io::Result<bool> {
        const PROBE: &str = "probe";
        self.new_file(PROBE)?;
        let exchange = || renameat_with(&self.fd, PROBE, &self.fd, IGNORE, RenameFlags::EXCHANGE);
        let can = match exchange() {
            Ok(()) => exchange().map(|()| true)?,
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => false,
            Err(error) => return Err(error.into()),
        };
        rustix::fs::unlinkat(&self.fd, PROBE, AtFlags::empty())?;
        Ok(can)
    }

    /// Fills a slot with a new file, and returns its number of inode.
    pub(super) fn stage_file(
        &self,
        slot: u64,
        mut content: impl Read,
        mode: u32,
        owner: (u32, u32),
    ) -> io::Result<u64> {
        let name = slot.to_string();
        let mut file = self.new_file(&name)?;
        io::copy(&mut content, &mut file)?;
        give(&self.fd, &name, owner)?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        Ok(file.metadata()?.ino())
    }

    /// Fills a slot with a new link.
    pub(super) fn stage_link(&self, slot: u64, target: &str, owner: (u32, u32)) -> io::Result<u64> {
        let name = slot.to_string();
        rustix::fs::symlinkat(target, &self.fd, &name)?;
        give(&self.fd, &name, owner)?;
        Ok(self.slot(slot)?.ok_or(io::ErrorKind::NotFound)?.st_ino)
    }

    /// Writes the journal. From now on a crash is answered by undoing.
    pub(super) fn write(&self, journal: &Journal) -> io::Result<()> {
        let file = self.new_file(UNFINISHED)?;
        let mut writer = io::BufWriter::new(&file);
        serde_json::to_writer(&mut writer, journal)?;
        writer.flush()?;
        drop(writer);
        // Slots and journal must be on the disk before the first step is, or a power cut could leave steps without them.
        rustix::fs::syncfs(&self.fd)?;
        rustix::fs::renameat(&self.fd, UNFINISHED, &self.fd, JOURNAL)?;
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    /// The journal that was written, if it was.
    pub(super) fn read(&self) -> io::Result<Option<Journal>> {
        self.read_as(JOURNAL)
    }

    /// The journal of an apply that was done to its last step.
    pub(super) fn read_done(&self) -> io::Result<Option<Journal>> {
        self.read_as(DONE)
    }

    fn read_as(&self, name: &str) -> io::Result<Option<Journal>> {
        let file = match open_below(&self.fd, name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => File::from(other?),
        };
        let journal: Journal = serde_json::from_reader(io::BufReader::new(file.take(LONGEST)))?;
        if journal.version != 1 {
            return Err(io::Error::other("a newer version of glovebox began an apply here; use that one to finish it"));
        }
        Ok(Some(journal))
    }

    /// Says that the last step is done.
    pub(super) fn finish(&self) -> io::Result<()> {
        // The steps must be on the disk before this is.
        rustix::fs::syncfs(&self.fd)?;
        rustix::fs::renameat(&self.fd, JOURNAL, &self.fd, DONE)?;
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    /// Removes the journal folder and what is in it. The marks go last: without them the slots would look like a
    /// beginning, which is harmless, but with them everything is clear.
    pub(super) fn remove(self) -> io::Result<()> {
        let mut marks = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let name = entry?.file_name().to_owned();
            match name.to_str() {
                Ok("." | "..") => {}
                Ok(JOURNAL | DONE) => marks.push(name),
                _ => rustix::fs::unlinkat(&self.fd, &name, AtFlags::empty())?,
            }
        }
        for mark in marks {
            rustix::fs::unlinkat(&self.fd, &mark, AtFlags::empty())?;
        }
        Ok(rustix::fs::unlinkat(self.folder.fd(), JOURNAL_FOLDER, AtFlags::REMOVEDIR)?)
    }

    /// Does all steps. When one cannot be done, those before it are undone.
    pub(super) fn perform_all(&self, steps: &[Step]) -> Result<(), Stopped> {
        for (at, step) in steps.iter().enumerate() {
            match self.perform(step) {
                Ok(()) => {}
                Err(Stopped::Stuck { path, error }) => return Err(Stopped::Stuck { path, error }),
                Err(stopped) => {
                    self.undo_all(&steps[..at])?;
                    return Err(stopped);
                }
            }
        }
        Ok(())
    }

    /// Undoes steps, whether they were done or not.
    pub(super) fn undo_all(&self, steps: &[Step]) -> Result<(), Stopped> {
        steps.iter().rev().try_for_each(|step| self.undo(step).map_err(|error| stuck(step, error)))
    }

    /// Does one step, or nothing.
    pub(super) fn perform(&self, step: &Step) -> Result<(), Stopped> {
        match step {
            Step::Take { path, slot, was } => {
                self.move_out(path, *slot).map_err(|error| stopped(step, error))?;
                self.check_slot(*slot, was).or_else(|error| self.take_back(step, error))
            }
            Step::Swap { path, slot, was, .. } => {
                self.exchange(path, *slot).map_err(|error| stopped(step, error))?;
                self.check_slot(*slot, was).or_else(|error| self.take_back(step, error))
            }
            Step::Put { path, slot, .. } => self.move_in(path, *slot).map_err(|error| stopped(step, error)),
            Step::MakeFolder { path, mode, owner } => match self.make_folder(path, *mode, *owner) {
                // One that is there already is not ours to remove.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(stopped(step, error)),
                made => made.or_else(|error| self.take_back(step, error)),
            },
            Step::RemoveFolder { path, .. } => self.remove_folder(path).map_err(|error| stopped(step, error)),
            Step::SetMode { path, folder, from, to } => match self.change_mode(path, *folder, *from, *to) {
                Ok(true) => Ok(()),
                Ok(false) => Err(Stopped::Changed { path: path.clone() }),
                Err(error) => Err(stopped(step, error)),
            },
        }
    }

    /// Undoes a step that went half way, and says why it did not go further.
    fn take_back(&self, step: &Step, error: io::Error) -> Result<(), Stopped> {
        self.undo(step).map_err(|error| stuck(step, error))?;
        Err(stopped(step, error))
    }

    fn undo(&self, step: &Step) -> io::Result<()> {
        match step {
            Step::Take { path, slot, .. } => match self.slot(*slot)? {
                Some(_) => self.move_in(path, *slot),
                None => Ok(()),
            },
            Step::Put { path, slot, inode } => match (self.slot(*slot)?, self.inode(path)?) {
                // Where something else stands by now, it is somebody else's.
                (None, Some(found)) if found == *inode => self.move_out(path, *slot),
                _ => Ok(()),
            },
            Step::Swap { path, slot, inode, .. } => match (self.slot(*slot)?, self.inode(path)?) {
                (Some(_), Some(found)) if found == *inode => self.exchange(path, *slot),
                // Somebody took the new file away; the former one goes back.
                (Some(held), None) if held.st_ino != *inode => self.move_in(path, *slot),
                (Some(held), Some(_)) if held.st_ino != *inode => Err(Errno::EXIST.into()),
                _ => Ok(()),
            },
            Step::MakeFolder { path, .. } => match self.remove_folder(path) {
                Err(error) if is_not_there(&error) => Ok(()),
                other => other,
            },
            Step::RemoveFolder { path, mode, owner } => match self.folder.look(path)? {
                None => self.make_folder(path, *mode, *owner),
                Some(_) => Ok(()),
            },
            Step::SetMode { path, folder, from, to } => match self.change_mode(path, *folder, *to, *from) {
                // A folder that was not made yet has no mode to take back.
                Err(error) if is_not_there(&error) => Ok(()),
                other => other.map(drop),
            },
        }
    }

    fn move_out(&self, path: &str, slot: u64) -> io::Result<()> {
        let (parent, name) = self.folder.parent(path)?;
        Ok(move_to_free(&parent, name, &self.fd, &slot.to_string())?)
    }

    fn move_in(&self, path: &str, slot: u64) -> io::Result<()> {
        let (parent, name) = self.folder.parent(path)?;
        Ok(move_to_free(&self.fd, &slot.to_string(), &parent, name)?)
    }

    fn exchange(&self, path: &str, slot: u64) -> io::Result<()> {
        let (parent, name) = self.folder.parent(path)?;
        Ok(renameat_with(&self.fd, slot.to_string(), &parent, name, RenameFlags::EXCHANGE)?)
    }

    /// Makes sure that a slot holds what was looked at before it was moved there.
    fn check_slot(&self, slot: u64, was: &Identity) -> io::Result<()> {
        let held = self.slot(slot)?.ok_or(io::ErrorKind::NotFound)?;
        if Identity::of(&held) == *was { Ok(()) } else { Err(Errno::STALE.into()) }
    }

    fn make_folder(&self, path: &str, mode: u32, owner: (u32, u32)) -> io::Result<()> {
        let (parent, name) = self.folder.parent(path)?;
        rustix::fs::mkdirat(&parent, name, Mode::RWXU)?;
        give(&parent, name, owner)?;
        let made = open_below(&parent, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
        // A folder whose group is handed on to what is made in it hands that on too.
        let handed_on = rustix::fs::fstat(&made)?.st_mode & 0o2000;
        Ok(rustix::fs::fchmod(made, Mode::from_raw_mode(mode & 0o777 | handed_on))?)
    }

    fn remove_folder(&self, path: &str) -> io::Result<()> {
        let (parent, name) = self.folder.parent(path)?;
        Ok(rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?)
    }

    /// Changes the mode of what is expected there, if it has the mode that is expected.
    fn change_mode(&self, path: &str, folder: bool, from: u32, to: u32) -> io::Result<bool> {
        // Not opened for reading: its owner may change the mode of what nobody may read.
        let file = open_below(self.folder.fd(), path, OFlags::PATH | OFlags::NOFOLLOW)?;
        let stat = rustix::fs::fstat(&file)?;
        let kind = if folder { FileType::Directory } else { FileType::RegularFile };
        let fits = FileType::from_raw_mode(stat.st_mode) == kind && stat.st_mode & 0o7777 == from;
        if fits {
            rustix::fs::chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), Mode::from_raw_mode(to))?;
        }
        Ok(fits)
    }

    fn slot(&self, slot: u64) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.fd, slot.to_string(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            other => Ok(Some(other?)),
        }
    }

    fn inode(&self, path: &str) -> io::Result<Option<u64>> {
        Ok(self.folder.look(path)?.map(|seen| seen.stat.st_ino))
    }

    fn new_file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }
}

/// Moves an entry to a name that nothing has. Where the file system cannot promise that, we look first.
fn move_to_free(from: &OwnedFd, name: &str, to: &OwnedFd, new_name: &str) -> rustix::io::Result<()> {
    match renameat_with(from, name, to, new_name, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        other => return other,
    }
    match rustix::fs::statat(to, new_name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => rustix::fs::renameat(from, name, to, new_name),
        other => other.and(Err(Errno::EXIST)),
    }
}

/// Whether a folder is not there to be changed back: it was not made yet, perhaps because the file that it replaces is
/// still there, or somebody put something into it, and then it stays.
fn is_not_there(error: &io::Error) -> bool {
    use io::ErrorKind::{DirectoryNotEmpty, NotADirectory, NotFound};
    [NotFound, NotADirectory, DirectoryNotEmpty].contains(&error.kind())
}

fn stuck(step: &Step, error: io::Error) -> Stopped {
    Stopped::Stuck { path: step.path().to_owned(), error }
}

/// Tells a folder that somebody changed meanwhile from one that cannot be changed.
fn stopped(step: &Step, error: io::Error) -> Stopped {
    let changed = [Errno::EXIST, Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::STALE, Errno::NOTEMPTY, Errno::ISDIR];
    let path = step.path().to_owned();
    match error.raw_os_error() {
        Some(number) if changed.iter().any(|errno| errno.raw_os_error() == number) => Stopped::Changed { path },
        _ => Stopped::Failed { path, error },
    }
}

impl Step {
    /// The path that it changes.
    pub(super) fn path(&self) -> &str {
        match self {
            Step::Take { path, .. }
            | Step::Put { path, .. }
            | Step::Swap { path, .. }
            | Step::MakeFolder { path, .. }
            | Step::RemoveFolder { path, .. }
            | Step::SetMode { path, .. } => path,
        }
    }
}
