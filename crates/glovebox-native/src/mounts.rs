//! Mounts that only the host's root can make: id-mapped trees of host folders, and the overlay of a workspace.
//!
//! They are made here, detached, and handed to the guest as descriptors; it attaches them in its own namespace.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use glovebox_guest::mounts::{
    Mapped, cannot_be_shifted, clone_sealed, give_to_nobody, namespace_with, sealed, swapped_map,
};
use rustix::{
    fs::{CWD, Mode, OFlags},
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
        fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount, open_tree,
        unmount,
    },
};

use crate::{
    idmap::SandboxIds,
    plan::{Failure, Plan, PlannedMount, step},
    standing::Standing,
    sys::{self, Sealed},
};

/// A tree of mounts to attach, and where.
pub(crate) struct Tree {
    pub(crate) target: String,
    pub(crate) tree: OwnedFd,
}

/// Makes the launcher ready to attach things where nobody else sees them: in a mount namespace of its own, in a scratch
/// folder that is its working directory from here on. Paths of it are relative, so that none tells where it lies.
pub(crate) fn enter_scratch(folder: &Path) -> io::Result<()> {
    sys::unshare(libc::CLONE_NEWNS)?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    rustix::mount::mount("glovebox", folder, "tmpfs", rustix::mount::MountFlags::empty(), None)?;
    rustix::process::chdir(folder)?;
    for name in ["store", "lower"] {
        std::fs::create_dir(name)?;
    }
    Ok(())
}

/// One of the caller's mounts, or a workspace that is no overlay. One that is only read may go without a shift of its
/// owners, and says so; one that is written would belong to nobody inside, so that is an error.
pub(crate) fn planned(mount: &PlannedMount, ids: &SandboxIds, plan: &Plan) -> Result<(Tree, Mapped), Failure> {
    let seal = if mount.read_only { Sealed::ReadOnly } else { Sealed::Writable };
    let (tree, mapped) = owned(mount, seal, ids, plan)?;
    if !mount.read_only {
        must_be_mapped(mount, mapped, ids)?;
    }
    Ok((Tree { target: mount.target.clone(), tree }, mapped))
}

/// A sealed clone of a host folder in which its owner is the user of commands. For an ordinary user that is so by itself.
fn owned(mount: &PlannedMount, seal: Sealed, ids: &SandboxIds, plan: &Plan) -> Result<(OwnedFd, Mapped), Failure> {
    let name = format!("mount {}", mount.target);
    let source = step(&name, open_source(mount))?;
    if ids.standing() != Standing::Root {
        return Ok((step(&name, clone_sealed(source.as_fd(), seal, None))?, Mapped::NotAll));
    }
    if mount.volume.is_some() {
        step(&name, give_to_nobody(source.as_fd()))?;
    }
    let namespace = step(&name, owner_namespace(&source, ids.base(), plan))?;
    step(&name, sealed(source.as_fd(), seal, namespace.as_fd()))
}

fn open_source(mount: &PlannedMount) -> rustix::io::Result<OwnedFd> {
    let of_volume = if mount.volume.is_some() { OFlags::DIRECTORY | OFlags::NOFOLLOW } else { OFlags::empty() };
    rustix::fs::open(&mount.source, OFlags::PATH | OFlags::CLOEXEC | of_volume, Mode::empty())
}

fn must_be_mapped(mount: &PlannedMount, mapped: Mapped, ids: &SandboxIds) -> Result<(), Failure> {
    if mapped == Mapped::All || ids.standing() != Standing::Root {
        return Ok(());
    }
    Err(Failure { step: cannot_be_shifted(&mount.target, &mount.source), errno: libc::EINVAL })
}

/// A user namespace in which the owner of a host folder is the user inside.
fn owner_namespace(source: &OwnedFd, base: u32, plan: &Plan) -> io::Result<OwnedFd> {
    let owner = rustix::fs::fstat(source)?;
    let users = swapped_map(base, owner.st_uid, plan.uid);
    let groups = swapped_map(base, owner.st_gid, plan.gid);
    namespace_with(&users, &groups)
}

/// An overlay over a workspace, with the upper layer in the store. Returns the overlay, and the store as a new
/// descriptor: overlayfs wants layers that are attached somewhere, so the store passes through the scratch folder.
pub(crate) fn overlay(
    mount: &PlannedMount,
    ids: &SandboxIds,
    plan: &Plan,
    store: OwnedFd,
) -> Result<(Tree, OwnedFd), Failure> {
    let (lower, mapped) = owned(mount, Sealed::ReadOnly, ids, plan)?;
    must_be_mapped(mount, mapped, ids)?;
    let made = attach(&store, "store").and_then(|()| {
        let made = attach(&lower, "lower").and_then(|()| {
            let tree = mount_overlay(ids.standing())?;
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            Ok((tree, open_tree(CWD, "store", flags)?))
        });
        let _ = unmount("lower", UnmountFlags::DETACH);
        made
    });
    let _ = unmount("store", UnmountFlags::DETACH);
    let (tree, store) = step(&format!("make the overlay over {}", mount.source), made)?;
    Ok((Tree { target: mount.target.clone(), tree }, store))
}

fn attach(tree: &OwnedFd, name: &str) -> io::Result<()> {
    Ok(move_mount(tree, "", CWD, name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

fn mount_overlay(standing: Standing) -> io::Result<OwnedFd> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let set = |key: &str, value: &str| fsconfig_set_string(context.as_fd(), key, value);
    set("source", "glovebox")?;
    // These names show in /proc/mounts inside, so none of them tells where the workspace lies on the host.
    set("lowerdir", "lower")?;
    set("upperdir", "store/.glovebox/upper")?;
    set("workdir", "store/.glovebox/work")?;
    if standing == Standing::Root {
        // Without redirects a directory of the lower layer could not be renamed; the change set decodes them.
        set("redirect_dir", "on")?;
    } else {
        // What overlayfs keeps on its folders goes where an ordinary user may write; it allows no redirects then.
        fsconfig_set_flag(context.as_fd(), "userxattr")?;
    }
    set("metacopy", "off")?;
    set("index", "off")?;
    fsconfig_create(context.as_fd())?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)?)
}
