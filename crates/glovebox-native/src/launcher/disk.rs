//! The watch over the disk of a living sandbox, and what its users are told of it.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use glovebox_core::{Outgrown, RunId, SandboxId, UsageNow};
use rustix::event::epoll;

use super::{DISK, KIND_BITS, Launcher, blame::Writers, keeping::Client, live::Live, watch_for};
use crate::{
    plan::{Answer, Plan},
    store,
    sys::{self, Forked, KillOnDrop},
    watch::{self, Size, Written},
    wire,
};

/// How long a keeper rests between two looks at the disk while something runs. What was seen is true for as long.
const DISK_REST: Duration = Duration::from_millis(250);
/// How many can wait for a look at one time.
const MOST_ASKED: usize = 64;

/// The watch over the disk of one living sandbox, and over the volumes that it can write.
pub(super) struct Disk {
    /// Folders of the host that can be written in place, to which the store adds; then each volume.
    written: Vec<Written>,
    /// What was in each the last time.
    sizes: Vec<Size>,
    /// What the store alone held then; nothing when that was too much to look at.
    last: Option<u64>,
    pub(super) looking: Option<(OwnedFd, KillOnDrop)>,
    pub(super) next: Option<Instant>,
    /// Whether something has run since the last look.
    pub(super) has_run: bool,
    /// How many looks there have been.
    looks: usize,
    /// Who wrote since the last one.
    pub(super) writers: Writers,
    /// Who waits for the look that is under way, to hear what the sandbox uses.
    asked: Vec<OwnedFd>,
    /// Who asked after that look began, and is told what the next one finds.
    late: Vec<OwnedFd>,
}

impl Disk {
    pub(super) fn of(plan: &Plan) -> io::Result<Self> {
        let written = Written::all(watch::open_written(plan)?, plan)?;
        // What is in the store is not known yet, and its folders count with it.
        let volumes = written.iter().skip(1).map(|volume| volume.before);
        let sizes = [Size::default()].into_iter().chain(volumes).collect();
        Ok(Disk {
            written,
            sizes,
            last: None,
            looking: None,
            next: None,
            has_run: false,
            looks: 0,
            writers: Writers::default(),
            asked: Vec::new(),
            late: Vec::new(),
        })
    }

    /// Something has run. Says when what it left is looked at.
    pub(super) fn note_run(&mut self) -> Instant {
        self.has_run = true;
        *self.next.get_or_insert_with(|| Instant::now() + DISK_REST)
    }

