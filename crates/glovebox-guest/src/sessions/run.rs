//! A run in a session, from its turn to its end.

use std::{
    cell::{Cell, OnceCell},
    io,
    os::fd::OwnedFd,
    rc::Rc,
    time::{Duration, Instant, SystemTime},
};

use bytes::{Bytes, BytesMut};
use glovebox_proto::{
    EndReason, Exited, Frame, FrameKind, Role, StartFailed, StartRun, Started, bound,
    session::{Replies, Reply, SessionRun, SessionStarted},
};
use h2::SendStream;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixStream, unix::pipe::Receiver},
    sync::{Notify, OwnedMutexGuard},
};

use super::{FAREWELL, InSession, Interpreter, Known, Session};
use crate::{
    input::Input,
    output::Output,
    run::{self, Ends, Launched, Patience},
    runs::{self, Begun, Run},
    server::Guest,
    stream::{self, Frames},
};

/// No name of a session is longer.
const LONGEST_NAME: usize = 128;
/// How long an interpreter waits before the keeper is told so: not for each of many short runs.
const UNTIL_REST: Duration = Duration::from_secs(1);
/// How often a run is asked to stop before it is killed.
const INTERRUPTS: u32 = 4;

/// The turn of a session, with its interpreter if there is one.
type Turn = OwnedMutexGuard<Option<Interpreter>>;

/// Serves one who starts a run in a session and owns it.
pub(crate) async fn serve_run(
    guest: Rc<Guest>,
    request: StartRun,
    order: SessionRun,
    (note, frames): (Bytes, Frames),
    mut out: SendStream<Bytes>,
) -> io::Result<()> {
    if order.name.is_empty() || order.name.len() > LONGEST_NAME || order.input.len() > bound::SESSION_INPUT {
        return run::refuse(out, &failed("session", libc::EINVAL)).await;
    }
    if note.len() > bound::NOTE || guest.runs.is_under_way(&request.run) {
        return run::refuse(out, &failed("run", libc::EEXIST)).await;
    }
    let run = new_run(&request, &order, note);
    guest.runs.started(run.clone());
    let reader = run.output.reader([0; 3], Role::Owner);
    let begun = match wait_for_turn(&guest, &run, &mut out).await {
        Ok(Some((session, turn))) => begin(&guest, &run, (session, turn), request, order).await,
        Ok(None) => {
            run.alive.set(false);
            let reason = run.reason.get().into();
            guest
                .runs
                .ended(&run, Exited { signal: Some(libc::SIGKILL), reason, never_began: true, ..Exited::default() });
            Ok(Ok(Started { session: Some(SessionStarted::default()), ..Started::default() }))
        }
        Err(refused) => Ok(Err(refused)),
    };
    let told = match begun {
        Ok(Ok(told)) => told,
        Ok(Err(refused)) => {
            guest.runs.refused(&run);
            return run::refuse(out, &refused).await;
        }
        Err(error) => {
            guest.runs.refused(&run);
            return Err(error);
        }
    };
    if let Err(error) = stream::send(&mut out, Frame::message(FrameKind::Started, &told)).await {
        // Nobody knows of a run whose start was not heard, so nobody would ever end it.
        runs::send_signal(&guest, &run, libc::SIGKILL, EndReason::Cancelled).await;
        return Err(error);
    }
    let writer = run.input.new_owner();
    runs::follow(&guest, &run, reader, (frames, writer), out).await
}

/// Waits until it is a run's turn in its session. Nothing when it was ended before, or nobody waits for it any more.
async fn wait_for_turn(
    guest: &Guest,
    run: &Run,
    out: &mut SendStream<Bytes>,
) -> Result<Option<(Rc<Session>, Turn)>, StartFailed> {
    let Some(InSession { name, .. }) = &run.session else { return Ok(None) };
    loop {
        let session = guest.sessions.find_or_add(name).ok_or_else(|| failed("sessions", libc::EMFILE))?;
        let turn = tokio::select! {
            biased;
            () = asked_to_end(run) => return Ok(None),
            () = stream::gone(out) => {
                run.reason.set(EndReason::Cancelled);
                return Ok(None);
            }
            turn = session.turn.clone().lock_owned() => turn,
        };
        // It may have been closed meanwhile, and the name be another one's.
        if !session.closed.get() {
            return Ok(Some((session, turn)));
        }
    }
}

