//! One function for each way to break.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixListener,
    path::Path,
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::{Ground, ended, fails, on_docker, said, succeeds, until};
use crate::{
    docker::{images, leftovers},
    suites::read,
    tree::{built, root},
};

pub(super) fn no_docker(ground: &Ground) -> Result<()> {
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

pub(super) fn fallback(ground: &Ground) -> Result<()> {
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
    fails(
        at(&["run", "--fallback", "native", "--image", &image, "--", "true"]),
        "backend_unavailable",
        &["has no --image"],
    )?;
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

pub(super) fn never_answers(ground: &Ground) -> Result<()> {
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

pub(super) fn stopped_before(ground: &Ground) -> Result<()> {
    let image = images::reference("busybox");
    let run = ["run", "--image", &image, "--", "true"];
    ground.signal(Signal::STOP)?;
    fails(ground.docker(&run), "backend_unavailable", &["did not answer"])?;
    ground.signal(Signal::CONT)?;
    succeeds(ground.docker(&run))?;
    ground.nothing_is_left()
}

pub(super) fn stopped_at_the_end(ground: &Ground) -> Result<()> {
    let running = ground.start("cat; echo done; exit 7")?;
    ground.signal(Signal::STOP)?;
    let (output, rest) = running.finish()?;
    ensure!(output.status.code() == Some(7) && rest == "done\n", "{rest} {}", said(&output));
    ensure!(said(&output).contains("still_ending"), "{}", said(&output));
    ground.signal(Signal::CONT)?;
    ground.nothing_is_left()
}

pub(super) fn killed_for_good(ground: &Ground) -> Result<()> {
    let running = ground.start("cat; echo done; exit 7")?;
    ground.daemon.kill()?;
    let (output, rest) = running.finish()?;
    ensure!(output.status.code() == Some(7) && rest == "done\n", "{rest} {}", said(&output));
    ensure!(said(&output).contains("still_ending"), "{}", said(&output));
    ground.daemon.start_again()?;
    ground.nothing_is_left()
}

pub(super) fn restarted(ground: &Ground) -> Result<()> {
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

pub(super) fn living_restarted(ground: &Ground) -> Result<()> {
    let id = living(ground)?;
    ground.daemon.kill()?;
    ground.daemon.start_again()?;
    fails(ground.docker(&["exec", &id, "--", "true"]), "wrong_state", &["glovebox start"])?;
    succeeds(ground.docker(&["start", &id]))?;
    reads_its_file(ground, &id)?;
    succeeds(ground.docker(&["destroy", &id]))?;
    ground.nothing_is_left()
}

pub(super) fn living_stopped(ground: &Ground) -> Result<()> {
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
pub(super) fn stopped_anywhere(ground: &Ground) -> Result<()> {
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
    let mut unanswered = 0;
    for end in ends {
        let end = end?;
        let told = said(&end);
        ensure!(end.status.success() || told.contains("did not answer"), "{told}");
        unanswered += u32::from(!end.status.success());
        ids.extend(String::from_utf8(end.stdout)?.lines().filter(|_| end.status.success()).map(str::to_owned));
    }
    ensure!(unanswered > 0, "all were done before it stood still");
    for id in ids {
        succeeds(ground.docker(&["destroy", &id]))?;
    }
    until("the end of all containers", || ground.has_nothing_after_gc())
}

/// It stands still for two seconds at a time, and answers a little in between.
pub(super) fn slow(ground: &Ground) -> Result<()> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let slowing = scope.spawn(|| -> Result<()> {
            while !is_over.load(Ordering::Relaxed) {
                ground.signal(Signal::STOP)?;
                std::thread::sleep(Duration::from_secs(2));
                ground.signal(Signal::CONT)?;
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(())
        });
        let image = images::reference("busybox");
        let told = succeeds(ground.docker(&["run", "--image", &image, "--", "echo", "inside"]));
        is_over.store(true, Ordering::Relaxed);
        slowing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let told = told?;
        ensure!(told == "inside\n", "it said {told:?}");
        Ok(())
    })
}

pub(super) fn caller_killed(ground: &Ground) -> Result<()> {
    let mut running = ground.start("exec sleep 1000")?;
    let containers = ground.containers()?;
    let [container] = containers.as_slice() else { bail!("there are {containers:?}") };
    let pid = ground.daemon.docker(&["inspect", "--format", "{{.State.Pid}}", container])?;
    let inside = Pid::from_raw(pid.trim().parse()?).context("the container has no process")?;
    running.child.kill()?;
    until("the end of the workload", || Ok(!leftovers::is_ours(&ground.daemon.places, inside)))?;
    until("the end of the container", || Ok(ground.containers()?.is_empty()))?;
    // What only this machine has is removed by whoever looks next, and not some time later.
    ensure!(!ground.folders().is_empty(), "it left no folder");
    succeeds(ground.docker(&["gc"]))?;
    let left = ground.folders();
    ensure!(left.is_empty(), "left: {left:?}");
    Ok(())
}

pub(super) fn callers_killed_anywhere(ground: &Ground) -> Result<()> {
    let image = images::reference("busybox");
    let mut ids = Vec::new();
    // Until one came to its end before its caller did.
    for step in 0..100 {
        if step >= 12 && !ids.is_empty() {
            break;
        }
        let mut run = ground.docker(&["run", "--image", &image, "--", "sleep", "1000"]).spawn()?;
        let mut create = ground.docker(&["create", "--image", &image]).spawn()?;
        std::thread::sleep(Duration::from_millis(step * 40));
        run.kill()?;
        run.wait()?;
        create.kill()?;
        ids.extend(String::from_utf8(create.wait_with_output()?.stdout)?.lines().map(str::to_owned));
    }
    ensure!(!ids.is_empty(), "no sandbox was made in four seconds");
    // Those that were made are in the list, said or not.
    let list = succeeds(ground.docker(&["list", "--ids"]))?;
    for id in &ids {
        ensure!(list.contains(id.as_str()), "{id} was made and is not in the list: {list}");
    }
    for id in list.lines() {
        succeeds(ground.docker(&["destroy", id]))?;
    }
    // A request that was under way when its caller died may still be made to a container.
    until("the end of all containers", || ground.has_nothing_after_gc())
}

/// Who looks at a stopped sandbox has a container of its own for that.
pub(super) fn onlookers_killed(ground: &Ground) -> Result<()> {
    let id = living(ground)?;
    succeeds(ground.docker(&["stop", &id]))?;
    for step in 0..10 {
        let mut looking = ground.docker(&["changes", &id]).spawn()?;
        std::thread::sleep(Duration::from_millis(step * 60));
        looking.kill()?;
        looking.wait()?;
        let stopped = succeeds(ground.docker(&["list", "--ids", "--state", "stopped"]))?;
        ensure!(stopped.contains(&id), "it is not stopped any more: {stopped}");
    }
    let changes = succeeds(ground.docker(&["changes", &id]))?;
    ensure!(changes.contains("file"), "it said {changes:?}");
    succeeds(ground.docker(&["start", &id]))?;
    reads_its_file(ground, &id)?;
    succeeds(ground.docker(&["stop", &id]))?;
    until("the end of all containers", || {
        succeeds(ground.docker(&["gc"]))?;
        Ok(ground.containers()?.is_empty())
    })?;
    let mut looking = ground.docker(&["changes", &id]).spawn()?;
    until("somebody who looks", || Ok(!ground.containers()?.is_empty()))?;
    looking.kill()?;
    looking.wait()?;
    // What it left has a volume of the sandbox, and keeps it from nothing.
    succeeds(ground.docker(&["destroy", &id]))?;
    let volumes = ground.volumes()?;
    ensure!(volumes.is_empty(), "left: {volumes:?}");
    until("the end of all containers", || {
        succeeds(ground.docker(&["gc"]))?;
        Ok(ground.containers()?.is_empty())
    })
}

/// What a start that was killed has begun is not taken for a sandbox that runs.
pub(super) fn starters_killed(ground: &Ground) -> Result<()> {
    let id = living(ground)?;
    for step in 0..16 {
        succeeds(ground.docker(&["stop", &id]))?;
        let mut starting = ground.docker(&["start", &id]).spawn()?;
        std::thread::sleep(Duration::from_millis(step * 20));
        starting.kill()?;
        starting.wait()?;
        succeeds(ground.docker(&["start", &id]))?;
        reads_its_file(ground, &id)?;
    }
    succeeds(ground.docker(&["destroy", &id]))?;
    until("the end of all containers", || ground.has_nothing_after_gc())
}

pub(super) fn swept_at_start(ground: &Ground) -> Result<()> {
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

pub(super) fn gc_looks(ground: &Ground) -> Result<()> {
    let (dead, alive) = (ground.leave(&owner(1)?)?, ground.leave(&owner(start_of_this_process()?)?)?);
    let told = succeeds(ground.glovebox(&["gc"]))?;
    ensure!(told.contains("removed the container of the sandbox"), "it said {told:?}");
    let left = ground.containers()?;
    ensure!(!left.contains(&dead) && left.contains(&alive), "left: {left:?}");
    Ok(())
}

pub(super) fn long_living(ground: &Ground) -> Result<()> {
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
pub(super) fn no_room(ground: &Ground) -> Result<()> {
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
