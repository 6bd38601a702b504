//! The stream of a run: what the guest tells of it, and what goes in. In a sandbox that stays it is opened again when its
//! connection is lost, at the place where it broke off, in both directions.

use std::{collections::VecDeque, pin::Pin};

use bytes::Bytes;
use glovebox_core::{Error, ErrorCode, Result, RunId};
use glovebox_proto::{Attach, Attached, Frame, FrameKind, Gap, Resize, Role, bound, path};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{
    Stdin, TerminalSize,
    channel::{Channel, Receiving, Sending, ask, read, unexpected},
};

/// How often a stream is opened again without hearing anything on it.
const MOST_IN_VAIN: u32 = 3;

/// Input that may be under way when a connection breaks: what the guest's window takes, and what waits before it.
const MOST_UNDER_WAY: usize = 3 * bound::STREAM_WINDOW as usize;

/// The stream of a run.
pub(crate) struct Line {
    channel: Channel,
    run: RunId,
    receiving: Receiving,
    /// Not used yet.
    sending: Option<Sending>,
    /// The stream that is being opened in place of a lost one.
    opening: Option<Pin<Box<dyn Future<Output = Result<Opened>> + Send>>>,
    feeding: Option<(mpsc::UnboundedSender<Way>, JoinHandle<()>)>,
    /// As what to attach again.
    role: Role,
    /// Bytes of standard output, standard error and results that came, or were told to be gone.
    known: [u64; 3],
    /// Bytes of input that others sent before.
    fed_before: u64,
    in_vain: u32,
}

/// A stream that was opened to a run.
pub(crate) struct Opened {
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    pub(crate) attached: Attached,
}

/// Attaches to a run that the guest knows.
pub(crate) async fn attach(channel: &Channel, run: RunId, known: [u64; 3], role: Role) -> Result<Opened> {
    let (mut sending, opening) = channel.request(path::ATTACH).await?;
    let [stdout_from, stderr_from, results_from] = known;
    let order = Attach { run: run.to_string(), stdout_from, stderr_from, results_from, role: role.into() };
    let mut receiving = ask(&mut sending, opening, Frame::message(FrameKind::Attach, &order)).await?;
    match receiving.next().await? {
        Some(frame) if frame.kind == FrameKind::Attached => Ok(Opened { sending, receiving, attached: read(&frame)? }),
        Some(frame) if frame.kind == FrameKind::NoRun => Err(not_known(run)),
        Some(frame) => Err(unexpected(&frame)),
        None => Err(Error::new(ErrorCode::SandboxLost, "the sandbox went away")),
    }
}

/// The guest knows no such run.
pub(crate) fn not_known(run: RunId) -> Error {
    let message = format!("the sandbox knows no run {run}");
    Error::new(ErrorCode::RunNotFound, message).hint("its end was asked for already, or it was in another sandbox")
}

impl Line {
    /// The stream of a run that was started.
    pub(crate) fn started(channel: Channel, run: RunId, sending: Sending, receiving: Receiving) -> Self {
        Self::new(channel, run, Opened { sending, receiving, attached: Attached::default() }, Role::Owner)
    }

    /// The stream of a run that was attached to.
    pub(crate) fn attached(channel: Channel, run: RunId, opened: Opened) -> Self {
        let role = if opened.attached.owner { Role::Owner } else { Role::Watcher };
        Self::new(channel, run, opened, role)
    }

    fn new(channel: Channel, run: RunId, Opened { sending, receiving, attached }: Opened, role: Role) -> Self {
        Line {
            channel,
            run,
            receiving,
            sending: Some(sending),
            opening: None,
            feeding: None,
            role,
            known: [0; 3],
            fed_before: attached.stdin_bytes,
            in_vain: 0,
        }
    }

    /// Feeds the run from now on: its input, and the sizes of its terminal.
    pub(crate) fn feed(&mut self, stdin: Stdin, sizes: mpsc::UnboundedReceiver<TerminalSize>) {
        let (ways, coming) = mpsc::unbounded_channel();
        let stays = self.channel.outlives_connections();
        let open = !matches!(stdin, Stdin::Empty);
        let feeder = Feeder { stdin, open, ended: false, sent: self.fed_before, recent: VecDeque::new(), stays };
        let feeding = tokio::spawn(feeder.feed(coming, sizes));
        if let Some(sending) = self.sending.take() {
            let _ = ways.send(Way { sending, taken: None });
        }
        self.feeding = Some((ways, feeding));
    }

    /// The next frame. There is always one, or an error, until the end was told.
    pub(crate) async fn next(&mut self) -> Result<Frame> {
        loop {
            if let Some(opening) = &mut self.opening {
                let opened = opening.await;
                self.opening = None;
                let Opened { sending, receiving, attached } = opened.map_err(gone)?;
                self.receiving = receiving;
                match &self.feeding {
                    Some((ways, _)) => drop(ways.send(Way { sending, taken: Some(attached.stdin_bytes) })),
                    None => self.sending = Some(sending),
                }
            }
            let lost = match self.receiving.next().await {
                Ok(Some(frame)) => {
                    self.in_vain = 0;
                    self.count(&frame)?;
                    return Ok(frame);
                }
                Ok(None) => Error::new(ErrorCode::SandboxLost, "the sandbox went away under the run"),
                Err(error) if error.code == ErrorCode::SandboxLost => error,
                Err(error) => return Err(error),
            };
            if !self.channel.outlives_connections() || self.in_vain == MOST_IN_VAIN {
                return Err(lost);
            }
            self.in_vain += 1;
            let (channel, run, known, role) = (self.channel.clone(), self.run, self.known, self.role);
            self.opening = Some(Box::pin(async move { attach(&channel, run, known, role).await }));
        }
    }

