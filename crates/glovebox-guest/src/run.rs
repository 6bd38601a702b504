//! One run: start the command, take its output, learn how it ended.
//!
//! A run belongs to the guest, not to whoever started it: it is a task of its own, and those who read it are others.

use std::{
    cell::{Cell, OnceCell},
    io,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    time::{Duration, Instant, SystemTime},
};

use bytes::{BufMut, Bytes, BytesMut};
use glovebox_proto::{
    EndReason, Exited, Frame, FrameKind, LeafWord, Resize, Role, StartFailed, StartRun, Started, bound,
};
use h2::{RecvStream, SendStream};
use rustix::{
    fs::{Mode, OFlags},
    pipe::PipeFlags,
};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe::{Receiver, Sender},
    sync::{MutexGuard, oneshot},
};
use zeroize::Zeroize;

use crate::{
    input::{Input, Terminal},
    leaves::Leaf,
    output::Output,
    runs::{self, Begun, Run},
    server::Guest,
    sessions,
    stream::{self, Frames},
    zygote,
};

/// What is read from a pipe after the command ended is bounded by the largest pipe there can be, so that a daemon
/// that keeps writing cannot keep the run from ending. A terminal of gVisor's may hold more, and says so.
const MOST_DRAINED: usize = 1024 * 1024;

/// A terminal that gives so much by one read is full.
const FULL_READ: usize = 4000;
/// How long more of what a full terminal holds may take to come.
const MORE_COMES: Duration = Duration::from_millis(1);

/// The guest's ends of a command's standard streams.
pub(crate) struct Ends {
    stdin: Option<Sender>,
    pub(crate) stdout: Option<Receiver>,
    pub(crate) stderr: Option<Receiver>,
    terminal: Option<Terminal>,
    /// The command's side of a terminal. It is held so that the terminal stays when the command closes all it has of it.
    other_side: Option<OwnedFd>,
}

/// What is read of a command.
struct Pipes {
    stdout: Option<Receiver>,
    stderr: Option<Receiver>,
    other_side: Option<OwnedFd>,
}

/// When the guest ends a run by itself.
pub(crate) struct Patience {
    pub(crate) timeout: Option<Duration>,
    pub(crate) grace: Duration,
}

/// Serves one who starts a run and owns it.
pub(crate) async fn serve(guest: Rc<Guest>, body: RecvStream, mut out: SendStream<Bytes>) -> io::Result<()> {
    let mut frames = Frames::new(body);
    let Some(first) = frames.next().await? else { return Ok(()) };
    if first.kind != FrameKind::Start {
        return Err(io::ErrorKind::InvalidData.into());
    }
    frames.release(first.payload.len())?;
    let mut request: StartRun = first.read().map_err(io::Error::other)?;
    let note = std::mem::take(&mut request.note);
    guest.ground.adapt(&mut request);
    if let Some(session) = request.session.take() {
        return sessions::serve_run(guest, request, session, (note, frames), out).await;
    }
    let (ends, command_ends) = match make_ends(&request) {
        Ok(ends) => ends,
        Err(error) => {
            request.env.zeroize();
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            return refuse(out, &StartFailed { step: "stdio".into(), errno }).await;
        }
    };
    let launched = launch(&guest, &mut request, &command_ends, note.len()).await?;
    let Launched { pid, leaf, ended, beginning, quiet } = match launched {
        Ok(launched) => launched,
        Err(failed) => return refuse(out, &failed).await,
    };
    drop(command_ends);
    let run = Rc::new(Run {
        id: request.run,
        asked: SystemTime::now(),
        begun: OnceCell::from(Begun { pid, leaf, at: SystemTime::now() }),
        note,
        output: match ends.terminal {
            Some(_) => Output::of_terminal(request.keep_output),
            None => Output::new(request.keep_output),
        },
        input: Input::new(ends.stdin, ends.terminal),
        alive: Cell::new(true),
        reason: Cell::new(EndReason::None),
        ended: Cell::new(None),
        session: None,
    });
    guest.runs.started(run.clone());
    drop(quiet);
    let reader = run.output.reader([0; 3], Role::Owner);
    let patience = Patience {
        timeout: request.timeout_ms.map(Duration::from_millis),
        grace: Duration::from_millis(request.grace_ms),
    };
    let pipes = Pipes { stdout: ends.stdout, stderr: ends.stderr, other_side: ends.other_side };
    tokio::task::spawn_local(see_through(guest.clone(), run.clone(), pipes, ended, patience));
    let told = Started { pid, took_ns: beginning.elapsed().as_nanos() as u64, session: None };
    if let Err(error) = stream::send(&mut out, Frame::message(FrameKind::Started, &told)).await {
        // Nobody knows of a run whose start was not heard, so nobody would ever end it.
        runs::send_signal(&guest, &run, libc::SIGKILL, EndReason::Cancelled).await;
        return Err(error);
    }
    let writer = run.input.new_owner();
    runs::follow(&guest, &run, reader, (frames, writer), out).await
}

