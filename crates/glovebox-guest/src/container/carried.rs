//! One of the connections that a bridge carries: an HTTP/2 stream as a stream of bytes. Both ends of a bridge use it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use h2::{RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use glovebox_proto::bound;

/// A connection that a bridge carries.
#[derive(Debug)]
pub struct Carried {
    sending: SendStream<Bytes>,
    receiving: RecvStream,
    /// What came and was not asked for yet.
    left: Bytes,
    /// Whether nothing more is sent.
    closed: bool,
}

impl Carried {
    /// The connection that these two halves of a stream are.
    pub fn new(sending: SendStream<Bytes>, receiving: RecvStream) -> Self {
        Carried { sending, receiving, left: Bytes::new(), closed: false }
    }
}

impl AsyncRead for Carried {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.left.is_empty() {
            match ready!(self.receiving.poll_data(cx)) {
                Some(Ok(bytes)) => self.left = bytes,
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = self.left.len().min(buffer.remaining());
        buffer.put_slice(&self.left[..length]);
        self.left.advance(length);
        // Who sends waits for who reads.
        Poll::Ready(self.receiving.flow_control().release_capacity(length).map_err(io::Error::other))
    }
}

impl AsyncWrite for Carried {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            // What was given to an earlier call that did not wait for it is there without another word.
            let length = self.sending.capacity().min(bytes.len());
            if length > 0 {
                let sent = self.sending.send_data(Bytes::copy_from_slice(&bytes[..length]), false);
                return Poll::Ready(sent.map(|()| length).map_err(io::Error::other));
            }
            self.sending.reserve_capacity(bytes.len().min(bound::CHUNK));
            match ready!(self.sending.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Whoever drives the bridge sends what there is.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::replace(&mut self.closed, true) {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(self.sending.send_data(Bytes::new(), true).map_err(io::Error::other))
    }
}
