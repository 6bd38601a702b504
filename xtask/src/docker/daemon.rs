//! A private Docker daemon, which never meets one of the machine.
//!
//! Its data lies below target/docker. Its sockets and process ids lie in a folder of `/run`, named by a hash of that path,
//! since the path of a socket has at most 107 bytes and a tree can lie deep. Whoever starts it next clears what a daemon
//! that was killed left.

use std::{
    fs,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{leftovers, remote::Remote};
use crate::{
    need::{self, Tool},
    suites::{command, read},
    tree::built,
};

/// What a daemon needs: Docker, the second runtime, and what makes its bridge.
pub(crate) const TOOLS: [Tool; 6] = [
    ("dockerd", "docker.io"),
    ("docker", "docker.io"),
    ("runsc", "runsc"),
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("setpriv", "util-linux"),
];

/// The oldest API that this product speaks; newer clients refuse an older daemon without it.
pub(crate) const API_VERSION: &str = "1.41";

/// How long a daemon may take to start. Half a second is usual.
const START: Duration = Duration::from_secs(60);

/// How long it may take to stop by itself, containers included.
const STOP: Duration = Duration::from_secs(20);

/// A proxy that is not there: the port has a name and nobody listens at it.
const NOBODY: &str = "http://127.0.0.1:9";

/// Who ends a daemon.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// It ends with the process that starts it, also when that is killed.
    OfThisProcess,
    /// It runs until `cargo xtask docker stop`.
    UntilStopped,
}

/// What is unusual about a daemon.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Nothing.
    Usual,
    /// It has a mirror at this address of the registry of Docker itself, and reaches no other registry.
    Behind(String),
    /// Its containers have ids of their own.
    Mapped,
}

/// The places of the daemon of this tree.
#[derive(Clone)]
pub(crate) struct Places {
    /// Images, containers, volumes.
    pub(crate) data: PathBuf,
    /// Sockets, process ids, the log.
    pub(crate) run: PathBuf,
    /// The bridge of its default network.
    pub(crate) bridge: String,
    /// The bridge's own address, which is the host as containers see it.
    pub(crate) address: String,
}

impl Places {
    /// The places of this tree.
    pub(crate) fn of_this_tree() -> Result<Places> {
        Places::named("docker")
    }

    /// The places of one more daemon of this tree.
    pub(crate) fn named(name: &str) -> Result<Places> {
        let data = fs::canonicalize(built("", "")).context("there is no target folder")?.join(name);
        let hash = Sha256::digest(data.as_os_str().as_encoded_bytes());
        let name: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        Ok(Places {
            data,
            run: PathBuf::from(format!("/run/glovebox-docker-{name}")),
            bridge: format!("gbx-{name}"),
            address: format!("10.{}.{}.1", 128 + hash[4] % 100, hash[5]),
        })
    }

    /// How clients name the daemon.
    pub(crate) fn host(&self) -> String {
        format!("unix://{}", self.run.join("docker.sock").display())
    }

    /// The process of a daemon that lives.
    pub(crate) fn living(&self) -> Option<rustix::process::Pid> {
        let pid = fs::read_to_string(self.run.join("docker.pid")).ok()?.trim().parse().ok()?;
        let pid = rustix::process::Pid::from_raw(pid)?;
        leftovers::is_ours(self, pid).then_some(pid)
    }
}

/// Docker's client, with settings of its own in place of the caller's.
pub(crate) struct Client {
    /// Whom it speaks to.
    pub(crate) host: String,
    /// The folder of its settings, passwords of registries among them.
    pub(crate) config: PathBuf,
}

