//! Watches over limits that no single kernel setting holds.
//!
//! Memory. Files that are written inside live in memory and are counted in the commands' group, whose hard limit is
//! therefore memory + disk. The programs' own share is what is in use, less the store, less cache that the kernel can
//! take back. The share is looked at when it could next have reached the limit, given how fast memory can be touched;
//! once it is over, the hard limit is lowered to what is in use, so that the next page makes the kernel choose a victim
//! and count it. The kernel's own notices of crossed thresholds are not used: asking for one waits for a grace period,
//! which costs more than the rest of a short run.
//!
//! Memory without groups: see `processes`.
//!
//! Disk. A workspace or mount that is written in place lies on a file system of the host. A small process adds up
//! what is in it, again and again, and what was deleted in it and is still open, and tells when it has grown by more than the
//! limit, and by which. A volume is held to a size of its own in the same way.

mod processes;

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use glovebox_archive::taken::{self, MOST_ENTRIES};
pub(crate) use glovebox_archive::taken::{Size, total};
use glovebox_core::{Outgrown, UsageNow};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
    process::Pid,
};

use processes::Processes;
pub(crate) use processes::descendants;

use crate::{
    cgroup::MemoryFiles,
    plan::{Counted, Plan},
    store,
    sys::{self, Forked, KillOnDrop},
};

/// No machine touches new memory faster than this, in bytes a millisecond.
const FASTEST: u64 = 8 << 20;
/// Looks are never closer together, nor further apart.
const SOONEST: Duration = Duration::from_millis(2);
const LATEST: Duration = Duration::from_secs(1);

/// A watch over the memory of one sandbox.
pub(crate) struct MemoryWatch {
    over: Watched,
    limit: u64,
    next: Option<Instant>,
}

enum Watched {
    Group(MemoryFiles),
    Processes(Processes),
}

impl MemoryWatch {
    /// Starts a watch over a group that is still empty.
    pub(crate) fn over_group(files: MemoryFiles, limit: u64) -> Self {
        MemoryWatch { over: Watched::Group(files), limit, next: Some(Instant::now() + pause(limit)) }
    }

    /// Starts a watch over the descendants of a guest.
    pub(crate) fn over_processes(guest: Pid, limit: u64) -> Self {
        MemoryWatch { over: Watched::Processes(Processes::of(guest)), limit, next: Some(Instant::now() + SOONEST) }
    }

    /// Adds to what groups counted what the watch saw where there are none.
    pub(crate) fn complete(&self, counted: &mut Counted) {
        if let Watched::Processes(seen) = &self.over {
            seen.complete(counted);
        }
    }

    /// Adds to what groups say of this moment what is seen of the processes where there are none.
    pub(crate) fn complete_now(&self, now: &mut UsageNow) {
        if let Watched::Processes(seen) = &self.over {
            seen.complete_now(now);
        }
    }

    /// Looks late, because nothing runs.
    pub(crate) fn rest(&mut self) {
        self.next = self.next.map(|_| Instant::now() + LATEST);
    }

    /// Looks at once, because something runs.
    pub(crate) fn wake(&mut self) {
        self.next = self.next.map(|_| Instant::now());
    }

    /// When to look next; never again once the limit was lowered.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Looks.
    pub(crate) fn look(&mut self, store: BorrowedFd<'_>) -> io::Result<()> {
        self.next = None;
        let share = match &mut self.over {
            Watched::Processes(processes) => processes.hold_to(self.limit).min(self.limit),
            Watched::Group(files) => {
                let stored = store::fullness(store)?.used_bytes;
                let mut share = files.usage()?.saturating_sub(stored);
                if share > self.limit {
                    share = share.saturating_sub(files.cache()?);
                }
                if share > self.limit {
                    return files.clamp();
                }
                share
            }
        };
        let latest = if matches!(self.over, Watched::Group(_)) { LATEST } else { processes::LATEST };
        self.next = Some(Instant::now() + pause(self.limit - share).min(latest));
        Ok(())
    }
}

/// How long it takes at least to touch this much memory.
fn pause(bytes: u64) -> Duration {
    Duration::from_millis(bytes / FASTEST).clamp(SOONEST, LATEST)
}

/// How long the disk watch rests between two looks.
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// No word of the disk watch is longer: what the kernel writes to a pipe in one piece.
pub(crate) const LONGEST_WORD: usize = 4096;

/// Opens the folders of the host that programs inside can write in place.
pub(crate) fn open_written(plan: &Plan) -> io::Result<Vec<OwnedFd>> {
    Ok(plan.written_folders().into_iter().map(open).collect::<Result<_, _>>()?)
}

fn open(source: &str) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Folders that programs inside can write in place, and how much may be in them.
pub(crate) struct Written {
    pub(crate) places: Vec<OwnedFd>,
    pub(crate) most: Size,
    /// What was in it before.
    pub(crate) before: Size,
    /// The volume that it is.
    volume: Option<Volume>,
}

/// A volume as a sandbox has it.
struct Volume {
    /// Its path inside.
    target: String,
    /// How much it may hold.
    bytes: u64,
}

