//! The host's side of the channel: an HTTP/2 client whose every expectation of the guest is bounded.

use std::{
    future::poll_fn,
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use glovebox_core::{Backend, Error, ErrorCode, GuestStream, Result, SandboxId};
use glovebox_proto::{Decoder, Frame, FrameError, bound};
use h2::{Reason, RecvStream, SendStream, client};
use http::{Method, Request, StatusCode};
use prost::Message;
use tokio::sync::Mutex;

/// How long a guest has for what it does at once. Far above what the busiest host needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// The way to a guest. Cheap to clone; all clones share one connection.
#[derive(Clone)]
pub(crate) struct Channel(Arc<Inner>);

struct Inner {
    connection: Mutex<Connection>,
    /// How to connect again, where the sandbox outlives its connections.
    again: Option<(Arc<dyn Backend>, SandboxId)>,
    /// What the guest did that it must not do. It is not spoken with again.
    broken: OnceLock<String>,
}

/// One connection.
struct Connection {
    client: client::SendRequest<Bytes>,
    ended: Arc<AtomicBool>,
}

impl Connection {
    /// Begins to speak HTTP/2 on a stream. The connection is driven by a task of its own and ends with its users.
    async fn open(stream: GuestStream) -> Result<Self> {
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
        let ended = Arc::new(AtomicBool::new(false));
        let at_end = ended.clone();
        tokio::spawn(async move {
            // Whoever has a stream open learns of the connection's end there.
            let _ = connection.await;
            at_end.store(true, Ordering::Relaxed);
        });
        Ok(Connection { client, ended })
    }
}

impl Channel {
    /// The channel to the guest of a sandbox that ends with its connection.
    pub(crate) async fn once(backend: Arc<dyn Backend>, id: SandboxId) -> Result<Self> {
        let connection = Connection::open(backend.connect(id).await?).await?;
        Ok(Self::new(connection, None))
    }

    /// The channel to the guest of a sandbox that stays. It connects again when its connection is lost.
    pub(crate) async fn to(backend: Arc<dyn Backend>, id: SandboxId) -> Result<Self> {
        let connection = Connection::open(backend.connect(id).await?).await?;
        Ok(Self::new(connection, Some((backend, id))))
    }

    fn new(connection: Connection, again: Option<(Arc<dyn Backend>, SandboxId)>) -> Self {
        Channel(Arc::new(Inner { connection: Mutex::new(connection), again, broken: OnceLock::new() }))
    }

    /// Whether a lost connection is made again.
    pub(crate) fn outlives_connections(&self) -> bool {
        self.sandbox().is_some()
    }

    /// The sandbox, if it outlives its connections.
    pub(crate) fn sandbox(&self) -> Option<SandboxId> {
        self.0.again.as_ref().map(|(_, id)| *id)
    }

    /// Opens a stream to one of the guest's paths.
    pub(crate) async fn request(&self, path: &str) -> Result<(Sending, Opening)> {
        if let Some(why) = self.0.broken.get() {
            let message = format!("the sandbox is not used any more, because its guest broke the rules: {why}");
            return Err(violation(message).hint("destroy it and make another one"));
        }
        let mut client = self.client().await?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://guest{path}"))
            .body(())
            .map_err(|error| Error::new(ErrorCode::Internal, "a request could not be made").because(error))?;
        let (response, body) = client.send_request(request, false).map_err(lost)?;
        Ok((Sending(body), Opening(response)))
    }

    /// A client that can open a stream, on a new connection if need be.
    async fn client(&self) -> Result<client::SendRequest<Bytes>> {
        // The lock is not held while a client waits for room: others may find some on their streams.
        let (client, ended) = {
            let connection = self.0.connection.lock().await;
            (connection.client.clone(), connection.ended.clone())
        };
        let failed = match ended.load(Ordering::Relaxed) {
            true => lost_to(io::ErrorKind::BrokenPipe.into()),
            false => match client.ready().await {
                Ok(client) => return Ok(client),
                Err(error) => lost(error),
            },
        };
        let Some((backend, id)) = &self.0.again else { return Err(failed) };
        let mut connection = self.0.connection.lock().await;
        if Arc::ptr_eq(&connection.ended, &ended) {
            *connection = Connection::open(backend.connect(*id).await?).await?;
        }
        let client = connection.client.clone();
        drop(connection);
        client.ready().await.map_err(lost)
    }

    /// Passes a result on. A guest that broke the rules is not spoken with again.
    pub(crate) fn judge<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result
            && error.code == ErrorCode::ChannelViolation
        {
            // The first is the one that explains.
            let _ = self.0.broken.set(error.message.clone());
        }
        result
    }
}

