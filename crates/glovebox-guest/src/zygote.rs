//! The zygote: starts commands for the guest, from inside the commands' control group.
//!
//! Guest and zygote speak over a SEQPACKET socket pair: one message asks for a command (a `StartRun` message, with
//! the three standard descriptors attached, and for the interpreter of a session its socket), one message of three numbers
//! answers. The other message asks for a child that
//! enters a group and waits there for its command, which it is asked for in the same way on a socket of its own; see `leaves`. A third
//! one asks for the end of all commands.

use std::{
    ffi::CString,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use glovebox_proto::StartRun;
use prost::Message;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv,
    recvmsg, sendmsg,
};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use zeroize::{Zeroize, Zeroizing};

use crate::{
    IDLE,
    sys::{self, Descent, Signals},
};

/// An asked-for command is never larger than this; the kernel's own limit on arguments is of the same order.
pub(crate) const MAX_REQUEST: usize = 1024 * 1024;

/// Groups that a process has to enter to be in a leaf, at most: one in each hierarchy, and the socket that comes along.
pub(crate) const MOST_DOORS: usize = 16;

/// The first descriptor that no command's own takes the place of.
const AHEAD: i32 = sys::CONTROL + 1;

/// What a message asks for; its first byte.
const COMMAND: u8 = b'c';
const PARK: u8 = b'p';
const END: u8 = b'e';

/// The steps of starting a command, for telling which one failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Step {
    Fork = 1,
    Session,
    Stdio,
    Terminal,
    User,
    Chdir,
    Exec,
    Request,
    Group,
}

impl Step {
    /// The step's name on the channel.
    pub(crate) fn name(number: i32) -> &'static str {
        const NAMES: [&str; 9] = ["fork", "session", "stdio", "terminal", "user", "chdir", "exec", "request", "group"];
        usize::try_from(number - 1).ok().and_then(|i| NAMES.get(i)).unwrap_or(&"unknown")
    }
}

/// Who commands run as.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// User id inside.
    pub uid: u32,
    /// Group id inside.
    pub gid: u32,
    /// Whether further groups can be given up; without an id range the kernel does not let anybody.
    pub has_groups: bool,
    /// Whether all processes that can be seen are the sandbox's: it has a process namespace of its own.
    pub alone: bool,
}

impl Identity {
    /// Whether a child of the zygote can end all commands in one step: their id is theirs alone.
    fn can_end_all(&self) -> bool {
        self.has_groups && self.uid != 0 && self.alone
    }
}

/// What every command of a zygote starts with.
#[derive(Clone, Copy)]
struct Terms {
    identity: Identity,
    signals: Signals,
    descent: Descent,
}

/// Serves the guest until it goes away.
pub fn serve(socket: OwnedFd, identity: Identity) {
    serve_by(socket, identity, Descent::Sibling);
}

/// The same on a kernel that may not make siblings.
pub(crate) fn serve_by(socket: OwnedFd, identity: Identity, descent: Descent) {
    let mut stack = sys::stack();
    let terms = Terms { identity, signals: Signals::of_this_process(), descent };
    loop {
        wait_for_request(&socket);
        let Ok(Some((mut request, fds))) = receive(&socket) else { return };
        let started = match request.split_first() {
            Some((&COMMAND, request)) => start(request, &fds, terms, &mut stack),
            Some((&PARK, _)) => park(&socket, fds, terms),
            Some((&END, _)) => end_all(&socket, terms),
            _ => Err((Step::Request, libc::EINVAL)),
        };
        // Secrets are among the variables. They must not wait here for the next command, nor for whoever takes over.
        request.zeroize();
        if say(&socket, started).is_err() {
            return;
        }
    }
}

/// Answers with a process id, or with the step that failed and its error number.
fn say(socket: &OwnedFd, started: Result<i32, (Step, i32)>) -> rustix::io::Result<usize> {
    let answer = match started {
        Ok(pid) => [pid, 0, 0],
        Err((step, errno)) => [0, step as i32, errno],
    };
    let bytes: Vec<u8> = answer.iter().flat_map(|n| n.to_le_bytes()).collect();
    rustix::io::write(socket, &bytes)
}

/// Forks a child that enters the groups behind `doors` and waits for its command on the socket that comes first.
fn park(socket: &OwnedFd, doors: Vec<OwnedFd>, terms: Terms) -> Result<i32, (Step, i32)> {
    match sys::fork_beside(socket.as_raw_fd()).map_err(|errno| (Step::Fork, errno))? {
        Some(pid) => Ok(pid),
        None => sys::exit_now(wait_in_groups(doors, terms)),
    }
}

