//! The watch over the disk of a living sandbox, and what its users are told of it.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use glovebox_core::{SandboxId, UsageNow};
use rustix::event::epoll;

use super::{DISK, KIND_BITS, Launcher, keeping::Client, live::Live, live::end_commands, watch_for};
use crate::{
    plan::{Answer, Outgrown, Plan},
    store,
    sys::{self, Forked, KillOnDrop},
    watch::{self, Size},
    wire,
};

/// How long a keeper rests between two looks at the disk while something runs. What was seen is true for as long.
const DISK_REST: Duration = Duration::from_millis(250);
/// How many can wait for a look at one time.
const MOST_ASKED: usize = 64;

/// The watch over the disk of one living sandbox.
pub(super) struct Disk {
    /// Folders of the host that can be written in place.
    folders: Vec<OwnedFd>,
    store: OwnedFd,
    most: Size,
    last: Option<Seen>,
    pub(super) looking: Option<(OwnedFd, KillOnDrop)>,
    pub(super) next: Option<Instant>,
    /// Who waits for the look that is under way, to hear what the sandbox uses.
    asked: Vec<OwnedFd>,
}

/// What a look found.
#[derive(Clone, Copy)]
struct Seen {
    all: Size,
    /// What the store alone holds; nothing when that was too much to look at.
    store: Option<u64>,
    at: Instant,
}

impl Disk {
    pub(super) fn of(plan: &Plan, store: &OwnedFd) -> io::Result<Self> {
        let folders = watch::open_written(plan)?;
        // What lies in folders of the host from before does not count.
        let before = watch::total(&folders).unwrap_or_default();
        let store = store.try_clone()?;
        let most =
            Size { bytes: before.bytes.saturating_add(plan.disk), entries: before.entries.saturating_add(plan.inodes) };
        Ok(Disk { folders, store, most, last: None, looking: None, next: None, asked: Vec::new() })
    }

    /// Has a child add up what is there, so that the keeper can go on meanwhile.
    pub(super) fn begin_look(&mut self) -> io::Result<&OwnedFd> {
        let (told, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        match sys::fork_with(0)? {
            Forked::Child => {
                sys::set_name("glovebox-watch");
                let mut keep: Vec<_> =
                    self.folders.iter().chain([&self.store, &tell]).map(AsRawFd::as_raw_fd).collect();
                keep.sort_unstable();
                if sys::die_with_parent().and_then(|()| sys::close_all_but(&keep)).is_ok() {
                    // A tree that is too much to look at is too much.
                    let much = Size { bytes: u64::MAX, entries: u64::MAX };
                    let store = watch::total(std::slice::from_ref(&self.store)).unwrap_or(much);
                    let folders = watch::total(&self.folders).unwrap_or(much);
                    let bytes = store.bytes.saturating_add(folders.bytes);
                    let entries = store.entries.saturating_add(folders.entries);
                    let said = [bytes, entries, store.bytes].map(u64::to_le_bytes).concat();
                    let _ = rustix::io::write(&tell, &said);
                }
                sys::exit_now(0)
            }
            Forked::Parent { pidfd, .. } => Ok(&self.looking.insert((told, KillOnDrop::new(pidfd))).0),
        }
    }

    /// Hears what the child found. Says what there is too much of, if it also grew: whoever makes room is let.
    fn end_look(&mut self) -> Option<Outgrown> {
        let (told, child) = self.looking.take()?;
        let mut said = [0; 24];
        let heard = rustix::io::read(&told, &mut said[..]) == Ok(said.len());
        drop(child.keep());
        self.next = Some(Instant::now() + DISK_REST);
        if !heard {
            return None;
        }
        let number = |at: usize| u64::from_le_bytes(said[at..at + 8].try_into().expect("eight bytes"));
        let now = Size { bytes: number(0), entries: number(8) };
        let store = Some(number(16)).filter(|bytes| *bytes < u64::MAX);
        let last = self.last.replace(Seen { all: now, store, at: Instant::now() });
        let last = last.map(|last| last.all).unwrap_or_default();
        if now.bytes > self.most.bytes && now.bytes >= last.bytes {
            return Some(Outgrown::Bytes);
        }
        (now.entries > self.most.entries && now.entries >= last.entries).then_some(Outgrown::Files)
    }
}

impl Launcher {
    /// Somebody follows a run in a sandbox, and wants to know when the disk limit is passed.
    pub(super) fn wait_for_disk(&mut self, id: SandboxId, reply: OwnedFd) {
        let Some((number, live)) = self.find_living(id) else { return };
        if let Some(memory) = &mut live.memory {
            memory.wake();
        }
        if let Some(kept) = &mut live.living {
            kept.disk.next.get_or_insert_with(Instant::now);
            kept.due = Instant::now();
        }
        self.add_client(Client { socket: reply, waits_for: Some(number) });
    }

    /// Somebody wants to know what a sandbox uses. The files of a living one are looked at first, unless they just were.
    pub(super) fn tell_usage(&mut self, id: SandboxId, reply: Option<OwnedFd>) {
        let Some(reply) = reply else { return };
        let Some((&number, live)) = self.sandboxes.iter_mut().find(|(_, live)| live.id == id && !live.exited) else {
            let _ = wire::send(reply, &Answer::Failed(super::keeping::not_kept()), &[]);
            return;
        };
        let Some(kept) = &mut live.living else {
            let used = store::fullness(std::os::fd::AsFd::as_fd(&live.store)).ok().map(|store| store.used_bytes);
            let _ = wire::send(reply, &Answer::Usage(usage(live, used)), &[]);
            return;
        };
        let disk = &mut kept.disk;
        let fresh = disk.last.filter(|seen| seen.at.elapsed() < DISK_REST);
        if fresh.is_none() && disk.asked.len() < MOST_ASKED {
            let looks = disk.looking.is_some()
                || disk
                    .begin_look()
                    .is_ok_and(|told| watch_for(&self.events, told, number << KIND_BITS | DISK).is_ok());
            if looks {
                disk.asked.push(reply);
                return;
            }
        }
        let store = disk.last.and_then(|seen| seen.store);
        let _ = wire::send(reply, &Answer::Usage(usage(live, store)), &[]);
    }

    /// A look at the disk of a sandbox is done.
    pub(super) fn disk_was_looked_at(&mut self, number: u64) {
        let Some(live) = self.sandboxes.get_mut(&number) else { return };
        let Some(kept) = &mut live.living else { return };
        if let Some((told, _)) = &kept.disk.looking {
            let _ = epoll::delete(&self.events, told);
        }
        kept.due = Instant::now();
        let outgrown = kept.disk.end_look();
        let (asked, store) = (std::mem::take(&mut kept.disk.asked), kept.disk.last.and_then(|seen| seen.store));
        if !asked.is_empty() {
            let answer = Answer::Usage(usage(live, store));
            for reply in asked {
                let _ = wire::send(reply, &answer, &[]);
            }
        }
        let Some(outgrown) = outgrown else { return };
        let mut told = false;
        for client in self.clients.values().filter(|client| client.waits_for == Some(number)) {
            told |= wire::send(&client.socket, &Answer::Outgrown(outgrown), &[]).is_ok();
        }
        if !told && let Some(live) = self.sandboxes.get(&number) {
            end_commands(live);
        }
    }
}

/// What a sandbox uses, with what is known of its files.
fn usage(live: &Live, disk_bytes: Option<u64>) -> UsageNow {
    UsageNow { disk_bytes, ..live.usage() }
}
