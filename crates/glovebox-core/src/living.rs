//! Sandboxes that stay when those who made them are gone.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{SandboxId, SandboxSpec};

/// What makes a sandbox a living one: where its files are, and when it ends by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Living {
    /// The folder of the host that holds what is written inside. It outlives stops and reboots.
    pub store: PathBuf,
    /// When it ends by itself.
    pub lifetime: Lifetime,
    /// When it was made for the first time.
    pub created_at: Timestamp,
}

/// When a sandbox ends by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifetime {
    /// After so long without use. A running process is use.
    pub idle: Option<Duration>,
    /// So long after it was made.
    pub max_age: Option<Duration>,
}

impl Lifetime {
    /// When it ends at the latest, if it has a maximum age.
    pub fn expires_at(&self, created_at: Timestamp) -> Option<Timestamp> {
        let age = self.max_age?;
        created_at.checked_add(age).ok()
    }
}

/// In which state a sandbox is. It is looked at, never written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SandboxState {
    /// Being made.
    Creating,
    /// Commands can be run.
    Ready,
    /// Its processes are frozen.
    Paused,
    /// It was killed, and processes of it are still ending.
    Stopping,
    /// Its files are kept and no process is there.
    Stopped,
    /// It is to be removed as soon as the last of its processes has ended.
    Destroying,
    /// Something went wrong that it cannot recover from.
    Failed,
    /// It ended.
    Gone,
    /// It cannot be told: the backend that made it does not answer.
    Unknown,
}

impl SandboxState {
    /// Whether it works or is about to, be its commands frozen. One that was killed and is only ending does not, whatever of it
    /// is still there.
    pub fn has_processes(self) -> bool {
        matches!(self, SandboxState::Creating | SandboxState::Ready | SandboxState::Paused)
    }

    /// The state's name, as it stands in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            SandboxState::Creating => "creating",
            SandboxState::Ready => "ready",
            SandboxState::Paused => "paused",
            SandboxState::Stopping => "stopping",
            SandboxState::Stopped => "stopped",
            SandboxState::Destroying => "destroying",
            SandboxState::Failed => "failed",
            SandboxState::Gone => "gone",
            SandboxState::Unknown => "unknown",
        }
    }
}

impl fmt::Display for SandboxState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a sandbox ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// Nobody used it for as long as its idle timeout.
    IdleTimeout,
    /// It reached its maximum age.
    MaxAge,
}

/// A name for a sandbox: 1 to 63 letters, digits, `.`, `_` and `-`, the first a letter or digit; never the form of an id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SandboxName(String);

impl SandboxName {
    /// Checks a name.
    pub fn parse(text: &str) -> Result<Self, String> {
        check_name(text)?;
        if ["sb_", "run_", "snap_", "vol_", "tok_"].iter().any(|prefix| text.starts_with(prefix)) {
            return Err("a name must not look like an id".to_owned());
        }
        Ok(SandboxName(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The form of names that people choose.
pub(crate) fn check_name(text: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    match text.len() <= 63 && begins && text.chars().all(fits) {
        true => Ok(()),
        false => Err("expected 1 to 63 letters, digits, '.', '_' or '-', the first a letter or a digit".to_owned()),
    }
}

impl fmt::Display for SandboxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for SandboxName {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        SandboxName::parse(&text)
    }
}

impl From<SandboxName> for String {
    fn from(name: SandboxName) -> String {
        name.0
    }
}

/// What a living sandbox is, as it was asked for. The same for all of its life.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// Its id.
    pub sandbox: SandboxId,
    /// Its name, if it has one.
    pub name: Option<SandboxName>,
    /// The backend that makes it.
    pub backend: String,
    /// The caller's labels.
    pub labels: BTreeMap<String, String>,
    /// Variables that every command in it starts with.
    pub env: BTreeMap<String, String>,
    /// How to make it.
    pub spec: SandboxSpec,
    /// When it was made.
    pub created_at: Timestamp,
}

/// The folder below a data folder that holds the records of living sandboxes, each in a folder of its id.
pub const SANDBOXES_DIR: &str = "sandboxes";

/// Where the record of a living sandbox has the place for its files, below the folder of all records.
pub fn living_store(sandboxes: &Path, id: SandboxId) -> PathBuf {
    sandboxes.join(id.to_string()).join("files")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_plain_and_never_like_an_id() {
        for text in ["a", "my-box", "9.1_x"] {
            assert!(SandboxName::parse(text).is_ok(), "{text}");
        }
        for text in ["", "-a", ".a", "a b", "a/b", "ü", "sb_x", "run_x", "a\n", &"a".repeat(64)] {
            assert!(SandboxName::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_sandbox_without_a_maximum_age_does_not_expire() {
        let made: Timestamp = "2026-11-15T10:00:00Z".parse().unwrap();
        assert_eq!(Lifetime::default().expires_at(made), None);
        let day = Lifetime { idle: None, max_age: Some(Duration::from_secs(86_400)) };
        assert_eq!(day.expires_at(made).unwrap().to_string(), "2026-11-16T10:00:00Z");
    }
}
