//! Groups for runs: each run of a living sandbox is in a leaf of its own, where the host has control groups.
//!
//! Theory of operation. The keeper connects to a socket of the guest's and hands it a leaf: the name of a group and the
//! descriptors by which a process enters it. The guest has the zygote fork a child that enters the leaf and waits there: the
//! **spare**. A run is the spare's `exec`, so nothing is forked or moved while somebody waits for it. The guest then tells the
//! keeper which run took the leaf, and gets the next one. A run that finds no spare waits for one; where there is no keeper to
//! hand one out, it is started by the zygote, beside it. A keeper that takes over connects again, and is told of every leaf.

use std::{
    cell::{Cell, RefCell},
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    time::Duration,
};

use glovebox_proto::{Exited, LeafWord, StartFailed, StartRun};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags, SocketType,
    accept_with, recvmsg, send, socketpair,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{Notify, oneshot},
};

use crate::{processes, server::Guest, sys, zygote};

/// How long a child may take to become its command; others wait meanwhile to end theirs.
const LONGEST_START: Duration = Duration::from_secs(5);
/// How long a run waits for a spare before it goes without.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it is until another child is tried where there could be none.
const AGAIN: Duration = Duration::from_millis(500);
/// No name of a group is longer.
const LONGEST_NAME: usize = 256;

/// The leaves of a guest.
#[derive(Default)]
pub(crate) struct Leaves {
    hands: Cell<Hands>,
    spare: RefCell<Option<Spare>>,
    keeper: RefCell<Option<Rc<AsyncFd<OwnedFd>>>>,
    changed: Notify,
}

/// Whether somebody hands out leaves.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Hands {
    /// There are none in this sandbox.
    #[default]
    Never,
    /// Somebody does, or is about to connect.
    Now,
    /// Whoever did is gone.
    Gone,
}

/// A leaf that a run is in, or will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) number: u64,
    /// The end of the group's path, in every hierarchy that has it.
    pub(crate) name: Rc<str>,
}

/// A child of the zygote that waits in a leaf for its command.
pub(crate) struct Spare {
    leaf: Leaf,
    pid: i32,
    socket: AsyncFd<OwnedFd>,
    ended: oneshot::Receiver<Exited>,
}

impl Leaves {
    /// Whether runs of this sandbox have leaves.
    pub(crate) fn are_there(&self) -> bool {
        self.hands.get() != Hands::Never
    }

    /// Takes the spare, or waits for one. None where nobody hands out leaves.
    pub(crate) async fn take(&self) -> Option<Spare> {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                let spare = self.spare.borrow_mut().take();
                if let Some(mut spare) = spare {
                    if spare.ended.try_recv().is_err() {
                        return Some(spare);
                    }
                    // It was killed while it waited; the leaf goes as if a run had been in it.
                    let run = "none".to_owned();
                    self.tell(LeafWord { leaf: spare.leaf.number, run, wants: true, shut: false, at_rest: false })
                        .await;
                }
                if self.hands.get() != Hands::Now {
                    return None;
                }
                changed.await;
            }
        };
        if !self.are_there() {
            return None;
        }
        tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_default()
    }

    /// Takes back a spare that was not needed.
    pub(crate) fn give_back(&self, spare: Spare) {
        *self.spare.borrow_mut() = Some(spare);
        self.changed.notify_waiters();
    }

    /// Tells the keeper something. One that is gone is told nothing.
    pub(crate) async fn tell(&self, word: LeafWord) {
        let keeper = self.keeper.borrow().clone();
        let Some(keeper) = keeper else { return };
        let bytes = word.to_bytes();
        let _ = keeper.async_io(Interest::WRITABLE, |socket| Ok(send(socket, &bytes, SendFlags::NOSIGNAL)?)).await;
    }
}

impl Spare {
    /// The leaf that it waits in.
    pub(crate) fn leaf(&self) -> &Leaf {
        &self.leaf
    }

    /// Makes it the command. The outer error is the guest's, the inner one the command's.
    pub(crate) async fn become_command(
        self,
        request: &StartRun,
        stdio: &[OwnedFd],
    ) -> io::Result<Result<(i32, oneshot::Receiver<Exited>), StartFailed>> {
        let fds: Vec<_> = stdio.iter().map(AsFd::as_fd).collect();
        let Spare { pid, socket, ended, .. } = self;
        socket.async_io(Interest::WRITABLE, |socket| zygote::ask(socket.as_fd(), request, &fds)).await?;
        // Its end of the socket closes with the exec; before that it says why there will be none. On the way it has the commands'
        // id for a moment, and whoever runs here already can stop it then.
        let failure = socket.async_io(Interest::READABLE, |socket| zygote::failure(socket.as_fd()));
        let failed = match tokio::time::timeout(LONGEST_START, failure).await {
            Ok(failed) => failed?,
            Err(_) => {
                processes::end(pid);
                return Ok(Err(StartFailed { step: "exec".into(), errno: libc::ETIMEDOUT }));
            }
        };
        Ok(match failed {
            None => Ok((pid, ended)),
            Some((step, errno)) => Err(StartFailed { step: zygote::Step::name(step).into(), errno }),
        })
    }
}

