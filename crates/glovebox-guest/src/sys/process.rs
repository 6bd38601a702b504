//! What a process of ours does to itself, for guests and for those who make them.

use std::{
    ffi::c_int,
    io,
    os::fd::{FromRawFd, OwnedFd, RawFd},
};

use rustix::process::Pid;

/// Which side of a fork this is.
#[derive(Debug)]
pub enum Forked {
    /// The new process.
    Child,
    /// The old one, with the new one's id and a descriptor that means it and never another.
    Parent {
        /// Its id.
        pid: Pid,
        /// Its descriptor.
        pidfd: OwnedFd,
    },
}

/// Forks with new namespaces, and with descriptors in common if the flags say so. The caller must be single-threaded: the child goes on in a copy of all memory, in which
/// a lock that another thread held would stay locked. It is `clone` and not `clone3`, which the filters of containers refuse
/// even to those who want no namespace, because they cannot look at its arguments.
pub fn fork_with(flags: u64) -> io::Result<Forked> {
    let mut pidfd: RawFd = -1;
    let flags = flags | (libc::CLONE_PIDFD | libc::SIGCHLD) as u64;
    // SAFETY: a fork-like clone without a stack of its own. The child continues here with a copy of the single-threaded
    // caller's memory. The kernel writes the descriptor, and nothing else, to the place that is given.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut pidfd, 0, 0) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        _ => {
            // SAFETY: the kernel stored a new descriptor here that nobody else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            let pid = Pid::from_raw(pid as c_int).expect("the kernel returned a process id");
            Ok(Forked::Parent { pid, pidfd })
        }
    }
}

/// Forks, where nobody needs a descriptor of the new process: a kernel without any can do that too. None is the new process. The
/// caller must be single-threaded, as for [`fork_with`].
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: a fork-like clone without a stack of its own, which goes on with a copy of the single-threaded caller's memory.
    match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid as c_int)),
    }
}

/// Reads one of the kernel's small files whole. Unlike an ordinary file it has no size to ask for, so this takes half the
/// calls that reading in growing pieces does.
pub fn read_small(path: impl AsRef<std::path::Path>) -> io::Result<String> {
    use rustix::fs::{Mode, OFlags};
    let file = rustix::fs::open(path.as_ref(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = vec![0; 8192];
    let mut length = 0;
    loop {
        if length == text.len() {
            text.resize(2 * length, 0);
        }
        match rustix::io::read(&file, &mut text[length..])? {
            0 => break,
            more => length += more,
        }
    }
    text.truncate(length);
    String::from_utf8(text).map_err(io::Error::other)
}

/// A field of a process's status file, by its whole name.
pub fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Ends this process at once, without running destructors or exit handlers of the process it was forked from.
pub fn exit_now(code: c_int) -> ! {
    // SAFETY: `_exit` is always sound.
    unsafe { libc::_exit(code) }
}

/// Closes every descriptor but the standard streams and those in the sorted list. A process that shares its descriptors with
/// the one it was forked from has its own from here on, and those above the last of the list are not even copied.
pub fn close_all_but(keep: &[RawFd]) -> io::Result<()> {
    let above = keep.last().map_or(3, |last| last + 1).max(3);
    close_range(above, c_int::MAX, libc::CLOSE_RANGE_UNSHARE as c_int)?;
    let mut from = 3;
    for &fd in keep {
        if fd > from {
            close_range(from, fd - 1, 0)?;
        }
        from = from.max(fd + 1);
    }
    Ok(())
}

fn close_range(first: RawFd, last: RawFd, flags: c_int) -> io::Result<()> {
    // SAFETY: the descriptors closed here have owners in this process only in values that are never dropped: a forked
    // process ends by `exit_now` and returns to no frame of the one it was forked from.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) })
}

/// Joins a new, empty session keyring.
pub fn new_session_keyring() -> io::Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: c_int = 1;
    // SAFETY: a null name asks for an anonymous keyring; nothing is read through it.
    check(unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<u8>()) })
}

/// Installs a seccomp filter on this process.
pub fn install_filter(program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the program, whose length is stated, before the call returns.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) })
}

/// Makes all file accesses of this process those of another user. Where a kernel knows no ids that are for files only, such as
/// gVisor's, its effective ids become theirs: its real and saved ones stay, by which it is told who may send it signals or look into it.
pub fn set_file_ids(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: plain numbers. Both calls return the former id and never fail, so the result is asked for again.
    let now = unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
        (libc::setfsuid(u32::MAX), libc::setfsgid(u32::MAX))
    };
    if now == (uid as c_int, gid as c_int) {
        return Ok(());
    }
    const SAME: u32 = u32::MAX;
    // SAFETY: plain numbers, for this process alone, which has one thread.
    check(unsafe { libc::syscall(libc::SYS_setresgid, SAME, gid, SAME) })?;
    // SAFETY: the same.
    check(unsafe { libc::syscall(libc::SYS_setresuid, SAME, uid, SAME) })
}

/// Leaves all further groups.
pub fn give_up_groups() -> io::Result<()> {
    // SAFETY: an empty list has no members to read.
    check(unsafe { libc::setgroups(0, std::ptr::null()) }.into())
}

/// Lets other processes of the same user look into this one, or keeps them from it.
pub fn set_dumpable(dumpable: bool) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, c_int::from(dumpable)) }.into())
}

/// Takes a capability out of the bounding set. Says whether the kernel knows it.
pub fn drop_from_bounding_set(capability: u32) -> io::Result<bool> {
    // SAFETY: plain numbers.
    match check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability as libc::c_ulong, 0, 0, 0) }.into()) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        other => other.map(|()| true),
    }
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let status = "CapBnd:\t0000\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        assert_eq!(status_field(status, "Seccomp"), Some("2"));
        assert_eq!(status_field(status, "Cap"), None);
    }
}
