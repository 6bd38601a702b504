//! Docker for the tests: a private daemon, images, registries. The verb `docker` gives the same to a person.

pub(crate) mod command;
mod containment;
pub(crate) mod daemon;
pub(crate) mod elsewhere;
pub(crate) mod faults;
pub(crate) mod images;
mod kinds;
mod leftovers;
mod podman;
mod registry;
mod relay;
pub(crate) mod remote;
mod storage;
mod volumes;

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use self::{
    daemon::{Daemon, Lifetime, Places},
    podman::Podman,
    registry::{Door, PASSWORD, Registry, USER},
    remote::Remote,
};
use crate::{
    need,
    suites::{Counts, Suites, run as run_command},
};

/// The verb `docker`.
pub(crate) fn docker(args: &[String]) -> Result<()> {
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["start"] => {
            let daemon = with_images(Lifetime::UntilStopped)?;
            println!("export DOCKER_HOST={}", daemon.places.host());
            let remote = Remote::of(&daemon.places)?.variables().map(|(name, value)| format!("{name}={value}"));
            println!("# or, as an engine of another machine: export {}", remote.join(" "));
            Ok(())
        }
        ["stop"] => {
            need::root()?;
            daemon::stop(&Places::of_this_tree()?)
        }
        ["status"] => {
            let places = Places::of_this_tree()?;
            match places.living() {
                Some(pid) => println!("process {}, at {}", pid.as_raw_nonzero(), places.host()),
                None => println!("no daemon runs for this tree"),
            }
            Ok(())
        }
        ["test"] => {
            build()?;
            let mut suites = Suites::new();
            self::suites(&mut suites);
            suites.finish()
        }
        ["check"] => {
            build()?;
            let mut suites = Suites::new();
            suites.run("Docker for tests", check);
            suites.run("command line, docker", command::check);
            suites.finish()
        }
        ["commands"] => alone("command line, docker", command::check),
        ["faults"] => alone("Docker faults", faults::check),
        ["faults", filter] => alone("Docker faults", || faults::some(filter)),
        ["mapped"] => alone("conformance with ids of its own", elsewhere::mapped),
        ["gvisor"] => alone("conformance in gVisor", elsewhere::gvisor),
        ["podman"] => alone("conformance on Podman", elsewhere::podman),
        ["remote"] => alone("conformance on another machine", elsewhere::remote),
        _ => bail!(
            "what was meant: start, stop, status, test, check, commands, faults, mapped, gvisor, podman or remote?"
        ),
    }
}

/// All suites with a Docker engine, with programs that are built. The first stops its daemon, the last has its own, and the others share
/// one.
pub(crate) fn suites(suites: &mut Suites) {
    suites.run("Docker for tests", check);
    // Without one each of them starts its own, and says why it cannot.
    let daemon = with_images(Lifetime::OfThisProcess);
    suites.run("conformance, docker", elsewhere::here);
    suites.run("… as a user of its socket", elsewhere::as_user);
    suites.run("… with ids of its own", elsewhere::mapped);
    suites.run("… on another machine", elsewhere::remote);
    suites.run("… in gVisor", elsewhere::gvisor);
    suites.run("… on Podman", elsewhere::podman);
    suites.run("command line, docker", command::check);
    drop(daemon);
    suites.run("Docker faults", faults::check);
}

/// Builds what the suites use. In one build, since two would take turns at dependencies that both have with other features.
fn build() -> Result<()> {
    run_command(&["cargo", "build", "--locked", "--workspace", "--bins", "--example", "long_living"])
}

/// Runs one suite, and says what became of it.
fn alone(name: &str, work: impl FnOnce() -> Result<Counts>) -> Result<()> {
    build()?;
    let mut suites = Suites::new();
    suites.run(name, work);
    suites.finish()
}

/// Starts the daemon and puts the images into it. Says how long each took.
pub(crate) fn with_images(lifetime: Lifetime) -> Result<Daemon> {
    need::tools(&images::TOOLS)?;
    let started = Instant::now();
    let daemon = Daemon::start(lifetime)?;
    let ready = started.elapsed();
    images::load(&daemon.client(), &images::NAMES)?;
    eprintln!(
        "docker: ready after {} ms with storage driver {}, the images after {} ms more",
        ready.as_millis(),
        daemon.storage,
        (started.elapsed() - ready).as_millis()
    );
    Ok(daemon)
}

/// One thing that must hold with a daemon that runs.
type Case = fn(&Daemon) -> Result<()>;

/// The suite that tries this module itself: what the tests of the Docker backend rely on.
pub(crate) fn check() -> Result<Counts> {
    let daemon = with_images(Lifetime::OfThisProcess)?;
    let cases: [(&str, Case); 6] = [
        ("each image runs, and runs as it says", images_run),
        ("a container reaches the host at the address of the bridge", the_bridge_reaches_the_host),
        ("gVisor runs an image", gvisor_runs),
        ("Podman runs an image for Docker's client", podman_runs),
        ("an open registry gives what was put into it", an_open_registry_gives),
        ("a locked registry gives it to its user only", a_locked_registry_gives_to_its_user),
    ];
    let mut counts = tally(&daemon, &cases);
    count(
        &mut counts,
        "a daemon that was killed leaves nothing behind the next start",
        killed_and_started_again(daemon),
    );
    Ok(counts)
}

/// Tries each of these with a daemon.
fn tally(daemon: &Daemon, cases: &[(&str, Case)]) -> Counts {
    let mut counts = Counts::default();
    for (name, case) in cases {
        count(&mut counts, name, case(daemon));
    }
    counts
}

