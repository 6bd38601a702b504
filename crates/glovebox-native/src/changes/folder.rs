//! Looking at folders, one name at a time, without following a link or a mount.

use std::{
    ffi::{CStr, CString},
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use glovebox_core::look_bound;
use rustix::{
    fs::{Dir, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat, openat2},
    io::Errno,
};

/// An entry of a folder, and what was seen of it.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) folder: &'a OwnedFd,
    pub(super) name: &'a CStr,
    pub(super) stat: &'a Stat,
}

pub(super) fn attribute(folder: &OwnedFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; 4096];
    match rustix::fs::fgetxattr(folder, name, &mut value[..]) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn open_bytes(start: &OwnedFd, path: &[u8]) -> Option<OwnedFd> {
    let mut at = start.try_clone().ok()?;
    for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
        at = open_folder(&at, &CString::new(name).ok()?).ok()?;
    }
    Some(at)
}

pub(super) fn open_path(root: BorrowedFd<'_>, path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    Ok(openat2(root, path, flags, Mode::empty(), resolve)?)
}

pub(super) fn open_folder(folder: impl AsFd, name: &CStr) -> io::Result<OwnedFd> {
    open_here(folder, name, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Opens one name without following a link or a mount: the store is also the root of the sandbox, where other things
/// are mounted.
pub(super) fn open_here(folder: impl AsFd, name: &CStr, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat2(folder, name, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_XDEV)?)
}

/// The entries of a folder, at most as many as a change set takes.
pub(super) fn entries(folder: &OwnedFd) -> io::Result<Vec<(CString, Stat)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)?.take(look_bound::CHANGES) {
        let name = entry?.file_name().to_owned();
        if name.as_c_str() != c"."
            && name.as_c_str() != c".."
            && let Some(stat) = look(folder, &name)
        {
            found.push((name, stat));
        }
    }
    Ok(found)
}

pub(super) fn look(folder: &OwnedFd, name: &CStr) -> Option<Stat> {
    rustix::fs::fstat(open_here(folder, name, OFlags::PATH).ok()?).ok()
}

pub(super) fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

pub(super) fn is_whiteout(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

pub(super) fn is_empty(folder: &OwnedFd) -> bool {
    let mut space = [MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(folder, &mut space);
    // The first two entries are the folder itself and its parent.
    for _ in 0..3 {
        match entries.next() {
            None => return true,
            Some(Err(_)) => return false,
            Some(Ok(_)) => {}
        }
    }
    false
}

/// Names that are not UTF-8 are shown as well as they can be.
pub(super) fn join(path: &str, name: &CStr) -> String {
    format!("{path}/{}", name.to_string_lossy())
}

pub(super) fn differ_in_content(new: &OwnedFd, old: &OwnedFd) -> io::Result<bool> {
    let (mut a, mut b) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let mut at = 0;
    loop {
        let first = rustix::io::pread(new, &mut a[..], at)?;
        let second = rustix::io::pread(old, &mut b[..], at)?;
        if first != second || a[..first] != b[..second] {
            return Ok(true);
        }
        if first == 0 {
            return Ok(false);
        }
        at += first as u64;
    }
}
