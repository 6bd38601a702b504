//! The verb `bench`: brings what the benchmark is compared with, then runs `glovebox-bench`, built as it is distributed.

use std::{path::PathBuf, process::Stdio};

use anyhow::{Context, Result, ensure};

use crate::{
    distribution,
    docker::{
        daemon::{API_VERSION, Daemon, Lifetime},
        images,
    },
    need,
    suites::{command, run},
    tree::built,
};

/// What the comparison needs.
const TOOLS: [need::Tool; 5] = [
    ("/usr/lib/python3/dist-packages/matplotlib", "python3-matplotlib"),
    ("bwrap", "bubblewrap"),
    ("runc", "runc"),
    ("mmdebstrap", "mmdebstrap"),
    ("taskset", "util-linux"),
];

/// The image of `docker run` and of the Docker backend, one of those that the tests make.
const IMAGE: &str = "debian";

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
    let daemon = Daemon::start(Lifetime::OfThisProcess)?;
    images::load(&daemon.client(), &[IMAGE])?;
    let (host, image) = (daemon.places.host(), images::reference(IMAGE));
    let glovebox = folder.join("glovebox").to_string_lossy().into_owned();
    // Two cores, whatever the machine has: the promises are made for two.
    let mut argv = vec!["taskset", "-c", "0,1", &program, "--glovebox", &glovebox, "--runc-bundle", &bundle];
    argv.extend(["--docker-host", &host, "--docker-image", &image]);
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
        let suite = images::suite()?;
        let new = tar.with_extension("new.tar");
        // With no mirror given but "-" and the host's own list on stdin, the packages come from where the host's come.
        let sources = images::host_sources()?;
        let mut child =
            command(&["mmdebstrap", "--variant=minbase", "--mode=root", &suite, &new.to_string_lossy(), "-"])
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
