//! What ordinary software does and a sandbox must not refuse.

use std::{
    fs,
    io::{Read, Seek, Write},
    os::{
        fd::AsFd,
        unix::{
            fs::{PermissionsExt, symlink},
            net::{UnixListener, UnixStream},
        },
    },
    path::PathBuf,
    process::Command,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use rustix::{event, fs as rfs, io::Errno, net, pipe, process, rand, thread, time};

use crate::{Tried, errno, errno_of, report, sys, sys::Arg};

/// What one try gives; an errno says why it failed.
type Worked = Result<(), i32>;

/// One thing to try.
type Attempt = fn() -> Worked;

/// Tries each by its name, all when none is named, and prints a line for each.
pub(crate) fn try_all(names: &[&str]) -> Tried {
    for (name, attempt) in ALL.iter().filter(|(name, _)| names.is_empty() || names.contains(name)) {
        report(name, attempt());
    }
    match names.iter().find(|name| ALL.iter().all(|(known, _)| known != *name)) {
        Some(unknown) => Err(format!("nothing of the name {unknown:?} is known")),
        None => Ok(0),
    }
}

const ALL: &[(&str, Attempt)] = &[
    ("fork", fork),
    ("exec", exec),
    ("threads", threads),
    ("epoll", epoll),
    ("inotify", inotify),
    ("timerfd", timerfd),
    ("eventfd", eventfd),
    ("memfd", memfd),
    ("sendfile", sendfile),
    ("splice", splice),
    ("getrandom", getrandom),
    ("unix-socket", unix_socket),
    ("unix-socketpair", unix_socketpair),
    ("netlink-route", netlink_route),
    ("ptrace-own-child", ptrace_own_child),
    ("chmod", chmod),
    ("rename", rename),
    ("link", link),
    ("symlink", make_symlink),
    ("xattr", xattr),
    ("fifo", fifo),
    ("flock", flock),
    ("fallocate", fallocate),
    ("copy_file_range", copy_file_range),
    ("utimes", utimes),
    ("shared-memory", shared_memory),
    ("sysv-shm", sysv_shm),
    ("pidfd", pidfd),
    ("personality-query", personality_query),
    ("setsid", new_session),
    ("affinity", affinity),
    ("nice", nice),
];

fn io(error: std::io::Error) -> i32 {
    errno_of(&error)
}

fn raw(error: Errno) -> i32 {
    error.raw_os_error()
}

/// A path of its own for each name, in the working directory.
fn scratch(name: &str) -> PathBuf {
    PathBuf::from(format!("probe-{name}"))
}

fn holds(condition: bool) -> Worked {
    if condition { Ok(()) } else { Err(libc::EIO) }
}

fn fork() -> Worked {
    holds(sys::wait_for(sys::fork_with(0, || 7)?) == "exited 7")
}

fn exec() -> Worked {
    holds(Command::new("/bin/true").status().map_err(io)?.success())
}

fn threads() -> Worked {
    let pair = Arc::new((Mutex::new(0), Condvar::new()));
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let pair = Arc::clone(&pair);
            std::thread::spawn(move || {
                *pair.0.lock().expect("no thread panics") += 1;
                pair.1.notify_all();
            })
        })
        .collect();
    let reached = pair.1.wait_while(pair.0.lock().expect("no thread panics"), |count| *count < 4);
    drop(reached);
    workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| libc::EIO))
}

fn epoll() -> Worked {
    let poll = event::epoll::create(event::epoll::CreateFlags::CLOEXEC).map_err(raw)?;
    let (reader, mut writer) = std::io::pipe().map_err(io)?;
    event::epoll::add(&poll, &reader, event::epoll::EventData::new_u64(5), event::epoll::EventFlags::IN)
        .map_err(raw)?;
    writer.write_all(b"x").map_err(io)?;
    let mut events = Vec::with_capacity(4);
    event::epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None).map_err(raw)?;
    holds(events.len() == 1 && events[0].data.u64() == 5)
}

fn inotify() -> Worked {
    let watcher = rfs::inotify::init(rfs::inotify::CreateFlags::CLOEXEC).map_err(raw)?;
    rfs::inotify::add_watch(&watcher, ".", rfs::inotify::WatchFlags::CREATE).map_err(raw)?;
    fs::write(scratch("inotify"), "x").map_err(io)?;
    let read = rustix::io::read(&watcher, &mut [0u8; 512]).map_err(raw)?;
    holds(read > 0)
}

