//! Reading a file, or a part of it.

use bytes::Bytes;
use glovebox_proto::{Frame, FrameKind, bound, file::ReadFile};
use h2::SendStream;
use rustix::{buffer::spare_capacity, io::Errno};

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
        let most = left.min(bound::CHUNK as u64) as usize;
        let mut buffer = Vec::with_capacity(Frame::HEADER + most);
        buffer.resize(Frame::HEADER, 0);
        match rustix::io::pread(&file, spare_capacity(&mut buffer), at) {
            Ok(0) => break,
            Ok(length) => {
                // A buffer may have room for more than it was made for.
                let length = length.min(most);
                buffer.truncate(Frame::HEADER + length);
                (at, left) = (at + length as u64, left - length as u64);
                Frame::finish(FrameKind::FileData, &mut buffer);
                stream::send(out, buffer.into()).await?;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).at(&request.path),
        }
    }
    done(out).await
}