impl Written {
    /// What a sandbox is held to: first these folders, in which only what is new counts; then each volume. A volume that is
    /// full already may not grow any more.
    pub(crate) fn all(folders: Vec<OwnedFd>, plan: &Plan) -> io::Result<Vec<Written>> {
        let size = |places: &[OwnedFd]| match total(places) {
            Some(size) => Ok(size),
            // A living sandbox must be kept whatever is in its folders; its next look finds that it is too much.
            None if plan.living.is_some() => Ok(Size::default()),
            None => Err(io::Error::from(rustix::io::Errno::FBIG)),
        };
        let before = size(&folders)?;
        let (bytes, entries) = (before.bytes.saturating_add(plan.disk), before.entries.saturating_add(plan.inodes));
        let mut all = vec![Written { places: folders, most: Size { bytes, entries }, before, volume: None }];
        for (mount, most) in plan.written_volumes() {
            let places = vec![open(&mount.source)?];
            let before = size(&places)?;
            let bytes = before.bytes.max(most);
            let volume = Some(Volume { target: mount.target.clone(), bytes: most });
            all.push(Written { places, most: Size { bytes, entries: MOST_ENTRIES }, before, volume });
        }
        Ok(all)
    }

    /// What is in each of them now, with what these processes have open of it that was deleted. The store is one more of the places
    /// of the first, where there is one.
    pub(crate) fn look(all: &[Written], store: Option<&OwnedFd>, processes: &[i32], turn: usize) -> Vec<Size> {
        let device = |place: BorrowedFd<'_>| rustix::fs::fstat(place).map(|stat| stat.st_dev).ok();
        let places: Vec<_> = all
            .iter()
            .map(|written| {
                let store = store.filter(|_| written.volume.is_none());
                let target = written.volume.as_ref().map(|volume| volume.target.as_str());
                let devices = written.places.iter().chain(store).filter_map(|place| device(place.as_fd())).collect();
                taken::Place { target, devices }
            })
            .collect();
        let deleted = taken::find(processes, &places, turn);
        let named = all.iter().map(|written| total(&written.places).unwrap_or(Size::TOO_MUCH));
        named.zip(deleted).map(|(named, deleted)| named.and(deleted)).collect()
    }

    /// What there is too much of, if anything.
    pub(crate) fn outgrown(&self, now: Size) -> Option<Outgrown> {
        let is_full = now.bytes > self.most.bytes || now.entries > self.most.entries;
        match &self.volume {
            _ if !is_full => None,
            Some(Volume { target, bytes }) => Some(Outgrown::Volume { target: target.clone(), bytes: *bytes }),
            None if now.bytes > self.most.bytes && now.bytes < u64::MAX => Some(Outgrown::Bytes),
            None => Some(Outgrown::Files),
        }
    }
}

/// Starts a process that watches folders of the host which programs inside can write. The descriptor becomes readable
/// when they have grown by more than the disk limit. The process ends when its handle is dropped, or its launcher dies.
pub(crate) fn start_disk_watch(plan: &Plan, guest: Pid) -> io::Result<(OwnedFd, KillOnDrop)> {
    start_disk_watch_over(open_written(plan)?, plan, Some(guest))
}

/// The same over these folders. Without a guest, what was deleted and is open is not seen.
pub(crate) fn start_disk_watch_over(
    folders: Vec<OwnedFd>,
    plan: &Plan,
    guest: Option<Pid>,
) -> io::Result<(OwnedFd, KillOnDrop)> {
    let written = Written::all(folders, plan)?;
    let (tell, told) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map(|(r, w)| (w, r))?;
    let launcher = rustix::process::getpid();
    match sys::fork_with(0)? {
        Forked::Child => {
            drop(told);
            sys::set_name("glovebox-watch");
            let places = written.iter().flat_map(|written| &written.places);
            let mut keep: Vec<_> = places.chain([&tell]).map(AsRawFd::as_raw_fd).collect();
            keep.sort_unstable();
            if sys::die_with(launcher).and_then(|()| sys::close_all_but(&keep)).is_ok() {
                watch_folders(&written, guest, &tell);
            }
            sys::exit_now(0)
        }
        Forked::Parent { pidfd, .. } => Ok((told, KillOnDrop::new(pidfd))),
    }
}

fn watch_folders(written: &[Written], guest: Option<Pid>, tell: &OwnedFd) {
    // The pipe has an event only once nobody reads it any more.
    for turn in 0.. {
        if poll(&mut [PollFd::new(tell, PollFlags::empty())], Some(&REST)) != Ok(0) {
            return;
        }
        let mut processes = Vec::new();
        if let Some(guest) = guest {
            descendants(guest.as_raw_nonzero().get(), &mut processes);
        }
        let sizes = Written::look(written, None, &processes, turn);
        let outgrown = written.iter().zip(sizes).find_map(|(written, now)| written.outgrown(now));
        if let Some(said) = outgrown.and_then(|outgrown| serde_json::to_vec(&outgrown).ok()) {
            let _ = rustix::io::write(tell, &said);
            return;
        }
    }
}
