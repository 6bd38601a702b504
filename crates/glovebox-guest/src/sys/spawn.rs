//! Starting a command as fast as the kernel allows.
//!
//! The zygote calls `clone` with `CLONE_VM | CLONE_VFORK`, as `posix_spawn` does: nothing is copied, and the zygote
//! stands still until the child has replaced itself. The child therefore runs in the zygote's memory, on a stack of
//! its own, and must do nothing but system calls on values that were prepared before. `CLONE_PARENT` makes it a
//! child of the guest.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    ptr,
};

use tokio::io::unix::AsyncFd;

use crate::zygote::Step;

const STACK_SIZE: usize = 64 * 1024;

/// All that the child needs, prepared before it exists.
pub(crate) struct Prepared {
    /// Paths to try, in order.
    pub(crate) candidates: Vec<CString>,
    pub(crate) argv: Vec<CString>,
    pub(crate) env: Vec<CString>,
    pub(crate) cwd: CString,
    pub(crate) stdio: [RawFd; 3],
    /// What becomes descriptor 3: the socket on which the interpreter of a session is told what to run.
    pub(crate) control: Option<RawFd>,
    pub(crate) terminal: bool,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) has_groups: bool,
    /// What must be given up of what the zygote had to say about signals.
    pub(crate) signals: Signals,
}

/// The descriptor of a session's socket.
pub(crate) const CONTROL: RawFd = 3;

/// What the child reports through the shared memory when it could not become the command.
struct Child<'a> {
    prepared: &'a Prepared,
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    failed: Option<(Step, c_int)>,
    /// A descriptor that stays open until the exec, of a process that has left the zygote before.
    kept: Option<RawFd>,
}

/// How a command becomes a child of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descent {
    /// The kernel makes it one at once.
    Sibling,
    /// The kernel, such as gVisor's, does not know how to. Another process starts it and ends, and the first process of the sandbox, which is the
    /// guest, is the parent of every orphan.
    Orphan,
}

/// Finds out what the kernel can do.
pub(crate) fn descent() -> Result<Descent, i32> {
    let flags = libc::CLONE_PARENT | libc::SIGCHLD;
    // SAFETY: without CLONE_VM the child has a copy of everything, and does nothing but end.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
        // SAFETY: ends the child at once.
        0 => unsafe { libc::_exit(0) },
        pid if pid < 0 => Err(errno()),
        // Only a parent can wait. The guest waits for the other kind, as for every process that ends.
        pid => Ok(if wait_for(pid as c_int) { Descent::Orphan } else { Descent::Sibling }),
    }
}

/// Waits for the end of a child. Says whether it is one.
fn wait_for(pid: c_int) -> bool {
    loop {
        // SAFETY: no status is asked for.
        match unsafe { libc::waitpid(pid, ptr::null_mut(), 0) } {
            -1 if errno() == libc::EINTR => {}
            found => return found == pid,
        }
    }
}

/// Starts a command. Returns its process id, or the step that failed and its error number.
pub(crate) fn spawn(prepared: &Prepared, descent: Descent, stack: &mut [u8]) -> Result<i32, (Step, i32)> {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
    };
    let mut child =
        Child { prepared, argv: pointers(&prepared.argv), env: pointers(&prepared.env), failed: None, kept: None };
    let pid = match descent {
        Descent::Sibling => start(&mut child, stack, libc::CLONE_PARENT),
        Descent::Orphan => start_orphan(&mut child, stack),
    };
    let pid = pid.map_err(|errno| (Step::Fork, errno))?;
    match child.failed {
        Some(failure) => Err(failure),
        None => Ok(pid),
    }
}

/// Starts the process that becomes the command.
fn start(child: &mut Child<'_>, stack: &mut [u8], flags: c_int) -> Result<i32, i32> {
    let top = stack.as_mut_ptr_range().end as usize & !15;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD | flags;
    // SAFETY: `top` is the aligned end of a live buffer that only the child uses while this process is suspended by
    // CLONE_VFORK; `child` outlives the call for the same reason; `become_command` never returns.
    let pid = unsafe { libc::clone(become_command, top as *mut c_void, flags, ptr::from_mut(child).cast::<c_void>()) };
    if pid < 0 { Err(errno()) } else { Ok(pid) }
}

