//! Assembling the root and moving into it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    fs::{FileType, Mode, OFlags},
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create, fsconfig_set_string,
        fsmount, fsopen, move_mount, unmount,
    },
};

use super::masks;
use crate::plan::{Failure, step};

/// Any folder of the host; it is covered in our namespace only, and gone with the old root.
const MEETING_PLACE: &str = "/tmp";

/// Attaches all trees, mounts what belongs to the namespaces, masks parts of /proc, and makes the result the root.
pub(super) fn assemble(trees: Vec<(String, OwnedFd)>) -> Result<(), Failure> {
    // A new /proc may only be mounted while one is visible that hides nothing, so it comes first.
    // Processes of other users are invisible, ours among them; the guest is in the group that sees all.
    let proc = step("make /proc", file_system("proc", &[("hidepid", "2"), ("gid", "0")]))?;
    let terminals = [("ptmxmode", "0666"), ("mode", "0620"), ("gid", "5")];
    let devpts = step("make /dev/pts", file_system("devpts", &terminals))?;
    let mut trees = trees.into_iter();
    let (_, root) = trees.next().ok_or_else(|| Failure { step: "receive the root".into(), errno: libc::EINVAL })?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    step("attach the root", move_mount(&root, "", rustix::fs::CWD, MEETING_PLACE, flags))?;
    step("attach /proc", attach(root.as_fd(), "/proc", proc.as_fd()))?;
    step("attach /dev/pts", attach(root.as_fd(), "/dev/pts", devpts.as_fd()))?;
    for (target, tree) in trees {
        step(&format!("mount {target}"), attach(root.as_fd(), &target, tree.as_fd()))?;
    }
    step("mask /proc", masks::apply(root.as_fd()))?;
    step("move into the root", pivot(root.as_fd()))
}

fn file_system(kind: &str, options: &[(&str, &str)]) -> rustix::io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    fsconfig_create(context.as_fd())?;
    let flags = match kind {
        "proc" => MountAttrFlags::MOUNT_ATTR_NODEV,
        _ => MountAttrFlags::empty(),
    };
    let always = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, always | flags)
}

/// Attaches a tree at a path below the new root, making the place for it when there is none.
fn attach(root: BorrowedFd<'_>, target: &str, tree: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let is_folder = FileType::from_raw_mode(rustix::fs::fstat(tree)?.st_mode) == FileType::Directory;
    let place = place(root, target, is_folder)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", &place, "", flags)
}

/// Opens the place of a mount, component by component and without following links.
fn place(root: BorrowedFd<'_>, target: &str, is_folder: bool) -> rustix::io::Result<OwnedFd> {
    let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = rustix::fs::openat(root, ".", look | OFlags::DIRECTORY, Mode::empty())?;
    let names: Vec<&str> = target.split('/').filter(|name| !name.is_empty()).collect();
    for (i, name) in names.iter().enumerate() {
        let last_file = i + 1 == names.len() && !is_folder;
        let flags = if last_file { look } else { look | OFlags::DIRECTORY };
        at = match rustix::fs::openat(&at, *name, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => {
                if last_file {
                    let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                    rustix::fs::openat(&at, *name, create, Mode::from_raw_mode(0o644))?;
                } else {
                    rustix::fs::mkdirat(&at, *name, Mode::from_raw_mode(0o755))?;
                }
                rustix::fs::openat(&at, *name, flags, Mode::empty())?
            }
            other => other?,
        };
    }
    Ok(at)
}

fn pivot(root: BorrowedFd<'_>) -> rustix::io::Result<()> {
    rustix::process::fchdir(root)?;
    // Old and new root at the same place: the old one then lies on top and is taken off.
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")
}
