//! Making files from an archive, beneath one folder.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, Timespec, Timestamps},
    io::Errno,
};

use crate::{
    ArchiveError, LeftOut, Why,
    folder::{is_kernels_own, open_beneath},
    read::{Entry, Event, Kind, Reader},
};

/// Which links of an archive are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkRule {
    /// All, as they stand: inside a sandbox they lead nowhere else.
    All,
    /// Only symbolic links that stay within the folder, whatever other links there are; and no hard links.
    Inward,
}

/// An archive that is being unpacked. What is there under the same name is replaced, but for folders, which are kept.
#[derive(Debug)]
pub struct Unpack {
    top: OwnedFd,
    links: LinkRule,
    reader: Reader,
    /// The folder of the last entry, and its path.
    folder: Option<(Vec<u8>, OwnedFd)>,
    file: Option<Open>,
    left_out: LeftOut,
}

/// A file that is being written.
#[derive(Debug)]
struct Open {
    file: OwnedFd,
    path: Vec<u8>,
    mode: Mode,
    modified: i64,
}

impl Unpack {
    /// Unpacks into a folder.
    pub fn into_folder(folder: OwnedFd, links: LinkRule) -> Self {
        let (reader, left_out) = (Reader::default(), LeftOut::default());
        Unpack { top: folder, links, reader, folder: None, file: None, left_out }
    }

    /// Takes the next bytes of the archive.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), ArchiveError> {
        while let Some(event) = self.reader.next(&mut bytes)? {
            match event {
                Event::Entry(entry) => self.begin(entry)?,
                Event::Data(bytes) => {
                    if let Some(open) = &self.file {
                        write_all(&open.file, bytes).map_err(|error| failed(&open.path, error))?;
                    }
                }
                Event::FileEnd => {
                    if let Some(open) = self.file.take() {
                        open.finish().map_err(|error| failed(&open.path, error))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Says what was left out, when the archive was whole.
    pub fn finish(self) -> Result<LeftOut, ArchiveError> {
        self.reader.finish().map(|()| self.left_out)
    }

    fn begin(&mut self, entry: Entry) -> Result<(), ArchiveError> {
        let path = clean(&entry.path)?;
        if path.is_empty() {
            // The folder itself, which is as it is.
            return Ok(());
        }
        let at = path.iter().rposition(|byte| *byte == b'/');
        let (folder, name) = at.map_or((&b""[..], &path[..]), |at| (&path[..at], &path[at + 1..]));
        if let Kind::Folder = entry.kind {
            let mode = permissions(entry.mode) | Mode::RWXU;
            return self.make_folder(folder, name, mode).map_err(|error| failed(&path, error));
        }
        if let Some(why) = self.refuses(&entry, &path) {
            self.left_out.note(&path, why);
            return Ok(());
        }
        self.open_folder(folder).map_err(|error| failed(folder, error))?;
        let made = match entry.kind {
            Kind::File(_) => self.make_file(&path, name, &entry),
            Kind::Symlink(target) => self.replace(name, |folder| rustix::fs::symlinkat(&target[..], folder, name)),
            Kind::HardLink(target) => self.make_link(&clean(&target)?, name),
            Kind::Folder | Kind::Other => Ok(()),
        };
        made.map_err(|error| failed(&path, error))
    }

    /// Why an entry is not made.
    fn refuses(&self, entry: &Entry, path: &[u8]) -> Option<Why> {
        match &entry.kind {
            Kind::Other => Some(Why::NotOrdinary),
            Kind::Symlink(target) if self.links == LinkRule::Inward && leads_out(path, target) => Some(Why::LeadsOut),
            Kind::HardLink(_) if self.links == LinkRule::Inward => Some(Why::LeadsOut),
            _ => None,
        }
    }

    /// Makes the folder of the next entry the current one, and what is missing of it.
    fn open_folder(&mut self, path: &[u8]) -> rustix::io::Result<()> {
        if self.folder.as_ref().is_some_and(|(open, _)| open == path) {
            return Ok(());
        }
        let folder = match open_beneath(&self.top, path) {
            Err(Errno::NOENT) => self.make_folders(path)?,
            other => other?,
        };
        if is_kernels_own(&folder)? {
            return Err(Errno::ACCESS);
        }
        self.folder = Some((path.to_vec(), folder));
        Ok(())
    }

    fn make_folders(&self, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        let mut at = open_beneath(&self.top, b"")?;
        for name in path.split(|byte| *byte == b'/') {
            match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => match open_beneath(&at, name) {
                    // One that is there but lies in a folder that cannot be written.
                    Ok(_) => {}
                    Err(_) => return Err(error),
                },
            }
            at = open_beneath(&at, name)?;
        }
        Ok(at)
    }

    fn make_folder(&mut self, folder: &[u8], name: &[u8], mode: Mode) -> rustix::io::Result<()> {
        self.open_folder(folder)?;
        let Some((_, folder)) = &self.folder else { return Err(Errno::NOENT) };
        match rustix::fs::mkdirat(folder, name, mode) {
            Err(Errno::EXIST) => {}
            made => return made,
        }
        // What is there must be a folder, and not a link to one.
        rustix::fs::fchmod(open_beneath(folder, name)?, mode)
    }

    fn make_file(&mut self, path: &[u8], name: &[u8], entry: &Entry) -> rustix::io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = self.replace(name, |folder| rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR))?;
        let (mode, modified) = (permissions(entry.mode), entry.modified);
        self.file = Some(Open { file, path: path.to_vec(), mode, modified });
        Ok(())
    }

    fn make_link(&mut self, target: &[u8], name: &[u8]) -> rustix::io::Result<()> {
        let at = target.iter().rposition(|byte| *byte == b'/');
        let (from, old) = at.map_or((&b""[..], target), |at| (&target[..at], &target[at + 1..]));
        let from = open_beneath(&self.top, from)?;
        self.replace(name, |folder| rustix::fs::linkat(&from, old, folder, name, AtFlags::empty()))
    }

    /// Makes something in the current folder. What is there under its name goes first, unless it is a folder.
    fn replace<T>(&self, name: &[u8], make: impl Fn(&OwnedFd) -> rustix::io::Result<T>) -> rustix::io::Result<T> {
        let Some((_, folder)) = &self.folder else { return Err(Errno::NOENT) };
        match make(folder) {
            Err(Errno::EXIST) => {
                rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
                make(folder)
            }
            made => made,
        }
    }
}

impl Open {
    fn finish(&self) -> rustix::io::Result<()> {
        let time = Timespec { tv_sec: self.modified, tv_nsec: 0 };
        rustix::fs::futimens(&self.file, &Timestamps { last_access: time, last_modification: time })?;
        rustix::fs::fchmod(&self.file, self.mode)
    }
}

/// Of a mode, who may read, write and execute. What gives a program the rights of others is not taken.
fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o777)
}

