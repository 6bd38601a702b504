//! Verbs that take several names: all are tried, each failure is told, and the first decides the exit code.

use std::ffi::OsStr;

use glovebox_core::{Error, Result};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{args::Globals, report};

/// What became of several things.
#[derive(Debug)]
pub(super) struct Several<T> {
    /// Whether one alone was named; a failure is then told as that of any other verb.
    one: bool,
    pub(super) done: Vec<T>,
    failed: Vec<(String, Error)>,
}

/// Does the same with each of several things. One that fails does not keep the others; for people it is told at once.
pub(super) async fn each<N: AsRef<OsStr>, T>(
    globals: &Globals,
    names: &[N],
    act: impl AsyncFn(&N) -> Result<T>,
) -> Several<T> {
    let mut several = Several { one: names.len() == 1, done: Vec::new(), failed: Vec::new() };
    for name in names {
        match act(name).await {
            Ok(done) => several.done.push(done),
            Err(error) => {
                if !globals.json {
                    report::error(&error, false);
                }
                several.failed.push((name.as_ref().to_string_lossy().into_owned(), error));
            }
        }
    }
    several
}

impl<T: Serialize> Several<T> {
    /// The exit code. For programs also the document, with what was done under `key`.
    pub(super) fn report(self, globals: &Globals, key: &str) -> Result<u8> {
        let Some((_, first)) = self.failed.first() else {
            if globals.json {
                report::document(&json!({ key: self.done }))?;
            }
            return Ok(0);
        };
        let code = first.code.exit_code();
        if globals.json && self.one {
            report::error(first, true);
        } else if globals.json {
            let told = |(name, error): &(String, Error)| -> Value {
                json!({ "name": name, "code": error.code.as_str(), "message": error.message, "hint": error.hint })
            };
            let failed: Vec<Value> = self.failed.iter().map(told).collect();
            let mut document = json!(report::ErrorDocument::of(first));
            document["failed"] = json!(failed);
            document[key] = json!(self.done);
            report::document(&document)?;
        }
        Ok(code)
    }
}
