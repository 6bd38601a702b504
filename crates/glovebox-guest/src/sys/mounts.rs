//! What a mount lets through, and whom its files belong to.

use std::{
    ffi::c_int,
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// What `mount_setattr` changes, as the kernel defines it.
#[repr(C)]
#[derive(Default)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

impl MountAttr {
    /// Has owners shifted too, if there is a namespace to shift them by. It must stay open during the call.
    fn shifted(mut self, owners: Option<BorrowedFd<'_>>) -> Self {
        if let Some(owners) = owners {
            self.set |= MOUNT_ATTR_IDMAP;
            self.userns = owners.as_raw_fd() as u64;
        }
        self
    }
}

const MOUNT_ATTR_RDONLY: u64 = 0x1;
const MOUNT_ATTR_NOSUID: u64 = 0x2;
const MOUNT_ATTR_NODEV: u64 = 0x4;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
const AT_RECURSIVE: c_int = 0x8000;

/// What a tree of mounts lets through. Setuid bits never count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealed {
    /// Writing, but no devices.
    Writable,
    /// Neither writing nor devices.
    ReadOnly,
}

/// Seals a tree of mounts, and shifts its owners by a user namespace if there is one. What is mounted on the host afterwards does
/// not appear in it, where nothing would have sealed it.
pub fn seal_tree(tree: BorrowedFd<'_>, sealed: Sealed, owners: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let flags = match sealed {
        Sealed::Writable => MOUNT_ATTR_NODEV,
        Sealed::ReadOnly => MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV,
    };
    let (set, propagation) = (MOUNT_ATTR_NOSUID | flags, libc::MS_PRIVATE);
    let attributes = MountAttr { set, propagation, ..MountAttr::default() };
    set_mount_attributes(tree, AT_RECURSIVE, attributes.shifted(owners))
}

/// Lets devices on one mount work.
pub fn allow_devices(mount: BorrowedFd<'_>) -> io::Result<()> {
    set_mount_attributes(mount, 0, MountAttr { clear: MOUNT_ATTR_NODEV, ..MountAttr::default() })
}

/// Shifts the owners of a whole detached tree of mounts.
pub fn shift_owners(tree: BorrowedFd<'_>, owners: BorrowedFd<'_>) -> io::Result<()> {
    set_mount_attributes(tree, AT_RECURSIVE, MountAttr::default().shifted(Some(owners)))
}

fn set_mount_attributes(tree: BorrowedFd<'_>, how: c_int, attributes: MountAttr) -> io::Result<()> {
    // SAFETY: the path is an empty C string, the attributes are initialised and of the stated size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | how,
            &raw const attributes,
            size_of::<MountAttr>(),
        )
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
