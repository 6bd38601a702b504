//! The runs that a guest knows of: those under way, and those whose end nobody has asked for.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::VecDeque,
    io,
    os::fd::AsFd,
    rc::Rc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use glovebox_proto::{Attach, Attached, EndReason, Exited, Frame, FrameKind, LeafWord, Role, RunInfo, Signal, bound};
use h2::{RecvStream, SendStream};
use tokio::io::Interest;

use crate::{
    Members,
    input::{Input, Left, Writer},
    leaves::Leaf,
    output::{Output, Reader},
    processes::{self, Target},
    server::Guest,
    sessions::InSession,
    stream::{self, Frames},
    zygote,
};

/// A killed tree is looked at again until nothing is left of it, but not for ever: a process that cannot die is left
/// to the host, which can end the whole sandbox.
const KILL_PASSES: usize = 1000;
/// So many passes in a row may see nobody of the target but somebody who ended meanwhile.
const MOST_IN_VAIN: usize = 50;
/// So many passes in a row must see nobody at all. In the first one somebody may have been missed who had just come to be, of one
/// who had ended when it was looked at.
const EMPTY_PASSES: usize = 2;
/// Whoever is not gone after so many passes forks faster than it is killed; from then on there is a rest between two passes.
const QUICK_PASSES: usize = 3;
const REST: Duration = Duration::from_millis(1);
/// In one of so many passes the zygote is asked for help.
const EACH_STEP: usize = 16;

/// Bytes of output that are held of all runs together that are over.
const MOST_ENDED_OUTPUT: usize = 8 * bound::OUTPUT;

/// One run.
pub(crate) struct Run {
    pub(crate) id: String,
    /// When it was asked for.
    pub(crate) asked: SystemTime,
    /// What it runs as. Nothing while it waits for its turn in a session.
    pub(crate) begun: OnceCell<Begun>,
    pub(crate) note: Bytes,
    pub(crate) output: Rc<Output>,
    pub(crate) input: Input,
    /// Whether the main process still is what its number says. It is not once it was reaped.
    pub(crate) alive: Cell<bool>,
    pub(crate) reason: Cell<EndReason>,
    pub(crate) ended: Cell<Option<Exited>>,
    /// The session that it runs in.
    pub(crate) session: Option<InSession>,
}

/// A run that does not wait, or no more.
pub(crate) struct Begun {
    pub(crate) pid: i32,
    /// The group that it is in alone.
    pub(crate) leaf: Option<Leaf>,
    pub(crate) at: SystemTime,
}

impl Run {
    /// Whether it waits for its turn in a session.
    pub(crate) fn is_waiting(&self) -> bool {
        self.begun.get().is_none() && self.ended.get().is_none()
    }

    fn info(&self) -> RunInfo {
        let [stdout_bytes, stderr_bytes, _] = self.output.written();
        let (pid, started) = self.begun.get().map_or((0, self.asked), |begun| (begun.pid, begun.at));
        RunInfo {
            run: self.id.clone(),
            pid,
            started_ns: started.duration_since(UNIX_EPOCH).map_or(0, |span| span.as_nanos() as i64),
            waiting: self.is_waiting(),
            ended: self.ended.get(),
            stdout_bytes,
            stderr_bytes,
            owned: self.output.is_owned(),
            terminal: self.input.terminal().is_some(),
        }
    }
}

/// All runs.
#[derive(Default)]
pub(crate) struct Runs {
    under_way: RefCell<Vec<Rc<Run>>>,
    /// The oldest end first.
    over: RefCell<VecDeque<Rc<Run>>>,
    last_end: Cell<Option<Instant>>,
}

impl Runs {
    /// How many are under way and do not wait.
    pub(crate) fn count(&self) -> usize {
        self.under_way.borrow().iter().filter(|run| !run.is_waiting()).count()
    }

    /// The runs that wait for their turn in a session, in the order in which they came.
    pub(crate) fn waiting_in(&self, session: &str) -> Vec<String> {
        let waits = |run: &&Rc<Run>| run.is_waiting() && run.session.as_ref().is_some_and(|one| one.name == session);
        self.under_way.borrow().iter().filter(waits).map(|run| run.id.clone()).collect()
    }

