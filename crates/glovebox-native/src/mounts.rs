//! Mounts that only the host's root can make: id-mapped trees of host folders, and the overlay of a workspace.
//!
//! They are made here, detached, and handed to the guest as descriptors; it attaches them in its own namespace.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    os::unix::fs::MetadataExt,
};

use rustix::{
    fs::CWD,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
        fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount, open_tree, unmount,
    },
};

use crate::{
    idmap,
    owner::SCRATCH,
    plan::{Failure, Plan, PlannedMount, step},
    sys::{self, Sealed},
};

/// A tree of mounts to attach, and where.
pub(crate) struct Tree {
    pub(crate) target: String,
    pub(crate) tree: OwnedFd,
}

/// Whether all trees could be id-mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mapped {
    All,
    NotAll,
}

impl Mapped {
    /// What holds of two together.
    pub(crate) fn and(self, other: Mapped) -> Mapped {
        if self == Mapped::All { other } else { Mapped::NotAll }
    }
}

/// Makes the launcher ready to attach things where nobody else sees them.
pub(crate) fn enter_scratch() -> io::Result<()> {
    sys::unshare(libc::CLONE_NEWNS)?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    rustix::mount::mount("glovebox", SCRATCH, "tmpfs", rustix::mount::MountFlags::empty(), None)?;
    for name in ["store", "lower"] {
        std::fs::create_dir(format!("{SCRATCH}/{name}"))?;
    }
    Ok(())
}

/// One of the caller's mounts, or a workspace that is no overlay. One that is only read may go without a shift of its
/// owners, and says so; one that is written would belong to nobody inside, so that is an error.
pub(crate) fn planned(mount: &PlannedMount, base: u32, plan: &Plan) -> Result<(Tree, Mapped), Failure> {
    let name = format!("mount {}", mount.target);
    let namespace = step(&name, owner_namespace(&mount.source, base, plan))?;
    let (tree, mapped) = step(&name, sealed(&mount.source, mount.read_only, namespace.as_fd()))?;
    if !mount.read_only {
        must_be_mapped(mount, mapped)?;
    }
    Ok((Tree { target: mount.target.clone(), tree }, mapped))
}

fn must_be_mapped(mount: &PlannedMount, mapped: Mapped) -> Result<(), Failure> {
    if mapped == Mapped::All {
        return Ok(());
    }
    let step = format!(
        "mount {}: this kernel cannot shift the owners of the file system that {} lies on (tmpfs before Linux 6.3, \
         overlayfs, network file systems); use a folder elsewhere, or mount it read-only",
        mount.target, mount.source
    );
    Err(Failure { step, errno: libc::EINVAL })
}

/// A user namespace in which the owner of a host folder is the user inside.
fn owner_namespace(source: &str, base: u32, plan: &Plan) -> io::Result<OwnedFd> {
    let owner = std::fs::metadata(source)?;
    let users = idmap::swapped_map(base, owner.uid(), plan.uid);
    let groups = idmap::swapped_map(base, owner.gid(), plan.gid);
    idmap::namespace_with(&users, &groups)
}

/// Clones the mounts at a path and seals the clone. File systems that cannot be id-mapped stay as they are.
pub(crate) fn sealed(path: &str, read_only: bool, namespace: BorrowedFd<'_>) -> io::Result<(OwnedFd, Mapped)> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, path, flags)?;
    let sealed = if read_only { Sealed::ReadOnly } else { Sealed::Writable };
    match sys::seal_tree(tree.as_fd(), sealed, Some(namespace)) {
        Ok(()) => Ok((tree, Mapped::All)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            sys::seal_tree(tree.as_fd(), sealed, None)?;
            Ok((tree, Mapped::NotAll))
        }
        Err(error) => Err(error),
    }
}

/// An overlay over a workspace, with the upper layer in the store. Returns the overlay, and the store as a new
/// descriptor: overlayfs wants layers that are attached somewhere, so the store passes through the scratch folder.
pub(crate) fn overlay(
    mount: &PlannedMount,
    base: u32,
    plan: &Plan,
    store: OwnedFd,
) -> Result<(Tree, OwnedFd), Failure> {
    let name = format!("mount {}", mount.target);
    let namespace = step(&name, owner_namespace(&mount.source, base, plan))?;
    let (lower, mapped) = step(&name, sealed(&mount.source, true, namespace.as_fd()))?;
    must_be_mapped(mount, mapped)?;
    let made = attach(&store, "store").and_then(|()| {
        let made = attach(&lower, "lower").and_then(|()| {
            let tree = mount_overlay()?;
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            Ok((tree, open_tree(CWD, format!("{SCRATCH}/store"), flags)?))
        });
        let _ = unmount(format!("{SCRATCH}/lower"), UnmountFlags::DETACH);
        made
    });
    let _ = unmount(format!("{SCRATCH}/store"), UnmountFlags::DETACH);
    let (tree, store) = step(&format!("make the overlay over {}", mount.source), made)?;
    Ok((Tree { target: mount.target.clone(), tree }, store))
}

fn attach(tree: &OwnedFd, name: &str) -> io::Result<()> {
    Ok(move_mount(tree, "", CWD, format!("{SCRATCH}/{name}"), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

fn mount_overlay() -> io::Result<OwnedFd> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let set = |key: &str, value: &str| fsconfig_set_string(context.as_fd(), key, value);
    set("source", "glovebox")?;
    // These names show in /proc/mounts inside, so none of them tells where the workspace lies on the host.
    set("lowerdir", &format!("{SCRATCH}/lower"))?;
    set("upperdir", &format!("{SCRATCH}/store/.glovebox/upper"))?;
    set("workdir", &format!("{SCRATCH}/store/.glovebox/work"))?;
    // Without redirects a directory of the lower layer could not be renamed; the change set decodes them.
    set("redirect_dir", "on")?;
    set("metacopy", "off")?;
    set("index", "off")?;
    fsconfig_create(context.as_fd())?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)?)
}
