//! What the verbs need from the machine. What is missing is installed with apt-get, or named.

use std::path::Path;

use anyhow::{Result, bail, ensure};

use crate::suites::run;

/// A program or the path of a file, and the Debian package that has it.
pub(crate) type Tool = (&'static str, &'static str);

/// Where programs of the system lie. Not PATH: a toolchain in somebody's home is not visible inside a sandbox.
const FOLDERS: [&str; 5] = ["/usr/local/bin", "/usr/bin", "/usr/sbin", "/bin", "/sbin"];

/// The path of a program of the system. A path is itself.
pub(crate) fn find(program: &str) -> Option<String> {
    if program.starts_with('/') {
        return Path::new(program).exists().then(|| program.to_owned());
    }
    FOLDERS.iter().map(|folder| format!("{folder}/{program}")).find(|path| Path::new(path).exists())
}

/// Sees to it that these programs are there.
pub(crate) fn tools(tools: &[Tool]) -> Result<()> {
    let missing = |tools: &[Tool]| -> Vec<Tool> { tools.iter().copied().filter(|(p, _)| find(p).is_none()).collect() };
    let absent = missing(tools);
    if absent.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = absent.iter().map(|(_, package)| *package).collect();
    if find("apt-get").is_none() {
        bail!("missing, and there is no apt-get to install them: {}", packages.join(" "));
    }
    run(&["apt-get", "update", "-q"])?;
    let mut argv = vec!["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-q", "-y"];
    argv.push("--no-install-recommends");
    argv.extend(&packages);
    run(&argv)?;
    let absent: Vec<&str> = missing(tools).into_iter().map(|(program, _)| program).collect();
    ensure!(absent.is_empty(), "still missing after apt-get install: {}", absent.join(" "));
    Ok(())
}

/// An error unless this process is root.
pub(crate) fn root() -> Result<()> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")).and_then(|ids| ids.split_whitespace().nth(1));
    ensure!(uid == Some("0"), "this must run as root: it tests sandboxes of root, and becomes other users");
    Ok(())
}