/// A command that was started.
pub(crate) struct Launched<'a> {
    pub(crate) pid: i32,
    pub(crate) leaf: Option<Leaf>,
    pub(crate) ended: oneshot::Receiver<Exited>,
    /// When its start began.
    pub(crate) beginning: Instant,
    /// Nobody is killed before it is known that the command is there.
    pub(crate) quiet: MutexGuard<'a, ()>,
}

/// Starts a command, in a leaf of its own where there are leaves. The outer error is the guest's, the inner one the command's.
pub(crate) async fn launch<'a>(
    guest: &'a Rc<Guest>,
    request: &mut StartRun,
    stdio: &[OwnedFd],
    note: usize,
) -> io::Result<Result<Launched<'a>, StartFailed>> {
    let spare = guest.leaves.take().await;
    let leaf = spare.as_ref().map(|spare| spare.leaf().clone());
    let quiet = guest.killing.lock().await;
    if *guest.paused.borrow() {
        spare.into_iter().for_each(|spare| guest.leaves.give_back(spare));
        request.env.zeroize();
        return Ok(Err(paused()));
    }
    let beginning = Instant::now();
    let started = if guest.runs.is_under_way(&request.run) || note > bound::NOTE {
        Ok(Err(StartFailed { step: "run".into(), errno: libc::EEXIST }))
    } else {
        match spare {
            Some(spare) => match spare.become_command(request, stdio).await {
                Ok(started) => Ok(started),
                // It was killed this very moment.
                Err(_) => start(guest, request, stdio).await,
            },
            None => start(guest, request, stdio).await,
        }
    };
    // Secrets are among the variables, and nobody here needs them again.
    request.env.zeroize();
    if let Some(leaf) = &leaf {
        let (leaves, word) = (
            guest.clone(),
            LeafWord { leaf: leaf.number, run: request.run.clone(), wants: true, shut: false, at_rest: false },
        );
        tokio::task::spawn_local(async move { leaves.leaves.tell(word).await });
    }
    Ok(started?.map(|(pid, ended)| Launched { pid, leaf, ended, beginning, quiet }))
}

/// No command starts in a sandbox that is paused.
pub(crate) fn paused() -> StartFailed {
    StartFailed { step: "paused".into(), errno: libc::EAGAIN }
}

/// Says why there is no run.
pub(crate) async fn refuse(mut out: SendStream<Bytes>, failed: &StartFailed) -> io::Result<()> {
    stream::send(&mut out, Frame::message(FrameKind::StartFailed, failed)).await?;
    stream::end(&mut out)
}

/// Makes the pipes or the terminal of a command: our ends and the command's.
pub(crate) fn make_ends(request: &StartRun) -> io::Result<(Ends, [OwnedFd; 3])> {
    if let (Some(rows), Some(columns)) = (request.rows, request.columns) {
        return make_terminal(Resize { rows, columns });
    }
    let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
    let (stdout, command_stdout) = pipe()?;
    let (stderr, command_stderr) = pipe()?;
    let (stdin, command_stdin) = if request.stdin_empty {
        (None, rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    } else {
        let (command_stdin, stdin) = pipe()?;
        rustix::io::ioctl_fionbio(&stdin, true)?;
        (Some(Sender::from_owned_fd_unchecked(stdin)?), command_stdin)
    };
    rustix::io::ioctl_fionbio(&stdout, true)?;
    rustix::io::ioctl_fionbio(&stderr, true)?;
    let ends = Ends {
        stdin,
        stdout: Some(Receiver::from_owned_fd_unchecked(stdout)?),
        stderr: Some(Receiver::from_owned_fd_unchecked(stderr)?),
        terminal: None,
        other_side: None,
    };
    Ok((ends, [command_stdin, command_stdout, command_stderr]))
}

fn make_terminal(size: Resize) -> io::Result<(Ends, [OwnedFd; 3])> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let ours = rustix::fs::open("/dev/ptmx", flags, Mode::empty())?;
    rustix::pty::unlockpt(&ours)?;
    let open = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY | rustix::pty::OpenptFlags::CLOEXEC;
    // Asking the kernel for the other side needs no path, so nothing inside can put itself between.
    let theirs = match rustix::pty::ioctl_tiocgptpeer(&ours, open) {
        Err(rustix::io::Errno::NOTTY) => open_other_side(&ours)?,
        other => other?,
    };
    let ends = Ends {
        stdin: Some(Sender::from_owned_fd_unchecked(ours.try_clone()?)?),
        stdout: Some(Receiver::from_owned_fd_unchecked(ours.try_clone()?)?),
        stderr: None,
        terminal: Some(Terminal::new(ours, size)?),
        other_side: Some(theirs.try_clone()?),
    };
    Ok((ends, [theirs.try_clone()?, theirs.try_clone()?, theirs]))
}

