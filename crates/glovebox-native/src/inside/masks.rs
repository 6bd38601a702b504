//! Masks over the parts of /proc that speak of the host or change it.
//!
//! The owners of these files are not mapped inside, so most could not be read or written anyway; the masks hold even
//! where a kernel is too generous with modes.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags},
    mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree},
};

use crate::sys;

/// Folders that become empty.
const EMPTY: [&str; 6] = ["acpi", "asound", "bus", "fs", "irq", "scsi"];

/// Files that become /dev/null.
const NULL: [&str; 10] = [
    "cmdline",
    "kcore",
    "keys",
    "key-users",
    "kmsg",
    "latency_stats",
    "sched_debug",
    "sysrq-trigger",
    "timer_list",
    "timer_stats",
];

/// Folders that stay but cannot be written.
const READ_ONLY: [&str; 1] = ["sys"];

/// Applies all masks whose target exists.
pub(super) fn apply(root: BorrowedFd<'_>) -> io::Result<()> {
    for name in EMPTY {
        if let Some(place) = find(root, name)? {
            cover(&place, sealed(root, ".glovebox/empty")?)?;
        }
    }
    for name in NULL {
        if let Some(place) = find(root, name)? {
            cover(&place, clone(root, "dev/null")?)?;
        }
    }
    for name in READ_ONLY {
        if let Some(place) = find(root, name)? {
            cover(&place, sealed(root, &format!("proc/{name}"))?)?;
        }
    }
    Ok(())
}

/// A clone that cannot be written.
fn sealed(root: BorrowedFd<'_>, path: &str) -> io::Result<OwnedFd> {
    let tree = clone(root, path)?;
    sys::seal_tree(tree.as_fd(), true, None)?;
    Ok(tree)
}

fn clone(root: BorrowedFd<'_>, path: &str) -> io::Result<OwnedFd> {
    Ok(open_tree(root, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?)
}

fn find(root: BorrowedFd<'_>, name: &str) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(root, format!("proc/{name}"), flags, Mode::empty()) {
        Ok(place) => Ok(Some(place)),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn cover(place: &OwnedFd, tree: OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(&tree, "", place, "", flags)?)
}
