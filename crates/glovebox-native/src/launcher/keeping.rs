//! Keeping living sandboxes.
//!
//! Theory of operation. A launcher that made a living sandbox is its keeper, and stays when its caller is gone. It listens on a
//! socket in the sandbox's folder, where every command that works with the sandbox asks for what it holds; it ends the sandbox
//! when its lifetime is over, and removes what is left when the guest ends. It is not in the data path: the guest has a socket of
//! its own. When it is killed, nothing happens to the sandbox; the next command that meets it has another launcher adopt it.
//!
//! Disk. What a living sandbox writes lies on a file system of the host. While somebody runs something in it, or something
//! runs by itself, a child adds up from time to time what is there. Whoever follows a run is told when it is too much; where
//! nobody does, the commands are ended here.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    time::{Duration, Instant},
};

use glovebox_core::{EndReason, Layer, RunId, SandboxId};
use glovebox_guest::{GuestChannel, mounts::Mapped};
use rustix::{
    event::{PollFd, PollFlags, epoll, poll},
    fs::{Mode, OFlags},
    net::SocketFlags,
    process::{Pid, Signal, pidfd_send_signal},
};

use super::{
    CHORE, CLIENT, KIND_BITS, Launcher,
    disk::Disk,
    leaves::Leaves,
    live::{Live, Pending, end},
    making::watch_memory,
    watch_for,
};
use crate::{
    living::{Door, GROUP_OWNER, Known, LiveRecord, LivingFolder, now_ms},
    plan::{Answer, Failure, NOT_KEPT, Order, Plan, REMOVE_FILES, step},
    ranges::{Range, Ranges},
    store,
    sys::{self, Forked},
    wire,
};

/// How long a keeper that can let nobody in waits before it looks again.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(10);
/// How long the end of a guest is waited for that was never ready; it has no command.
const UNREADY_END: Duration = Duration::from_secs(5);
/// Who can speak with a keeper at one time.
const MOST_CLIENTS: usize = 512;

/// Somebody who speaks with the keeper, or waits for a word of it.
pub(super) struct Client {
    pub(super) socket: OwnedFd,
    /// The number of the sandbox of which it waits to hear that the disk limit is passed.
    pub(super) waits_for: Option<u64>,
    /// The run that it follows there.
    pub(super) run: Option<RunId>,
}

/// What a keeper holds of a living sandbox, besides what every launcher holds.
pub(super) struct Kept {
    pub(super) folder: LivingFolder,
    _lock: OwnedFd,
    door: OwnedFd,
    pub(super) record: LiveRecord,
    /// The groups of its runs, while the guest takes them.
    pub(super) leaves: Option<Leaves>,
    pub(super) ended: Option<EndReason>,
    pub(super) disk: Disk,
    /// When to look at its life and its disk again.
    pub(super) due: Instant,
}

impl Kept {
    /// The socket on which others ask.
    pub(super) fn door(&self) -> &OwnedFd {
        &self.door
    }

    /// Writes down which layers were found.
    pub(super) fn note_layers(&mut self, present: &[Layer]) -> io::Result<()> {
        self.record.present = Some(present.to_vec());
        self.folder.write(&self.record)
    }

    /// Has the disk looked at in a while, whoever watches then: a run may be over before anybody watched it, and many short ones
    /// write as much as a long one.
    pub(super) fn note_run(&mut self) {
        self.due = self.due.min(self.disk.note_run());
    }

    /// Removes what is left of a sandbox whose guest has ended, and frees its range of ids if all its processes have. Its files
    /// stay, unless its lifetime is over.
    pub(super) fn end(self, ranges: Option<&Ranges>) {
        if let (Some(ranges), Some(range)) = (ranges, self.record.range) {
            ranges.release(range, &self.record.group);
        }
        if let (Some(reason), Some(life)) = (self.ended, &self.record.plan.living) {
            let noted = note_end(&life.store, reason);
            // What cannot be removed now is removed with the rest of the sandbox by `gc`.
            let _ = store::remove(&life.store);
            if noted.is_err() {
                // On a full disk there is room for the word now.
                let _ = note_end(&life.store, reason);
            }
        }
        let _ = self.folder.remove();
    }

