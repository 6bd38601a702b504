//! Writing a file, whole or not at all.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use bytes::Bytes;
use glovebox_proto::{FrameKind, file::WriteFile};
use h2::SendStream;
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags},
    io::Errno,
    rand::GetRandomFlags,
};

use glovebox_archive::write_all;

use super::{At, Trouble, done, open::open, open::open_parent, open::split};
use crate::stream::Frames;

const USUAL_MODE: u32 = 0o644;

/// Writes a file under a name of its own, and gives it its real name when it is complete. A link of that name is replaced,
/// and not what it leads to.
pub(super) async fn write(
    request: &WriteFile,
    frames: &mut Frames,
    out: &mut SendStream<Bytes>,
) -> Result<(), Trouble> {
    let path = &request.path;
    let (folder, name) = open_parent(path)?;
    let mode = mode(request, &folder, name).at(path)?;
    let mut unfinished = Unfinished::make(folder).at(path)?;
    loop {
        let Some(frame) = frames.next().await? else {
            return Err(Trouble::Stream(io::ErrorKind::UnexpectedEof.into()));
        };
        match frame.kind {
            FrameKind::FileData => write_all(&unfinished.file, &frame.payload).at(path)?,
            FrameKind::FileEnd => break,
            _ => return Err(Trouble::Stream(io::ErrorKind::InvalidData.into())),
        }
        frames.release(frame.payload.len())?;
    }
    rustix::fs::fchmod(&unfinished.file, mode).at(path)?;
    if request.sync {
        rustix::fs::fsync(&unfinished.file).at(path)?;
    }
    unfinished.become_(name).at(path)?;
    if request.sync {
        let folder = split(path).0;
        let folder = open(if folder.is_empty() { b"/" } else { folder }, OFlags::RDONLY | OFlags::DIRECTORY)?;
        rustix::fs::fsync(folder).at(path)?;
    }
    done(out).await
}

/// The mode that a file gets: the one asked for, that of the file which it replaces, or the usual one. A folder is not
/// replaced.
fn mode(request: &WriteFile, folder: &OwnedFd, name: &[u8]) -> rustix::io::Result<Mode> {
    let kept = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => return Err(Errno::ISDIR),
            FileType::RegularFile => Some(stat.st_mode & 0o777),
            _ => None,
        },
        Err(Errno::NOENT) => None,
        Err(error) => return Err(error),
    };
    Ok(Mode::from_raw_mode(request.mode.or(kept).unwrap_or(USUAL_MODE) & 0o777))
}

/// A file that has no real name yet. Dropped, it is gone.
struct Unfinished {
    folder: OwnedFd,
    file: OwnedFd,
    name: Option<String>,
}

impl Unfinished {
    fn make(folder: OwnedFd) -> rustix::io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let mut dice = [0; 8];
            rustix::rand::getrandom(&mut dice, GetRandomFlags::empty())?;
            let name = format!(".glovebox-{:016x}.part", u64::from_ne_bytes(dice));
            match rustix::fs::openat(&folder, &name, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => return Ok(Unfinished { folder, file, name: Some(name) }),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the place of whatever has this name.
    fn become_(&mut self, name: &[u8]) -> rustix::io::Result<()> {
        if let Some(own) = &self.name {
            rustix::fs::renameat(self.folder.as_fd(), own, self.folder.as_fd(), name)?;
            self.name = None;
        }
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = rustix::fs::unlinkat(&self.folder, name, AtFlags::empty());
        }
    }
}
