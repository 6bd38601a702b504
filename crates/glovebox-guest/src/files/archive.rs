//! Folders as tar archives.

use std::{io, os::fd::OwnedFd};

use bytes::Bytes;
use glovebox_archive::{ArchiveError, LeftOut, LinkRule, Pack, Unpack};
use glovebox_proto::{
    Frame, FrameKind, bound,
    file::{ArchiveEnd, FileFailed, FolderArchive, Obstacle},
};
use h2::SendStream;
use rustix::{fs::OFlags, io::Errno};

use super::{Trouble, open::open};
use crate::stream::{self, Frames};

/// Sends a folder as an archive.
pub(super) async fn pull(request: &FolderArchive, out: &mut SendStream<Bytes>) -> Result<(), Trouble> {
    let mut pack = Pack::folder(open_folder(&request.path)?).map_err(|error| io_trouble(&error, &request.path))?;
    loop {
        let mut buffer = Vec::with_capacity(Frame::HEADER + bound::CHUNK + 2048);
        buffer.resize(Frame::HEADER, 0);
        let more =
            pack.fill(&mut buffer, Frame::HEADER + bound::CHUNK).map_err(|error| trouble(error, &request.path))?;
        if buffer.len() > Frame::HEADER {
            Frame::finish(FrameKind::FileData, &mut buffer);
            stream::send(out, buffer.into()).await?;
        }
        if !more {
            break;
        }
        stream::breathe(out).await?;
    }
    end(pack.left_out(), out).await
}

/// Makes files from an archive.
pub(super) async fn push(
    request: &FolderArchive,
    frames: &mut Frames,
    out: &mut SendStream<Bytes>,
) -> Result<(), Trouble> {
    let mut unpack = Unpack::into_folder(open_folder(&request.path)?, LinkRule::All);
    loop {
        let Some(frame) = frames.next().await? else {
            return Err(Trouble::Stream(io::ErrorKind::UnexpectedEof.into()));
        };
        match frame.kind {
            FrameKind::FileData => {
                for piece in frame.payload.chunks(bound::CHUNK) {
                    unpack.push(piece).map_err(|error| trouble(error, &request.path))?;
                    stream::breathe(out).await?;
                }
            }
            FrameKind::FileEnd => break,
            _ => return Err(Trouble::Stream(io::ErrorKind::InvalidData.into())),
        }
        frames.release(frame.payload.len())?;
    }
    let left_out = unpack.finish().map_err(|error| trouble(error, &request.path))?;
    end(&left_out, out).await
}

fn open_folder(path: &[u8]) -> Result<OwnedFd, Trouble> {
    open(path, OFlags::RDONLY | OFlags::DIRECTORY)
}

async fn end(left_out: &LeftOut, out: &mut SendStream<Bytes>) -> Result<(), Trouble> {
    let (first, why) = left_out.first.clone().unzip();
    let why = why.map(|why| why.to_string()).unwrap_or_default();
    let end = ArchiveEnd { left_out: left_out.count, first: first.unwrap_or_default(), why };
    Ok(stream::send(out, Frame::message(FrameKind::ArchiveEnd, &end)).await?)
}

fn trouble(error: ArchiveError, folder: &[u8]) -> Trouble {
    let below = |path: Vec<u8>| [folder, b"/", &path].concat();
    match error {
        ArchiveError::Io(path, error) => io_trouble(&error, &below(path)),
        ArchiveError::TooLarge(path) => Trouble::new(Obstacle::TooLarge, &below(path)),
        ArchiveError::Malformed(detail) => Trouble::File(FileFailed {
            obstacle: Obstacle::Malformed.into(),
            errno: 0,
            path: folder.to_vec(),
            detail: detail.to_owned(),
        }),
    }
}

fn io_trouble(error: &io::Error, path: &[u8]) -> Trouble {
    Trouble::errno(Errno::from_io_error(error).unwrap_or(Errno::IO), path)
}
