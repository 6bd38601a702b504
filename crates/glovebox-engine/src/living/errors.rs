//! What is said of a sandbox whose state does not allow what was asked.

use std::path::Path;

use glovebox_core::{EndReason, Error, ErrorCode, Result, SandboxId, SandboxRecord};
use jiff::{SignedDuration, Timestamp};

use crate::{Engine, registry::Ended};

impl Engine {
    /// Why a sandbox without processes cannot be worked with. `text` is what the caller calls it.
    pub(super) fn cannot_be_reached(&self, record: &SandboxRecord, text: &str) -> Error {
        self.check_not_ended(record).err().unwrap_or_else(|| stopped(record.sandbox, text))
    }

    /// An error for a sandbox whose time is over, before anything of it is touched: its keeper would end it at once, and its files
    /// with it.
    pub(super) fn check_time_left(&self, record: &SandboxRecord) -> Result<()> {
        let lifetime = record.spec.living.as_ref().map(|living| living.lifetime).unwrap_or_default();
        match lifetime.expires_at(record.created_at).filter(|over| *over <= Timestamp::now()) {
            Some(over) => Err(too_old(record.sandbox, over, &self.registry().store(record.sandbox))),
            None => Ok(()),
        }
    }

    /// An error for a sandbox that ended by itself, or is about to be gone.
    pub(super) fn check_not_ended(&self, record: &SandboxRecord) -> Result<()> {
        let id = record.sandbox;
        match self.registry().ended(id) {
            Some(ended) => Err(gone(record, &ended)),
            None if self.registry().is_doomed(id) => Err(doomed(id)),
            None => Ok(()),
        }
    }
}

/// The error for what a paused sandbox cannot do.
pub(crate) fn paused(id: SandboxId, text: &str) -> Error {
    let message = format!("the sandbox {id} is paused");
    Error::new(ErrorCode::WrongState, message).hint(format!("glovebox resume {text} lets it go on"))
}

/// The error for what a stopped sandbox cannot do.
fn stopped(id: SandboxId, text: &str) -> Error {
    let message = format!("the sandbox {id} is stopped");
    Error::new(ErrorCode::WrongState, message).hint(format!("glovebox start {text} starts it again, with its files"))
}

/// The error for what a sandbox cannot do that was killed and has not ended.
pub(super) fn stopping(record: &SandboxRecord) -> Error {
    let id = record.sandbox;
    Error::new(ErrorCode::WrongState, format!("the sandbox {id} is being stopped"))
        .hint(format!("glovebox start {id} starts it again, with its files"))
}

/// The error for a sandbox that ended by itself.
pub(super) fn gone(record: &SandboxRecord, ended: &Ended) -> Error {
    let lifetime = record.spec.living.as_ref().map(|living| living.lifetime).unwrap_or_default();
    let (why, flag) = match ended.reason {
        EndReason::IdleTimeout => (format!("it was not used for {}", in_words(lifetime.idle)), "--idle-timeout"),
        EndReason::MaxAge => (format!("it was made {} before", in_words(lifetime.max_age)), "--max-age"),
    };
    let message = format!("the sandbox {} ended by itself at {:.0}: {why}", record.sandbox, ended.at());
    Error::new(ErrorCode::WrongState, message).hint(format!("make another one; {flag} lets it live longer"))
}

/// The error for a sandbox that was destroyed and has a process that did not end.
fn doomed(id: SandboxId) -> Error {
    let message = format!("the sandbox {id} was destroyed, and is gone when the last of its processes ends");
    Error::new(ErrorCode::WrongState, message).hint("make another one")
}

/// The error for what a sandbox changed whose reset was cut short.
pub(super) fn half_reset(record: &SandboxRecord) -> Error {
    let id = record.sandbox;
    let message = format!("the sandbox {id} was being reset when that was cut short, so there is nothing to look at");
    Error::new(ErrorCode::WrongState, message).hint(format!("glovebox start {id} starts it as new"))
}

fn in_words(time: Option<std::time::Duration>) -> String {
    let time = time.and_then(|time| SignedDuration::try_from(time).ok());
    time.map_or_else(|| "some time".to_owned(), |time| format!("{time:#}"))
}

/// The error for a stopped sandbox whose time is over.
fn too_old(id: SandboxId, over: Timestamp, files: &Path) -> Error {
    let message = format!("the sandbox {id} is too old to be started again: its time was over at {over:.0}");
    let files = files.display();
    Error::new(ErrorCode::WrongState, message).hint(format!(
        "its files are in {files}; glovebox destroy {id} removes it, and --max-age lets the next one live longer"
    ))
}
