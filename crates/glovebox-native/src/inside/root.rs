//! Assembling the root and moving into it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use glovebox_guest::mounts::{InTheWay, attach};
use rustix::{
    fs::CWD,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create, fsconfig_set_string,
        fsmount, fsopen, mount_bind, move_mount, unmount,
    },
};

use super::{masks::Masks, quotas};
use crate::{
    plan::{Failure, step},
    standing::Standing,
    store,
};

/// Any folder of the host; it is covered in our namespace only, and gone with the old root.
const MEETING_PLACE: &str = "/tmp";

/// The machine has a few thousand terminals for everybody.
const MOST_TERMINALS: &str = "64";

/// Attaches all trees, mounts what belongs to the namespaces, masks parts of /proc, and makes the result the root.
pub(super) fn assemble(trees: Vec<(String, OwnedFd)>, proc_masks: &Masks, standing: Standing) -> Result<(), Failure> {
    // A new /proc may only be mounted while one is visible that hides nothing, so it comes first.
    // Processes of other users are invisible, ours among them; the guest is in the group that sees all.
    let mut processes = vec![("hidepid", "2")];
    let mut terminals = vec![("ptmxmode", "0666"), ("mode", "0620"), ("max", MOST_TERMINALS)];
    if standing != Standing::OneId {
        // Where there is but one id, there are no such groups, and guest and commands see the same.
        processes.push(("gid", "0"));
        terminals.push(("gid", "5"));
    }
    let proc = step("make /proc", file_system("proc", &processes))?;
    let devpts = step("make /dev/pts", file_system("devpts", &terminals))?;
    let mut trees = trees.into_iter();
    let mut next = || trees.next().ok_or_else(|| Failure { step: "receive the root".into(), errno: libc::EINVAL });
    let ((_, root), (_, store)) = (next()?, next()?);
    step("attach the root", attach_at(root.as_fd(), MEETING_PLACE))?;
    step("enter the root", rustix::process::fchdir(&root))?;
    // Up to here all of the root is ours: paths in it lead where they say.
    step("attach /proc", attach_at(proc.as_fd(), "proc"))?;
    step("attach /dev/pts", attach_at(devpts.as_fd(), "dev/pts"))?;
    if standing != Standing::Root {
        step("leave some for the caller", quotas::leave_half("proc/sys"))?;
    }
    step("mask /proc", proc_masks.apply())?;
    step("attach the store", attach_store(store.as_fd(), standing))?;
    let mut mounted: Vec<String> = Vec::new();
    for (target, tree) in trees {
        let below = |folder: &String| target.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'));
        // In the store it can only be what programs put there before the sandbox was stopped, and nobody could take it away
        // again. What lies in a folder of the caller's or in a volume is not ours to move.
        let in_the_way = match store::holds(&target) && !mounted.iter().any(below) {
            true => InTheWay::IsSetAside,
            false => InTheWay::Stays,
        };
        step(&format!("mount {target}"), attach(root.as_fd(), &target, tree.as_fd(), in_the_way))?;
        mounted.push(target);
    }
    step("move into the root", pivot())
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

/// Attaches the store, and mounts its folders where they belong.
fn attach_store(store: BorrowedFd<'_>, standing: Standing) -> rustix::io::Result<()> {
    attach_at(store, store::PLACE)?;
    for (folder, target) in store::MOUNTED {
        mount_bind(format!("{}/{folder}", store::PLACE), target)?;
    }
    // What else is in it, the layers of an overlay, is nobody's business inside. Root's cannot be entered anyway.
    if standing == Standing::Root { Ok(()) } else { unmount(store::PLACE, UnmountFlags::DETACH) }
}

fn attach_at(tree: BorrowedFd<'_>, path: &str) -> rustix::io::Result<()> {
    move_mount(tree, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

fn pivot() -> rustix::io::Result<()> {
    // Old and new root at the same place: the old one then lies on top and is taken off.
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")
}
