//! Things that are tried because no file tells whether they work. Each is made in a process of its own or without a
//! place in the file system, and is gone with it.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use glovebox_guest::mounts::{namespace_with, plain_map, write_maps};
use rustix::{
    fs::{CWD, Mode, OFlags},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsmount, fsopen, open_tree},
    process::Pid,
};

use crate::{
    cgroup::Cgroups,
    standing::Standing,
    sys,
    sys::{Forked, KillOnDrop, Sealed},
    wire,
};

/// A step of making a sandbox that a host may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A process with namespaces of its own.
    Namespaces,
    /// The ids of the user namespace.
    Ids,
    /// A file system in memory.
    Mount,
    /// A `/proc` of its own.
    Proc,
}

/// What stands in the way of a sandbox.
#[derive(Debug)]
pub struct Obstacle {
    /// The step that was refused.
    pub step: Step,
    /// What the kernel said.
    pub error: io::Error,
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let step = match self.step {
            Step::Namespaces => "no process with its own namespaces can be made",
            Step::Ids => "the ids of a user namespace cannot be set",
            Step::Mount => "nothing can be mounted in a user namespace",
            Step::Proc => "no /proc of its own can be mounted",
        };
        write!(f, "{step}: {}", self.error)
    }
}

/// Tries all that a sandbox needs of namespaces, as the caller, and undoes it. The caller must have one thread.
pub fn try_user_namespace() -> Result<(), Obstacle> {
    let failed = |step| move |error: io::Error| Obstacle { step, error };
    let (here, there) = wire::stream_pair().map_err(failed(Step::Namespaces))?;
    let namespaces = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    match sys::fork_with(namespaces as u64).map_err(failed(Step::Namespaces))? {
        Forked::Child => {
            drop(here);
            report(&there, mount_things(&there))
        }
        Forked::Parent { pid, pidfd } => {
            drop(there);
            let _child = KillOnDrop::new(pidfd);
            give_ids(pid).map_err(failed(Step::Ids))?;
            rustix::io::write(&here, b"x").map_err(|e| failed(Step::Ids)(e.into()))?;
            let mut said = [0; 2];
            match rustix::io::read(&here, &mut said[..]) {
                Ok(2) if said == [0, 0] => Ok(()),
                Ok(2) => {
                    let step = if said[0] == b'm' { Step::Mount } else { Step::Proc };
                    Err(Obstacle { step, error: io::Error::from_raw_os_error(said[1].into()) })
                }
                Ok(_) => Err(failed(Step::Namespaces)(io::ErrorKind::UnexpectedEof.into())),
                Err(error) => Err(failed(Step::Namespaces)(error.into())),
            }
        }
    }
}

/// What the new process does: waits for its ids, then mounts what every sandbox has. Nothing is attached anywhere.
fn mount_things(parent: &OwnedFd) -> Result<(), (u8, rustix::io::Errno)> {
    if rustix::io::read(parent, &mut [0u8; 1][..]) != Ok(1) {
        sys::exit_now(1);
    }
    let mount = |kind: &str| {
        let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(context.as_fd())?;
        fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NOSUID).map(drop)
    };
    mount("tmpfs").map_err(|errno| (b'm', errno))?;
    mount("proc").map_err(|errno| (b'p', errno))
}

fn report(parent: &OwnedFd, result: Result<(), (u8, rustix::io::Errno)>) -> ! {
    let said = match result {
        Ok(()) => [0, 0],
        Err((step, errno)) => [step, errno.raw_os_error() as u8],
    };
    // Whoever waits sees the end of the process if this fails.
    let _ = rustix::io::write(parent, &said);
    sys::exit_now(0)
}

/// Gives a new user namespace the ids that its caller can give without help: root a range, others their own.
fn give_ids(pid: Pid) -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if Standing::is_root() {
        let map = plain_map(0x2000_0000);
        return write_maps(pid, &map, &map);
    }
    // An ordinary user may map a group only after giving up on further groups.
    std::fs::write(format!("/proc/{}/setgroups", pid.as_raw_nonzero()), "deny")?;
    write_maps(pid, &format!("0 {} 1\n", user.as_raw()), &format!("0 {} 1\n", group.as_raw()))
}

/// Tries to make groups, and to put a process into them.
pub(super) fn try_groups(cgroups: &Cgroups) -> io::Result<()> {
    let name = format!("glovebox.trial.{}", rustix::process::getpid().as_raw_nonzero());
    let groups = cgroups.make_trial(&name)?;
    let (here, there) = wire::stream_pair()?;
    match sys::fork_with(0)? {
        Forked::Child => {
            drop(here);
            let errno = groups.join().err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
            // Whoever waits sees the end of the process if this fails.
            let _ = rustix::io::write(&there, &errno.to_ne_bytes());
            sys::exit_now(0)
        }
        Forked::Parent { pidfd, .. } => {
            drop(there);
            // Its end is waited for before the groups are removed, which must be empty then.
            let child = KillOnDrop::new(pidfd);
            let mut said = [0; 4];
            let length = rustix::io::read(&here, &mut said[..])?;
            drop(child);
            match (length, i32::from_ne_bytes(said)) {
                (4, 0) => Ok(()),
                (4, errno) => Err(io::Error::from_raw_os_error(errno)),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }
}

/// Tries to shift the owners of a folder's files by a mount that is attached nowhere. The caller must have one thread.
pub fn try_id_mapped_mount(folder: &str) -> io::Result<()> {
    let map = plain_map(0x2000_0000);
    let owners = namespace_with(&map, &map)?;
    // A folder that is not there has no file system to ask.
    rustix::fs::open(folder, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let tree = open_tree(CWD, folder, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    sys::seal_tree(tree.as_fd(), Sealed::ReadOnly, Some(owners.as_fd()))
}
