//! The list of applies: what was applied where, so that it can be undone, and so that `gc` finds what was cut short.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use glovebox_core::{Change, ChangeSource, Error, ErrorCode, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// So many applies to one folder can be undone, one after the other.
const MOST: usize = 20;

/// A folder with one file for each apply that can still be undone or that may need mending.
#[derive(Clone, Debug)]
pub struct Applies {
    folder: PathBuf,
}

/// One apply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Applied {
    /// Names it; later ones sort after earlier ones.
    pub id: String,
    /// Whose changes were applied.
    #[serde(alias = "run")]
    pub source: ChangeSource,
    /// The folder that they were applied to.
    pub folder: PathBuf,
    /// When.
    pub at: Timestamp,
    /// The changes that were applied, with paths below the folder.
    pub changes: Vec<Change>,
    /// The apply that this one undoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<String>,
    /// Whether it was done to its end.
    pub done: bool,
}

impl Applies {
    /// The list in `folder`, which is made when something is to be written.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Applies { folder: folder.into() }
    }

    /// All that is on the list, the latest last.
    pub fn all(&self) -> Result<Vec<Applied>> {
        let failed = |error| unavailable(&self.folder, error);
        let entries = match self.folder.read_dir() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(failed)?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|ending| ending == "json") {
                let bytes = fs::read(&path).map_err(failed)?;
                all.push(serde_json::from_slice(&bytes).map_err(|error| unavailable(&path, error.into()))?);
            }
        }
        all.sort_by(|a: &Applied, b: &Applied| a.id.cmp(&b.id));
        Ok(all)
    }

    /// The last apply that was done and not undone, of those that fit.
    pub fn last(&self, fits: impl Fn(&Applied) -> bool) -> Result<Option<Applied>> {
        let all = self.all()?;
        Ok(all.into_iter().rev().find(|applied| applied.done && applied.undoes.is_none() && fits(applied)))
    }

    pub(super) fn write(&self, applied: &Applied) -> Result<()> {
        let failed = |error| unavailable(&self.folder, error);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).map_err(failed)?;
        let unfinished = self.folder.join(format!("{}.new", applied.id));
        let bytes = serde_json::to_vec(applied).map_err(|error| failed(error.into()))?;
        fs::write(&unfinished, bytes).map_err(failed)?;
        fs::rename(&unfinished, self.place(&applied.id)).map_err(failed)
    }

    /// Notes that an apply was done to its end. One that undid another takes both off the list.
    pub(super) fn finish(&self, id: &str) -> Result<()> {
        let Some(mut applied) = self.all()?.into_iter().find(|applied| applied.id == id) else { return Ok(()) };
        if let Some(undone) = &applied.undoes {
            self.remove(undone)?;
            return self.remove(id);
        }
        applied.done = true;
        self.write(&applied)?;
        let here = self.all()?.into_iter().filter(|other| other.done && other.folder == applied.folder);
        here.rev().skip(MOST).try_for_each(|old| self.remove(&old.id))
    }

    /// Takes an apply off the list.
    pub(super) fn remove(&self, id: &str) -> Result<()> {
        match fs::remove_file(self.place(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unavailable(&self.folder, error)),
            _ => Ok(()),
        }
    }

    fn place(&self, id: &str) -> PathBuf {
        // An id that was read from a journal is only ever compared, unless it is a plain word.
        let plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        self.folder.join(if plain { format!("{id}.json") } else { "none.json".to_owned() })
    }
}

fn unavailable(path: &Path, error: io::Error) -> Error {
    Error::new(ErrorCode::LedgerUnavailable, format!("cannot use the list of applies ({})", path.display()))
        .because(error)
}
