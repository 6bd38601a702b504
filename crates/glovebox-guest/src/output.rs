//! What a run wrote, for those who read it.
//!
//! Output is held as the frames in which it will be sent. The owner is waited for, as the reader of a pipe is; everybody
//! else finds what is still held, and is told how much is not. At a terminal the others are waited for as well, but not for
//! long: somebody who looks at one wants to see all of it, and must not stop it for the rest.

use std::{cell::RefCell, collections::VecDeque, rc::Rc};

use bytes::Bytes;
use glovebox_proto::{Frame, FrameKind, Gap, Role, bound};
use tokio::{
    sync::Notify,
    time::{Duration, Instant},
};

use crate::modes::Modes;

/// What a held frame takes beside its bytes; without it, many small ones would take far more than the bound.
const OVERHEAD: usize = 128;

/// How long a command waits for an owner whose connection broke to connect again.
const RETURN: Duration = Duration::from_secs(1);

/// How long a command at a terminal waits for one who looks on and does not read.
const PATIENCE: Duration = Duration::from_secs(1);

/// Standard output, standard error, and what a session shows.
const STREAMS: usize = 3;

/// The stream that a frame belongs to. Frames of results are never cut: only whole ones are counted as known.
fn stream_of(kind: FrameKind) -> usize {
    match kind {
        FrameKind::Stdout => 0,
        FrameKind::Stderr => 1,
        _ => 2,
    }
}

/// The output of a run.
#[derive(Default)]
pub(crate) struct Output {
    state: RefCell<State>,
    /// There is something new to read.
    more: Notify,
    /// There may be room again.
    room: Notify,
}

#[derive(Default)]
struct State {
    chunks: VecDeque<Chunk>,
    /// The number of the first chunk that is held.
    first: u64,
    /// What the held chunks take.
    held: usize,
    /// Bytes of each stream before the first chunk that is held.
    gone: [u64; STREAMS],
    /// Bytes of each stream in all.
    written: [u64; STREAMS],
    /// Chunks that the owner has are kept, for others.
    keep: bool,
    owner: Option<Owner>,
    /// The others who are at a terminal; nobody elsewhere.
    onlookers: Vec<Onlooker>,
    /// For a terminal: what it was put into by output that is gone.
    modes: Option<Modes>,
    readers: u64,
    closed: bool,
}

struct Chunk {
    kind: FrameKind,
    frame: Bytes,
    stream: usize,
    /// Bytes of its stream before it.
    start: u64,
}

impl Chunk {
    fn payload(&self) -> u64 {
        (self.frame.len() - Frame::HEADER) as u64
    }

    fn cost(&self) -> usize {
        self.frame.len() + OVERHEAD
    }
}

/// How far one has read whom the command waits for.
struct Progress {
    reader: u64,
    /// The next chunk that it gets.
    next: u64,
    /// What the chunks that it has not got yet take.
    waiting: usize,
    /// It was waited for long enough. It is again once it has read all that there is.
    given_up: bool,
}

impl Progress {
    fn is_full(&self) -> bool {
        self.waiting >= bound::WAITING && !self.given_up
    }

    fn took(&mut self, next: u64, cost: usize) {
        self.next = next;
        self.waiting -= cost;
        self.given_up &= self.waiting > 0;
    }

    /// The chunk before `first` is gone, whether it was read or not.
    fn lost(&mut self, first: u64, cost: usize) {
        if self.next < first {
            self.took(first, cost);
        }
    }
}

struct Owner {
    progress: Progress,
    /// Since when its connection is broken. It may come again.
    lost: Option<Instant>,
}

struct Onlooker {
    progress: Progress,
    /// Since when it is waited for.
    since: Option<Instant>,
}

impl State {
    /// All whose progress counts.
    fn progresses(&mut self) -> impl Iterator<Item = &mut Progress> {
        let owner = self.owner.iter_mut().map(|owner| &mut owner.progress);
        owner.chain(self.onlookers.iter_mut().map(|onlooker| &mut onlooker.progress))
    }

