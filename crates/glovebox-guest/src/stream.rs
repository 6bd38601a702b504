//! The guest's half of an HTTP/2 stream: sending with backpressure, receiving frames.

use std::{future::poll_fn, io, task::Poll};

use bytes::Bytes;
use glovebox_proto::{Decoder, Frame, bound};
use h2::{RecvStream, SendStream};

/// Sends bytes as the receiver makes room for them.
pub(crate) async fn send(stream: &mut SendStream<Bytes>, mut bytes: Bytes) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = match poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(Ok(room)) => room,
            Some(Err(error)) => return Err(io::Error::other(error)),
            None => return Err(io::ErrorKind::BrokenPipe.into()),
        };
        let part = bytes.split_to(room.min(bytes.len()));
        stream.send_data(part, false).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Ends the stream.
pub(crate) fn end(stream: &mut SendStream<Bytes>) -> io::Result<()> {
    stream.send_data(Bytes::new(), true).map_err(io::Error::other)
}

/// Lets others have their turn in the midst of long work. An error when nobody waits for the answer any more.
pub(crate) async fn breathe(stream: &mut SendStream<Bytes>) -> io::Result<()> {
    tokio::task::yield_now().await;
    poll_fn(|cx| match stream.poll_reset(cx) {
        Poll::Pending => Poll::Ready(Ok(())),
        Poll::Ready(_) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
    })
    .await
}

/// Waits until nobody waits for the answer any more.
pub(crate) async fn gone(stream: &mut SendStream<Bytes>) {
    // Whatever comes, a reason or an error, there is nobody left to answer.
    let _ = poll_fn(|cx| stream.poll_reset(cx)).await;
}

/// Frames as they come in. Room for more is made only when [`Frames::release`] says that a payload was used.
pub(crate) struct Frames {
    body: RecvStream,
    decoder: Decoder,
    overhead: usize,
    /// Bytes for which room was made before they were used: all, and those of the frame that is not whole yet.
    ahead: usize,
    ahead_now: usize,
}

impl Frames {
    pub(crate) fn new(body: RecvStream) -> Self {
        Frames { body, decoder: Decoder::new(), overhead: 0, ahead: 0, ahead_now: 0 }
    }

    /// The next frame, or nothing at the end of the stream.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.decoder.next().map_err(io::Error::other)? {
                self.overhead += Frame::HEADER;
                self.ahead_now = 0;
                return Ok(Some(frame));
            }
            // A frame may be longer than the window. Of one that is not whole nothing can be used, so that room is made for the rest
            // of it; no frame is longer than its bound. What waits in frames of the usual length still makes the host wait.
            let more = self.decoder.held().saturating_sub(self.ahead_now);
            if self.decoder.held() > bound::STREAM_WINDOW as usize / 2 && more > 0 {
                self.make_room(more)?;
                (self.ahead, self.ahead_now) = (self.ahead + more, self.ahead_now + more);
            }
            match self.body.data().await {
                Some(chunk) => self.decoder.push(chunk.map_err(io::Error::other)?),
                None => return self.decoder.finish().map(|()| None).map_err(io::Error::other),
            }
        }
    }

    /// Makes room for as many bytes as were used, headers included.
    pub(crate) fn release(&mut self, used: usize) -> io::Result<()> {
        let bytes = used + std::mem::take(&mut self.overhead);
        let already = bytes.min(self.ahead);
        self.ahead -= already;
        self.make_room(bytes - already)
    }

    fn make_room(&mut self, bytes: usize) -> io::Result<()> {
        self.body.flow_control().release_capacity(bytes).map_err(io::Error::other)
    }
}