/// Forks a child that ends all processes with the commands' id, in one step of the kernel's, in which nobody can fork. Where that id is
/// ours too, or others have it because the namespace is the host's, it must not be; and the guest would wait in vain for one that is no child
/// of its own.
fn end_all(socket: &OwnedFd, Terms { identity, descent, .. }: Terms) -> Result<i32, (Step, i32)> {
    if !identity.can_end_all() || descent == Descent::Orphan {
        return Err((Step::User, libc::EPERM));
    }
    match sys::fork_beside(socket.as_raw_fd()).map_err(|errno| (Step::Fork, errno))? {
        Some(pid) => Ok(pid),
        None => sys::exit_now(sys::kill_all_of(identity.uid)),
    }
}

/// The life of a parked child, as long as it is one. Returns when there will be no command.
fn wait_in_groups(doors: Vec<OwnedFd>, terms: Terms) -> i32 {
    let mut doors = doors.into_iter();
    let Some(Ok(socket)) = doors.next().map(|socket| rustix::io::fcntl_dupfd_cloexec(socket, AHEAD)) else { return 1 };
    for door in doors {
        if let Err(errno) = rustix::io::write(&door, b"0") {
            let _ = say(&socket, Err((Step::Group, errno.raw_os_error())));
            return 1;
        }
    }
    if let Err(errno) = sys::leave(terms.signals) {
        let _ = say(&socket, Err((Step::Session, errno)));
        return 1;
    }
    if say(&socket, Ok(0)).is_err() {
        return 1;
    }
    wait_for_request(&socket);
    // Until there is a command it waits, however long, as what starts commands.
    let _ = uninterrupted(|| poll(&mut [PollFd::new(&socket, PollFlags::IN)], None));
    if die_first().is_err() {
        return 1;
    }
    let Ok(Some((request, fds))) = receive(&socket) else { return 0 };
    // What comes in the place of a standard stream would keep its mark of closing at the exec.
    let stdio: Result<Vec<OwnedFd>, _> = fds.into_iter().map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, AHEAD)).collect();
    // On the way to the exec they are closed, whoever owns them.
    let stdio = stdio.map(std::mem::ManuallyDrop::new);
    let failed = match (request.split_first(), stdio) {
        (Some((&COMMAND, request)), Ok(stdio)) => match prepare(request, &stdio, terms) {
            Ok(prepared) => sys::replace(&prepared, socket.as_raw_fd()),
            Err(failed) => failed,
        },
        _ => (Step::Request, libc::EINVAL),
    };
    let _ = say(&socket, Err(failed));
    127
}

/// How much sooner than the zygote a command is chosen when memory is short, in thousandths of what there is.
const SOONER: &str = "500";

/// Makes this process one that the kernel ends for want of memory before the zygote and the child that waits for the next command, which
/// may be larger than each of many small ones, and before those of the host. The file is its own only while it is not opaque; no
/// process inside has the capabilities that it takes to look at this one then, and there is no command in it yet. What the
/// kernel does not let stays as it is.
fn die_first() -> rustix::io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    let _ = std::fs::write("/proc/self/oom_score_adj", SOONER);
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
}

/// Waits for something to read, and rests when nothing comes for a while.
fn wait_for_request(socket: &OwnedFd) {
    let limit = Timespec { tv_sec: 0, tv_nsec: IDLE.as_nanos() as i64 };
    if poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&limit)) == Ok(0) {
        crate::rest();
    }
}

fn receive(socket: &OwnedFd) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    // The length first, so that no memory is kept, or cleared, for requests that are never that long.
    let (_, length) = uninterrupted(|| recv(socket, &mut [0u8; 0][..], RecvFlags::PEEK | RecvFlags::TRUNC))?;
    let mut request = vec![0; length.min(MAX_REQUEST)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DOORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message =
        uninterrupted(|| recvmsg(socket, &mut [IoSliceMut::new(&mut request)], &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let mut stdio = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = part {
            stdio.extend(fds);
        }
    }
    request.truncate(message.bytes);
    Ok((message.bytes > 0).then_some((request, stdio)))
}

/// Calls again what a signal interrupted.
fn uninterrupted<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            other => return other,
        }
    }
}