    /// Lets go of the stream, which tells the guest that the end was heard.
    pub(crate) async fn close(mut self) {
        if let Some((_, feeding)) = self.feeding.take() {
            feeding.abort();
            // It is over once it has been dropped, with its half of the stream.
            let _ = feeding.await;
        }
    }

    fn count(&mut self, frame: &Frame) -> Result<()> {
        let more = match frame.kind {
            FrameKind::Stdout => [frame.payload.len() as u64, 0, 0],
            FrameKind::Stderr => [0, frame.payload.len() as u64, 0],
            FrameKind::Result | FrameKind::ResultData | FrameKind::Exception => [0, 0, frame.payload.len() as u64],
            FrameKind::Gap => {
                let Gap { stdout, stderr, results } = read(frame)?;
                [stdout, stderr, results]
            }
            _ => return Ok(()),
        };
        for (known, more) in self.known.iter_mut().zip(more) {
            *known = known.saturating_add(more);
        }
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some((_, feeding)) = &self.feeding {
            feeding.abort();
        }
    }
}

/// A run that its own sandbox does not know any more went away under whoever follows it.
fn gone(error: Error) -> Error {
    match error.code {
        ErrorCode::RunNotFound => Error::new(ErrorCode::SandboxLost, error.message),
        _ => error,
    }
}

/// A stream that input can be sent on.
struct Way {
    sending: Sending,
    /// Bytes of input that reached the guest, where it is not the first stream.
    taken: Option<u64>,
}

/// Feeds a run.
struct Feeder {
    stdin: Stdin,
    /// There is more input, or its end is still to be told.
    open: bool,
    /// Its end was told.
    ended: bool,
    /// Bytes that were sent, by others and by us.
    sent: u64,
    /// The last of what was sent, where it may have to be sent again.
    recent: VecDeque<Bytes>,
    stays: bool,
}

impl Feeder {
    async fn feed(mut self, mut ways: mpsc::UnboundedReceiver<Way>, mut sizes: mpsc::UnboundedReceiver<TerminalSize>) {
        let mut way: Option<Sending> = None;
        let mut resizes = true;
        loop {
            let sent = tokio::select! {
                biased;
                next = ways.recv() => match next {
                    Some(Way { sending, taken }) => {
                        let sending = way.insert(sending);
                        self.resume(sending, taken).await
                    }
                    None => return,
                },
                size = sizes.recv(), if resizes => match (size, &mut way) {
                    (Some(size), Some(sending)) => {
                        let size = Resize { rows: size.rows.into(), columns: size.columns.into() };
                        sending.send(Frame::message(FrameKind::Resize, &size)).await
                    }
                    (Some(_), None) => Ok(()),
                    (None, _) => {
                        resizes = false;
                        Ok(())
                    }
                },
                chunk = next_chunk(&mut self.stdin), if self.open && way.is_some() => {
                    let Some(sending) = &mut way else { continue };
                    match chunk {
                        Some(chunk) => self.send(sending, chunk).await,
                        None => {
                            (self.open, self.ended) = (false, true);
                            sending.send(Frame::data(FrameKind::StdinEnd, &[])).await
                        }
                    }
                },
            };
            if sent.is_err() {
                way = None;
            }
        }
    }

    async fn send(&mut self, sending: &mut Sending, chunk: Bytes) -> Result<()> {
        self.sent += chunk.len() as u64;
        if self.stays {
            self.recent.push_back(chunk.clone());
            let mut held: usize = self.recent.iter().map(Bytes::len).sum();
            while held - self.recent[0].len() >= MOST_UNDER_WAY {
                held -= self.recent.pop_front().map_or(0, |oldest| oldest.len());
            }
        }
        send_parts(sending, &chunk).await
    }

    /// Sends again what did not arrive.
    async fn resume(&mut self, sending: &mut Sending, taken: Option<u64>) -> Result<()> {
        let Some(taken) = taken else { return Ok(()) };
        let mut at = self.sent - self.recent.iter().map(|chunk| chunk.len() as u64).sum::<u64>();
        for chunk in &self.recent {
            let known = taken.saturating_sub(at).min(chunk.len() as u64);
            at += chunk.len() as u64;
            send_parts(sending, &chunk[known as usize..]).await?;
        }
        if self.ended {
            sending.send(Frame::data(FrameKind::StdinEnd, &[])).await?;
        }
        Ok(())
    }
}

async fn send_parts(sending: &mut Sending, bytes: &[u8]) -> Result<()> {
    for part in bytes.chunks(bound::CHUNK) {
        sending.send(Frame::data(FrameKind::Stdin, part)).await?;
    }
    Ok(())
}

async fn next_chunk(stdin: &mut Stdin) -> Option<Bytes> {
    match stdin {
        Stdin::Empty => None,
        Stdin::Bytes(bytes) if bytes.is_empty() => None,
        Stdin::Bytes(bytes) => Some(bytes.split_to(bytes.len().min(bound::CHUNK))),
        Stdin::Stream(chunks) => chunks.recv().await,
    }
}
