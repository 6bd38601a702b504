//! System calls that no crate of the field wraps. All `unsafe` of the native backend is below this folder.
#![allow(unsafe_code)]

mod cpus;

use std::{
    ffi::c_int,
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd},
};

use rustix::process::Pid;
use tokio::io::{Interest, unix::AsyncFd};

pub(crate) use cpus::{allow_all_cpus, fork_aside, give_way, let_others_go_first, schedule_as_usual, send_elsewhere};
pub(crate) use glovebox_guest::sys::{
    Forked, Sealed, allow_devices, clean_slate, close_all_but, exit_now, fork_with, give_up_groups, install_filter,
    new_session_keyring, read_small, seal_tree, set_dumpable, set_file_ids, set_name, shift_owners, status_field,
};

/// Descriptors that are kept for long have at least this number.
const KEPT_FROM: RawFd = 64;

/// Forks as [`fork_with`], in the name of another user: new user namespaces are charged to that one. The caller must be root.
pub(crate) fn fork_charged_to(user: u32, flags: u64) -> io::Result<Forked> {
    let capabilities = rustix::thread::capabilities(None)?;
    set_user_ids(user, user, 0)?;
    // Another user has none of them in force, and a host may want to see them before it makes a namespace.
    let forked =
        rustix::thread::set_capabilities(None, capabilities).map_err(io::Error::from).and_then(|()| fork_with(flags));
    match forked {
        Ok(Forked::Child) => Ok(Forked::Child),
        Ok(Forked::Parent { pid, pidfd }) => {
            let guard = KillOnDrop::new(pidfd);
            set_user_ids(0, 0, 0)?;
            Ok(Forked::Parent { pid, pidfd: guard.keep() })
        }
        Err(error) => {
            set_user_ids(0, 0, 0)?;
            Err(error)
        }
    }
}

fn set_user_ids(real: u32, effective: u32, saved: u32) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::setresuid(real, effective, saved) }.into())
}

/// Waits until a child is over and nothing of it is left. The kernel reaps the launcher's children by itself, but a moment
/// after it tells of their end; this returns, with an error that says so, when there is no such child any more.
pub(crate) fn wait_for(process: &OwnedFd) {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    while let Err(rustix::io::Errno::INTR) = waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED) {}
}

/// Ends a process and waits for its end, unless it is kept.
pub(crate) struct KillOnDrop(Option<OwnedFd>);

impl KillOnDrop {
    /// Takes charge of a process.
    pub(crate) fn new(process: OwnedFd) -> Self {
        KillOnDrop(Some(process))
    }

    /// Gives the process back.
    pub(crate) fn keep(mut self) -> OwnedFd {
        self.0.take().expect("a process is kept once")
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(process) = &self.0 {
            let _ = rustix::process::pidfd_send_signal(process, rustix::process::Signal::KILL);
            wait_for(process);
        }
    }
}

/// Moves this process into new namespaces.
pub(crate) fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: only namespaces are unshared, no memory or descriptor table.
    check(unsafe { libc::unshare(flags) }.into())
}

/// Whether this process has no thread but the calling one. Asking to leave a group of threads is an error when there is one,
/// and does nothing otherwise. A container's filter may refuse the question; that is no thread.
pub(crate) fn has_one_thread() -> bool {
    unshare(libc::CLONE_THREAD).map_err(|error| error.raw_os_error()) != Err(Some(libc::EINVAL))
}

/// Installs a seccomp filter that hands calls over, and returns what they are handed over through.
pub(crate) fn install_filter_with_listener(program: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // SAFETY: the kernel copies the program, whose length is stated, before the call returns a new descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    check(fd)?;
    // SAFETY: the descriptor is new, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// The version of Landlock that this kernel has; 0 when it has none.
pub(crate) fn landlock_version() -> i64 {
    const LANDLOCK_CREATE_RULESET_VERSION: c_int = 1;
    // SAFETY: with this flag the kernel reads no attributes and only returns a number.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, LANDLOCK_CREATE_RULESET_VERSION)
    };
    version.max(0)
}

/// Whether a tmpfs of this kernel takes extended attributes of users, tried on one that is not mounted anywhere.
pub(crate) fn tmpfs_has_user_xattrs() -> bool {
    use rustix::fs::{MemfdFlags, XattrFlags, fsetxattr, memfd_create};
    let file = memfd_create("glovebox", MemfdFlags::CLOEXEC);
    file.is_ok_and(|file| fsetxattr(file, "user.glovebox", b"1", XattrFlags::empty()).is_ok())
}

/// Becomes root of this user namespace, with root's group as the only further one: it stays when the id for files
/// changes, and lets the guest see all processes.
pub(crate) fn become_root() -> io::Result<()> {
    let groups: [libc::gid_t; 1] = [0];
    // SAFETY: plain numbers, and a list whose length is stated.
    unsafe {
        check(libc::setgroups(groups.len(), groups.as_ptr()).into())?;
        check(libc::setresgid(0, 0, 0).into())?;
        check(libc::setresuid(0, 0, 0).into())
    }
}

