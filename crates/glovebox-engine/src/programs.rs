//! Compiled programs, kept below the data folder by the hash of all that went into them.
//!
//! What is kept was made by a compiler that was fed hostile source, so it is never run on the host and only ever given to
//! a sandbox again, for the very same source. Files are opened without following links, because a data folder may be one
//! that somebody else filled.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::DirBuilderExt,
    },
    path::{Path, PathBuf},
    time::SystemTime,
};

use glovebox_core::{InsidePath, PROGRAM_DIR};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use sha2::{Digest, Sha256};

use crate::{FileContent, InputFile, source::Compile};

/// Programs larger than this are compiled each time.
pub(crate) const LARGEST: u64 = 64 << 20;
/// All that is kept; the programs that were not used for longest go first.
const MOST_BYTES: u64 = 1 << 30;
/// What the names of folders begin with whose program is not whole yet. Their makers hold a lock on them.
const UNFINISHED: &str = "unfinished-";

/// The name of a compiled program: the hash of all that it is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    /// The key of a source that is compiled alone. Each part is preceded by its length, so that no two sets of parts
    /// run together into the same bytes.
    pub(crate) fn new(compile: &Compile, backend: &str, source: &[u8]) -> Self {
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        };
        for part in ["glovebox program 1", backend, &compile.compiler, compile.source.as_str()] {
            add(part.as_bytes());
        }
        add(&(compile.argv.len() as u64).to_le_bytes());
        compile.argv.iter().for_each(|word| add(word.as_bytes()));
        add(&(compile.env.len() as u64).to_le_bytes());
        compile.env.iter().for_each(|(name, value)| add(format!("{name}={value}").as_bytes()));
        add(source);
        Key(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// The folder of compiled programs.
pub(crate) struct Programs {
    data_dir: PathBuf,
    folder: PathBuf,
}

impl Programs {
    pub(crate) fn below(data_dir: &Path) -> Self {
        Programs { data_dir: data_dir.to_owned(), folder: data_dir.join("programs") }
    }

    /// A program as files for a sandbox. Anything that is not as it was left counts as not there.
    pub(crate) fn find(&self, key: &Key, products: &[String]) -> Option<Vec<InputFile>> {
        let folder = open_folder(CWD, &self.folder).and_then(|all| open_folder(&all, Path::new(&key.0))).ok()?;
        let mut files = Vec::new();
        let mut left = LARGEST;
        for name in products {
            let bytes = read_file(&folder, Path::new(name), left).ok()?;
            left -= bytes.len() as u64;
            let target = InsidePath::absolute(&format!("{PROGRAM_DIR}/{name}")).ok()?;
            files.push(InputFile { target, content: FileContent::Bytes(bytes.into()), mode: 0o755 });
        }
        // The time of its last use decides what goes first. Failing to note it only makes it go early.
        let _ = File::from(folder).set_modified(SystemTime::now());
        Some(files)
    }

    /// A new folder to put a program into, before it gets its name.
    pub(crate) fn begin(self) -> io::Result<Unfinished> {
        fs::create_dir_all(&self.data_dir)?;
        // Nobody else of this machine has a reason to run or read what is in here.
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
        let folder = self.folder.join(format!("{UNFINISHED}{}", glovebox_core::RunId::new()));
        DirBuilder::new().mode(0o700).create(&folder)?;
        let lock = open_folder(CWD, &folder)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Unfinished { folder, _lock: lock, programs: self })
    }

    /// Removes what processes left that died before their program was whole, and says what it was.
    pub(crate) fn remove_unfinished(&self) -> io::Result<Vec<String>> {
        let mut removed = Vec::new();
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(removed),
            other => other?,
        };
        for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(UNFINISHED)) {
            let Ok(folder) = open_folder(CWD, &entry.path()) else { continue };
            if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
                fs::remove_dir_all(entry.path())?;
                removed.push(format!("unfinished program {}", entry.path().display()));
            }
        }
        Ok(removed)
    }

    /// Removes what was never finished, and what was not used for longest, until the rest fits.
    fn trim(&self) -> io::Result<()> {
        self.remove_unfinished()?;
        let mut kept = Vec::new();
        for entry in fs::read_dir(&self.folder)?.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if !entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                kept.push((used, size_of(&entry.path()), entry.path()));
            }
        }
        kept.sort();
        let mut bytes: u64 = kept.iter().map(|(_, size, _)| size).sum();
        for (_, size, path) in kept {
            if bytes <= MOST_BYTES {
                break;
            }
            fs::remove_dir_all(path)?;
            bytes -= size;
        }
        Ok(())
    }
}