    /// Has a child add up what is in the store and in all else that is written, so that the keeper can go on meanwhile. These
    /// processes may have deleted files open.
    pub(super) fn begin_look(&mut self, store: &OwnedFd, processes: &[i32]) -> io::Result<&OwnedFd> {
        let (told, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let keeper = rustix::process::getpid();
        self.looks += 1;
        match sys::fork_with(0)? {
            Forked::Child => {
                sys::set_name("glovebox-watch");
                let places = self.written.iter().flat_map(|written| &written.places);
                let mut keep: Vec<_> = places.chain([store, &tell]).map(AsRawFd::as_raw_fd).collect();
                keep.sort_unstable();
                if sys::die_with(keeper).and_then(|()| sys::close_all_but(&keep)).is_ok() {
                    // A tree that is too much to look at is too much.
                    let in_store = watch::total(std::slice::from_ref(store)).unwrap_or(Size::TOO_MUCH);
                    let written = Written::look(&self.written, Some(store), processes, self.looks);
                    let said: Vec<u8> = [in_store].into_iter().chain(written).flat_map(Size::to_bytes).collect();
                    let _ = rustix::io::write(&tell, &said);
                }
                sys::exit_now(0)
            }
            Forked::Parent { pidfd, .. } => Ok(&self.looking.insert((told, KillOnDrop::new(pidfd))).0),
        }
    }

    /// Hears what the child found. Says what there is too much of, and by how many bytes it grew: whoever makes room is let.
    fn end_look(&mut self) -> Option<(Outgrown, u64)> {
        let (told, child) = self.looking.take()?;
        let mut said = vec![0; (1 + self.written.len()) * Size::BYTES];
        let heard = rustix::io::read(&told, &mut said[..]) == Ok(said.len());
        // It has said all that it had to say. Whoever is told next must not find it any more.
        drop(child);
        self.next = Some(Instant::now() + DISK_REST);
        if !heard {
            return None;
        }
        let mut sizes = said.chunks_exact(Size::BYTES).map(Size::from_bytes);
        let store = sizes.next().unwrap_or_default();
        self.last = Some(store.bytes).filter(|bytes| *bytes < u64::MAX);
        let own = sizes.next().unwrap_or_default().and(store);
        let mut outgrown = None;
        for ((written, last), now) in self.written.iter().zip(&mut self.sizes).zip([own].into_iter().chain(sizes)) {
            let last = std::mem::replace(last, now);
            // Whoever makes room, or does nothing, is let; a tree that cannot be looked at counts as growing.
            let grown = |now: u64, last: u64| if now > last || now == u64::MAX { now } else { 0 };
            let grown = Size { bytes: grown(now.bytes, last.bytes), entries: grown(now.entries, last.entries) };
            let more = now.bytes.saturating_sub(last.bytes);
            outgrown = outgrown.or(written.outgrown(grown).map(|outgrown| (outgrown, more)));
        }
        outgrown
    }
}

impl Launcher {
    /// Somebody follows a run in a sandbox, and wants to know when the disk limit is passed.
    pub(super) fn wait_for_disk(&mut self, id: SandboxId, run: Option<RunId>, reply: OwnedFd) {
        let Some((number, live)) = self.find_living(id) else { return };
        if let Some(memory) = &mut live.memory {
            memory.wake();
        }
        if let Some(kept) = &mut live.living {
            kept.disk.next.get_or_insert_with(Instant::now);
            kept.due = Instant::now();
        }
        self.add_client(Client { socket: reply, waits_for: Some(number), run });
    }

    /// Somebody wants to know what a sandbox uses. The files of a living one are looked at first: what was seen before may be
    /// from the middle of a run that is over.
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
        if disk.late.len() < MOST_ASKED {
            disk.late.push(reply);
            self.look_for_the_late(number);
            return;
        }
        let store = disk.last;
        let _ = wire::send(reply, &Answer::Usage(usage(live, store)), &[]);
    }

    /// Begins a look for those who ask what a sandbox uses, unless one is under way. Where none can be made, they are told what
    /// was seen last.
    fn look_for_the_late(&mut self, number: u64) {
        let Some(live) = self.sandboxes.get_mut(&number) else { return };
        let processes = live.commands();
        let Some(kept) = &mut live.living else { return };
        let disk = &mut kept.disk;
        if disk.looking.is_some() || disk.late.is_empty() {
            return;
        }
        let late = std::mem::take(&mut disk.late);
        let begun = disk.begin_look(&live.store, &processes);
        if begun.is_ok_and(|told| watch_for(&self.events, told, number << KIND_BITS | DISK).is_ok()) {
            disk.asked = late;
            return;
        }
        let store = disk.last;
        let answer = Answer::Usage(usage(live, store));
        for reply in late {
            let _ = wire::send(reply, &answer, &[]);
        }
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
        let (asked, store) = (std::mem::take(&mut kept.disk.asked), kept.disk.last);
        if !asked.is_empty() {
            let answer = Answer::Usage(usage(live, store));
            for reply in asked {
                let _ = wire::send(reply, &answer, &[]);
            }
        }
        self.look_for_the_late(number);
        self.tell_who_outgrew(number, outgrown);
    }
}

/// What a sandbox uses, with what is known of its files.
fn usage(live: &Live, disk_bytes: Option<u64>) -> UsageNow {
    UsageNow { disk_bytes, ..live.usage() }
}