    /// When the sandbox is to end by itself, and why; if not now, how long it is until the next look.
    pub(super) fn look_at_life(&self, in_use: impl FnOnce() -> bool) -> Result<Option<Duration>, EndReason> {
        let Some(life) = &self.record.plan.living else { return Ok(None) };
        let left = life.expires_ms.map(|expires| expires.saturating_sub(now_ms()));
        if left.is_some_and(|left| left <= 0) {
            return Err(EndReason::MaxAge);
        }
        let left = left.map(|left| Duration::from_millis(left as u64));
        let idle = life.idle_ms.map(Duration::from_millis).map(|idle| {
            let unused = self.folder.unused_for().unwrap_or_default();
            if unused >= idle && in_use() {
                let _ = self.folder.touch();
                return idle;
            }
            idle.saturating_sub(unused)
        });
        if idle.is_some_and(|idle| idle.is_zero()) {
            return Err(EndReason::IdleTimeout);
        }
        Ok([left, idle].into_iter().flatten().min())
    }
}

/// Leaves a word beside the store of why the sandbox ended.
fn note_end(store: &Path, reason: EndReason) -> io::Result<()> {
    let Some(folder) = store.parent() else { return Ok(()) };
    let note = serde_json::json!({ "reason": reason, "at_ms": now_ms() });
    std::fs::write(folder.join("ended.json"), note.to_string())
}

impl Launcher {
    /// Begins to make a living sandbox.
    pub(super) fn create_living(&mut self, id: SandboxId, plan: &Plan, reply: OwnedFd) {
        let folder = LivingFolder::of(self.owner.folder(), id);
        let groups = self.cgroups.named_living(&format!("{GROUP_OWNER}.{id}"));
        let mut range = None;
        let lock = match step("make the folder of the sandbox", folder.make()) {
            Ok(lock) => lock,
            // The folder is that of whoever holds the lock.
            Err(failure) => return drop(wire::send(reply, &Answer::Failed(failure), &[])),
        };
        let make = || {
            let channel = step("listen for the host", folder.listen(Door::Channel))?;
            let door = step("listen for commands", folder.listen(Door::Keeper))?;
            let has_leaves = self.cgroups.has_leaves(self.standing);
            let leaves = has_leaves.then(|| step("listen for groups", folder.listen(Door::Leaves))).transpose()?;
            range = self.take_range(id, plan, &groups)?;
            let channel = GuestChannel::Listening(channel);
            let (live, reporting, _) = self.launch(id, plan, &groups, channel, leaves, range.as_ref())?;
            // The guest still dies with this process; who it is must be known before it no longer does.
            let record = step("know the guest", Known::of(live.pid)).map(|guest| LiveRecord {
                guest,
                group: groups.name().to_owned(),
                plan: plan.clone(),
                leaves: has_leaves,
                range: range.as_ref().map(|range: &Range| range.number),
                present: None,
            });
            let kept = record.and_then(|record| keep(&folder, record, lock, door)).inspect_err(|_| {
                end(&live);
                sys::wait_for(&live.process);
            })?;
            Ok((live, kept, reporting))
        };
        match make() {
            Ok((mut live, kept, reporting)) => {
                live.living = Some(kept);
                self.reserve = self.reserve.take().or_else(reserve);
                live.pending = Some(Pending { reporting, reply, watch: None, range });
                self.register(live);
            }
            Err(failure) => {
                let is_empty = groups.remove_when_empty();
                if let (Some(ranges), Some(range)) = (&self.ranges, range.filter(|_| is_empty)) {
                    ranges.remove(range);
                }
                let _ = folder.remove();
                let _ = wire::send(reply, &Answer::Failed(failure), &[]);
            }
        }
    }

    /// Orders about living sandboxes.
    pub(super) fn obey_for_living(&mut self, order: Order, reply: Option<OwnedFd>) {
        let Some(reply) = reply else { return };
        let answer = match order {
            Order::Adopt { id } => self.adopt(id).map_or_else(Answer::Failed, |()| Answer::Done),
            Order::Open { id } => return self.tell_of(id, &reply),
            Order::WatchDisk { id, run } => return self.wait_for_disk(id, run, reply),
            Order::Freeze { id, frozen } => return self.freeze(id, frozen, reply),
            Order::LetDie { id } => match self.find_living(id) {
                Some((_, live)) => {
                    live.groups.let_killed_die();
                    Answer::Done
                }
                None => Answer::Failed(not_kept()),
            },
            _ => return,
        };
        let _ = wire::send(reply, &answer, &[]);
    }

