//! A private Podman that speaks Docker's API: what works with the one is tried with the other.

use std::{
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use rustix::process::Pid;

use super::{
    daemon::{Client, Daemon, Lifetime, of_lifetime},
    leftovers,
};
use crate::{
    need::{self, Tool},
    suites::read,
};

/// Podman recommends both others and depends on neither.
const TOOLS: [Tool; 3] = [("podman", "podman"), ("runc", "runc"), ("conmon", "conmon")];

/// What it needs beside them without root.
const ITS_TOOLS: [Tool; 2] = [("newuidmap", "uidmap"), ("setpriv", "util-linux")];

/// How long the service may take to listen.
const START: Duration = Duration::from_secs(20);

/// Podman raises the limits of containers as far as the kernel goes unless it is told others, and a root without
/// `CAP_SYS_RESOURCE`, as in many containers, cannot raise any.
const CONFIG: &str = "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=4096:4096\"]\n";

/// The user of a service without root, and that user's sub-ids.
const USER: &str = "glovebox-podman";
const IDS: &str = "700065536-700131071";

/// A service that listens. It ends when this is dropped, and with this process.
pub(crate) struct Podman {
    /// Speaks to it.
    pub(crate) client: Client,
    child: Child,
    /// What is its own, and its user's where that is not root.
    folder: PathBuf,
}

impl Podman {
    /// Starts the service of root. Its files lie in the places of the daemon and are cleared with them.
    pub(crate) fn start(daemon: &Daemon) -> Result<Podman> {
        let run = &daemon.places.run;
        Podman::launch(run, run, &daemon.places.data.join("podman"), of_lifetime(Lifetime::OfThisProcess))
    }

    /// Starts the service of an ordinary user, who is made if there is none.
    pub(crate) fn start_without_root(daemon: &Daemon) -> Result<Podman> {
        need::tools(&ITS_TOOLS)?;
        let folder = daemon.places.run.join("user");
        fs::create_dir_all(&folder)?;
        make_user()?;
        read(&["chown", USER, &folder.to_string_lossy()])?;
        let mut service = of_lifetime(Lifetime::OfThisProcess);
        service.args(become_user(&folder));
        Podman::launch(&daemon.places.run, &folder, &folder.join("data"), service)
    }

    /// What is the service's own, and its user's.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The words that do something as the user of a service without root, with it as the engine.
    pub(crate) fn as_its_user(&self, argv: &[&str]) -> Vec<String> {
        let host = format!("DOCKER_HOST={}", self.client.host);
        become_user(&self.folder).into_iter().chain([host]).chain(argv.iter().map(|word| (*word).to_owned())).collect()
    }

    /// Starts a service whose files lie in `folder` and `data`.
    fn launch(run: &Path, folder: &Path, data: &Path, mut service: Command) -> Result<Podman> {
        need::tools(&TOOLS)?;
        fs::write(run.join("containers.conf"), CONFIG)?;
        let (socket, log) = (folder.join("podman.sock"), run.join("podman.log"));
        let host = format!("unix://{}", socket.display());
        let mut child = service
            .arg("podman")
            .arg("--root")
            .arg(data)
            .arg("--runroot")
            .arg(folder.join("podman"))
            .arg("--tmpdir")
            .arg(folder.join("podman-tmp"))
            .args(["--storage-driver", "overlay"])
            // Debian's own choice, crun, refuses hosts that have groups of both versions.
            .args(["--runtime", "runc", "--cgroup-manager", "cgroupfs", "system", "service", "--time", "0", &host])
            .env("CONTAINERS_CONF", run.join("containers.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?)
            .spawn()
            .context("cannot start podman")?;
        let started = Instant::now();
        // Nobody is told when it listens, so it is tried.
        while UnixStream::connect(&socket).is_err() {
            if child.try_wait()?.is_some() || started.elapsed() > START {
                let _ = child.kill();
                let _ = child.wait();
                bail!("podman does not listen: {}", fs::read_to_string(&log).unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Podman { client: Client { host, config: run.join("client") }, child, folder: folder.to_owned() })
    }
}

/// The words that become the user of a service without root, before a program or further variables.
fn become_user(folder: &Path) -> Vec<String> {
    let own = folder.display();
    let words = ["setpriv", "--reuid", USER, "--regid", USER, "--init-groups", "env", "--ignore-environment"];
    let variables = [
        format!("HOME={own}"),
        format!("XDG_RUNTIME_DIR={own}"),
        format!("CONTAINERS_CONF={}", folder.with_file_name("containers.conf").display()),
        "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".to_owned(),
    ];
    words.iter().map(|word| (*word).to_owned()).chain(variables).collect()
}

/// Makes the user, with sub-ids.
fn make_user() -> Result<()> {
    if read(&["id", USER]).is_err() {
        read(&["useradd", "--no-create-home", "--shell", "/bin/sh", USER])?;
    }
    let has_ids = fs::read_to_string("/etc/subuid")
        .is_ok_and(|table| table.lines().any(|line| line.starts_with(&format!("{USER}:"))));
    if !has_ids {
        read(&["usermod", "--add-subuids", IDS, "--add-subgids", IDS, USER])?;
    }
    Ok(())
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // One without root leaves a process that keeps its namespaces; the folder is cleared by root, which sees through them.
        let pause = fs::read_to_string(self.folder.join("libpod/tmp/pause.pid")).unwrap_or_default();
        if let Some(pid) = pause.trim().parse().ok().and_then(Pid::from_raw) {
            let _ = leftovers::kill(pid);
        }
    }
}
