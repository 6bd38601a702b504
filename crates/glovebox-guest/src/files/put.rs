//! Input files of a run, on their way in. Nothing on their way may be a link.

use std::{io, os::fd::OwnedFd};

use bytes::Bytes;
use glovebox_proto::{FileEntry, FileKind, Frame, FrameKind, StartFailed};
use h2::{RecvStream, SendStream};
use rustix::fs::{FileType, Mode, OFlags, Timespec, Timestamps};

use glovebox_archive::write_all;

use super::open::{Links, is_kernels, make_folders, split};
use crate::{
    Ground,
    stream::{self, Frames},
};

/// Writes the files that the host sends.
pub(crate) async fn put(ground: &Ground, body: RecvStream, mut out: SendStream<Bytes>) -> io::Result<()> {
    let mut frames = Frames::new(body);
    let mut open: Option<(OwnedFd, FileEntry)> = None;
    while let Some(frame) = frames.next().await? {
        let length = frame.payload.len();
        if let Err((path, error)) = put_frame(ground, &frame, &mut open) {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            let failed = StartFailed { step: format!("write {path}"), errno };
            stream::send(&mut out, Frame::message(FrameKind::StartFailed, &failed)).await?;
            return stream::end(&mut out);
        }
        frames.release(length)?;
    }
    stream::send(&mut out, Frame::data(FrameKind::Done, &[])).await?;
    stream::end(&mut out)
}

fn put_frame(
    ground: &Ground,
    frame: &Frame,
    open: &mut Option<(OwnedFd, FileEntry)>,
) -> Result<(), (String, io::Error)> {
    match frame.kind {
        FrameKind::File => {
            let mut entry: FileEntry = frame.read().map_err(|e| (String::new(), io::Error::other(e)))?;
            let name = entry.path.clone();
            entry.path = ground.real(&entry.path).into_owned();
            *open = begin(entry).map_err(|e| (name, e))?;
            Ok(())
        }
        FrameKind::FileData => {
            let (file, entry) = open.as_ref().ok_or_else(|| (String::new(), io::ErrorKind::InvalidData.into()))?;
            write_all(file, &frame.payload).map_err(|e| (entry.path.clone(), e.into()))
        }
        FrameKind::FileEnd => match open.take() {
            Some((file, entry)) => {
                let mode = Mode::from_raw_mode(entry.mode & 0o777);
                let modified = set_modified(&file, entry.modified_ns);
                modified.and_then(|()| rustix::fs::fchmod(&file, mode)).map_err(|e| (entry.path, e.into()))
            }
            None => Ok(()),
        },
        _ => Err((String::new(), io::ErrorKind::InvalidData.into())),
    }
}

fn set_modified(file: &OwnedFd, nanoseconds: i64) -> rustix::io::Result<()> {
    const SECOND: i64 = 1_000_000_000;
    let time = Timespec { tv_sec: nanoseconds.div_euclid(SECOND), tv_nsec: nanoseconds.rem_euclid(SECOND) };
    rustix::fs::futimens(file, &Timestamps { last_access: time, last_modification: time })
}

fn begin(entry: FileEntry) -> io::Result<Option<(OwnedFd, FileEntry)>> {
    let path = entry.path.clone().into_bytes();
    let (folder, name) = split(&path);
    if name.is_empty() || is_kernels(&path) {
        return Err(rustix::io::Errno::ACCESS.into());
    }
    let folder = make_folders(folder, Links::Refuse)?;
    let mode = Mode::from_raw_mode(entry.mode & 0o777);
    match entry.kind() {
        FileKind::Directory => match rustix::fs::mkdirat(&folder, name, mode) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(None),
            Err(error) => Err(error.into()),
        },
        FileKind::Symlink => {
            rustix::fs::symlinkat(&entry.link, &folder, name)?;
            Ok(None)
        }
        FileKind::Regular => {
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&folder, name, flags, Mode::from_raw_mode(0o600))?;
            if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
                return Err(rustix::io::Errno::INVAL.into());
            }
            Ok(Some((file, entry)))
        }
    }
}
