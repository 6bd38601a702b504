//! Runs that are under way: a file for each, locked by the process that will finish it.
//!
//! The file holds the document of a lost run, which is what the run becomes when its process dies. It is written before
//! the command starts, and without SQLite: a run does not wait for a database that somebody else holds.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use glovebox_core::RunId;

use crate::{document::Object, lock_file};

/// Far above what a command line, its variables and labels can hold.
const LONGEST_DOCUMENT: u64 = 4 << 20;

/// The right to finish a run. Dropped without a word, the run is lost.
#[derive(Debug)]
pub(crate) struct Owner {
    path: PathBuf,
    _locked: File,
}

impl Owner {
    /// Notes that a run is under way.
    pub(crate) fn begin(folder: &Path, run: RunId, if_lost: &str) -> io::Result<Owner> {
        let path = folder.join(run.to_string());
        let mut locked = loop {
            match lock_file::create(&path) {
                Ok(Some(file)) => break file,
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
                }
                Err(error) => return Err(error),
            }
        };
        locked.write_all(if_lost.as_bytes())?;
        Ok(Owner { path, _locked: locked })
    }

    /// Notes that the run is not under way any more, because its row is written or because there is to be none.
    pub(crate) fn end(self) {
        // One that stays is found by the next reader, who knows what to do with it.
        let _ = fs::remove_file(&self.path);
    }
}

/// A run that was noted as under way.
pub(crate) struct Noted {
    pub(crate) run: RunId,
    pub(crate) if_lost: Object,
    /// Its file, locked by us, when nobody is left to finish it.
    pub(crate) abandoned: Option<Owner>,
}

/// Every run that is noted as under way, also those that nobody will finish.
pub(crate) fn all(folder: &Path) -> io::Result<Vec<Noted>> {
    let entries = match folder.read_dir() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut noted = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let Some(Ok(run)) = path.file_name().and_then(|name| name.to_str()).map(str::parse) else { continue };
        let abandoned = lock_file::take_over(&path)?.map(|file| Owner { path: path.clone(), _locked: file });
        match (read(&path)?, abandoned) {
            (Some(if_lost), abandoned) => noted.push(Noted { run, if_lost, abandoned }),
            // Its process died before the document was whole, which is before the command started.
            (None, Some(abandoned)) => abandoned.end(),
            (None, None) => {}
        }
    }
    Ok(noted)
}

/// The document in a file, when it is whole and the file is still there.
fn read(path: &Path) -> io::Result<Option<Object>> {
    let mut text = String::new();
    match File::open(path).and_then(|file| file.take(LONGEST_DOCUMENT).read_to_string(&mut text)) {
        Ok(_) => Ok(Object::parse(&text).ok()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => Ok(None),
        Err(error) => Err(error),
    }
}
