//! Volumes: named storage that outlives sandboxes.
//!
//! `DATA/volumes/NAME/` holds `volume.json`, which never changes, and `files`, which sandboxes are shown.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use glovebox_core::{DEFAULT_VOLUME_BYTES, Error, ErrorCode, Result, VolumeName};
use jiff::Timestamp;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::shelf::{Hold, Shelf, make_folder, read_record, write_record};

/// Trees with more entries, or deeper ones, are not counted.
const MOST_ENTRIES: u64 = 1_000_000;
const DEEPEST: usize = 128;

/// The volumes of a data folder.
#[derive(Clone, Debug)]
pub struct Volumes {
    pub(crate) shelf: Shelf,
}

/// What a volume is. It never changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    size_bytes: u64,
    created_at: Timestamp,
}

/// A volume as it is now: one document of `volumes list` and `volumes show`.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeStatus {
    /// Its name.
    pub name: VolumeName,
    /// How much it may hold.
    pub size_bytes: u64,
    /// How much it holds; null when that is more than can be counted.
    pub used_bytes: Option<u64>,
    /// When it was made.
    pub created_at: Timestamp,
    /// The living sandboxes that have it, by name or else by id.
    pub sandboxes: Vec<String>,
}

impl Volumes {
    /// Those of a data folder.
    pub fn below(data_dir: &Path) -> Self {
        Volumes { shelf: Shelf::new(data_dir.join("volumes"), "volume", ErrorCode::VolumeNotFound) }
    }

    /// Makes a volume that holds at most so many bytes.
    pub fn create(&self, name: &VolumeName, size_bytes: u64) -> Result<()> {
        match self.make(name, size_bytes)? {
            true => Ok(()),
            false => Err(self.shelf.taken(name.as_str())),
        }
    }

    fn make(&self, name: &VolumeName, size_bytes: u64) -> Result<bool> {
        self.shelf.make(name.as_str(), |place| {
            make_folder(&place.join("files"))?;
            write_record(&place.join("volume.json"), &Record { size_bytes, created_at: Timestamp::now() })
        })
    }

    /// Where the files of a volume are, how much it may hold, and the assurance that it stays. One that is not there is made,
    /// as somebody who names it for the first time expects.
    pub(crate) fn attach(&self, name: &VolumeName) -> Result<(PathBuf, u64, Hold)> {
        let hold = match self.shelf.hold(name.as_str()) {
            Err(error) if error.code == ErrorCode::VolumeNotFound => {
                // Somebody else may have been faster, which is as good.
                self.make(name, DEFAULT_VOLUME_BYTES)?;
                self.shelf.hold(name.as_str())?
            }
            hold => hold?,
        };
        Ok((self.shelf.place(name.as_str()).join("files"), self.read(name)?.size_bytes, hold))
    }

    fn read(&self, name: &VolumeName) -> Result<Record> {
        read_record(&self.shelf.place(name.as_str()).join("volume.json")).map_err(|error: io::Error| {
            match error.kind() {
                io::ErrorKind::NotFound => self.shelf.not_found(name.as_str()),
                _ => Error::new(ErrorCode::HostIo, format!("the record of the volume {name} cannot be read"))
                    .because(error),
            }
        })
    }

    pub(crate) fn names(&self) -> Vec<VolumeName> {
        self.shelf.names().iter().filter_map(|name| VolumeName::parse(name).ok()).collect()
    }

    pub(crate) fn status(&self, name: &VolumeName, sandboxes: Vec<String>) -> Result<VolumeStatus> {
        let Record { size_bytes, created_at } = self.read(name)?;
        let used_bytes = used(&self.shelf.place(name.as_str()).join("files"));
        Ok(VolumeStatus { name: name.clone(), size_bytes, used_bytes, created_at, sandboxes })
    }
}

/// What files and folders take on disk with all below them. Programs inside choose what is there and may change it meanwhile,
/// so no link is followed, and count and depth are bounded.
pub(crate) fn used(folder: &Path) -> Option<u64> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // One that nothing was put into yet may not be there.
    let Ok(folder) = rustix::fs::open(folder, flags, Mode::empty()) else { return Some(0) };
    let (mut bytes, mut left) = (0, MOST_ENTRIES);
    add_below(&folder, 0, &mut bytes, &mut left)?;
    Some(bytes)
}

fn add_below(folder: &OwnedFd, depth: usize, bytes: &mut u64, left: &mut u64) -> Option<()> {
    let Ok(entries) = Dir::read_from(folder) else { return Some(()) };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if [c".", c".."].contains(&name) {
            continue;
        }
        let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        *bytes += stat.st_blocks as u64 * 512;
        *left = left.checked_sub(1)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            if depth == DEEPEST {
                return None;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if let Ok(below) = rustix::fs::openat(folder, name, flags, Mode::empty()) {
                add_below(&below, depth + 1, bytes, left)?;
            }
        }
    }
    Some(())
}
