//! Which sessions a sandbox was given, as the host remembers it.
//!
//! A note outlives the guest, and so tells that a session was there when its interpreter is not any more, for whatever reason.

use std::{
    collections::HashMap,
    fs,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use glovebox_core::{RunId, SessionName};

/// The notes of one sandbox. That one cannot be read or written costs a warning, and nothing else.
#[derive(Debug)]
pub(crate) enum Notes {
    /// In a folder, for as long as the sandbox is there: a file for each session.
    Folder(PathBuf),
    /// In this process, which the sandbox ends with.
    Process(Mutex<HashMap<SessionName, RunId>>),
}

impl Notes {
    /// What the group of a session is known by, if the session was begun.
    pub(crate) fn key(&self, name: &SessionName) -> Option<RunId> {
        match self {
            Notes::Folder(folder) => fs::read_to_string(folder.join(name.as_str())).ok()?.trim().parse().ok(),
            Notes::Process(known) => known.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied(),
        }
    }

    /// A session was begun.
    pub(crate) fn note(&self, name: &SessionName, key: RunId) {
        match self {
            Notes::Folder(folder) => {
                // Whole or not at all: others may read it right now.
                let new = folder.join(format!(".{key}"));
                let written = fs::create_dir_all(folder)
                    .and_then(|()| fs::write(&new, format!("{key}\n")))
                    .and_then(|()| fs::rename(&new, folder.join(name.as_str())));
                if written.is_err() {
                    let _ = fs::remove_file(new);
                }
            }
            Notes::Process(known) => {
                known.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), key);
            }
        }
    }

    /// A session is to end.
    pub(crate) fn forget(&self, name: &SessionName) {
        match self {
            Notes::Folder(folder) => drop(fs::remove_file(folder.join(name.as_str()))),
            Notes::Process(known) => drop(known.lock().unwrap_or_else(PoisonError::into_inner).remove(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_known_from_its_beginning_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        for notes in [Notes::Folder(folder.path().join("sessions")), Notes::Process(Mutex::default())] {
            let (name, first, second) = (SessionName::parse("main").unwrap(), RunId::new(), RunId::new());
            assert_eq!(notes.key(&name), None);
            notes.note(&name, first);
            notes.note(&name, second);
            assert_eq!(notes.key(&name), Some(second));
            notes.forget(&name);
            notes.forget(&name);
            assert_eq!(notes.key(&name), None);
        }
    }
}
