//! Where values came from, and errors that say so.

use std::path::Path;

use clap::{ArgMatches, parser::ValueSource};
use glovebox_core::{Error, ErrorCode, Result};

use crate::{
    args::{is_global, key, prefix, variable},
    config::Config,
    trust,
};

/// Where the value of a flag came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The command line.
    Flag,
    /// A variable of the caller.
    Variable,
    /// The configuration file of a project that the caller does not trust.
    UntrustedFile,
    /// The caller's own configuration file, one that the caller named, or that of a project which the caller trusts.
    TrustedFile,
    /// Nobody set it.
    Default,
}

/// The flags of a verb: asks for origins, and checks values.
#[derive(Debug)]
pub(crate) struct Flags {
    matches: ArgMatches,
    /// What stands before their keys.
    prefix: String,
    pub(crate) config: Config,
}

impl Flags {
    /// The flags of the innermost verb of `matches`.
    pub(crate) fn new(matches: &ArgMatches, config: Config) -> Self {
        let (verb, of_verb) = matches.subcommand().unwrap_or(("", matches));
        let (prefix, innermost) = match of_verb.subcommand() {
            Some((_, below)) => (verb, below),
            None => (prefix(verb), of_verb),
        };
        Flags { matches: innermost.clone(), prefix: prefix.to_owned(), config }
    }

    /// Where the value of `flag` came from.
    pub(crate) fn origin(&self, flag: &str) -> Origin {
        let id = flag.replace('-', "_");
        match self.has(flag).then(|| self.matches.value_source(&id)).flatten() {
            Some(ValueSource::CommandLine) => Origin::Flag,
            Some(ValueSource::EnvVariable) => Origin::Variable,
            _ if self.config.is_empty() => Origin::Default,
            _ => match self.config.get(&self.key(flag)) {
                Some(setting) if setting.untrusted => Origin::UntrustedFile,
                Some(_) => Origin::TrustedFile,
                None => Origin::Default,
            },
        }
    }

    /// The key of a flag in a configuration file.
    fn key(&self, flag: &str) -> String {
        if is_global(flag) { flag.to_owned() } else { key(&self.prefix, flag) }
    }

    /// The flag of a key, as far as this verb has one.
    fn flag<'a>(&self, wanted: &'a str) -> Option<&'a str> {
        let below = wanted.strip_prefix(&self.prefix).map(|flag| flag.trim_start_matches('-'));
        [Some(wanted), below].into_iter().flatten().find(|flag| self.has(flag) && self.key(flag) == wanted)
    }

    /// Whether the verb has this flag.
    fn has(&self, flag: &str) -> bool {
        self.matches.try_contains_id(&flag.replace('-', "_")).is_ok()
    }

    /// The file of an untrusted project that the value of `flag` came from.
    pub(crate) fn untrusted_file(&self, flag: &str) -> Option<&Path> {
        self.config
            .get(&self.key(flag))
            .filter(|_| self.origin(flag) == Origin::UntrustedFile)
            .map(|setting| setting.file.as_path())
    }

    /// Refuses a project's file that opens the sandbox, unless the caller trusts the project. What a flag or a variable
    /// overrules, or the verb does not use, counts for nothing and is let be.
    pub(crate) fn refuse_untrusted(&self) -> Result<()> {
        let mut keys = self.config.untrusted()?;
        keys.retain(|(key, _)| self.flag(key).is_some_and(|flag| self.origin(flag) == Origin::UntrustedFile));
        let Some((_, setting)) = keys.first() else { return Ok(()) };
        let names = keys.iter().map(|(key, _)| *key).collect::<Vec<_>>().join(", ");
        Err(trust::refused(&format!("{} opens the sandbox ({names})", setting.file.display()), &setting.file))
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

    /// The error for a name that is none.
    pub(crate) fn not_a_name(&self, what: &str, text: &str, forms: &str) -> Error {
        Error::new(ErrorCode::InvalidValue, format!("{text:?} is no name of a {what}: {forms}"))
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
            Origin::Variable => format!("the value comes from the variable {}", variable(&self.key(flag))),
            Origin::UntrustedFile | Origin::TrustedFile => match self.config.get(&self.key(flag)) {
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
