//! Named things that outlive sandboxes, a folder each: volumes and projects.
//!
//! A folder is filled under a name that begins with a dot and then renamed, so what has a name is whole. To remove one is
//! to rename it back; its files go afterwards, and the next who looks finishes what was cut short. The `lock` in each is
//! held shared by everybody who shows it to a sandbox that nothing else tells of, and alone by who makes or removes it.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use glovebox_core::{Error, ErrorCode, Result, SandboxId};
use rustix::{
    fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with},
    io::Errno,
};
use serde::{Serialize, de::DeserializeOwned};

/// The beginning of the names of what is being made or removed.
const UNNAMED: &str = ".";

/// A folder of named things of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Shelf {
    folder: PathBuf,
    /// What the things are, in one word.
    what: &'static str,
    missing: ErrorCode,
}

/// The assurance that a thing stays while this value lives.
#[derive(Debug)]
pub(crate) struct Hold {
    lock: File,
}

/// Lets go at once. Closing is not enough: a child that another thread has just forked has a copy of the descriptor until
/// it executes its program.
impl Drop for Hold {
    fn drop(&mut self) {
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Shelf {
    pub(crate) fn new(folder: PathBuf, what: &'static str, missing: ErrorCode) -> Self {
        Shelf { folder, what, missing }
    }

    /// Where a thing is.
    pub(crate) fn place(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The names of all that there are, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.retain(|name| !name.starts_with(UNNAMED));
        names.sort();
        names
    }

    /// Makes a thing, which `fill` fills. Says whether the name was free.
    pub(crate) fn make(&self, name: &str, fill: impl FnOnce(&Path) -> io::Result<()>) -> Result<bool> {
        let place = self.folder.join(format!("{UNNAMED}{}", SandboxId::new()));
        let made = || -> io::Result<bool> {
            make_folder(&place)?;
            let hold = Hold { lock: open_lock(&place)? };
            flock(&hold.lock, FlockOperation::LockExclusive)?;
            fill(&place)?;
            // It is there whole or not at all, also after a crash of the host.
            File::open(&place)?.sync_all()?;
            match renameat_with(CWD, &place, CWD, self.place(name), RenameFlags::NOREPLACE) {
                Ok(()) => Ok(true),
                Err(Errno::EXIST) => Ok(false),
                Err(error) => Err(error.into()),
            }
        };
        let made = made().map_err(|error| self.failed(error));
        if !matches!(made, Ok(true)) {
            // Nothing of a sandbox is in it yet.
            let _ = fs::remove_dir_all(&place);
        }
        made
    }

    /// Keeps a thing from being removed. Waits for those who remove it just now.
    pub(crate) fn hold(&self, name: &str) -> Result<Hold> {
        self.lock(name, FlockOperation::LockShared)?.ok_or_else(|| self.not_found(name))
    }

    /// Takes a thing off the shelf, unless it is held or `in_use` names who uses it. What is left of it lies where the
    /// answer says, and is for the caller to remove.
    pub(crate) fn take_away(&self, name: &str, in_use: impl FnOnce() -> Result<Vec<String>>) -> Result<PathBuf> {
        let hold = self.have_alone(name, in_use)?;
        self.take_off(name, hold)
    }

    /// Keeps everybody else from a thing, unless it is held or `in_use` names who uses it.
    pub(crate) fn have_alone(&self, name: &str, in_use: impl FnOnce() -> Result<Vec<String>>) -> Result<Hold> {
        let busy = |by: &str| Error::new(ErrorCode::InUse, format!("the {} {name} is in use {by}", self.what));
        let hold = match self.lock(name, FlockOperation::NonBlockingLockExclusive) {
            Err(error) if error.code == ErrorCode::InUse => {
                return Err(busy("by a run, or by another command").hint("wait for its end"));
            }
            hold => hold?.ok_or_else(|| self.not_found(name))?,
        };
        let users = in_use()?;
        if let Some(first) = users.first() {
            let ids = users.join(", ");
            return Err(
                busy(&format!("by the sandbox {ids}")).hint(format!("glovebox destroy {first} ends the sandbox"))
            );
        }
        Ok(hold)
    }

    /// Takes a thing off the shelf that nobody else has.
    pub(crate) fn take_off(&self, name: &str, hold: Hold) -> Result<PathBuf> {
        let removed = self.folder.join(format!("{UNNAMED}{}", SandboxId::new()));
        fs::rename(self.place(name), &removed).map_err(|error| self.failed(error))?;
        drop(hold);
        Ok(removed)
    }

    /// What was left by those who died while they made or removed something.
    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let unnamed = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(UNNAMED));
        let free = |path: &PathBuf| match File::open(path.join("lock")) {
            Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
            Err(_) => true,
        };
        unnamed.map(|entry| entry.path()).filter(free).collect()
    }

