//! Reading a file, a part of it, or several small ones.

use std::os::fd::OwnedFd;

use bytes::Bytes;
use glovebox_proto::{
    Frame, FrameKind, bound,
    file::{ReadFile, ReadFiles, SmallFile},
};
use h2::SendStream;
use rustix::{
    buffer::spare_capacity,
    io::{pread, retry_on_intr},
};

use super::{At, Trouble, done, list::entry, open::Links, open::open_ordinary, open::split};
use crate::stream;

/// Sends what is known of a file, then its bytes. A file that grows meanwhile ends where it ended when it was opened; one
/// that shrinks ends earlier, which the host sees by the count.
pub(super) async fn read(request: &ReadFile, out: &mut SendStream<Bytes>) -> Result<(), Trouble> {
    let links = if request.refuse_links { Links::Refuse } else { Links::Follow };
    let (file, stat) = open_ordinary(&request.path, links)?;
    let known = entry(split(&request.path).1, &stat, Bytes::new());
    stream::send(out, Frame::message(FrameKind::Entry, &known)).await?;
    let mut at = request.offset;
    let mut left = known.bytes.saturating_sub(at).min(request.length.unwrap_or(u64::MAX));
    while left > 0 {
        let frame = some_bytes(&file, at, left.min(bound::CHUNK as u64) as usize).at(&request.path)?;
        let length = (frame.len() - Frame::HEADER) as u64;
        if length == 0 {
            break;
        }
        (at, left) = (at + length, left - length);
        stream::send(out, frame.into()).await?;
    }
    done(out).await
}

/// Sends the bytes of several small files, each in a frame of its own, or why there are none.
pub(super) async fn read_small(request: &ReadFiles, out: &mut SendStream<Bytes>) -> Result<(), Trouble> {
    for file in request.files.iter().take(bound::SMALL_FILES) {
        let frame = match whole(file) {
            Ok(frame) => frame.into(),
            Err(Trouble::File(failed)) => Frame::message(FrameKind::Failed, &failed),
            Err(trouble) => return Err(trouble),
        };
        stream::send(out, frame).await?;
    }
    done(out).await
}

/// A small file as one frame, whatever few bytes a file system gives at a time.
fn whole(file: &SmallFile) -> Result<Vec<u8>, Trouble> {
    let (opened, stat) = open_ordinary(&file.path, Links::Refuse)?;
    let length = (file.length as usize).min(bound::CHUNK).min(stat.st_size as usize);
    let mut frame = some_bytes(&opened, 0, length).at(&file.path)?;
    loop {
        let read = frame.len() - Frame::HEADER;
        if read == length {
            return Ok(frame);
        }
        let more = some_bytes(&opened, read as u64, length - read).at(&file.path)?;
        if more.len() == Frame::HEADER {
            return Ok(frame);
        }
        frame.extend_from_slice(&more[Frame::HEADER..]);
        Frame::finish(FrameKind::FileData, &mut frame);
    }
}

/// Bytes of a file as a frame, at most so many; an empty one at its end.
fn some_bytes(file: &OwnedFd, at: u64, most: usize) -> rustix::io::Result<Vec<u8>> {
    let mut buffer = Vec::with_capacity(Frame::HEADER + most);
    buffer.resize(Frame::HEADER, 0);
    let length = retry_on_intr(|| pread(file, spare_capacity(&mut buffer), at))?;
    // A buffer may have room for more than it was made for.
    buffer.truncate(Frame::HEADER + length.min(most));
    Frame::finish(FrameKind::FileData, &mut buffer);
    Ok(buffer)
}
