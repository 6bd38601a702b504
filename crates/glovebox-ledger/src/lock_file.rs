//! Files whose lock says that their maker lives.
//!
//! The kernel lets go of a lock when its process dies, however it dies. So a file that somebody else can lock has no
//! maker any more, and whoever locks it may clean up behind it.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

/// Makes a file that is locked from now on until it is closed. Nothing is there when somebody was faster than the lock
/// and took the file for a dead one's.
pub(crate) fn create(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.lock()?;
    still_named(file)
}

/// Takes over a file whose maker is gone. Nothing is there when the maker lives, or has just removed the file.
pub(crate) fn take_over(path: &Path) -> io::Result<Option<File>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
        Ok(()) => still_named(file),
    }
}

/// The file, unless it was removed between being opened and being locked.
fn still_named(file: File) -> io::Result<Option<File>> {
    Ok((file.metadata()?.nlink() > 0).then_some(file))
}