    /// Notes what one has read who is waited for. Says whether it is.
    fn progress(&mut self, reader: u64, note: impl FnOnce(&mut Progress)) -> bool {
        let found = self.progresses().find(|progress| progress.reader == reader);
        found.map(note).is_some()
    }

    /// Who is waited for now, and until when: for ever, or until it is given up.
    fn full(&mut self) -> Option<Option<Instant>> {
        if let Some(owner) = self.owner.as_ref().filter(|owner| owner.progress.is_full()) {
            return Some(owner.lost.map(|lost| lost + RETURN));
        }
        let mut until: Option<Instant> = None;
        for onlooker in &mut self.onlookers {
            if !onlooker.progress.is_full() {
                onlooker.since = None;
                continue;
            }
            let end = *onlooker.since.get_or_insert_with(Instant::now) + PATIENCE;
            until = Some(until.map_or(end, |other| other.min(end)));
        }
        until.map(Some)
    }

    /// Waits no more for those whose time is over.
    fn give_up(&mut self) {
        let now = Instant::now();
        self.owner.take_if(|owner| owner.lost.is_some_and(|lost| lost + RETURN <= now));
        for onlooker in &mut self.onlookers {
            onlooker.progress.given_up |= onlooker.since.is_some_and(|since| since + PATIENCE <= now);
        }
        self.trim();
    }
}

impl Output {
    /// The output of a run. What its owner has is kept for others, or not.
    pub(crate) fn new(keep: bool) -> Rc<Self> {
        let output = Output::default();
        output.state.borrow_mut().keep = keep;
        Rc::new(output)
    }

    /// The same for a run with a terminal. Nobody attaches where nothing is kept.
    pub(crate) fn of_terminal(keep: bool) -> Rc<Self> {
        let output = Output::new(keep);
        output.state.borrow_mut().modes = keep.then(Modes::default);
        output
    }

    /// What brings a terminal to the modes that this one was in before the output that is held.
    pub(crate) fn modes(&self) -> Bytes {
        self.state.borrow().modes.as_ref().map(Modes::to_bytes).unwrap_or_default()
    }

    /// Waits until there is room for more: an owner that is slow is waited for, and one that was lost for a while.
    pub(crate) async fn room(&self) {
        loop {
            let full = self.state.borrow_mut().full();
            match full {
                None => return,
                Some(None) => self.room.notified().await,
                Some(Some(end)) => {
                    if tokio::time::timeout_at(end, self.room.notified()).await.is_err() {
                        self.state.borrow_mut().give_up();
                    }
                }
            }
        }
    }

    /// Takes a frame of one of the streams.
    pub(crate) fn push(&self, kind: FrameKind, frame: Bytes) {
        let stream = stream_of(kind);
        let mut state = self.state.borrow_mut();
        let chunk = Chunk { kind, frame, stream, start: state.written[stream] };
        state.written[stream] += chunk.payload();
        state.held += chunk.cost();
        state.progresses().for_each(|progress| progress.waiting += chunk.cost());
        state.chunks.push_back(chunk);
        state.trim();
        drop(state);
        self.more.notify_waiters();
    }

    /// There will be no more.
    pub(crate) fn close(&self) {
        self.state.borrow_mut().closed = true;
        self.more.notify_waiters();
    }

    /// Lets go of all that is held.
    pub(crate) fn clear(&self) {
        let mut state = self.state.borrow_mut();
        while state.drop_first() {}
    }

    /// What the held chunks take.
    pub(crate) fn held(&self) -> usize {
        self.state.borrow().held
    }

    /// Bytes of each stream so far.
    pub(crate) fn written(&self) -> [u64; STREAMS] {
        self.state.borrow().written
    }

    /// Whether there is an owner.
    pub(crate) fn is_owned(&self) -> bool {
        self.state.borrow().owner.as_ref().is_some_and(|owner| owner.lost.is_none())
    }