    /// When the last one ended.
    pub(crate) fn last_end(&self) -> Option<Instant> {
        self.last_end.get()
    }

    /// A run by its id.
    pub(crate) fn find(&self, id: &str) -> Option<Rc<Run>> {
        let under_way = self.under_way.borrow();
        let over = self.over.borrow();
        under_way.iter().chain(over.iter()).find(|run| run.id == id).cloned()
    }

    /// Whether a run of this id is under way.
    pub(crate) fn is_under_way(&self, id: &str) -> bool {
        self.under_way.borrow().iter().any(|run| run.id == id)
    }

    /// The leaves of all runs, with the runs' ids.
    pub(crate) fn leaves(&self) -> Vec<(u64, String)> {
        let (under_way, over) = (self.under_way.borrow(), self.over.borrow());
        // What is in the leaf of a session is the session's.
        let all = over.iter().chain(under_way.iter()).filter(|run| run.session.is_none());
        all.filter_map(|run| Some((run.begun.get()?.leaf.as_ref()?.number, run.id.clone()))).collect()
    }

    /// A run has started, or waits for its turn. One that is over makes room for its next step.
    pub(crate) fn started(&self, run: Rc<Run>) {
        self.over.borrow_mut().retain(|other| other.id != run.id);
        self.under_way.borrow_mut().push(run);
    }

    /// A run is over. How it ended is kept until its owner has heard of it, or until many others ended.
    pub(crate) fn ended(&self, run: &Rc<Run>, exited: Exited) {
        run.ended.set(Some(exited));
        run.output.close();
        self.last_end.set(Some(Instant::now()));
        self.under_way.borrow_mut().retain(|other| !Rc::ptr_eq(other, run));
        let mut over = self.over.borrow_mut();
        over.push_back(run.clone());
        if over.len() > bound::ENDED_RUNS {
            over.pop_front();
        }
        let mut held: usize = over.iter().map(|run| run.output.held()).sum();
        for run in over.iter() {
            if held <= MOST_ENDED_OUTPUT {
                break;
            }
            if !run.output.is_owned() {
                held -= run.output.held();
                run.output.clear();
            }
        }
    }

    /// There is no run, as the session that it waited for did not take it.
    pub(crate) fn refused(&self, run: &Rc<Run>) {
        run.output.close();
        self.under_way.borrow_mut().retain(|other| !Rc::ptr_eq(other, run));
    }

    /// The owner of a run has heard how it ended.
    fn forget(&self, run: &Rc<Run>) {
        self.over.borrow_mut().retain(|other| !Rc::ptr_eq(other, run));
    }
}

/// Carries a run's output to a reader, and the reader's input to the run.
pub(crate) async fn follow(
    guest: &Guest,
    run: &Rc<Run>,
    mut reader: Reader,
    (frames, writer): (Frames, Writer),
    mut out: SendStream<Bytes>,
) -> io::Result<()> {
    let hearing = run.input.hear(frames, writer);
    tokio::pin!(hearing);
    let mut left = None;
    {
        let telling = tell(run, &mut reader, &mut out);
        tokio::pin!(telling);
        tokio::select! {
            biased;
            told = &mut telling => told?,
            ended = &mut hearing => {
                left = Some(ended);
                // One that has nothing more to say still listens. One that went away has not heard the end; the run goes on.
                if ended == Left::Closed {
                    telling.await?;
                }
            }
        }
    }
    if matches!(left, Some(Left::Released | Left::Lost)) {
        if left == Some(Left::Released) {
            reader.leave();
        }
        return Ok(());
    }
    // The end was sent. That it arrived is known when the host lets go of the stream, and not when the connection breaks.
    let left = match left {
        Some(left) => left,
        None => hearing.await,
    };
    if left != Left::Lost && reader.is_owner() {
        guest.runs.forget(run);
    }
    Ok(())
}

