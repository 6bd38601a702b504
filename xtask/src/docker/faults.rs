//! What Docker may do to a caller: be missing, hang, die and come back. And what a caller who dies may leave in Docker.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use glovebox_core::SandboxId;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{
    count,
    daemon::{Daemon, Lifetime, Places},
    images, leftovers,
};
use crate::{
    need,
    suites::{Counts, read, run},
    tree::{built, root},
};

/// So long at most is waited for Docker where it does not answer, and so long for a machine that is busy.
const BOUND: Duration = Duration::from_secs(60);

/// The daemon, which the cases break and mend again, and the program that is tried.
struct Ground {
    daemon: Daemon,
    folder: PathBuf,
}

type Case = fn(&Ground) -> Result<()>;

/// The suite.
pub(crate) fn check() -> Result<Counts> {
    need::tools(&images::TOOLS)?;
    // In one build, since two would take turns at dependencies that both have with other features.
    let packages = ["-p", "glovebox-cli", "-p", "glovebox-docker", "--bins", "--example", "long_living"];
    run(&[&["cargo", "build", "--locked"], &packages[..]].concat())?;
    let places = Places::named("docker-faults")?;
    ensure!(places.living().is_none(), "another run of this suite has a daemon");
    let daemon = Daemon::start_at(places.clone(), Lifetime::OfThisProcess)?;
    images::load(&daemon.client(), &["busybox"])?;
    let folder = places.run.join("glovebox");
    fs::create_dir_all(&folder)?;
    let ground = Ground { daemon, folder };
    let cases: [(&str, Case); 16] = [
        ("without Docker the error says so and offers native", no_docker),
        ("native stands in for Docker where the caller allows it, and the result says so", fallback),
        ("a socket that takes connections and never answers keeps nobody", never_answers),
        (
            "a daemon that stands still before a run is an error, and the next run after it goes on works",
            stopped_before,
        ),
        ("a daemon that stands still at the end of a run takes nothing of its result", stopped_at_the_end),
        ("a daemon that dies and stays away takes nothing of a run's result", killed_for_good),
        ("a run whose daemon is restarted is lost, and says why", restarted),
        (
            "a sandbox that stays is stopped by a restart of its daemon, and starts again with its files",
            living_restarted,
        ),
        ("a sandbox that stays goes on while its daemon stands still", living_stopped),
        ("a daemon that stops at any moment of making sandboxes keeps nobody, and nothing is left", stopped_anywhere),
        ("a caller who is killed takes the workload along", caller_killed),
        ("callers who are killed at any moment leave nothing behind the next collection", callers_killed_anywhere),
        ("the first sandbox of a process removes what dead callers left, and nothing of live ones", swept_at_start),
        ("gc looks into Docker without being told, where Docker answers", gc_looks),
        ("a process that lives long recovers with Docker, and removes what others leave", long_living),
        ("a disk without room is told as such", no_room),
    ];
    let mut counts = Counts::default();
    for (name, case) in cases {
        let started = Instant::now();
        count(&mut counts, name, case(&ground));
        eprintln!("docker: that took {} ms", started.elapsed().as_millis());
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
        let mut child = self.docker(&["run", "--image", &image, "--", "sh", "-c", &script]).spawn()?;
        let mut out = BufReader::new(child.stdout.take().context("no output")?);
        let mut line = String::new();
        out.read_line(&mut line)?;
        if line != "started\n" {
            bail!("it did not start: {}", said(&ended(child)?));
        }
        Ok(Running { child, out })
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

    /// Collects, and an error if something is left then.
    fn nothing_is_left(&self) -> Result<()> {
        succeeds(self.docker(&["gc"]))?;
        let left = [self.containers()?, self.volumes()?].concat();
        ensure!(left.is_empty(), "left: {left:?}");
        Ok(())
    }

    /// A container as a caller leaves it who is killed before its start.
    fn leave(&self, owner: &str) -> Result<String> {
        let (sandbox, owner) = (format!("glovebox.sandbox={}", SandboxId::new()), format!("glovebox.owner={owner}"));
        let image = images::reference("busybox");
        let argv = ["create", "--label", "glovebox.managed=true", "--label", &sandbox, "--label", &owner, &image];
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
    /// Ends its input, which its program waits for, and gives what it said until the end.
    fn finish(mut self) -> Result<(Output, String)> {
        drop(self.child.stdin.take());
        let output = ended(self.child)?;
        Ok((output, std::io::read_to_string(self.out)?))
    }
}

/// Waits for the end, but not for ever.
fn ended(mut child: Child) -> Result<Output> {
    drop(child.stdin.take());
    let pid = Pid::from_child(&child);
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(child.wait_with_output()));
    match told.recv_timeout(BOUND) {
        Ok(output) => Ok(output?),
        Err(_) => {
            kill_process(pid, Signal::KILL)?;
            bail!("it did not end within {} s", BOUND.as_secs())
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
    let output = ended(command.spawn()?)?;
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

fn no_docker(ground: &Ground) -> Result<()> {
    let image = images::reference("busybox");
    let run = ["run", "--backend", "docker", "--image", &image, "--", "true"];
    let words = ["there is no Docker here", "--backend native"];
    fails(ground.glovebox_at("unix:///nonexistent/docker.sock", &run), "backend_unavailable", &words)?;
    // A socket that nobody listens at any more.
    let socket = ground.folder.join("dead.sock");
    drop(UnixListener::bind(&socket)?);
    let host = format!("unix://{}", socket.display());
    fails(ground.glovebox_at(&host, &run), "backend_unavailable", &["cannot be reached", "--backend native"])?;
    succeeds(ground.glovebox_at(&host, &["run", "--", "true"])).map(drop)
}

fn fallback(ground: &Ground) -> Result<()> {
    let none = "unix:///nonexistent/docker.sock";
    let at = |argv: &[&str]| ground.glovebox_at(none, &on_docker(argv));
    let allowed = ["run", "--fallback", "native", "--json", "-l", "sh", "-c", "echo here"];
    let document: Value = serde_json::from_str(&succeeds(at(&allowed))?)?;
    ensure!(document["backend"] == "native" && document["stdout"]["text"] == "here\n", "{document}");
    ensure!(document["warnings"][0]["code"] == "backend_unavailable", "{document}");
    let run = document["run"].as_str().context("no id")?;
    let shown: Value = serde_json::from_str(&succeeds(ground.glovebox_at(none, &["runs", "show", run, "--json"]))?)?;
    ensure!(shown["warnings"] == document["warnings"], "the record says {}", shown["warnings"]);
    let document: Value = serde_json::from_str(&succeeds(at(&["create", "--fallback", "native", "--json"]))?)?;
    ensure!(document["warnings"][0]["code"] == "backend_unavailable", "{document}");
    let id = document["sandbox"].as_str().context("no id")?;
    succeeds(ground.glovebox_at(none, &["destroy", id]))?;
    fails(at(&["run", "-l", "sh", "-c", "true"]), "backend_unavailable", &["--backend native"])?;
    // What an image promises, native does not have.
    let image = images::reference("busybox");
    fails(at(&["run", "--fallback", "native", "--image", &image, "--", "true"]), "backend_unavailable", &[])?;
    let project = ground.folder.join("project");
    fs::create_dir_all(&project)?;
    fs::write(project.join("glovebox.toml"), "fallback = ['native']")?;
    let mut untrusted = at(&["run", "-l", "sh", "-c", "true"]);
    untrusted.current_dir(&project);
    fails(untrusted, "untrusted_config", &["fallback"])?;
    let mut trusted = at(&["run", "--trust-project", "-l", "sh", "-c", "true"]);
    trusted.current_dir(&project);
    succeeds(trusted).map(drop)
}

fn never_answers(ground: &Ground) -> Result<()> {
    let socket = ground.folder.join("mute.sock");
    // The kernel takes connections for it, and nobody ever reads.
    let _listener = UnixListener::bind(&socket)?;
    let host = format!("unix://{}", socket.display());
    let image = images::reference("busybox");
    let run = ["run", "--backend", "docker", "--image", &image, "--", "true"];
    fails(ground.glovebox_at(&host, &run), "backend_unavailable", &["did not answer", "docker info"])?;
    fails(ground.glovebox_at(&host, &["gc", "--backend", "docker"]), "backend_unavailable", &["did not answer"])?;
    let started = Instant::now();
    succeeds(ground.glovebox_at(&host, &["run", "--", "true"]))?;
    succeeds(ground.glovebox_at(&host, &["gc"]))?;
    ensure!(started.elapsed() < Duration::from_secs(15), "native was kept for {:?}", started.elapsed());
    Ok(())
}

fn stopped_before(ground: &Ground) -> Result<()> {
    let image = images::reference("busybox");
    let run = ["run", "--image", &image, "--", "true"];
    ground.signal(Signal::STOP)?;
    fails(ground.docker(&run), "backend_unavailable", &["did not answer"])?;
    ground.signal(Signal::CONT)?;
    succeeds(ground.docker(&run))?;
    ground.nothing_is_left()
}

fn stopped_at_the_end(ground: &Ground) -> Result<()> {
    let running = ground.start("cat; echo done; exit 7")?;
    ground.signal(Signal::STOP)?;
    let (output, rest) = running.finish()?;
    ensure!(output.status.code() == Some(7) && rest == "done\n", "{rest} {}", said(&output));
    ensure!(said(&output).contains("still_ending"), "{}", said(&output));
    ground.signal(Signal::CONT)?;
    ground.nothing_is_left()
}

fn killed_for_good(ground: &Ground) -> Result<()> {
    let running = ground.start("cat; echo done; exit 7")?;
    ground.daemon.kill()?;
    let (output, rest) = running.finish()?;
    ensure!(output.status.code() == Some(7) && rest == "done\n", "{rest} {}", said(&output));
    ensure!(said(&output).contains("still_ending"), "{}", said(&output));
    ground.daemon.start_again()?;
    ground.nothing_is_left()
}

fn restarted(ground: &Ground) -> Result<()> {
    let running = ground.start("exec sleep 1000")?;
    ground.daemon.kill()?;
    ground.daemon.start_again()?;
    let (output, _) = running.finish()?;
    ensure!(output.status.code() == Some(125), "{}", said(&output));
    ensure!(said(&output).contains("Docker was restarted"), "{}", said(&output));
    ground.nothing_is_left()
}

/// Makes a sandbox that stays, and gives its id.
fn living(ground: &Ground) -> Result<String> {
    let id = succeeds(ground.docker(&["create", "--image", &images::reference("busybox")]))?.trim().to_owned();
    succeeds(ground.docker(&["exec", &id, "--", "sh", "-c", "echo kept > file"]))?;
    Ok(id)
}

fn reads_its_file(ground: &Ground, id: &str) -> Result<()> {
    let read = succeeds(ground.docker(&["exec", id, "--", "cat", "file"]))?;
    ensure!(read == "kept\n", "the file holds {read:?}");
    Ok(())
}

fn living_restarted(ground: &Ground) -> Result<()> {
    let id = living(ground)?;
    ground.daemon.kill()?;
    ground.daemon.start_again()?;
    fails(ground.docker(&["exec", &id, "--", "true"]), "wrong_state", &["glovebox start"])?;
    succeeds(ground.docker(&["start", &id]))?;
    reads_its_file(ground, &id)?;
    succeeds(ground.docker(&["destroy", &id]))?;
    ground.nothing_is_left()
}

fn living_stopped(ground: &Ground) -> Result<()> {
    let id = living(ground)?;
    ground.signal(Signal::STOP)?;
    fails(ground.docker(&["exec", &id, "--", "true"]), "backend_unavailable", &["did not answer"])?;
    ground.signal(Signal::CONT)?;
    reads_its_file(ground, &id)?;
    ground.signal(Signal::STOP)?;
    fails(ground.docker(&["destroy", &id]), "backend_unavailable", &["did not answer"])?;
    ground.signal(Signal::CONT)?;
    succeeds(ground.docker(&["destroy", &id]))?;
    ground.nothing_is_left()
}

/// Callers are at all stages of making a sandbox when the daemon stops.
fn stopped_anywhere(ground: &Ground) -> Result<()> {
    let image = images::reference("busybox");
    let mut children = Vec::new();
    for _ in 0..6 {
        children.push(ground.docker(&["run", "--image", &image, "--", "true"]).spawn()?);
        children.push(ground.docker(&["create", "--image", &image]).spawn()?);
        std::thread::sleep(Duration::from_millis(40));
    }
    ground.signal(Signal::STOP)?;
    let ends: Vec<Result<Output>> = children.into_iter().map(ended).collect();
    ground.signal(Signal::CONT)?;
    let mut ids = Vec::new();
    for end in ends {
        let end = end?;
        let told = said(&end);
        ensure!(end.status.success() || told.contains("did not answer"), "{told}");
        ids.extend(String::from_utf8(end.stdout)?.lines().filter(|_| end.status.success()).map(str::to_owned));
    }
    for id in ids {
        succeeds(ground.docker(&["destroy", &id]))?;
    }
    until("the end of all containers", || {
        succeeds(ground.docker(&["gc"]))?;
        Ok(ground.containers()?.is_empty() && ground.volumes()?.is_empty())
    })
}

fn caller_killed(ground: &Ground) -> Result<()> {
    let mut running = ground.start("exec sleep 1000")?;
    let containers = ground.containers()?;
    let [container] = containers.as_slice() else { bail!("there are {containers:?}") };
    let pid = ground.daemon.docker(&["inspect", "--format", "{{.State.Pid}}", container])?;
    let inside = Pid::from_raw(pid.trim().parse()?).context("the container has no process")?;
    running.child.kill()?;
    until("the end of the workload", || Ok(!leftovers::is_ours(&ground.daemon.places, inside)))?;
    until("the end of the container", || Ok(ground.containers()?.is_empty()))
}

fn callers_killed_anywhere(ground: &Ground) -> Result<()> {
    let image = images::reference("busybox");
    let mut ids = Vec::new();
    for step in 0..12 {
        let mut run = ground.docker(&["run", "--image", &image, "--", "sleep", "1000"]).spawn()?;
        let mut create = ground.docker(&["create", "--image", &image]).spawn()?;
        std::thread::sleep(Duration::from_millis(step * 40));
        run.kill()?;
        run.wait()?;
        create.kill()?;
        ids.extend(String::from_utf8(create.wait_with_output()?.stdout)?.lines().map(str::to_owned));
    }
    // Those that were made are in the list, said or not.
    let list = succeeds(ground.docker(&["list", "--ids"]))?;
    for id in &ids {
        ensure!(list.contains(id.as_str()), "{id} was made and is not in the list: {list}");
    }
    for id in list.lines() {
        succeeds(ground.docker(&["destroy", id]))?;
    }
    // A request that was under way when its caller died may still be made to a container.
    until("the end of all containers", || {
        succeeds(ground.docker(&["gc"]))?;
        Ok(ground.containers()?.is_empty() && ground.volumes()?.is_empty())
    })
}

fn swept_at_start(ground: &Ground) -> Result<()> {
    let (dead, alive) = (ground.leave(&owner(1)?)?, ground.leave(&owner(start_of_this_process()?)?)?);
    let running = ground.start("cat")?;
    until("the removal of what a dead caller left", || Ok(!ground.containers()?.contains(&dead)))?;
    ensure!(ground.containers()?.contains(&alive), "the container of a live owner was removed");
    running.finish()?;
    ensure!(ground.containers()?.contains(&alive), "the container of a live owner was removed");
    Ok(())
}

/// This process as a container's label names it, with this start.
fn owner(start: u64) -> Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let namespace = fs::read_link("/proc/self/ns/pid")?.to_string_lossy().replace(|c: char| !c.is_ascii_digit(), "");
    Ok(format!("{} {namespace} {} {start}", boot.trim(), std::process::id()))
}

fn start_of_this_process() -> Result<u64> {
    let stat = fs::read_to_string(Path::new("/proc/self/stat"))?;
    let words = stat.rsplit_once(") ").context("no name")?.1;
    Ok(words.split(' ').nth(19).context("no start")?.parse()?)
}

fn gc_looks(ground: &Ground) -> Result<()> {
    let (dead, alive) = (ground.leave(&owner(1)?)?, ground.leave(&owner(start_of_this_process()?)?)?);
    let told = succeeds(ground.glovebox(&["gc"]))?;
    ensure!(told.contains("removed the container of the sandbox"), "it said {told:?}");
    let left = ground.containers()?;
    ensure!(!left.contains(&dead) && left.contains(&alive), "left: {left:?}");
    Ok(())
}

fn long_living(ground: &Ground) -> Result<()> {
    let mut child = Command::new(built("debug/examples", "long_living"))
        .arg(images::reference("busybox"))
        .env("DOCKER_HOST", ground.daemon.places.host())
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("no input")?;
    let mut output = BufReader::new(child.stdout.take().context("no output")?);
    let mut ask = |word: &str, expected: &str| -> Result<()> {
        writeln!(input, "{word}")?;
        let mut answer = String::new();
        output.read_line(&mut answer)?;
        ensure!(answer.trim() == expected, "{word} was answered with {answer:?}");
        Ok(())
    };
    ask("one", "one")?;
    ground.daemon.kill()?;
    ask("two", "backend_unavailable")?;
    ground.daemon.start_again()?;
    ask("three", "three")?;
    ground.signal(Signal::STOP)?;
    ask("four", "backend_unavailable")?;
    ground.signal(Signal::CONT)?;
    ask("five", "five")?;
    let dead = ground.leave(&owner(1)?)?;
    until("the removal of what was left meanwhile", || Ok(!ground.containers()?.contains(&dead)))?;
    drop(input);
    ensure!(child.wait()?.success(), "it failed in the end");
    ground.nothing_is_left()
}

/// Docker's folder for new containers is full.
fn no_room(ground: &Ground) -> Result<()> {
    let image = images::reference("busybox");
    let run = ["run", "--image", &image, "--", "true"];
    let folder = ground.daemon.places.data.join("containers");
    let place = folder.to_string_lossy().into_owned();
    read(&["mount", "-t", "tmpfs", "-o", "size=4k", "full", &place])?;
    fs::write(folder.join("filling"), [0; 4096])?;
    let told = fails(ground.docker(&run), "sandbox_setup", &["no space left on device", "Docker's disk is full"]);
    read(&["umount", &place])?;
    told?;
    succeeds(ground.docker(&run))?;
    ground.nothing_is_left()
}
