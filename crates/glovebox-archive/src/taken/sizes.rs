//! How much is in a tree.
//!
//! Programs inside decide how deep a tree is and how wide. The folders of the last levels are open, as many as a tree mostly has; of
//! those above is only known which they are and how far they were read. The way back to one of them leads over `..`, and must
//! lead to the same folder.

use std::{collections::VecDeque, os::fd::OwnedFd};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat},
    io::Errno,
};

/// A tree that has more in it than can be looked at counts as outgrown.
pub const MOST_ENTRIES: u64 = 1_000_000;
/// So many folders are open at one time.
const MOST_OPEN: usize = 128;
/// So often it is begun again when somebody moves folders about.
const ATTEMPTS: usize = 3;

/// What files and folders take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Files, folders and all else that has a name.
    pub entries: u64,
}

impl Size {
    /// More than there can be.
    pub const TOO_MUCH: Size = Size { bytes: u64::MAX, entries: u64::MAX };
    /// How many bytes tell a size.
    pub const BYTES: usize = 16;

    /// Both together.
    pub fn and(self, other: Size) -> Size {
        let bytes = self.bytes.saturating_add(other.bytes);
        Size { bytes, entries: self.entries.saturating_add(other.entries) }
    }

    /// The size for another process of the same program.
    pub fn to_bytes(self) -> [u8; Size::BYTES] {
        (u128::from(self.bytes) << 64 | u128::from(self.entries)).to_le_bytes()
    }

    /// A size that another process told.
    pub fn from_bytes(said: &[u8]) -> Self {
        let number = said.try_into().map_or(u128::MAX, u128::from_le_bytes);
        Size { bytes: (number >> 64) as u64, entries: number as u64 }
    }

    fn add(&mut self, stat: &Stat) {
        self.bytes = self.bytes.saturating_add(stat.st_blocks as u64 * 512);
    }
}

/// What these files and folders take with all below them. No link is followed. Nothing when that is too much to look at.
pub fn total(places: &[OwnedFd]) -> Option<Size> {
    let mut size = Size::default();
    for place in places {
        let Ok(stat) = fstat(place) else { continue };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            size.add(&stat);
            continue;
        }
        let below = (0..ATTEMPTS).find_map(|_| match below(place) {
            Err(Errno::AGAIN) => None,
            other => Some(other),
        });
        size = size.and(below?.ok()?);
        if size.entries > MOST_ENTRIES {
            return None;
        }
    }
    Some(size)
}

/// What is below a folder. Somebody may move a folder while what is in it is looked at, so that there is no way back: `EAGAIN`.
fn below(folder: &OwnedFd) -> rustix::io::Result<Size> {
    let mut size = Size::default();
    // What cannot be opened or read, because it went away, has nothing in it.
    let Ok(top) = open(folder, c".") else { return Ok(size) };
    let mut way = Way::default();
    way.enter(top)?;
    while let Some((folder, behind)) = way.here() {
        let Some(Ok(entry)) = folder.read() else {
            way.leave()?;
            continue;
        };
        *behind = entry.offset();
        let name = entry.file_name();
        if [c".", c".."].contains(&name) {
            continue;
        }
        let here = folder.fd()?;
        let Ok(stat) = statat(here, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        size.add(&stat);
        size.entries += 1;
        if size.entries > MOST_ENTRIES {
            return Err(Errno::TOOBIG);
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory
            && let Ok(inner) = open(here, name)
        {
            way.enter(inner)?;
        }
    }
    Ok(size)
}

fn open(folder: impl std::os::fd::AsFd, name: &std::ffi::CStr) -> rustix::io::Result<OwnedFd> {
    openat(folder, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// The folders from the top to where we are.
#[derive(Default)]
struct Way {
    levels: Vec<Level>,
    /// The folders of the last levels.
    open: VecDeque<Dir>,
}

struct Level {
    device: u64,
    inode: u64,
    /// How far it was read.
    behind: i64,
}

impl Way {
    /// The folder that is being read, and how far it was.
    fn here(&mut self) -> Option<(&mut Dir, &mut i64)> {
        Some((self.open.back_mut()?, &mut self.levels.last_mut()?.behind))
    }

    fn enter(&mut self, folder: OwnedFd) -> rustix::io::Result<()> {
        let stat = fstat(&folder)?;
        self.levels.push(Level { device: stat.st_dev, inode: stat.st_ino, behind: 0 });
        self.open.push_back(Dir::new(folder)?);
        if self.open.len() > MOST_OPEN {
            self.open.pop_front();
        }
        Ok(())
    }

    fn leave(&mut self) -> rustix::io::Result<()> {
        self.levels.pop();
        let Some(left) = self.open.pop_back() else { return Ok(()) };
        if let Some(level) = self.levels.last().filter(|_| self.open.is_empty()) {
            let above = open(left.fd()?, c"..").map_err(|_| Errno::AGAIN)?;
            let stat = fstat(&above)?;
            if (stat.st_dev, stat.st_ino) != (level.device, level.inode) {
                return Err(Errno::AGAIN);
            }
            let mut above = Dir::new(above)?;
            above.seek(level.behind)?;
            self.open.push_back(above);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes folders, each in the one before, with a file in each.
    fn nest(top: &std::path::Path, depth: usize) {
        let mut at = rustix::fs::open(top, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..depth {
            for name in ["a", "b", "z"] {
                let file = openat(&at, name, OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o600)).unwrap();
                rustix::io::write(&file, &[1; 4096]).unwrap();
            }
            rustix::fs::mkdirat(&at, "m", Mode::from_raw_mode(0o755)).unwrap();
            at = open(&at, c"m").unwrap();
        }
    }

    fn size_of(folder: &std::path::Path) -> Option<Size> {
        total(&[rustix::fs::open(folder, OFlags::PATH, Mode::empty()).unwrap()])
    }

    #[test]
    fn all_is_counted_however_deep_it_lies() {
        for depth in [1, MOST_OPEN - 1, MOST_OPEN, MOST_OPEN + 1, 3000] {
            let folder = tempfile::tempdir().unwrap();
            nest(folder.path(), depth);
            let size = size_of(folder.path()).unwrap();
            assert_eq!(size.entries, 4 * depth as u64);
            assert!(size.bytes >= 3 * 4096 * depth as u64, "{size:?}");
            // The means of the standard library do not go that deep.
            let removed = std::process::Command::new("rm").arg("-rf").arg(folder.keep()).status().unwrap();
            assert!(removed.success());
        }
    }

    #[test]
    fn a_wide_tree_with_deep_ends_is_counted_once() {
        let folder = tempfile::tempdir().unwrap();
        for name in 0..300 {
            let below = folder.path().join(name.to_string());
            std::fs::create_dir(&below).unwrap();
            if name % 100 == 0 {
                nest(&below, MOST_OPEN + 10);
            }
        }
        assert_eq!(size_of(folder.path()).unwrap().entries, 300 + 3 * 4 * (MOST_OPEN as u64 + 10));
    }
}