/// Tells a reader what a run wrote, and how it ended.
async fn tell(run: &Run, reader: &mut Reader, out: &mut SendStream<Bytes>) -> io::Result<()> {
    while let Some(frame) = reader.next().await {
        stream::send(out, frame).await?;
    }
    // Whoever looked on at a run that was refused may find it again: it may have been asked for once more.
    let Some(exited) = run.ended.get() else { return Err(io::ErrorKind::NotFound.into()) };
    stream::send(out, Frame::message(FrameKind::Exited, &exited)).await?;
    stream::end(out)
}

/// Serves one who attaches to a run.
pub(crate) async fn attach(guest: Rc<Guest>, body: RecvStream, mut out: SendStream<Bytes>) -> io::Result<()> {
    let mut frames = Frames::new(body);
    let Some(first) = frames.next().await?.filter(|first| first.kind == FrameKind::Attach) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    frames.release(first.payload.len())?;
    let order: Attach = first.read().map_err(io::Error::other)?;
    let Some(run) = guest.runs.find(&order.run) else { return answer(out, FrameKind::NoRun).await };
    let role = Role::try_from(order.role).unwrap_or(Role::Watcher);
    let reader = run.output.reader([order.stdout_from, order.stderr_from, order.results_from], role);
    let attached = Attached {
        owner: reader.is_owner(),
        stdin_bytes: run.input.taken(),
        note: run.note.clone(),
        terminal: run.input.terminal(),
        modes: run.output.modes(),
        stdout_bytes: run.output.written()[0],
    };
    let writer = if reader.is_owner() { run.input.new_owner() } else { Writer::Other };
    stream::send(&mut out, Frame::message(FrameKind::Attached, &attached)).await?;
    follow(&guest, &run, reader, (frames, writer), out).await
}

/// Lists the runs.
pub(crate) async fn list(guest: Rc<Guest>, mut out: SendStream<Bytes>) -> io::Result<()> {
    let infos: Vec<RunInfo> = {
        let (under_way, over) = (guest.runs.under_way.borrow(), guest.runs.over.borrow());
        over.iter().chain(under_way.iter()).map(|run| run.info()).collect()
    };
    for info in infos {
        stream::send(&mut out, Frame::message(FrameKind::RunInfo, &info)).await?;
    }
    answer(out, FrameKind::Done).await
}

/// Sends a signal to a run, and answers when that is done.
pub(crate) async fn signal(guest: Rc<Guest>, body: RecvStream, out: SendStream<Bytes>) -> io::Result<()> {
    let Some(frame) = Frames::new(body).next().await? else { return Ok(()) };
    let order: Signal = frame.read().map_err(io::Error::other)?;
    let Some(run) = guest.runs.find(&order.run) else { return answer(out, FrameKind::NoRun).await };
    send_signal(&guest, &run, order.number, order.reason()).await;
    answer(out, FrameKind::Done).await
}

/// Sends a signal to the processes of a run whose command has not ended. The first reason is the one that counts.
pub(crate) async fn send_signal(guest: &Guest, run: &Run, number: i32, reason: EndReason) {
    // Runs come and go only while nothing is being killed, so the target stays right for all passes.
    let _killing = guest.killing.lock().await;
    if !run.alive.get() || (run.is_waiting() && ![libc::SIGINT, libc::SIGTERM, libc::SIGKILL].contains(&number)) {
        return;
    }
    let Some(Begun { pid, leaf, .. }) = run.begun.get() else {
        // What would end it ends its waiting.
        if run.reason.get() == EndReason::None {
            run.reason.set(if reason == EndReason::None { EndReason::Cancelled } else { reason });
        }
        run.session.iter().for_each(InSession::end_soon);
        return;
    };
    if run.reason.get() == EndReason::None {
        run.reason.set(reason);
    }
    if let Some(session) = &run.session
        && session.interrupt_first(guest, run, number)
    {
        return;
    }
    let (zygote, members) = (guest.zygote_pid, guest.ground.members);
    let target = match leaf {
        Some(leaf) => Target::Leaf { name: &leaf.name },
        None if run.session.is_some() => Target::Command { main: *pid, zygote },
        // Beside a run there may be what others left in leaves of their own, and the next one's child.
        None if guest.is_alone() => Target::Everything { zygote },
        None => Target::Command { main: *pid, zygote },
    };
    if number == libc::SIGKILL && !*guest.paused.borrow() {
        processes::end_group(*pid, members);
        kill(guest, (leaf.as_ref(), &run.id), target).await;
    } else {
        // Who is frozen may die only when the host lets it.
        processes::signal(target, number, members);
    }
}

