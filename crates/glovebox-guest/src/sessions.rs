//! Sessions: interpreters that stay, and the runs in them.
//!
//! Theory of operation. The interpreter of a session is a command that was started with a socket more, and is told there what
//! to run. What it writes to its pipes while a run is under way is that run's output; what it says on the socket
//! ([`Replies`]) is what the run shows, and that it is over. One run at a time has its turn; others wait. A run is ended by an
//! interrupt first, which leaves the interpreter as it is, and by a kill only when that does not help: then all that the
//! session held is lost, and whoever comes next is told.

use std::{
    cell::{Cell, RefCell},
    io,
    os::fd::OwnedFd,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::{Bytes, BytesMut};
use glovebox_proto::{
    EndReason, Exited, Frame, FrameKind, Role, StartFailed, StartRun, Started, bound,
    session::{Replies, Reply, SessionInfo, SessionName, SessionRun, SessionStarted},
};
use h2::{RecvStream, SendStream};
use rustix::{
    fs::{Mode, OFlags},
    pipe::PipeFlags,
    process::{Pid, Signal, kill_process_group},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixStream, unix::pipe::Receiver},
    sync::{Mutex, Notify, OwnedMutexGuard, oneshot},
};

use crate::{
    input::Input,
    leaves::Leaf,
    output::Output,
    processes::Target,
    run::{self, Launched, Patience},
    runs::{self, Run},
    server::Guest,
    stream::{self, Frames},
};

/// No name of a session is longer.
const LONGEST_NAME: usize = 128;
/// How long an interpreter has to end by itself when its session ends.
const FAREWELL: Duration = Duration::from_millis(300);
/// How often a run is asked to stop before it is killed.
const INTERRUPTS: u32 = 4;
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

/// The session of a run.
pub(crate) struct InSession {
    session: Rc<Session>,
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
    pub(crate) fn leaves(&self) -> Vec<(u64, String)> {
        let known = |session: &Rc<Session>| {
            let known = session.known.borrow();
            Some((known.leaf.as_ref()?.number, known.key.clone()))
        };
        self.0.borrow().iter().filter_map(known).collect()
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
    fn info(&self) -> SessionInfo {
        let known = self.known.borrow();
        let since_epoch = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |span| span.as_nanos() as i64);
        SessionInfo {
            name: self.name.clone(),
            language: known.language.clone(),
            pid: known.pid,
            started_ns: known.started.map_or(0, since_epoch),
            runs: known.runs,
            busy: known.busy.as_ref().map(|run| run.id.clone()),
            ended: known.ended,
        }
    }