/// Serves the keepers that connect, one after the other.
pub(crate) async fn serve(guest: Rc<Guest>, listening: OwnedFd) -> io::Result<()> {
    guest.leaves.hands.set(Hands::Now);
    rustix::io::ioctl_fionbio(&listening, true)?;
    let listening = sys::register(listening)?;
    loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accepted = listening.async_io(Interest::READABLE, |socket| Ok(accept_with(socket, flags)?)).await;
        let Ok(socket) = accepted else {
            tokio::time::sleep(crate::IDLE).await;
            continue;
        };
        if let Ok(socket) = sys::register(socket) {
            let keeper = Rc::new(socket);
            guest.leaves.hands.set(Hands::Now);
            *guest.leaves.keeper.borrow_mut() = Some(keeper.clone());
            let _ = serve_keeper(&guest, &keeper).await;
        }
        *guest.leaves.keeper.borrow_mut() = None;
        guest.leaves.hands.set(Hands::Gone);
        guest.leaves.changed.notify_waiters();
    }
}

async fn serve_keeper(guest: &Guest, keeper: &AsyncFd<OwnedFd>) -> io::Result<()> {
    let of_runs = guest.runs.leaves().into_iter().map(|(leaf, run)| (leaf, run, false));
    for (leaf, run, at_rest) in of_runs.chain(guest.sessions.leaves()) {
        guest.leaves.tell(LeafWord { leaf, run, wants: false, shut: false, at_rest }).await;
    }
    let spare = guest.leaves.spare.borrow().as_ref().map(|spare| spare.leaf.number);
    let word = LeafWord {
        leaf: spare.unwrap_or_default(),
        run: String::new(),
        wants: spare.is_none(),
        shut: false,
        at_rest: false,
    };
    guest.leaves.tell(word).await;
    loop {
        let Some((leaf, doors)) = keeper.async_io(Interest::READABLE, receive).await? else { return Ok(()) };
        let number = leaf.number;
        if let Ok(spare) = park(guest, leaf, doors).await {
            *guest.leaves.spare.borrow_mut() = Some(spare);
        } else {
            // Commands may have all processes that there can be. Runs do without meanwhile.
            tokio::time::sleep(AGAIN).await;
            guest
                .leaves
                .tell(LeafWord { leaf: number, run: "none".to_owned(), wants: true, shut: false, at_rest: false })
                .await;
        }
        guest.leaves.changed.notify_waiters();
    }
}

/// Receives a leaf; none when the keeper is gone.
fn receive(socket: &OwnedFd) -> io::Result<Option<(Leaf, Vec<OwnedFd>)>> {
    let mut name = [0; LONGEST_NAME];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(zygote::MOST_DOORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let length = recvmsg(socket, &mut [IoSliceMut::new(&mut name)], &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let mut doors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = part {
            doors.extend(fds);
        }
    }
    if length == 0 {
        return Ok(None);
    }
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let name = str::from_utf8(&name[..length]).map_err(|_| wrong())?;
    let number = name.rsplit('/').next().and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
    Ok(Some((Leaf { number, name: name.into() }, doors)))
}

/// Has the zygote fork a child into a leaf, and waits until it is there.
async fn park(guest: &Guest, leaf: Leaf, doors: Vec<OwnedFd>) -> io::Result<Spare> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    let socket = sys::register(ours)?;
    let zygote = guest.zygote().await?;
    guest.reaper.starting();
    let asked = async {
        let fds: Vec<_> = [&theirs].into_iter().chain(&doors).map(AsFd::as_fd).collect();
        zygote.async_io(Interest::WRITABLE, |socket| zygote::ask_to_park(socket.as_fd(), &fds)).await?;
        zygote.async_io(Interest::READABLE, |socket| zygote::answer(socket.as_fd())).await
    };
    let answer = asked.await;
    let pid = answer.as_ref().ok().and_then(|answer| answer.ok());
    let ended = guest.reaper.started(pid);
    drop((zygote, theirs));
    let pid = answer?.map_err(|(_, errno)| io::Error::from_raw_os_error(errno))?;
    match socket.async_io(Interest::READABLE, |socket| zygote::answer(socket.as_fd())).await? {
        Ok(_) => Ok(Spare { leaf, pid, socket, ended }),
        Err((_, errno)) => Err(io::Error::from_raw_os_error(errno)),
    }
}
