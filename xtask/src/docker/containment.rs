//! What holds the programs in a container of ours, looked at from both sides: by Docker's own means, and by `glovebox prove`.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::Path,
};

use anyhow::{Context, Result, ensure};

use super::{
    command::{DOCKER, called, document, folder},
    daemon::Daemon,
    images,
};
use crate::tree::built;

/// Asks for what no container of ours may do, with the numbers of this machine's system calls, and prints the errors.
const ASK: &str = "import ctypes, os\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    def ask(name, *args):\n\
    \x20   done = libc.syscall(*args)\n\
    \x20   print(name, 'ok' if done >= 0 else os.strerror(ctypes.get_errno()))\n\
    ask('keyctl', 250, 0, -3, 0, 0, 0)\n\
    ask('request_key', 249, b'user', b'x', None, 0)\n\
    ask('unshare', 272, 0x10000000)\n\
    ask('clone3', 435, 0, 0)\n\
    ask('io_uring_setup', 425, 0, 0)\n\
    ask('personality', 135, 0x40000)\n\
    ask('packet', 41, 17, 3, 0)\n\
    ask('alg', 41, 38, 5, 0)\n\
    ask('audit', 41, 16, 3, 9)\n\
    ask('route', 41, 16, 3, 0)\n\
    ask('high family', 41, (1 << 32) | 17, 3, 0)\n\
    ask('inject', 16, 0, (1 << 32) | 0x5412, 0)\n\
    ask('window', 16, 0, 0x5413, 0)\n";

/// What the profile answers. The last one shows that other questions to a terminal pass: there is none.
const ANSWERS: [(&str, &str); 13] = [
    ("keyctl", "Operation not permitted"),
    ("request_key", "Operation not permitted"),
    ("unshare", "Operation not permitted"),
    ("clone3", "Function not implemented"),
    ("io_uring_setup", "Operation not permitted"),
    ("personality", "Operation not permitted"),
    ("packet", "Operation not permitted"),
    ("alg", "Operation not permitted"),
    ("audit", "Operation not permitted"),
    ("route", "ok"),
    ("high family", "Operation not permitted"),
    ("inject", "Operation not permitted"),
    ("window", "Inappropriate ioctl for device"),
];

/// Docker starts a process in a container without our guest, so only the profile of the container holds it.
pub(super) fn the_profile_holds_the_whole_container(daemon: &Daemon) -> Result<()> {
    let folder = folder(daemon, "profile")?;
    let image = images::reference("debian");
    let made = document(daemon, &folder, &["create", "--name", "held", DOCKER[0], DOCKER[1], "--image", &image])?;
    let sandbox = made["sandbox"].as_str().context("no sandbox")?;
    let asked = daemon
        .docker(&["ps", "-q", "--filter", &format!("label=glovebox.sandbox={sandbox}")])
        .and_then(|container| daemon.docker(&["exec", container.trim(), "python3", "-c", ASK]));
    document(daemon, &folder, &["destroy", "held"])?;
    let asked = asked?;
    let answers: Vec<(&str, &str)> = asked.lines().filter_map(|line| split(line)).collect();
    ensure!(answers == ANSWERS, "the answers are {answers:#?}");
    Ok(())
}

/// A name and what was said to it.
fn split(line: &str) -> Option<(&str, &str)> {
    ANSWERS.iter().find_map(|(name, _)| Some((*name, line.strip_prefix(name)?.strip_prefix(' ')?)))
}

