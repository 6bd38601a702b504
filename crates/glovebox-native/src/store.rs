//! The store of a sandbox: one tmpfs with all that can be written inside.
//!
//! Working directory, outputs, home, /tmp, /dev/shm and the upper layer of an overlay lie in this one file system, so one
//! size and one number of inodes limit all of it. The guest attaches it where only root inside can enter, or takes it off
//! again where there is no such place, and mounts its folders over those of the skeleton. The launcher makes it while it is still privileged; it is not visible anywhere on
//! the host.

use std::{
    ffi::{CStr, CString},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
};

use glovebox_guest::mounts::namespace_with;
use rustix::{
    fs::{AtFlags, CWD, Dir, Gid, Mode, OFlags, Uid},
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_string, fsmount,
        fsopen, open_tree,
    },
};

use crate::{
    idmap::{self, SandboxIds},
    plan::{FILL_STORE, Failure, GIVE_OWNERS, OPEN_STORE, Plan, step},
    standing::Standing,
    sys::{self, Sealed},
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

/// Makes the file system and its folders, or opens those of a living sandbox.
pub(crate) fn make(plan: &Plan, ids: &SandboxIds) -> Result<OwnedFd, Failure> {
    let (root_uid, root_gid) = ids.root();
    // An ordinary user, who reads what is in it afterwards, must be able to enter; commands must not, see the guest's part.
    let mode = if ids.standing() == Standing::Root { 0o700 } else { 0o755 };
    let store = match &plan.living {
        Some(life) => step(OPEN_STORE, open_folder(&life.store, ids, mode))?,
        None => step("make the store", mount_tmpfs(plan, (root_uid, root_gid), mode))?,
    };
    // What is made with these ids for files belongs to root inside without a change of owner for each.
    step("act as root inside", sys::set_file_ids(root_uid, root_gid))?;
    let filled = fill(store.as_fd(), plan);
    step("act as root again", sys::set_file_ids(0, 0))?;
    step(FILL_STORE, filled)?;
    step(GIVE_OWNERS, give_owners(store.as_fd(), plan, ids.user()))?;
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

fn mount_tmpfs(plan: &Plan, (uid, gid): (u32, u32), mode: u32) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let set = |key: &str, value: String| fsconfig_set_string(context.as_fd(), key, value);
    set("source", "glovebox".into())?;
    set("size", plan.disk.to_string())?;
    set("nr_inodes", (plan.inodes + own_inodes(plan)).to_string())?;
    set("mode", format!("{mode:o}"))?;
    set("uid", uid.to_string())?;
    set("gid", gid.to_string())?;
    fsconfig_create(context.as_fd())?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

fn fill(root: BorrowedFd<'_>, plan: &Plan) -> io::Result<()> {
    let overlay = OVERLAY_FOLDERS.into_iter().filter(|_| plan.workspace_overlay);
    let plain = USER_FOLDERS.into_iter().chain(overlay).map(|path| (path, 0o755));
    for (path, mode) in ROOT_FOLDERS.into_iter().chain(plain) {
        match rustix::fs::mkdirat(root, path, Mode::from_raw_mode(mode)) {
            // A sandbox that is started again has them.
            Err(rustix::io::Errno::EXIST) if plan.living.is_some() => {}
            made => made?,
        }
    }
    Ok(())
}

/// The folder of a living sandbox's files, as a mount of its own. What was in memory before a stop is gone, as after a
/// reboot.
fn open_folder(store: &Path, ids: &SandboxIds, mode: u32) -> io::Result<OwnedFd> {
    let (uid, gid) = ids.root();
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, store, flags | OpenTreeFlags::AT_SYMLINK_NOFOLLOW)?;
    let before = owner_range(store).filter(|(first, _)| ids.standing() == Standing::Root && *first != uid);
    // Somebody else got the range that it had before it was stopped. Its files stay as they are, and are shown as those of
    // the new one.
    let moved = before.map(|(first, _)| idmap::moved_map(first, uid));
    let moved = moved.map(|map| namespace_with(&map, &map)).transpose()?;
    sys::seal_tree(tree.as_fd(), Sealed::Writable, moved.as_ref().map(AsFd::as_fd))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(&tree, ".", flags, Mode::empty())?;
    rustix::fs::fchown(&folder, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode))?;
    for name in [c"tmp", c"shm"] {
        match open_below(&folder, name) {
            Ok(below) => empty(below)?,
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(tree)
}

/// The first id of the range that owns a store, and its number. A new store is nobody's yet.
pub(crate) fn owner_range(store: &Path) -> Option<(u32, u32)> {
    let owner = std::fs::symlink_metadata(store).ok()?.uid();
    Some((owner, idmap::range_from(owner)?))
}

/// Removes a store with all that is in it.
pub(crate) fn remove(store: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(store, flags, Mode::empty()) {
        Ok(folder) => empty(folder)?,
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    Ok(rustix::fs::rmdir(store)?)
}

fn open_below(folder: &OwnedFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty())
}

/// Empties a folder that nobody else can reach any more. Programs decide how deep it is, so nothing here grows with
/// the depth but a list of names, and one descriptor is open at a time.
fn empty(folder: OwnedFd) -> io::Result<()> {
    let mut at = folder;
    let mut way: Vec<CString> = Vec::new();
    loop {
        match remove_entries(&at)? {
            Some(below) => {
                at = open_below(&at, &below)?;
                way.push(below);
            }
            None => {
                let Some(name) = way.pop() else { return Ok(()) };
                at = open_below(&at, c"..")?;
                rustix::fs::unlinkat(&at, &name, AtFlags::REMOVEDIR)?;
            }
        }
    }
}

/// Removes the entries of a folder, up to the first folder that is not empty, which it names.
fn remove_entries(folder: &OwnedFd) -> io::Result<Option<CString>> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if [c".", c".."].contains(&name) {
            continue;
        }
        match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
            Err(rustix::io::Errno::ISDIR | rustix::io::Errno::PERM) => {
                match rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR) {
                    Err(rustix::io::Errno::NOTEMPTY | rustix::io::Errno::EXIST) => return Ok(Some(name.to_owned())),
                    removed => removed?,
                }
            }
            removed => removed?,
        }
    }
    Ok(None)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_removed_however_deep_and_wide_it_is_and_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        std::fs::write(&outside, "stays").unwrap();
        let store = folder.path().join("store");
        std::fs::create_dir(&store).unwrap();
        std::os::unix::fs::symlink(&outside, store.join("link")).unwrap();
        std::os::unix::fs::symlink(folder.path(), store.join("up")).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = rustix::fs::open(&store, flags, Mode::empty()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&at, "d", Mode::from_raw_mode(0o755)).unwrap();
            rustix::fs::openat(&at, "f", OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o600)).unwrap();
            at = open_below(&at, c"d").unwrap();
        }
        remove(&store).unwrap();
        assert!(!store.exists());
        assert_eq!(std::fs::read_to_string(outside).unwrap(), "stays");
        remove(&store).unwrap();
    }
}