    /// Kills all that an interpreter has left.
    async fn end_rest(&self, guest: &Guest) {
        let (pid, leaf, key) = {
            let mut known = self.known.borrow_mut();
            (known.pid, known.leaf.take(), known.key.clone())
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
        let at_once = [EndReason::DiskFull, EndReason::InodesFull, EndReason::VolumeFull, EndReason::BrokenSession];
        match number {
            libc::SIGTERM | libc::SIGINT => {
                self.interrupted.set(self.interrupted.get() || number == libc::SIGTERM);
                self.session.interrupt(guest);
                true
            }
            libc::SIGKILL if !at_once.contains(&run.reason.get()) && !self.interrupted.replace(true) => {
                self.session.interrupt(guest);
                self.ending.notify_one();
                true
            }
            _ => false,
        }
    }

    /// How long to wait after an interrupt.
    fn grace(&self) -> Duration {
        self.grace.min(LONGEST_GRACE)
    }
}

/// Serves one who starts a run in a session and owns it.
pub(crate) async fn serve_run(
    guest: Rc<Guest>,
    mut request: StartRun,
    order: SessionRun,
    (note, frames): (Bytes, Frames),
    mut out: SendStream<Bytes>,
) -> io::Result<()> {
    let failed = |step: &str, errno| StartFailed { step: step.into(), errno };
    if order.name.is_empty() || order.name.len() > LONGEST_NAME || order.input.len() > bound::SESSION_INPUT {
        return run::refuse(out, &failed("session", libc::EINVAL)).await;
    }
    let (session, mut turn) = loop {
        let Some(session) = guest.sessions.find_or_add(&order.name) else {
            return run::refuse(out, &failed("sessions", libc::EMFILE)).await;
        };
        let turn = tokio::select! {
            turn = session.turn.clone().lock_owned() => turn,
            () = stream::gone(&mut out) => return Ok(()),
        };
        if !session.closed.get() {
            break (session, turn);
        }
    };
    let beginning = Instant::now();
    let mut before = None;
    if let Some(interpreter) = turn.as_mut()
        && let Ok(exited) = interpreter.ended.try_recv()
    {
        session.known.borrow_mut().ended = Some(exited);
        *turn = None;
    }
    let new = turn.is_none();
    let refused = if guest.runs.is_under_way(&request.run) || note.len() > bound::NOTE {
        Some(failed("run", libc::EEXIST))
    } else if !new && session.known.borrow().language != order.language {
        Some(failed("language", libc::EINVAL))
    } else if new && order.opening.is_empty() {
        Some(failed("opening", libc::ENOENT))
    } else if *guest.paused.borrow() {
        Some(run::paused())
    } else {
        None
    };
    let mut told = BytesMut::new();
    let started = match refused {
        Some(refused) => Err(refused),
        None if new => {
            before = session.known.borrow().ended;
            session.end_rest(&guest).await;
            told.extend_from_slice(&order.opening);
            start(&guest, &session, &mut request, &order).await?
        }
        None => Ok(None),
    };
    match started {
        Ok(Some(interpreter)) => *turn = Some(interpreter),
        Ok(None) => {}
        Err(refused) => {
            if turn.is_none() && session.known.borrow().started.is_none() {
                guest.sessions.remove(&session);
            }
            return run::refuse(out, &refused).await;
        }
    }
    told.extend_from_slice(&order.input);
    let grace = Duration::from_millis(request.grace_ms);
    let in_session =
        InSession { session: session.clone(), interrupted: Cell::new(false), ending: Notify::new(), grace };
    let (pid, leaf, key, runs) = {
        let mut known = session.known.borrow_mut();
        known.runs += 1;
        (known.pid, known.leaf.clone(), known.key.clone(), known.runs)
    };
    let run = Rc::new(Run {
        id: request.run,
        pid,
        leaf,
        started: SystemTime::now(),
        note,
        output: Output::new(request.keep_output),
        input: Input::new(None, None),
        alive: Cell::new(true),
        reason: Cell::new(EndReason::None),
        ended: Cell::new(None),
        session: Some(in_session),
    });
    session.known.borrow_mut().busy = Some(run.clone());
    guest.runs.started(run.clone());
    let reader = run.output.reader([0; 3], Role::Owner);
    let patience = Patience { timeout: request.timeout_ms.map(Duration::from_millis), grace };
    tokio::task::spawn_local(see_through(guest.clone(), run.clone(), turn, told.freeze(), patience));
    let started = SessionStarted { key, new, before, runs };
    let told = Started { pid, took_ns: beginning.elapsed().as_nanos() as u64, session: Some(started) };
    if let Err(error) = stream::send(&mut out, Frame::message(FrameKind::Started, &told)).await {
        // Nobody knows of a run whose start was not heard, so nobody would ever end it.
        runs::send_signal(&guest, &run, libc::SIGKILL, EndReason::Cancelled).await;
        return Err(error);
    }
    let writer = run.input.new_owner();
    runs::follow(&guest, &run, reader, (frames, writer), out).await
}

/// Starts the interpreter of a session. The outer error is the guest's, the inner one the interpreter's.
async fn start(
    guest: &Rc<Guest>,
    session: &Session,
    request: &mut StartRun,
    order: &SessionRun,
) -> io::Result<Result<Option<Interpreter>, StartFailed>> {
    let (control, stdout, stderr, theirs) = match make_ends() {
        Ok(ends) => ends,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            return Ok(Err(StartFailed { step: "stdio".into(), errno }));
        }
    };
    // The interpreter's group is the session's, and no run's.
    let run = std::mem::replace(&mut request.run, order.key.clone());
    let launched = run::launch(guest, request, &theirs, 0).await;
    request.run = run;
    Ok(launched?.map(|Launched { pid, leaf, ended, .. }| {
        let (language, key) = (order.language.clone(), order.key.clone());
        let started = Some(SystemTime::now());
        *session.known.borrow_mut() = Known { language, key, pid, leaf, started, runs: 0, busy: None, ended: None };
        let (stdout, stderr) = (Some(stdout), Some(stderr));
        Some(Interpreter { control, replies: Replies::default(), stdout, stderr, ended })
    }))
}

