//! Copying a workspace into a sandbox that cannot mount an overlay over it.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid};

use super::ids::CommandIds;

/// Trees that are deeper are not copied.
const DEEPEST: usize = 128;

/// What the copy may take.
pub(crate) struct Bounds {
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
}

/// Copies what is in a folder of the host into one of the sandbox. Links are copied and never followed; pipes, sockets and
/// devices are left out. Modes and times stay, owners become the commands'.
pub(crate) fn copy(from: &str, to: &str, ids: CommandIds, mut bounds: Bounds) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let from = rustix::fs::open(from, flags, Mode::empty())?;
    let to = rustix::fs::open(to, flags | OFlags::NOFOLLOW, Mode::empty())?;
    copy_folder(&from, &to, ids, &mut bounds, 0)
}

fn copy_folder(from: &OwnedFd, to: &OwnedFd, ids: CommandIds, left: &mut Bounds, depth: usize) -> io::Result<()> {
    if depth >= DEEPEST {
        return Err(rustix::io::Errno::LOOP.into());
    }
    for entry in Dir::read_from(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        left.entries = left.entries.checked_sub(1).ok_or(rustix::io::Errno::NOSPC)?;
        let stat = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let inner = rustix::fs::openat(from, name, flags, Mode::empty())?;
                rustix::fs::mkdirat(to, name, Mode::RWXU)?;
                let copied = rustix::fs::openat(to, name, flags, Mode::empty())?;
                copy_folder(&inner, &copied, ids, left, depth + 1)?;
                finish(&copied, &stat, ids)?;
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let source = File::from(rustix::fs::openat(from, name, flags, Mode::empty())?);
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let target = rustix::fs::openat(to, name, flags, Mode::RUSR | Mode::WUSR)?;
                copy_bytes(source, &target, left)?;
                finish(&target, &stat, ids)?;
            }
            FileType::Symlink => {
                let says = rustix::fs::readlinkat(from, name, Vec::new())?;
                rustix::fs::symlinkat(&says, to, name)?;
                give(to, name, ids, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Copies the bytes of a file, at most as many as there is room for.
fn copy_bytes(source: File, target: &OwnedFd, left: &mut Bounds) -> io::Result<()> {
    let mut target = File::from(target.try_clone()?);
    let copied = io::copy(&mut io::Read::take(source, left.bytes.saturating_add(1)), &mut target)?;
    left.bytes = left.bytes.checked_sub(copied).ok_or(rustix::io::Errno::NOSPC)?;
    Ok(())
}

/// Gives a copy its owner, mode and times. Bits that would lend it rights are left out.
fn finish(copied: &OwnedFd, stat: &Stat, ids: CommandIds) -> io::Result<()> {
    give(copied, c"", ids, AtFlags::EMPTY_PATH)?;
    rustix::fs::fchmod(copied, Mode::from_raw_mode(stat.st_mode & 0o1777))?;
    let time = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ };
    Ok(rustix::fs::futimens(copied, &Timestamps { last_access: time, last_modification: time })?)
}

fn give(at: impl AsFd, name: &std::ffi::CStr, ids: CommandIds, flags: AtFlags) -> io::Result<()> {
    if !ids.separate {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(ids.uid), Gid::from_raw(ids.gid));
    Ok(rustix::fs::chownat(at, name, Some(uid), Some(gid), flags)?)
}
