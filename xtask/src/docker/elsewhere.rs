//! The conformance suite on Docker, and where Docker's own engine and runtime are not: in gVisor, on Podman, and on another machine; and what Podman without root says.

use std::{fs, os::unix::fs::PermissionsExt};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{
    Case,
    daemon::{Daemon, Lifetime, Manner, Places},
    images,
    podman::Podman,
    remote::Remote,
    tally, with_images,
};
use crate::{
    suites::{Counts, command},
    test::suite,
    tree::built,
};

/// What tells most about another engine: containers that come, go, stay, stop and are held.
const ON_PODMAN: [&str; 6] = ["outcomes", "layers", "attacks", "run_changes", "living", CONTROL];

/// What tells most about an engine that no folder is shared with: groups about connections that are lost, cut and many, and about what is kept
/// there; and parts of the sentences of cases.
const ON_ANOTHER_MACHINE: [&str; 25] = [
    CONTROL,
    "clients",
    "descriptors",
    "volumes_elsewhere",
    "eight mebibytes come back from an echo unchanged",
    "stdout and stderr are kept apart",
    "output arrives while the program still runs",
    "memory that kills only a child is a limit that was hit",
    "a sandbox that goes away under its run is lost",
    "a guest that is killed loses all its runs and no others",
    "a fork bomb meets its limit",
    "much output does not grow the memory of glovebox",
    "one who stands still at a terminal does not stop it",
    "a terminal that is resized tells the program",
    "sixty files are written and read at once",
    "a folder comes out as an archive and goes in as the same folder",
    "living sandboxes share a volume at the same time",
    "a volume that a sandbox has stays and the error names it",
    "a volume with hostile content is removed and nothing else",
    "a stopped sandbox has no process and all of its files",
    "a paused sandbox takes no run and can be destroyed",
    "what a run defines is there for the next",
    "a file is written and read back byte for byte",
    "writes into an overlay stay inside and come back as changes",
    "a read only workspace cannot be written",
];

/// What depends on whose files are whose.
const ON_IDS_OF_ITS_OWN: [&str; 7] = ["outcomes", "layers", "storage", "run_changes", "living", "attacks", CONTROL];

/// Without it nobody knows whether anything would be seen that is left.
const CONTROL: &str = "leftover checks see a living sandbox";

/// The whole suite.
pub(crate) fn here() -> Result<Counts> {
    let daemon = with_images(Lifetime::OfThisProcess)?;
    conformance(&daemon.places.host(), &[])
}

/// The most telling cases with the daemon at the end of a network with TLS.
pub(crate) fn remote() -> Result<Counts> {
    let daemon = with_images(Lifetime::OfThisProcess)?;
    let socket = format!("CONFORMANCE_DOCKER_SOCKET={}", daemon.places.run.join("docker.sock").display());
    let variables = Remote::of(&daemon.places)?.variables().map(|(name, value)| format!("{name}={value}"));
    let by = [&["env".to_owned(), socket], &variables[..]].concat();
    let by: Vec<&str> = by.iter().map(String::as_str).collect();
    let image = images::reference("debian");
    // Docker before 25.0 says what a container uses once a second.
    let flags = ["--backend", "docker", "--image", &image, "--longest", "120"];
    suite(&by, &[&flags, &ON_ANOTHER_MACHINE[..]].concat())
}

/// What is about ids on an engine whose containers have some of their own.
pub(crate) fn mapped() -> Result<Counts> {
    let daemon = Daemon::start_at(Places::named("docker-mapped")?, Lifetime::OfThisProcess, Manner::Mapped)?;
    images::load(&daemon.client(), &["debian"])?;
    conformance(&daemon.places.host(), &ON_IDS_OF_ITS_OWN)
}

/// What an ordinary user can have of an engine whose socket they may use.
pub(crate) fn as_user() -> Result<Counts> {
    let daemon = with_images(Lifetime::OfThisProcess)?;
    conformance(&daemon.places.host(), &["--as-user", "one-id", "outcomes", "living", "run_changes", CONTROL])
}

/// The whole suite in gVisor.
pub(crate) fn gvisor() -> Result<Counts> {
    let daemon = with_images(Lifetime::OfThisProcess)?;
    conformance(&daemon.places.host(), &["--runtime", "runsc"])
}

/// The suite on Podman of root, and one run on Podman without.
pub(crate) fn podman() -> Result<Counts> {
    let daemon = Daemon::start(Lifetime::OfThisProcess)?;
    let counts = {
        let podman = Podman::start(&daemon)?;
        images::load(&podman.client, &["debian"])?;
        conformance(&podman.client.host, &ON_PODMAN)?
    };
    let cases: [(&str, Case); 1] =
        [("Podman without root holds a sandbox to its limits, or it is said that it does not", limits_without_root)];
    Ok(counts.and(tally(&daemon, &cases)))
}

fn conformance(host: &str, flags: &[&str]) -> Result<Counts> {
    let image = images::reference("debian");
    suite(&["env", &format!("DOCKER_HOST={host}")], &[&["--backend", "docker", "--image", &image], flags].concat())
}

fn limits_without_root(daemon: &Daemon) -> Result<()> {
    let podman = Podman::start_without_root(daemon)?;
    images::load(&podman.client, &["busybox"])?;
    let folder = podman.folder();
    // Where the program is built may be out of that user's reach.
    let program = folder.join("program");
    fs::copy(built("debug", "glovebox"), &program)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let image = images::reference("busybox");
    let words = ["run", "--backend", "docker", "--image", &image, "--json", "--", "/bin/echo", "inside"];
    let argv = podman.as_its_user(&[&[program.to_str().context("a path that is text")?], &words[..]].concat());
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let output = command(&argv).current_dir("/").output().context("cannot start glovebox")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let document: Value = serde_json::from_str(&said)
        .with_context(|| format!("it said {said} {}", String::from_utf8_lossy(&output.stderr)))?;
    match output.status.code() {
        Some(0) => {
            let present = document["isolation"]["present"].as_array().context("no layers are told")?;
            ensure!(document["stdout"]["text"] == "inside\n", "it printed {}", document["stdout"]);
            ensure!(present.contains(&"cgroup".into()), "it ran without control groups: {}", document["isolation"]);
        }
        _ => {
            ensure!(document["error"]["code"] == "not_supported", "it said {said}");
            ensure!(
                document["error"]["hint"].as_str().is_some_and(|hint| hint.contains("version 2")),
                "it said {said}"
            );
        }
    }
    let left = podman.client.docker(&["ps", "--all", "--quiet"])?;
    ensure!(left.is_empty(), "a container is left: {left}");
    Ok(())
}