/// Becomes an ordinary user for good, with no group but one of the same number.
pub(crate) fn become_user(uid: u32) -> io::Result<()> {
    give_up_groups()?;
    // SAFETY: plain numbers.
    unsafe {
        check(libc::setresgid(uid, uid, uid).into())?;
        check(libc::setresuid(uid, uid, uid).into())
    }
}

/// Kills every process that this one may signal, but not itself.
pub(crate) fn kill_everybody_else() {
    // SAFETY: plain numbers.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// Waits until this process is ended.
pub(crate) fn wait_for_ever() -> ! {
    loop {
        // SAFETY: takes nothing and only waits.
        unsafe { libc::pause() };
    }
}

/// Makes orphans among the descendants of this process its children.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1 as libc::c_ulong) }.into())
}

/// Brings the loopback interface of this network namespace up.
pub(crate) fn loopback_up() -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: `ifreq` is plain data that the kernel reads; a zeroed one with a short name is valid.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        check(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request).into())
    }
}

/// Ignores signals that a terminal or an init system sends to whole groups of processes.
pub(crate) fn ignore_group_signals() {
    // Children are reaped by the kernel; their ends are seen through process descriptors.
    for signal in
        [libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE, libc::SIGTSTP]
    {
        // SAFETY: ignoring a signal installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Lets this process learn how its children ended, which [`ignore_group_signals`] leaves to the kernel.
pub(crate) fn wait_for_children_again() {
    // SAFETY: the default disposition installs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Ends this process when its parent does, which is the process of this id. One that ended before this call has ended already,
/// and is the parent no more: then there is an error.
pub(crate) fn die_with(parent: Pid) -> io::Result<()> {
    die_with_parent()?;
    if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(rustix::io::Errno::SRCH.into()) }
}

/// Sends a signal to this process when its parent ends. A parent in another process namespace cannot be asked for, and one that
/// ended before this call is not noticed: see [`die_with`].
pub(crate) fn die_with_parent() -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }.into())
}

/// Lets this process live on when its parent ends.
pub(crate) fn outlive_parent() -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) }.into())
}

/// Closes every descriptor of this process but one, and puts /dev/null where the standard streams were: a process that
/// has none would be given their numbers for other things.
pub(crate) fn keep_only(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    let kept = rustix::io::fcntl_dupfd_cloexec(descriptor, 3)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let number = kept.into_raw_fd();
    let _ = null.into_raw_fd();
    close_all_but(&[number])?;
    Ok(adopt(number))
}

/// Moves a descriptor that is kept for long out of the way of those that a fork hands on, which have lower numbers then.
pub(crate) fn put_aside(descriptor: OwnedFd) -> OwnedFd {
    // Where there are not so many, it stays where it is, and the next fork takes longer.
    rustix::io::fcntl_dupfd_cloexec(&descriptor, KEPT_FROM).unwrap_or(descriptor)
}

/// Registers a descriptor with the runtime.
pub(crate) fn register(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` holds one descriptor for its whole life, and it is never replaced within the `AsyncFd`.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE)? })
}

/// Takes a descriptor by its number, after [`close_all_but`] kept it.
pub(crate) fn adopt(fd: RawFd) -> OwnedFd {
    // SAFETY: callers pass numbers that they kept open and whose former owner was leaked.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_parent_is_another_by_now_is_told_so() {
        let parent = rustix::process::getppid().expect("the test has a parent");
        let (there, gone) = (die_with(parent), die_with(rustix::process::getpid()));
        outlive_parent().expect("the test goes on");
        assert!(there.is_ok(), "{there:?}");
        assert_eq!(gone.map_err(|error| error.raw_os_error()), Err(Some(libc::ESRCH)));
    }

    #[test]
    fn a_child_that_shares_descriptors_takes_its_own_and_leaves_those_of_its_parent() {
        let (mut read, write) = std::io::pipe().unwrap();
        let aside = put_aside(OwnedFd::from(read.try_clone().unwrap()));
        assert!(aside.as_raw_fd() >= KEPT_FROM);
        match fork_with(libc::CLONE_FILES as u64).unwrap() {
            Forked::Child => {
                let closed = close_all_but(&[write.as_raw_fd()]).is_ok() && rustix::io::fcntl_getfd(&aside).is_err();
                let _ = rustix::io::write(&write, if closed { b"closed" } else { b"open" });
                exit_now(0)
            }
            Forked::Parent { pidfd, .. } => wait_for(&pidfd),
        }
        drop(write);
        let mut told = String::new();
        std::io::Read::read_to_string(&mut read, &mut told).unwrap();
        assert_eq!(told, "closed");
        assert!(rustix::io::fcntl_getfd(&aside).is_ok());
    }
}
