//! Sessions: the name of one, and what a run in one leaves in its result.

use std::fmt;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::{Deserialize, Serialize};

use crate::living::check_name;

/// The name of a session: 1 to 63 letters, digits, `.`, `_` or `-`, the first a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionName(String);

impl SessionName {
    /// Checks a name.
    pub fn parse(text: &str) -> Result<Self, String> {
        check_name(text)?;
        Ok(SessionName(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for SessionName {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        SessionName::parse(&text)
    }
}

impl From<SessionName> for String {
    fn from(name: SessionName) -> String {
        name.0
    }
}

/// The session of a run, in its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Its name.
    pub name: String,
    /// The language of its interpreter.
    pub language: String,
    /// Whether its interpreter was started for this run, so that nothing was there from runs before.
    pub new: bool,
    /// Whether it was one of the same name before, and what that held is lost.
    pub state_lost: bool,
    /// Whether its interpreter is there for the next run. One that died takes all that it held with it.
    pub alive: bool,
    /// Which run in it this is, from 1; 0 if it was ended while it waited for its turn.
    pub number: u64,
}

/// Something that a run in a session shows: the value of its last expression, or what it displayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultRecord {
    /// What it is: `text/plain`, `text/html`, `image/png` …
    pub mime: String,
    /// Its bytes, where they are text.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub text: Option<String>,
    /// Its bytes in base64, where they are not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub base64: Option<String>,
    /// Which of the values that the run shows it is of, from 0. One value may come in several forms.
    pub value: u64,
    /// `value` for the last expression, `display` for what the code displayed.
    pub kind: ResultKind,
    /// How many bytes it has.
    pub bytes: u64,
}

/// Why something is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultKind {
    /// It is the value of the last expression.
    Value,
    /// The code displayed it.
    Display,
}

impl ResultRecord {
    /// Records something shown.
    pub fn new(mime: String, value: u64, kind: ResultKind, content: Vec<u8>) -> Self {
        let bytes = content.len() as u64;
        let (text, base64) = match String::from_utf8(content) {
            Ok(text) if is_text(&mime) => (Some(text), None),
            Ok(text) => (None, Some(BASE64_STANDARD.encode(text))),
            Err(error) => (None, Some(BASE64_STANDARD.encode(error.as_bytes()))),
        };
        ResultRecord { mime, text, base64, value, kind, bytes }
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        match (&self.text, &self.base64) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(base64)) => BASE64_STANDARD.decode(base64).unwrap_or_default(),
            (None, None) => Vec::new(),
        }
    }

    /// The usual ending of a file of its kind.
    pub fn ending(&self) -> &'static str {
        match self.mime.as_str() {
            "text/plain" => "txt",
            "text/html" => "html",
            "text/markdown" => "md",
            "text/latex" => "tex",
            "image/svg+xml" => "svg",
            "image/png" => "png",
            "image/jpeg" => "jpg",
            "application/pdf" => "pdf",
            "application/json" => "json",
            mime if mime.ends_with("+json") => "json",
            mime if mime.starts_with("text/") => "txt",
            _ => "bin",
        }
    }
}

/// Whether bytes of this kind are text when they can be.
fn is_text(mime: &str) -> bool {
    mime.starts_with("text/")
        || mime.ends_with("+json")
        || mime.ends_with("+xml")
        || ["application/json", "application/javascript", "application/xml"].contains(&mime)
}

/// What failed in the code of a run in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExceptionRecord {
    /// Its name, as `ValueError`.
    pub name: String,
    /// What it says.
    pub message: String,
    /// Where it came from, in the lines of the caller's code.
    pub traceback: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["main", "a", "0", "my-session.2_x", &"n".repeat(63)] {
            assert!(SessionName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "-x", ".x", "a b", "a/b", "ä", &"n".repeat(64)] {
            assert!(SessionName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_text_stays_text_and_the_rest_becomes_base64() {
        let record = |mime: &str, bytes: &[u8]| ResultRecord::new(mime.into(), 0, ResultKind::Value, bytes.to_vec());
        assert_eq!(record("text/html", b"<b>").text.as_deref(), Some("<b>"));
        assert_eq!(record("image/svg+xml", b"<svg/>").text.as_deref(), Some("<svg/>"));
        assert_eq!(record("image/png", b"png").base64.as_deref(), Some("cG5n"));
        let broken = record("text/plain", b"\xff\xfe");
        assert_eq!((broken.text.as_deref(), broken.to_bytes()), (None, b"\xff\xfe".to_vec()));
    }
}
