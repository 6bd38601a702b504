//! What a file was or is, with its content where that is wanted.

use std::{fs::File, io::Read, time::Instant};

use glovebox_core::{ContentKeeper, FileKind, FileStamp, FileState, KeptContent, NotKept, look_bound};
use rustix::fs::{FileType, OFlags, Stat};

use super::folder::{Entry, open_here};

/// Hands contents to their keeper, within bounds.
pub(super) struct Contents<'a> {
    keeper: Option<&'a dyn ContentKeeper>,
    left: u64,
    until: Instant,
}

impl<'a> Contents<'a> {
    pub(super) fn new(keeper: Option<&'a dyn ContentKeeper>) -> Self {
        Contents { keeper, left: look_bound::KEPT, until: Instant::now() + look_bound::KEEPING }
    }

    /// What stands at an entry.
    pub(super) fn state(&mut self, entry: Entry<'_>) -> FileState {
        let kind = match FileType::from_raw_mode(entry.stat.st_mode) {
            FileType::RegularFile => self.file(entry),
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(entry.folder, entry.name, Vec::new());
                // What is gone by now is an unreadable target, which is a name that cannot be used either.
                let target = target.map_or("\u{fffd}".into(), |target| target.to_string_lossy().into_owned());
                FileKind::Symlink { target }
            }
            _ => FileKind::Special,
        };
        FileState { mode: entry.stat.st_mode & 0o7777, kind }
    }

    fn file(&mut self, entry: Entry<'_>) -> FileKind {
        let seen = entry.stat.st_size as u64;
        let Some(keeper) = self.keeper else {
            return FileKind::File { bytes: seen, sha256: None, not_kept: None };
        };
        match self.keep(keeper, entry, seen) {
            Ok(kept) => FileKind::File { bytes: kept.bytes, sha256: Some(kept.sha256), not_kept: None },
            Err(reason) => FileKind::File { bytes: seen, sha256: None, not_kept: Some(reason) },
        }
    }

    fn keep(&mut self, keeper: &dyn ContentKeeper, entry: Entry<'_>, bytes: u64) -> Result<KeptContent, NotKept> {
        if bytes > look_bound::KEPT_FILE {
            return Err(NotKept::TooLarge);
        }
        let stamp = stamp(entry.stat);
        if let Some(reason) = keeper.refuses(&stamp) {
            return Err(reason);
        }
        if let Some(known) = keeper.known(&stamp) {
            return Ok(known);
        }
        if bytes > self.left {
            return Err(NotKept::TooMuch);
        }
        if Instant::now() > self.until {
            return Err(NotKept::TooSlow);
        }
        // Without waiting: what was a file a moment ago may be a pipe now.
        let file = open_here(entry.folder, entry.name, OFlags::RDONLY | OFlags::NONBLOCK);
        let file = File::from(file.map_err(|_| NotKept::Unreadable)?);
        if !file.metadata().is_ok_and(|now| now.is_file()) {
            return Err(NotKept::Unreadable);
        }
        self.left -= bytes;
        // A file that still grows is kept as long as it was when it was found.
        let kept = keeper.keep(&mut file.take(bytes))?;
        if kept.bytes == bytes {
            keeper.note(stamp, &kept);
        }
        Ok(kept)
    }
}

pub(super) fn stamp(stat: &Stat) -> FileStamp {
    FileStamp {
        device: stat.st_dev,
        inode: stat.st_ino,
        changed_ns: i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec),
        bytes: stat.st_size as u64,
    }
}
