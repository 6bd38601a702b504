//! The files of a project.
//!
//! A file is a name in `files` for a content in `content`, so that the same content is there once however many names it has.
//! What is said of a file in `about` is written before the file appears and removed after it is gone; whatever dies in
//! between leaves at most a word about nothing, or a content without a name, which the next change removes. One change is made at a
//! time, by whoever holds `files.lock`. Sandboxes see `files` as it is at every moment.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use glovebox_core::{Error, ErrorCode, Result};
use jiff::Timestamp;
use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{ProjectRules, file_name, shelf::Hold, shelf::make_folder, shelf::read_record};

const CHUNK: usize = 256 * 1024;
const NEW: &str = "new";

/// The files of one project, which stays while this value lives.
#[derive(Debug)]
pub struct ProjectFiles {
    place: PathBuf,
    rules: ProjectRules,
    _hold: Hold,
}

/// A file of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProjectFile {
    /// Its name, which no other file of the project has.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of its bytes, hexadecimal.
    pub sha256: String,
    /// When it was added.
    pub added_at: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct About {
    sha256: String,
    added_at: Timestamp,
}

impl ProjectFiles {
    /// Makes the folders of a project that is being made.
    pub(crate) fn make(place: &Path) -> io::Result<()> {
        for folder in ["about", "content"] {
            make_folder(&place.join(folder))?;
        }
        // Whoever commands run as must be able to look into it, also where owners cannot be shifted.
        fs::DirBuilder::new().mode(0o755).create(place.join("files"))?;
        fs::set_permissions(place.join("files"), fs::Permissions::from_mode(0o755))?;
        File::options().create_new(true).write(true).mode(0o600).open(place.join("files.lock")).map(drop)
    }

    pub(crate) fn new(place: PathBuf, rules: ProjectRules, hold: Hold) -> Self {
        ProjectFiles { place, rules, _hold: hold }
    }

