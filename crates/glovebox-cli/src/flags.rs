//! Where values came from, and errors that say so.

use clap::{ArgMatches, parser::ValueSource};
use glovebox_core::{Error, ErrorCode, Result};

use crate::{
    args::{key, variable},
    config::Config,
};

/// Where the value of a flag came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The command line.
    Flag,
    /// A variable of the caller.
    Variable,
    /// The project's configuration file.
    ProjectFile,
    /// The caller's own configuration file, or one that the caller named.
    TrustedFile,
    /// Nobody set it.
    Default,
}

/// The flags of a verb: asks for origins, and checks values.
#[derive(Debug)]
pub(crate) struct Flags {
    matches: ArgMatches,
    /// The verb of verbs that they are below, or nothing.
    prefix: String,
    pub(crate) config: Config,
}

impl Flags {
    /// The flags of the innermost verb of `matches`.
    pub(crate) fn new(matches: &ArgMatches, config: Config) -> Self {
        let (verb, of_verb) = matches.subcommand().unwrap_or(("", matches));
        let (prefix, innermost) = match of_verb.subcommand() {
            Some((_, below)) => (verb, below),
            None => ("", of_verb),
        };
        Flags { matches: innermost.clone(), prefix: prefix.to_owned(), config }
    }

    /// Where the value of `flag` came from.
    pub(crate) fn origin(&self, flag: &str) -> Origin {
        let id = flag.replace('-', "_");
        match self.matches.try_contains_id(&id).ok().and_then(|_| self.matches.value_source(&id)) {
            Some(ValueSource::CommandLine) => Origin::Flag,
            Some(ValueSource::EnvVariable) => Origin::Variable,
            _ => match self.config.get(&key(&self.prefix, flag)) {
                Some(setting) if setting.from_project => Origin::ProjectFile,
                Some(_) => Origin::TrustedFile,
                None => Origin::Default,
            },
        }
    }

    /// Checks a value. The error names the flag, the value, the forms that are accepted, and where the value came from.
    pub(crate) fn check<T>(&self, flag: &str, text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<T> {
        parse(text).map_err(|forms| self.wrong(flag, text, &forms))
    }

    /// The error for a value that cannot be used.
    pub(crate) fn wrong(&self, flag: &str, text: &str, forms: &str) -> Error {
        let error = Error::new(ErrorCode::InvalidValue, format!("invalid value {text:?} for --{flag}: {forms}"));
        self.with_origin(flag, error)
    }

    /// An error of a value's own parser, with the flag put before it.
    pub(crate) fn named(&self, flag: &str, mut error: Error) -> Error {
        error.message = format!("--{flag}: {}", error.message);
        self.with_origin(flag, error)
    }

    /// The values of a flag that can be given several times. A variable holds one on each line.
    pub(crate) fn list<'a>(&self, flag: &str, values: &'a [String]) -> Vec<&'a str> {
        match self.origin(flag) {
            Origin::Variable => values.iter().flat_map(|text| text.lines()).filter(|line| !line.is_empty()).collect(),
            _ => values.iter().map(String::as_str).collect(),
        }
    }

    fn with_origin(&self, flag: &str, error: Error) -> Error {
        let place = match self.origin(flag) {
            Origin::Flag | Origin::Default => return error,
            Origin::Variable => format!("the value comes from the variable {}", variable(&key(&self.prefix, flag))),
            Origin::ProjectFile | Origin::TrustedFile => match self.config.get(&key(&self.prefix, flag)) {
                Some(setting) => format!("the value comes from {}", setting.file.display()),
                None => return error,
            },
        };
        let hint = match &error.hint {
            Some(hint) => format!("{hint}; {place}"),
            None => place,
        };
        error.hint(hint)
    }
}
