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
//! what is in it, again and again, and tells when it has grown by more than the limit, and by which. A volume is held to a
//! size of its own in the same way.

mod processes;

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use glovebox_core::UsageNow;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{AtFlags, Dir, FileType, Mode, OFlags},
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
/// A tree that is larger or deeper than can be looked at counts as outgrown.
const MOST_ENTRIES: u64 = 1_000_000;
const DEEPEST: usize = 128;

/// What the disk watch says.
const OUTGROWN_BYTES: u8 = b'b';
pub(crate) const OUTGROWN_FILES: u8 = b'f';

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
        let mut all = vec![Written { places: folders, most: Size { bytes, entries } }];
        for (mount, most) in plan.written_volumes() {
            let places = vec![open(&mount.source)?];
            let bytes = size(&places)?.bytes.max(most);
            all.push(Written { places, most: Size { bytes, entries: MOST_ENTRIES } });
        }
        Ok(all)
    }

    /// What there is too much of, if anything.
    fn outgrown(&self) -> Option<u8> {
        match total(&self.places) {
            Some(size) if size.bytes > self.most.bytes => Some(OUTGROWN_BYTES),
            Some(size) if size.entries <= self.most.entries => None,
            _ => Some(OUTGROWN_FILES),
        }
    }
}

/// Starts a process that watches folders of the host which programs inside can write. The descriptor becomes readable
/// when they have grown by more than the disk limit. The process ends when its handle is dropped, or its launcher dies.
pub(crate) fn start_disk_watch(plan: &Plan) -> io::Result<(OwnedFd, KillOnDrop)> {
    start_disk_watch_over(open_written(plan)?, plan)
}

/// The same over these folders.
pub(crate) fn start_disk_watch_over(folders: Vec<OwnedFd>, plan: &Plan) -> io::Result<(OwnedFd, KillOnDrop)> {
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
                watch_folders(&written, &tell);
            }
            sys::exit_now(0)
        }
        Forked::Parent { pidfd, .. } => Ok((told, KillOnDrop::new(pidfd))),
    }
}

fn watch_folders(written: &[Written], tell: &OwnedFd) {
    // The pipe has an event only once nobody reads it any more.
    while poll(&mut [PollFd::new(tell, PollFlags::empty())], Some(&REST)) == Ok(0) {
        if let Some(outgrown) = written.iter().find_map(Written::outgrown) {
            let _ = rustix::io::write(tell, &[outgrown]);
            return;
        }
    }
}

/// What files and folders take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
}

impl Size {
    /// How many bytes tell a size.
    pub(crate) const BYTES: usize = 16;

    /// Both together.
    pub(crate) fn and(self, other: Size) -> Size {
        let bytes = self.bytes.saturating_add(other.bytes);
        Size { bytes, entries: self.entries.saturating_add(other.entries) }
    }

    /// The size for another process of the same program.
    pub(crate) fn to_bytes(self) -> [u8; Size::BYTES] {
        (u128::from(self.bytes) << 64 | u128::from(self.entries)).to_le_bytes()
    }

    /// A size that another process told.
    pub(crate) fn from_bytes(said: &[u8]) -> Self {
        let number = said.try_into().map_or(u128::MAX, u128::from_le_bytes);
        Size { bytes: (number >> 64) as u64, entries: number as u64 }
    }
}

/// What these files and folders take with all below them. No link is followed. Nothing when that is too much to look at.
pub(crate) fn total(places: &[OwnedFd]) -> Option<Size> {
    let mut size = Size::default();
    for place in places {
        let Ok(stat) = rustix::fs::fstat(place) else { continue };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            size.bytes += stat.st_blocks as u64 * 512;
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(folder) = rustix::fs::openat(place, ".", flags, Mode::empty()) {
            add_below(&folder, 0, &mut size)?;
        }
    }
    Some(size)
}

fn add_below(folder: &OwnedFd, depth: usize, size: &mut Size) -> Option<()> {
    let Ok(entries) = Dir::read_from(folder) else { return Some(()) };
    for entry in entries.flatten() {
        if [c".", c".."].contains(&entry.file_name()) {
            continue;
        }
        let Ok(stat) = rustix::fs::statat(folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
        size.bytes += stat.st_blocks as u64 * 512;
        size.entries += 1;
        if size.entries > MOST_ENTRIES {
            return None;
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            if depth >= DEEPEST {
                return None;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if let Ok(inner) = rustix::fs::openat(folder, entry.file_name(), flags, Mode::empty()) {
                add_below(&inner, depth + 1, size)?;
            }
        }
    }
    Some(())
}