impl Client {
    /// Runs the client and gives what it printed.
    pub(crate) fn docker(&self, argv: &[&str]) -> Result<String> {
        let config = self.config.to_string_lossy();
        let output = command(&["docker", "--host", &self.host, "--config", &config])
            .args(argv)
            .env("DOCKER_API_VERSION", API_VERSION)
            .output()
            .context("cannot start docker")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`docker {}`: {}", argv.join(" "), said.trim());
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// A private daemon that answers.
pub(crate) struct Daemon {
    /// Where it lies.
    pub(crate) places: Places,
    /// Which storage driver it has.
    pub(crate) storage: &'static str,
    /// What is unusual about it.
    manner: Manner,
    /// Whether dropping this stops it.
    ends_with_this: bool,
}

impl Daemon {
    /// Starts the daemon of this tree. What one that was killed left is cleared first. One that a person started is used, and is
    /// left running.
    pub(crate) fn start(lifetime: Lifetime) -> Result<Daemon> {
        Daemon::start_at(Places::of_this_tree()?, lifetime, Manner::Usual)
    }

    /// The same for other places, and in another manner.
    pub(crate) fn start_at(places: Places, lifetime: Lifetime, manner: Manner) -> Result<Daemon> {
        need::root()?;
        need::tools(&TOOLS)?;
        if places.living().is_some() {
            return Ok(Daemon { places, storage: "as it is", manner, ends_with_this: false });
        }
        let mut said = String::new();
        for storage in ["overlay2", "vfs"] {
            leftovers::clear(&places)?;
            let ends_with_this = lifetime == Lifetime::OfThisProcess;
            let daemon = Daemon { places: places.clone(), storage, manner: manner.clone(), ends_with_this };
            match make_bridge(&places).and_then(|()| daemon.launch(lifetime)) {
                Ok(()) => {
                    if !said.is_empty() {
                        eprintln!("docker: the storage driver is {storage}, as the first choice failed: {said}");
                    }
                    return Ok(daemon);
                }
                Err(error) => said = format!("{error:#}"),
            }
        }
        leftovers::clear(&places)?;
        bail!("dockerd cannot be started here: {said}")
    }

    /// Kills it, as a fault would. Its containers go on.
    pub(crate) fn kill(&self) -> Result<()> {
        leftovers::kill(self.pid()?)
    }

    /// Starts it again after that, with what it had.
    pub(crate) fn start_again(&self) -> Result<()> {
        for left in ["ready", "docker.pid", "exec/containerd/containerd.pid"] {
            // A zombie is taken for a containerd that runs, by its number.
            let _ = fs::remove_file(self.places.run.join(left));
        }
        self.launch(Lifetime::OfThisProcess)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Result<rustix::process::Pid> {
        self.places.living().context("the daemon does not run")
    }

    /// Who speaks to it.
    pub(crate) fn client(&self) -> Client {
        Client { host: self.places.host(), config: self.places.run.join("client") }
    }

    /// Runs the client and gives what it printed.
    pub(crate) fn docker(&self, argv: &[&str]) -> Result<String> {
        self.client().docker(argv)
    }

    fn launch(&self, lifetime: Lifetime) -> Result<()> {
        let run = &self.places.run;
        fs::create_dir_all(&self.places.data)?;
        fs::create_dir_all(run)?;
        let remote = Remote::of(&self.places).or_else(|_| Remote::make(&self.places))?;
        let config = run.join("daemon.json");
        fs::write(&config, serde_json::to_string_pretty(&self.config(&remote))?)?;
        let log = fs::File::create(run.join("dockerd.log"))?;
        // The daemon says when it is ready to whoever asked for it as systemd does, so nobody has to ask again and again.
        let ready = UnixDatagram::bind(run.join("ready"))?;
        let dockerd = need::find("dockerd").context("dockerd is missing")?;
        let config = config.to_string_lossy();
        let mut child = of_lifetime(lifetime)
            .args([&dockerd, "--config-file", &config])
            .env("NOTIFY_SOCKET", run.join("ready"))
            .envs(matches!(self.manner, Manner::Behind(_)).then_some(("HTTPS_PROXY", NOBODY)))
            .stdin(std::process::Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start dockerd")?;
        wait_until_ready(&mut child, &ready)
            .with_context(|| fs::read_to_string(run.join("dockerd.log")).unwrap_or_default())
    }

    /// All that the daemon is told. It reads no file of the machine's daemon.
    fn config(&self, remote: &Remote) -> serde_json::Value {
        let Places { data, run, bridge, .. } = &self.places;
        let mirrors = match &self.manner {
            Manner::Behind(mirror) => vec![format!("http://{mirror}")],
            _ => Vec::new(),
        };
        json!({
            "hosts": [self.places.host(), format!("tcp://{}", remote.address)],
            "tlsverify": true,
            "tlscacert": remote.certificates.join("ca.pem"),
            "tlscert": remote.certificates.join("server.pem"),
            "tlskey": remote.certificates.join("server-key.pem"),
            "data-root": data,
            "exec-root": run.join("exec"),
            "pidfile": run.join("docker.pid"),
            "storage-driver": self.storage,
            "bridge": bridge,
            "iptables": false,
            "ip-forward": false,
            "ip-masq": false,
            "userland-proxy": false,
            "shutdown-timeout": 1,
            "log-level": "error",
            "registry-mirrors": mirrors,
            // It makes a user with sub-ids for itself.
            "userns-remap": if self.manner == Manner::Mapped { "default" } else { "" },
            // gVisor, once with sockets of the host in mounts and once without. It has no network: the version of Debian
            // takes every network namespace of a newer kernel for the host's own, and refuses to use it.
            "runtimes": {
                "runsc": { "path": "runsc", "runtimeArgs": ["--network=none", "--host-uds=all"] },
                "runsc-sealed": { "path": "runsc", "runtimeArgs": ["--network=none"] },
            },
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.ends_with_this
            && let Err(error) = stop(&self.places)
        {
            eprintln!("docker: {error:#}");
        }
    }
}

/// Stops the daemon of these places, if there is one, and removes all that it made.
pub(crate) fn stop(places: &Places) -> Result<()> {
    if let Some(pid) = places.living() {
        leftovers::end(pid, STOP)?;
    }
    leftovers::clear(places)
}

/// The beginning of a command line whose process has the lifetime. Its own session, so that Ctrl-C of a person reaches the
/// test run, which stops it in order.
pub(super) fn of_lifetime(lifetime: Lifetime) -> Command {
    match lifetime {
        Lifetime::OfThisProcess => command(&["setsid", "setpriv", "--pdeathsig", "TERM"]),
        Lifetime::UntilStopped => command(&["setsid"]),
    }
}

fn wait_until_ready(child: &mut Child, ready: &UnixDatagram) -> Result<()> {
    ready.set_read_timeout(Some(Duration::from_millis(100)))?;
    let started = Instant::now();
    let mut message = [0; 4096];
    loop {
        if let Ok(length) = ready.recv(&mut message)
            && message[..length].starts_with(b"READY=1")
        {
            return Ok(());
        }
        if let Some(status) = child.try_wait()? {
            bail!("dockerd ended with {status}");
        }
        if started.elapsed() > START {
            child.kill()?;
            child.wait()?;
            bail!("dockerd was not ready after {} s", START.as_secs());
        }
    }
}

/// Makes the bridge of the default network. Containers reach the host at its address and nothing else: no packet is
/// forwarded, and no rule of a firewall is made.
fn make_bridge(places: &Places) -> Result<()> {
    let Places { bridge, address, .. } = places;
    read(&["ip", "link", "add", bridge, "type", "bridge"]).context("this kernel makes no bridge")?;
    read(&["ip", "address", "add", &format!("{address}/24"), "dev", bridge])?;
    read(&["ip", "link", "set", bridge, "up"])?;
    Ok(())
}

/// Whether a path lies in one of the folders of a daemon.
pub(super) fn is_below(places: &Places, path: &Path) -> bool {
    path.starts_with(&places.data) || path.starts_with(&places.run)
}
