//! The keys of the caller's terminal, on their way to a program inside.
//!
//! A thread of its own reads them: standard input is a blocking descriptor that others may share. It waits for keys and for the word to
//! stop at the same time, so that nothing that is typed after the end is taken from the caller's shell.

use std::{
    io::{self, stdin},
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    thread::{self, JoinHandle},
};

use bytes::Bytes;
use glovebox_core::{Error, ErrorCode, Result};
use glovebox_engine::Stdin;
use glovebox_terminal::Keys;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    pipe::{PipeFlags, pipe_with},
};
use tokio::sync::{Notify, mpsc};

/// Pieces of what was typed that wait for the run.
const PIECES: usize = 16;
/// Bytes read at once.
const PIECE: usize = 16 * 1024;
/// How long to wait before a run that takes no keys is asked again.
const ASK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Keys that are not read yet.
#[derive(Debug)]
pub(crate) struct Keyboard {
    to: mpsc::Sender<Bytes>,
    keys: Keys,
    detached: Arc<Notify>,
}

impl Keyboard {
    /// A keyboard, and what a run reads of it. Nothing is read before [`Keyboard::start`].
    pub(crate) fn new(keys: Keys) -> (Keyboard, Stdin) {
        let (to, from) = mpsc::channel(PIECES);
        (Keyboard { to, keys, detached: Arc::default() }, Stdin::Stream(from))
    }

    /// Is told when the keys to detach were typed.
    pub(crate) fn detached(&self) -> Arc<Notify> {
        self.detached.clone()
    }

    /// Begins to read.
    pub(crate) fn start(self) -> Result<Reading> {
        let failed = |error: io::Error| Error::new(ErrorCode::HostIo, "the keys cannot be read").because(error);
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let reading = thread::Builder::new().name("keys".to_owned()).spawn(move || {
            // A terminal that fails is over, as for a program that reads it itself.
            let _ = read_keys(self, &stopped);
        });
        Ok(Reading { stop: Some(stop), thread: Some(reading.map_err(failed)?) })
    }
}

/// Keys that are being read, until this is dropped.
#[derive(Debug)]
pub(crate) struct Reading {
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It fails only by a panic, which has been printed.
            let _ = thread.join();
        }
    }
}

fn read_keys(mut keyboard: Keyboard, stopped: &OwnedFd) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    loop {
        let input = stdin();
        let mut waiting = [PollFd::new(&input, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut waiting, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        if !waiting[1].revents().is_empty() {
            return Ok(());
        }
        // Past the buffer of the standard library, which would hold on to what belongs to the caller's shell.
        let length = rustix::io::read(input.as_fd(), &mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        let mut typed = Vec::with_capacity(length);
        let detached = keyboard.keys.push(&buffer[..length], &mut typed);
        if !typed.is_empty() && !hand_on(&keyboard.to, typed.into(), stopped)? {
            return Ok(());
        }
        if detached {
            keyboard.detached.notify_one();
            return Ok(());
        }
    }
}

/// Hands keys on, as soon as the run takes them. Says whether it still does.
fn hand_on(to: &mpsc::Sender<Bytes>, mut typed: Bytes, stopped: &OwnedFd) -> io::Result<bool> {
    loop {
        typed = match to.try_send(typed) {
            Ok(()) => return Ok(true),
            Err(mpsc::error::TrySendError::Closed(_)) => return Ok(false),
            Err(mpsc::error::TrySendError::Full(typed)) => typed,
        };
        let mut waiting = [PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut waiting, Some(&ASK_AGAIN)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}