/// Begins a run that has its turn. The outer error is the guest's, the inner one is for whoever asked.
async fn begin(
    guest: &Rc<Guest>,
    run: &Rc<Run>,
    (session, mut turn): (Rc<Session>, Turn),
    mut request: StartRun,
    order: SessionRun,
) -> io::Result<Result<Started, StartFailed>> {
    let beginning = Instant::now();
    let ready = make_ready(guest, &session, &mut turn, &mut request, &order).await;
    // Whatever failed, no name is kept for an interpreter that never was.
    if !matches!(ready, Ok(Ok(_))) && turn.is_none() && session.known.borrow().started.is_none() {
        guest.sessions.remove(&session);
    }
    let started = match ready? {
        Ok(started) => started,
        Err(refused) => return Ok(Err(refused)),
    };
    if session.closed.get() {
        // Somebody closed it just now, and waits for the turn.
        session.end_rest(guest).await;
        *turn = None;
        return Ok(Err(failed("session", libc::ECANCELED)));
    }
    let pid = {
        let mut known = session.known.borrow_mut();
        let _ = run.begun.set(Begun { pid: known.pid, leaf: known.leaf.clone(), at: SystemTime::now() });
        known.busy = Some(run.clone());
        known.pid
    };
    if let Some(in_session) = &run.session {
        let _ = in_session.session.set(session);
    }
    let timeout = request.timeout_ms.map(Duration::from_millis);
    let patience = Patience { timeout, grace: Duration::from_millis(request.grace_ms) };
    let told = [if started.new { &order.opening[..] } else { &[] }, &order.input[..]].concat();
    let told = Told { bytes: told.into(), token: order.token };
    tokio::task::spawn_local(see_through(guest.clone(), run.clone(), turn, told, patience));
    Ok(Ok(Started { pid, took_ns: beginning.elapsed().as_nanos() as u64, session: Some(started) }))
}

fn failed(step: &str, errno: i32) -> StartFailed {
    StartFailed { step: step.into(), errno }
}

/// Sees to it that the session has an interpreter for a run. The outer error is the guest's, the inner one is for whoever asked.
async fn make_ready(
    guest: &Rc<Guest>,
    session: &Session,
    turn: &mut Option<Interpreter>,
    request: &mut StartRun,
    order: &SessionRun,
) -> io::Result<Result<SessionStarted, StartFailed>> {
    if let Some(interpreter) = turn
        && let Some(exited) = interpreter.is_lost()
    {
        session.known.borrow_mut().ended = Some(exited);
        *turn = None;
    }
    let new = turn.is_none();
    if !new && session.known.borrow().language != order.language {
        return Ok(Err(failed("language", libc::EINVAL)));
    }
    if new && order.opening.is_empty() {
        return Ok(Err(failed("opening", libc::ENOENT)));
    }
    if *guest.paused.borrow() {
        return Ok(Err(run::paused()));
    }
    let before = session.known.borrow().ended.filter(|_| new);
    if new {
        let pid = session.known.borrow().pid;
        if !guest.reaper.has(pid) {
            // It ended at some time, and its id may be another one's by now.
            session.known.borrow_mut().pid = 0;
        }
        session.end_rest(guest).await;
        match start(guest, session, request, order).await? {
            Ok(interpreter) => *turn = Some(interpreter),
            Err(refused) => return Ok(Err(refused)),
        }
    }
    session.tell_rest(guest, false).await;
    let mut known = session.known.borrow_mut();
    known.runs += 1;
    Ok(Ok(SessionStarted { key: known.key.clone(), new, before, runs: known.runs }))
}

/// A run that waits for its turn.
fn new_run(request: &StartRun, order: &SessionRun, note: Bytes) -> Rc<Run> {
    Rc::new(Run {
        id: request.run.clone(),
        asked: SystemTime::now(),
        begun: OnceCell::new(),
        note,
        output: Output::new(request.keep_output),
        input: Input::new(None, None),
        alive: Cell::new(true),
        reason: Cell::new(EndReason::None),
        ended: Cell::new(None),
        session: Some(InSession {
            name: order.name.clone(),
            session: OnceCell::new(),
            interrupted: Cell::new(false),
            ending: Notify::new(),
            grace: Duration::from_millis(request.grace_ms),
        }),
    })
}

/// Starts the interpreter of a session. The outer error is the guest's, the inner one the interpreter's.
async fn start(
    guest: &Rc<Guest>,
    session: &Session,
    request: &mut StartRun,
    order: &SessionRun,
) -> io::Result<Result<Interpreter, StartFailed>> {
    let (control, ends, theirs) = match make_ends() {
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
        *session.known.borrow_mut() =
            Known { language, key, pid, leaf, started, runs: 0, busy: None, at_rest: false, ended: None };
        let Ends { stdout, stderr, .. } = ends;
        Interpreter { control, replies: Replies::default(), stdout, stderr, ended }
    }))
}

