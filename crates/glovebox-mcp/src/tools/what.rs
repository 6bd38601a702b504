//! What to run, as a model says it: a line for a shell, or a program with its arguments.

use std::{collections::BTreeMap, fmt};

use glovebox_core::{Command, Error, ErrorCode, Result};
use glovebox_engine::RunRequest;

use serde::Deserialize;
use zeroize::Zeroize;

use crate::conversation::Conversation;

/// Variables as a model gives them. They may be secrets, so they are printed by name only and wiped when they are dropped.
#[derive(Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Variables(BTreeMap<String, String>);

impl Drop for Variables {
    fn drop(&mut self) {
        self.0.values_mut().for_each(Zeroize::zeroize);
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// What to run.
pub(crate) struct What<'a> {
    pub(crate) command: Option<&'a str>,
    pub(crate) argv: Option<&'a [String]>,
    pub(crate) cwd: Option<&'a str>,
    pub(crate) env: &'a Variables,
}

impl What<'_> {
    /// It in one line, for people.
    pub(crate) fn shown(&self) -> String {
        let line = match (self.command, self.argv) {
            (Some(line), _) => line.to_owned(),
            (None, argv) => argv.unwrap_or_default().join(" "),
        };
        crate::text::cut(&glovebox_core::printable(&line), 200)
    }

    /// A request for it.
    pub(crate) fn request(&self, talk: &Conversation) -> Result<RunRequest> {
        let mut command = Command::argv(self.words(talk)?)?;
        for (name, value) in &self.env.0 {
            command = command.env(name, value)?;
        }
        if let Some(cwd) = self.cwd {
            command = command.cwd(cwd)?;
        }
        Ok(talk.filled(RunRequest::new(command)))
    }

    fn words(&self, talk: &Conversation) -> Result<Vec<String>> {
        match (self.command, self.argv) {
            (Some(line), None) => Ok(talk.shell(line).into()),
            (None, Some(argv)) => Ok(argv.to_vec()),
            _ => Err(Error::new(ErrorCode::InvalidValue, "one of command and argv is needed, and not both")
                .hint("command is a shell line such as \"ls -la | head\"; argv is a list such as [\"ls\", \"-la\"]")),
        }
    }

    /// Whether an error says that there is no bash, so that sh is to be tried.
    pub(crate) fn needs_sh(&self, error: &Error, talk: &Conversation) -> bool {
        self.command.is_some() && error.code == ErrorCode::CommandNotFound && talk.has_no_bash()
    }

    /// An error with a hint that a model can use.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match error.code {
            ErrorCode::CommandNotFound if self.argv.is_some() => {
                error.hint("argv[0] is a program in PATH or a path inside; shell lines go into command")
            }
            ErrorCode::WorkdirUnusable => error.hint("cwd is a folder inside; make it first, or leave it out"),
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_a_variable_is_not_printed() {
        let variables: Variables = serde_json::from_str(r#"{"TOKEN":"hunter2"}"#).unwrap();
        assert_eq!(format!("{variables:?}"), r#"{"TOKEN"}"#);
    }
}
