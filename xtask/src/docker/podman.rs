//! A private Podman that speaks Docker's API: what works with the one is tried with the other.

use std::{
    fs,
    os::unix::net::UnixStream,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::daemon::{Client, Daemon, Lifetime, of_lifetime};
use crate::need::{self, Tool};

/// Podman recommends both others and depends on neither.
const TOOLS: [Tool; 3] = [("podman", "podman"), ("runc", "runc"), ("conmon", "conmon")];

/// How long the service may take to listen.
const START: Duration = Duration::from_secs(20);

/// Podman raises the limits of containers as far as the kernel goes unless it is told others, and a root without
/// `CAP_SYS_RESOURCE`, as in many containers, cannot raise any.
const CONFIG: &str = "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=4096:4096\"]\n";

/// A service of root that listens. It ends when this is dropped, and with this process.
pub(crate) struct Podman {
    /// Speaks to it.
    pub(crate) client: Client,
    child: Child,
}

impl Podman {
    /// Starts the service. Its files lie in the places of the daemon and are cleared with them.
    pub(crate) fn start(daemon: &Daemon) -> Result<Podman> {
        need::tools(&TOOLS)?;
        let (run, data) = (&daemon.places.run, &daemon.places.data);
        fs::write(run.join("containers.conf"), CONFIG)?;
        let (socket, log) = (run.join("podman.sock"), run.join("podman.log"));
        let host = format!("unix://{}", socket.display());
        let mut child = of_lifetime(Lifetime::OfThisProcess)
            .arg("podman")
            .arg("--root")
            .arg(data.join("podman"))
            .arg("--runroot")
            .arg(run.join("podman"))
            .arg("--tmpdir")
            .arg(run.join("podman-tmp"))
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
        Ok(Podman { client: Client { host, config: run.join("client") }, child })
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
