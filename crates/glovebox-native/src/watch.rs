//! Watches over limits that no single kernel setting holds.
//!
//! Memory. Files that are written inside live in memory and are counted in the commands' group, whose hard limit is
//! therefore memory + disk. The programs' own share is what is in use, less the store, less cache that the kernel can
//! take back. The share is looked at when it could next have reached the limit, given how fast memory can be touched;
//! once it is over, the hard limit is lowered to what is in use, so that the next page makes the kernel choose a victim
//! and count it. The kernel's own notices of crossed thresholds are not used: asking for one waits for a grace period,
//! which costs more than the rest of a short run.
//!
//! Memory without groups. An ordinary user may have no control group. Then a resource limit bounds the data of each
//! process, and a watch adds up what all of them have touched; when that is over the limit, it ends the largest one, as the
//! kernel would. What is written to memory files that nobody has mapped is not seen by it.
//!
//! Disk. A workspace or mount that is written in place lies on a file system of the host. A small process adds up
//! what is in it, again and again, and tells when it has grown by more than the limit, and by which.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{AtFlags, Dir, FileType, Mode, OFlags},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

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

/// The processes of a sandbox that no group holds, and what was seen of them.
struct Processes {
    guest: Pid,
    memory_peak: u64,
    processes_peak: u64,
    kills: u64,
}

impl MemoryWatch {
    /// Starts a watch over a group that is still empty.
    pub(crate) fn over_group(files: MemoryFiles, limit: u64) -> Self {
        MemoryWatch { over: Watched::Group(files), limit, next: Some(Instant::now() + pause(limit)) }
    }

    /// Starts a watch over the descendants of a guest.
    pub(crate) fn over_processes(guest: Pid, limit: u64) -> Self {
        let processes = Processes { guest, memory_peak: 0, processes_peak: 0, kills: 0 };
        MemoryWatch { over: Watched::Processes(processes), limit, next: Some(Instant::now() + SOONEST) }
    }

    /// Adds to what groups counted what the watch saw where there are none.
    pub(crate) fn complete(&self, counted: &mut Counted) {
        if let Watched::Processes(seen) = &self.over {
            counted.memory_peak = seen.memory_peak;
            counted.watcher_kills = seen.kills;
            counted.processes_peak = counted.processes_peak.max(seen.processes_peak);
            if counted.cpu_ms == 0.0 {
                counted.cpu_ms = cpu_of_reaped(seen.guest);
            }
        }
    }

    /// Looks soon, because something is about to run.
    pub(crate) fn wake(&mut self) {
        self.next = self.next.map(|_| Instant::now() + SOONEST);
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
        let latest = if matches!(self.over, Watched::Group(_)) { LATEST } else { LATEST_OF_PROCESSES };
        self.next = Some(Instant::now() + pause(self.limit - share).min(latest));
        Ok(())
    }
}

/// Processes come and go, so they are looked at more often than a group.
const LATEST_OF_PROCESSES: Duration = Duration::from_millis(25);

impl Processes {
    /// Adds up what the processes have touched, and ends the largest one if that is over a limit.
    fn hold_to(&mut self, limit: u64) -> u64 {
        let mut found = Vec::new();
        descendants(self.guest.as_raw_nonzero().get(), &mut found);
        let sizes: Vec<(i32, Touched)> = found.iter().filter_map(|pid| Some((*pid, Touched::of(*pid)?))).collect();
        let threads: u64 = sizes.iter().map(|(_, touched)| touched.threads).sum();
        // What is shared is counted once, as large as the one that sees most of it.
        let shared = sizes.iter().map(|(_, touched)| touched.shared).max().unwrap_or(0);
        let total = sizes.iter().map(|(_, touched)| touched.own).sum::<u64>() + shared;
        // The zygote is among them, and none of the program's.
        self.processes_peak = self.processes_peak.max(threads.saturating_sub(1));
        self.memory_peak = self.memory_peak.max(total);
        if total > limit
            && let Some((pid, _)) = sizes.iter().max_by_key(|(_, touched)| touched.own + touched.shared)
            && self.end(*pid)
        {
            self.kills += 1;
        }
        total
    }