    /// Freezes the commands of a sandbox, or lets them go on. The kernel takes its time for it, and for the memory that what is
    /// frozen gives back, so a child waits for both; it tells how much that was, after the answer.
    fn freeze(&mut self, id: SandboxId, frozen: bool, reply: OwnedFd) {
        let begun = self.find_living(id).ok_or_else(not_kept).and_then(|(_, live)| {
            let kept = live.living.as_ref().ok_or_else(not_kept)?;
            let is_frozen = live.groups.is_frozen();
            // Before it is so, lest a run's time passes in a pause that nobody knows of.
            let begun = match frozen {
                true => kept.folder.pause_begins(is_frozen),
                false => kept.folder.pause_ends(is_frozen).map(|()| 0),
            };
            let begun = step("note the pause", begun)?;
            step("freeze the processes", live.groups.set_frozen(frozen))?;
            Ok((live.groups.clone(), kept.folder.clone(), begun))
        });
        let (groups, folder, begun) = match begun {
            Ok(begun) => begun,
            Err(failure) => return drop(wire::send(reply, &Answer::Failed(failure), &[])),
        };
        let give_up = || {
            // Whoever asked may be gone, and others have paused it again or let it go on.
            if frozen && folder.is_last_pause(begun) {
                let _ = folder.pause_ends(false);
                groups.thaw();
            }
        };
        let has_begun = self.have_done("freeze the processes", reply, |reply| {
            groups.wait_until_frozen(frozen).inspect_err(|_| give_up())?;
            if !frozen {
                return Ok(Answer::Done);
            }
            // Those who were killed just before, when nobody could know that it would be frozen.
            groups.let_killed_die();
            wire::send(reply, &Answer::Done, &[])?;
            Ok(Answer::Reclaimed(groups.reclaim()))
        });
        if !has_begun {
            give_up();
        }
    }

    pub(super) fn find_living(&mut self, id: SandboxId) -> Option<(u64, &mut Live)> {
        let found = self.sandboxes.iter_mut().find(|(_, live)| live.id == id && live.living.is_some() && !live.exited);
        found.map(|(number, live)| (*number, live))
    }

    /// Answers with what is held of a sandbox, as when it was made.
    fn tell_of(&mut self, id: SandboxId, reply: &OwnedFd) {
        let held = self.cgroups.held();
        let found = self.find_living(id).and_then(|(_, live)| {
            let present = live.living.as_ref()?.record.present.clone()?;
            let (guest_pid, group) = (live.pid.as_raw_nonzero().get(), live.groups.name().to_owned());
            Some((Answer::Created { held, guest_pid, group, present }, [live.store.as_fd(), live.process.as_fd()]))
        });
        let _ = match found {
            Some((answer, fds)) => wire::send(reply, &answer, &fds),
            None => wire::send(reply, &Answer::Failed(not_kept()), &[]),
        };
    }