/// Waits for something that a guest answers at once if it answers at all.
pub(crate) async fn in_time<T>(answer: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(answer) => answer,
        Err(_) => {
            let message = format!("the sandbox did not answer within {} s", PATIENCE.as_secs());
            Err(Error::new(ErrorCode::SandboxLost, message))
        }
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

/// Asks something of the guest, and waits for the answer to begin. Where the question cannot be sent, the answer says why.
pub(crate) async fn ask(sending: &mut Sending, opening: Opening, question: Bytes) -> Result<Receiving> {
    let sent = sending.send_with_opening(question);
    let receiving = opening.answer().await?;
    sent.map(|()| receiving)
}

/// The sending half of a stream.
pub(crate) struct Sending(SendStream<Bytes>);

impl Sending {
    /// Sends bytes as the guest makes room for them.
    pub(crate) async fn send(&mut self, bytes: Bytes) -> Result<()> {
        self.send_parts(bytes, false).await
    }

    /// Sends a question in one packet with the opening of its stream: to wait for room first would be to wait until that is on its way.
    fn send_with_opening(&mut self, question: Bytes) -> Result<()> {
        self.0.send_data(question, false).map_err(lost)
    }

    /// Sends the last bytes, and ends the sending half with them. A guest may answer and be done before it is told of an end that
    /// comes by itself, and there would be nothing left to end.
    pub(crate) async fn send_last(mut self, bytes: Bytes) -> Result<()> {
        self.send_parts(bytes, true).await
    }

    async fn send_parts(&mut self, mut bytes: Bytes, ends: bool) -> Result<()> {
        while !bytes.is_empty() {
            self.0.reserve_capacity(bytes.len());
            let room = match poll_fn(|cx| self.0.poll_capacity(cx)).await {
                Some(room) => room.map_err(lost)?,
                None => return Err(lost_to(io::ErrorKind::BrokenPipe.into())),
            };
            let part = bytes.split_to(room.min(bytes.len()));
            self.0.send_data(part, ends && bytes.is_empty()).map_err(lost)?;
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
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The same as [`Receiving::next`], for streams.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame>>> {
        loop {
            if let Some(frame) = self.decoder.next().map_err(frame_error)? {
                return Poll::Ready(Ok(Some(frame)));
            }
            if self.held > 0 {
                let held = std::mem::take(&mut self.held);
                self.body.flow_control().release_capacity(held).map_err(lost)?;
            }
            match ready!(self.body.poll_data(cx)) {
                Some(chunk) => {
                    let chunk = chunk.map_err(lost)?;
                    self.held = chunk.len();
                    self.decoder.push(chunk);
                }
                None => return Poll::Ready(self.decoder.finish().map(|()| None).map_err(frame_error)),
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

pub(crate) fn violation(message: String) -> Error {
    Error::new(ErrorCode::ChannelViolation, message)
}

fn lost(error: h2::Error) -> Error {
    if error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
        return Error::new(ErrorCode::TooMany, "the sandbox has as many connections as it takes")
            .hint("wait for commands that work in it to end");
    }
    if error.is_library() && error.reason() != Some(Reason::NO_ERROR) {
        return violation(format!("the guest does not speak HTTP/2 as it should: {error}"));
    }
    lost_to(io::Error::other(error))
}

fn lost_to(error: io::Error) -> Error {
    // What the connection says of its end helps nobody who did not write it; it is kept below the message.
    let mut lost = Error::new(ErrorCode::SandboxLost, "the sandbox went away");
    lost.source = Some(error.into());
    lost
}
