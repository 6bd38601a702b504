//! The command line with a Docker engine: images, registries, and sandboxes of two backends side by side.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Output,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::{
    Case, containment,
    daemon::{Daemon, Lifetime, Manner, Places},
    images, kinds,
    registry::{Door, PASSWORD, Registry, USER},
    storage, tally, volumes, with_images,
};
use crate::{
    suites::{Counts, command},
    tree::{built, root},
};

/// The suite.
pub(crate) fn check() -> Result<Counts> {
    let daemon = with_images(Lifetime::OfThisProcess)?;
    let cases: [(&str, Case); 23] = [
        ("an image is fetched, listed, used and removed", an_image_comes_and_goes),
        ("a run fetches the image that it needs, and says so", a_run_fetches),
        ("a stranger is told that a registry is locked", a_stranger_is_told),
        ("a locked registry gives to whom docker login knows", a_registry_knows_its_user),
        ("a locked registry gives to whom a credential helper knows", a_helper_is_asked),
        ("a mirror gives all images of the catalog that it has, and the others are named", a_mirror_gives),
        ("sandboxes of two backends are reached by their names alone", two_backends),
        ("programs of every image with a shell have the same user, home and folder", kinds::shells),
        ("of what an image says of itself, its variables are used and nothing else", kinds::configuration),
        ("programs with another libc run, and those of an image with nothing else", kinds::programs),
        ("an image with one program has files, changes and runs", kinds::nothing_else),
        ("a shell is the best that the image has", kinds::best_shell),
        ("an agent works in a container", kinds::agent),
        ("a volume is the same in sandboxes of two backends", storage::a_volume_of_two_backends),
        ("a sandbox whose files somebody removed does not start without them", storage::files_that_are_gone),
        ("what a killed maker left in Docker waits for whoever can remove it", storage::what_a_maker_left),
        (
            "a process that Docker starts in a container is held by our profile",
            containment::the_profile_holds_the_whole_container,
        ),
        (
            "commands with the id of their caller keep nobody from their sandbox",
            containment::commands_with_the_id_of_their_caller,
        ),
        ("nothing is written to the volumes of an image, and none is left", volumes::of_an_image),
        ("an image that leads mounts astray has no sandbox", volumes::led_astray),
        ("labels of an image are not taken for ours", volumes::labels_of_an_image),
        ("every guarantee that a Docker engine can give holds", containment::what_is_promised_holds),
        ("every guarantee that gVisor can give holds", containment::what_is_promised_holds_in_gvisor),
    ];
    Ok(tally(&daemon, &cases))
}

/// The program with settings of its own: a Docker configuration, a data folder and programs in this folder.
pub(super) fn glovebox(daemon: &Daemon, folder: &Path, args: &[&str]) -> Result<Output> {
    let program = built("debug", "glovebox").to_string_lossy().into_owned();
    called(daemon, folder, &[&[program.as_str()], args].concat())
}

/// The same by the words that start it, whoever it then is.
pub(super) fn called(daemon: &Daemon, folder: &Path, argv: &[&str]) -> Result<Output> {
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let mut called = command(argv);
    called.env("DOCKER_HOST", daemon.places.host()).env("DOCKER_CONFIG", folder).env("PATH", path);
    called.env("GLOVEBOX_DATA_DIR", folder.join("data")).current_dir(folder);
    let output = called.output().context("cannot start glovebox")?;
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    ensure!(!String::from_utf8_lossy(&said).contains(PASSWORD), "the password was printed");
    Ok(output)
}

/// Calls the program, which must do what it is asked for, and gives its document.
pub(super) fn document(daemon: &Daemon, folder: &Path, args: &[&str]) -> Result<Value> {
    let output = glovebox(daemon, folder, &[args, &["--json"]].concat())?;
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`glovebox {}` said {said} {errors}", args.join(" "));
    serde_json::from_str(&said).with_context(|| format!("`glovebox {}` said {said}", args.join(" ")))
}

