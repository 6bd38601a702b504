//! A folder of the host, and what is below it. Nothing here follows a link or enters another file system.

use std::{
    fs::File,
    io::{self, ErrorKind, Read},
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use glovebox_core::{FileKind, FileState};
use rustix::{
    fs::{AtFlags, Dir, FileType, FlockOperation, Gid, Mode, OFlags, ResolveFlags, Stat, Uid, openat2},
    io::Errno,
};
use sha2::{Digest, Sha256};

/// A folder that changes are applied to.
#[derive(Debug)]
pub(crate) struct Folder {
    fd: OwnedFd,
}

/// What stands at a path.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) stat: Stat,
    /// Where a link leads.
    target: Option<String>,
}

/// Lets go of the lock at once. Closing is not enough: a child that another thread has just forked has a copy of the
/// descriptor until it executes its program.
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.fd, FlockOperation::Unlock);
    }
}

impl Folder {
    pub(crate) fn open(path: &Path) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Folder { fd: rustix::fs::open(path, flags, Mode::empty())? })
    }

    /// Locks out everybody else who applies to this folder, until this value goes.
    pub(crate) fn lock(&self) -> io::Result<()> {
        Ok(rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive)?)
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Opens the folder that holds a path, and gives the path's last part.
    pub(crate) fn parent<'a>(&self, path: &'a str) -> io::Result<(OwnedFd, &'a str)> {
        let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
        Ok((open_below(&self.fd, folder, OFlags::PATH | OFlags::DIRECTORY)?, name))
    }

    /// What stands at a path; nothing, when it or its folder is not there.
    pub(crate) fn look(&self, path: &str) -> io::Result<Option<Seen>> {
        let file = match open_below(&self.fd, path, OFlags::PATH | OFlags::NOFOLLOW) {
            Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => return Ok(None),
            other => other?,
        };
        let stat = rustix::fs::fstat(&file)?;
        let target = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => Some(rustix::fs::readlinkat(&file, "", Vec::new())?.to_string_lossy().into_owned()),
            _ => None,
        };
        Ok(Some(Seen { stat, target }))
    }

    /// Opens a file for reading, without waiting for whatever else may stand there by now.
    pub(crate) fn read(&self, path: &str) -> io::Result<File> {
        Ok(open_below(&self.fd, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW)?.into())
    }

    /// The names in a folder.
    pub(crate) fn names(&self, path: &str) -> io::Result<Vec<String>> {
        let folder = open_below(&self.fd, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Whether entries of the folder that holds a path can be made and removed.
    pub(crate) fn can_write_beside(&self, path: &str) -> io::Result<bool> {
        let (folder, _) = self.parent(path)?;
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        match rustix::fs::accessat(&folder, ".", access, AtFlags::EACCESS) {
            Err(Errno::ACCESS | Errno::ROFS | Errno::PERM) => Ok(false),
            other => Ok(other.map(|()| true)?),
        }
    }

    /// Whether what stands at a path is in a state: kind, mode, and content, which is read.
    pub(crate) fn is_in(&self, path: &str, seen: &Seen, state: &FileState) -> io::Result<bool> {
        let same_mode = seen.stat.st_mode & 0o7777 == state.mode;
        match (&state.kind, FileType::from_raw_mode(seen.stat.st_mode)) {
            (FileKind::Directory, FileType::Directory) => Ok(same_mode),
            (FileKind::Symlink { target }, FileType::Symlink) => Ok(seen.target.as_ref() == Some(target)),
            (FileKind::File { bytes, sha256: Some(sha256), .. }, FileType::RegularFile) => {
                Ok(same_mode && seen.stat.st_size as u64 == *bytes && self.hash(path, *bytes)? == *sha256)
            }
            _ => Ok(false),
        }
    }

    fn hash(&self, path: &str, bytes: u64) -> io::Result<String> {
        // One byte more, so that a file that grew has another hash.
        let mut content = self.read(path)?.take(bytes.saturating_add(1));
        let (mut hasher, mut chunk) = (Sha256::new(), vec![0; 64 * 1024]);
        loop {
            match content.read(&mut chunk)? {
                0 => return Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
                count => hasher.update(&chunk[..count]),
            }
        }
    }

    /// The owner that new entries of the folder of a path get: that of the nearest folder on the way that is there.
    pub(crate) fn owner_beside(&self, path: &str) -> io::Result<(u32, u32)> {
        let mut folder = path;
        while let Some((parent, _)) = folder.rsplit_once('/') {
            folder = parent;
            if let Some(seen) = self.look(folder)? {
                return Ok((seen.stat.st_uid, seen.stat.st_gid));
            }
        }
        let stat = rustix::fs::fstat(&self.fd)?;
        Ok((stat.st_uid, stat.st_gid))
    }
}

/// Opens a path below a folder.
pub(crate) fn open_below(folder: impl AsFd, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    Ok(openat2(folder, path, flags | OFlags::CLOEXEC, Mode::empty(), stay)?)
}

/// Gives a new entry its owner. Only root can, and only root needs to.
pub(crate) fn give(folder: impl AsFd, name: &str, (uid, gid): (u32, u32)) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    Ok(rustix::fs::chownat(folder, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_goes_with_its_holder_although_a_child_has_a_copy_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let first = Folder::open(folder.path()).unwrap();
        first.lock().unwrap();
        let second = Folder::open(folder.path()).unwrap();
        assert_eq!(second.lock().unwrap_err().kind(), ErrorKind::WouldBlock);
        let _copy = first.fd.try_clone().unwrap();
        drop(first);
        second.lock().unwrap();
    }
}
