//! From paths to open files.

use std::os::fd::OwnedFd;

use glovebox_archive::{is_kernels_own, open_at};
use glovebox_proto::file::Obstacle;
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};

use super::{At, Trouble};

/// What happens to links on the way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    Refuse,
    Follow,
}

/// Whether a path is the kernel's own and not a program's.
pub(super) fn is_kernels(path: &[u8]) -> bool {
    let first = path.split(|byte| *byte == b'/').find(|part| !part.is_empty());
    [&b"proc"[..], b"sys", b"dev"].contains(&first.unwrap_or_default())
}

/// Opens what a path leads to, links followed. The kernel's own files are refused, however they were reached.
pub(super) fn open(path: &[u8], flags: OFlags) -> Result<OwnedFd, Trouble> {
    open_by(path, flags, Links::Follow)
}

fn open_by(path: &[u8], flags: OFlags, links: Links) -> Result<OwnedFd, Trouble> {
    if is_kernels(path) {
        return Err(Trouble::new(Obstacle::KernelsOwn, path));
    }
    if flags.contains(OFlags::PATH) {
        return open_checked(path, flags, links);
    }
    // To open a file of the kernel's can do things, so it is looked at first; and again, since it may be another one then.
    drop(open_checked(path, OFlags::PATH, links)?);
    open_checked(path, flags | OFlags::NONBLOCK | OFlags::NOCTTY, links)
}

fn open_checked(path: &[u8], flags: OFlags, links: Links) -> Result<OwnedFd, Trouble> {
    let resolve = match links {
        Links::Follow => ResolveFlags::NO_MAGICLINKS,
        Links::Refuse => ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS,
    };
    let file = open_at(CWD, path, flags | OFlags::CLOEXEC, resolve).at(path)?;
    match is_kernels_own(&file).at(path)? {
        true => Err(Trouble::new(Obstacle::KernelsOwn, path)),
        false => Ok(file),
    }
}

/// Opens a regular file for reading, and nothing else: a pipe would be empty for ever, and a device never.
pub(super) fn open_ordinary(path: &[u8], links: Links) -> Result<(OwnedFd, Stat), Trouble> {
    let look = |file: &OwnedFd| {
        let stat = rustix::fs::fstat(file).at(path)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(stat),
            FileType::Directory => Err(Trouble::errno(Errno::ISDIR, path)),
            _ => Err(Trouble::new(Obstacle::NotOrdinary, path)),
        }
    };
    look(&open_by(path, OFlags::PATH, links)?)?;
    let file = open_by(path, OFlags::RDONLY, links)?;
    let stat = look(&file)?;
    Ok((file, stat))
}

/// Opens the folder that a path lies in, links followed, and gives the name in it.
pub(super) fn open_parent(path: &[u8]) -> Result<(OwnedFd, &[u8]), Trouble> {
    let (folder, name) = split(path);
    if name.is_empty() {
        return Err(Trouble::errno(Errno::BUSY, path));
    }
    if is_kernels(path) {
        return Err(Trouble::new(Obstacle::KernelsOwn, path));
    }
    let folder = if folder.is_empty() { b"/" } else { folder };
    Ok((open(folder, OFlags::PATH | OFlags::DIRECTORY)?, name))
}

/// The folder and the name of a path.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let path = &path[..end];
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// Opens a folder below the root, making what is missing of it.
pub(super) fn make_folders(path: &[u8], links: Links) -> rustix::io::Result<OwnedFd> {
    // Folders on the way are only passed through, so no right to read them is needed.
    let pass = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::open("/", pass, Mode::empty())?;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            // A folder on the way that exists but cannot be written answers so; opening it tells the rest.
            Err(Errno::ACCESS | Errno::ROFS | Errno::PERM) => {}
            Err(error) => return Err(error),
        }
        at = match links {
            Links::Refuse => rustix::fs::openat(&at, name, pass | OFlags::NOFOLLOW, Mode::empty())?,
            Links::Follow => open_at(&at, name, pass, ResolveFlags::NO_MAGICLINKS)?,
        };
    }
    Ok(at)
}

/// Opens a folder. Nothing on the way may be a link.
pub(super) fn open_folder(path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open_at(CWD, path, flags, ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_cut_into_folder_and_name() {
        assert_eq!(split(b"/a/b/c"), (&b"/a/b"[..], &b"c"[..]));
        assert_eq!(split(b"/a/"), (&b""[..], &b"a"[..]));
        assert_eq!(split(b"/"), (&b""[..], &b""[..]));
        assert_eq!(split(b""), (&b""[..], &b""[..]));
    }

    #[test]
    fn the_kernels_folders_are_known_by_their_first_part_alone() {
        for path in ["/proc", "//proc/self", "dev/null", "/sys/x"] {
            assert!(is_kernels(path.as_bytes()), "{path}");
        }
        for path in ["/", "/process", "/home/proc", "/device"] {
            assert!(!is_kernels(path.as_bytes()), "{path}");
        }
    }
}