fn timerfd() -> Worked {
    let timer = time::timerfd_create(time::TimerfdClockId::Monotonic, time::TimerfdFlags::CLOEXEC).map_err(raw)?;
    let soon = time::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let once = time::Itimerspec { it_interval: time::Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: soon };
    time::timerfd_settime(&timer, time::TimerfdTimerFlags::empty(), &once).map_err(raw)?;
    holds(rustix::io::read(&timer, &mut [0u8; 8]).map_err(raw)? == 8)
}

fn eventfd() -> Worked {
    let counter = event::eventfd(3, event::EventfdFlags::CLOEXEC).map_err(raw)?;
    let mut value = [0u8; 8];
    rustix::io::read(&counter, &mut value).map_err(raw)?;
    holds(u64::from_ne_bytes(value) == 3)
}

fn memfd() -> Worked {
    let file = rfs::memfd_create(c"probe", rfs::MemfdFlags::ALLOW_SEALING).map_err(raw)?;
    rustix::io::write(&file, b"sealed").map_err(raw)?;
    rfs::fcntl_add_seals(&file, rfs::SealFlags::WRITE).map_err(raw)?;
    holds(rustix::io::write(&file, b"x") == Err(Errno::PERM))
}

fn sendfile() -> Worked {
    fs::write(scratch("sendfile"), "hello").map_err(io)?;
    let source = fs::File::open(scratch("sendfile")).map_err(io)?;
    let (mut reader, writer) = std::io::pipe().map_err(io)?;
    holds(rfs::sendfile(&writer, &source, None, 5).map_err(raw)? == 5)?;
    reader.read_exact(&mut [0; 5]).map_err(io)
}

fn splice() -> Worked {
    let (first_reader, mut first_writer) = std::io::pipe().map_err(io)?;
    let (mut second_reader, second_writer) = std::io::pipe().map_err(io)?;
    first_writer.write_all(b"hello").map_err(io)?;
    let moved = pipe::splice(&first_reader, None, &second_writer, None, 5, pipe::SpliceFlags::empty()).map_err(raw)?;
    holds(moved == 5)?;
    second_reader.read_exact(&mut [0; 5]).map_err(io)
}

fn getrandom() -> Worked {
    let mut bytes = [0u8; 32];
    holds(rand::getrandom(&mut bytes, rand::GetRandomFlags::empty()).map_err(raw)? == 32)
}

fn unix_socket() -> Worked {
    let path = scratch("socket");
    let listener = UnixListener::bind(&path).map_err(io)?;
    let mut client = UnixStream::connect(&path).map_err(io)?;
    let (mut server, _) = listener.accept().map_err(io)?;
    client.write_all(b"hello").map_err(io)?;
    server.read_exact(&mut [0; 5]).map_err(io)
}

fn unix_socketpair() -> Worked {
    let (mut one, mut two) = UnixStream::pair().map_err(io)?;
    one.write_all(b"hello").map_err(io)?;
    two.read_exact(&mut [0; 5]).map_err(io)
}

fn netlink_route() -> Worked {
    let family = net::AddressFamily::NETLINK;
    net::socket(family, net::SocketType::RAW, None).map_err(raw)?;
    // The C library asks over such a socket; the loopback interface is always among the answers.
    holds(sys::interface_names()?.iter().any(|name| name == "lo"))
}

fn ptrace_own_child() -> Worked {
    // C libraries do not agree on the type of these numbers.
    let request = |what: i64, pid: i32| {
        sys::call(libc::SYS_ptrace, &[Arg::Int(what), Arg::Int(pid.into()), Arg::Int(0), Arg::Int(0)])
    };
    let child = sys::fork_with(0, || {
        if request(libc::PTRACE_TRACEME as i64, 0).is_err() {
            return 1;
        }
        sys::raise(libc::SIGSTOP);
        9
    })?;
    holds(sys::wait_for(child) == format!("stopped {}", libc::SIGSTOP))?;
    request(libc::PTRACE_CONT as i64, child)?;
    holds(sys::wait_for(child) == "exited 9")
}