/// Ends what a run that somebody ended has left: in its leaf, or everywhere if it is the only one. Its command may have ended at the
/// first signal, and the others not.
pub(crate) async fn end_rest(guest: &Guest, run: &Run) {
    if run.reason.get() == EndReason::None || run.session.is_some() {
        return;
    }
    match run.begun.get().and_then(|begun| begun.leaf.as_ref()) {
        Some(leaf) => kill(guest, (Some(leaf), &run.id), Target::Leaf { name: &leaf.name }).await,
        None if guest.stays && guest.is_alone() => {
            // No other may start meanwhile.
            let _killing = guest.killing.lock().await;
            if guest.is_alone() {
                kill(guest, (None, &run.id), Target::Everything { zygote: guest.zygote_pid }).await;
            }
        }
        None => {}
    }
}

/// Kills until nothing is left. Processes that fork others and end could run away from that for ever; the keeper is therefore asked
/// to let nobody fork any more in the leaf, and then there are fewer of them with each pass. Without a leaf, the zygote is asked
/// to end all commands in one step, if this is the only run.
pub(crate) async fn kill(guest: &Guest, (leaf, run): (Option<&Leaf>, &str), target: Target<'_>) {
    if *guest.paused.borrow() {
        // Nobody who is frozen forks, and nobody dies before the host lets them.
        processes::signal(target, libc::SIGKILL, guest.ground.members);
        return;
    }
    let (mut in_vain, mut empty) = (0, 0);
    for pass in 0..KILL_PASSES {
        let seen = processes::signal(target, libc::SIGKILL, guest.ground.members);
        // Those that are dead count in the group until they are reaped, and each has to be looked at in the next pass.
        guest.reaper.reap();
        empty = if seen.found + seen.vanished == 0 { empty + 1 } else { 0 };
        // It may have been one of the target that forked another before it ended; or somebody else's.
        in_vain = if seen.found == 0 { in_vain + 1 } else { 0 };
        if empty == EMPTY_PASSES || in_vain > MOST_IN_VAIN {
            return;
        }
        if pass < QUICK_PASSES {
            tokio::task::yield_now().await;
            continue;
        }
        if let Some(leaf) = leaf.filter(|_| pass == QUICK_PASSES) {
            let word = LeafWord { leaf: leaf.number, run: run.to_owned(), wants: false, shut: true, at_rest: false };
            guest.leaves.tell(word).await;
        }
        if matches!(target, Target::Everything { .. }) && pass % EACH_STEP == QUICK_PASSES {
            // It may have no process left to do it with, or not be able to; the next passes are as good as they were.
            let _ = end_in_one_step(guest).await;
        }
        tokio::time::sleep(REST).await;
    }
}

/// Has the zygote end all commands in one step.
async fn end_in_one_step(guest: &Guest) -> io::Result<()> {
    if guest.ground.members != Members::Visible {
        return Ok(());
    }
    let zygote = guest.zygote().await?;
    zygote.async_io(Interest::WRITABLE, |socket| zygote::ask_to_end(socket.as_fd())).await?;
    // Whoever waits here may be dropped; the next one to ask takes the answer then.
    guest.zygote_owes.set(true);
    drop(zygote);
    guest.zygote().await.map(drop)
}

/// Notes that all commands are frozen, or go on.
pub(crate) async fn pause(guest: &Guest, paused: bool, out: SendStream<Bytes>) -> io::Result<()> {
    // A command that is being started is one before it is frozen, or none.
    let _quiet = guest.killing.lock().await;
    guest.paused.send_replace(paused);
    answer(out, FrameKind::Done).await
}

pub(crate) async fn answer(mut out: SendStream<Bytes>, word: FrameKind) -> io::Result<()> {
    stream::send(&mut out, Frame::data(word, &[])).await?;
    stream::end(&mut out)
}
