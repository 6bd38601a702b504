//! Sessions: interpreters that stay, and the runs in them.
//!
//! Theory of operation. The interpreter of a session is a command that was started with a socket more, and is told there what
//! to run. What it writes to its pipes while a run is under way is that run's output; what it says on the socket
//! ([`Replies`]) is what the run shows, and that it is over. One run at a time has its turn; others wait. A run is ended by an
//! interrupt first, which leaves the interpreter as it is, and by a kill only when that does not help: then all that the
//! session held is lost, and whoever comes next is told.

mod run;

use std::{
    cell::{Cell, OnceCell, RefCell},
    io,
    rc::Rc,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use glovebox_proto::{
    EndReason, Exited, Frame, FrameKind, LeafWord, bound,
    session::{Replies, SessionInfo, SessionName},
};
use h2::{RecvStream, SendStream};
use rustix::{
    net::RecvFlags,
    process::{Pid, Signal, kill_process_group},
};
use tokio::{
    net::{UnixStream, unix::pipe::Receiver},
    sync::{Mutex, Notify, oneshot},
};

use crate::{
    leaves::Leaf,
    processes::Target,
    runs::{self, Run},
    server::Guest,
    stream::{self, Frames},
};
pub(crate) use run::serve_run;

/// How long an interpreter may take to end that was killed, or closed its socket.
const FAREWELL: Duration = Duration::from_millis(300);
/// No grace of an interrupt is longer: the host waits for an end that it asked for no longer than this and a bit.
const LONGEST_GRACE: Duration = Duration::from_secs(3);

/// All sessions.
#[derive(Default)]
pub(crate) struct Sessions(RefCell<Vec<Rc<Session>>>);

/// A session: a name, and the interpreter that has it.
pub(crate) struct Session {
    name: String,
    /// Whoever holds it has its turn.
    turn: Arc<Mutex<Option<Interpreter>>>,
    known: RefCell<Known>,
    /// It was ended, and its name is another one's.
    closed: Cell<bool>,
}

/// What is known of a session whoever has its turn.
#[derive(Default)]
struct Known {
    language: String,
    /// What its group is known by.
    key: String,
    pid: i32,
    leaf: Option<Leaf>,
    started: Option<SystemTime>,
    runs: u64,
    busy: Option<Rc<Run>>,
    /// Whether the keeper was told that it only waits.
    at_rest: bool,
    /// How the interpreter ended, once it did.
    ended: Option<Exited>,
}

/// The guest's ends of an interpreter.
struct Interpreter {
    control: UnixStream,
    replies: Replies,
    stdout: Option<Receiver>,
    stderr: Option<Receiver>,
    ended: oneshot::Receiver<Exited>,
}

impl Interpreter {
    /// How it ended, if it cannot take a run any more. One that has said something since its last run was over is none that can be
    /// believed: code said that it was done, and went on.
    fn is_lost(&mut self) -> Option<Exited> {
        let waits = rustix::net::recv(&self.control, &mut [0u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        match (self.ended.try_recv(), waits) {
            (Ok(exited), _) => Some(exited),
            (Err(_), Err(_)) if self.replies.is_empty() => None,
            _ => Some(Exited { signal: Some(libc::SIGKILL), ..Exited::default() }),
        }
    }
}

/// The session of a run.
pub(crate) struct InSession {
    /// The session's name. Which one has it is known once the run has its turn.
    pub(crate) name: String,
    session: OnceCell<Rc<Session>>,
    /// Whether it was asked to stop.
    interrupted: Cell<bool>,
    ending: Notify,
    grace: Duration,
}

impl Sessions {
    /// Whether there are none.
    pub(crate) fn are_none(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// The leaves of all interpreters, with what they are known by.
    pub(crate) fn leaves(&self) -> Vec<(u64, String, bool)> {
        let known = |session: &Rc<Session>| {
            let known = session.known.borrow();
            Some((known.leaf.as_ref()?.number, known.key.clone(), known.at_rest))
        };
        self.0.borrow().iter().filter_map(known).collect()
    }

    /// The interpreters that only wait.
    pub(crate) fn resting(&self) -> Vec<i32> {
        let resting = |session: &Rc<Session>| {
            let known = session.known.borrow();
            (known.at_rest && known.pid > 0).then_some(known.pid)
        };
        self.0.borrow().iter().filter_map(resting).collect()
    }

    fn find(&self, name: &str) -> Option<Rc<Session>> {
        self.0.borrow().iter().find(|session| session.name == name).cloned()
    }

    /// The session of this name, which may be one without an interpreter yet. None when there are too many.
    fn find_or_add(&self, name: &str) -> Option<Rc<Session>> {
        if let Some(session) = self.find(name) {
            return Some(session);
        }
        if self.0.borrow().len() >= bound::SESSIONS {
            return None;
        }
        let (turn, known) = (Arc::default(), RefCell::default());
        let session = Rc::new(Session { name: name.to_owned(), turn, known, closed: Cell::new(false) });
        self.0.borrow_mut().push(session.clone());
        Some(session)
    }

    fn remove(&self, session: &Rc<Session>) {
        session.closed.set(true);
        self.0.borrow_mut().retain(|other| !Rc::ptr_eq(other, session));
    }
}

impl Session {
    fn info(&self, guest: &Guest) -> SessionInfo {
        let known = self.known.borrow();
        let is_gone = known.pid > 0 && !guest.reaper.has(known.pid);
        let since_epoch = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |span| span.as_nanos() as i64);
        SessionInfo {
            name: self.name.clone(),
            language: known.language.clone(),
            pid: known.pid,
            started_ns: known.started.map_or(0, since_epoch),
            runs: known.runs,
            busy: known.busy.as_ref().map(|run| run.id.clone()),
            waiting: guest.runs.waiting_in(&self.name),
            // How one ended that nobody was with is known to the next run.
            ended: known.ended.or(is_gone.then(Exited::default)),
        }
    }

    /// Tells the keeper whether the interpreter only waits, if it knows something else.
    async fn tell_rest(&self, guest: &Guest, at_rest: bool) {
        let word = {
            let mut known = self.known.borrow_mut();
            if known.at_rest == at_rest {
                return;
            }
            known.at_rest = at_rest;
            let Some(leaf) = &known.leaf else { return };
            LeafWord { leaf: leaf.number, run: known.key.clone(), wants: false, shut: false, at_rest }
        };
        guest.leaves.tell(word).await;
    }

    /// Kills all that an interpreter has left.
    async fn end_rest(&self, guest: &Guest) {
        let (pid, leaf, key) = {
            let mut known = self.known.borrow_mut();
            (std::mem::take(&mut known.pid), known.leaf.take(), known.key.clone())
        };
        match &leaf {
            Some(leaf) => runs::kill(guest, (Some(leaf), &key), Target::Leaf { name: &leaf.name }).await,
            None if pid > 0 => {
                let target = Target::Command { main: pid, zygote: guest.zygote_pid };
                runs::kill(guest, (None, &key), target).await;
            }
            None => {}
        }
    }

    /// Asks the interpreter, and all in its group, to stop what they do.
    fn interrupt(&self, guest: &Guest) {
        let pid = self.known.borrow().pid;
        if let Some(group) = Pid::from_raw(pid).filter(|_| guest.reaper.has(pid)) {
            let _ = kill_process_group(group, Signal::INT);
        }
    }
}

impl InSession {
    /// Takes a signal that is to end a run as an interrupt, if it was not interrupted before. What took too much room goes at once.
    pub(crate) fn interrupt_first(&self, guest: &Guest, run: &Run, number: i32) -> bool {
        let full = [EndReason::DiskFull, EndReason::InodesFull, EndReason::VolumeFull];
        let broken = [EndReason::BrokenSession, EndReason::LeftSession];
        match number {
            libc::SIGTERM | libc::SIGINT => {
                self.interrupted.set(self.interrupted.get() || number == libc::SIGTERM);
                self.interrupt(guest);
                true
            }
            libc::SIGKILL
                if !full.contains(&run.reason.get())
                    && !broken.contains(&run.reason.get())
                    && !self.interrupted.replace(true) =>
            {
                self.interrupt(guest);
                self.ending.notify_one();
                true
            }
            _ => false,
        }
    }

    /// Has a run end that waits for its turn. One that has it already is killed after its grace.
    pub(crate) fn end_soon(&self) {
        self.interrupted.set(true);
        self.ending.notify_one();
    }

    fn interrupt(&self, guest: &Guest) {
        if let Some(session) = self.session.get() {
            session.interrupt(guest);
        }
    }

    /// How long to wait after an interrupt.
    fn grace(&self) -> Duration {
        self.grace.min(LONGEST_GRACE)
    }
}

/// Lists the sessions.
pub(crate) async fn list(guest: &Guest, mut out: SendStream<Bytes>) -> io::Result<()> {
    let sessions: Vec<Rc<Session>> = guest.sessions.0.borrow().clone();
    // One whose first interpreter is just being started is none yet.
    let begun = sessions.iter().filter(|session| session.known.borrow().started.is_some());
    let infos: Vec<SessionInfo> = begun.map(|session| session.info(guest)).collect();
    for info in infos {
        stream::send(&mut out, Frame::message(FrameKind::SessionInfo, &info)).await?;
    }
    runs::answer(out, FrameKind::Done).await
}

/// Interrupts what runs in a session. Where nothing does there is nothing to do.
pub(crate) async fn interrupt(guest: &Guest, body: RecvStream, out: SendStream<Bytes>) -> io::Result<()> {
    let Some(session) = named(guest, body).await? else { return runs::answer(out, FrameKind::NoRun).await };
    let busy = session.known.borrow().busy.clone();
    if let Some(run) = busy {
        runs::send_signal(guest, &run, libc::SIGINT, EndReason::None).await;
    }
    runs::answer(out, FrameKind::Done).await
}

/// Ends a session with all that it started, and answers when nothing of it is left.
pub(crate) async fn end(guest: &Guest, body: RecvStream, out: SendStream<Bytes>) -> io::Result<()> {
    let Some(session) = named(guest, body).await? else { return runs::answer(out, FrameKind::NoRun).await };
    guest.sessions.remove(&session);
    let busy = session.known.borrow().busy.clone();
    if let Some(run) = busy {
        // The session goes, so there is nothing to be gentle for.
        run.session.iter().for_each(InSession::end_soon);
        runs::send_signal(guest, &run, libc::SIGKILL, EndReason::Cancelled).await;
    }
    let mut turn = session.turn.lock().await;
    // While the interpreter lives it is known whose children its own are.
    session.end_rest(guest).await;
    if let Some(Interpreter { ended, .. }) = turn.take() {
        let _ = tokio::time::timeout(FAREWELL, ended).await;
    }
    runs::answer(out, FrameKind::Done).await
}

async fn named(guest: &Guest, body: RecvStream) -> io::Result<Option<Rc<Session>>> {
    let Some(frame) = Frames::new(body).next().await? else { return Ok(None) };
    let SessionName { name } = frame.read().map_err(io::Error::other)?;
    Ok(guest.sessions.find(&name))
}
