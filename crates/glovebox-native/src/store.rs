//! The store of a sandbox: one tmpfs that is its root.
//!
//! Everything that can be written inside (working directory, outputs, home, /tmp, /dev/shm, the upper layer of an
//! overlay) lies in this one file system, so one size and one number of inodes limit all of it. The skeleton around
//! belongs to root inside and cannot be written by commands. The launcher makes the store while it is still
//! privileged; its mount is not visible anywhere on the host.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen},
};

use crate::{
    host_image::{self, HostImage},
    plan::{Failure, Plan, step},
};

/// Room for the skeleton, on top of what the limits give to programs.
const SKELETON_BYTES: u64 = 256 * 1024;
const SKELETON_INODES: u64 = 128;

enum Owner {
    Root,
    User,
}

/// Folders of the skeleton. The upper and work folders of an overlay lie in a folder that only root inside can enter.
const FOLDERS: [(&str, u32, Owner); 26] = [
    ("dev", 0o755, Owner::Root),
    ("dev/pts", 0o755, Owner::Root),
    ("dev/shm", 0o1777, Owner::Root),
    ("etc", 0o755, Owner::Root),
    ("etc/ssl", 0o755, Owner::Root),
    ("home", 0o755, Owner::Root),
    ("home/user", 0o755, Owner::User),
    ("proc", 0o555, Owner::Root),
    ("root", 0o700, Owner::Root),
    ("run", 0o755, Owner::Root),
    ("sys", 0o555, Owner::Root),
    ("tmp", 0o1777, Owner::Root),
    ("var", 0o755, Owner::Root),
    ("var/cache", 0o755, Owner::Root),
    ("var/lib", 0o755, Owner::Root),
    ("var/log", 0o755, Owner::Root),
    ("workspace", 0o755, Owner::Root),
    ("workspace/agent_workspace", 0o755, Owner::User),
    ("workspace/outputs", 0o755, Owner::User),
    ("workspace/project_files", 0o755, Owner::Root),
    (".glovebox", 0o700, Owner::Root),
    (".glovebox/upper", 0o755, Owner::User),
    (".glovebox/work", 0o755, Owner::Root),
    (".glovebox/empty", 0o555, Owner::Root),
    ("srv", 0o755, Owner::Root),
    ("mnt", 0o755, Owner::Root),
];

const LINKS: [(&str, &str); 7] = [
    ("dev/fd", "/proc/self/fd"),
    ("dev/stdin", "/proc/self/fd/0"),
    ("dev/stdout", "/proc/self/fd/1"),
    ("dev/stderr", "/proc/self/fd/2"),
    ("dev/ptmx", "pts/ptmx"),
    ("etc/mtab", "/proc/mounts"),
    ("var/tmp", "/tmp"),
];

/// Devices that are harmless: name, major, minor.
const DEVICES: [(&str, u32, u32); 6] = [
    ("dev/null", 1, 3),
    ("dev/zero", 1, 5),
    ("dev/full", 1, 7),
    ("dev/random", 1, 8),
    ("dev/urandom", 1, 9),
    ("dev/tty", 5, 0),
];

/// Makes the file system and its skeleton. `base` is the host id of root inside.
pub(crate) fn make(plan: &Plan, image: &HostImage, base: u32) -> Result<OwnedFd, Failure> {
    let store = step("make the store", mount_tmpfs(plan))?;
    step("fill the store", fill(store.as_fd(), plan, image, base))?;
    Ok(store)
}

fn mount_tmpfs(plan: &Plan) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "source", "glovebox")?;
    fsconfig_set_string(context.as_fd(), "size", (plan.disk + SKELETON_BYTES).to_string())?;
    fsconfig_set_string(context.as_fd(), "nr_inodes", (plan.inodes + SKELETON_INODES).to_string())?;
    fsconfig_set_string(context.as_fd(), "mode", "0755")?;
    fsconfig_create(context.as_fd())?;
    // Devices must work, for they lie in this file system; nobody inside can make one.
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NOSUID)
}

fn fill(root: BorrowedFd<'_>, plan: &Plan, image: &HostImage, base: u32) -> io::Result<()> {
    let own = |path: &str, uid: u32, gid: u32| {
        let (uid, gid) = (Uid::from_raw(base + uid), Gid::from_raw(base + gid));
        rustix::fs::chownat(root, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
    };
    rustix::fs::chownat(root, "", Some(Uid::from_raw(base)), Some(Gid::from_raw(base)), AtFlags::EMPTY_PATH)?;
    for (path, mode, owner) in FOLDERS {
        rustix::fs::mkdirat(root, path, Mode::from_raw_mode(mode))?;
        match owner {
            Owner::Root => own(path, 0, 0)?,
            Owner::User => own(path, plan.uid, plan.gid)?,
        }
    }
    for (path, target) in LINKS {
        rustix::fs::symlinkat(target, root, path)?;
    }
    for (path, target) in &image.links {
        rustix::fs::symlinkat(target, root, path.trim_start_matches('/'))?;
    }
    for (path, major, minor) in DEVICES {
        let mode = Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(root, path, FileType::CharacterDevice, mode, rustix::fs::makedev(major, minor))?;
        own(path, 0, 0)?;
    }
    for (name, content) in host_image::own_files(plan.uid, plan.gid, plan.host_network) {
        let path = format!("etc/{name}");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(root, &path, flags, Mode::from_raw_mode(0o644))?;
        rustix::io::write(&file, content.as_bytes())?;
        own(&path, 0, 0)?;
    }
    Ok(())
}

/// How full the store is: blocks and inodes that programs can still use.
pub(crate) fn fullness(store: BorrowedFd<'_>) -> io::Result<glovebox_core::StoreUse> {
    let stat = rustix::fs::fstatfs(store)?;
    let block = stat.f_bsize as u64;
    Ok(glovebox_core::StoreUse {
        used_bytes: (stat.f_blocks as u64 - stat.f_bfree as u64) * block,
        free_bytes: stat.f_bfree as u64 * block,
        free_inodes: stat.f_ffree as u64,
    })
}
