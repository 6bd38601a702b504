//! Runs the suite again as an ordinary user, whom it makes itself.
//!
//! Root starts it; the suite and its probe are copied to where that user can read them, and everything that was made for
//! it, control groups included, is removed afterwards. The accounts stay, for the next time.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

/// Starts a program with mounts of its own, which others on this machine, such as an engine, add nothing to: the suite would take it for left
/// behind.
pub const APART: [&str; 5] = ["/usr/bin/unshare", "--mount", "--propagation", "private", "--"];

/// Which ordinary user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UserKind {
    /// One who has sub-ids.
    SubIds,
    /// One who has no id but their own.
    OneId,
}

impl UserKind {
    fn name(self) -> &'static str {
        match self {
            UserKind::SubIds => "glovebox-sub",
            UserKind::OneId => "glovebox-one",
        }
    }
}

/// Runs this program with `args` as an ordinary user, in control groups of their own if they are to have any. Says
/// whether everything held.
pub fn run_as(kind: UserKind, delegate: bool, probe: &Path, args: &[OsString]) -> Result<bool> {
    ensure!(rustix::process::geteuid().is_root(), "only root can become another user");
    let (uid, gid) = account(kind)?;
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let scratch = folder.path().join("scratch");
    fs::create_dir(&scratch)?;
    chown(&scratch, Some(uid), Some(gid))?;
    let program = folder.path().join("conformance");
    fs::copy(std::env::current_exe()?, &program)?;
    fs::copy(probe, folder.path().join("glovebox-probe"))?;
    let groups = if delegate { Delegated::make(uid, gid)? } else { Delegated::default() };
    let mut command = Command::new(APART[0]);
    command.args(&APART[1..]).args([
        "sh",
        "-c",
        "for group in $GROUPS_TO_JOIN; do echo $$ > \"$group/cgroup.procs\" || exit; done; exec \"$@\"",
        "sh",
    ]);
    command.args(["setpriv", "--reuid", &uid.to_string(), "--regid", &gid.to_string()]);
    let engine = std::env::var("DOCKER_HOST").ok().filter(|_| args.iter().any(|word| word == "docker"));
    command.arg(groups_for(engine.as_deref())?);
    command.args(["env", "-u", "GROUPS_TO_JOIN"]).arg(&program).args(args);
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin").env("LANG", "C.UTF-8");
    command.env("HOME", &scratch).env("TMPDIR", &scratch).env("GROUPS_TO_JOIN", groups.joined()).current_dir("/");
    command.envs(engine.map(|engine| ("DOCKER_HOST", engine)));
    let status = command.status().context("the suite could not be started again")?;
    let _ = fs::remove_dir_all(format!("/tmp/glovebox-{uid}"));
    Ok(status.success())
}

/// The groups of a user who may use an engine, by the group that its socket belongs to; none without an engine.
fn groups_for(engine: Option<&str>) -> Result<String> {
    let Some(socket) = engine.and_then(|engine| engine.strip_prefix("unix://")) else {
        return Ok("--clear-groups".to_owned());
    };
    let socket = fs::metadata(socket).with_context(|| format!("there is no engine at {socket}"))?;
    Ok(format!("--groups={}", socket.gid()))
}

/// Runs this program with `args` on a host that gives no namespaces, as root or as an ordinary user. Says whether everything
/// held.
pub fn run_without_namespaces(kind: Option<UserKind>, probe: &Path, args: &[OsString]) -> Result<bool> {
    ensure!(rustix::process::geteuid().is_root(), "only root can make such a host");
    let (uid, gid) = kind.map_or(Ok((0, 0)), account)?;
    let folder = tempfile::tempdir()?;
    let scratch = folder.path().join("scratch");
    fs::create_dir(&scratch)?;
    // Commands that have an id of their own must be able to get at what they are given.
    for path in [folder.path(), &scratch] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    chown(&scratch, Some(uid), Some(gid))?;
    let (program, copy) = (folder.path().join("conformance"), folder.path().join("glovebox-probe"));
    fs::copy(std::env::current_exe()?, &program)?;
    fs::copy(probe, &copy)?;
    let who = if uid == 0 { "root".to_owned() } else { uid.to_string() };
    let mut command = Command::new(APART[0]);
    command.args(&APART[1..]).arg(&copy).args(["without-namespaces", &who]).arg(&program).args(args);
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin").env("LANG", "C.UTF-8");
    command.env("HOME", &scratch).env("TMPDIR", &scratch).current_dir("/");
    Ok(command.status().context("the suite could not be started again")?.success())
}

/// The ids of an account, which is made if there is none.
fn account(kind: UserKind) -> Result<(u32, u32)> {
    let name = kind.name();
    let look = || -> Option<(u32, u32)> {
        let passwd = fs::read_to_string("/etc/passwd").ok()?;
        let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    if look().is_none() {
        call("useradd", &["--no-create-home", "--shell", "/bin/sh", name])?;
    }
    let has_ids = ["/etc/subuid", "/etc/subgid"].iter().any(|table| {
        fs::read_to_string(table).is_ok_and(|text| text.lines().any(|line| line.starts_with(&format!("{name}:"))))
    });
    match kind {
        UserKind::SubIds if !has_ids => {
            call("usermod", &["--add-subuids", "700000000-700065535", "--add-subgids", "700000000-700065535", name])?;
        }
        UserKind::OneId if has_ids => {
            for table in ["/etc/subuid", "/etc/subgid"] {
                let text = fs::read_to_string(table).unwrap_or_default();
                let others = text.lines().filter(|line| !line.starts_with(&format!("{name}:")));
                fs::write(table, others.map(|line| format!("{line}\n")).collect::<String>())?;
            }
        }
        _ => {}
    }
    look().with_context(|| format!("the account {name} could not be made"))
}

fn call(program: &str, args: &[&str]) -> Result<()> {
    let status = Command::new(program).args(args).status().with_context(|| format!("{program} cannot be started"))?;
    ensure!(status.success(), "{program} ended with {status}");
    Ok(())
}

/// Control groups that belong to the user, removed when this value is dropped.
#[derive(Default)]
struct Delegated(Vec<PathBuf>);

impl Delegated {
    fn make(uid: u32, gid: u32) -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let mut made = Delegated::default();
        for line in mounts.lines() {
            let Some((mount, kind)) = line.split_once(" - ") else { continue };
            let top = PathBuf::from(mount.split(' ').nth(4).context("a mount has a place")?);
            let controllers = match kind.split(' ').next() {
                Some("cgroup") => kind.rsplit(' ').next().unwrap_or_default().replace(',', " "),
                Some("cgroup2") => fs::read_to_string(top.join("cgroup.controllers")).unwrap_or_default(),
                _ => continue,
            };
            if !controllers.split_whitespace().any(|name| ["memory", "pids", "cpu", "cpuacct"].contains(&name)) {
                continue;
            }
            let group = top.join(format!("glovebox-test-{uid}"));
            // A hierarchy that takes no groups of ours is not one that could be given away.
            if fs::create_dir(&group).is_err() && !group.is_dir() {
                continue;
            }
            made.0.push(group.clone());
            let _ = fs::write(top.join("cgroup.subtree_control"), "+memory +pids +cpu");
            for file in ["", "tasks", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
                let path = group.join(file);
                if path.exists() {
                    chown(&path, Some(uid), Some(gid))?;
                }
            }
        }
        Ok(made)
    }

    fn joined(&self) -> String {
        self.0.iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        for group in &self.0 {
            for below in ["glovebox", "glovebox.self"] {
                let _ = fs::remove_dir(group.join(below));
            }
            let _ = fs::remove_dir(group);
        }
    }
}
