//! The drivers with the real interpreters, on this machine and without a sandbox: what they say, byte for byte.

mod bash;
mod figures;
mod hostile;
mod javascript;
mod parity;
mod python;

use std::{
    io::{Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use glovebox_proto::session::{Replies, Reply};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, kill_process_group},
};
use serde_json::Value;

use super::driver;

/// No run of these tests takes longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);
/// So many reads empty both pipes, unless more comes.
const PIPES_HOLD: usize = 40;
/// The token of all runs.
const TOKEN: &str = "run_0";
/// So much of an output is kept.
const MOST_KEPT: usize = 32 << 20;

/// A session with a real interpreter.
struct Session {
    language: &'static str,
    child: Child,
    control: UnixStream,
    stdout: ChildStdout,
    stderr: ChildStderr,
    replies: Replies,
}

/// What a run did.
#[derive(Debug, Default)]
struct Seen {
    out: String,
    err: String,
    results: Vec<Shown>,
    exception: Option<Value>,
    /// None when the interpreter ended.
    code: Option<u8>,
    /// How it ended.
    died: Option<ExitStatus>,
}

/// One result.
#[derive(Debug, PartialEq)]
struct Shown {
    mime: String,
    value: u64,
    displayed: bool,
    bytes: Vec<u8>,
}

impl Session {
    /// Starts an interpreter that is found on the PATH of this machine.
    fn start(language: &'static str) -> Session {
        Session::start_in(language, Path::new("/"), None)
    }