    /// All files, by name.
    pub fn list(&self) -> Result<Vec<ProjectFile>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(self.place.join("about")).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            files.extend(self.look_up(&name)?);
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }

    /// One file.
    pub fn show(&self, name: &str) -> Result<ProjectFile> {
        let found = if file_name::is_name(name) { self.look_up(name)? } else { None };
        found.ok_or_else(|| {
            Error::new(ErrorCode::FileNotFound, format!("the project has no file {name:?}"))
                .hint("glovebox projects files list NAME shows its files")
        })
    }

    fn look_up(&self, name: &str) -> Result<Option<ProjectFile>> {
        let there = fs::symlink_metadata(self.place.join("files").join(name));
        let about = read_record::<About>(&self.place.join("about").join(name));
        match (there, about) {
            (Ok(there), Ok(About { sha256, added_at })) => {
                Ok(Some(ProjectFile { name: name.to_owned(), bytes: there.len(), sha256, added_at }))
            }
            (Err(error), _) | (_, Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(None),
        }
    }

    /// Opens a file to read it.
    pub fn open(&self, name: &str) -> Result<File> {
        self.show(name)?;
        open_plain(&self.place.join("files").join(name)).map_err(failed)
    }

    /// Adds a file of the host under its own name, made safe, and with a number when the project has that name already.
    pub fn add(&self, path: &Path) -> Result<ProjectFile> {
        let given = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = file_name::safe(&given.unwrap_or_default());
        let refuse =
            |why: String| Error::new(ErrorCode::FileRefused, format!("{} is not added: {why}", path.display()));
        let source = open_plain(path).map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::LOOP) => refuse("it is a link".to_owned()).hint("name what it leads to"),
            Some(Errno::NOENT | Errno::NOTDIR) => {
                Error::new(ErrorCode::FileNotFound, format!("there is no file {}", path.display()))
            }
            _ => Error::new(ErrorCode::FileUnreadable, format!("cannot read {}", path.display())).because(error),
        })?;
        let facts = source.metadata().map_err(failed)?;
        if facts.is_dir() {
            return Err(refuse("it is a folder".to_owned()).hint("name its files; a project's files lie side by side"));
        }
        if !facts.is_file() {
            return Err(refuse("it is not an ordinary file".to_owned()));
        }
        self.check(&name, facts.len()).map_err(refuse)?;
        let _lock = self.lock()?;
        self.remove_unnamed().map_err(failed)?;
        let count = fs::read_dir(self.place.join("files")).map_err(failed)?.count() as u64;
        if count >= self.rules.files {
            return Err(refuse(format!("the project has {count} files, as many as it takes")));
        }
        let sha256 = match self.store(source).map_err(failed)? {
            Some(sha256) => sha256,
            None => return Err(refuse(self.too_large())),
        };
        self.name(&name, sha256).map_err(failed)
    }

    /// Whether the rules let a file in; says why not.
    fn check(&self, name: &str, bytes: u64) -> Result<(), String> {
        let ending = file_name::ending(name);
        if !self.rules.types.is_empty() && !self.rules.types.contains(&ending) {
            return Err(format!("the project takes only files that end in {}", self.rules.types.join(", ")));
        }
        if bytes > self.rules.file_bytes { Err(self.too_large()) } else { Ok(()) }
    }

    fn too_large(&self) -> String {
        format!("it is larger than the {} bytes that the project takes", self.rules.file_bytes)
    }

    /// Stores a content, if it is not there yet, and says its hash. Nothing when it is larger than the rules allow.
    fn store(&self, source: File) -> io::Result<Option<String>> {
        let new = self.place.join("content").join(NEW);
        let mut file = File::options().create_new(true).write(true).mode(0o444).open(&new)?;
        let mut source = source.take(self.rules.file_bytes.saturating_add(1));
        let (mut hasher, mut bytes, mut chunk) = (Sha256::new(), 0u64, vec![0; CHUNK]);
        loop {
            let count = match source.read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                count => count?,
            };
            if count == 0 {
                break;
            }
            hasher.update(&chunk[..count]);
            file.write_all(&chunk[..count])?;
            bytes += count as u64;
        }
        if bytes > self.rules.file_bytes {
            fs::remove_file(&new)?;
            return Ok(None);
        }
        file.set_permissions(fs::Permissions::from_mode(0o444))?;
        file.sync_all()?;
        let sha256: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        // The same content once more replaces itself only when no name has it: names share what is there.
        match fs::symlink_metadata(self.content(&sha256)) {
            Ok(there) if there.len() == bytes => fs::remove_file(&new)?,
            _ => fs::rename(&new, self.content(&sha256))?,
        }
        Ok(Some(sha256))
    }

    /// Gives a content a name that is free.
    fn name(&self, wanted: &str, sha256: String) -> io::Result<ProjectFile> {
        let about = About { sha256, added_at: Timestamp::now() };
        for number in 1.. {
            let name = file_name::numbered(wanted, number);
            let place = self.place.join("files").join(&name);
            if place.symlink_metadata().is_ok() {
                continue;
            }
            let mut new = File::create(self.place.join(NEW))?;
            new.write_all(&serde_json::to_vec(&about)?)?;
            new.sync_all()?;
            fs::rename(self.place.join(NEW), self.place.join("about").join(&name))?;
            fs::hard_link(self.content(&about.sha256), &place)?;
            let bytes = place.symlink_metadata()?.len();
            return Ok(ProjectFile { name, bytes, sha256: about.sha256, added_at: about.added_at });
        }
        unreachable!("there are more numbers than files")
    }

    /// Removes a file. Sandboxes that have it open keep it until they close it.
    pub fn remove(&self, name: &str) -> Result<()> {
        let _lock = self.lock()?;
        self.show(name)?;
        let removed = || -> io::Result<()> {
            fs::remove_file(self.place.join("files").join(name))?;
            fs::remove_file(self.place.join("about").join(name))?;
            self.remove_unnamed()
        };
        removed().map_err(failed)
    }

    /// Removes contents that no file has, and what a change left that was cut short.
    fn remove_unnamed(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.place.join("content"))? {
            let entry = entry?;
            if entry.metadata()?.nlink() == 1 {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    fn content(&self, sha256: &str) -> PathBuf {
        self.place.join("content").join(sha256)
    }

    fn lock(&self) -> Result<File> {
        let lock = File::open(self.place.join("files.lock")).map_err(failed)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        Ok(lock)
    }
}

/// Opens what is meant to be an ordinary file: no link is followed, and no pipe or device is waited for.
fn open_plain(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    File::options().read(true).custom_flags(flags.bits() as i32).open(path)
}

fn failed(error: io::Error) -> Error {
    Error::new(ErrorCode::HostIo, "the files of the project cannot be used").because(error)
}
