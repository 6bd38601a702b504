//! The caller's terminal while a program inside has it.

use std::{
    io::{IsTerminal, stdin, stdout},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use bytes::Bytes;
use glovebox_core::Result;
use glovebox_engine::{Run, Screen, TerminalSize};
use glovebox_terminal::Filter;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::{QueueSelector, tcflush},
};
use tokio::task::JoinHandle;

use super::{
    RawMode,
    keyboard::{Keyboard, Reading},
    output_size, size,
};
use crate::signals;

/// How long the terminal may take to answer the last question.
const LAST_ANSWER: Duration = Duration::from_millis(500);
/// How long it is quiet when it has answered all of them.
const QUIET: Duration = Duration::from_millis(30);
/// How long a terminal may go on answering. Who asks a million questions has a million answers lost.
const ALL_ANSWERS: Duration = Duration::from_secs(3);
/// How long a program has to see that its terminal is a row lower, before it is as high as it was.
const NUDGE: Duration = Duration::from_millis(100);

/// What every terminal answers: what it is.
const QUESTION: &[u8] = b"\x1b[c";

/// Holds the caller's terminal for a run. When it is dropped, by whatever, the terminal is as it was.
pub(crate) struct Seat {
    /// The keys; nothing for one who only looks on.
    reading: Option<Reading>,
    /// Nothing where standard output is no terminal: then nothing is altered.
    filter: Option<Filter>,
    resizing: Option<JoinHandle<()>>,
    /// Left last: only a terminal in raw mode does not echo its own answers.
    raw_mode: Option<RawMode>,
}

impl Seat {
    /// Gives the terminal to a run: its keys from now on, and its size whenever it changes.
    pub(crate) fn take(keyboard: Keyboard, run: &Run) -> Result<Seat> {
        let raw_mode = RawMode::enter()?;
        let handle = run.terminal();
        let mut changes = signals::window_changes()?;
        if let Ok(size) = size() {
            handle.resize(size);
        }
        let resizing = tokio::spawn(async move {
            while changes.recv().await.is_some() {
                if let Ok(size) = size() {
                    handle.resize(size);
                }
            }
        });
        let mut seat = Seat::looking_on();
        (seat.resizing, seat.raw_mode) = (Some(resizing), Some(raw_mode));
        seat.reading = Some(keyboard.start()?);
        Ok(seat)
    }

    /// Shows a run on the terminal, and gives it no keys.
    pub(crate) fn looking_on() -> Seat {
        let filter = stdout().is_terminal().then(Filter::new);
        Seat { reading: None, filter, resizing: None, raw_mode: None }
    }

    /// Whether there is a screen to paint on.
    pub(crate) fn has_screen(&self) -> bool {
        self.filter.is_some()
    }

    /// What may be shown of the run's output.
    pub(crate) fn show(&mut self, bytes: Bytes) -> Bytes {
        let Some(filter) = &mut self.filter else { return bytes };
        let mut shown = Vec::with_capacity(bytes.len());
        filter.push(&bytes, &mut shown);
        shown.into()
    }

    /// Some output is missing.
    pub(crate) fn gap(&mut self) -> Bytes {
        let mut shown = Vec::new();
        if let Some(filter) = &mut self.filter {
            filter.gap(&mut shown);
        }
        shown.into()
    }

    /// What shows the screen that a run has drawn before. Where some of it was gone, the program is made to draw it again: it sees
    /// its terminal become a row lower, and as high as it was.
    pub(crate) fn paint(&mut self, run: &Run, screen: &mut Screen, missed: bool) -> Bytes {
        let size = shown_size();
        if missed && size.rows > 2 && self.reading.is_some() {
            let handle = run.terminal();
            tokio::spawn(async move {
                handle.resize(TerminalSize { rows: size.rows - 1, ..size });
                tokio::time::sleep(NUDGE).await;
                handle.resize(size);
            });
        }
        self.show(screen.paint(size.rows, size.columns).into())
    }
}

