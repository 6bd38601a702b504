//! Processes that run while the model does something else.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use bytes::Bytes;
use glovebox_core::{Error, ErrorCode, Outcome, Result, RunId, RunResult, Secret};
use glovebox_engine::{Canceller, Event, Run};
use tokio::sync::{Notify, mpsc};

/// So many processes that have not ended there are at one time.
const MOST: usize = 32;
/// So many that have ended are remembered.
const REMEMBERED: usize = 64;
/// So much of what a process wrote waits to be read; what is older is dropped, and that is said.
const WAITING: usize = 1 << 20;
/// So far back a text is looked for again that is waited for.
const OVERLAP: u64 = 4096;
/// So much new text is searched at one time.
const PIECE: u64 = 16 << 10;

/// The processes of a conversation, by the names that the model knows them by.
#[derive(Default)]
pub(crate) struct Processes {
    all: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    started: u64,
    /// Those that are about to start, and so have no name yet.
    starting: usize,
    by_name: BTreeMap<u64, Arc<Process>>,
}

/// Room for one process, kept until it has started or could not.
pub(crate) struct Room<'a>(&'a Processes);

impl Drop for Room<'_> {
    fn drop(&mut self) {
        lock(&self.0.all).starting -= 1;
    }
}

/// One process.
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) command: String,
    pub(crate) run: RunId,
    pub(crate) started: Instant,
    canceller: Canceller,
    state: Mutex<State>,
    /// Something came, or it ended.
    changed: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<u8>,
    /// How many bytes have come in all.
    received: u64,
    dropped: u64,
    stdin: Option<mpsc::Sender<Bytes>>,
    ended: Option<Ended>,
}

impl State {
    fn piece(&mut self, looked: &mut u64) -> Option<Piece> {
        let first = self.received - self.waiting.len() as u64;
        let new = (*looked).max(first);
        if new == self.received {
            return None;
        }
        // What is looked for may have begun a little before; and whether a line begins there is told by the byte before that.
        let from = new.saturating_sub(OVERLAP).max(first);
        let begin = from.saturating_sub(1).max(first);
        let waiting = &self.waiting.make_contiguous()[(begin - first) as usize..];
        let most = ((new - begin + PIECE) as usize).min(waiting.len());
        let length = match waiting[..most].iter().rposition(|byte| *byte == b'\n') {
            // More is there, so a line that is cut here does not end here.
            Some(at) if most < waiting.len() && begin + at as u64 >= new => at + 1,
            _ => most,
        };
        *looked = begin + length as u64;
        Some(Piece { bytes: waiting[..length].to_vec(), from: (from - begin) as usize })
    }
}

/// A piece of what a process wrote.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) bytes: Vec<u8>,
    /// Where to look from. What is before only tells whether a line begins there.
    pub(crate) from: usize,
}

/// How a process ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Option<Outcome>,
    pub(crate) error: Option<String>,
    pub(crate) after: Duration,
    pub(crate) recorded: bool,
}

/// What was read of a process.
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    /// Bytes that came before these and were dropped unread.
    pub(crate) dropped: u64,
}

impl Processes {
    /// Room for one more, or an error when there are as many as there may be.
    pub(crate) fn room(&self) -> Result<Room<'_>> {
        let mut table = lock(&self.all);
        let running = table.by_name.values().filter(|process| process.ended().is_none()).count();
        if running + table.starting < MOST {
            table.starting += 1;
            return Ok(Room(self));
        }
        Err(Error::new(ErrorCode::TooMany, format!("{MOST} processes are running, and there cannot be more"))
            .hint("stop_process ends one; list_processes names them"))
    }

    /// Follows a run as a process, in the room that was kept for it.
    pub(crate) fn add(&self, room: Room<'_>, command: String, run: Run, stdin: mpsc::Sender<Bytes>) -> Arc<Process> {
        drop(room);
        let mut table = lock(&self.all);
        table.started += 1;
        let number = table.started;
        let process = Arc::new(Process {
            name: format!("p{number}"),
            command,
            run: run.id(),
            started: Instant::now(),
            canceller: run.canceller(),
            state: Mutex::new(State { stdin: Some(stdin), ..State::default() }),
            changed: Notify::new(),
        });
        table.by_name.insert(number, process.clone());
        let ended: Vec<u64> =
            table.by_name.iter().filter(|(_, process)| process.ended().is_some()).map(|(number, _)| *number).collect();
        for number in ended.iter().take(ended.len().saturating_sub(REMEMBERED)) {
            table.by_name.remove(number);
        }
        drop(table);
        tokio::spawn(follow(process.clone(), run));
        process
    }

    /// The process of a name.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<Process>> {
        let number = name.strip_prefix('p').and_then(|number| number.parse().ok());
        number.and_then(|number: u64| lock(&self.all).by_name.get(&number).cloned()).ok_or_else(|| {
            Error::new(ErrorCode::RunNotFound, format!("there is no process {:?}", crate::text::cut(name, 40)))
                .hint("start_process gives a name such as p1; list_processes names all")
        })
    }

    /// All of them, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Process>> {
        lock(&self.all).by_name.values().cloned().collect()
    }

    /// The runs of those that have not ended.
    pub(crate) fn running(&self) -> Vec<RunId> {
        self.all().iter().filter(|process| process.ended().is_none()).map(|process| process.run).collect()
    }

    /// Forgets all, because their sandbox is gone.
    pub(crate) fn forget(&self) {
        lock(&self.all).by_name.clear();
    }
}

impl Process {
    /// How it ended, if it did.
    pub(crate) fn ended(&self) -> Option<Ended> {
        lock(&self.state).ended.clone()
    }

