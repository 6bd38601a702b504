//! Every kind of image through the product: with glibc, with musl, with a shell of its own, with one program and nothing else.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    command::{DOCKER, document, folder, glovebox},
    daemon::Daemon,
    images,
};
use crate::{mcp_clients, suites::command, tree::built};

/// What a program prints in a fresh sandbox of an image.
fn printed(daemon: &Daemon, folder: &Path, image: &str, argv: &[&str]) -> Result<String> {
    let image = images::reference(image);
    let ran = glovebox(daemon, folder, &[&["run", DOCKER[0], DOCKER[1], "--image", &image, "--"], argv].concat())?;
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    ensure!(ran.status.success(), "{argv:?} in {image} ended with {}: {said}", ran.status);
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// What is the same in each image that has a shell, however its maker wanted it to be run.
const WHO_AND_WHERE: &str = "id -u; id -g; pwd; echo $HOME; echo x > here && cat here; cat /etc/passwd | wc -l";

pub(super) fn shells(daemon: &Daemon) -> Result<()> {
    let folder = folder(daemon, "kinds-shell")?;
    let accounts = printed(daemon, &folder, "debian", &["sh", "-c", "cat /etc/passwd | wc -l"])?;
    for image in ["debian", "busybox", "musl"] {
        let said = printed(daemon, &folder, image, &["sh", "-c", WHO_AND_WHERE])?;
        let expected = format!("1000\n1000\n/workspace/agent_workspace\n/home/user\nx\n{accounts}");
        ensure!(said == expected, "{image} says {said:?}, and not {expected:?}");
    }
    Ok(())
}

/// The image busybox wants another user, another folder and an entry point; its variables are the one thing that is used.
pub(super) fn configuration(daemon: &Daemon) -> Result<()> {
    let folder = folder(daemon, "kinds-configuration")?;
    let said = printed(daemon, &folder, "busybox", &["sh", "-c", "echo $GREETING; echo $PATH"])?;
    ensure!(said == "hello from the image\n/bin:/srv/app/bin\n", "it says {said:?}");
    let image = images::reference("busybox");
    let argv = ["run", DOCKER[0], DOCKER[1], "--image", &image, "--env", "GREETING=mine", "--", "sh", "-c"];
    let own = glovebox(daemon, &folder, &[&argv[..], &["echo $GREETING"]].concat())?;
    ensure!(own.stdout == b"mine\n", "with a variable of the caller's it says {own:?}");
    let argv = ["run", DOCKER[0], DOCKER[1], "--image", &image, "-l", "python", "-c", "1"];
    let missing = glovebox(daemon, &folder, &argv)?;
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    ensure!(missing.status.code() == Some(125), "a language that is not there ends with {}", missing.status);
    ensure!(said.contains("--image"), "of a language that is not there it says {said}");
    let host = glovebox(daemon, &folder, &["run", DOCKER[0], DOCKER[1], "--image", "host", "--", "true"])?;
    let said = String::from_utf8_lossy(&host.stderr).into_owned();
    ensure!(host.status.code() == Some(125) && said.contains("--backend native"), "of the image host it says {said}");
    Ok(())
}

/// A program that is linked to musl, and one in an image that holds nothing else.
pub(super) fn programs(daemon: &Daemon) -> Result<()> {
    let folder = folder(daemon, "kinds-programs")?;
    let said = printed(daemon, &folder, "musl", &["says", "a"])?;
    ensure!(said.starts_with("argument says\nargument a\n"), "musl: {said}");
    let said = printed(daemon, &folder, "distroless", &["/says", "b"])?;
    ensure!(said.starts_with("argument /says\nargument b\n"), "distroless: {said}");
    ensure!(said.contains("HOME=/home/user"), "distroless has another home: {said}");
    Ok(())
}

/// All that needs no program inside works in an image without any: files, changes, and what is said of a shell.
pub(super) fn nothing_else(daemon: &Daemon) -> Result<()> {
    let folder = folder(daemon, "kinds-nothing")?;
    let image = images::reference("distroless");
    let made = document(daemon, &folder, &["create", "--name", "bare", DOCKER[0], DOCKER[1], "--image", &image])?;
    ensure!(made["image"] == image, "it is made of {}", made["image"]);
    let held = use_bare(daemon, &folder);
    let ended = document(daemon, &folder, &["destroy", "bare"]);
    held?;
    ended.map(drop)
}

fn use_bare(daemon: &Daemon, folder: &Path) -> Result<()> {
    std::fs::write(folder.join("given"), "from the host\n")?;
    let copied = glovebox(daemon, folder, &["cp", "given", "bare:given"])?;
    ensure!(copied.status.success(), "cp: {}", String::from_utf8_lossy(&copied.stderr));
    let read = glovebox(daemon, folder, &["files", "read", "bare", "given"])?;
    ensure!(read.stdout == b"from the host\n", "it read {read:?}");
    let changed = document(daemon, folder, &["changes", "bare"])?;
    let added: Vec<&Value> = changed["added"].as_array().context("no list of what was added")?.iter().collect();
    ensure!(added.contains(&&json!("agent_workspace/given")), "what was added is {changed}");
    let ran = glovebox(daemon, folder, &["exec", "bare", "--", "/says", "c"])?;
    ensure!(ran.stdout.starts_with(b"argument /says\nargument c\n"), "exec: {ran:?}");
    let none = glovebox(daemon, folder, &["exec", "bare", "--", "sh", "-c", "true"])?;
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    ensure!(none.status.code() == Some(127) && said.contains("command_not_found"), "without a shell it says {said}");
    Ok(())
}

/// What somebody types into a shell: it answers in words that do not stand in the question.
const TYPED: &str = "echo is-${BASH_VERSION:+bash}-$((6 * 7))\nstty size 2>/dev/null\nexit\n";

pub(super) fn best_shell(daemon: &Daemon) -> Result<()> {
    let folder = folder(daemon, "kinds-best-shell")?;
    for (image, answer) in [("debian", "is-bash-42"), ("busybox", "is--42"), ("musl", "is--42")] {
        let said =
            in_terminal(daemon, &folder, &["shell", DOCKER[0], DOCKER[1], "--image", &images::reference(image)])?;
        ensure!(said.contains(answer), "a fresh shell of {image} says {said}");
        document(
            daemon,
            &folder,
            &["create", "--name", image, DOCKER[0], DOCKER[1], "--image", &images::reference(image)],
        )?;
        let said = in_terminal(daemon, &folder, &["shell", image]);
        document(daemon, &folder, &["destroy", image])?;
        let said = said?;
        ensure!(said.contains(answer) && said.contains(image), "the shell of {image} says {said}");
    }
    let bare = images::reference("distroless");
    let said = in_terminal(daemon, &folder, &["shell", DOCKER[0], DOCKER[1], "--image", &bare])?;
    ensure!(said.contains("[command_not_found]") && said.contains("--image"), "without a shell it says {said}");
    Ok(())
}

/// What is seen on a terminal on which the program is started and [`TYPED`] is typed.
fn in_terminal(daemon: &Daemon, folder: &Path, args: &[&str]) -> Result<String> {
    std::fs::write(folder.join("typed"), TYPED)?;
    let called = format!("{} {}", built("debug", "glovebox").display(), args.join(" "));
    let mut script = command(&["script", "--quiet", "--flush", "--command", &called, "/dev/null"]);
    script.env("DOCKER_HOST", daemon.places.host()).env("GLOVEBOX_DATA_DIR", folder.join("data"));
    script.stdin(std::fs::File::open(folder.join("typed"))?);
    let seen = script.output().context("cannot start script")?;
    Ok(String::from_utf8_lossy(&seen.stdout).into_owned())
}

/// The newest protocol of the official SDK, in the image of the tests.
pub(super) fn agent(daemon: &Daemon) -> Result<()> {
    let counts = mcp_clients::python_sdk_on(&daemon.places.host(), &images::reference("debian"))?;
    ensure!(counts.failed == 0, "{} tests failed: {:?}", counts.failed, counts.failures);
    Ok(())
}
