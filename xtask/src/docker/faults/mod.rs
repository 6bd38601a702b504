//! What Docker may do to a caller: be missing, hang, die and come back. And what a caller who dies may leave in Docker.

mod cases;
mod remote;

use std::{
    fs,
    io::{BufRead, BufReader},
    panic::resume_unwind,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use glovebox_core::SandboxId;
use rustix::process::{Pid, Signal, kill_process};

use super::{
    count,
    daemon::{Daemon, Lifetime, Manner, Places},
    images, leftovers,
};
use crate::{need, suites::Counts, tree::built};

/// So long at most is waited for Docker where it does not answer, and so long for a machine that is busy.
const BOUND: Duration = Duration::from_secs(60);

/// So many daemons are broken at a time, each by one case. Nearly all of the time is waited for one that does not answer.
const GROUNDS: usize = 4;

/// A daemon, which one case after the other breaks and mends again, and a folder of the program that is tried.
struct Ground {
    daemon: Daemon,
    folder: PathBuf,
}

type Case = fn(&Ground) -> Result<()>;

/// All cases. Those that wait longest come first, so that others fill the time beside them.
const CASES: [(&str, Case); 29] = [
    ("a registry that takes connections and never answers keeps nobody", remote::mute_registry),
    ("a registry that falls silent keeps nobody", remote::registry_falls_silent),
    ("a socket that takes connections and never answers keeps nobody", cases::never_answers),
    ("a port that nobody listens at, or that never answers, keeps nobody", remote::no_engine),
    ("an engine that is slow and lives is waited for", cases::slow),
    ("a fetch that fails by the network is tried again", remote::registry_comes_back),
    ("a sandbox that stays goes on while its daemon stands still", cases::living_stopped),
    ("without Docker the error says so and offers native", cases::no_docker),
    ("native stands in for Docker where the caller allows it, and the result says so", cases::fallback),
    (
        "a daemon that stands still before a run is an error, and the next run after it goes on works",
        cases::stopped_before,
    ),
    ("a daemon that stands still at the end of a run takes nothing of its result", cases::stopped_at_the_end),
    ("a daemon that dies and stays away takes nothing of a run's result", cases::killed_for_good),
    ("a run whose daemon is restarted is lost, and says why", cases::restarted),
    (
        "a sandbox that stays is stopped by a restart of its daemon, and starts again with its files",
        cases::living_restarted,
    ),
    (
        "a daemon that stops at any moment of making sandboxes keeps nobody, and nothing is left",
        cases::stopped_anywhere,
    ),
    ("a caller who is killed takes the workload along", cases::caller_killed),
    ("callers who are killed at any moment leave nothing behind the next collection", cases::callers_killed_anywhere),
    ("one who looks at a stopped sandbox and is killed at any moment keeps it from nothing", cases::onlookers_killed),
    ("a start that is killed at any moment can be done again", cases::starters_killed),
    ("the first sandbox of a process removes what dead callers left, and nothing of live ones", cases::swept_at_start),
    ("gc looks into Docker without being told, where Docker answers", cases::gc_looks),
    ("a process that lives long recovers with Docker, and removes what others leave", cases::long_living),
    ("a disk without room is told as such", cases::no_room),
    ("an engine whose certificate is not its own, or who does not take ours, is told as such", remote::certificates),
    ("an engine whose certificate has expired is told as such", remote::expired),
    ("an engine without TLS is used, and the result warns of it where others could listen", remote::without_tls),
    ("a connection that is cut ends a run and its container, and nothing of a sandbox that stays", remote::cut),
    ("a caller of another machine's engine who is killed leaves nothing there", remote::caller_killed),
    ("a sandbox that stays on another machine is used, stopped and started with a key of its own", remote::living),
];

/// The suite.
pub(crate) fn check() -> Result<Counts> {
    some("")
}

/// The cases whose sentence holds this.
pub(crate) fn some(filter: &str) -> Result<Counts> {
    need::tools(&images::TOOLS)?;
    images::make(&["busybox"])?;
    let cases: Vec<_> = CASES.into_iter().filter(|(name, _)| name.contains(filter)).collect();
    let grounds = cases.len().min(GROUNDS);
    let queue = Mutex::new(cases.into_iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..grounds).map(|number| scope.spawn(move || one_ground(number, next))).collect();
        let ends = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ends.collect::<Vec<_>>().into_iter().try_fold(Counts::default(), |sum, counts| Ok(sum.and(counts?)))
    })
}

