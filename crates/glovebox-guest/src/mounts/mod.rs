//! Folders of the host as mounts of a sandbox: cloned, sealed, with owners that fit inside, and attached where they belong.
//!
//! Only the host's root can do so. What is made here is attached nowhere until it is inside, so that nothing of it is left on the host
//! whenever its maker dies.

mod owners;
mod places;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

pub use owners::{
    FIRST, NOBODY, RANGE, give_to_nobody, namespace_of, namespace_with, plain_map, swapped_map, write_maps,
};
pub use places::{InTheWay, attach, make_place};
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::sys::{Sealed, seal_tree};

/// Whether all trees could be id-mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// They could.
    All,
    /// There is one that could not.
    NotAll,
}

impl Mapped {
    /// What holds of two together.
    #[must_use]
    pub fn and(self, other: Mapped) -> Mapped {
        if self == Mapped::All { other } else { Mapped::NotAll }
    }
}

/// Clones the mounts of an open file or folder and seals the clone. File systems that cannot be id-mapped stay as they are.
pub fn sealed(place: BorrowedFd<'_>, sealed: Sealed, namespace: BorrowedFd<'_>) -> io::Result<(OwnedFd, Mapped)> {
    match clone_sealed(place, sealed, Some(namespace)) {
        Ok(tree) => Ok((tree, Mapped::All)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Ok((clone_sealed(place, sealed, None)?, Mapped::NotAll))
        }
        Err(error) => Err(error),
    }
}

/// Clones the mounts of an open file or folder and seals the clone, with owners shifted by a namespace if there is one.
pub fn clone_sealed(place: BorrowedFd<'_>, sealed: Sealed, namespace: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(place, "", flags | OpenTreeFlags::AT_EMPTY_PATH)?;
    seal_tree(tree.as_fd(), sealed, namespace)?;
    Ok(tree)
}

/// What is said of a folder that is to be written and whose owners this kernel cannot shift.
pub fn cannot_be_shifted(target: &str, source: &str) -> String {
    format!(
        "mount {target}: this kernel cannot shift the owners of the file system that {source} lies on (tmpfs before Linux 6.3, \
         overlayfs, network file systems); use a folder elsewhere, or mount it read-only"
    )
}
