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

/// What is noted of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// What its group is known by; nothing once it was asked to begin anew.
    pub(crate) key: Option<RunId>,
    /// The language of its interpreter.
    pub(crate) language: String,
}

/// The notes of one sandbox. That one cannot be read or written costs a warning, and nothing else.
#[derive(Debug)]
pub(crate) enum Notes {
    /// In a folder, for as long as the sandbox is there: a file for each session.
    Folder(PathBuf),
    /// In this process, which the sandbox ends with.
    Process(Mutex<HashMap<SessionName, Note>>),
}

impl Notes {
    /// What is noted of a session, if it was begun.
    pub(crate) fn of(&self, name: &SessionName) -> Option<Note> {
        match self {
            Notes::Folder(folder) => {
                let text = fs::read_to_string(folder.join(name.as_str())).ok()?;
                let (key, language) = text.trim().split_once(' ')?;
                Some(Note { key: key.parse().ok(), language: language.to_owned() })
            }
            Notes::Process(known) => known.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned(),
        }
    }

    /// A session was begun, or is to begin anew.
    pub(crate) fn note(&self, name: &SessionName, note: Note) {
        match self {
            Notes::Folder(folder) => {
                let Note { key, language } = note;
                let key = key.map_or_else(|| "none".to_owned(), |key| key.to_string());
                // Whole or not at all: others may read it right now.
                let new = folder.join(format!(".{}", RunId::new()));
                let written = fs::create_dir_all(folder)
                    .and_then(|()| fs::write(&new, format!("{key} {language}\n")))
                    .and_then(|()| fs::rename(&new, folder.join(name.as_str())));
                if written.is_err() {
                    let _ = fs::remove_file(new);
                }
            }
            Notes::Process(known) => {
                known.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), note);
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
            let name = SessionName::parse("main").unwrap();
            let note = |key| Note { key, language: "python".to_owned() };
            let second = note(Some(RunId::new()));
            assert_eq!(notes.of(&name), None);
            notes.note(&name, note(Some(RunId::new())));
            notes.note(&name, second.clone());
            assert_eq!(notes.of(&name), Some(second));
            notes.note(&name, note(None));
            assert_eq!(notes.of(&name), Some(note(None)), "its language stays");
            notes.forget(&name);
            notes.forget(&name);
            assert_eq!(notes.of(&name), None);
        }
    }
}
