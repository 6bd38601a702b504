//! The host's side of the channel: an HTTP/2 client whose every expectation of the guest is bounded.

use std::{future::poll_fn, io};

use bytes::Bytes;
use glovebox_core::{Error, ErrorCode, GuestStream, Result};
use glovebox_proto::{Decoder, Frame, FrameError, bound};
use h2::{RecvStream, SendStream, client};
use http::{Method, Request, StatusCode};
use prost::Message;

/// A connection to a guest. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Channel {
    client: client::SendRequest<Bytes>,
}

impl Channel {
    /// Begins to speak HTTP/2 on a stream. The connection is driven by a task of its own and ends with its users.
    pub(crate) async fn open(stream: GuestStream) -> Result<Self> {
        let (client, connection) = client::Builder::new()
            .initial_window_size(bound::STREAM_WINDOW)
            .initial_connection_window_size(bound::CONNECTION_WINDOW)
            .max_frame_size(bound::FRAME)
            .max_concurrent_streams(0)
            .max_header_list_size(bound::HEADERS)
            .max_send_buffer_size(2 * bound::STREAM_WINDOW as usize)
            .enable_push(false)
            .handshake(stream)
            .await
            .map_err(lost)?;
        tokio::spawn(async move {
            // Whoever has a stream open learns of the connection's end there.
            let _ = connection.await;
        });
        Ok(Channel { client })
    }

    /// Opens a stream to one of the guest's paths.
    pub(crate) async fn request(&self, path: &str) -> Result<(Sending, Opening)> {
        let mut client = self.client.clone().ready().await.map_err(lost)?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://guest{path}"))
            .body(())
            .map_err(|error| Error::new(ErrorCode::Internal, "a request could not be made").because(error))?;
        let (response, body) = client.send_request(request, false).map_err(lost)?;
        Ok((Sending(body), Opening(response)))
    }
}

/// A stream whose answer has not begun.
pub(crate) struct Opening(client::ResponseFuture);

impl Opening {
    /// Waits for the answer to begin.
    pub(crate) async fn answer(self) -> Result<Receiving> {
        let response = self.0.await.map_err(lost)?;
        if response.status() != StatusCode::OK {
            return Err(violation(format!("the guest answered {}", response.status())));
        }
        Ok(Receiving { body: response.into_body(), decoder: Decoder::new(), held: 0 })
    }
}

/// The sending half of a stream.
pub(crate) struct Sending(SendStream<Bytes>);

impl Sending {
    /// Sends bytes as the guest makes room for them.
    pub(crate) async fn send(&mut self, mut bytes: Bytes) -> Result<()> {
        while !bytes.is_empty() {
            self.0.reserve_capacity(bytes.len());
            let room = match poll_fn(|cx| self.0.poll_capacity(cx)).await {
                Some(room) => room.map_err(lost)?,
                None => return Err(lost_to(io::ErrorKind::BrokenPipe.into())),
            };
            let part = bytes.split_to(room.min(bytes.len()));
            self.0.send_data(part, false).map_err(lost)?;
        }
        Ok(())
    }

    /// Ends the sending half.
    pub(crate) fn end(mut self) -> Result<()> {
        self.0.send_data(Bytes::new(), true).map_err(lost)
    }
}

/// The receiving half of a stream.
pub(crate) struct Receiving {
    body: RecvStream,
    decoder: Decoder,
    /// Bytes that were received but whose room was not given back yet.
    held: usize,
}

impl Receiving {
    /// The next frame; nothing at the end. Room for more is made as frames are taken, so a caller that stops taking
    /// them stops the guest.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.decoder.next().map_err(frame_error)? {
                return Ok(Some(frame));
            }
            if self.held > 0 {
                let held = std::mem::take(&mut self.held);
                self.body.flow_control().release_capacity(held).map_err(lost)?;
            }
            match self.body.data().await {
                Some(chunk) => {
                    let chunk = chunk.map_err(lost)?;
                    self.held = chunk.len();
                    self.decoder.push(chunk);
                }
                None => return self.decoder.finish().map(|()| None).map_err(frame_error),
            }
        }
    }
}

/// Reads a frame's message.
pub(crate) fn read<M: Message + Default>(frame: &Frame) -> Result<M> {
    frame.read().map_err(frame_error)
}

/// The guest said something that it must not say here.
pub(crate) fn unexpected(frame: &Frame) -> Error {
    violation(format!("the guest sent {:?} where it does not belong", frame.kind))
}

fn frame_error(error: FrameError) -> Error {
    violation(format!("the guest sent {error}"))
}

fn violation(message: String) -> Error {
    Error::new(ErrorCode::ChannelViolation, message)
}

fn lost(error: h2::Error) -> Error {
    lost_to(io::Error::other(error))
}

fn lost_to(error: io::Error) -> Error {
    // What the connection says of its end helps nobody who did not write it; it is kept below the message.
    let mut lost = Error::new(ErrorCode::SandboxLost, "the sandbox went away");
    lost.source = Some(error.into());
    lost
}