/// Makes what an interpreter speaks through: our ends, and its own.
fn make_ends() -> io::Result<(UnixStream, Receiver, Receiver, [OwnedFd; 4])> {
    let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
    let (stdout, command_stdout) = pipe()?;
    let (stderr, command_stderr) = pipe()?;
    rustix::io::ioctl_fionbio(&stdout, true)?;
    rustix::io::ioctl_fionbio(&stderr, true)?;
    let nothing = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let ends = [nothing, command_stdout, command_stderr, theirs.into()];
    let stdout = Receiver::from_owned_fd_unchecked(stdout)?;
    let stderr = Receiver::from_owned_fd_unchecked(stderr)?;
    Ok((UnixStream::from_std(ours)?, stdout, stderr, ends))
}

/// How a run in a session was over.
enum Over {
    /// The interpreter says so.
    Done(u8),
    /// The interpreter ended.
    Died(Exited),
    /// The interpreter's socket is closed.
    Closed,
    /// The interpreter said something else than it may.
    Broke,
}

/// Sees a run through to its end, whoever reads it.
async fn see_through(
    guest: Rc<Guest>,
    run: Rc<Run>,
    mut turn: OwnedMutexGuard<Option<Interpreter>>,
    told: Bytes,
    patience: Patience,
) {
    let Some(InSession { session, .. }) = &run.session else { return };
    let Some(interpreter) = turn.as_mut() else { return };
    let started = Instant::now();
    let over = tokio::select! {
        biased;
        over = carry(&run, interpreter, told) => over,
        never = run::end_in_time(&guest, &run, patience) => match never {},
        never = kill_after_grace(&guest, &run) => match never {},
    };
    let exited = match over {
        Over::Done(code) => Exited { code: Some(code.into()), ..Exited::default() },
        Over::Died(exited) => exited,
        // One that ends closes its socket before it has ended.
        Over::Closed => match tokio::time::timeout(FAREWELL, &mut interpreter.ended).await {
            Ok(exited) => exited.unwrap_or_default(),
            Err(_) => end_broken(&guest, &run, interpreter).await,
        },
        Over::Broke => end_broken(&guest, &run, interpreter).await,
    };
    run.alive.set(false);
    drain(&run, &interpreter.stdout, &interpreter.stderr).await;
    // A run that is being killed is over only when all of it is gone.
    drop(guest.killing.lock().await);
    if !matches!(over, Over::Done(_)) {
        session.known.borrow_mut().ended = Some(exited);
        *turn = None;
        session.end_rest(&guest).await;
    }
    session.known.borrow_mut().busy = None;
    let lasted_ns = started.elapsed().as_nanos() as u64;
    let (reason, session_over) = (run.reason.get().into(), !matches!(over, Over::Done(_)));
    guest.runs.ended(&run, Exited { reason, lasted_ns, session_over, ..exited });
}

/// Ends an interpreter that does not follow the rules, or cannot.
async fn end_broken(guest: &Guest, run: &Run, interpreter: &mut Interpreter) -> Exited {
    runs::send_signal(guest, run, libc::SIGKILL, EndReason::BrokenSession).await;
    (&mut interpreter.ended).await.unwrap_or_default()
}

/// Takes what is in the pipes.
async fn drain(run: &Run, stdout: &Option<Receiver>, stderr: &Option<Receiver>) {
    for (kind, pipe) in [(FrameKind::Stdout, stdout), (FrameKind::Stderr, stderr)] {
        if let Some(pipe) = pipe {
            run::drain(run, kind, pipe).await;
        }
    }
}

/// Kills what does not stop within its grace after an interrupt that was to end it.
async fn kill_after_grace(guest: &Guest, run: &Run) -> std::convert::Infallible {
    if let Some(session) = &run.session {
        session.ending.notified().await;
        for _ in 0..INTERRUPTS {
            tokio::time::sleep(session.grace() / INTERRUPTS).await;
            // The first one may have come before the code began.
            session.session.interrupt(guest);
        }
        runs::send_signal(guest, run, libc::SIGKILL, run.reason.get()).await;
    }
    std::future::pending().await
}

