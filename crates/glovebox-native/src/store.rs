//! The store of a sandbox: one tmpfs with all that can be written inside.
//!
//! Working directory, outputs, home, /tmp, /dev/shm and the upper layer of an overlay lie in this one file system, so one
//! size and one number of inodes limit all of it. The guest attaches it where only root inside can enter, or takes it off
//! again where there is no such place, and mounts its folders over those of the skeleton. The launcher makes it while it is still privileged; it is not visible anywhere on
//! the host.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, Gid, Mode, Uid},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen},
};

use crate::{
    idmap::SandboxIds,
    plan::{Failure, Plan, step},
    standing::Standing,
    sys,
};

/// Where the guest attaches the store, below the root, until its folders are mounted where they belong.
pub(crate) const PLACE: &str = ".glovebox";

/// Folders of the store, and where below the root they are mounted.
pub(crate) const MOUNTED: [(&str, &str); 4] =
    [("workspace", "workspace"), ("home/user", "home/user"), ("tmp", "tmp"), ("shm", "dev/shm")];

/// Folders that belong to root inside.
const ROOT_FOLDERS: [(&str, u32); 6] = [
    ("home", 0o755),
    ("shm", 0o1777),
    ("tmp", 0o1777),
    ("workspace", 0o755),
    ("workspace/project_files", 0o755),
    (".glovebox", 0o755),
];

/// Folders that belong to the user that commands run as.
const USER_FOLDERS: [&str; 3] = ["home/user", "workspace/agent_workspace", "workspace/outputs"];

/// Further folders for an overlay.
const OVERLAY_FOLDERS: [&str; 2] = [".glovebox/upper", ".glovebox/work"];

/// Whether a path inside lies in a folder of the store.
pub(crate) fn holds(target: &str) -> bool {
    let target = target.trim_start_matches('/');
    let below = |folder: &str| target.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    MOUNTED.iter().any(|(_, folder)| below(folder))
}

/// Makes the file system and its folders.
pub(crate) fn make(plan: &Plan, ids: &SandboxIds) -> Result<OwnedFd, Failure> {
    let (root_uid, root_gid) = ids.root();
    // An ordinary user, who reads what is in it afterwards, must be able to enter; commands must not, see the guest's part.
    let mode = if ids.standing() == Standing::Root { "0700" } else { "0755" };
    let store = step("make the store", mount_tmpfs(plan, (root_uid, root_gid), mode))?;
    // What is made with these ids for files belongs to root inside without a change of owner for each.
    step("act as root inside", sys::set_file_ids(root_uid, root_gid))?;
    let filled = fill(store.as_fd(), plan);
    step("act as root again", sys::set_file_ids(0, 0))?;
    step("fill the store", filled)?;
    step("give the folders their owners", give_owners(store.as_fd(), plan, ids.user()))?;
    Ok(store)
}

/// What the folders themselves take of the store's inodes; programs have their limit on top of it.
fn own_inodes(plan: &Plan) -> u64 {
    let overlay = if plan.workspace_overlay { OVERLAY_FOLDERS.len() } else { 0 };
    // A mount of the caller may need the folders on the way to it.
    let mounts = plan.mounts.iter().filter(|mount| holds(&mount.target));
    let on_the_way: usize = mounts.map(|mount| mount.target.matches('/').count()).sum();
    (1 + ROOT_FOLDERS.len() + USER_FOLDERS.len() + overlay + on_the_way) as u64
}

fn mount_tmpfs(plan: &Plan, (uid, gid): (u32, u32), mode: &str) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let set = |key: &str, value: String| fsconfig_set_string(context.as_fd(), key, value);
    set("source", "glovebox".into())?;
    set("size", plan.disk.to_string())?;
    set("nr_inodes", (plan.inodes + own_inodes(plan)).to_string())?;
    set("mode", mode.into())?;
    set("uid", uid.to_string())?;
    set("gid", gid.to_string())?;
    fsconfig_create(context.as_fd())?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

fn fill(root: BorrowedFd<'_>, plan: &Plan) -> io::Result<()> {
    for (path, mode) in ROOT_FOLDERS {
        rustix::fs::mkdirat(root, path, Mode::from_raw_mode(mode))?;
    }
    let overlay = OVERLAY_FOLDERS.into_iter().filter(|_| plan.workspace_overlay);
    for path in USER_FOLDERS.into_iter().chain(overlay) {
        rustix::fs::mkdirat(root, path, Mode::from_raw_mode(0o755))?;
    }
    Ok(())
}

fn give_owners(root: BorrowedFd<'_>, plan: &Plan, (uid, gid): (u32, u32)) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    let upper = [OVERLAY_FOLDERS[0]].into_iter().filter(|_| plan.workspace_overlay);
    for path in USER_FOLDERS.into_iter().chain(upper) {
        rustix::fs::chownat(root, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
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