fn start(request: &[u8], stdio: &[OwnedFd], terms: Terms, stack: &mut [u8]) -> Result<i32, (Step, i32)> {
    let mut prepared = prepare(request, stdio, terms)?;
    let spawned = sys::spawn(&prepared, terms.descent, stack);
    prepared.env.zeroize();
    spawned
}

/// Makes ready all that a command needs.
fn prepare(request: &[u8], stdio: &[OwnedFd], terms: Terms) -> Result<sys::Prepared, (Step, i32)> {
    let wrong = |_| (Step::Request, libc::EINVAL);
    let mut request = StartRun::decode(request).map_err(|_| (Step::Request, libc::EINVAL))?;
    let Terms { identity, signals, .. } = terms;
    let [stdin, stdout, stderr, control @ ..] = stdio else { return Err((Step::Request, libc::EBADF)) };
    let strings =
        |texts: &[String]| texts.iter().map(|text| CString::new(text.as_str())).collect::<Result<Vec<_>, _>>();
    let program = request.argv.first().cloned().unwrap_or_default();
    let env = strings(&request.env).map_err(wrong);
    let candidates = strings(&candidates(&program, &request.env)).map_err(wrong);
    request.env.zeroize();
    Ok(sys::Prepared {
        candidates: candidates?,
        argv: strings(&request.argv).map_err(wrong)?,
        env: env?,
        cwd: CString::new(request.cwd).map_err(wrong)?,
        stdio: [stdin.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()],
        control: control.first().map(AsRawFd::as_raw_fd),
        terminal: request.rows.is_some(),
        uid: identity.uid,
        gid: identity.gid,
        has_groups: identity.has_groups,
        signals,
    })
}

/// The paths that a program's name may mean: itself when it holds a slash, else one in each folder of PATH.
fn candidates(program: &str, env: &[String]) -> Vec<String> {
    if program.contains('/') {
        return vec![program.to_owned()];
    }
    let path = env.iter().rev().find_map(|pair| pair.strip_prefix("PATH=")).unwrap_or("/usr/bin:/bin");
    path.split(':').map(|folder| format!("{}/{program}", if folder.is_empty() { "." } else { folder })).collect()
}

/// Asks the zygote for a command with these descriptors. The socket is ready for writing when this is called.
pub(crate) fn ask(socket: BorrowedFd<'_>, request: &StartRun, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = Zeroizing::new(request.encode_to_vec());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket.as_fd(), &[IoSlice::new(&[COMMAND]), IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Asks the zygote for a child that waits in a leaf: the child's socket first, then the doors of the leaf.
pub(crate) fn ask_to_park(socket: BorrowedFd<'_>, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DOORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if fds.len() > MOST_DOORS || !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket.as_fd(), &[IoSlice::new(&[PARK])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Asks the zygote to end all commands.
pub(crate) fn ask_to_end(socket: BorrowedFd<'_>) -> io::Result<()> {
    sendmsg(socket, &[IoSlice::new(&[END])], &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Reads why a parked child did not become its command; nothing when it did, which closed its socket.
pub(crate) fn failure(socket: BorrowedFd<'_>) -> io::Result<Option<(i32, i32)>> {
    match answer(socket) {
        Ok(Err(failed)) => Ok(Some(failed)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => Ok(None),
        Ok(Ok(_)) => Err(io::ErrorKind::InvalidData.into()),
        Err(error) => Err(error),
    }
}

/// Reads the zygote's answer: a process id, or the failed step and its error number.
pub(crate) fn answer(socket: BorrowedFd<'_>) -> io::Result<Result<i32, (i32, i32)>> {
    let mut bytes = [0; 12];
    let length = rustix::io::read(socket, &mut bytes)?;
    if length != bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let number = |i: usize| i32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().expect("four bytes"));
    Ok(if number(1) == 0 { Ok(number(0)) } else { Err((number(1), number(2))) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_slash_is_itself_and_others_are_looked_for_in_path() {
        let env = ["A=1".to_owned(), "PATH=/a::/b".to_owned()];
        assert_eq!(candidates("./x", &env), ["./x"]);
        assert_eq!(candidates("x", &env), ["/a/x", "./x", "/b/x"]);
        assert_eq!(candidates("x", &[]), ["/usr/bin/x", "/bin/x"]);
    }

    #[test]
    fn every_step_has_its_name() {
        assert_eq!(Step::name(Step::Exec as i32), "exec");
        assert_eq!(Step::name(Step::Chdir as i32), "chdir");
        assert_eq!(Step::name(Step::Group as i32), "group");
        assert_eq!(Step::name(0), "unknown");
    }
}