/// Opens the other side of a terminal by its name, where the kernel, such as gVisor's, does not give it without. Whatever is opened is a terminal of the
/// kernel's own, and nobody inside mounts another one's in its place.
fn open_other_side(ours: &OwnedFd) -> io::Result<OwnedFd> {
    const TERMINALS: u64 = 0x1cd1;
    let name = rustix::pty::ptsname(ours, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let theirs = rustix::fs::open(name, flags, Mode::empty())?;
    match rustix::fs::fstatfs(&theirs)?.f_type as u64 {
        TERMINALS => Ok(theirs),
        _ => Err(rustix::io::Errno::NOTTY.into()),
    }
}

/// Has the zygote start the command. The outer error is the guest's, the inner one the command's.
async fn start(
    guest: &Guest,
    request: &StartRun,
    stdio: &[OwnedFd],
) -> io::Result<Result<(i32, oneshot::Receiver<Exited>), StartFailed>> {
    let zygote = guest.zygote().await?;
    guest.reaper.starting();
    let asked = async {
        let fds: Vec<_> = stdio.iter().map(AsFd::as_fd).collect();
        zygote.async_io(tokio::io::Interest::WRITABLE, |socket| zygote::ask(socket.as_fd(), request, &fds)).await?;
        zygote.async_io(tokio::io::Interest::READABLE, |socket| zygote::answer(socket.as_fd())).await
    };
    let answer = asked.await;
    let pid = match &answer {
        Ok(Ok(pid)) => Some(*pid),
        _ => None,
    };
    let ended = guest.reaper.started(pid);
    if answer.is_err() && guest.stays && guest.runs.count() == 0 {
        // The zygote was killed, by a lack of memory perhaps, and without it no command starts here again. A sandbox that is
        // over is better than one that only looks ready.
        std::process::exit(1);
    }
    Ok(match answer? {
        Ok(pid) => Ok((pid, ended)),
        Err((step, errno)) => Err(StartFailed { step: zygote::Step::name(step).into(), errno }),
    })
}

/// Sees a run through to its end, whoever reads it.
async fn see_through(
    guest: Rc<Guest>,
    run: Rc<Run>,
    pipes: Pipes,
    ended: oneshot::Receiver<Exited>,
    patience: Patience,
) {
    let started = Instant::now();
    let exited = tokio::select! {
        biased;
        exited = pump_output(&run, pipes, ended) => exited,
        never = end_in_time(&guest, &run, patience) => match never {},
    };
    run.input.close();
    // A run that is being killed is over only when all of it is gone, or the next one would be killed along.
    drop(guest.killing.lock().await);
    runs::end_rest(&guest, &run).await;
    let lasted_ns = started.elapsed().as_nanos() as u64;
    guest.runs.ended(&run, Exited { reason: run.reason.get().into(), lasted_ns, ..exited });
}

/// Ends a run when its time is over. The host does so earlier; this is for a run whose host is gone.
pub(crate) async fn end_in_time(guest: &Guest, run: &Run, patience: Patience) -> std::convert::Infallible {
    if let Some(timeout) = patience.timeout {
        sleep_unpaused(guest, timeout).await;
        // One that the host has asked to end is not asked a second time; it may be about to tidy up.
        if run.reason.get() == EndReason::None {
            runs::send_signal(guest, run, libc::SIGTERM, EndReason::TimedOut).await;
        }
        sleep_unpaused(guest, patience.grace).await;
        runs::send_signal(guest, run, libc::SIGKILL, EndReason::TimedOut).await;
    }
    std::future::pending().await
}

/// Waits for a time that does not pass while commands are frozen.
async fn sleep_unpaused(guest: &Guest, time: Duration) {
    let (mut left, mut paused) = (time, guest.paused.subscribe());
    // The sender is the guest's own, so that it is there for as long as somebody waits.
    while paused.wait_for(|paused| !paused).await.is_ok() {
        let began = Instant::now();
        tokio::select! {
            () = tokio::time::sleep(left) => return,
            _ = paused.wait_for(|paused| *paused) => left = left.saturating_sub(began.elapsed()),
        }
    }
}

/// Takes output until the command has ended, and what is left in its pipes then.
async fn pump_output(run: &Run, pipes: Pipes, mut ended: oneshot::Receiver<Exited>) -> Exited {
    let Pipes { mut stdout, mut stderr, other_side } = pipes;
    let mut first = BytesMut::new();
    let mut second = BytesMut::new();
    let exited = loop {
        let next = async {
            run.output.room().await;
            // Standard error is the same terminal.
            if other_side.is_some() && stdout.is_some() {
                return (FrameKind::Stdout, read_terminal(&stdout, &mut first).await);
            }
            tokio::select! {
                chunk = read(&mut stdout, &mut first), if stdout.is_some() => (FrameKind::Stdout, chunk),
                chunk = read(&mut stderr, &mut second), if stderr.is_some() => (FrameKind::Stderr, chunk),
                else => std::future::pending().await,
            }
        };
        let (kind, length) = tokio::select! {
            next = next => next,
            // Without an end to tell, the reaper is gone, and with it all that the guest could say.
            exited = &mut ended => break exited.unwrap_or_default(),
        };
        match (kind, length) {
            (FrameKind::Stdout, 0) => stdout = None,
            (_, 0) => stderr = None,
            (FrameKind::Stdout, _) => {
                if other_side.is_some() {
                    read_on(&stdout, &mut first).await;
                }
                run.output.push(kind, frame(kind, &mut first));
            }
            _ => run.output.push(kind, frame(kind, &mut second)),
        }
    };
    run.alive.set(false);
    drop(other_side);
    for (kind, pipe) in [(FrameKind::Stdout, stdout), (FrameKind::Stderr, stderr)] {
        if let Some(pipe) = pipe {
            drain(run, kind, &pipe).await;
        }
    }
    exited
}

/// Reads one chunk behind room for its header. Says how long it is: nothing at the end of the stream.
pub(crate) async fn read(pipe: &mut Option<Receiver>, buffer: &mut BytesMut) -> usize {
    let Some(pipe) = pipe.as_mut() else { return 0 };
    if pipe.readable().await.is_err() {
        return 0;
    }
    behind_a_header(buffer);
    pipe.read_buf(&mut (&mut *buffer).limit(bound::CHUNK)).await.unwrap_or(0)
}

/// The same for a terminal. The runtime takes a read that gives less than was asked for as the sign that nothing is left, and waits to be
/// told of more. A terminal gives four kilobytes at the most, and a kernel such as gVisor's does not tell again of what it still
/// holds; so it is read until it says that it is empty.
async fn read_terminal(pipe: &Option<Receiver>, buffer: &mut BytesMut) -> usize {
    let Some(pipe) = pipe else { return 0 };
    loop {
        if pipe.readable().await.is_err() {
            return 0;
        }
        behind_a_header(buffer);
        match pipe.try_read_buf(&mut (&mut *buffer).limit(bound::CHUNK)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read.unwrap_or(0),
        }
    }
}

/// Makes room for a chunk behind its header.
fn behind_a_header(buffer: &mut BytesMut) {
    buffer.clear();
    buffer.reserve(Frame::HEADER + bound::CHUNK);
    buffer.put_bytes(0, Frame::HEADER);
}

/// Reads what else a terminal has. It gives four kilobytes at the most by one read, and a frame costs more than many reads: who
/// gives as much is waited for, since more is on its way from a process of the kernel.
async fn read_on(pipe: &Option<Receiver>, buffer: &mut BytesMut) {
    let Some(pipe) = pipe else { return };
    let mut last = buffer.len() - Frame::HEADER;
    loop {
        let room = Frame::HEADER + bound::CHUNK - buffer.len();
        if room < FULL_READ {
            return;
        }
        match pipe.try_read_buf(&mut (&mut *buffer).limit(room)) {
            Ok(length @ 1..) => last = length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && last >= FULL_READ => {
                if tokio::time::timeout(MORE_COMES, pipe.readable()).await.is_err() {
                    return;
                }
                // What is readable may be gone again, and is not waited for twice.
                last = 0;
            }
            // Whatever it is, it is met again by the next read.
            _ => return,
        }
    }
}

/// Makes a frame of what was read. A small one is copied: it would hold all of the buffer for as long as it is kept.
pub(crate) fn frame(kind: FrameKind, buffer: &mut BytesMut) -> Bytes {
    Frame::finish(kind, buffer);
    if buffer.len() < bound::CHUNK / 2 { Bytes::copy_from_slice(buffer) } else { buffer.split().freeze() }
}

pub(crate) async fn drain(run: &Run, kind: FrameKind, pipe: &Receiver) {
    let mut buffer = vec![0; bound::CHUNK];
    let mut drained = 0;
    let held = rustix::io::ioctl_fionread(pipe).unwrap_or(0) as usize;
    while drained < held.max(MOST_DRAINED) {
        run.output.room().await;
        // The kernel is asked, and not the runtime: that may not have heard yet of what came just before the end.
        match rustix::io::read(pipe, &mut buffer) {
            Ok(length) if length > 0 => {
                drained += length;
                run.output.push(kind, Frame::data(kind, &buffer[..length]));
            }
            _ => break,
        }
    }
}
