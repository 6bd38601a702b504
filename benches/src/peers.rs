//! What Glovebox is compared with.

use std::{
    io::Read,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use rustix::pty::OpenptFlags;

/// Everything that bubblewrap can unshare, over the host's own /usr: the nearest thing to a cold sandbox. It sets no
/// limits, no seccomp filter and no group, so it does less.
pub(crate) const BWRAP: &str = "bwrap --unshare-all --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib \
    --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp --die-with-parent /bin/true";

/// Where the peers are. Given by xtask, which brings them.
#[derive(clap::Args)]
pub(crate) struct Peers {
    /// The address of the Docker daemon.
    #[arg(long, hide = true)]
    pub(crate) docker_host: String,
    /// The image of `docker run`, and of the Docker backend.
    #[arg(long, hide = true)]
    pub(crate) docker_image: String,
    /// The bundle of `runc run`.
    #[arg(long, hide = true)]
    runc_bundle: PathBuf,
}

impl Peers {
    /// `runc run` of the bundle.
    pub(crate) fn runc(&self, round: usize) -> Result<()> {
        let id = format!("glovebox-bench-{}-{round}", std::process::id());
        succeed(Command::new("runc").arg("run").arg("--bundle").arg(&self.runc_bundle).arg(id))
    }

    /// `docker run`, without a network and removed afterwards, as the sandbox is.
    pub(crate) fn docker(&self) -> Result<()> {
        succeed(self.docker_run().arg("/bin/true"))
    }

    /// The same for whatever program is added.
    pub(crate) fn docker_run(&self) -> Command {
        let mut docker = Command::new("docker");
        docker.args(["--host", &self.docker_host, "run", "--rm", "--network", "none", &self.docker_image]);
        docker
    }

    /// A container that stays, without a network, as a sandbox that stays does.
    pub(crate) fn container(&self) -> Result<Container<'_>> {
        let words = ["run", "--detach", "--network", "none", &self.docker_image, "sleep", "infinity"];
        let output = Command::new("docker").args(["--host", &self.docker_host]).args(words).output()?;
        ensure!(output.status.success(), "docker run: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(Container { peers: self, id: String::from_utf8_lossy(&output.stdout).trim().to_owned() })
    }
}

/// A container that does nothing, for `docker exec`. It is removed when this value is dropped.
pub(crate) struct Container<'a> {
    peers: &'a Peers,
    id: String,
}

impl Container<'_> {
    /// `docker exec` of `/bin/true` in it.
    pub(crate) fn exec(&self) -> Result<()> {
        succeed(Command::new("docker").args(["--host", &self.peers.docker_host, "exec", &self.id, "/bin/true"]))
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let _ = succeed(Command::new("docker").args(["--host", &self.peers.docker_host, "rm", "--force", &self.id]));
    }
}

/// Bare fork+exec of `/bin/true`.
pub(crate) fn fork_exec() -> Result<()> {
    succeed(&mut Command::new("/bin/true"))
}

/// Bare fork+exec with pipes on its output, read to their end.
pub(crate) fn fork_exec_with_pipes() -> Result<()> {
    let output = Command::new("/bin/true").stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "/bin/true ended with {}", output.status);
    Ok(())
}

/// bubblewrap with all namespaces.
pub(crate) fn bwrap() -> Result<()> {
    let mut words = BWRAP.split_whitespace();
    succeed(Command::new(words.next().context("the command is empty")?).args(words))
}

/// A line of shell; `$0` is `zero`.
pub(crate) fn shell(line: &str, zero: &str) -> Result<()> {
    succeed(Command::new("sh").args(["-c", line, zero]))
}

/// Bare `head`, its output read through a pipe.
pub(crate) fn output_through_a_pipe(bytes: u64) -> Result<()> {
    read_output(Command::new("head").args(["-c", &bytes.to_string(), "/dev/zero"]), bytes)
}

/// Reads the output of a program, which must be so many bytes, through a pipe.
pub(crate) fn read_output(command: &mut Command, bytes: u64) -> Result<()> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut stdout = child.stdout.take().context("there is no standard output")?;
    let mut buffer = vec![0; 64 * 1024];
    let mut seen = 0;
    loop {
        match stdout.read(&mut buffer)? {
            0 => break,
            read => seen += read as u64,
        }
    }
    ensure!(child.wait()?.success() && seen == bytes, "{command:?} gave {seen} bytes");
    Ok(())
}

/// A line of shell whose output goes to a bare pseudo-terminal, read to its end. Says how many bytes came.
pub(crate) fn output_through_a_terminal(line: &str) -> Result<u64> {
    let ours = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::unlockpt(&ours)?;
    let theirs = rustix::pty::ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    let mut child = Command::new("sh").args(["-c", line]).stdin(Stdio::null()).stdout(theirs).spawn()?;
    let mut ours = std::fs::File::from(ours);
    let mut buffer = vec![0; 64 * 1024];
    let mut seen = 0;
    // When the other side is closed, reading fails.
    while let Ok(read @ 1..) = ours.read(&mut buffer) {
        seen += read as u64;
    }
    ensure!(child.wait()?.success(), "{line} failed");
    Ok(seen)
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
