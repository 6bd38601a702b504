//! The verb `bench`: brings what the benchmark is compared with, then runs `glovebox-bench`, built as it is distributed.

use std::{
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    distribution, need,
    suites::{command, read, run},
    tree::built,
};

/// What the comparison needs.
const TOOLS: [need::Tool; 7] = [
    ("/usr/lib/python3/dist-packages/matplotlib", "python3-matplotlib"),
    ("bwrap", "bubblewrap"),
    ("runc", "runc"),
    ("dockerd", "docker.io"),
    ("iptables", "iptables"),
    ("mmdebstrap", "mmdebstrap"),
    ("taskset", "util-linux"),
];

/// The image that `docker run` uses.
const IMAGE: &str = "glovebox-bench:latest";

/// The oldest API that this product speaks of; newer clients refuse an older daemon without it.
const API_VERSION: &str = "1.41";

/// How long a new daemon may take to answer.
const DAEMON_START: Duration = Duration::from_secs(60);

/// Measures what `cargo build --release` makes in place of what is distributed.
const PLAIN: &str = "--plain";

/// The verb `bench`.
pub(crate) fn bench(args: &[String]) -> Result<()> {
    let plain = args.iter().any(|arg| arg == PLAIN);
    let args: Vec<&str> = args.iter().map(String::as_str).filter(|arg| *arg != PLAIN).collect();
    let packages = ["glovebox-cli", "glovebox-bench"];
    let folder = if plain { build_plain(&packages)? } else { distribution::build(&packages)? };
    let program = folder.join("glovebox-bench").to_string_lossy().into_owned();
    if args.iter().any(|arg| *arg == "--help" || *arg == "-h") {
        return run_bench(&[&program, "--help"]);
    }
    need::root()?;
    need::tools(&TOOLS)?;
    let bundle = bundle()?;
    let docker = Docker::start()?;
    docker.import(&rootfs_tar()?)?;
    let glovebox = folder.join("glovebox").to_string_lossy().into_owned();
    // Two cores, whatever the machine has: the promises are made for two.
    let mut argv = vec!["taskset", "-c", "0,1", &program, "--glovebox", &glovebox, "--runc-bundle", &bundle];
    argv.extend(["--docker-host", &docker.host, "--docker-image", IMAGE]);
    argv.extend(args);
    run_bench(&argv)
}

fn build_plain(packages: &[&str]) -> Result<PathBuf> {
    let mut argv = vec!["cargo", "build", "--release", "--locked"];
    argv.extend(packages.iter().flat_map(|package| ["-p", package]));
    run(&argv)?;
    Ok(built("release", ""))
}

/// The benchmark's standard output is its table alone, so nothing is said around it there.
fn run_bench(argv: &[&str]) -> Result<()> {
    let status = command(argv).env("DOCKER_API_VERSION", API_VERSION).status().context("cannot start the benchmark")?;
    ensure!(status.success(), "the benchmark ended with {status}");
    Ok(())
}

fn cache() -> Result<PathBuf> {
    let folder = built("bench", "");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// A minimal Debian as a tar, made once and kept below target/.
fn rootfs_tar() -> Result<PathBuf> {
    let tar = cache()?.join("rootfs.tar");
    if !tar.exists() {
        let release = std::fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
        let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).unwrap_or("bookworm");
        let new = tar.with_extension("new.tar");
        // With no mirror given but "-" and the host's own list on stdin, the packages come from where the host's come.
        let sources = host_sources()?;
        let mut child =
            command(&["mmdebstrap", "--variant=minbase", "--mode=root", suite, &new.to_string_lossy(), "-"])
                .stdin(Stdio::piped())
                .spawn()
                .context("cannot start mmdebstrap")?;
        let mut stdin = child.stdin.take().context("mmdebstrap has no standard input")?;
        std::io::Write::write_all(&mut stdin, sources.as_bytes())?;
        drop(stdin);
        ensure!(child.wait()?.success(), "mmdebstrap failed");
        std::fs::rename(&new, &tar)?;
    }
    Ok(tar)
}

