//! The places of mounts, made where code inside may have put anything.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, RenameFlags},
    mount::{MoveMountFlags, move_mount},
};

/// Attaches a tree at a path below a root, making the place for it when there is none.
pub fn attach(
    root: BorrowedFd<'_>,
    target: &str,
    tree: BorrowedFd<'_>,
    in_the_way: InTheWay,
) -> rustix::io::Result<()> {
    let is_folder = FileType::from_raw_mode(rustix::fs::fstat(tree)?.st_mode) == FileType::Directory;
    let place = make_place(root, target, is_folder, in_the_way)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", &place, "", flags)
}

/// What becomes of something that is where a mount belongs, or a folder on the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InTheWay {
    /// It stays, and the mount fails.
    Stays,
    /// It gets another name.
    IsSetAside,
}

/// Opens the place of a mount, component by component and without following links, and makes what is missing of it.
pub fn make_place(
    root: BorrowedFd<'_>,
    target: &str,
    is_folder: bool,
    in_the_way: InTheWay,
) -> rustix::io::Result<OwnedFd> {
    let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = rustix::fs::openat(root, ".", look | OFlags::DIRECTORY, Mode::empty())?;
    let names: Vec<&str> = target.split('/').filter(|name| !name.is_empty()).collect();
    for (i, name) in names.iter().enumerate() {
        let last_file = i + 1 == names.len() && !is_folder;
        let flags = if last_file { look } else { look | OFlags::DIRECTORY };
        if in_the_way == InTheWay::IsSetAside {
            set_aside(&at, name, last_file)?;
        }
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

/// Gives another name to what is no folder where there must be one, or no file where there must be one.
fn set_aside(folder: &OwnedFd, name: &str, is_file: bool) -> rustix::io::Result<()> {
    let Ok(found) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(()) };
    let fits = match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => !is_file,
        FileType::Symlink => false,
        _ => is_file,
    };
    if fits {
        return Ok(());
    }
    // Nobody inside can have guessed the name, and it is never too long.
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    let aside = format!("glovebox-aside-{:016x}", u64::from_le_bytes(bytes));
    rustix::fs::renameat_with(folder, name, folder, aside, RenameFlags::NOREPLACE)
}
