//! What outlives sandboxes, met by two backends.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};

use super::{
    command::{DOCKER, document, folder, glovebox},
    daemon::Daemon,
    images,
};

/// What a program in a sandbox prints.
fn said(daemon: &Daemon, folder: &Path, sandbox: &str, line: &str) -> Result<String> {
    let ran = glovebox(daemon, folder, &["exec", sandbox, "--", "sh", "-c", line])?;
    let errors = String::from_utf8_lossy(&ran.stderr);
    ensure!(ran.status.success(), "{line:?} in {sandbox} ended with {}: {errors}", ran.status);
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// Two sandboxes have a volume at the same time, and each finds its own user as the owner of what the other wrote.
pub(super) fn a_volume_of_two_backends(daemon: &Daemon) -> Result<()> {
    let folder = folder(daemon, "volume")?;
    let image = images::reference("debian");
    document(daemon, &folder, &["create", "--name", "native", "--volume", "data:/data"])?;
    let docker = ["create", "--name", "docker", DOCKER[0], DOCKER[1], "--image", &image, "--volume", "data:/data"];
    document(daemon, &folder, &docker)?;
    let shared = || -> Result<()> {
        for (writer, reader) in [("native", "docker"), ("docker", "native")] {
            said(
                daemon,
                &folder,
                writer,
                &format!("mkdir -m 700 /data/{writer}; echo {writer} > /data/{writer}/note"),
            )?;
            let line = format!(
                "cat /data/{writer}/note; stat -c %u:%g /data /data/{writer}/note; echo {reader} >> /data/{writer}/note"
            );
            let seen = said(daemon, &folder, reader, &line)?;
            ensure!(seen == format!("{writer}\n1000:1000\n1000:1000\n"), "{reader} saw {seen}");
            let seen = said(daemon, &folder, writer, &format!("cat /data/{writer}/note; rm -r /data/{writer}"))?;
            ensure!(seen == format!("{writer}\n{reader}\n"), "{writer} saw {seen}");
        }
        Ok(())
    };
    let shared = shared();
    let ended = document(daemon, &folder, &["destroy", "native", "docker"]);
    shared?;
    ended?;
    let removed = glovebox(daemon, &folder, &["volumes", "remove", "data"])?;
    ensure!(removed.status.success(), "the volume stays: {}", String::from_utf8_lossy(&removed.stderr));
    Ok(())
}

/// Somebody removes the volumes of a stopped sandbox behind our back.
pub(super) fn files_that_are_gone(daemon: &Daemon) -> Result<()> {
    let folder = folder(daemon, "gone")?;
    let image = images::reference("debian");
    let made = document(daemon, &folder, &["create", "--name", "robbed", DOCKER[0], DOCKER[1], "--image", &image])?;
    let id = made["sandbox"].as_str().context("no id")?;
    document(daemon, &folder, &["stop", "robbed"])?;
    document(daemon, &folder, &["start", "robbed"])?;
    document(daemon, &folder, &["stop", "robbed"])?;
    daemon.docker(&["volume", "rm", &format!("glovebox-{id}-workspace"), &format!("glovebox-{id}-home")])?;
    let started = glovebox(daemon, &folder, &["start", "robbed"])?;
    let told = String::from_utf8_lossy(&started.stderr).into_owned();
    document(daemon, &folder, &["reset", "robbed"])?;
    let seen = said(daemon, &folder, "robbed", "echo as new")?;
    document(daemon, &folder, &["destroy", "robbed"])?;
    ensure!(!started.status.success() && told.contains("sandbox_lost") && told.contains("glovebox reset"), "{told}");
    ensure!(seen == "as new\n", "it said {seen}");
    Ok(())
}

/// A process that is killed while it makes a sandbox of Docker leaves a folder without a record, and volumes that only it names. An
/// engine of another backend that finds the folder first must leave it.
pub(super) fn what_a_maker_left(daemon: &Daemon) -> Result<()> {
    let folder = folder(daemon, "left")?;
    let image = images::reference("debian");
    let made = document(daemon, &folder, &["create", DOCKER[0], DOCKER[1], "--image", &image])?;
    let id = made["sandbox"].as_str().context("no id")?.to_owned();
    let place = folder.join("data/sandboxes").join(&id);
    // As a kill before the last step of its making leaves it.
    fs::remove_file(place.join("sandbox.json"))?;
    let volumes = || -> Result<bool> { Ok(daemon.docker(&["volume", "ls", "--quiet"])?.contains(&id)) };
    ensure!(volumes()?, "the sandbox has no volumes");
    document(daemon, &folder, &["create", "--name", "native"])?;
    document(daemon, &folder, &["destroy", "native"])?;
    ensure!(place.join("files").exists() && volumes()?, "the native backend removed what is not its own");
    document(daemon, &folder, &["gc"])?;
    ensure!(!place.exists() && !volumes()?, "`gc` left something");
    ensure!(!daemon.docker(&["ps", "--all", "--no-trunc"])?.contains(&id), "`gc` left the container");
    Ok(())
}
