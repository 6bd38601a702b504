//! What a program could do to its caller where both have the same id and nothing but refusals is between them.

use std::{fs, os::unix::net::UnixDatagram, path::Path};

use libc::*;
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    Tried, errno_of, report,
    sys::{self, Arg::Int},
};

/// Tries to do harm to a process, a file and a socket of the host, one thing a line.
pub(crate) fn all(pid: i32, file: &str, socket: &str) -> Tried {
    let number = Int(pid.into());
    let zero = Int(0);
    let calls: &[(&str, i64, &[sys::Arg])] = &[
        ("ptrace", SYS_ptrace, &[Int(PTRACE_ATTACH as i64), number, zero, zero]),
        ("renice", SYS_setpriority, &[Int(0), number, Int(19)]),
        ("renice-user", SYS_setpriority, &[Int(2), zero, Int(19)]),
        ("ioprio", SYS_ioprio_set, &[Int(1), number, Int(3 << 13)]),
        ("affinity", SYS_sched_setaffinity, &[number, Int(8), sys::Arg::Page(&[1])]),
        ("scheduler", SYS_sched_setscheduler, &[number, Int(SCHED_IDLE as i64), sys::Arg::Page(&[])]),
        ("prlimit", SYS_prlimit64, &[number, Int(RLIMIT_CORE as i64), sys::Arg::Page(&[]), zero]),
        ("mark", SYS_prlimit64, &[zero, Int(15), sys::Arg::Page(&[1]), zero]),
        ("setrlimit-mark", SYS_setrlimit, &[Int(15), sys::Arg::Page(&[1])]),
        ("shmget", SYS_shmget, &[Int(0x6761), Int(4096), Int(i64::from(IPC_CREAT | 0o600))]),
        ("mq_open", SYS_mq_open, &[sys::Arg::Text(c"probe"), Int(i64::from(O_CREAT | O_RDWR)), Int(0o600), zero]),
        ("socket-unix", SYS_socket, &[Int(AF_UNIX as i64), Int(SOCK_STREAM as i64), zero]),
        ("inotify", SYS_inotify_init1, &[zero]),
    ];
    for (name, call, args) in calls {
        report(name, sys::call(*call, args).map(drop));
    }
    let signalled =
        |signal| Pid::from_raw(pid).map_or(Err(EINVAL), |pid| kill_process(pid, signal).map_err(|e| e.raw_os_error()));
    report("signal", signalled(Signal::WINCH));
    let of = |result: std::io::Result<()>| result.map_err(|error| errno_of(&error));
    report("datagram", of(UnixDatagram::pair().and_then(|(one, _)| one.send_to(b"x", socket).map(drop))));
    for name in ["environ", "cmdline", "status", "mem", "maps"] {
        report(name, of(fs::File::open(format!("/proc/{pid}/{name}")).map(drop)));
    }
    to_a_file(Path::new(file));
    Ok(0)
}

fn to_a_file(file: &Path) {
    let of = |result: std::io::Result<()>| result.map_err(|error| errno_of(&error));
    let by = |result: rustix::io::Result<()>| result.map_err(|error| error.raw_os_error());
    report("read", of(fs::File::open(file).map(drop)));
    report("write", of(fs::OpenOptions::new().append(true).open(file).map(drop)));
    report("truncate", by(sys::truncate(file)));
    report("unlink", of(fs::remove_file(file)));
    let beside = file.with_extension("moved");
    report("rename", of(fs::rename(file, &beside)));
    report("link", of(fs::hard_link(file, "linked")));
    report("chmod", by(rustix::fs::chmod(file, rustix::fs::Mode::from_raw_mode(0o777))));
    let now = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 };
    let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
    report("times", by(rustix::fs::utimensat(rustix::fs::CWD, file, &times, rustix::fs::AtFlags::empty())));
    let flags = rustix::fs::XattrFlags::empty();
    report("xattr", by(rustix::fs::setxattr(file, "user.probe", b"x", flags)));
    // A link inside that leads out is no way around.
    let _ = std::os::unix::fs::symlink(file, "link");
    report("chmod-by-link", by(rustix::fs::chmod("link", rustix::fs::Mode::from_raw_mode(0o777))));
    let path = rustix::fs::open(file, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty());
    let by_descriptor = path.and_then(|path| {
        let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&path));
        rustix::fs::chmod(own, rustix::fs::Mode::from_raw_mode(0o777))
    });
    report("chmod-by-descriptor", by(by_descriptor));
}

/// Forks and ends, again and again: a program that nobody can catch by its number.
pub(crate) fn run_away() -> Tried {
    sys::fork_with(0, run_on).map_err(crate::errno::name)?;
    Ok(0)
}

/// The parent ends, and the child goes on with the same.
fn run_on() -> i32 {
    let _ = rustix::process::setsid();
    while sys::fork_with(0, run_on).is_err() {}
    0
}