    /// Keeps a sandbox that lost its keeper.
    fn adopt(&mut self, id: SandboxId) -> Result<(), Failure> {
        if self.find_living(id).is_some() {
            return Ok(());
        }
        let folder = LivingFolder::of(self.owner.folder(), id);
        let lock = step("take the keeper's lock", folder.take_lock())?;
        let Some(lock) = lock else { return Ok(()) };
        let (process, record) = step("look at the guest", folder.guest())?.ok_or_else(not_kept)?;
        let pid = Pid::from_raw(record.guest.pid).ok_or_else(not_kept)?;
        let plan = record.plan.clone();
        let life = plan.living.as_ref().ok_or_else(not_kept)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let store = step("open the files", rustix::fs::open(&life.store, flags, Mode::empty()))?;
        let groups = self.cgroups.named_living(&record.group);
        if record.present.is_none() {
            // Whoever made it died before it was ready, and what it lacks nobody knows. It is ended, and can be started again.
            let _ = pidfd_send_signal(&process, Signal::KILL);
            let limit = rustix::event::Timespec { tv_sec: UNREADY_END.as_secs() as i64, tv_nsec: 0 };
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit));
            groups.remove_when_empty();
            return step("remove the folder of the sandbox", folder.remove());
        }
        let door = step("listen for commands", folder.listen(Door::Keeper).map(sys::put_aside))?;
        let disk = step("look at the disk", Disk::of(&plan))?;
        let memory = watch_memory(&groups, pid, &plan);
        let live = Live {
            id,
            pid,
            process,
            groups,
            store,
            mounts: None,
            memory,
            disk_watch: None,
            mapped: Mapped::NotAll,
            host_network: plan.host_network,
            user: plan.uid,
            pending: None,
            exited: false,
            ending: Vec::new(),
            zygote: None,
            range: None,
            destroy: false,
            living: Some(Kept {
                folder,
                _lock: lock,
                door,
                record,
                leaves: None,
                ended: None,
                disk,
                due: Instant::now(),
            }),
        };
        let number = self.next;
        self.reserve = self.reserve.take().or_else(reserve);
        self.register(live);
        self.begin_leaves(number);
        Ok(())
    }

    /// The caller is gone: ends what was to end with it, and keeps the rest.
    pub(super) fn only_keep(&mut self, control: &OwnedFd) {
        let _ = epoll::delete(&self.events, control);
        self.only_keeps = true;
        self.ranges.iter_mut().for_each(Ranges::clear);
        sys::set_name("glovebox-keeper");
        let numbers: Vec<u64> = self.sandboxes.keys().copied().collect();
        for number in numbers {
            if let Some(live) = self.sandboxes.get_mut(&number).filter(|live| live.living.is_none()) {
                live.destroy = true;
                end(live);
                self.finish_if_over(number);
            }
        }
    }

    /// Lets somebody in who wants to speak with the keeper.
    pub(super) fn let_in(&mut self, number: u64) {
        let Some(kept) = self.sandboxes.get(&number).and_then(|live| live.living.as_ref()) else { return };
        let accept = || rustix::net::accept_with(&kept.door, SocketFlags::CLOEXEC);
        match accept() {
            Ok(socket) => self.add_client(Client { socket, waits_for: None, run: None }),
            Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => {
                // Without a free descriptor nobody can be let in. Whoever knocks is turned away, rather than heard for ever.
                self.reserve = None;
                if accept().is_err() {
                    // Nor can anybody be turned away; the socket tells of them again at once.
                    std::thread::sleep(OUT_OF_DESCRIPTORS);
                }
                self.reserve = reserve();
            }
            Err(_) => {}
        }
    }

    pub(super) fn add_client(&mut self, client: Client) {
        if self.clients.len() >= MOST_CLIENTS {
            return;
        }
        let number = self.next;
        self.next += 1;
        if watch_for(&self.events, &client.socket, number << KIND_BITS | CLIENT).is_ok() {
            self.clients.insert(number, client);
        }
    }

    /// Hears an order, or that somebody is gone.
    pub(super) fn hear_client(&mut self, number: u64) {
        let Some(client) = self.clients.get(&number) else { return };
        match wire::receive::<Order>(&client.socket) {
            Ok(Some((order, fds))) if client.waits_for.is_none() => self.obey(order, fds),
            _ => {
                let _ = epoll::delete(&self.events, &client.socket);
                self.clients.remove(&number);
            }
        }
    }

    /// Removes the files of a sandbox, in a child: how long it takes is up to what ran inside.
    pub(super) fn remove_store(&mut self, store: &Path, reply: OwnedFd) {
        self.have_done(REMOVE_FILES, reply, |_| store::remove(store).map(|()| Answer::Done));
    }

    /// Has a child do what takes time, and says whether there is one. Its answer is sent; the end of the stream is that of the
    /// child.
    fn have_done(&mut self, what: &str, reply: OwnedFd, work: impl FnOnce(&OwnedFd) -> io::Result<Answer>) -> bool {
        match step(what, sys::fork_with(0)) {
            Ok(Forked::Child) => {
                let answer = step(what, work(&reply)).unwrap_or_else(Answer::Failed);
                let _ = wire::send(&reply, &answer, &[]);
                sys::exit_now(0)
            }
            Ok(Forked::Parent { pidfd, .. }) => {
                let number = self.next;
                self.next += 1;
                let _ = watch_for(&self.events, &pidfd, number << KIND_BITS | CHORE);
                self.chores.insert(number, (pidfd, reply));
                true
            }
            Err(failure) => {
                let _ = wire::send(&reply, &Answer::Failed(failure), &[]);
                false
            }
        }
    }

    /// A chore is over. Where its child could not say so, the end of the stream does.
    pub(super) fn chore_ended(&mut self, number: u64) {
        if let Some((child, reply)) = self.chores.remove(&number) {
            let _ = epoll::delete(&self.events, &child);
            sys::wait_for(&child);
            drop(reply);
        }
    }
}

/// A descriptor of nothing, to be given up when there is no other.
pub(super) fn reserve() -> Option<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Begins to keep a sandbox that is being made.
fn keep(folder: &LivingFolder, record: LiveRecord, lock: OwnedFd, door: OwnedFd) -> Result<Kept, Failure> {
    let kept = || -> io::Result<Kept> {
        folder.write(&record)?;
        let disk = Disk::of(&record.plan)?;
        let (folder, door, due) = (folder.clone(), sys::put_aside(door), Instant::now());
        Ok(Kept { folder, _lock: lock, door, record, leaves: None, ended: None, disk, due })
    };
    step("write down who the guest is", kept())
}

pub(super) fn not_kept() -> Failure {
    Failure { step: NOT_KEPT.into(), errno: libc::ESRCH }
}