    /// Ends a process that is still one of ours once a descriptor of it is open.
    fn end(&self, pid: i32) -> bool {
        let Some(process) = Pid::from_raw(pid) else { return false };
        let Ok(handle) = pidfd_open(process, PidfdFlags::empty()) else { return false };
        let mut found = Vec::new();
        descendants(self.guest.as_raw_nonzero().get(), &mut found);
        found.contains(&pid) && pidfd_send_signal(&handle, Signal::KILL).is_ok()
    }
}

/// What a process has touched, bytes.
struct Touched {
    own: u64,
    shared: u64,
    threads: u64,
}

impl Touched {
    fn of(pid: i32) -> Option<Self> {
        let status = sys::read_small(format!("/proc/{pid}/status")).ok()?;
        let number = |name: &str| {
            let field = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            field.and_then(|text| text.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        Some(Touched { own: number("RssAnon") * 1024, shared: number("RssShmem") * 1024, threads: number("Threads") })
    }
}

/// No sandbox has more processes than can be looked at.
const MOST_PROCESSES: usize = 10_000;

/// The processes below one, host ids.
pub(crate) fn descendants(pid: i32, found: &mut Vec<i32>) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for task in tasks {
        let children = sys::read_small(task.path().join("children")).unwrap_or_default();
        for child in children.split_ascii_whitespace().filter_map(|word| word.parse().ok()) {
            if found.len() < MOST_PROCESSES && !found.contains(&child) {
                found.push(child);
                descendants(child, found);
            }
        }
    }
}

/// In what the kernel shows CPU time, on every architecture that Linux has today.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU time of all processes that one has waited for, milliseconds.
fn cpu_of_reaped(guest: Pid) -> f64 {
    let stat = sys::read_small(format!("/proc/{}/stat", guest.as_raw_nonzero())).unwrap_or_default();
    let Some((_, fields)) = stat.rsplit_once(") ") else { return 0.0 };
    // Fields 16 and 17 of proc(5); the field after the name is the third.
    let ticks: u64 = fields.split(' ').skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 * 1000.0 / TICKS_PER_SECOND
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
    let open = |source: &str| rustix::fs::open(source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    Ok(plan.written_folders().into_iter().map(open).collect::<Result<_, _>>()?)
}

/// Starts a process that watches folders of the host which programs inside can write. The descriptor becomes readable
/// when they have grown by more than the disk limit. The process ends when its handle is dropped, or its launcher dies.
pub(crate) fn start_disk_watch(plan: &Plan) -> io::Result<(OwnedFd, KillOnDrop)> {
    start_disk_watch_over(open_written(plan)?, plan)
}

/// The same over these folders.
pub(crate) fn start_disk_watch_over(folders: Vec<OwnedFd>, plan: &Plan) -> io::Result<(OwnedFd, KillOnDrop)> {
    let before = total(&folders).ok_or_else(|| io::Error::from(rustix::io::Errno::FBIG))?;
    let most =
        Size { bytes: before.bytes.saturating_add(plan.disk), entries: before.entries.saturating_add(plan.inodes) };
    let (tell, told) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map(|(r, w)| (w, r))?;
    match sys::fork_with(0)? {
        Forked::Child => {
            drop(told);
            sys::set_name("glovebox-watch");
            let mut keep: Vec<_> = folders.iter().chain([&tell]).map(AsRawFd::as_raw_fd).collect();
            keep.sort_unstable();
            if sys::die_with_parent().and_then(|()| sys::close_all_but(&keep)).is_ok() {
                watch_folders(&folders, most, &tell);
            }
            sys::exit_now(0)
        }
        Forked::Parent { pidfd, .. } => Ok((told, KillOnDrop::new(pidfd))),
    }
}

fn watch_folders(folders: &[OwnedFd], most: Size, tell: &OwnedFd) {
    // The pipe has an event only once nobody reads it any more.
    while poll(&mut [PollFd::new(tell, PollFlags::empty())], Some(&REST)) == Ok(0) {
        let outgrown = match total(folders) {
            Some(size) if size.bytes > most.bytes => OUTGROWN_BYTES,
            Some(size) if size.entries <= most.entries => continue,
            _ => OUTGROWN_FILES,
        };
        let _ = rustix::io::write(tell, &[outgrown]);
        return;
    }
}

/// What files and folders take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
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
