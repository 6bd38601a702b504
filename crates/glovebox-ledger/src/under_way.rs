//! Runs that are under way: a file for each, locked by the process that will finish it.
//!
//! The file holds the document of a lost run, which is what the run becomes when its process dies. It is written before
//! the command starts, and without SQLite: a run does not wait for a database that somebody else holds.
//!
//! A run in a living sandbox goes on without its process, so its file also names the sandbox, `RUN.SANDBOX`, and waits for
//! somebody who asks there.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use glovebox_core::{RunId, SandboxId};

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
    /// Notes that a run is under way, in a sandbox that outlives this process if one is named.
    pub(crate) fn begin(folder: &Path, run: RunId, living: Option<SandboxId>, if_lost: &str) -> io::Result<Owner> {
        let path = folder.join(match living {
            Some(sandbox) => format!("{run}.{sandbox}"),
            None => run.to_string(),
        });
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
    /// The sandbox that it may go on in without the process that started it.
    pub(crate) living: Option<SandboxId>,
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
        let Some((run, living)) = path.file_name().and_then(|name| name.to_str()).and_then(parse_name) else {
            continue;
        };
        let abandoned = lock_file::take_over(&path)?.map(|file| Owner { path: path.clone(), _locked: file });
        match (read(&path)?, abandoned) {
            (Some(if_lost), abandoned) => noted.push(Noted { run, living, if_lost, abandoned }),
            // Its process died before the document was whole, which is before the command started.
            (None, Some(abandoned)) => abandoned.end(),
            (None, None) => {}
        }
    }
    Ok(noted)
}

fn parse_name(name: &str) -> Option<(RunId, Option<SandboxId>)> {
    match name.split_once('.') {
        Some((run, sandbox)) => Some((run.parse().ok()?, Some(sandbox.parse().ok()?))),
        None => Some((name.parse().ok()?, None)),
    }
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
