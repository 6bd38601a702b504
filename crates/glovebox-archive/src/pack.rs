//! Giving a folder as an archive, piece by piece.

use std::{collections::BTreeSet, ffi::OsStr, io, os::fd::OwnedFd, os::unix::ffi::OsStrExt, path::Path};

use rustix::{
    fs::{FileType, Mode, OFlags, Stat},
    io::Errno,
};
use tar::{Builder, EntryType, Header};

use crate::{
    ArchiveError, LeftOut, Why,
    read::padding,
    walk::{Found, Step, Walk},
};

/// How much larger than what its files really take an archive may be. Holes in files count, and further names of the same
/// file: without a bound a few bytes on disk could become terabytes of archive.
const MOST_EXCESS: u64 = 1 << 30;
/// So many steps without a byte to give, and others get their turn.
const STEPS: usize = 64;

/// A folder that is being packed.
pub struct Pack {
    walk: Walk,
    file: Option<Open>,
    excess: u64,
    left_out: LeftOut,
    /// What nobody can pack, and nobody misses who knows what an archive is.
    specials: LeftOut,
    without: BTreeSet<Vec<u8>>,
    ended: bool,
}

/// A file whose bytes are being given.
struct Open {
    file: OwnedFd,
    path: Vec<u8>,
    left: u64,
    padding: u64,
    /// Whether the file became too short, and zeros take the place of the rest.
    zeros: bool,
}

impl Pack {
    /// Packs what is in a folder. Paths in the archive count from it.
    pub fn folder(folder: OwnedFd) -> io::Result<Self> {
        let walk = Walk::new(folder)?;
        let (left_out, specials) = (LeftOut::default(), LeftOut::default());
        Ok(Pack { walk, file: None, excess: 0, left_out, specials, without: BTreeSet::new(), ended: false })
    }

    /// Passes over what lies at these paths, and below them.
    #[must_use]
    pub fn without(mut self, paths: BTreeSet<Vec<u8>>) -> Self {
        self.without = paths;
        self
    }

    /// Adds bytes of the archive to the buffer until it holds `most`, or until others should get a turn. Says whether there
    /// is more to come.
    pub fn fill(&mut self, buffer: &mut Vec<u8>, most: usize) -> Result<bool, ArchiveError> {
        for _ in 0..STEPS {
            if self.ended || buffer.len() >= most {
                break;
            }
            match &mut self.file {
                Some(open) => {
                    if open.read(buffer, most, &mut self.left_out) {
                        self.file = None;
                    }
                }
                None => self.next_entry(buffer)?,
            }
        }
        Ok(!self.ended)
    }

    /// What was left out.
    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// The pipes, sockets and devices that were passed over.
    pub fn specials(&self) -> &LeftOut {
        &self.specials
    }

    fn next_entry(&mut self, buffer: &mut Vec<u8>) -> Result<(), ArchiveError> {
        let found = match self.walk.step(&mut self.left_out) {
            Step::Found(found) => found,
            Step::Nothing => return Ok(()),
            Step::End => {
                self.ended = true;
                buffer.resize(buffer.len() + 1024, 0);
                return Ok(());
            }
        };
        if self.without.contains(&found.path) {
            return Ok(());
        }
        match FileType::from_raw_mode(found.stat.st_mode) {
            FileType::Directory => {
                if self.walk.enter(&found, &mut self.left_out) {
                    append(buffer, EntryType::Directory, &found.path, &found.stat, 0, None)?;
                }
                Ok(())
            }
            FileType::RegularFile => self.begin_file(found, buffer),
            FileType::Symlink => {
                let Some(here) = self.walk.here() else { return Ok(()) };
                match rustix::fs::readlinkat(here, &found.name, Vec::new()) {
                    Ok(target) => {
                        append(buffer, EntryType::Symlink, &found.path, &found.stat, 0, Some(target.as_bytes()))
                    }
                    Err(_) => Ok(()),
                }
            }
            // Pipes, sockets and devices mean nothing elsewhere.
            _ => {
                self.specials.note(&found.path, Why::NotOrdinary);
                Ok(())
            }
        }
    }

