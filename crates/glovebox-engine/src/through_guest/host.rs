//! The folder of the host that a workspace was copied from. It belongs to the caller, but anybody may change it meanwhile, so
//! no link is followed in it.

use std::os::fd::OwnedFd;

use glovebox_archive::{open_beneath, read_some};
use glovebox_core::look_bound;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2};

/// Something in a folder of the host.
#[derive(Clone, Copy)]
pub(super) struct HostEntry<'a> {
    pub(super) folder: &'a OwnedFd,
    pub(super) name: &'a [u8],
    pub(super) stat: &'a Stat,
}

impl HostEntry<'_> {
    pub(super) fn is_folder(&self) -> bool {
        self.kind() == FileType::Directory
    }

    pub(super) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    pub(super) fn mode(&self) -> u32 {
        self.stat.st_mode & 0o7777
    }

    /// The folder that this is.
    pub(super) fn open_folder(&self) -> Option<OwnedFd> {
        open_beneath(self.folder, self.name).ok()
    }

    /// The file that this is. What was a file a moment ago may be a pipe now, which is not waited for.
    pub(super) fn open_file(&self) -> Option<OwnedFd> {
        let file = open_here(self.folder, self.name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let stat = fstat(&file).ok()?;
        (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(file)
    }

    /// Where the link leads that this is.
    pub(super) fn target(&self) -> Option<Vec<u8>> {
        rustix::fs::readlinkat(self.folder, self.name, Vec::new()).map(|target| target.into_bytes()).ok()
    }
}

fn open_here(folder: &OwnedFd, name: &[u8], flags: OFlags) -> Option<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(folder, name, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS).ok()
}

/// What stands under a name.
pub(super) fn look(folder: &OwnedFd, name: &[u8]) -> Option<Stat> {
    fstat(open_here(folder, name, OFlags::PATH)?).ok()
}

/// The entries of a folder, at most as many as a change set takes. What cannot be read has none.
pub(super) fn entries(folder: &OwnedFd) -> Vec<(Vec<u8>, Stat)> {
    let mut found = Vec::new();
    while let Ok(listed) = read_some(folder)
        && !listed.is_empty()
        && found.len() < look_bound::CHANGES
    {
        let names = listed.into_iter().map(|listed| listed.name.into_bytes());
        found.extend(names.filter_map(|name| look(folder, &name).map(|stat| (name, stat))));
    }
    found
}
