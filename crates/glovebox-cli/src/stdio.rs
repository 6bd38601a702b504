//! The caller's own standard input and output.
//!
//! Both are blocking descriptors that other processes may share, so they must not be switched to non-blocking mode.
//! A thread each reads and writes them; bounded channels join the threads to the run, so that a slow end slows the
//! program as a pipe would, and memory stays small.

use std::{
    fs::File,
    io::{self, ErrorKind, IsTerminal, Read, Write, stderr, stdin, stdout},
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
    thread,
};

use bytes::Bytes;
use glovebox_core::{Error, ErrorCode, Result};
use glovebox_engine::{Canceller, Content, Stdin};
use rustix::{process::getpgrp, termios::tcgetpgrp};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::files;

/// Chunks that wait between a thread and the run.
const CHUNKS: usize = 16;
/// Bytes read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// What the program reads: the file that was named, or our own standard input.
pub(crate) fn standard_input(file: Option<&Path>) -> Result<Stdin> {
    let input = match file {
        Some(path) => files::open(path)?,
        None => match own_input() {
            Some(input) => input,
            None => return Ok(Stdin::Empty),
        },
    };
    if files::is_null(&input) {
        return Ok(Stdin::Empty);
    }
    let (sender, receiver) = mpsc::channel(CHUNKS);
    spawn("stdin", move || read_all(input, &sender))?;
    Ok(Stdin::Stream(receiver))
}

/// Our standard input, unless it cannot be read: a job in the background of a shell would be stopped for trying.
fn own_input() -> Option<File> {
    let in_background = || tcgetpgrp(stdin()).is_ok_and(|foreground| foreground != getpgrp());
    if stdin().is_terminal() && in_background() {
        return None;
    }
    Some(File::from(duplicate(stdin().as_fd()).ok()?))
}

fn read_all(mut input: File, sender: &mpsc::Sender<Bytes>) {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match input.read(&mut buffer) {
            // An input that fails is over, as it would be for a program that reads it itself.
            Ok(0) => return,
            Ok(count) => {
                if sender.blocking_send(Bytes::copy_from_slice(&buffer[..count])).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Our standard input as the content of a file. Unlike a program's input, one that fails is not simply over: half a file
/// is not written.
pub(crate) fn content() -> Result<Content> {
    let mut input = own_input().ok_or_else(|| {
        Error::new(ErrorCode::FileUnreadable, "standard input cannot be read by a job in the background")
    })?;
    let (sender, receiver) = mpsc::channel(CHUNKS);
    spawn("stdin", move || {
        loop {
            let mut buffer = vec![0; CHUNK_BYTES];
            let read = match input.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Ok(0) => return,
                read => read,
            };
            let failed = read.is_err();
            let chunk = read.map(|length| {
                buffer.truncate(length);
                Bytes::from(buffer)
            });
            if sender.blocking_send(chunk).is_err() || failed {
                return;
            }
        }
    })?;
    Ok(Content::Channel(receiver))
}

/// A piece of the program's output.
#[derive(Debug)]
pub(crate) enum Chunk {
    /// For our standard output.
    Stdout(Bytes),
    /// For our standard error.
    Stderr(Bytes),
}

/// Carries the program's output to our own. The thread starts with the first byte: many programs say nothing.
#[derive(Debug)]
pub(crate) struct Output {
    unread: Unread,
    writer: Option<Writer>,
}

#[derive(Debug)]
struct Writer {
    chunks: mpsc::Sender<Chunk>,
    done: oneshot::Receiver<io::Result<()>>,
}

/// What becomes of a run whose output nobody reads any more.
#[derive(Clone, Debug)]
pub(crate) enum Unread {
    /// It ends.
    Cancel(Canceller),
    /// It goes on without the caller, who is told.
    Leave(Arc<Notify>),
}

impl Output {
    /// The output of a run.
    pub(crate) fn new(unread: Unread) -> Self {
        Output { unread, writer: None }
    }

    /// Passes a piece on. Waits while the reader is slow; does nothing once the reader is gone.
    pub(crate) async fn write(&mut self, chunk: Chunk) -> Result<()> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self.writer.insert(start_writer(self.unread.clone())?),
        };
        // The thread has said so when it stopped taking chunks; there is nobody left to tell.
        let _ = writer.chunks.send(chunk).await;
        Ok(())
    }

    /// Waits until everything is written. A reader that went away is no error.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        let Some(Writer { chunks, done }) = self.writer.take() else { return Ok(()) };
        drop(chunks);
        match done.await {
            Ok(Err(error)) if error.kind() != ErrorKind::BrokenPipe => {
                Err(Error::new(ErrorCode::HostIo, "cannot write to standard output").because(error))
            }
            Ok(_) => Ok(()),
            Err(_) => Err(Error::new(ErrorCode::Internal, "the thread that writes the output is gone")),
        }
    }
}

fn start_writer(unread: Unread) -> Result<Writer> {
    let (chunks, receiver) = mpsc::channel(CHUNKS);
    let (ended, done) = oneshot::channel();
    spawn("output", move || {
        let written = write_all(receiver);
        match (&written, unread) {
            (Ok(()), _) => {}
            (Err(_), Unread::Cancel(canceller)) => canceller.cancel(),
            (Err(_), Unread::Leave(left)) => left.notify_one(),
        }
        // Nobody waits for the answer when the run was interrupted.
        let _ = ended.send(written);
    })?;
    Ok(Writer { chunks, done })
}

/// Writes every piece at once and unaltered, past the buffers of the standard library.
fn write_all(mut chunks: mpsc::Receiver<Chunk>) -> io::Result<()> {
    let mut out = File::from(duplicate(stdout().as_fd())?);
    let mut err = File::from(duplicate(stderr().as_fd())?);
    while let Some(chunk) = chunks.blocking_recv() {
        match chunk {
            Chunk::Stdout(bytes) => out.write_all(&bytes)?,
            // A standard error that nobody reads must not end a run whose output is wanted.
            Chunk::Stderr(bytes) => drop(err.write_all(&bytes)),
        }
    }
    Ok(())
}

fn duplicate(fd: std::os::fd::BorrowedFd<'_>) -> io::Result<OwnedFd> {
    fd.try_clone_to_owned()
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map(drop).map_err(|error| Error::new(ErrorCode::HostIo, "cannot start a thread").because(error))
}
