//! Who writes a run: a lock that ends with the process.
//!
//! A run under way has a file of its name in the folder `running`, locked by the process that will finish it. The kernel
//! lets go of the lock when that process dies, however it dies. A run under way whose file is not there, or can be locked
//! by somebody else, is lost.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use glovebox_core::RunId;

/// The right to finish a run. Dropping it gives the right up.
#[derive(Debug)]
pub(crate) struct Owner {
    path: PathBuf,
    _locked: File,
}

impl Owner {
    /// Takes the right to finish a run. Must come before its row, so that the row is never seen without an owner.
    pub(crate) fn take(folder: &Path, run: RunId) -> io::Result<Owner> {
        let path = folder.join(run.to_string());
        let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
                open()?
            }
            other => other?,
        };
        file.lock()?;
        Ok(Owner { path, _locked: file })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // One that stays is removed by whoever finds the run lost.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether nobody is left to finish a run. Removes its file then.
pub(crate) fn is_gone(folder: &Path, run: &str) -> io::Result<bool> {
    let path = folder.join(run);
    let file = match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        other => other?,
    };
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
        Ok(()) => {
            // Another reader may have been faster.
            let _ = fs::remove_file(&path);
            Ok(true)
        }
    }
}
