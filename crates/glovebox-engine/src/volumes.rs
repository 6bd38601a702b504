//! Volumes: named storage that outlives sandboxes.
//!
//! `DATA/volumes/NAME/` holds `volume.json`, which never changes, and `files`, which sandboxes are shown. A volume that is made for sandboxes
//! on another machine is kept there, for good: `volume.json` says where and by which name, and `files` stays empty.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use glovebox_core::{DEFAULT_VOLUME_BYTES, Error, ErrorCode, MountKind, Result, SandboxId, VolumeName};
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    elsewhere: Option<Elsewhere>,
}

/// Where a volume is that is not on this machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Elsewhere {
    /// As its backend says it.
    pub(crate) place: String,
    /// Its name there, which nothing else has.
    pub(crate) volume: String,
}

/// A volume as it is now: one document of `volumes list` and `volumes show`.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeStatus {
    /// Its name.
    pub name: VolumeName,
    /// How much it may hold.
    pub size_bytes: u64,
    /// How much it holds; null when that is more than can be counted, or when it is on another machine.
    pub used_bytes: Option<u64>,
    /// Where it is, if not on this machine: the address of an engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
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

    /// Makes a volume of this machine that holds at most so many bytes.
    pub fn create(&self, name: &VolumeName, size_bytes: u64) -> Result<()> {
        self.create_at(name, size_bytes, None)
    }

    /// Makes a volume where a backend keeps its volumes.
    pub(crate) fn create_at(&self, name: &VolumeName, size_bytes: u64, place: Option<String>) -> Result<()> {
        match self.make(name, size_bytes, place)? {
            true => Ok(()),
            false => Err(self.shelf.taken(name.as_str())),
        }
    }

    fn make(&self, name: &VolumeName, size_bytes: u64, place: Option<String>) -> Result<bool> {
        let volume = |place| {
            let unique = SandboxId::new().to_string().replace("sb_", "").to_lowercase();
            Elsewhere { place, volume: format!("glovebox-volume-{name}-{unique}") }
        };
        let record = Record { size_bytes, created_at: Timestamp::now(), elsewhere: place.map(volume) };
        self.shelf.make(name.as_str(), |place| {
            make_folder(&place.join("files"))?;
            write_record(&place.join("volume.json"), &record)
        })
    }

    /// Where the files of a volume are, of which kind it is, and the assurance that it stays. One that is not there is made,
    /// as somebody who names it for the first time expects: where the backend keeps its volumes. One that is elsewhere is not used.
    pub(crate) fn attach(&self, name: &VolumeName, place: Option<String>) -> Result<(PathBuf, MountKind, Hold)> {
        let hold = match self.shelf.hold(name.as_str()) {
            Err(error) if error.code == ErrorCode::VolumeNotFound => {
                // Somebody else may have been faster, which is as good.
                self.make(name, DEFAULT_VOLUME_BYTES, place.clone())?;
                self.shelf.hold(name.as_str())?
            }
            hold => hold?,
        };
        let Record { size_bytes: bytes, elsewhere, .. } = self.read(name)?;
        match elsewhere {
            Some(there) if Some(&there.place) == place.as_ref() => {
                Ok((there.volume.into(), MountKind::VolumeElsewhere { bytes }, hold))
            }
            None if place.is_none() => {
                Ok((self.shelf.place(name.as_str()).join("files"), MountKind::Volume { bytes }, hold))
            }
            elsewhere => Err(not_there(name, elsewhere.as_ref(), place.as_deref())),
        }
    }

    /// Where a volume is, if not on this machine.
    pub(crate) fn elsewhere(&self, name: &VolumeName) -> Result<Option<Elsewhere>> {
        Ok(self.read(name)?.elsewhere)
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
        let Record { size_bytes, created_at, elsewhere } = self.read(name)?;
        let used_bytes = match elsewhere {
            None => used(&self.shelf.place(name.as_str()).join("files")),
            Some(_) => None,
        };
        let place = elsewhere.map(|there| there.place);
        Ok(VolumeStatus { name: name.clone(), size_bytes, used_bytes, place, created_at, sandboxes })
    }
}

/// What is said when a volume is wanted in another place than its own.
fn not_there(name: &VolumeName, is: Option<&Elsewhere>, wanted: Option<&str>) -> Error {
    let said = |place: Option<&str>| place.map_or("this machine".to_owned(), |place| format!("the engine at {place}"));
    let is = is.map(|there| there.place.as_str());
    let message = format!("the volume {name} is on {}, and not on {}", said(is), said(wanted));
    Error::new(ErrorCode::WrongState, message).hint("a volume stays where it was made: use another name there")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_used_where_it_was_made_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let volumes = Volumes::below(folder.path());
        let name = |text: &str| VolumeName::parse(text).unwrap();
        let (far, farther) = (Some("tcp://far:1".to_owned()), Some("tcp://farther:1".to_owned()));
        for (volume, made, others) in [("here", None, [&far, &farther]), ("there", far.clone(), [&None, &farther])] {
            let (first, kind, _) = volumes.attach(&name(volume), made.clone()).unwrap();
            assert_eq!(matches!(kind, MountKind::VolumeElsewhere { .. }), made.is_some());
            assert_eq!(volumes.attach(&name(volume), made.clone()).unwrap().0, first, "it is the same again");
            assert_eq!(volumes.status(&name(volume), Vec::new()).unwrap().place, made);
            for other in others {
                let error = volumes.attach(&name(volume), other.clone()).unwrap_err();
                assert_eq!(error.code, ErrorCode::WrongState, "{error}");
            }
        }
        assert!(volumes.elsewhere(&name("here")).unwrap().is_none());
        let there = volumes.elsewhere(&name("there")).unwrap().unwrap();
        assert!(there.volume.starts_with("glovebox-volume-there-"), "{there:?}");
        volumes.create_at(&name("more"), 1, far).unwrap();
        assert_ne!(volumes.elsewhere(&name("more")).unwrap().unwrap().volume, there.volume);
    }

    #[test]
    fn a_record_of_before_there_were_other_machines_is_of_this_one() {
        let old: Record = serde_json::from_str(r#"{"size_bytes":1,"created_at":"2026-01-01T00:00:00Z"}"#).unwrap();
        assert!(old.elsewhere.is_none());
        assert!(!serde_json::to_string(&old).unwrap().contains("elsewhere"));
    }
}
