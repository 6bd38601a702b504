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
    terminal: Option<Terminal>,
    /// Bytes that have come so far.
    taken: Cell<u64>,
    /// How many owners there were.
    owners: Cell<u64>,
    writing: Option<JoinHandle<()>>,
}

/// Our side of a terminal.
pub(crate) struct Terminal {
    fd: OwnedFd,
    size: Cell<Resize>,
}

impl Terminal {
    /// A terminal of this size.
    pub(crate) fn new(fd: OwnedFd, size: Resize) -> io::Result<Self> {
        set_size(&fd, size)?;
        Ok(Terminal { fd, size: Cell::new(size) })
    }

    /// Makes it this size. The kernel tells the program in front, if it is another one.
    fn resize(&self, size: Resize) {
        // A terminal that is gone has no size.
        if set_size(&self.fd, size).is_ok() {
            self.size.set(size);
        }
    }
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
    pub(crate) fn new(stdin: Option<Sender>, terminal: Option<Terminal>) -> Self {
        let (queue, waiting) = mpsc::unbounded_channel();
        let writing = stdin.map(|pipe| tokio::task::spawn_local(write(pipe, waiting)));
        Input { queue, terminal, taken: Cell::new(0), owners: Cell::new(0), writing }
    }

    /// The size of the terminal, if it has one.
    pub(crate) fn terminal(&self) -> Option<Resize> {
        self.terminal.as_ref().map(|terminal| terminal.size.get())
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
        // Several may have terminals of different sizes; the size is that of the one who last typed or changed its own.
        let mut own_size = None;
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
                    self.take_size(own_size);
                    self.taken.set(self.taken.get() + length as u64);
                    if self.queue.send(Piece::Bytes(frame.payload, written.clone())).is_ok() {
                        continue;
                    }
                }
                // The keys of one who leaves a terminal end, and others may type on. A program there ends by a key.
                FrameKind::StdinEnd if self.terminal.is_some() => {}
                FrameKind::StdinEnd => drop(self.queue.send(Piece::End)),
                FrameKind::Resize => {
                    own_size = frame.read().ok();
                    self.take_size(own_size);
                }
                _ => return Left::Lost,
            }
            if frames.release(length).is_err() {
                return Left::Lost;
            }
        }
    }
}

impl Input {
    /// Gives the terminal the size that somebody has told, if it has another one.
    fn take_size(&self, size: Option<Resize>) {
        if let (Some(size), Some(terminal)) = (size, &self.terminal)
            && size != terminal.size.get()
        {
            terminal.resize(size);
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

fn set_size(terminal: &OwnedFd, size: Resize) -> io::Result<()> {
    let clamp = |n: u32| n.min(u32::from(u16::MAX)) as u16;
    let size = Winsize { ws_row: clamp(size.rows), ws_col: clamp(size.columns), ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}