/// Takes one case after the other to a daemon of its own, which ends with this thread.
fn one_ground(number: usize, next: impl Fn() -> Option<(&'static str, Case)>) -> Result<Counts> {
    let places = Places::named(&format!("docker-faults-{number}"))?;
    ensure!(places.living().is_none(), "another run of this suite has a daemon");
    let daemon = Daemon::start_at(places.clone(), Lifetime::OfThisProcess, Manner::Usual)?;
    images::load(&daemon.client(), &["busybox"])?;
    let folder = places.run.join("glovebox");
    fs::create_dir_all(&folder)?;
    let ground = Ground { daemon, folder };
    let mut counts = Counts::default();
    while let Some((name, case)) = next() {
        let started = Instant::now();
        count(&mut counts, name, case(&ground));
        eprintln!("docker: {} ms: {name}", started.elapsed().as_millis());
        ground.mend()?;
    }
    drop(ground);
    leftovers::nothing_is_left(&places)?;
    Ok(counts)
}

impl Ground {
    /// The program, for the daemon, with nothing of the caller's settings.
    fn glovebox(&self, argv: &[&str]) -> Command {
        self.glovebox_at(&self.daemon.places.host(), argv)
    }

    fn glovebox_at(&self, host: &str, argv: &[&str]) -> Command {
        let mut command = Command::new(built("debug", "glovebox"));
        command.args(argv).current_dir(&self.folder).env("DOCKER_HOST", host).env("XDG_CONFIG_HOME", &self.folder);
        command.env("GLOVEBOX_DATA_DIR", self.folder.join("data"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A verb on the Docker backend.
    fn docker(&self, argv: &[&str]) -> Command {
        self.glovebox(&on_docker(argv))
    }

    /// A run of a shell in the image. It says `started` first.
    fn start(&self, script: &str) -> Result<Running> {
        let image = images::reference("busybox");
        let script = format!("echo started; {script}");
        Running::start(self.docker(&["run", "--image", &image, "--", "sh", "-c", &script]))
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.daemon.pid()?, signal)?)
    }

    /// The containers that are ours, whatever they do.
    fn containers(&self) -> Result<Vec<String>> {
        let text =
            self.daemon.docker(&["ps", "--all", "--quiet", "--no-trunc", "--filter", "label=glovebox.managed"])?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// The volumes that are ours.
    fn volumes(&self) -> Result<Vec<String>> {
        let text = self.daemon.docker(&["volume", "ls", "--quiet", "--filter", "label=glovebox.managed"])?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// The folders of sandboxes that this daemon has.
    fn folders(&self) -> Vec<PathBuf> {
        let all = fs::read_dir("/run/glovebox/docker").into_iter().flatten().flatten().map(|entry| entry.path());
        let host = self.daemon.places.host();
        all.filter(|folder| fs::read_to_string(folder.join("engine")).is_ok_and(|its| its == host)).collect()
    }

    /// Collects, and an error if something is left then.
    fn nothing_is_left(&self) -> Result<()> {
        succeeds(self.docker(&["gc"]))?;
        let (left, folders) = ([self.containers()?, self.volumes()?].concat(), self.folders());
        ensure!(left.is_empty() && folders.is_empty(), "left: {left:?} {folders:?}");
        Ok(())
    }

    /// Collects, and says whether Docker has nothing of ours then. A folder that nobody uses may stay for minutes: somebody may be about to
    /// make the container it is for.
    fn has_nothing_after_gc(&self) -> Result<bool> {
        succeeds(self.docker(&["gc"]))?;
        Ok(self.containers()?.is_empty() && self.volumes()?.is_empty())
    }

    /// A container as a caller leaves it who is killed before its start.
    fn leave(&self, owner: &str) -> Result<String> {
        let id = SandboxId::new();
        let (name, image) = (format!("glovebox-{id}"), images::reference("busybox"));
        let labels = ["managed=true".to_owned(), format!("sandbox={id}"), format!("owner={owner}")];
        let [managed, sandbox, owner] = labels.map(|label| format!("glovebox.{label}"));
        let argv = ["create", "--name", &name, "--label", &managed, "--label", &sandbox, "--label", &owner, &image];
        Ok(self.daemon.docker(&argv)?.trim().to_owned())
    }

    /// The daemon runs after this, whatever a case did to it, and has no container.
    fn mend(&self) -> Result<()> {
        match self.daemon.pid() {
            Ok(pid) => kill_process(pid, Signal::CONT)?,
            Err(_) => self.daemon.start_again()?,
        }
        for container in self.containers()? {
            let _ = self.daemon.docker(&["rm", "--force", &container]);
        }
        Ok(())
    }
}

/// A verb and its words, with the backend behind the verb.
fn on_docker<'a>(argv: &[&'a str]) -> Vec<&'a str> {
    [&argv[..1], &["--backend", "docker"], &argv[1..]].concat()
}

/// A run that has started.
struct Running {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Running {
    /// Starts one that says `started` first.
    fn start(command: Command) -> Result<Running> {
        Running::start_with(command, "started\n")
    }

    /// Starts one that says this first.
    fn start_with(mut command: Command, first: &str) -> Result<Running> {
        let mut child = command.spawn()?;
        let mut out = BufReader::new(child.stdout.take().context("no output")?);
        let mut line = String::new();
        out.read_line(&mut line)?;
        if line != first {
            bail!("it did not start: {}", said(&ended(child)?));
        }
        Ok(Running { child, out })
    }

    /// Ends its input, which its program waits for, and gives what it said until the end.
    fn finish(mut self) -> Result<(Output, String)> {
        drop(self.child.stdin.take());
        let output = ended(self.child)?;
        Ok((output, std::io::read_to_string(self.out)?))
    }
}

/// Waits for the end, but not for ever.
fn ended(child: Child) -> Result<Output> {
    ended_within(child, BOUND)
}

fn ended_within(mut child: Child, bound: Duration) -> Result<Output> {
    drop(child.stdin.take());
    let pid = Pid::from_child(&child);
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(child.wait_with_output()));
    match told.recv_timeout(bound) {
        Ok(output) => Ok(output?),
        Err(_) => {
            kill_process(pid, Signal::KILL)?;
            bail!("it did not end within {} s", bound.as_secs())
        }
    }
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    format!("{}: {} {}", output.status, text(&output.stdout), text(&output.stderr))
}

fn succeeds(mut command: Command) -> Result<String> {
    let output = ended(command.spawn()?)?;
    ensure!(output.status.success(), "{}", said(&output));
    Ok(String::from_utf8(output.stdout)?)
}

/// The command fails with this code of an error, and says all of this.
fn fails(mut command: Command, code: &str, words: &[&str]) -> Result<()> {
    failed(command.spawn()?, code, words)
}

/// The same of one that was started before.
fn failed(child: Child, code: &str, words: &[&str]) -> Result<()> {
    let output = ended(child)?;
    let said = said(&output);
    ensure!(output.status.code() == Some(125), "{said}");
    for word in [&[code], words].concat() {
        ensure!(said.contains(word), "{word:?} is missing: {said}");
    }
    Ok(())
}

/// Looks again and again until it holds, but not for ever.
fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !holds()? {
        ensure!(started.elapsed() < BOUND, "{what} did not happen within {} s", BOUND.as_secs());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