/// An empty folder for one case.
pub(super) fn folder(daemon: &Daemon, name: &str) -> Result<std::path::PathBuf> {
    let folder = daemon.places.run.join("command").join(name);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

pub(super) const DOCKER: [&str; 2] = ["--backend", "docker"];

fn pull(daemon: &Daemon, folder: &Path, image: &str) -> Result<Value> {
    document(daemon, folder, &["images", "pull", image, DOCKER[0], DOCKER[1]])
}

fn names(daemon: &Daemon, folder: &Path) -> Result<Vec<String>> {
    let listed = document(daemon, folder, &["images", "list", DOCKER[0], DOCKER[1]])?;
    let images = listed["images"].as_array().context("no list of images")?;
    Ok(images.iter().filter_map(|image| image["image"].as_str().map(str::to_owned)).collect())
}

fn an_image_comes_and_goes(daemon: &Daemon) -> Result<()> {
    let folder = folder(daemon, "comes-and-goes")?;
    let registry = Registry::start(daemon, Door::Open)?;
    let name = registry.push(daemon, &images::reference("debian"))?;
    let pulled = pull(daemon, &folder, &name)?;
    let image = &pulled["images"][0];
    let digest = image["digest"].as_str().unwrap_or_default();
    ensure!(image["image"] == *name && digest.starts_with("sha256:"), "what was fetched is {pulled}");
    ensure!(image["bytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20), "its size is {}", image["bytes"]);
    ensure!(names(daemon, &folder)?.contains(&name), "it is not listed");
    let ran = document(
        daemon,
        &folder,
        &["run", DOCKER[0], DOCKER[1], "--image", &name, "-l", "python", "-c", "print(6 * 7)"],
    )?;
    ensure!(ran["stdout"]["text"] == "42\n" || ran["stdout"] == "42\n", "it printed {}", ran["stdout"]);
    let removed = document(daemon, &folder, &["images", "remove", &name, DOCKER[0], DOCKER[1]])?;
    ensure!(removed == json!({ "removed": [name] }), "removed was {removed}");
    ensure!(!names(daemon, &folder)?.contains(&name), "it is still listed");
    let again = glovebox(daemon, &folder, &["images", "remove", &name, DOCKER[0], DOCKER[1]])?;
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    ensure!(again.status.code() == Some(125) && said.contains("[image_not_found]"), "the second time it said {said}");
    Ok(())
}

fn a_run_fetches(daemon: &Daemon) -> Result<()> {
    let folder = folder(daemon, "run-fetches")?;
    let registry = Registry::start(daemon, Door::Open)?;
    let name = registry.push(daemon, &images::reference("busybox"))?;
    let ran = glovebox(daemon, &folder, &["run", DOCKER[0], DOCKER[1], "--image", &name, "--", "echo", "inside"])?;
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    ensure!(ran.status.success() && ran.stdout == b"inside\n", "it failed: {said}");
    ensure!(said.contains(&format!("fetching {name}")), "it said {said}");
    daemon.docker(&["image", "rm", &name]).map(drop)
}

fn a_stranger_is_told(daemon: &Daemon) -> Result<()> {
    let folder = folder(daemon, "stranger")?;
    let (_registry, name) = locked(daemon)?;
    let refused = glovebox(daemon, &folder, &["images", "pull", &name, DOCKER[0], DOCKER[1]])?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(125), "it ended with {}", refused.status);
    ensure!(said.contains("[image_not_found]") && said.contains("docker login"), "it said {said}");
    Ok(())
}

fn a_registry_knows_its_user(daemon: &Daemon) -> Result<()> {
    let folder = folder(daemon, "user")?;
    let (registry, name) = locked(daemon)?;
    let auths = super::daemon::Client { host: daemon.places.host(), config: folder.clone() };
    auths.docker(&["login", "--username", USER, "--password", PASSWORD, &registry.address])?;
    pull(daemon, &folder, &name)?;
    daemon.docker(&["image", "rm", &name]).map(drop)
}

fn a_helper_is_asked(daemon: &Daemon) -> Result<()> {
    let folder = folder(daemon, "helper")?;
    let (registry, name) = locked(daemon)?;
    let helper = folder.join("docker-credential-case");
    let script = format!(
        "#!/bin/sh\nread server\n[ \"$1 $server\" = \"get {}\" ] || {{ echo credentials not found; exit 1; }}\n\
         echo '{{\"ServerURL\": \"x\", \"Username\": \"{USER}\", \"Secret\": \"{PASSWORD}\"}}'\n",
        registry.address
    );
    fs::write(&helper, script)?;
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755))?;
    let config = |helper: &str| json!({ "credHelpers": { registry.address.as_str(): helper } }).to_string();
    fs::write(folder.join("config.json"), config("case"))?;
    pull(daemon, &folder, &name)?;
    daemon.docker(&["image", "rm", &name])?;
    fs::write(folder.join("config.json"), config("missing"))?;
    let refused = glovebox(daemon, &folder, &["images", "pull", &name, DOCKER[0], DOCKER[1]])?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(said.contains("docker-credential-missing cannot be started"), "without its program it said {said}");
    Ok(())
}

