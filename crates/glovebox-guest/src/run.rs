//! One run: start the command, carry its input and output, tell how it ended.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
};

use bytes::{BufMut, Bytes, BytesMut};
use glovebox_proto::{Exited, Frame, FrameKind, Resize, Signal, StartFailed, StartRun, Started, bound};
use h2::{RecvStream, SendStream};
use rustix::{
    fs::{Mode, OFlags},
    pipe::PipeFlags,
    termios::Winsize,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::pipe::{Receiver, Sender},
    sync::{mpsc, oneshot},
};
use zeroize::Zeroize;

use crate::{
    processes::{self, Target},
    server::Guest,
    stream::{self, Frames},
    zygote,
};

/// A killed tree is looked at again until nothing is left of it, but not for ever: a process that cannot die is left
/// to the host, which can end the whole sandbox.
const KILL_PASSES: usize = 1000;

/// What is read from a pipe after the command ended is bounded by the largest pipe there can be, so that a daemon
/// that keeps writing cannot keep the run from ending.
const MOST_DRAINED: usize = 1024 * 1024;

/// The guest's ends of a command's standard streams.
struct Ends {
    stdin: Option<Sender>,
    stdout: Option<Receiver>,
    stderr: Option<Receiver>,
    terminal: Option<OwnedFd>,
}

/// Serves one run from its first frame to its last.
pub(crate) async fn serve(guest: Rc<Guest>, body: RecvStream, mut out: SendStream<Bytes>) -> io::Result<()> {
    let mut frames = Frames::new(body);
    let Some(first) = frames.next().await? else { return Ok(()) };
    if first.kind != FrameKind::Start {
        return Err(io::ErrorKind::InvalidData.into());
    }
    frames.release(first.payload.len())?;
    let mut request: StartRun = first.read().map_err(io::Error::other)?;
    let (ends, command_ends) = make_ends(&request)?;
    let quiet = guest.killing.lock().await;
    stream::send(&mut out, Frame::data(FrameKind::Starting, &[])).await?;
    let started = start(&guest, &request, &command_ends).await;
    // Secrets are among the variables, and nobody here needs them again.
    request.env.zeroize();
    let (pid, ended) = match started? {
        Ok(started) => started,
        Err(failed) => {
            drop(quiet);
            stream::send(&mut out, Frame::message(FrameKind::StartFailed, &failed)).await?;
            return stream::end(&mut out);
        }
    };
    drop(command_ends);
    guest.runs.set(guest.runs.get() + 1);
    drop(quiet);
    stream::send(&mut out, Frame::message(FrameKind::Started, &Started { pid })).await?;
    let input = tokio::task::spawn_local(serve_input(frames, ends.stdin, ends.terminal));
    let result = pump_output(&mut out, ends.stdout, ends.stderr, ended).await;
    input.abort();
    // A run that is being killed is over only when all of it is gone, or the next one would be killed along.
    drop(guest.killing.lock().await);
    guest.runs.set(guest.runs.get() - 1);
    let exited = result?;
    stream::send(&mut out, Frame::message(FrameKind::Exited, &exited)).await?;
    stream::end(&mut out)
}

/// Makes the pipes or the terminal of a command: our ends and the command's.
fn make_ends(request: &StartRun) -> io::Result<(Ends, [OwnedFd; 3])> {
    if let (Some(rows), Some(columns)) = (request.rows, request.columns) {
        return make_terminal(rows, columns);
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
    };
    Ok((ends, [command_stdin, command_stdout, command_stderr]))
}

fn make_terminal(rows: u32, columns: u32) -> io::Result<(Ends, [OwnedFd; 3])> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let ours = rustix::fs::open("/dev/pts/ptmx", flags, Mode::empty())?;
    rustix::pty::unlockpt(&ours)?;
    let open = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY | rustix::pty::OpenptFlags::CLOEXEC;
    // Asking the kernel for the other side needs no path, so nothing inside can put itself between.
    let theirs = rustix::pty::ioctl_tiocgptpeer(&ours, open)?;
    resize(&ours, rows, columns)?;
    let ends = Ends {
        stdin: Some(Sender::from_owned_fd_unchecked(ours.try_clone()?)?),
        stdout: Some(Receiver::from_owned_fd_unchecked(ours.try_clone()?)?),
        stderr: None,
        terminal: Some(ours),
    };
    Ok((ends, [theirs.try_clone()?, theirs.try_clone()?, theirs]))
}

