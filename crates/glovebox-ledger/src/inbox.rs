//! The inbox: finished runs on their way into the database.
//!
//! To open SQLite takes longer than a short run. A process that records one run and ends therefore writes the run to a file
//! of its own here, whole or not at all, and whoever reads the ledger next takes it in. One in some dozens of writers does so
//! too, so that the inbox stays small where nobody ever reads.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Read as _, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use glovebox_core::RunId;
use serde::{Deserialize, Serialize};

use crate::{
    ledger::{Ended, Stored},
    store,
};

/// One of so many writers takes in what is there.
const EMPTIED_BY_ONE_IN: u128 = 64;
/// So many are taken in at one time, at most.
pub(crate) const MOST_AT_ONCE: usize = 1000;
/// A document, its small files and the names of all: far above what a run can have.
const LONGEST: u64 = 256 << 20;
/// What is not whole after so long never will be.
const ABANDONED: Duration = Duration::from_secs(3600);
const NOT_WHOLE: &str = "new";
/// A power cut may leave a file without what was written to it.
const DAMAGED: &str = "damaged";

/// A run in its file.
#[derive(Serialize, Deserialize)]
struct Letter {
    run: RunId,
    outcome: String,
    started_at: i64,
    document: String,
    files: Vec<LetterFile>,
}

#[derive(Serialize, Deserialize)]
struct LetterFile {
    name: String,
    sha256: String,
    bytes: u64,
    /// Base64; nothing where it is a blob.
    content: Option<String>,
}

/// A run that was taken from the inbox, and the file to remove once it is in the database.
pub(crate) struct Taken {
    pub(crate) row: Ended,
    pub(crate) files: Vec<Stored>,
    path: PathBuf,
}

impl Taken {
    /// The run is in the database. Says whether its file is gone; one that stays is found to be there by the next reader.
    pub(crate) fn remove(self) -> bool {
        fs::remove_file(&self.path).is_ok()
    }
}

/// The inbox of a ledger.
pub(crate) struct Inbox {
    folder: PathBuf,
    database: PathBuf,
}

impl Inbox {
    pub(crate) fn of(folder: PathBuf, database: PathBuf) -> Self {
        Inbox { folder, database }
    }

    /// Writes a run. Says whether it did: where the database is not there yet, or is not one that this code knows, it must be
    /// opened now, so that whoever runs something hears of what is wrong with it.
    pub(crate) fn put(&self, row: &Ended, files: &[Stored]) -> io::Result<bool> {
        if !store::looks_sound(&self.database) {
            return Ok(false);
        }
        let file = |file: &Stored| LetterFile {
            name: file.name.clone(),
            sha256: file.sha256.to_string(),
            bytes: file.bytes,
            content: file.content.as_ref().map(|content| BASE64_STANDARD.encode(content)),
        };
        let letter = Letter {
            run: row.run,
            outcome: row.outcome.clone(),
            started_at: row.started_at,
            document: row.document.clone(),
            files: files.iter().map(file).collect(),
        };
        let path = self.folder.join(row.run.to_string());
        let new = path.with_extension(NOT_WHOLE);
        let mut writing = self.create(&new)?;
        let written = writing.write_all(&serde_json::to_vec(&letter)?).and_then(|()| fs::rename(&new, &path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written.map(|()| true)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        match create() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
                create()
            }
            other => other,
        }
    }

    /// Whether whoever wrote this run is to take in what is there.
    pub(crate) fn is_emptied_after(run: RunId) -> bool {
        run.as_u128().is_multiple_of(EMPTIED_BY_ONE_IN)
    }

    /// Whether a run is there.
    pub(crate) fn has(&self, run: RunId) -> bool {
        self.folder.join(run.to_string()).exists()
    }

    /// Reads the runs that are there. What cannot be read as one is set aside.
    pub(crate) fn read(&self) -> io::Result<Vec<Taken>> {
        let entries = match self.folder.read_dir() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let is_run =
                path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.parse::<RunId>().is_ok());
            if !is_run {
                remove_abandoned(&path);
            } else {
                match read(path.clone())? {
                    Read::Run(taken) => all.push(*taken),
                    Read::Damaged => set_aside(&path),
                    Read::Gone => {}
                }
            }
            if all.len() == MOST_AT_ONCE {
                break;
            }
        }
        Ok(all)
    }
}

/// What became of a file in the inbox.
enum Read {
    Run(Box<Taken>),
    /// Another reader was faster.
    Gone,
    /// It holds no run.
    Damaged,
}

/// Puts a file that holds no run out of the way, where somebody can look at it. It is not met again.
fn set_aside(path: &Path) {
    let _ = fs::rename(path, path.with_extension(DAMAGED));
}

fn read(path: PathBuf) -> io::Result<Read> {
    let mut bytes = Vec::new();
    match File::open(&path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Read::Gone),
        other => other?,
    };
    let Ok(letter) = serde_json::from_slice::<Letter>(&bytes) else { return Ok(Read::Damaged) };
    let Letter { run, outcome, started_at, document, files } = letter;
    let file = |file: LetterFile| -> Option<Stored> {
        let content = file.content.map(|content| BASE64_STANDARD.decode(content)).transpose().ok()?;
        Some(Stored { name: file.name, sha256: file.sha256.parse().ok()?, bytes: file.bytes, content })
    };
    let files: Option<Vec<Stored>> = files.into_iter().map(file).collect();
    let row = Ended { run, outcome, started_at, document };
    Ok(files.map_or(Read::Damaged, |files| Read::Run(Box::new(Taken { row, files, path }))))
}

/// Removes what a process left that died while it wrote.
fn remove_abandoned(path: &Path) {
    let is_new = path.extension().is_some_and(|extension| extension == NOT_WHOLE);
    let age = path.metadata().and_then(|metadata| metadata.modified()).ok();
    let age = age.and_then(|modified| SystemTime::now().duration_since(modified).ok());
    if is_new && age.is_some_and(|age| age > ABANDONED) {
        let _ = fs::remove_file(path);
    }
}
