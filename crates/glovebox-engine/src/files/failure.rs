//! What the guest says of a failure, as an error for the caller.

use std::io;

use glovebox_core::{Error, ErrorCode, Outgrown, shown};
use glovebox_proto::file::{ArchiveEnd, FileFailed, Obstacle};
use rustix::io::Errno;

/// The longest path that is repeated from a guest, which may say anything.
const LONGEST: usize = 8192;

const MORE_ROOM: &str = "remove files, or make a sandbox with more --disk or --inodes";

/// The error for a write that made a sandbox larger than it may be.
pub(super) fn outgrown(outgrown: &Outgrown) -> Error {
    let what = match outgrown {
        Outgrown::Bytes => "bytes",
        Outgrown::Files => "files and folders",
        Outgrown::Volume { target, bytes } => {
            let message = format!("there is no room left in the volume at {target}: it holds more than {bytes} bytes");
            return Error::new(ErrorCode::DiskFull, message).hint("remove files from it, or use a larger volume");
        }
    };
    let message = format!("there is no room left in the sandbox: it has more {what} than its limit allows");
    Error::new(ErrorCode::DiskFull, message).hint(MORE_ROOM)
}

/// The error for a request that the guest could not do. `act` is what was tried: `read`, `make the folder`.
pub(super) fn failed(told: &FileFailed, act: &str) -> Error {
    let path = shown(&told.path[..told.path.len().min(LONGEST)]);
    let message = |why: &str| format!("cannot {act} {path} inside: {why}");
    let error = |code, why: &str| Error::new(code, message(why));
    match told.obstacle() {
        // A guest may send a number that is none.
        Obstacle::Errno if !(1..4096).contains(&told.errno) => by_errno(Errno::IO, &message),
        Obstacle::Errno => by_errno(Errno::from_raw_os_error(told.errno), &message),
        Obstacle::NotOrdinary => {
            error(ErrorCode::NotAnOrdinaryFile, "it is a pipe, a socket or a device, and only ordinary files are read")
        }
        Obstacle::KernelsOwn => {
            error(ErrorCode::NotAnOrdinaryFile, "it is the kernel's own: /proc, /sys and /dev are not served")
                .hint("a command inside can read it")
        }
        Obstacle::TooLarge => error(
            ErrorCode::TooLarge,
            "files with holes, or with many names, would make an archive that is far larger than they are",
        )
        .hint("read such a file by itself, in ranges, or leave it out"),
        Obstacle::Malformed => {
            let detail: String = shown(told.detail.as_bytes()).chars().take(200).collect();
            Error::new(ErrorCode::InvalidArchive, format!("cannot {act} {path} inside: {detail}"))
        }
    }
}

fn by_errno(errno: Errno, message: &dyn Fn(&str) -> String) -> Error {
    let error = |code, why: &str| Error::new(code, message(why));
    match errno {
        Errno::NOENT => error(ErrorCode::FileNotFound, "it is not there"),
        Errno::NOTDIR => error(ErrorCode::NotADirectory, "it, or a part of its path, is not a folder"),
        Errno::ISDIR => error(ErrorCode::IsADirectory, "it is a folder"),
        Errno::EXIST => error(ErrorCode::FileExists, "something is there already"),
        Errno::NOTEMPTY => error(ErrorCode::FolderNotEmpty, "the folder is not empty")
            .hint("--recursive removes a folder with all that is in it"),
        Errno::ACCESS | Errno::PERM => error(ErrorCode::PermissionDenied, "the user inside may not do that"),
        Errno::ROFS => error(ErrorCode::ReadOnly, "it lies where nothing can be written")
            .hint("/workspace, /home/user and /tmp can be written"),
        Errno::NOSPC | Errno::DQUOT => {
            error(ErrorCode::DiskFull, "there is no room left in the sandbox").hint(MORE_ROOM)
        }
        Errno::NAMETOOLONG => error(ErrorCode::NameTooLong, "its name or path is too long"),
        Errno::XDEV => error(ErrorCode::DifferentMounts, "the two paths lie in different mounts")
            .hint("mv inside copies and then removes: glovebox exec ID -- mv FROM TO"),
        Errno::FBIG => error(ErrorCode::TooLarge, "it would be too large"),
        Errno::NXIO => error(ErrorCode::NotAnOrdinaryFile, "it is a pipe or a socket"),
        Errno::MFILE | Errno::NFILE => error(ErrorCode::FileFailed, "there are too many open files or watches")
            .hint("fs.inotify.max_user_instances of this machine limits watches"),
        Errno::OPNOTSUPP => {
            Error::new(ErrorCode::NotSupported, "the files of a sandbox without namespaces are not served")
                .hint("a command inside can read and write them")
        }
        Errno::LOOP => error(ErrorCode::FileFailed, "a link is in the way"),
        Errno::AGAIN => error(ErrorCode::FileFailed, "a program inside holds it"),
        Errno::BUSY => error(ErrorCode::FileFailed, "it is in use"),
        other => error(ErrorCode::FileFailed, &io::Error::from(other).to_string()),
    }
}

/// An error when something was left out of an archive, or not made from one.
pub(super) fn check_left_out(end: &ArchiveEnd) -> Result<(), Error> {
    if end.left_out == 0 {
        return Ok(());
    }
    let first = shown(&end.first[..end.first.len().min(LONGEST)]);
    let why: String = shown(end.why.as_bytes()).chars().take(200).collect();
    Err(left_out(end.left_out, &first, &why))
}

/// The error for what was left out.
pub(super) fn left_out(count: u64, first: &str, why: &str) -> Error {
    let message = match count {
        1 => format!("all was copied but {first}: {why}"),
        _ => format!("all was copied but {count} files or folders, the first being {first}: {why}"),
    };
    Error::new(ErrorCode::FileUnreadable, message)
}

/// The error for a stream that ended before its end.
pub(super) fn gone() -> Error {
    Error::new(ErrorCode::SandboxLost, "the sandbox went away while its files were worked on")
}
