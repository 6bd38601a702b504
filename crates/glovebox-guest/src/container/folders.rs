//! The folders of a sandbox, made in what was mounted for them.
//!
//! An image may hold links wherever a folder is looked for, and a mount may be a folder of the host's: nothing is
//! reached through a link, and nothing that is mounted further below changes its owner.

use std::os::fd::OwnedFd;

use glovebox_archive::open_at;
use glovebox_proto::container::Plan;
use rustix::{
    fs::{CWD, Gid, Mode, OFlags, ResolveFlags, Uid, fchmod, fchown, fstat, mkdirat},
    io::Errno,
};

/// Folders that belong to the commands, and where they lie: in a folder that is mounted for the sandbox.
const OF_COMMANDS: [&str; 3] = ["agent_workspace", "outputs", "project_files"];

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const OPEN_TO_READ: Mode = Mode::RWXU.union(Mode::RGRP).union(Mode::XGRP).union(Mode::ROTH).union(Mode::XOTH);

/// Makes what is missing, and gives to the commands what is theirs. The umask must be empty.
pub(super) fn make(plan: &Plan) -> rustix::io::Result<()> {
    let owner = (plan.uid, plan.gid);
    let workspace = open_mounted("/workspace")?;
    // Root's own, so that nobody removes the folders in it.
    match fchmod(&workspace, OPEN_TO_READ) {
        // The files of another sandbox, to be read; it has made it so.
        Ok(()) | Err(Errno::ROFS) => {}
        Err(error) => return Err(error),
    }
    for name in OF_COMMANDS {
        match mkdirat(&workspace, name, OPEN_TO_READ) {
            // A sandbox that is started again has them, and one may be a mount.
            Ok(()) | Err(Errno::EXIST) => {}
            // All of the workspace is mounted read-only.
            Err(Errno::ROFS) => continue,
            Err(error) => return Err(error),
        }
        let inside = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
        match open_at(&workspace, name.as_bytes(), FOLDER, inside) {
            Ok(folder) => give(&folder, owner)?,
            // Another mount: it belongs to whoever it belongs to.
            Err(Errno::XDEV) => {}
            Err(error) => return Err(error),
        }
    }
    for volume in &plan.own_volumes {
        give(&open_mounted(volume)?, owner)?;
    }
    let home = open_mounted("/home/user")?;
    give(&home, owner)
}

/// Opens a folder that was mounted for the sandbox.
fn open_mounted(path: &str) -> rustix::io::Result<OwnedFd> {
    open_at(CWD, path.as_bytes(), FOLDER, ResolveFlags::NO_SYMLINKS)
}

/// Gives a folder that is root's to the commands. One that has been theirs stays as they left it.
fn give(folder: &OwnedFd, (uid, gid): (u32, u32)) -> rustix::io::Result<()> {
    let stat = fstat(folder)?;
    if (stat.st_uid, stat.st_gid) == (uid, gid) {
        return Ok(());
    }
    if stat.st_uid == 0 {
        // The mode while it is still ours to change.
        fchmod(folder, OPEN_TO_READ)?;
    }
    fchown(folder, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
}