/// What the process needs that is between the zygote and an orphan, and what it found.
struct Between<'a, 'b> {
    child: &'a mut Child<'b>,
    stack: &'a mut [u8],
    started: Result<i32, i32>,
}

/// Starts the process that becomes the command through one that ends at once.
fn start_orphan(child: &mut Child<'_>, stack: &mut [u8]) -> Result<i32, i32> {
    let (own, further) = stack.split_at_mut(STACK_SIZE / 2);
    let top = own.as_mut_ptr_range().end as usize & !15;
    let mut between = Between { child, stack: further, started: Err(libc::EIO) };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: as in `start`: this process is suspended until the new one has ended, which uses its own half of the stack and
    // `between`, and never returns.
    let pid = unsafe { libc::clone(start_and_end, top as *mut c_void, flags, (&raw mut between).cast::<c_void>()) };
    if pid < 0 {
        return Err(errno());
    }
    wait_for(pid);
    between.started
}

extern "C" fn start_and_end(arg: *mut c_void) -> c_int {
    // SAFETY: `arg` is the `Between` on the suspended parent's stack; nobody else touches it meanwhile.
    let between = unsafe { &mut *arg.cast::<Between>() };
    between.started = start(between.child, between.stack, 0);
    // SAFETY: ends this process at once, without running anything of the parent's.
    unsafe { libc::_exit(0) }
}

/// Makes this process the command, which has left the zygote before. Returns the step that failed and its error number; `kept` is open until the exec, and
/// must be none of the standard streams.
pub(crate) fn replace(prepared: &Prepared, kept: RawFd) -> (Step, i32) {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
    };
    let (argv, env) = (pointers(&prepared.argv), pointers(&prepared.env));
    run_steps(&Child { prepared, argv, env, failed: None, kept: Some(kept) })
}

/// Forks a process with a copy of this one's memory; its parent is the parent of this one. The new one does not have `closed`.
pub(crate) fn fork_beside(closed: RawFd) -> Result<Option<i32>, i32> {
    let flags = libc::CLONE_PARENT | libc::SIGCHLD;
    // SAFETY: without CLONE_VM the child has a copy of everything, and this process has one thread, so that no lock can be
    // held by a thread that the child does not have.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match pid {
        0 => {
            // SAFETY: the descriptor is the zygote's own; nothing that the child goes on with uses it.
            unsafe { libc::close(closed) };
            Ok(None)
        }
        pid if pid < 0 => Err(errno()),
        pid => Ok(Some(pid as i32)),
    }
}

/// Leaves the session of the zygote, and what it has to say about signals. Returns the error number.
pub(crate) fn leave(signals: Signals) -> Result<(), i32> {
    signals.reset();
    // SAFETY: a system call on nothing.
    if unsafe { libc::setsid() } < 0 { Err(errno()) } else { Ok(()) }
}

/// Takes an id, and ends all other processes that have it and are in this namespace. Returns 0 if that was done.
pub(crate) fn kill_all_of(uid: u32) -> i32 {
    // SAFETY: system calls on plain numbers.
    unsafe {
        match libc::syscall(libc::SYS_setresuid, uid, uid, uid) {
            0 => libc::kill(-1, libc::SIGKILL),
            _ => 1,
        }
    }
}