/// Makes what an interpreter speaks through: our ends, and its own.
fn make_ends() -> io::Result<(UnixStream, Ends, Vec<OwnedFd>)> {
    let (ends, theirs) = run::make_ends(&StartRun { stdin_empty: true, ..StartRun::default() })?;
    let (ours, control) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, ends, theirs.into_iter().chain([control.into()]).collect()))
}

/// What an interpreter is told for a run, and what it has to end its answer with.
struct Told {
    bytes: Bytes,
    token: String,
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
async fn see_through(guest: Rc<Guest>, run: Rc<Run>, mut turn: Turn, told: Told, patience: Patience) {
    let Some(session) = run.session.as_ref().and_then(|session| session.session.get()) else { return };
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
            Err(_) => end_broken(&guest, &run, interpreter, EndReason::LeftSession).await,
        },
        Over::Broke => end_broken(&guest, &run, interpreter, EndReason::BrokenSession).await,
    };
    // A reader who stands still is waited for, but nobody who ends the run waits for that.
    let draining = drain(&run, &interpreter.stdout, &interpreter.stderr);
    if run.reason.get() == EndReason::None {
        tokio::select! {
            () = draining => {}
            () = asked_to_end(&run) => {}
        }
    } else {
        let _ = tokio::time::timeout(FAREWELL, draining).await;
    }
    run.alive.set(false);
    // A run that is being killed is over only when all of it is gone.
    drop(guest.killing.lock().await);
    if !matches!(over, Over::Done(_)) {
        session.known.borrow_mut().ended = Some(exited);
        *turn = None;
        session.end_rest(&guest).await;
    }
    let runs = {
        let mut known = session.known.borrow_mut();
        known.busy = None;
        known.runs
    };
    let lasted_ns = started.elapsed().as_nanos() as u64;
    let (reason, session_over) = (run.reason.get().into(), !matches!(over, Over::Done(_)));
    guest.runs.ended(&run, Exited { reason, lasted_ns, session_over, ..exited });
    drop(turn);
    rest_later(&guest, session, runs).await;
}

/// Tells the keeper that an interpreter only waits, once it has for a while.
async fn rest_later(guest: &Guest, session: &Session, runs: u64) {
    tokio::time::sleep(UNTIL_REST).await;
    let waits = {
        let known = session.known.borrow();
        known.busy.is_none() && known.runs == runs && known.ended.is_none()
    };
    if waits && !session.closed.get() {
        session.tell_rest(guest, true).await;
    }
}

/// Ends an interpreter that does not follow the rules, or cannot.
async fn end_broken(guest: &Guest, run: &Run, interpreter: &mut Interpreter, reason: EndReason) -> Exited {
    runs::send_signal(guest, run, libc::SIGKILL, reason).await;
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

/// Waits until somebody wants the run to end.
async fn asked_to_end(run: &Run) {
    match &run.session {
        Some(session) => session.ending.notified().await,
        None => std::future::pending().await,
    }
}

/// Kills what does not stop within its grace after an interrupt that was to end it.
async fn kill_after_grace(guest: &Guest, run: &Run) -> std::convert::Infallible {
    if let Some(session) = &run.session {
        asked_to_end(run).await;
        for _ in 0..INTERRUPTS {
            tokio::time::sleep(session.grace() / INTERRUPTS).await;
            // The first one may have come before the code began.
            session.interrupt(guest);
        }
        runs::send_signal(guest, run, libc::SIGKILL, run.reason.get()).await;
    }
    std::future::pending().await
}

/// Tells the interpreter what to run, and carries what it writes and shows until it is done.
async fn carry(run: &Run, interpreter: &mut Interpreter, told: Told) -> Over {
    let Interpreter { control, replies, stdout, stderr, ended } = interpreter;
    let (mut hearing, mut telling) = control.split();
    // One that does not listen is told nothing; it will be seen how it ends.
    let telling = async {
        let _ = telling.write_all(&told.bytes).await;
        std::future::pending::<std::convert::Infallible>().await
    };
    let carrying = async {
        let (mut first, mut second, mut word) = (BytesMut::new(), BytesMut::new(), BytesMut::new());
        let mut shown = Shown { token: &told.token, results: 0, bytes: 0, failed: false };
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
                                // Whoever says more than that it is done has not come from where code is run.
                                Ok(Some(_)) if !replies.is_empty() => return Over::Broke,
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
struct Shown<'a> {
    token: &'a str,
    results: usize,
    bytes: u64,
    failed: bool,
}

impl Shown<'_> {
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
            Reply::Done(code, token) if token == self.token => return Ok(Some(code)),
            // Code of an earlier run is still at work: it had said that it was done. Or somebody guesses.
            Reply::Done(..) => return Err(()),
        }
        Ok(None)
    }
}
