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
    sys,
};

/// Folders of the skeleton that belong to root inside.
const ROOT_FOLDERS: [(&str, u32); 16] = [
    ("dev", 0o755),
    ("dev/pts", 0o755),
    ("dev/shm", 0o1777),
    ("etc", 0o755),
    ("etc/ssl", 0o755),
    ("home", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("workspace", 0o755),
    ("workspace/project_files", 0o755),
    (".glovebox", 0o700),
    (".glovebox/empty", 0o555),
];

/// Folders that belong to the user that commands run as.
const USER_FOLDERS: [&str; 3] = ["home/user", "workspace/agent_workspace", "workspace/outputs"];

/// Further folders for an overlay. They lie where only root inside can enter.
const OVERLAY_FOLDERS: [&str; 2] = [".glovebox/upper", ".glovebox/work"];

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
    let own_files = host_image::own_files(plan.uid, plan.gid, plan.host_network);
    let skeleton = Skeleton::of(plan, image, &own_files);
    let store = step("make the store", mount_tmpfs(plan, &skeleton, base))?;
    // What is made with these ids for files belongs to root inside without a change of owner for each.
    step("act as root inside", sys::set_file_ids(base, base))?;
    let filled = fill(store.as_fd(), plan, image, &own_files);
    step("act as root again", sys::set_file_ids(0, 0))?;
    step("fill the store", filled)?;
    step("add devices and owners", add_devices_and_owners(store.as_fd(), plan, base))?;
    Ok(store)
}

/// What the skeleton itself takes of the store; programs have their limits on top of it.
struct Skeleton {
    bytes: u64,
    inodes: u64,
}

impl Skeleton {
    fn of(plan: &Plan, image: &HostImage, own_files: &[(&str, String)]) -> Self {
        const PAGE: u64 = 4096;
        let lengths = image.files.iter().map(|(_, content)| content.len());
        let lengths = lengths.chain(own_files.iter().map(|(_, content)| content.len()));
        let bytes = lengths.clone().map(|length| (length as u64).div_ceil(PAGE) * PAGE).sum();
        let overlay = if plan.workspace_overlay { OVERLAY_FOLDERS.len() } else { 0 };
        let fixed = 1 + ROOT_FOLDERS.len() + USER_FOLDERS.len() + overlay + LINKS.len() + DEVICES.len();
        // Each mount needs a place; those of the caller may need the folders on the way to it too.
        let on_the_way: usize = plan.mounts.iter().map(|mount| mount.target.matches('/').count()).sum();
        let places = image.mounts.len() + on_the_way;
        Skeleton { bytes, inodes: (fixed + image.links.len() + lengths.count() + places) as u64 }
    }
}

fn mount_tmpfs(plan: &Plan, skeleton: &Skeleton, base: u32) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let set = |key: &str, value: String| fsconfig_set_string(context.as_fd(), key, value);
    set("source", "glovebox".into())?;
    set("size", (plan.disk + skeleton.bytes).to_string())?;
    set("nr_inodes", (plan.inodes + skeleton.inodes).to_string())?;
    set("mode", "0755".into())?;
    set("uid", base.to_string())?;
    set("gid", base.to_string())?;
    fsconfig_create(context.as_fd())?;
    // Devices must work, for they lie in this file system; nobody inside can make one.
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NOSUID)
}

fn fill(root: BorrowedFd<'_>, plan: &Plan, image: &HostImage, own_files: &[(&str, String)]) -> io::Result<()> {
    for (path, mode) in ROOT_FOLDERS {
        rustix::fs::mkdirat(root, path, Mode::from_raw_mode(mode))?;
    }
    let overlay = OVERLAY_FOLDERS.into_iter().filter(|_| plan.workspace_overlay);
    for path in USER_FOLDERS.into_iter().chain(overlay) {
        rustix::fs::mkdirat(root, path, Mode::from_raw_mode(0o755))?;
    }
    for (path, target) in LINKS {
        rustix::fs::symlinkat(target, root, path)?;
    }
    for (path, target) in &image.links {
        rustix::fs::symlinkat(target, root, path.trim_start_matches('/'))?;
    }
    for (path, content) in &image.files {
        write_file(root, path.trim_start_matches('/'), content)?;
    }
    for (name, content) in own_files {
        write_file(root, &format!("etc/{name}"), content.as_bytes())?;
    }
    Ok(())
}

fn write_file(root: BorrowedFd<'_>, path: &str, mut content: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, path, flags, Mode::from_raw_mode(0o644))?;
    while !content.is_empty() {
        let written = rustix::io::write(&file, content)?;
        content = &content[written..];
    }
    Ok(())
}

fn add_devices_and_owners(root: BorrowedFd<'_>, plan: &Plan, base: u32) -> io::Result<()> {
    let own = |path: &str, uid: u32, gid: u32| {
        let (uid, gid) = (Uid::from_raw(base + uid), Gid::from_raw(base + gid));
        rustix::fs::chownat(root, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
    };
    for (path, major, minor) in DEVICES {
        let mode = Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(root, path, FileType::CharacterDevice, mode, rustix::fs::makedev(major, minor))?;
        own(path, 0, 0)?;
    }
    let upper = [OVERLAY_FOLDERS[0]].into_iter().filter(|_| plan.workspace_overlay);
    for path in USER_FOLDERS.into_iter().chain(upper) {
        own(path, plan.uid, plan.gid)?;
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
