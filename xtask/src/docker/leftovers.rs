//! What a daemon that was killed leaves: processes, mounts, groups, a bridge, folders.
//!
//! Nothing of another daemon is touched. A process is of ours when it is one of Docker's programs and its command line or a variable of it
//! names one of our folders, or when it is in the control group of a container whose files lie there.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    mount::{UnmountFlags, unmount},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use super::daemon::{Places, is_below};
use crate::suites::read;

/// Programs of which a process can be ours by its command line.
const PROGRAMS: [&str; 8] = [
    "conmon",
    "containerd",
    "containerd-shim-runc-v2",
    "docker-proxy",
    "docker-registry",
    "dockerd",
    "podman",
    "runsc",
];

/// How long a process may take to be gone after SIGKILL, and how long all of them together.
const KILLED: Duration = Duration::from_secs(10);

/// Ends every process of these places and removes all that they made.
pub(crate) fn clear(places: &Places) -> Result<()> {
    kill_all(places)?;
    let mut mounts = mounts_of(places)?;
    mounts.reverse();
    for mount in mounts {
        unmount(&mount, UnmountFlags::DETACH).with_context(|| format!("cannot unmount {}", mount.display()))?;
    }
    remove_groups(places);
    if Path::new("/sys/class/net").join(&places.bridge).exists() {
        read(&["ip", "link", "delete", &places.bridge])?;
    }
    for folder in [&places.data, &places.run] {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", folder.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// An error that says what is left of a daemon of these places.
pub(crate) fn nothing_is_left(places: &Places) -> Result<()> {
    let (processes, mounts) = (processes_of(places)?, mounts_of(places)?);
    let bridge = Path::new("/sys/class/net").join(&places.bridge);
    let folders: Vec<&PathBuf> =
        [&places.data, &places.run, &bridge].into_iter().filter(|path| path.exists()).collect();
    ensure!(
        processes.is_empty() && mounts.is_empty() && folders.is_empty(),
        "left: processes {processes:?}, mounts {mounts:?}, paths {folders:?}"
    );
    Ok(())
}

/// Whether a process belongs to the daemon of these places.
pub(crate) fn is_ours(places: &Places, pid: Pid) -> bool {
    let proc = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    let command_line = fs::read(proc.join("cmdline")).unwrap_or_default();
    // A process that has ended and that nobody asked about yet has no program any more.
    let Ok(program) = fs::read_link(proc.join("exe")) else { return false };
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = name.trim_end_matches(" (deleted)");
    let of_ours = |word: &[u8]| {
        // Options are `--root=/a` as well as `--root /a`.
        let path = word.splitn(2, |byte| *byte == b'=').last().unwrap_or_default();
        is_below(places, Path::new(&OsString::from_vec(path.to_vec())))
    };
    // What Podman without root leaves running names nothing on its command line.
    let variables = fs::read(proc.join("environ")).unwrap_or_default();
    let mut words = [&command_line, &variables].into_iter().flat_map(|text| text.split(|byte| *byte == 0));
    if PROGRAMS.contains(&name) && words.any(of_ours) {
        return true;
    }
    // A process of a container is in the container's group, whatever file system it has as its root.
    let groups = fs::read_to_string(proc.join("cgroup")).unwrap_or_default();
    containers_of(places).any(|id| groups.contains(&id))
}

/// The ids of all containers, of Docker's and of Podman's: 64 digits that nobody else has.
fn containers_of(places: &Places) -> impl Iterator<Item = String> {
    let folders = [places.data.join("containers"), places.data.join("podman/overlay-containers")];
    let entries = folders.into_iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(|name| name.len() == 64)
}

/// Sends SIGTERM, waits, and sends SIGKILL to who is not gone by then.
pub(crate) fn end(pid: Pid, patience: Duration) -> Result<()> {
    if !is_gone_after(pid, Signal::TERM, patience)? {
        kill(pid)?;
    }
    Ok(())
}

/// Sends SIGKILL and waits until the process is gone.
pub(crate) fn kill(pid: Pid) -> Result<()> {
    ensure!(is_gone_after(pid, Signal::KILL, KILLED)?, "process {} does not end", pid.as_raw_nonzero());
    Ok(())
}

fn is_gone_after(pid: Pid, signal: Signal, patience: Duration) -> Result<bool> {
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(Errno::SRCH) => return Ok(true),
        Err(error) => return Err(error).context("cannot look at the process"),
    };
    if pidfd_send_signal(&process, signal) == Err(Errno::SRCH) {
        return Ok(true);
    }
    // A stopped process takes no SIGTERM before it goes on.
    let _ = pidfd_send_signal(&process, Signal::CONT);
    let patience = Timespec { tv_sec: i64::try_from(patience.as_secs())?, tv_nsec: 0 };
    Ok(poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&patience))? > 0)
}

/// Kills all processes of these places, again until none is left: one that dies may have made another.
fn kill_all(places: &Places) -> Result<()> {
    let started = Instant::now();
    loop {
        let processes = processes_of(places)?;
        if processes.is_empty() {
            return Ok(());
        }
        if started.elapsed() > KILLED {
            bail!("processes do not end: {processes:?}");
        }
        for pid in processes {
            kill(pid)?;
        }
    }
}

fn processes_of(places: &Places) -> Result<Vec<Pid>> {
    let names = fs::read_dir("/proc")?.flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| Pid::from_raw(name.to_str()?.parse().ok()?));
    Ok(pids.filter(|pid| is_ours(places, *pid)).collect())
}

/// Mount points in the folders of these places, in the order in which they were made.
fn mounts_of(places: &Places) -> Result<Vec<PathBuf>> {
    let table = fs::read("/proc/self/mountinfo")?;
    let points = table.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    Ok(points.map(unescaped).filter(|point| is_below(places, point)).collect())
}

/// A path as the kernel writes it into its table of mounts: `\040` is a space.
fn unescaped(point: &[u8]) -> PathBuf {
    let mut path = Vec::new();
    let mut rest = point;
    while let Some((first, after)) = rest.split_first() {
        let octal = (*first == b'\\').then(|| after.get(..3)).flatten();
        let byte = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        path.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(path))
}

/// Removes the control groups of containers whose daemon did not come to it. Version 1 has a tree for each controller, and where
/// systemd makes the groups it also removes them.
fn remove_groups(places: &Places) {
    let of_container = |id: String| [format!("docker/{id}"), format!("libpod_parent/libpod-{id}")];
    let groups: Vec<String> = containers_of(places).flat_map(of_container).collect();
    let trees = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
    for tree in trees.chain([PathBuf::from("/sys/fs/cgroup")]) {
        for group in &groups {
            // Most of these are not there, and an empty one that stays costs nothing.
            let _ = fs::remove_dir(tree.join(group));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_with_a_space_is_read_as_it_is() {
        assert_eq!(unescaped(br"/a\040b/\134c"), PathBuf::from(r"/a b/\c"));
        assert_eq!(unescaped(br"/a\04"), PathBuf::from(r"/a\04"));
    }
}
