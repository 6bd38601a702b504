//! What is the same for every folder: reading its names in small pieces, and telling the kernel's own from others.

use std::{
    ffi::CString,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{OFlags, RawDir, ResolveFlags, fstatfs},
    io::Result,
};

use crate::resolve::open_at;

/// A name in a folder.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The name.
    pub name: CString,
    /// Where the folder goes on behind it: the offset to seek to.
    pub behind: u64,
}

/// Reads the next names of a folder with one call of the kernel; none at its end. `.` and `..` are left out, so a piece may
/// be shorter than what the kernel gave, but it is empty only at the end.
pub fn read_some(folder: impl AsFd) -> Result<Vec<Listed>> {
    let mut buffer = Vec::with_capacity(8 * 1024);
    let mut listed = Vec::new();
    let mut entries = RawDir::new(folder, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            listed.push(Listed { name: name.to_owned(), behind: entry.next_entry_cookie() });
        }
        if entries.is_buffer_empty() && !listed.is_empty() {
            break;
        }
    }
    Ok(listed)
}

/// Whether something lies in a file system that the kernel makes up: what is there are no files of anybody, and to open
/// or write them does things.
pub fn is_kernels_own(file: impl AsFd) -> Result<bool> {
    const MADE_UP: [u64; 18] = [
        0x9fa0,      // proc
        0x6265_6572, // sysfs
        0x1cd1,      // devpts
        0x0027_e0eb, // cgroup
        0x6367_7270, // cgroup2
        0x1980_0202, // mqueue
        0x6462_6720, // debugfs
        0x7472_6163, // tracefs
        0x7363_6673, // securityfs
        0xcafe_4a11, // bpf
        0x6265_6570, // configfs
        0x4249_4e4d, // binfmt_misc
        0x6165_676c, // pstore
        0xde5e_81e4, // efivarfs
        0xf97c_ff8c, // selinuxfs
        0x6573_5543, // fusectl
        0x6e73_6673, // nsfs
        0x0924_1934, // anonymous
    ];
    let kind = fstatfs(file)?.f_type as u64 & 0xffff_ffff;
    Ok(MADE_UP.contains(&kind))
}

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// Opens a folder beneath another one. No part of the path may be a link.
pub fn open_beneath(top: impl AsFd, path: &[u8]) -> Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    open_at(top, path, flags, BENEATH)
}
