//! What a run reads: bytes for its standard input, sizes for its terminal.

use std::{cell::Cell, io, os::fd::OwnedFd};

use bytes::Bytes;
use glovebox_proto::{FrameKind, Resize};
use rustix::termios::Winsize;
use tokio::{io::AsyncWriteExt, net::unix::pipe::Sender, sync::mpsc, task::JoinHandle};

use crate::stream::Frames;

/// The input of a run. Anybody who is attached may write to it.
pub(crate) struct Input {
    queue: mpsc::UnboundedSender<Piece>,
    terminal: Option<OwnedFd>,
    /// Bytes that have come so far.
    taken: Cell<u64>,
    /// How many owners there were.
    owners: Cell<u64>,
    writing: Option<JoinHandle<()>>,
}

enum Piece {
    /// Bytes, and whom to tell when they are written.
    Bytes(Bytes, mpsc::UnboundedSender<usize>),
    End,
}

/// How a host's half of a stream ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// The host has nothing more to say, but listens.
    Closed,
    /// The host let go of the stream.
    Released,
    /// With the connection, or in a way that breaks the rules.
    Lost,
}

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// One of the owners, by its number.
    Owner(u64),
    /// Somebody else.
    Other,
}

impl Writer {
    fn is_replaced(self, input: &Input) -> bool {
        matches!(self, Writer::Owner(number) if number != input.owners.get())
    }
}

impl Input {
    pub(crate) fn new(stdin: Option<Sender>, terminal: Option<OwnedFd>) -> Self {
        let (queue, waiting) = mpsc::unbounded_channel();
        let writing = stdin.map(|pipe| tokio::task::spawn_local(write(pipe, waiting)));
        Input { queue, terminal, taken: Cell::new(0), owners: Cell::new(0), writing }
    }

    /// Bytes that have come so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// A new owner. What is still under way from the one before is not taken any more: the new one is told what came, and
    /// sends the rest again.
    pub(crate) fn new_owner(&self) -> Writer {
        self.owners.set(self.owners.get() + 1);
        Writer::Owner(self.owners.get())
    }

    /// Nobody reads it any more.
    pub(crate) fn close(&self) {
        if let Some(writing) = &self.writing {
            writing.abort();
        }
    }

    /// Takes a host's frames until they end.
    pub(crate) async fn hear(&self, mut frames: Frames, writer: Writer) -> Left {
        // Input waits in the queue while the command does not read it, so that a new size behind it gets through. The
        // queue is bounded by the stream's window: room for more is made only for what was written.
        let (written, mut used) = mpsc::unbounded_channel();
        loop {
            let frame = tokio::select! {
                frame = frames.next() => frame,
                Some(bytes) = used.recv() => {
                    if frames.release(bytes).is_err() { return Left::Lost }
                    continue;
                }
            };
            let frame = match frame {
                Ok(Some(frame)) => frame,
                Ok(None) => return Left::Closed,
                Err(error) if is_reset(&error) => return Left::Released,
                Err(_) => return Left::Lost,
            };
            let length = frame.payload.len();
            match frame.kind {
                FrameKind::Stdin | FrameKind::StdinEnd if writer.is_replaced(self) => return Left::Lost,
                FrameKind::Stdin => {
                    self.taken.set(self.taken.get() + length as u64);
                    if self.queue.send(Piece::Bytes(frame.payload, written.clone())).is_ok() {
                        continue;
                    }
                }
                FrameKind::StdinEnd => drop(self.queue.send(Piece::End)),
                FrameKind::Resize => {
                    if let (Ok(size), Some(terminal)) = (frame.read::<Resize>(), &self.terminal) {
                        let _ = resize(terminal, size.rows, size.columns);
                    }
                }
                _ => return Left::Lost,
            }
            if frames.release(length).is_err() {
                return Left::Lost;
            }
        }
    }
}

/// Whether the host let go of a stream of a connection that lives.
fn is_reset(error: &io::Error) -> bool {
    error.get_ref().and_then(|error| error.downcast_ref::<h2::Error>()).is_some_and(h2::Error::is_reset)
}

/// Writes queued input; what a command no longer wants is dropped, as a pipe would.
async fn write(pipe: Sender, mut waiting: mpsc::UnboundedReceiver<Piece>) {
    let mut pipe = Some(pipe);
    while let Some(piece) = waiting.recv().await {
        match (piece, &mut pipe) {
            (Piece::Bytes(bytes, written), open) => {
                if let Some(to) = open
                    && to.write_all(&bytes).await.is_err()
                {
                    *open = None;
                }
                // Whoever sent it may be gone.
                let _ = written.send(bytes.len());
            }
            (Piece::End, open) => *open = None,
        }
    }
}

/// Sets the size of a terminal.
pub(crate) fn resize(terminal: &OwnedFd, rows: u32, columns: u32) -> io::Result<()> {
    let clamp = |n: u32| n.min(u32::from(u16::MAX)) as u16;
    let size = Winsize { ws_row: clamp(rows), ws_col: clamp(columns), ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}