    fn begin_file(&mut self, found: Found, buffer: &mut Vec<u8>) -> Result<(), ArchiveError> {
        let Some(here) = self.walk.here() else { return Ok(()) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(here, &found.name, flags, Mode::empty());
        let (file, stat) = match opened.and_then(|file| Ok((rustix::fs::fstat(&file)?, file))) {
            Ok((stat, file)) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => (file, stat),
            // It went away, or something else is there now.
            Ok(_) | Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(()),
            Err(error) => {
                self.left_out.note(&found.path, Why::Unreadable(error.raw_os_error()));
                return Ok(());
            }
        };
        let size = stat.st_size as u64;
        self.excess = self.excess.saturating_add(excess(&stat));
        if self.excess > MOST_EXCESS {
            return Err(ArchiveError::TooLarge(found.path));
        }
        append(buffer, EntryType::Regular, &found.path, &stat, size, None)?;
        self.file = Some(Open { file, path: found.path, left: size, padding: padding(size), zeros: false });
        Ok(())
    }
}

/// How much more a file takes in an archive than its share of the disk.
fn excess(stat: &Stat) -> u64 {
    let stored = (stat.st_blocks as u64).saturating_mul(512) / u64::from(stat.st_nlink as u32).max(1);
    (stat.st_size as u64).saturating_sub(stored)
}

impl Open {
    /// Adds the next bytes; says whether the file is complete.
    fn read(&mut self, buffer: &mut Vec<u8>, most: usize, left_out: &mut LeftOut) -> bool {
        let start = buffer.len();
        let wanted = (most - start).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        buffer.resize(start + wanted, 0);
        if wanted > 0 && !self.zeros {
            match rustix::io::read(&self.file, &mut buffer[start..]) {
                Ok(length) if length > 0 => buffer.truncate(start + length),
                Err(Errno::INTR) => buffer.truncate(start),
                // The header has promised so many bytes, so zeros take their place, and somebody is told.
                result => {
                    let why = result.map_or_else(|error| Why::Unreadable(error.raw_os_error()), |_| Why::Shrank);
                    left_out.note(&self.path, why);
                    self.zeros = true;
                }
            }
        }
        self.left -= (buffer.len() - start) as u64;
        if self.left > 0 {
            return false;
        }
        buffer.resize(buffer.len() + self.padding as usize, 0);
        true
    }
}

/// Adds a header, and headers before it where the names are long.
fn append(
    buffer: &mut Vec<u8>,
    kind: EntryType,
    path: &[u8],
    stat: &Stat,
    size: u64,
    link: Option<&[u8]>,
) -> Result<(), ArchiveError> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(stat.st_mode & 0o777);
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    let as_path = |bytes| Path::new(OsStr::from_bytes(bytes));
    // The builder knows how long names are written; the bytes of a file follow later.
    let mut builder = Builder::new(Vec::new());
    let appended = match link {
        // A short one is written as it stands, a long one too, in a header of its own.
        Some(target) if target.len() <= 100 => header
            .set_link_name_literal(target)
            .and_then(|()| builder.append_data(&mut header, as_path(path), io::empty())),
        Some(target) => builder.append_link(&mut header, as_path(path), as_path(target)),
        None => builder.append_data(&mut header, as_path(path), io::empty()),
    };
    appended.map_err(|error| ArchiveError::Io(path.to_vec(), error))?;
    // Its end would be that of an archive.
    buffer.append(builder.get_mut());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Write,
        os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    };

    use super::*;
    use crate::{LinkRule, Unpack};

    fn pack(folder: &Path) -> (Vec<u8>, Result<LeftOut, ArchiveError>) {
        let mut pack = Pack::folder(fs::File::open(folder).unwrap().into()).unwrap();
        let (mut all, mut piece) = (Vec::new(), Vec::new());
        loop {
            match pack.fill(&mut piece, 5000) {
                Ok(more) => {
                    assert!(piece.len() <= 5000 + 4 * 1024, "a piece of {} bytes", piece.len());
                    all.append(&mut piece);
                    if !more {
                        return (all, Ok(pack.left_out.clone()));
                    }
                }
                Err(error) => return (all, Err(error)),
            }
        }
    }

    #[test]
    fn what_is_to_be_passed_over_is_not_packed_and_specials_are_counted() {
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(source.path().join("hidden/below")).unwrap();
        for name in ["hidden/below/file", "kept", "one"] {
            fs::write(source.path().join(name), name).unwrap();
        }
        let _socket = std::os::unix::net::UnixListener::bind(source.path().join("socket")).unwrap();
        let without = ["hidden", "one"].map(|path| path.as_bytes().to_vec()).into();
        let mut pack = Pack::folder(fs::File::open(source.path()).unwrap().into()).unwrap().without(without);
        let mut all = Vec::new();
        while pack.fill(&mut all, 1 << 20).unwrap() {}
        assert_eq!(pack.specials().first, Some((b"socket".to_vec(), Why::NotOrdinary)));
        assert_eq!((pack.specials().count, pack.left_out().count), (1, 0));
        let mut unpack = Unpack::into_folder(fs::File::open(target.path()).unwrap().into(), LinkRule::All);
        unpack.push(&all).unwrap();
        unpack.finish().unwrap();
        let made: Vec<_> = fs::read_dir(target.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(made, ["kept"]);
    }

    #[test]
    fn a_tree_survives_packing_and_unpacking_with_all_its_names() {
        let from = tempfile::tempdir().unwrap();
        let names: Vec<Vec<u8>> = vec![
            b"plain".to_vec(),
            b"new\nline".to_vec(),
            b"not\xfftext".to_vec(),
            vec![b'n'; 255],
            "deep/".repeat(40).into_bytes().into_iter().chain(*b"leaf").collect(),
            [vec![b'a'; 250], b"/".to_vec(), vec![b'b'; 250], b"/x".to_vec()].concat(),
        ];
        for (number, name) in names.iter().enumerate() {
            let path = from.path().join(OsStr::from_bytes(name));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, vec![number as u8; number * 700]).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640 + number as u32)).unwrap();
        }
        for at in 0..2000 {
            fs::write(from.path().join(format!("many-{at}")), "x").unwrap();
            fs::create_dir(from.path().join(format!("folder-{at}"))).unwrap();
        }
        symlink("../not//here/./x", from.path().join("link")).unwrap();
        symlink("y".repeat(300), from.path().join("long-link")).unwrap();
        let (bytes, left_out) = pack(from.path());
        assert_eq!(left_out.unwrap(), LeftOut::default());
        let to = tempfile::tempdir().unwrap();
        let mut unpack = Unpack::into_folder(fs::File::open(to.path()).unwrap().into(), LinkRule::All);
        bytes.chunks(999).for_each(|piece| unpack.push(piece).unwrap());
        assert_eq!(unpack.finish().unwrap(), LeftOut::default());
        for (number, name) in names.iter().enumerate() {
            let path = to.path().join(OsStr::from_bytes(name));
            assert_eq!(fs::read(&path).unwrap(), vec![number as u8; number * 700]);
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
            assert_eq!(mode, 0o640 + number as u32);
        }
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), fs::read_dir(from.path()).unwrap().count());
        assert_eq!(fs::read_link(to.path().join("link")).unwrap(), Path::new("../not//here/./x"));
        assert_eq!(fs::read_link(to.path().join("long-link")).unwrap().as_os_str().len(), 300);
        // The same archive is one for others, too.
        let mut archive = tar::Archive::new(&bytes[..]);
        assert!(archive.entries().unwrap().filter(Result::is_ok).count() > 4000);
    }

    #[test]
    fn terabytes_of_holes_are_refused_and_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::File::create(folder.path().join("huge")).unwrap().set_len(1 << 40).unwrap();
        let (bytes, result) = pack(folder.path());
        assert!(matches!(result, Err(ArchiveError::TooLarge(path)) if path == b"huge"));
        assert!(bytes.is_empty());
    }

    #[test]
    fn a_thousand_names_of_one_file_count_as_what_they_would_take() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = fs::File::create(folder.path().join("0")).unwrap();
        file.write_all(&vec![1; 1 << 20]).unwrap();
        for number in 1..1000 {
            fs::hard_link(folder.path().join("0"), folder.path().join(number.to_string())).unwrap();
        }
        let stat = rustix::fs::fstat(&file).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 1000);
        assert!(excess(&stat) > (1 << 20) - 8192, "{}", excess(&stat));
    }

    #[test]
    fn pipes_are_passed_over_and_deep_folders_are_told() {
        let folder = tempfile::tempdir().unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, folder.path().join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        fs::create_dir_all(folder.path().join("d/".repeat(crate::DEEPEST + 10))).unwrap();
        let (bytes, left_out) = pack(folder.path());
        let left_out = left_out.unwrap();
        assert_eq!((left_out.count, left_out.first.unwrap().1), (1, Why::TooDeep));
        assert_eq!(tar::Archive::new(&bytes[..]).entries().unwrap().count(), crate::DEEPEST);
    }

    #[test]
    fn a_file_that_shrinks_is_filled_up_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, vec![1; 20_000]).unwrap();
        let mut pack = Pack::folder(fs::File::open(folder.path()).unwrap().into()).unwrap();
        let mut bytes = Vec::new();
        pack.fill(&mut bytes, 1000).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_len(5000).unwrap();
        while pack.fill(&mut bytes, 1 << 20).unwrap() {}
        assert_eq!(pack.left_out().first, Some((b"file".to_vec(), Why::Shrank)));
        assert_eq!(bytes.len(), 512 + 20_480 + 1024);
    }
}