    /// Starts one in a folder; `program` takes the place of the interpreter's name.
    fn start_in(language: &'static str, folder: &Path, program: Option<&Path>) -> Session {
        let driver = driver(language).expect("there is a driver");
        let mut argv = driver.argv();
        if let Some(program) = program.or(system_python(language)) {
            argv[0] = program.to_str().expect("a path of a test is text").to_owned();
        }
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        // Whoever tests in the background of a shell has interrupts ignored, which a guest never hands on.
        let mut child = Command::new("env")
            .args(["--default-signal=INT,QUIT", "sh", "-c", r#"exec "$@" 3<&0 0</dev/null"#, "sh"])
            .args(&argv)
            .current_dir(folder)
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("sh is there");
        let (stdout, stderr) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let mut session = Session { language, child, control: ours, stdout, stderr, replies: Replies::default() };
        session.control.write_all(&driver.opening()).expect("the interpreter listens");
        let seen = session.follow(&Reply::Ready);
        assert!(seen.died.is_none() && seen.out.is_empty() && seen.err.is_empty(), "{language} is not ready: {seen:?}");
        session
    }

    /// One run.
    #[track_caller]
    fn run(&mut self, code: &str) -> Seen {
        self.send(code, &[], None);
        self.follow(&done())
    }

    fn send(&mut self, code: &str, env: &[(String, String)], cwd: Option<&str>) {
        let run = driver(self.language).expect("there is a driver").run(code, env, cwd, TOKEN).expect("it can be said");
        // One that is dead is seen as such.
        let _ = self.control.write_all(&run);
    }

    /// One run that is interrupted once it has written `until`, to wherever.
    fn interrupt(&mut self, code: &str, until: &str) -> Seen {
        self.send(code, &[], None);
        let mut begun = Seen::default();
        let end = Instant::now() + PATIENCE;
        while !begun.out.contains(until) && !begun.err.contains(until) {
            assert!(Instant::now() < end, "it did not write {until:?}: {begun:?}");
            self.take(&mut begun, Duration::from_millis(20));
        }
        // The interpreter may not have got to what follows its output, so it is asked again, as the guest does.
        let mut asked: Option<Instant> = None;
        let mut seen = self.follow_and(&done(), |session| {
            if asked.is_none_or(|at| at.elapsed() > Duration::from_secs(3)) {
                let _ = kill_process_group(session.group(), Signal::INT);
                asked = Some(Instant::now());
            }
        });
        seen.out.insert_str(0, &begun.out);
        seen.err.insert_str(0, &begun.err);
        seen
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Reads until this kind of reply came, or the interpreter ended.
    #[track_caller]
    fn follow(&mut self, last: &Reply) -> Seen {
        self.follow_and(last, |_| ())
    }

    /// The same; `meanwhile` is called each time nothing is there to be read.
    #[track_caller]
    fn follow_and(&mut self, last: &Reply, mut meanwhile: impl FnMut(&Session)) -> Seen {
        let mut seen = Seen::default();
        let end = Instant::now() + PATIENCE;
        loop {
            let reply = self.replies.next().unwrap_or_else(|wrong| panic!("{wrong}: {seen:?}"));
            let Some(reply) = reply else {
                assert!(Instant::now() < end, "no end after {PATIENCE:?}: {seen:?}");
                meanwhile(self);
                if !self.take(&mut seen, Duration::from_millis(100)) {
                    seen.died = Some(self.child.wait().expect("it is ours"));
                    while self.take_output(&mut seen, Duration::ZERO) {}
                    return seen;
                }
                continue;
            };
            let over = std::mem::discriminant(&reply) == std::mem::discriminant(last);
            match reply {
                Reply::Ready => {}
                Reply::Result(head) => seen.results.push(Shown {
                    mime: head.mime,
                    value: head.value,
                    displayed: head.displayed,
                    bytes: Vec::new(),
                }),
                Reply::Data(bytes) => seen.results.last_mut().expect("a head came").bytes.extend_from_slice(&bytes),
                Reply::Exception(text) => {
                    let exception = serde_json::from_slice(&text).expect("it is JSON");
                    assert!(seen.exception.replace(exception).is_none(), "a second exception");
                }
                Reply::Done(code, token) => {
                    assert_eq!(token, TOKEN);
                    seen.code = Some(code);
                }
            }
            if over {
                self.take_waiting(&mut seen);
                return seen;
            }
        }
    }

    /// Takes what comes within a time. False when the interpreter's socket is closed.
    fn take(&mut self, seen: &mut Seen, within: Duration) -> bool {
        if !ready(&[self.control.as_fd(), self.stdout.as_fd(), self.stderr.as_fd()], within).contains(&true) {
            return true;
        }
        self.take_waiting(seen);
        if !ready(&[self.control.as_fd()], Duration::ZERO)[0] {
            return true;
        }
        let mut part = [0; 1 << 16];
        let length = self.control.read(&mut part).unwrap_or(0);
        self.replies.push(&part[..length]);
        if length == 0 {
            self.take_waiting(seen);
        }
        length > 0
    }

    /// Takes what is in the pipes, and no more than a pipe holds: somebody may write faster than it is taken.
    fn take_waiting(&mut self, seen: &mut Seen) {
        let _ = (0..PIPES_HOLD).all(|_| self.take_output(seen, Duration::ZERO));
    }

    fn take_output(&mut self, seen: &mut Seen, within: Duration) -> bool {
        let mut part = [0; 1 << 16];
        let ready = ready(&[self.stdout.as_fd(), self.stderr.as_fd()], within);
        let mut take = |ready: bool, from: &mut dyn Read, to: &mut String| {
            let length = if ready { from.read(&mut part).expect("a pipe can be read") } else { 0 };
            // What is without end is not kept without end.
            if to.len() < MOST_KEPT {
                to.push_str(&String::from_utf8_lossy(&part[..length]));
            }
            length > 0
        };
        let out = take(ready[0], &mut self.stdout, &mut seen.out);
        take(ready[1], &mut self.stderr, &mut seen.err) || out
    }
}

/// The kind of reply that a run ends with.
fn done() -> Reply {
    Reply::Done(0, TOKEN.to_owned())
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = kill_process_group(self.group(), Signal::KILL);
        let _ = self.child.wait();
    }
}

fn ready(ends: &[std::os::fd::BorrowedFd<'_>], within: Duration) -> Vec<bool> {
    let mut ends: Vec<PollFd<'_>> = ends.iter().map(|end| PollFd::new(end, PollFlags::IN)).collect();
    let within = Timespec::try_from(within).expect("a short time");
    let _ = poll(&mut ends, Some(&within));
    ends.iter().map(|end| !end.revents().is_empty()).collect()
}

/// Python of the system: what stands before it on the PATH may be a script that looks for one, and takes its time.
fn system_python(language: &str) -> Option<&'static Path> {
    let system = Path::new("/usr/bin/python3");
    (language == "python" && system.exists()).then_some(system)
}

impl Seen {
    #[track_caller]
    fn expect(&self, out: &str, code: u8) -> &Seen {
        assert_eq!((self.out.as_str(), self.code), (out, Some(code)), "{self:?}");
        self
    }

    /// Expects the plain texts of what was shown.
    #[track_caller]
    fn expect_shown(&self, texts: &[&str]) -> &Seen {
        let plain = self.results.iter().filter(|shown| shown.mime == "text/plain");
        let shown: Vec<_> = plain.map(|shown| String::from_utf8_lossy(&shown.bytes).into_owned()).collect();
        assert_eq!(shown, texts, "{self:?}");
        self
    }

    #[track_caller]
    fn expect_exception(&self, name: &str, message: &str) -> &Seen {
        let exception = self.exception.as_ref().unwrap_or_else(|| panic!("no exception: {self:?}"));
        assert_eq!(
            (&exception["name"], &exception["message"]),
            (&Value::from(name), &Value::from(message)),
            "{self:?}"
        );
        self
    }

    /// The bytes of the one result of this type.
    #[track_caller]
    fn only(&self, mime: &str) -> &[u8] {
        let mut found = self.results.iter().filter(|shown| shown.mime == mime);
        let one = found.next().unwrap_or_else(|| panic!("no {mime}: {self:?}"));
        assert!(found.next().is_none(), "several {mime}: {self:?}");
        &one.bytes
    }

    #[track_caller]
    fn traceback(&self) -> &str {
        self.exception.as_ref().and_then(|exception| exception["traceback"].as_str()).expect("it has a traceback")
    }
}