fn resize(terminal: &OwnedFd, rows: u32, columns: u32) -> io::Result<()> {
    let clamp = |n: u32| n.min(u32::from(u16::MAX)) as u16;
    let size = Winsize { ws_row: clamp(rows), ws_col: clamp(columns), ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}

/// Has the zygote start the command. The outer error is the guest's, the inner one the command's.
async fn start(
    guest: &Guest,
    request: &StartRun,
    stdio: &[OwnedFd; 3],
) -> io::Result<Result<(i32, oneshot::Receiver<Exited>), StartFailed>> {
    let zygote = guest.zygote.lock().await;
    guest.reaper.starting();
    let asked = async {
        let fds = [stdio[0].as_fd(), stdio[1].as_fd(), stdio[2].as_fd()];
        zygote.async_io(tokio::io::Interest::WRITABLE, |socket| zygote::ask(socket.as_fd(), request, fds)).await?;
        zygote.async_io(tokio::io::Interest::READABLE, |socket| zygote::answer(socket.as_fd())).await
    };
    let answer = asked.await;
    let pid = match &answer {
        Ok(Ok(pid)) => Some(*pid),
        _ => None,
    };
    let ended = guest.reaper.started(pid);
    Ok(match answer? {
        Ok(pid) => Ok((pid, ended)),
        Err((step, errno)) => Err(StartFailed { step: zygote::Step::name(step).into(), errno }),
    })
}

/// Reads the host's frames: input and terminal sizes.
async fn serve_input(mut frames: Frames, stdin: Option<Sender>, terminal: Option<OwnedFd>) {
    // Input waits in this queue while the command does not read it, so that a new size behind it gets through. The
    // queue is bounded by the stream's window: room for more is made only for what was written.
    let (queue, waiting) = mpsc::unbounded_channel();
    let (written, mut used) = mpsc::unbounded_channel();
    tokio::task::spawn_local(write_input(stdin, waiting, written));
    let mut queue = Some(queue);
    loop {
        let frame = tokio::select! {
            frame = frames.next() => frame,
            Some(bytes) = used.recv() => {
                if frames.release(bytes).is_err() { return }
                continue;
            }
        };
        let Ok(Some(frame)) = frame else { return };
        let length = frame.payload.len();
        match frame.kind {
            FrameKind::Stdin => {
                let kept = queue.as_ref().is_some_and(|queue| queue.send(frame.payload).is_ok());
                if kept {
                    continue;
                }
            }
            FrameKind::StdinEnd => drop(queue.take()),
            FrameKind::Resize => {
                if let (Ok(size), Some(terminal)) = (frame.read::<Resize>(), &terminal) {
                    let _ = resize(terminal, size.rows, size.columns);
                }
            }
            _ => return,
        }
        if frames.release(length).is_err() {
            return;
        }
    }
}

/// Writes queued input; what a command no longer wants is dropped, as a pipe would.
async fn write_input(
    mut stdin: Option<Sender>,
    mut waiting: mpsc::UnboundedReceiver<Bytes>,
    written: mpsc::UnboundedSender<usize>,
) {
    while let Some(bytes) = waiting.recv().await {
        if let Some(pipe) = &mut stdin
            && pipe.write_all(&bytes).await.is_err()
        {
            stdin = None;
        }
        if written.send(bytes.len()).is_err() {
            return;
        }
    }
}

/// Sends a signal to a run, and answers when that is done.
pub(crate) async fn signal(guest: Rc<Guest>, body: RecvStream, mut out: SendStream<Bytes>) -> io::Result<()> {
    let Some(frame) = Frames::new(body).next().await? else { return Ok(()) };
    let order: Signal = frame.read().map_err(io::Error::other)?;
    signal_run(&guest, order.pid, order.number).await;
    stream::send(&mut out, Frame::data(FrameKind::Done, &[])).await?;
    stream::end(&mut out)
}

async fn signal_run(guest: &Guest, main: i32, number: i32) {
    let zygote = guest.zygote_pid;
    // Runs come and go only while nothing is being killed, so the target stays right for all passes.
    let target = if guest.runs.get() <= 1 { Target::Everything { zygote } } else { Target::Command { main, zygote } };
    if number != libc::SIGKILL {
        processes::signal(target, number);
        return;
    }
    let _killing = guest.killing.lock().await;
    for _ in 0..KILL_PASSES {
        if processes::signal(target, number) == 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Carries output until the command has ended, and what is left in its pipes then.
async fn pump_output(
    out: &mut SendStream<Bytes>,
    mut stdout: Option<Receiver>,
    mut stderr: Option<Receiver>,
    mut ended: oneshot::Receiver<Exited>,
) -> io::Result<Exited> {
    let mut first = BytesMut::new();
    let mut second = BytesMut::new();
    let exited = loop {
        tokio::select! {
            chunk = read(FrameKind::Stdout, &mut stdout, &mut first), if stdout.is_some() => match chunk {
                Some(chunk) => stream::send(out, chunk).await?,
                None => stdout = None,
            },
            chunk = read(FrameKind::Stderr, &mut stderr, &mut second), if stderr.is_some() => match chunk {
                Some(chunk) => stream::send(out, chunk).await?,
                None => stderr = None,
            },
            exited = &mut ended => break exited.map_err(|_| io::ErrorKind::BrokenPipe)?,
        }
    };
    for (kind, pipe) in [(FrameKind::Stdout, stdout), (FrameKind::Stderr, stderr)] {
        if let Some(pipe) = pipe {
            drain(out, kind, &pipe).await?;
        }
    }
    Ok(exited)
}

/// Reads one chunk behind room for its header; nothing at the end of the stream.
async fn read(kind: FrameKind, pipe: &mut Option<Receiver>, buffer: &mut BytesMut) -> Option<Bytes> {
    let pipe = pipe.as_mut()?;
    pipe.readable().await.ok()?;
    buffer.clear();
    buffer.reserve(Frame::HEADER + bound::CHUNK);
    buffer.put_bytes(0, Frame::HEADER);
    match pipe.read_buf(&mut (&mut *buffer).limit(bound::CHUNK)).await {
        Ok(0) | Err(_) => None,
        Ok(_) => {
            Frame::finish(kind, buffer);
            Some(buffer.split().freeze())
        }
    }
}

async fn drain(out: &mut SendStream<Bytes>, kind: FrameKind, pipe: &Receiver) -> io::Result<()> {
    let mut buffer = vec![0; bound::CHUNK];
    let mut drained = 0;
    while drained < MOST_DRAINED {
        match pipe.try_read(&mut buffer) {
            Ok(length) if length > 0 => {
                drained += length;
                stream::send(out, Frame::data(kind, &buffer[..length])).await?;
            }
            _ => break,
        }
    }
    Ok(())
}