/// Tells the interpreter what to run, and carries what it writes and shows until it is done.
async fn carry(run: &Run, interpreter: &mut Interpreter, told: Bytes) -> Over {
    let Interpreter { control, replies, stdout, stderr, ended } = interpreter;
    let (mut hearing, mut telling) = control.split();
    // One that does not listen is told nothing; it will be seen how it ends.
    let telling = async {
        let _ = telling.write_all(&told).await;
        std::future::pending::<std::convert::Infallible>().await
    };
    let carrying = async {
        let (mut first, mut second, mut word) = (BytesMut::new(), BytesMut::new(), BytesMut::new());
        let mut shown = Shown::default();
        loop {
            run.output.room().await;
            tokio::select! {
                length = run::read(stdout, &mut first), if stdout.is_some() => match length {
                    0 => *stdout = None,
                    _ => run.output.push(FrameKind::Stdout, run::frame(FrameKind::Stdout, &mut first)),
                },
                length = run::read(stderr, &mut second), if stderr.is_some() => match length {
                    0 => *stderr = None,
                    _ => run.output.push(FrameKind::Stderr, run::frame(FrameKind::Stderr, &mut second)),
                },
                heard = hear(&mut hearing, &mut word) => {
                    if heard == 0 {
                        return Over::Closed;
                    }
                    // What was written before something was shown comes before it.
                    drain(run, stdout, stderr).await;
                    replies.push(&word);
                    loop {
                        match replies.next() {
                            Ok(Some(reply)) => match shown.take(run, reply) {
                                Ok(None) => {}
                                Ok(Some(code)) => return Over::Done(code),
                                Err(()) => return Over::Broke,
                            },
                            Ok(None) => break,
                            Err(_) => return Over::Broke,
                        }
                    }
                }
            }
        }
    };
    tokio::select! {
        biased;
        never = telling => match never {},
        exited = ended => Over::Died(exited.unwrap_or_default()),
        over = carrying => over,
    }
}

async fn hear(control: &mut tokio::net::unix::ReadHalf<'_>, word: &mut BytesMut) -> usize {
    word.clear();
    word.reserve(bound::CHUNK);
    control.read_buf(word).await.unwrap_or(0)
}

/// What a run has shown.
#[derive(Default)]
struct Shown {
    results: usize,
    bytes: u64,
    failed: bool,
}

impl Shown {
    /// Hands a reply on. Says when the run is done, and with which code.
    fn take(&mut self, run: &Run, reply: Reply) -> Result<Option<u8>, ()> {
        match reply {
            Reply::Ready => {}
            Reply::Result(head) => {
                (self.results, self.bytes) = (self.results + 1, self.bytes + head.bytes);
                if self.results > bound::RESULTS || self.bytes > bound::ALL_RESULTS {
                    return Err(());
                }
                run.output.push(FrameKind::Result, Frame::message(FrameKind::Result, &head));
            }
            Reply::Data(bytes) => run.output.push(FrameKind::ResultData, Frame::data(FrameKind::ResultData, &bytes)),
            Reply::Exception(_) if std::mem::replace(&mut self.failed, true) => return Err(()),
            Reply::Exception(text) => run.output.push(FrameKind::Exception, Frame::data(FrameKind::Exception, &text)),
            Reply::Done(code) => return Ok(Some(code)),
        }
        Ok(None)
    }
}

/// Lists the sessions.
pub(crate) async fn list(guest: &Guest, mut out: SendStream<Bytes>) -> io::Result<()> {
    let infos: Vec<SessionInfo> = guest.sessions.0.borrow().iter().map(|session| session.info()).collect();
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
        run.session.iter().for_each(|session| session.interrupted.set(true));
        runs::send_signal(guest, &run, libc::SIGKILL, EndReason::Cancelled).await;
    }
    let mut turn = session.turn.lock().await;
    if let Some(Interpreter { control, ended, .. }) = turn.take() {
        // Its end of input is its sign to leave.
        drop(control);
        let _ = tokio::time::timeout(FAREWELL, ended).await;
    }
    session.end_rest(guest).await;
    runs::answer(out, FrameKind::Done).await
}

async fn named(guest: &Guest, body: RecvStream) -> io::Result<Option<Rc<Session>>> {
    let Some(frame) = Frames::new(body).next().await? else { return Ok(None) };
    let SessionName { name } = frame.read().map_err(io::Error::other)?;
    Ok(guest.sessions.find(&name))
}
