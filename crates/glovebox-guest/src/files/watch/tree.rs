//! Which folder each watch belongs to.

use std::{collections::HashMap, os::fd::OwnedFd};

use glovebox_archive::read_some;
use rustix::{
    fs::{
        AtFlags, FileType, OFlags, Stat,
        inotify::{self, WatchFlags},
    },
    io::Errno,
};

use crate::files::{Trouble, open::open};

/// So many folders are watched by one request at most.
pub(super) const MOST: usize = 8192;

/// The folders that are watched.
pub(super) struct Tree {
    queue: OwnedFd,
    top: Vec<u8>,
    is_folder: bool,
    /// By what the top is known again.
    device_and_inode: (u64, u64),
    recursive: bool,
    /// Their paths below the top.
    folders: HashMap<i32, Vec<u8>>,
}

/// Why a folder is not watched.
pub(super) enum NotWatched {
    /// It is not there any more.
    Gone,
    /// There are no more watches to be had.
    Full(String),
    /// The kernel refuses it.
    Refused(Errno),
}

impl Tree {
    pub(super) fn new(queue: OwnedFd, top: &[u8], stat: &Stat, recursive: bool) -> Self {
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let device_and_inode = (stat.st_dev, stat.st_ino);
        Tree { queue, top: top.to_vec(), is_folder, device_and_inode, recursive, folders: HashMap::new() }
    }

    /// Whether the top is not found under its path any more.
    pub(super) fn top_is_gone(&self) -> bool {
        let found = rustix::fs::stat(&self.top[..]);
        found.map_or(true, |found| (found.st_dev, found.st_ino) != self.device_and_inode)
    }

    pub(super) fn is_folder(&self) -> bool {
        self.is_folder
    }

    pub(super) fn is_recursive(&self) -> bool {
        self.recursive && self.is_folder
    }

    /// Watches what was asked for.
    pub(super) fn watch_top(&mut self) -> rustix::io::Result<()> {
        let flags = if self.is_folder {
            IN_FOLDER | WatchFlags::ONLYDIR
        } else {
            WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF
        };
        let watch = inotify::add_watch(&self.queue, &self.top[..], flags)?;
        self.folders.insert(watch, Vec::new());
        Ok(())
    }

    /// Watches a folder below. Says whether it was not watched before.
    pub(super) fn watch(&mut self, folder: &[u8]) -> Result<bool, NotWatched> {
        if folder.is_empty() {
            return Ok(false);
        }
        if self.folders.len() >= MOST {
            return Err(NotWatched::Full(full()));
        }
        let flags = IN_FOLDER | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        match inotify::add_watch(&self.queue, &below(&self.top, folder)[..], flags) {
            Ok(watch) => Ok(self.folders.insert(watch, folder.to_vec()).is_none()),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(NotWatched::Gone),
            Err(Errno::NOSPC) => {
                Err(NotWatched::Full("the kernel gives no more watches (fs.inotify.max_user_watches)".to_owned()))
            }
            Err(error) => Err(NotWatched::Refused(error)),
        }
    }

    /// Opens a watched folder to look what is in it.
    pub(super) fn open(&self, folder: &[u8]) -> Result<OwnedFd, Trouble> {
        open(&below(&self.top, folder), OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// The path of something in a watched folder, or of that folder itself when there is no name.
    pub(super) fn path(&self, watch: i32, name: &[u8]) -> Option<Vec<u8>> {
        let folder = self.folders.get(&watch)?;
        Some(if name.is_empty() { folder.clone() } else { below(folder, name) })
    }

    /// Whether this folder is watched.
    pub(super) fn knows(&self, folder: &[u8]) -> bool {
        !self.is_recursive() || self.folders.values().any(|known| known == folder)
    }

    /// The kernel ended a watch.
    pub(super) fn ended(&mut self, watch: i32) {
        self.folders.remove(&watch);
    }

    /// A folder has another path, and so has everything below it.
    pub(super) fn rename(&mut self, from: &[u8], to: &[u8]) {
        for path in self.folders.values_mut() {
            if let Some(rest) = rest_below(path, from) {
                *path = [to, rest].concat();
            }
        }
    }

    /// A folder went where we do not look.
    pub(super) fn forget(&mut self, folder: &[u8]) {
        let gone = self.folders.iter().filter(|(_, path)| rest_below(path, folder).is_some());
        let gone: Vec<i32> = gone.map(|(watch, _)| *watch).collect();
        for watch in gone {
            // One that the kernel has ended meanwhile is gone too.
            let _ = inotify::remove_watch(&self.queue, watch);
            self.folders.remove(&watch);
        }
    }
}

const IN_FOLDER: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::EXCL_UNLINK);

/// Why no more folders are watched.
pub(super) fn full() -> String {
    format!("no more than {MOST} folders are watched at once")
}

/// Some names of a folder, and whether each is a folder; none at the end.
pub(super) fn entries(folder: &OwnedFd) -> rustix::io::Result<Vec<(Vec<u8>, bool)>> {
    let is_folder = |stat: Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let look = |name: std::ffi::CString| {
        let stat = rustix::fs::statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW);
        (name.into_bytes(), stat.is_ok_and(is_folder))
    };
    Ok(read_some(folder)?.into_iter().map(|listed| look(listed.name)).collect())
}

/// The path of a name in a folder.
pub(super) fn below(folder: &[u8], name: &[u8]) -> Vec<u8> {
    match (folder, name) {
        ([], name) => name.to_vec(),
        (folder, []) => folder.to_vec(),
        (folder, name) if folder.ends_with(b"/") => [folder, name].concat(),
        (folder, name) => [folder, b"/", name].concat(),
    }
}

/// What follows a folder in a path at or below it.
fn rest_below<'a>(path: &'a [u8], folder: &[u8]) -> Option<&'a [u8]> {
    path.strip_prefix(folder).filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::inotify::CreateFlags;

    fn tree(folders: &[(i32, &str)]) -> Tree {
        let stat = rustix::fs::stat("/").unwrap();
        let mut tree = Tree::new(inotify::init(CreateFlags::CLOEXEC).unwrap(), b"/top", &stat, true);
        tree.folders = folders.iter().map(|(watch, path)| (*watch, path.as_bytes().to_vec())).collect();
        tree
    }

    #[test]
    fn a_renamed_folder_takes_what_is_below_along_and_nothing_else() {
        let mut tree = tree(&[(1, ""), (2, "a"), (3, "a/b"), (4, "ab"), (5, "c/a")]);
        tree.rename(b"a", b"x/y");
        let path = |watch| String::from_utf8(tree.path(watch, b"f").unwrap()).unwrap();
        assert_eq!([1, 2, 3, 4, 5].map(path), ["f", "x/y/f", "x/y/b/f", "ab/f", "c/a/f"]);
        assert!(tree.knows(b"x/y/b") && !tree.knows(b"a/b"));
    }

    #[test]
    fn a_folder_that_went_away_takes_its_watches_along() {
        let mut tree = tree(&[(1, ""), (2, "a"), (3, "a/b"), (4, "ab")]);
        tree.forget(b"a");
        assert_eq!([1, 2, 3, 4].map(|watch| tree.path(watch, b"").is_some()), [true, false, false, true]);
    }
}