    /// A reader who knows so many bytes of each stream already.
    pub(crate) fn reader(self: &Rc<Self>, known: [u64; STREAMS], role: Role) -> Reader {
        let mut state = self.state.borrow_mut();
        state.readers += 1;
        let reader = Reader { output: self.clone(), id: state.readers, next: state.first, known };
        let owns = match role {
            Role::Watcher => false,
            Role::OwnerIfFree => state.owner.as_ref().is_none_or(|owner| owner.lost.is_some()),
            Role::Owner => true,
        };
        let progress = Progress { reader: reader.id, next: state.first, waiting: state.held, given_up: false };
        if owns {
            state.owner = Some(Owner { progress, lost: None });
        } else if state.modes.is_some() {
            state.onlookers.push(Onlooker { progress, since: None });
        }
        drop(state);
        self.room.notify_one();
        reader
    }
}

impl State {
    /// Lets go of the oldest chunks as far as the bound asks for it and the owner has them.
    fn trim(&mut self) {
        loop {
            let (may_go, most) = match &self.owner {
                None => (true, bound::OUTPUT),
                Some(owner) => (owner.progress.next > self.first, if self.keep { bound::OUTPUT } else { 0 }),
            };
            if self.held <= most || !may_go || !self.drop_first() {
                return;
            }
        }
    }

    fn drop_first(&mut self) -> bool {
        let Some(chunk) = self.chunks.pop_front() else { return false };
        self.first += 1;
        self.held -= chunk.cost();
        self.gone[chunk.stream] += chunk.payload();
        if let Some(modes) = &mut self.modes {
            modes.pass(&chunk.frame[Frame::HEADER..]);
        }
        let first = self.first;
        self.progresses().for_each(|progress| progress.lost(first, chunk.cost()));
        true
    }
}

/// Somebody who reads the output of a run.
pub(crate) struct Reader {
    output: Rc<Output>,
    id: u64,
    /// The number of the next chunk.
    next: u64,
    /// Bytes of each stream that the reader has, or was told to be gone.
    known: [u64; STREAMS],
}

impl Reader {
    /// The next frame: output, or that some is gone. Nothing at the end.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.take() {
                return Some(frame);
            }
            if self.output.state.borrow().closed {
                return None;
            }
            self.output.more.notified().await;
        }
    }

    fn take(&mut self) -> Option<Bytes> {
        let mut state = self.output.state.borrow_mut();
        let streams: [usize; STREAMS] = [0, 1, 2];
        let lost = streams.map(|stream| state.gone[stream].saturating_sub(self.known[stream]));
        if lost != [0; STREAMS] {
            self.known = streams.map(|stream| self.known[stream] + lost[stream]);
            let [stdout, stderr, results] = lost;
            return Some(Frame::message(FrameKind::Gap, &Gap { stdout, stderr, results }));
        }
        loop {
            self.next = self.next.max(state.first);
            let chunk = state.chunks.get((self.next - state.first) as usize)?;
            let (stream, payload, cost) = (chunk.stream, chunk.payload(), chunk.cost());
            let known = self.known[stream].saturating_sub(chunk.start);
            let frame = match known {
                0 => Some(chunk.frame.clone()),
                _ if known >= payload => None,
                _ => Some(Frame::data(chunk.kind, &chunk.frame[Frame::HEADER + known as usize..])),
            };
            self.known[stream] = self.known[stream].max(chunk.start + payload);
            self.next += 1;
            if state.progress(self.id, |progress| progress.took(self.next, cost)) {
                state.trim();
                self.output.room.notify_one();
            }
            if frame.is_some() {
                return frame;
            }
        }
    }

    /// Whether the command waits for this reader.
    pub(crate) fn is_owner(&self) -> bool {
        self.output.state.borrow().owner.as_ref().is_some_and(|owner| owner.progress.reader == self.id)
    }
}

impl Reader {
    /// Reads no more. The command does not wait for this reader to come again.
    pub(crate) fn leave(self) {
        if self.is_owner() {
            self.output.state.borrow_mut().owner = None;
        }
    }
}