    /// Ends it.
    pub(crate) fn cancel(&self) {
        self.canceller.cancel();
    }

    /// Waits until something came or it ended. Must be made before one looks, and awaited after.
    pub(crate) fn change(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// The next piece of what waits to be read and was not looked at before: `looked` is where to go on.
    pub(crate) fn piece(&self, looked: &mut u64) -> Option<Piece> {
        lock(&self.state).piece(looked)
    }

    /// What came since it was last read. The beginning of a secret waits for its end, so that it can be masked.
    pub(crate) fn take(&self, secrets: &[&Secret]) -> Output {
        let mut state = lock(&self.state);
        let held = match state.ended {
            Some(_) => 0,
            None => beginning_of_secret(state.waiting.make_contiguous(), secrets),
        };
        let length = state.waiting.len() - held;
        let bytes = Secret::mask_all(secrets.iter().copied(), state.waiting.drain(..length).collect());
        Output { bytes, dropped: std::mem::take(&mut state.dropped) }
    }

    /// Sends bytes to its standard input.
    pub(crate) async fn write(&self, bytes: Bytes) -> Result<()> {
        let stdin = lock(&self.state).stdin.clone();
        let closed = || {
            Error::new(ErrorCode::WrongState, format!("{} reads no input any more", self.name))
                .hint("it has ended, or its input was closed")
        };
        if self.ended().is_some() {
            return Err(closed());
        }
        let stdin = stdin.ok_or_else(closed)?;
        match tokio::time::timeout(Duration::from_secs(10), stdin.send(bytes)).await {
            Ok(sent) => sent.map_err(|_| closed()),
            Err(_) => Err(Error::new(ErrorCode::WrongState, format!("{} does not read its input", self.name))
                .hint("read_process shows what it does")),
        }
    }

    /// Closes its standard input.
    pub(crate) fn close_input(&self) {
        lock(&self.state).stdin = None;
    }

    fn add(&self, bytes: &[u8]) {
        let mut state = lock(&self.state);
        state.waiting.extend(bytes);
        state.received += bytes.len() as u64;
        let over = state.waiting.len().saturating_sub(WAITING);
        state.waiting.drain(..over);
        state.dropped += over as u64;
        drop(state);
        self.changed.notify_waiters();
    }

    fn end(&self, result: Result<RunResult>) {
        let after = self.started.elapsed();
        let ended = match result {
            Ok(result) => Ended { outcome: Some(result.outcome), error: None, after, recorded: result.recorded },
            Err(error) => Ended { outcome: None, error: Some(error.message), after, recorded: false },
        };
        let mut state = lock(&self.state);
        state.ended = Some(ended);
        state.stdin = None;
        drop(state);
        self.changed.notify_waiters();
    }
}

async fn follow(process: Arc<Process>, mut run: Run) {
    while let Some(event) = run.next_event().await {
        match event {
            Event::Stdout(bytes) | Event::Stderr(bytes) => process.add(&bytes),
            _ => {}
        }
    }
    process.end(run.wait().await);
}

/// How many bytes at the end could be the beginning of a secret.
fn beginning_of_secret(bytes: &[u8], secrets: &[&Secret]) -> usize {
    let longest = |secret: &&Secret| {
        let value = secret.expose().as_bytes();
        let most = value.len().saturating_sub(1).min(bytes.len());
        (1..=most).rev().find(|length| bytes.ends_with(&value[..*length])).unwrap_or(0)
    };
    secrets.iter().map(longest).max().unwrap_or(0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|lock| lock.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_looked_for_in_pieces_that_overlap_and_end_with_lines() {
        let mut state = State::default();
        let mut looked = 0;
        assert_eq!(state.piece(&mut looked), None);
        let more = |state: &mut State, bytes: &[u8]| {
            state.waiting.extend(bytes);
            state.received += bytes.len() as u64;
        };
        more(&mut state, b"one\nrea");
        assert_eq!(state.piece(&mut looked), Some(Piece { bytes: b"one\nrea".to_vec(), from: 0 }));
        assert_eq!((state.piece(&mut looked), looked), (None, 7));
        more(&mut state, b"dy\n");
        assert_eq!(state.piece(&mut looked), Some(Piece { bytes: b"one\nready\n".to_vec(), from: 0 }));
        let lines = "0123456789\n".repeat(20_000);
        more(&mut state, lines.as_bytes());
        let (mut pieces, mut new) = (0, 0);
        let mut before = looked;
        while let Some(piece) = state.piece(&mut looked) {
            assert!(piece.bytes.len() as u64 <= OVERLAP + PIECE + 1 && piece.bytes.ends_with(b"9\n"), "{pieces}");
            assert!(piece.from == 0 || piece.bytes.len() as u64 > OVERLAP);
            (pieces, new) = (pieces + 1, new + looked - before);
            before = looked;
        }
        assert_eq!((pieces, new), (14, lines.len() as u64));
        // What was read is not looked at again.
        state.waiting.clear();
        more(&mut state, b"x");
        assert_eq!(state.piece(&mut looked), Some(Piece { bytes: b"x".to_vec(), from: 0 }));
    }

    #[test]
    fn the_beginning_of_a_secret_waits_for_its_end() {
        let secret = Secret::new("abcabd");
        let held = |bytes: &[u8]| beginning_of_secret(bytes, &[&secret]);
        assert_eq!(held(b"x abcab"), 5);
        assert_eq!(held(b"x abcabd"), 0);
        assert_eq!(held(b"xyz"), 0);
        assert_eq!(held(b"xyza"), 1);
        assert_eq!(beginning_of_secret(b"abc", &[]), 0);
    }
}