/// The size of what is painted on, for one who looks on without a keyboard too.
fn shown_size() -> TerminalSize {
    size().unwrap_or_else(|_| {
        let (columns, rows) = output_size();
        TerminalSize { rows, columns }
    })
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.resizing.iter().for_each(JoinHandle::abort);
        // From now on nobody else reads what the terminal says.
        self.reading = None;
        if let Some(filter) = &mut self.filter {
            let may_answer = filter.may_answer() && self.raw_mode.is_some();
            let mut last = Vec::new();
            filter.restore(&mut last);
            // A terminal that is gone needs nothing.
            let written = write_in_time(&last);
            if may_answer && written {
                swallow_answers();
            }
        }
        self.raw_mode = None;
    }
}

/// Writes to the terminal, unless it stands still. Past the lock of standard output: whoever holds that may wait for the same terminal.
fn write_in_time(mut bytes: &[u8]) -> bool {
    let output = stdout();
    while !bytes.is_empty() {
        let mut ready = [PollFd::new(&output, PollFlags::OUT)];
        let patience = Timespec { tv_sec: 0, tv_nsec: LAST_ANSWER.as_nanos() as i64 };
        match poll(&mut ready, Some(&patience)) {
            Ok(1..) => {}
            Err(rustix::io::Errno::INTR) => continue,
            _ => return false,
        }
        // So little that a terminal which takes something takes it whole.
        match rustix::io::write(output.as_fd(), &bytes[..bytes.len().min(256)]) {
            Ok(written) => bytes = &bytes[written..],
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Takes what the terminal still answers to the program, so that the caller's shell does not get it as if it had been typed: asks one
/// more question, and reads until it is answered and nothing follows.
fn swallow_answers() {
    if !write_in_time(QUESTION) {
        return;
    }
    let end = Instant::now() + ALL_ANSWERS;
    let (mut buffer, mut tail, mut answered) = ([0; 4096], Vec::new(), false);
    while Instant::now() < end {
        let patience = if answered { QUIET } else { LAST_ANSWER };
        let input = stdin();
        let mut waiting = [PollFd::new(&input, PollFlags::IN)];
        let patience = Timespec { tv_sec: 0, tv_nsec: patience.as_nanos() as i64 };
        match poll(&mut waiting, Some(&patience)) {
            Ok(1..) => {}
            Err(rustix::io::Errno::INTR) => continue,
            _ => break,
        }
        let Ok(length @ 1..) = rustix::io::read(input.as_fd(), &mut buffer) else { break };
        tail.extend_from_slice(&buffer[..length]);
        answered |= holds_answer(&tail);
        // An answer may come in two parts, and is not longer than this.
        tail.drain(..tail.len().saturating_sub(64));
    }
    let _ = tcflush(stdin(), QueueSelector::IFlush);
}

/// Whether this holds what a terminal says of what it is: `CSI ? 6 2 ; 2 2 c` and the like.
fn holds_answer(bytes: &[u8]) -> bool {
    let starts = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"\x1b[?"));
    starts.map(|at| &bytes[at + 3..]).any(|rest| {
        let end = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b';');
        end.is_some_and(|end| rest[end] == b'c')
    })
}

#[cfg(test)]
mod tests {
    use super::holds_answer;

    #[test]
    fn the_answer_of_a_terminal_is_told_from_other_answers_and_from_keys() {
        for yes in [&b"\x1b[?62;22c"[..], b"ls\r\x1b[5;3R\x1b[?1;2c", b"\x1b[?\x1b[?6c"] {
            assert!(holds_answer(yes), "{}", yes.escape_ascii());
        }
        for no in [&b""[..], b"c", b"\x1b[?62;22", b"\x1b[?2026;2$y", b"\x1b[>0;276;0c", b"\x1b[?1x"] {
            assert!(!holds_answer(no), "{}", no.escape_ascii());
        }
    }
}