impl Drop for Reader {
    /// A reader that is lost may come again, unless it said that it leaves.
    fn drop(&mut self) {
        let mut state = self.output.state.borrow_mut();
        if let Some(owner) = state.owner.as_mut().filter(|owner| owner.progress.reader == self.id) {
            owner.lost = Some(Instant::now());
        }
        state.onlookers.retain(|onlooker| onlooker.progress.reader != self.id);
        state.trim();
        drop(state);
        self.output.room.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    fn push(output: &Output, kind: FrameKind, length: usize) {
        output.push(kind, Frame::data(kind, &vec![b'x'; length]));
    }

    /// All that can be read now: bytes of each stream, and bytes of each that are gone.
    fn read(reader: &mut Reader) -> ([u64; 2], [u64; 2]) {
        let (mut got, mut gone) = ([0, 0], [0, 0]);
        let mut decoder = glovebox_proto::Decoder::new();
        while let Some(bytes) = reader.take() {
            decoder.push(bytes);
            let frame = decoder.next().expect("a frame").expect("a whole one");
            match frame.kind {
                FrameKind::Stdout => got[0] += frame.payload.len() as u64,
                FrameKind::Stderr => got[1] += frame.payload.len() as u64,
                FrameKind::Gap => {
                    let gap: Gap = frame.read().expect("a gap");
                    gone = [gone[0] + gap.stdout, gone[1] + gap.stderr];
                }
                other => panic!("{other:?} is not output"),
            }
        }
        (got, gone)
    }

    #[test]
    fn without_an_owner_the_oldest_is_lost_and_said_to_be() {
        let output = Output::new(true);
        for _ in 0..20 {
            push(&output, FrameKind::Stdout, 60 * KIB);
            push(&output, FrameKind::Stderr, KIB);
        }
        assert!(output.held() <= bound::OUTPUT);
        let (got, gone) = read(&mut output.reader([0; 3], Role::Watcher));
        assert_eq!([got[0] + gone[0], got[1] + gone[1]], [1200 * KIB as u64, 20 * KIB as u64]);
        assert!(gone[0] > 0 && got[0] >= 400 * KIB as u64, "{got:?} {gone:?}");
    }

    #[test]
    fn an_owner_loses_nothing_and_what_it_has_is_kept_for_others() {
        let output = Output::new(true);
        let mut owner = output.reader([0; 3], Role::OwnerIfFree);
        let mut second = output.reader([0; 3], Role::OwnerIfFree);
        assert!(owner.is_owner() && !second.is_owner());
        for _ in 0..10 {
            push(&output, FrameKind::Stdout, 100 * KIB);
        }
        assert_eq!(read(&mut owner), ([1000 * KIB as u64, 0], [0, 0]));
        assert!(output.held() <= bound::OUTPUT);
        // Whole pieces, as many as the bound has room for.
        let kept = (bound::OUTPUT / (100 * KIB) * 100 * KIB) as u64;
        assert_eq!(read(&mut second), ([kept, 0], [1000 * KIB as u64 - kept, 0]));
        assert_eq!(read(&mut output.reader([950 * KIB as u64, 0, 0], Role::Watcher)), ([50 * KIB as u64, 0], [0, 0]));
    }

    #[test]
    fn what_only_the_owner_may_want_is_not_kept() {
        let output = Output::new(false);
        let mut owner = output.reader([0; 3], Role::Owner);
        push(&output, FrameKind::Stderr, 10);
        assert_eq!(read(&mut owner), ([0, 10], [0, 0]));
        assert_eq!(output.held(), 0);
    }

    #[test]
    fn a_new_owner_takes_the_place_of_the_old_one() {
        let output = Output::new(true);
        let mut old = output.reader([0; 3], Role::Owner);
        push(&output, FrameKind::Stdout, 300 * KIB);
        let mut new = output.reader([0; 3], Role::Owner);
        assert!(new.is_owner() && !old.is_owner());
        drop(old.take());
        assert_eq!(read(&mut new), ([300 * KIB as u64, 0], [0, 0]));
        old.leave();
        assert!(output.is_owned());
        new.leave();
        assert!(!output.is_owned());
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_waits_a_while_for_an_owner_that_was_lost_and_not_for_one_that_left() {
        let output = Output::new(true);
        for (leaves, waits) in [(false, RETURN), (true, Duration::ZERO)] {
            let owner = output.reader([0; 3], Role::Owner);
            push(&output, FrameKind::Stdout, bound::WAITING);
            if leaves {
                owner.leave()
            } else {
                drop(owner)
            }
            assert!(!output.is_owned());
            let start = Instant::now();
            output.room().await;
            assert_eq!(start.elapsed(), waits);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_that_comes_again_in_time_has_missed_nothing() {
        let output = Output::new(true);
        let mut owner = output.reader([0; 3], Role::Owner);
        push(&output, FrameKind::Stdout, 4 * bound::CHUNK);
        // What was taken is under way, and nothing says that it arrived.
        while owner.take().is_some() {}
        push(&output, FrameKind::Stdout, bound::WAITING);
        drop(owner);
        let again = async {
            tokio::time::sleep(RETURN / 2).await;
            read(&mut output.reader([0; 3], Role::Owner))
        };
        let (got, ()) = tokio::join!(again, output.room());
        assert_eq!(got, ([(4 * bound::CHUNK + bound::WAITING) as u64, 0], [0, 0]));
    }

    #[tokio::test(start_paused = true)]
    async fn at_a_terminal_an_onlooker_is_waited_for_a_moment_and_again_once_it_has_read_all() {
        let output = Output::of_terminal(true);
        let mut owner = output.reader([0; 3], Role::Owner);
        let mut onlooker = output.reader([0; 3], Role::OwnerIfFree);
        for waits in [PATIENCE, Duration::ZERO] {
            push(&output, FrameKind::Stdout, bound::WAITING);
            read(&mut owner);
            let start = Instant::now();
            output.room().await;
            assert_eq!(start.elapsed(), waits);
        }
        assert_eq!(read(&mut onlooker), ([2 * bound::WAITING as u64, 0], [0, 0]));
        output.room().await;
        push(&output, FrameKind::Stdout, bound::WAITING);
        read(&mut owner);
        let reading = async {
            tokio::time::sleep(PATIENCE / 2).await;
            read(&mut onlooker)
        };
        let start = Instant::now();
        let (got, ()) = tokio::join!(reading, output.room());
        assert_eq!((got.0[0], start.elapsed()), (bound::WAITING as u64, PATIENCE / 2));
        push(&output, FrameKind::Stdout, bound::WAITING);
        read(&mut owner);
        drop(onlooker);
        let start = Instant::now();
        output.room().await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[test]
    fn a_terminal_tells_the_modes_that_were_set_in_what_is_gone() {
        let output = Output::of_terminal(true);
        output.push(FrameKind::Stdout, Frame::data(FrameKind::Stdout, b"\x1b[?1049h"));
        assert_eq!(output.modes(), b""[..]);
        (0..=bound::OUTPUT / (60 * KIB)).for_each(|_| push(&output, FrameKind::Stdout, 60 * KIB));
        assert_eq!(output.modes(), b"\x1b[?1049h"[..]);
        assert_eq!(Output::new(true).modes(), b""[..]);
    }

    #[test]
    fn many_small_pieces_take_no_more_than_the_bound() {
        let output = Output::new(true);
        for _ in 0..100_000 {
            push(&output, FrameKind::Stdout, 1);
        }
        assert!(output.held() <= bound::OUTPUT);
        let (got, gone) = read(&mut output.reader([0; 3], Role::Watcher));
        assert_eq!(got[0] + gone[0], 100_000);
    }

    #[test]
    fn what_was_cleared_is_gone() {
        let output = Output::new(true);
        let mut owner = output.reader([0; 3], Role::Owner);
        push(&output, FrameKind::Stdout, 7);
        output.clear();
        assert_eq!((output.held(), read(&mut owner)), (0, ([0, 0], [7, 0])));
    }
}