fn count(counts: &mut Counts, name: &str, held: Result<()>) {
    match held {
        Ok(()) => {
            println!("ok {name}");
            counts.passed += 1;
        }
        Err(error) => {
            println!("FAILED {name}: {error:#}");
            counts.failed += 1;
            counts.failures.push(format!("{name}: {error:#}"));
        }
    }
}

/// Runs a container to its end and gives what it printed.
fn run(daemon: &Daemon, argv: &[&str]) -> Result<String> {
    daemon.docker(&[&["run", "--rm", "--network", "none"], argv].concat())
}

fn images_run(daemon: &Daemon) -> Result<()> {
    let said =
        run(daemon, &[&images::reference("debian"), "sh", "-c", "python3 -V; node -v; . /etc/os-release; echo $ID"])?;
    ensure!(said.contains("Python 3") && said.contains("v1") && said.contains("debian"), "debian: {said}");
    let said = run(daemon, &[&images::reference("busybox")])?;
    ensure!(said == "entry default\n", "busybox: {said}");
    let script = "id -u; pwd; echo $GREETING";
    let said = run(daemon, &["--entrypoint", "/bin/sh", &images::reference("busybox"), "-c", script])?;
    ensure!(said == "1234\n/srv/app\nhello from the image\n", "busybox: {said}");
    let said = run(daemon, &[&images::reference("musl"), "says", "a"])?;
    ensure!(said.starts_with("argument says\nargument a\n"), "musl: {said}");
    let said = run(daemon, &[&images::reference("distroless"), "b"])?;
    ensure!(said.starts_with("argument /says\nargument b\n"), "distroless: {said}");
    Ok(())
}

fn the_bridge_reaches_the_host(daemon: &Daemon) -> Result<()> {
    let address = &daemon.places.address;
    let listener = std::net::TcpListener::bind((address.as_str(), 0))?;
    let port = listener.local_addr()?.port();
    let served = std::thread::spawn(move || -> std::io::Result<()> {
        std::io::Write::write_all(&mut listener.accept()?.0, b"from the host\n")
    });
    let script = format!("exec 3<>/dev/tcp/{address}/{port}; cat <&3");
    let said = daemon.docker(&["run", "--rm", &images::reference("debian"), "bash", "-c", &script])?;
    ensure!(said == "from the host\n", "it read {said:?}");
    served.join().ok().context("the host's side failed")??;
    Ok(())
}

fn gvisor_runs(daemon: &Daemon) -> Result<()> {
    let said = run(daemon, &["--runtime", "runsc", &images::reference("debian"), "dmesg"])?;
    ensure!(said.contains("Starting gVisor"), "the kernel inside says {said}");
    Ok(())
}

fn podman_runs(daemon: &Daemon) -> Result<()> {
    let podman = Podman::start(daemon)?;
    images::load(&podman.client, &["busybox"])?;
    let said = podman.client.docker(&["run", "--rm", "--network", "none", &images::reference("busybox")])?;
    ensure!(said == "entry default\n", "it said {said:?}");
    Ok(())
}

fn an_open_registry_gives(daemon: &Daemon) -> Result<()> {
    let registry = Registry::start(daemon, Door::Open)?;
    let name = registry.push(daemon, &images::reference("busybox"))?;
    daemon.docker(&["pull", "--quiet", &name])?;
    let said = run(daemon, &[&name])?;
    ensure!(said == "entry default\n", "what was pulled says {said:?}");
    Ok(())
}

fn a_locked_registry_gives_to_its_user(daemon: &Daemon) -> Result<()> {
    let registry = Registry::start(daemon, Door::Locked)?;
    let log_in = ["login", "--username", USER, "--password", PASSWORD, &registry.address];
    daemon.docker(&log_in)?;
    let name = registry.push(daemon, &images::reference("busybox"))?;
    daemon.docker(&["logout", &registry.address])?;
    let refused = daemon.docker(&["pull", "--quiet", &name]);
    let said = refused.err().context("a stranger could pull")?.to_string();
    ensure!(said.contains("no basic auth credentials"), "a stranger was told {said}");
    daemon.docker(&log_in)?;
    daemon.docker(&["pull", "--quiet", &name])?;
    daemon.docker(&["logout", &registry.address])?;
    Ok(())
}

/// Kills the daemon while a container runs, and starts it again: nothing of the first may be there.
fn killed_and_started_again(daemon: Daemon) -> Result<()> {
    let places = daemon.places.clone();
    let image = images::reference("busybox");
    let argv = ["run", "--detach", "--entrypoint", "/bin/sleep", &image, "1000"];
    let container = daemon.docker(&argv)?;
    let pid = daemon.docker(&["inspect", "--format", "{{.State.Pid}}", container.trim()])?;
    let inside = rustix::process::Pid::from_raw(pid.trim().parse()?).context("the container has no process")?;
    leftovers::kill(places.living().context("the daemon does not run")?)?;
    ensure!(leftovers::is_ours(&places, inside), "the container should have outlived its daemon");
    // The first is forgotten, as by a test run that was killed as well.
    std::mem::forget(daemon);
    let next = Daemon::start(Lifetime::OfThisProcess)?;
    ensure!(!leftovers::is_ours(&places, inside), "a process of a container is left");
    ensure!(next.docker(&["ps", "--all", "--quiet"])?.is_empty(), "a container is left");
    drop(next);
    leftovers::nothing_is_left(&places)
}