/// A program that is being stored. Dropping it removes what is there of it.
pub(crate) struct Unfinished {
    folder: PathBuf,
    /// Gone with this process, however it ends.
    _lock: OwnedFd,
    programs: Programs,
}

impl Unfinished {
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Gives the program its name. One that is there already, by another process, stays.
    pub(crate) fn finish(self, key: &Key) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)?.flatten() {
            File::open(entry.path())?.sync_all()?;
        }
        match fs::rename(&self.folder, self.programs.folder.join(&key.0)) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            other => other?,
        }
        self.programs.trim()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Gone already when it got its name.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn open_folder(at: impl AsFd, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(at, name, flags, Mode::empty())?)
}

/// Reads an ordinary file, if it is no longer than `most`. A link is no ordinary file, and nothing else is waited for.
pub(crate) fn read_file(folder: impl AsFd, name: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(folder, name, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn size_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile() -> Compile {
        Compile {
            argv: vec!["cc".into(), "main.c".into()],
            env: vec![("A".into(), "B".into())],
            source: InsidePath::absolute("/w/main.c").unwrap(),
            products: vec!["main".into()],
            compiler: "/usr/bin/cc 1".into(),
        }
    }

    #[test]
    fn everything_that_goes_into_a_program_is_in_its_key() {
        let key = |change: fn(&mut Compile), source: &[u8]| {
            let mut compile = compile();
            change(&mut compile);
            Key::new(&compile, "native", source)
        };
        let first = key(|_| {}, b"int x;");
        assert_eq!(first, key(|_| {}, b"int x;"));
        for other in [
            key(|_| {}, b"int y;"),
            key(|c| c.argv[1] = "other.c".into(), b"int x;"),
            key(|c| c.argv = vec!["ccmain.c".into()], b"int x;"),
            key(|c| c.env.clear(), b"int x;"),
            key(|c| c.compiler = "/usr/bin/cc 2".into(), b"int x;"),
            key(|c| c.source = InsidePath::absolute("/w/b.c").unwrap(), b"int x;"),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn a_kept_program_comes_back_and_an_unfinished_one_never_does() {
        let dir = std::env::temp_dir().join(format!("glovebox-programs-{}", glovebox_core::RunId::new()));
        let programs = || Programs::below(&dir);
        let key = Key::new(&compile(), "native", b"int x;");
        let products = ["main".to_owned()];
        let begun = programs().begin().unwrap();
        assert_eq!(programs().remove_unfinished().unwrap(), Vec::<String>::new(), "somebody is at it");
        drop(begun);
        fs::create_dir(dir.join("programs/unfinished-by-the-dead")).unwrap();
        assert_eq!(programs().remove_unfinished().unwrap().len(), 1);
        assert!(programs().find(&key, &products).is_none());
        let unfinished = programs().begin().unwrap();
        fs::write(unfinished.folder().join("main"), "program").unwrap();
        unfinished.finish(&key).unwrap();
        let files = programs().find(&key, &products).unwrap();
        assert!(matches!(&files[0].content, FileContent::Bytes(bytes) if bytes == "program"));
        assert_eq!(fs::read_dir(dir.join("programs")).unwrap().count(), 1);
        // A link in its place is not followed.
        let place = dir.join("programs").join(&key.0).join("main");
        fs::remove_file(&place).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &place).unwrap();
        assert!(programs().find(&key, &products).is_none());
        fs::remove_dir_all(dir).unwrap();
    }
}