/// Registers a descriptor with the runtime.
pub(crate) fn register(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` holds one descriptor for its whole life, and it is never replaced within the `AsyncFd`.
    Ok(unsafe { AsyncFd::register(descriptor)? })
}

/// A call that a filter handed over.
pub(crate) struct Notice {
    pub(crate) id: u64,
    pub(crate) pid: i32,
    pub(crate) number: i64,
    pub(crate) arguments: [u64; 6],
}

// What the kernel's header makes of these requests.
const NOTICE_RECEIVE: libc::c_ulong = 0xc050_2100;
const NOTICE_ANSWER: libc::c_ulong = 0xc018_2101;
const NOTICE_WAITS: libc::c_ulong = 0x4008_2102;

/// Takes the next call that a filter handed over. There must be one, or have been one.
pub(crate) fn next_notice(listener: &OwnedFd) -> io::Result<Notice> {
    // SAFETY: plain data, for which zeros are valid, and which the kernel asks for.
    let mut notice: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills a structure of this type, which outlives the call.
    if unsafe { libc::ioctl(listener.as_raw_fd(), NOTICE_RECEIVE as _, &raw mut notice) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let data = notice.data;
    Ok(Notice { id: notice.id, pid: notice.pid as i32, number: data.nr.into(), arguments: data.args })
}

/// Answers a call: 0, or an error number. Whoever made it may be gone, and then nobody wants to know.
pub(crate) fn answer_notice(listener: &OwnedFd, id: u64, errno: c_int) {
    let answer = libc::seccomp_notif_resp { id, val: 0, error: -errno, flags: 0 };
    // SAFETY: the kernel reads a structure of this type, which outlives the call.
    unsafe { libc::ioctl(listener.as_raw_fd(), NOTICE_ANSWER as _, &raw const answer) };
}

/// Whether a call still waits for its answer.
pub(crate) fn notice_waits(listener: &OwnedFd, id: u64) -> bool {
    // SAFETY: the kernel reads one number, which outlives the call.
    unsafe { libc::ioctl(listener.as_raw_fd(), NOTICE_WAITS as _, &raw const id) == 0 }
}

/// Unmaps the program text of this process; what is needed again is mapped again from the page cache. The kernel maps
/// far more around each page than a process uses that only waits.
pub(crate) fn release_text() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, end) in maps.lines().filter_map(text_range) {
        // SAFETY: the range is program text of a file: mapped read-only and never written, so every page of it can be
        // read again from the file. An error leaves it as it is.
        unsafe { libc::madvise(start as *mut c_void, end - start, libc::MADV_DONTNEED) };
    }
}

/// The range of a line of /proc/self/maps, if it is program text of a file.
fn text_range(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_text = fields.next()? == "r-xp" && fields.nth(3).is_some_and(|path| path.starts_with('/'));
    let number = |text| usize::from_str_radix(text, 16).ok();
    is_text.then_some((number(start)?, number(end)?))
}

/// A stack for [`spawn`].
pub(crate) fn stack() -> Vec<u8> {
    vec![0; STACK_SIZE]
}

fn errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

extern "C" fn become_command(arg: *mut c_void) -> c_int {
    // SAFETY: `arg` is the `Child` on the suspended parent's stack; nobody else touches it meanwhile.
    let child = unsafe { &mut *arg.cast::<Child>() };
    child.failed = Some(run_steps(child));
    // SAFETY: ends this process at once, without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

/// The steps between `clone` and `execve`. Returns only when one failed.
fn run_steps(child: &Child<'_>) -> (Step, c_int) {
    let Prepared { cwd, stdio, control, terminal, uid, gid, has_groups, signals, .. } = child.prepared;
    macro_rules! step {
        ($step:expr, $call:expr) => {
            // SAFETY: a system call on values that live in the suspended parent; no memory is handed over.
            if unsafe { $call } < 0 {
                return ($step, errno());
            }
        };
    }
    if child.kept.is_none() {
        step!(Step::Session, libc::setsid());
        signals.reset();
    }
    step!(Step::Stdio, libc::dup2(stdio[0], 0));
    step!(Step::Stdio, libc::dup2(stdio[1], 1));
    step!(Step::Stdio, libc::dup2(stdio[2], 2));
    match control {
        // It is there already, but would close at the exec.
        Some(CONTROL) => step!(Step::Stdio, libc::fcntl(CONTROL, libc::F_SETFD, 0)),
        Some(control) => step!(Step::Stdio, libc::dup2(*control, CONTROL)),
        None => {}
    }
    let others = if control.is_some() { CONTROL + 1 } else { CONTROL };
    match child.kept {
        None => step!(Step::Stdio, libc::syscall(libc::SYS_close_range, others, c_int::MAX, 0)),
        Some(kept) => {
            if kept > others {
                step!(Step::Stdio, libc::syscall(libc::SYS_close_range, others, kept - 1, 0));
            }
            step!(Step::Stdio, libc::syscall(libc::SYS_close_range, kept + 1, c_int::MAX, 0));
        }
    }
    if *terminal {
        step!(Step::Terminal, libc::ioctl(0, libc::TIOCSCTTY, 0));
    }
    // Raw calls, because the C library's wrappers would try to tell threads that do not exist in this child.
    if *has_groups {
        step!(Step::User, libc::syscall(libc::SYS_setgroups, 0, ptr::null::<u32>()));
    }
    step!(Step::User, libc::syscall(libc::SYS_setresgid, *gid, *gid, *gid));
    step!(Step::User, libc::syscall(libc::SYS_setresuid, *uid, *uid, *uid));
    // For uid 0 inside, the change of id does not clear the capabilities.
    step!(Step::User, clear_capabilities());
    step!(Step::Chdir, libc::chdir(cwd.as_ptr()));
    execute(child)
}

/// Signals that a process ignores or handles, one bit for each. They are few, and asking the kernel for each of all of them
/// would take longer than the rest of a start.
#[derive(Clone, Copy)]
pub(crate) struct Signals(u64);

impl Signals {
    /// Those of this process.
    pub(crate) fn of_this_process() -> Self {
        let is_default = |signal: c_int| {
            // SAFETY: plain data, for which zeros are valid, and which the kernel fills.
            let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: nothing is set, and what is filled outlives the call.
            unsafe { libc::sigaction(signal, ptr::null(), &raw mut now) != 0 || now.sa_sigaction == libc::SIG_DFL }
        };
        Signals((1..=64).filter(|signal| !is_default(*signal)).fold(0, |all, signal| all | 1 << (signal - 1)))
    }

    /// Sets them to what a program expects, and lets all signals in.
    fn reset(self) {
        let signals = (1..=64).filter(|signal| self.0 & 1 << (signal - 1) != 0);
        // SAFETY: dispositions and mask belong to this child alone (no CLONE_SIGHAND); the set is initialised by
        // sigemptyset before it is used.
        unsafe {
            for signal in signals {
                libc::signal(signal, libc::SIG_DFL);
            }
            let mut none = std::mem::zeroed::<libc::sigset_t>();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());
        }
    }
}

/// Empties the permitted, effective and inheritable sets.
unsafe fn clear_capabilities() -> libc::c_long {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: c_int,
    }
    let header = Header { version: 0x2008_0522, pid: 0 };
    let none = [0u32; 6];
    // SAFETY: the kernel reads a version 3 header and two rows of three words, which these are.
    unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) }
}

fn execute(child: &Child<'_>) -> (Step, c_int) {
    let mut worst = libc::ENOENT;
    for candidate in &child.prepared.candidates {
        let candidate: &CStr = candidate;
        // SAFETY: all three are valid, NUL-terminated and live; on success the call does not return.
        unsafe { libc::execve(candidate.as_ptr(), child.argv.as_ptr(), child.env.as_ptr()) };
        match errno() {
            libc::ENOENT | libc::ENOTDIR => {}
            libc::EACCES => worst = libc::EACCES,
            other => return (Step::Exec, other),
        }
    }
    (Step::Exec, worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_program_text_of_files_is_let_go() {
        let text = "55aea4e50000-55aea5253000 r-xp 0016f000 fe:00 123   /usr/bin/glovebox";
        assert_eq!(text_range(text), Some((0x55ae_a4e5_0000, 0x55ae_a525_3000)));
        for other in [
            "55aea5253000-55aea5282000 r--p 00571000 fe:00 123   /usr/bin/glovebox",
            "7ffd47fd5000-7ffd47fd7000 r-xp 00000000 00:00 0     [vdso]",
            "7ff788b33000-7ff788c89000 rwxp 00000000 00:00 0",
            "",
        ] {
            assert_eq!(text_range(other), None, "{other}");
        }
    }

    #[test]
    fn a_process_goes_on_without_its_text_mapped() {
        release_text();
        assert_eq!(text_range("nonsense"), None);
    }
}