fn chmod() -> Worked {
    let path = scratch("chmod");
    fs::write(&path, "x").map_err(io)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).map_err(io)?;
    holds(fs::metadata(&path).map_err(io)?.permissions().mode() & 0o777 == 0o751)
}

fn rename() -> Worked {
    fs::create_dir(scratch("rename-a")).map_err(io)?;
    fs::write(scratch("rename-a").join("file"), "x").map_err(io)?;
    fs::rename(scratch("rename-a"), scratch("rename-b")).map_err(io)?;
    fs::metadata(scratch("rename-b").join("file")).map(drop).map_err(io)
}

fn link() -> Worked {
    fs::write(scratch("link-a"), "x").map_err(io)?;
    fs::hard_link(scratch("link-a"), scratch("link-b")).map_err(io)
}

fn make_symlink() -> Worked {
    symlink("anywhere", scratch("symlink")).map_err(io)?;
    fs::read_link(scratch("symlink")).map(drop).map_err(io)
}

fn xattr() -> Worked {
    fs::write(scratch("xattr"), "x").map_err(io)?;
    rfs::setxattr(scratch("xattr"), "user.probe", b"value", rfs::XattrFlags::empty()).map_err(raw)?;
    let mut value = [0u8; 16];
    holds(rfs::getxattr(scratch("xattr"), "user.probe", &mut value).map_err(raw)? == 5)
}

fn fifo() -> Worked {
    let path = scratch("fifo");
    rfs::mknodat(rfs::CWD, &path, rfs::FileType::Fifo, rfs::Mode::from_raw_mode(0o600), 0).map_err(raw)
}

fn flock() -> Worked {
    let file = fs::File::create(scratch("flock")).map_err(io)?;
    rfs::flock(&file, rfs::FlockOperation::NonBlockingLockExclusive).map_err(raw)
}

fn fallocate() -> Worked {
    let file = fs::File::create(scratch("fallocate")).map_err(io)?;
    rfs::fallocate(&file, rfs::FallocateFlags::empty(), 0, 8192).map_err(raw)?;
    holds(file.metadata().map_err(io)?.len() == 8192)
}

fn copy_file_range() -> Worked {
    fs::write(scratch("copy-a"), "hello").map_err(io)?;
    let source = fs::File::open(scratch("copy-a")).map_err(io)?;
    let target = fs::File::create(scratch("copy-b")).map_err(io)?;
    holds(rfs::copy_file_range(&source, None, &target, None, 5).map_err(raw)? == 5)
}

fn utimes() -> Worked {
    let mut file = fs::File::create(scratch("utimes")).map_err(io)?;
    file.rewind().map_err(io)?;
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1)).map_err(io)
}

fn shared_memory() -> Worked {
    sys::touch_shared_memory(1 << 20)
}

fn sysv_shm() -> Worked {
    let private = Arg::Int(libc::IPC_PRIVATE.into());
    let id = sys::call(libc::SYS_shmget, &[private, Arg::Int(4096), Arg::Int(0o600)])?;
    sys::call(libc::SYS_shmctl, &[Arg::Int(id), Arg::Int(libc::IPC_RMID.into())]).map(drop)
}

fn pidfd() -> Worked {
    let child = sys::fork_with(0, || sys::wait_for_ever())?;
    let pid = process::Pid::from_raw(child).ok_or(libc::ESRCH)?;
    let handle = process::pidfd_open(pid, process::PidfdFlags::empty()).map_err(raw)?;
    process::pidfd_send_signal(handle.as_fd(), process::Signal::KILL).map_err(raw)?;
    holds(sys::wait_for(child) == "signaled 9")
}

fn personality_query() -> Worked {
    sys::call(libc::SYS_personality, &[Arg::Int(0xffff_ffff)]).map(drop)
}

fn new_session() -> Worked {
    let child = sys::fork_with(0, || i32::from(process::setsid().is_err()))?;
    holds(sys::wait_for(child) == "exited 0")
}

fn affinity() -> Worked {
    let set = thread::sched_getaffinity(None).map_err(raw)?;
    thread::sched_setaffinity(None, &set).map_err(raw)
}

fn nice() -> Worked {
    process::nice(1).map(drop).map_err(|error| {
        eprintln!("nice: {}", errno::name(raw(error)));
        raw(error)
    })
}