/// The path without `.` and empty parts. One that climbs is refused.
fn clean(path: &[u8]) -> Result<Vec<u8>, ArchiveError> {
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
    if parts.contains(&&b".."[..]) || path.contains(&0) {
        return Err(ArchiveError::Malformed("the archive has a path that leads out of its folder"));
    }
    Ok(parts.join(&b'/'))
}

/// Whether a link may lead out of the folder. Its own folders are real ones, so it may climb as many as there are; after
/// that it must go down only, because what looks like a folder there may be another link.
fn leads_out(path: &[u8], target: &[u8]) -> bool {
    let depth = path.iter().filter(|byte| **byte == b'/').count();
    let mut parts = target.split(|byte| *byte == b'/').filter(|part| *part != b".").peekable();
    let mut climbed = 0;
    while parts.next_if(|part| *part == b"..").is_some() {
        climbed += 1;
    }
    target.starts_with(b"/") || climbed > depth || parts.any(|part| part == b"..")
}

/// Writes all of some bytes, however many calls that takes.
pub fn write_all(file: impl AsFd, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&file, bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn failed(path: &[u8], error: Errno) -> ArchiveError {
    ArchiveError::Io(path.to_vec(), io::Error::from(error))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt, PermissionsExt, symlink},
        path::Path,
    };

    use tar::{EntryType, Header};

    use super::*;

    fn open(folder: &Path) -> OwnedFd {
        fs::File::open(folder).unwrap().into()
    }

    fn unpack(folder: &Path, links: LinkRule, archive: &[u8]) -> Result<LeftOut, ArchiveError> {
        let mut unpack = Unpack::into_folder(open(folder), links);
        for piece in archive.chunks(700) {
            unpack.push(piece)?;
        }
        unpack.finish()
    }

    /// One entry with a raw path, as no honest program would write it.
    fn entry(kind: EntryType, path: &str, link: &str, mode: u32, bytes: &[u8]) -> Vec<u8> {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(1000);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        let padding = vec![0; crate::read::padding(bytes.len() as u64) as usize];
        [header.as_bytes().as_slice(), bytes, &padding].concat()
    }

    fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
        [entries.concat(), vec![0; 1024]].concat()
    }

    #[test]
    fn files_folders_and_links_are_made_with_their_modes_and_times() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = archive(&[
            entry(EntryType::Directory, "./deep/", "", 0o500, b""),
            entry(EntryType::Regular, "deep/er/file", "", 0o6751, b"hello"),
            entry(EntryType::Symlink, "deep/link", "er/file", 0, b""),
            entry(EntryType::Link, "hard", "deep/er/file", 0, b""),
        ]);
        assert_eq!(unpack(folder.path(), LinkRule::All, &bytes).unwrap(), LeftOut::default());
        assert_eq!(fs::read(folder.path().join("deep/link")).unwrap(), b"hello");
        let made = fs::metadata(folder.path().join("deep/er/file")).unwrap();
        assert_eq!((made.permissions().mode() & 0o7777, made.mtime(), made.nlink()), (0o751, 1000, 2));
        assert_eq!(fs::metadata(folder.path().join("deep")).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn nothing_is_made_through_a_link_and_nothing_outside() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("file"), "mine").unwrap();
        let folder = tempfile::tempdir().unwrap();
        symlink(outside.path(), folder.path().join("way")).unwrap();
        symlink(outside.path().join("file"), folder.path().join("file")).unwrap();
        for links in [LinkRule::All, LinkRule::Inward] {
            for path in ["../x", "a/../../x", "way/x", "way/file", "/way/x", "way/deep/x"] {
                let bytes = archive(&[entry(EntryType::Regular, path, "", 0o644, b"theirs")]);
                assert!(unpack(folder.path(), links, &bytes).is_err(), "{path}");
            }
            let bytes = archive(&[entry(EntryType::Directory, "way", "", 0o777, b"")]);
            assert!(unpack(folder.path(), links, &bytes).is_err());
        }
        // A link in the way of a file is replaced, and so is one that came with the archive itself.
        let bytes = archive(&[
            entry(EntryType::Regular, "file", "", 0o644, b"theirs"),
            entry(EntryType::Symlink, "new", outside.path().join("file").to_str().unwrap(), 0, b""),
            entry(EntryType::Regular, "new", "", 0o644, b"theirs"),
        ]);
        unpack(folder.path(), LinkRule::All, &bytes).unwrap();
        assert_eq!(fs::read(folder.path().join("new")).unwrap(), b"theirs");
        assert_eq!(fs::read(outside.path().join("file")).unwrap(), b"mine");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn devices_pipes_and_outward_links_are_left_out_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = archive(&[
            entry(EntryType::Char, "null", "", 0o666, b""),
            entry(EntryType::Fifo, "pipe", "", 0o666, b""),
            entry(EntryType::Symlink, "out", "/etc/passwd", 0, b""),
            entry(EntryType::Symlink, "a/up", "../../x", 0, b""),
            entry(EntryType::Link, "hard", "file", 0, b""),
            entry(EntryType::Symlink, "a/in", "../file", 0, b""),
            entry(EntryType::Regular, "file", "", 0o644, b"x"),
        ]);
        let left_out = unpack(folder.path(), LinkRule::Inward, &bytes).unwrap();
        assert_eq!(left_out, LeftOut { count: 5, first: Some((b"null".to_vec(), Why::NotOrdinary)) });
        assert_eq!(fs::read(folder.path().join("a/in")).unwrap(), b"x");
        for name in ["null", "pipe", "out", "a/up", "hard"] {
            assert!(folder.path().join(name).symlink_metadata().is_err(), "{name}");
        }
    }

    #[test]
    fn a_link_that_could_lead_out_by_way_of_another_is_seen() {
        for (path, target) in
            [("a", "b/.."), ("a", "x/y/../.."), ("d/a", "../.."), ("a", "/"), ("a", ".."), ("a", "./..")]
        {
            assert!(leads_out(path.as_bytes(), target.as_bytes()), "{path} -> {target}");
        }
        for (path, target) in [("a", "b"), ("d/a", "../b"), ("d/e/a", "../../b/c"), ("a", "./b"), ("a", "..b")] {
            assert!(!leads_out(path.as_bytes(), target.as_bytes()), "{path} -> {target}");
        }
    }

    #[test]
    fn a_file_does_not_take_the_place_of_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("taken")).unwrap();
        let bytes = archive(&[entry(EntryType::Regular, "taken", "", 0o644, b"x")]);
        let Err(ArchiveError::Io(path, error)) = unpack(folder.path(), LinkRule::All, &bytes) else { panic!() };
        assert_eq!((path, error.kind()), (b"taken".to_vec(), io::ErrorKind::IsADirectory));
    }
}
