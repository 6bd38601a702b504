//! Changing modes and times of files for commands that share the id of their caller.
//!
//! Theory of operation. The kernel lets every owner of a file change its mode and times, and Landlock is not asked. Where
//! commands have the caller's own id, they could so change every file of the caller. So these calls are not made by the
//! commands: a seccomp filter hands them to the guest, which finds the file as the command would, makes sure that it lies
//! in a folder that the commands may write, and changes it through the very descriptor it looked at. What the command does
//! to its memory or its folders meanwhile changes nothing.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    path::PathBuf,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, openat2},
    io::Errno,
};

use crate::sys::{self, Notice};

/// The longest path that the kernel takes.
const LONGEST: usize = 4096;
const PAGE: u64 = 4096;
/// fchmodat2, which the libc crate does not name yet.
const FCHMODAT2: i64 = 452;

/// Answers commands for as long as the guest lives. Must be called where local tasks can be spawned.
pub fn serve_attributes(listener: OwnedFd, folders: Vec<String>) {
    tokio::task::spawn_local(async move {
        let folders: Vec<PathBuf> = folders.into_iter().map(PathBuf::from).collect();
        let Ok(listener) = sys::register(listener) else { return };
        loop {
            let Ok(mut ready) = listener.readable().await else { return };
            ready.clear_ready();
            drop(ready);
            // The runtime tells of news once, and several calls may wait by now.
            while is_waiting(listener.get_ref()) {
                // One that was taken back meanwhile is an error, and nobody waits for its answer.
                if let Ok(notice) = sys::next_notice(listener.get_ref()) {
                    let done = change(listener.get_ref(), &notice, &folders);
                    sys::answer_notice(listener.get_ref(), notice.id, done.err().unwrap_or(0));
                }
                tokio::task::yield_now().await;
            }
        }
    });
}

/// Whether a call waits to be taken.
fn is_waiting(listener: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    let now = rustix::event::Timespec::default();
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::IN)
}

/// What a call wants changed.
enum Wanted {
    Mode(u32),
    Times(Timestamps),
}

/// How a call names its file.
enum Named {
    /// By a descriptor.
    Descriptor(i32),
    /// By a path, from a folder; the flag says whether a link at its end is followed.
    Path(i32, Vec<u8>, bool),
}

fn change(listener: &OwnedFd, notice: &Notice, folders: &[PathBuf]) -> Result<(), i32> {
    let (named, wanted) = read_call(notice)?;
    let file = open(notice.pid, named)?;
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let place = rustix::fs::readlink(&own, Vec::new()).map_err(Errno::raw_os_error)?;
    let place = PathBuf::from(OsStr::from_bytes(place.as_bytes()));
    if !folders.iter().any(|folder| place.starts_with(folder)) {
        return Err(libc::EPERM);
    }
    // Only now: as long as the call still waits, the process id has meant its process all the time.
    if !sys::notice_waits(listener, notice.id) {
        return Err(libc::EINTR);
    }
    let done = match wanted {
        Wanted::Mode(mode) => {
            let kind = FileType::from_raw_mode(rustix::fs::fstat(&file).map_err(Errno::raw_os_error)?.st_mode);
            match kind {
                FileType::Symlink => Err(Errno::OPNOTSUPP),
                // A folder that its owner may not look into would be hidden from the watch over the disk limit.
                FileType::Directory if mode & 0o700 != 0o700 => Err(Errno::PERM),
                _ => rustix::fs::chmod(&own, Mode::from_raw_mode(mode & 0o1777)),
            }
        }
        Wanted::Times(times) => rustix::fs::utimensat(CWD, &own, &times, AtFlags::empty()),
    };
    done.map_err(Errno::raw_os_error)
}

