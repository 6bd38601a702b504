//! Tries what was packed on bare systems: installs it in every way, runs something in a sandbox, removes it.
//!
//! A system is a folder that becomes the root of namespaces of its own. Its mounts, its network and its processes are gone
//! when the trial ends, however it ends. It is entered by `pivot_root`, since the kernel gives no user namespace to a
//! process in a `chroot`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use super::{VERSION, pack};
use crate::{
    need::{self, Tool},
    suites::{Counts, run, run_and_read},
    tree::built,
};

const TOOLS: [Tool; 3] = [("busybox", "busybox-static"), ("unshare", "util-linux"), ("mmdebstrap", "mmdebstrap")];

/// What runs inside.
const TRIAL: &str = include_str!("trial.sh");

/// What makes the folder the root, and then runs it.
const ENTER: &str = include_str!("enter.sh");

/// A system that is tried.
enum System<'a> {
    /// Debian's smallest, with a program that fetches: its suite, and that program.
    Debian(&'a str, &'a str),
    /// Like Alpine: busybox, musl, and neither glibc nor bash.
    Busybox,
}

/// Debian 13 stands for systems with a newer glibc, Ubuntu among them, whose packages are not at hand everywhere.
const SYSTEMS: [System; 3] = [System::Debian("bookworm", "curl"), System::Debian("trixie", "wget"), System::Busybox];

/// Tries these files on every system.
pub(super) fn everywhere(packages: &[PathBuf]) -> Result<()> {
    try_on(&SYSTEMS, packages)?;
    Ok(())
}

/// Packs a program that was built for this machine and tries it on the smallest system of this machine's kind, whose C
/// library is the same. It takes half a minute, where the static program alone takes several to build, so this is what
/// every change is tested with.
pub(crate) fn like_this_machine(program: &Path) -> Result<Counts> {
    let about = fs::read_to_string("/etc/os-release")?;
    let suite = about.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.context("/etc/os-release names no suite of Debian or Ubuntu")?;
    try_on(&[System::Debian(suite, "curl")], &pack(program, &built("trial", "packages"))?)
}

fn try_on(systems: &[System], packages: &[PathBuf]) -> Result<Counts> {
    need::root()?;
    need::tools(&TOOLS)?;
    for system in systems {
        let root = system.make()?;
        let trial = root.join("trial");
        fs::create_dir_all(trial.join("packages"))?;
        fs::write(trial.join("trial.sh"), TRIAL)?;
        fs::write(trial.join("enter.sh"), ENTER)?;
        fs::copy(need::find("busybox").context("busybox is gone")?, trial.join("busybox"))?;
        for path in packages {
            fs::copy(path, trial.join("packages").join(path.file_name().context("a package has no name")?))?;
        }
        let (ok, _) = run_and_read(&[
            "unshare",
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--propagation",
            "private",
            "sh",
            &trial.join("enter.sh").to_string_lossy(),
            &root.to_string_lossy(),
            VERSION,
        ])?;
        ensure!(ok, "the trial on {} failed", system.name());
        remove(&root)?;
    }
    Ok(Counts { passed: systems.len() as u64, ..Counts::default() })
}

impl System<'_> {
    fn name(&self) -> &str {
        match self {
            System::Debian(suite, _) => suite,
            System::Busybox => "busybox",
        }
    }

    /// Makes its root anew.
    fn make(&self) -> Result<PathBuf> {
        eprintln!("trial on {}", self.name());
        let root = built("trial", self.name());
        remove(&root)?;
        fs::create_dir_all(&root)?;
        match self {
            System::Debian(suite, fetcher) => make_debian(&root, suite, fetcher)?,
            System::Busybox => make_busybox(&root)?,
        }
        Ok(root)
    }
}

/// Removes a root. Whatever is mounted there is mounted in the namespace of a trial and not seen here.
fn remove(root: &Path) -> Result<()> {
    run(&["rm", "-rf", "--one-file-system", "--", &root.to_string_lossy()])
}

/// Debian's packages are fetched once.
fn make_debian(root: &Path, suite: &str, fetcher: &str) -> Result<()> {
    let tar = root.with_extension("tar");
    if !tar.exists() {
        let unfinished = root.with_extension("new.tar");
        let include = format!("--include={fetcher}");
        run(&["mmdebstrap", "--quiet", "--variant=minbase", &include, suite, &unfinished.to_string_lossy()])?;
        fs::rename(unfinished, &tar)?;
    }
    run(&["tar", "-C", &root.to_string_lossy(), "--exclude=./dev/*", "-xf", &tar.to_string_lossy()])
}

fn make_busybox(root: &Path) -> Result<()> {
    for folder in ["bin", "etc", "lib", "root", "run", "tmp", "usr/bin", "usr/local", "var"] {
        fs::create_dir_all(root.join(folder))?;
    }
    let users = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n";
    fs::write(root.join("etc/passwd"), users)?;
    fs::write(root.join("etc/group"), "root:x:0:\nnogroup:x:65534:\n")?;
    run(&["chmod", "1777", &root.join("tmp").to_string_lossy()])?;
    fs::copy(need::find("busybox").context("busybox is gone")?, root.join("bin/busybox"))?;
    // The compiler for musl brought musl's loader, which is the library too.
    fs::copy("/lib/ld-musl-x86_64.so.1", root.join("lib/ld-musl-x86_64.so.1"))?;
    run(&["chroot", &root.to_string_lossy(), "/bin/busybox", "--install", "-s", "/bin"])
}