/// Where the host's own packages come from, as mmdebstrap reads it.
fn host_sources() -> Result<String> {
    let candidates =
        ["/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list.d/ubuntu.sources"];
    let lists = candidates.iter().filter_map(|path| std::fs::read_to_string(path).ok());
    let filled = |text: &String| text.lines().any(|line| line.starts_with("deb ") || line.starts_with("Types:"));
    lists.into_iter().find(filled).context("no list of package sources was found below /etc/apt")
}

/// A bundle for runc: the same root file system, unpacked, and runc's own default configuration for one `/bin/true`.
fn bundle() -> Result<String> {
    let bundle = cache()?.join("bundle");
    let rootfs = bundle.join("rootfs");
    if !rootfs.join("bin").exists() {
        let tar = rootfs_tar()?;
        std::fs::create_dir_all(&rootfs)?;
        run(&["tar", "-xf", &tar.to_string_lossy(), "-C", &rootfs.to_string_lossy()])?;
    }
    let config = bundle.join("config.json");
    if config.exists() {
        std::fs::remove_file(&config)?;
    }
    let folder = bundle.to_string_lossy().into_owned();
    run(&["runc", "spec", "--bundle", &folder])?;
    let mut spec: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&config)?)?;
    spec["process"]["args"] = serde_json::json!(["/bin/true"]);
    spec["process"]["terminal"] = serde_json::json!(false);
    std::fs::write(&config, serde_json::to_string_pretty(&spec)?)?;
    Ok(folder)
}

/// A daemon to ask: the one that runs here, or a private one that ends with the benchmark.
struct Docker {
    host: String,
    private: Option<(Child, PathBuf)>,
}

impl Docker {
    fn start() -> Result<Docker> {
        let usual = "unix:///var/run/docker.sock";
        if Self::answers(usual) {
            return Ok(Docker { host: usual.into(), private: None });
        }
        let folder = PathBuf::from(read(&["mktemp", "-d", "/tmp/glovebox-bench.XXXXXX"])?.trim());
        let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let host = format!("unix://{}", at("docker.sock"));
        let log = std::fs::File::create(folder.join("dockerd.log"))?;
        let dockerd = need::find("dockerd").context("dockerd is missing")?;
        let flags = ["--host", &host, "--data-root", &at("data"), "--exec-root", &at("exec"), "--pidfile", &at("pid")];
        let child = command(&[dockerd.as_str()])
            .args(flags)
            .args(["--bridge", "none", "--iptables=false", "--ip-forward=false"])
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start dockerd")?;
        let docker = Docker { host, private: Some((child, folder)) };
        docker.wait_until_it_answers()
    }

    fn answers(host: &str) -> bool {
        let asked = command(&["docker", "--host", host, "version"]).env("DOCKER_API_VERSION", API_VERSION).output();
        asked.is_ok_and(|output| output.status.success())
    }

    /// A daemon tells nobody when it is ready, so it is asked again until it answers.
    fn wait_until_it_answers(mut self) -> Result<Docker> {
        let started = Instant::now();
        while !Self::answers(&self.host) {
            let ended = self.private.as_mut().and_then(|(child, _)| child.try_wait().ok().flatten());
            if ended.is_some() || started.elapsed() > DAEMON_START {
                bail!("dockerd does not answer:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(self)
    }

    fn log(&self) -> String {
        let path = self.private.as_ref().map(|(_, folder)| folder.join("dockerd.log"));
        path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
    }

    fn import(&self, tar: &Path) -> Result<()> {
        let argv = ["docker", "--host", &self.host, "import", &tar.to_string_lossy(), IMAGE];
        let output = command(&argv).env("DOCKER_API_VERSION", API_VERSION).output()?;
        ensure!(output.status.success(), "docker import: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    }
}

/// Ends the private daemon by its process id and removes what it made, on every path out of the benchmark.
impl Drop for Docker {
    fn drop(&mut self) {
        if let Some((child, folder)) = &mut self.private {
            let _ = read(&["kill", "-TERM", &child.id().to_string()]);
            let _ = child.wait();
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