/// Reads what a call asks for, from its arguments and the memory of the process.
fn read_call(notice: &Notice) -> Result<(Named, Wanted), i32> {
    let memory = File::open(format!("/proc/{}/mem", notice.pid)).map_err(|_| libc::EPERM)?;
    let argument = |number: usize| notice.arguments[number];
    let text = |number: usize| read_text(&memory, argument(number));
    let flag = |number: usize, flag: i32| argument(number) as i32 & flag != 0;
    let at = |number: usize| argument(number) as i32;
    let mode = |number: usize| Wanted::Mode(argument(number) as u32);
    let times = |number: usize, unit: Unit| read_times(&memory, argument(number), unit).map(Wanted::Times);
    let path = |folder: i32, path: Vec<u8>, follow: bool| Named::Path(folder, path, follow);
    // Without a path, the descriptor itself is meant.
    let path_or_descriptor = |number: usize, follow: bool| -> Result<Named, i32> {
        Ok(if argument(number) == 0 { Named::Descriptor(at(0)) } else { path(at(0), text(number)?, follow) })
    };
    Ok(match notice.number {
        libc::SYS_chmod => (path(libc::AT_FDCWD, text(0)?, true), mode(1)),
        libc::SYS_fchmod => (Named::Descriptor(at(0)), mode(1)),
        libc::SYS_fchmodat => (path(at(0), text(1)?, true), mode(2)),
        FCHMODAT2 if flag(3, libc::AT_EMPTY_PATH) && text(1)?.is_empty() => (Named::Descriptor(at(0)), mode(2)),
        FCHMODAT2 => (path(at(0), text(1)?, !flag(3, libc::AT_SYMLINK_NOFOLLOW)), mode(2)),
        libc::SYS_utime => (path(libc::AT_FDCWD, text(0)?, true), times(1, Unit::Seconds)?),
        libc::SYS_utimes => (path(libc::AT_FDCWD, text(0)?, true), times(1, Unit::Microseconds)?),
        libc::SYS_futimesat => (path_or_descriptor(1, true)?, times(2, Unit::Microseconds)?),
        libc::SYS_utimensat => {
            let named = path_or_descriptor(1, !flag(3, libc::AT_SYMLINK_NOFOLLOW))?;
            (named, times(2, Unit::Nanoseconds)?)
        }
        _ => return Err(libc::ENOSYS),
    })
}

/// What the second number of a time counts.
#[derive(Clone, Copy)]
enum Unit {
    Seconds,
    Microseconds,
    Nanoseconds,
}

fn read_times(memory: &File, address: u64, unit: Unit) -> Result<Timestamps, i32> {
    if address == 0 {
        let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        return Ok(Timestamps { last_access: now, last_modification: now });
    }
    let mut bytes = [0; 32];
    let length = if matches!(unit, Unit::Seconds) { 16 } else { 32 };
    memory.read_exact_at(&mut bytes[..length], address).map_err(|_| libc::EFAULT)?;
    let number = |i: usize| i64::from_ne_bytes(bytes[8 * i..8 * i + 8].try_into().expect("eight bytes"));
    let time = |seconds: i64, part: i64| Timespec { tv_sec: seconds, tv_nsec: part };
    let (last_access, last_modification) = match unit {
        Unit::Seconds => (time(number(0), 0), time(number(1), 0)),
        Unit::Microseconds => {
            let nanoseconds = |part: i64| part.checked_mul(1000).ok_or(libc::EINVAL);
            (time(number(0), nanoseconds(number(1))?), time(number(2), nanoseconds(number(3))?))
        }
        Unit::Nanoseconds => (time(number(0), number(1)), time(number(2), number(3))),
    };
    Ok(Timestamps { last_access, last_modification })
}

/// Reads a text that ends with NUL, page by page, because the next one may not be there.
fn read_text(memory: &File, mut address: u64) -> Result<Vec<u8>, i32> {
    let mut text = Vec::new();
    while text.len() < LONGEST {
        let mut piece = vec![0; (PAGE - address % PAGE) as usize];
        let length = memory.read_at(&mut piece, address).map_err(|_| libc::EFAULT)?;
        if length == 0 {
            return Err(libc::EFAULT);
        }
        piece.truncate(length);
        if let Some(end) = piece.iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&piece[..end]);
            return Ok(text);
        }
        text.extend(piece);
        address = address.checked_add(length as u64).ok_or(libc::EFAULT)?;
    }
    Err(libc::ENAMETOOLONG)
}

/// Opens the file that a process means, without any right to read or write it.
fn open(pid: i32, named: Named) -> Result<OwnedFd, i32> {
    let errno = |error: io::Error| error.raw_os_error().unwrap_or(libc::EIO);
    let of_process = |name: &str| -> io::Result<OwnedFd> {
        Ok(rustix::fs::open(format!("/proc/{pid}/{name}"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
    };
    let (folder, path, follow) = match named {
        Named::Descriptor(number) => return of_process(&format!("fd/{number}")).map_err(|_| libc::EBADF),
        Named::Path(folder, path, follow) => (folder, path, follow),
    };
    if path.is_empty() {
        return Err(libc::ENOENT);
    }
    let start = match folder {
        _ if path.starts_with(b"/") => of_process("root"),
        libc::AT_FDCWD => of_process("cwd"),
        number => of_process(&format!("fd/{number}")),
    };
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    flags.set(OFlags::NOFOLLOW, !follow);
    // Links of /proc would lead to what they mean for the guest.
    let opened =
        openat2(start.map_err(errno)?, OsStr::from_bytes(&path), flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
    opened.map_err(Errno::raw_os_error)
}