/// All images of the catalog are fetched from a mirror. It has those of Docker's own registry, as mirrors do.
fn a_mirror_gives(daemon: &Daemon) -> Result<()> {
    let catalog = fs::read_to_string(root().join("images/catalog.toml"))?;
    let values = catalog.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "));
    let catalog: BTreeSet<&str> = values.map(|(_, name)| name.trim_matches('"')).collect();
    let (others, of_docker): (BTreeSet<&str>, BTreeSet<&str>) = catalog.iter().partition(|name| name.contains('/'));
    ensure!(!others.is_empty() && of_docker.len() > 5, "the catalog is {catalog:?}");
    let registry = Registry::start(daemon, Door::Open)?;
    let image = images::reference("busybox");
    for name in &of_docker {
        registry.push_as(daemon, &image, &format!("library/{name}"))?;
    }
    let behind = Daemon::start_at(
        Places::named("docker-mirror")?,
        Lifetime::OfThisProcess,
        Manner::Behind(registry.address.clone()),
    )?;
    let folder = folder(&behind, "mirror")?;
    let output = glovebox(&behind, &folder, &["images", "pull", "--all", DOCKER[0], DOCKER[1], "--json"])?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(125), "two cannot be had, and it said {said}");
    let pulled: Value = serde_json::from_slice(&output.stdout)?;
    let all = |key: &str| pulled[key].as_array().cloned().unwrap_or_default();
    let images = all("images");
    let had: BTreeSet<&str> = images.iter().filter_map(|image| image["image"].as_str()).collect();
    ensure!(had == of_docker, "fetched were {pulled}");
    let digests = images.iter().filter_map(|image| image["digest"].as_str());
    ensure!(digests.filter(|digest| digest.starts_with("sha256:")).count() == of_docker.len(), "{pulled}");
    let failed = all("failed");
    let not_had = failed.iter().filter(|failure| failure["code"] == "image_unavailable");
    ensure!(not_had.filter_map(|failure| failure["name"].as_str()).collect::<BTreeSet<_>>() == others, "{pulled}");
    ensure!(
        names(&behind, &folder)?.iter().map(String::as_str).collect::<BTreeSet<_>>() == of_docker,
        "others are here"
    );
    Ok(())
}

/// A registry that asks who is there, with an image in it.
fn locked(daemon: &Daemon) -> Result<(Registry, String)> {
    let registry = Registry::start(daemon, Door::Locked)?;
    let log_in = ["login", "--username", USER, "--password", PASSWORD, &registry.address];
    daemon.docker(&log_in)?;
    let name = registry.push(daemon, &images::reference("busybox"))?;
    daemon.docker(&["logout", &registry.address])?;
    Ok((registry, name))
}

fn two_backends(daemon: &Daemon) -> Result<()> {
    let folder = folder(daemon, "two")?;
    let image = images::reference("debian");
    document(daemon, &folder, &["create", "--name", "native"])?;
    document(daemon, &folder, &["create", "--name", "docker", DOCKER[0], DOCKER[1], "--image", &image])?;
    let held = use_both(daemon, &folder);
    let ended = document(daemon, &folder, &["destroy", "native", "docker"]);
    held?;
    ended.map(drop)
}

fn use_both(daemon: &Daemon, folder: &Path) -> Result<()> {
    let states = || -> Result<Value> {
        let listed = document(daemon, folder, &["list"])?;
        let all = listed["sandboxes"].as_array().context("no list")?;
        Ok(all.iter().map(|status| json!([status["name"], status["backend"], status["state"]])).collect())
    };
    let both = |docker: &str| json!([["native", "native", "ready"], ["docker", "docker", docker]]);
    ensure!(states()? == both("ready"), "the states are {}", states()?);
    let ran = glovebox(
        daemon,
        folder,
        &["exec", "docker", "--", "sh", "-c", "test -e /.dockerenv && echo container > kept; cat kept"],
    )?;
    ensure!(ran.stdout == b"container\n", "it printed {}", String::from_utf8_lossy(&ran.stdout));
    for (verb, state) in [("pause", "paused"), ("resume", "ready"), ("stop", "stopped"), ("start", "ready")] {
        let done = document(daemon, folder, &[verb, "docker"])?;
        ensure!(done["state"] == state && states()? == both(state), "{verb}: {done}");
    }
    let read = glovebox(daemon, folder, &["files", "read", "docker", "kept"])?;
    ensure!(read.stdout == b"container\n", "the file holds {}", String::from_utf8_lossy(&read.stdout));
    // A daemon that hangs takes connections and does not answer.
    let pid = daemon.places.living().context("the daemon does not run")?;
    kill_process(pid, Signal::STOP)?;
    let started = Instant::now();
    let seen = states();
    let took = started.elapsed();
    kill_process(pid, Signal::CONT)?;
    ensure!(seen? == both("unknown"), "while Docker hung the states were others");
    ensure!(took < Duration::from_secs(9), "the list took {} s", took.as_secs());
    ensure!(states()? == both("ready"), "Docker goes on, and the states are {}", states()?);
    Ok(())
}