/// On an engine without user namespaces, commands have the id of a caller who is the host's uid 1000, as the first user of a laptop is,
/// and may close the folder in which the guest meets that caller.
pub(super) fn commands_with_the_id_of_their_caller(daemon: &Daemon) -> Result<()> {
    let folder = folder(daemon, "same-id")?;
    let program = folder.join("program");
    // Where the program is built may be out of that user's reach.
    fs::copy(built("debug", "glovebox"), &program)?;
    chown(&folder, Some(1000), Some(1000))?;
    let group = fs::metadata(daemon.places.run.join("docker.sock"))?.gid();
    let (program, groups) = (program.to_string_lossy(), format!("--groups={group}"));
    let by = ["setpriv", "--reuid=1000", "--regid=1000", &groups, "env", "-u", "XDG_RUNTIME_DIR", "HOME=/", &program];
    let as_user = |args: &[&str]| -> Result<String> {
        let output = called(daemon, &folder, &[&by[..], args].concat())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`glovebox {}` said {said}", args.join(" "));
        Ok(String::from_utf8(output.stdout)?)
    };
    let image = images::reference("debian");
    let id = as_user(&["create", "--name", "closed", DOCKER[0], DOCKER[1], "--image", &image])?;
    let close = "id -u && chmod 0 /.glovebox/channel && stat -c %a /.glovebox/channel";
    let lived = || -> Result<()> {
        for round in ["first", "second"] {
            let closed = as_user(&["exec", "closed", "--", "sh", "-c", close])?;
            ensure!(closed == "1000\n0\n", "the folder is not closed: {closed}");
            let said = as_user(&["exec", "closed", "--", "echo", round])?;
            ensure!(said.trim() == round, "it said {said}");
            as_user(&["exec", "closed", "--", "sh", "-c", close])?;
            as_user(&["stop", "closed"])?;
            as_user(&["start", "closed"])?;
        }
        as_user(&["exec", "closed", "--", "sh", "-c", close]).map(drop)
    };
    let lived = lived();
    let place = Path::new("/tmp/glovebox-1000/docker").join(id.trim());
    let was_there = place.exists();
    as_user(&["destroy", "closed"])?;
    lived?;
    ensure!(was_there, "{} is not where host and guest met", place.display());
    ensure!(!place.exists(), "{} is left", place.display());
    Ok(())
}

/// What an engine without user namespaces does not give. All else must hold.
const NOT_GIVEN: [&str; 3] =
    ["every layer of isolation is in place", "root inside is nobody outside", "setuid bits do not count"];

/// What gVisor does not give beside those. The table in docs/guides/docker.md says why.
const NOT_GIVEN_BY_GVISOR: [&str; 5] = [
    "the root cannot be written, even by root inside",
    "only harmless devices are there",
    "the first process cannot be ended",
    "processes beyond the limit are refused",
    "files beyond the limit are refused",
];

pub(super) fn what_is_promised_holds(daemon: &Daemon) -> Result<()> {
    proves(daemon, &[], &NOT_GIVEN)
}

pub(super) fn what_is_promised_holds_in_gvisor(daemon: &Daemon) -> Result<()> {
    proves(daemon, &["--runtime", "runsc"], &[&NOT_GIVEN[..], &NOT_GIVEN_BY_GVISOR[..]].concat())
}

/// `glovebox prove` finds that everything holds but this, which it says is weaker: nobody is told less, and nobody more.
fn proves(daemon: &Daemon, flags: &[&str], weaker: &[&str]) -> Result<()> {
    let folder = folder(daemon, "prove")?;
    let image = images::reference("debian");
    let proved = document(daemon, &folder, &[&["prove", DOCKER[0], DOCKER[1], "--image", &image], flags].concat())?;
    let checks = proved["checks"].as_array().context("no list of checks")?;
    ensure!(checks.len() > 50, "only {} guarantees were tried", checks.len());
    let is_known = |name: &&&str| checks.iter().any(|check| check["name"].as_str() == Some(**name));
    ensure!(weaker.iter().filter(is_known).count() == weaker.len(), "not all of {weaker:?} were tried");
    for check in checks {
        let name = check["name"].as_str().unwrap_or_default();
        let expected = if weaker.contains(&name) { "degraded" } else { "ok" };
        ensure!(check["status"].as_str() == Some(expected), "this should be {expected}: {check}");
    }
    Ok(())
}
