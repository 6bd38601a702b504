//! Making folders, renaming, setting modes.

use bytes::Bytes;
use glovebox_archive::is_kernels_own;
use glovebox_proto::file::{Change, ChangeFiles, MakeFolder, Obstacle, Rename, SetMode};
use h2::SendStream;
use rustix::{
    fs::{AtFlags, Mode, OFlags, RenameFlags},
    io::Errno,
};

use super::{
    At, Trouble, done,
    open::{Links, is_kernels, make_folders, open, open_parent, split},
    remove::remove,
};

/// Bits that can be set: permissions and the sticky bit. Those that give a program the rights of others are not.
const SETTABLE: u32 = 0o1777;

/// Does a change.
pub(super) async fn change(request: ChangeFiles, out: &mut SendStream<Bytes>) -> Result<(), Trouble> {
    match request.change {
        Some(Change::MakeFolder(request)) => make_folder(&request)?,
        Some(Change::Rename(request)) => rename(&request)?,
        Some(Change::Remove(request)) => remove(&request, out).await?,
        Some(Change::SetMode(request)) => set_mode(&request)?,
        None => return Err(Trouble::errno(Errno::INVAL, b"")),
    }
    done(out).await
}

fn make_folder(request: &MakeFolder) -> Result<(), Trouble> {
    let path = &request.path;
    let mode = Mode::from_raw_mode(request.mode & SETTABLE);
    if !request.parents {
        let (folder, name) = open_parent(path)?;
        return rustix::fs::mkdirat(folder, name, mode).at(path);
    }
    if is_kernels(path) {
        return Err(Trouble::new(Obstacle::KernelsOwn, path));
    }
    let (above, name) = split(path);
    let folder = make_folders(above, Links::Follow).at(path)?;
    if is_kernels_own(&folder).at(path)? {
        return Err(Trouble::new(Obstacle::KernelsOwn, path));
    }
    match if name.is_empty() { Err(Errno::EXIST) } else { rustix::fs::mkdirat(&folder, name, mode) } {
        // One that is there is fine, if it is a folder.
        Err(Errno::EXIST) => open(path, OFlags::PATH | OFlags::DIRECTORY).map(drop),
        made => made.at(path),
    }
}

fn rename(request: &Rename) -> Result<(), Trouble> {
    let (from, old) = open_parent(&request.from)?;
    let (to, new) = open_parent(&request.to)?;
    let flags = if request.replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    match rustix::fs::renameat_with(&from, old, &to, new, flags) {
        // Which of the two is missing decides what the caller is told.
        Err(Errno::NOENT) => Err(Trouble::errno(Errno::NOENT, &request.from)),
        Err(error @ (Errno::ACCESS | Errno::PERM | Errno::ROFS)) => {
            let there = rustix::fs::accessat(&from, ".", rustix::fs::Access::WRITE_OK, AtFlags::EACCESS).is_err();
            Err(Trouble::errno(error, if there { &request.from } else { &request.to }))
        }
        renamed => renamed.at(&request.to),
    }
}

fn set_mode(request: &SetMode) -> Result<(), Trouble> {
    let path = &request.path;
    // Looks where links lead; to change the mode of what was opened without the right to read it needs its name again.
    drop(open(path, OFlags::PATH)?);
    let (folder, name) = split(path);
    let mode = Mode::from_raw_mode(request.mode & SETTABLE);
    if name.is_empty() {
        return rustix::fs::chmod("/", mode).at(path);
    }
    let folder = open(if folder.is_empty() { b"/" } else { folder }, OFlags::PATH | OFlags::DIRECTORY)?;
    rustix::fs::chmodat(folder, name, mode, AtFlags::empty()).at(path)
}