    /// The lock of a thing, if it is there when the lock is had.
    fn lock(&self, name: &str, how: FlockOperation) -> Result<Option<Hold>> {
        let path = self.place(name).join("lock");
        loop {
            let lock = match File::open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                lock => lock.map_err(|error| self.failed(error))?,
            };
            match flock(&lock, how) {
                Err(Errno::WOULDBLOCK) => return Err(Error::new(ErrorCode::InUse, "it is held")),
                locked => locked.map_err(|error| self.failed(error.into()))?,
            }
            // It may have been removed, and another made, before the lock was had.
            let same =
                |now: fs::Metadata| lock.metadata().is_ok_and(|had| (had.dev(), had.ino()) == (now.dev(), now.ino()));
            if fs::metadata(&path).is_ok_and(same) {
                return Ok(Some(Hold { lock }));
            }
        }
    }

    pub(crate) fn not_found(&self, name: &str) -> Error {
        let what = self.what;
        Error::new(self.missing, format!("there is no {what} {name}"))
            .hint(format!("glovebox {what}s list shows those there are; glovebox {what}s create {name} makes it"))
    }

    pub(crate) fn taken(&self, name: &str) -> Error {
        let what = self.what;
        Error::new(ErrorCode::NameTaken, format!("there is a {what} {name} already"))
            .hint(format!("glovebox {what}s show {name} says what it is"))
    }

    pub(crate) fn failed(&self, error: io::Error) -> Error {
        Error::new(ErrorCode::HostIo, format!("the folder of {}s cannot be used", self.what)).because(error)
    }
}

fn open_lock(place: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).mode(0o600).open(place.join("lock"))
}

/// Makes a folder that is nobody else's business.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a record that nobody sees half of.
pub(crate) fn write_record(path: &Path, record: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(record)?;
    let mut file = File::options().create_new(true).write(true).mode(0o600).open(path)?;
    file.write_all(&text)?;
    file.sync_all()
}

/// Reads a record.
pub(crate) fn read_record<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shelf() -> (tempfile::TempDir, Shelf) {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(folder.path().join("volumes"), "volume", ErrorCode::VolumeNotFound);
        (folder, shelf)
    }

    #[test]
    fn a_name_is_given_once_and_free_again_when_its_thing_is_gone() {
        let (_folder, shelf) = shelf();
        assert!(shelf.make("a", |place| fs::write(place.join("x"), "1")).unwrap());
        assert!(!shelf.make("a", |_| Ok(())).unwrap());
        assert_eq!(shelf.names(), ["a"]);
        let removed = shelf.take_away("a", || Ok(Vec::new())).unwrap();
        assert!(shelf.names().is_empty() && removed.join("x").exists());
        assert_eq!(shelf.leftovers(), [removed]);
        assert!(shelf.make("a", |_| Ok(())).unwrap());
    }

    #[test]
    fn what_is_held_or_used_stays_and_says_by_whom() {
        let (_folder, shelf) = shelf();
        shelf.make("a", |_| Ok(())).unwrap();
        let hold = shelf.hold("a").unwrap();
        assert_eq!(shelf.take_away("a", || Ok(Vec::new())).unwrap_err().code, ErrorCode::InUse);
        drop(hold);
        let error = shelf.take_away("a", || Ok(vec!["sb_1".to_owned()])).unwrap_err();
        assert!(error.code == ErrorCode::InUse && error.message.contains("sb_1"), "{error}");
        shelf.take_away("a", || Ok(Vec::new())).unwrap();
        assert_eq!(shelf.hold("a").unwrap_err().code, ErrorCode::VolumeNotFound);
    }

    #[test]
    fn what_was_let_go_is_free_although_a_child_has_a_copy_of_the_lock() {
        let (_folder, shelf) = shelf();
        shelf.make("a", |_| Ok(())).unwrap();
        let hold = shelf.hold("a").unwrap();
        let _copy = hold.lock.try_clone().unwrap();
        drop(hold);
        shelf.take_away("a", || Ok(Vec::new())).unwrap();
    }

    #[test]
    fn what_could_not_be_filled_leaves_nothing() {
        let (_folder, shelf) = shelf();
        assert!(shelf.make("a", |_| Err(io::ErrorKind::StorageFull.into())).is_err());
        assert!(shelf.names().is_empty() && shelf.leftovers().is_empty());
    }
}
