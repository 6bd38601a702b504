//! What people type that is not understood, and what they are told: the message says what is so, the hint what to type.
//!
//! clap guesses by spelling, which offers `reset` to somebody who typed `delete`. So a word that other tools have is looked
//! up first, in [`words`]; then comes a word that is spelt nearly like one of ours; and if nothing fits, the help of the verb.

mod words;

use clap::{
    Command,
    error::{ContextKind, ContextValue, ErrorKind},
};
use glovebox_core::{Error, ErrorCode};

use crate::{args, later};

/// How alike two words must be for one to be offered in place of the other, from 0 to 1.
const ALIKE: f64 = 0.8;

/// Of several words the one that is most like another, if one is near.
pub(crate) fn nearest(word: &str, all: impl Iterator<Item = String>) -> Option<String> {
    let likeness = all.map(|other| (strsim::jaro_winkler(word, &other), other));
    likeness.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(likeness, _)| *likeness >= ALIKE).map(|(_, other)| other)
}

/// clap's words as one of our errors.
pub(crate) fn usage(error: &clap::Error) -> Error {
    let command = args::command();
    let at = Place::of(error, &command);
    let found = match error.kind() {
        ErrorKind::InvalidSubcommand => text(error, ContextKind::InvalidSubcommand).map(|word| no_verb(word, &at)),
        ErrorKind::UnknownArgument => text(error, ContextKind::InvalidArg).map(|word| unknown(word, &at, &command)),
        ErrorKind::MissingRequiredArgument => Some(missing(error, &at)),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Some(no_verb_at_all(&at)),
        ErrorKind::ValueValidation => wrong_switch(error),
        ErrorKind::InvalidValue => without_value(error),
        _ => None,
    };
    found.unwrap_or_else(|| in_claps_words(error, &at))
}

/// The verb that the error is about.
struct Place<'a> {
    /// Its name with those of the verbs above it: `projects files`; nothing when there is no verb yet.
    verbs: String,
    verb: &'a Command,
}

impl<'a> Place<'a> {
    /// clap does not name the verb but in the usage that it shows.
    fn of(error: &clap::Error, command: &'a Command) -> Self {
        let usage = match error.get(ContextKind::Usage) {
            Some(ContextValue::StyledStr(usage)) => usage.to_string(),
            // Of a verb of verbs alone it shows the help, and the usage is a line in it.
            _ => error.to_string().lines().find(|line| line.starts_with("Usage:")).unwrap_or_default().to_owned(),
        };
        let mut place = Place { verbs: String::new(), verb: command };
        for word in usage.split_whitespace().skip_while(|word| *word != "glovebox").skip(1) {
            let Some(verb) = place.verb.find_subcommand(word) else { break };
            let verbs = if place.verbs.is_empty() { word.to_owned() } else { format!("{} {word}", place.verbs) };
            place = Place { verbs, verb };
        }
        place
    }

    /// How the verb is called.
    fn call(&self) -> String {
        if self.verbs.is_empty() { "glovebox".to_owned() } else { format!("glovebox {}", self.verbs) }
    }

    fn see_help(&self) -> String {
        format!("see {} --help", self.call())
    }
}

/// The error for a word that is no verb.
fn no_verb(word: &str, at: &Place<'_>) -> Error {
    if later::has_verb(&at.verbs, word) {
        let hint = later::until_then(&at.verbs, word)
            .map_or_else(|| format!("{} for what there is", at.see_help()), Into::into);
        return later_version(&format!("{} {word}", at.call())).hint(hint);
    }
    let error = Error::new(ErrorCode::Usage, format!("{word:?} is no verb of {}", at.call()));
    if let Some(hint) = words::verb(&at.verbs, word) {
        return error.hint(hint);
    }
    // A file where a verb belongs is the commonest first slip.
    if at.verbs.is_empty() && std::path::Path::new(word).is_file() {
        return error.hint(format!("to run the file: glovebox run {word}"));
    }
    let verbs = at.verb.get_subcommands().map(|verb| verb.get_name().to_owned()).filter(|name| name != "help");
    match nearest(word, verbs) {
        Some(verb) => error.hint(format!("did you mean {} {verb}?", at.call())),
        None => error.hint(at.see_help()),
    }
}

/// The error for a verb of verbs alone.
fn no_verb_at_all(at: &Place<'_>) -> Error {
    let verbs: Vec<&str> = at.verb.get_subcommands().map(Command::get_name).filter(|name| *name != "help").collect();
    let error = Error::new(ErrorCode::Usage, format!("{} needs a verb: {}", at.call(), verbs.join(", ")));
    error.hint(at.see_help())
}

/// The error for a flag that the verb does not have, or a word too many.
fn unknown(word: &str, at: &Place<'_>, command: &Command) -> Error {
    let flag = word.split('=').next().unwrap_or(word);
    let Some(name) = flag.strip_prefix('-').map(|name| name.trim_start_matches('-')).filter(|name| !name.is_empty())
    else {
        let error = Error::new(ErrorCode::Usage, format!("{} does not take {word:?}", at.call()));
        return error.hint(words::argument(&at.verbs, word).unwrap_or_else(|| at.see_help()));
    };
    if flag.starts_with("--") && later::has_flag(name) || (at.verbs == "reset" && flag == "--to") {
        return later_version(flag).hint(format!("{} for the flags that there are", at.see_help()));
    }
    let error = Error::new(ErrorCode::Usage, format!("{} has no flag {flag}", at.call()));
    if let Some(hint) = words::flag(&at.verbs, flag) {
        return error.hint(hint);
    }
    let own = at.verb.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned));
    let others = others_with(flag, command);
    match nearest(name, own).filter(|_| flag.starts_with("--")) {
        // Spelt right, it belongs to another verb.
        _ if !others.is_empty() => error.hint(format!("{flag} is a flag of {}; {}", in_a_row(&others), at.see_help())),
        Some(near) => error.hint(format!("did you mean --{near}?")),
        None => error.hint(at.see_help()),
    }
}

/// The verbs that have a flag, where these are a few.
fn others_with(flag: &str, command: &Command) -> Vec<String> {
    let has =
        |verb: &Command| verb.get_arguments().any(|arg| arg.get_long().is_some_and(|long| flag == format!("--{long}")));
    let with = command.get_subcommands().filter(|verb| has(verb));
    with.map(|verb| format!("glovebox {}", verb.get_name())).collect()
}

fn in_a_row(words: &[String]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => words.concat(),
    }
}

/// The error for an argument that is missing.
fn missing(error: &clap::Error, at: &Place<'_>) -> Error {
    let missing: Vec<String> = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(names)) => names.iter().map(|name| plain(name)).collect(),
        _ => Vec::new(),
    };
    let error = Error::new(ErrorCode::Usage, format!("{} needs {}", at.call(), in_a_row(&missing)));
    let shape = words::shape(&at.verbs).map_or_else(|| plain(&shape(at)), Into::into);
    error.hint(match missing.first().map(|name| name.trim_end_matches('.')) {
        Some("ID") => format!("{shape}; glovebox list shows the sandboxes there are"),
        Some("RUN") => format!("{shape}; glovebox runs list shows the runs there are"),
        _ => shape,
    })
}

/// The arguments of a verb as they are typed.
fn shape(at: &Place<'_>) -> String {
    let arguments = at.verb.get_positionals().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    format!("{} {arguments}", at.call())
}

/// The name of an argument without clap's brackets.
fn plain(name: &str) -> String {
    name.replace(['<', '>'], "")
}

/// The error for a switch whose variable holds neither yes nor no. A switch on the command line has no value.
fn wrong_switch(error: &clap::Error) -> Option<Error> {
    let flag = text(error, ContextKind::InvalidArg)?;
    let value = text(error, ContextKind::InvalidValue)?;
    let forms = args::parse_switch(value).err()?;
    let hint = format!("the value comes from the variable {}", args::variable(flag.trim_start_matches("--")));
    Some(Error::new(ErrorCode::InvalidValue, format!("invalid value {value:?} for {flag}: {forms}")).hint(hint))
}

/// The error for a flag without its value.
fn without_value(error: &clap::Error) -> Option<Error> {
    let flag = plain(
        text(error, ContextKind::InvalidArg)
            .filter(|_| text(error, ContextKind::InvalidValue).is_none_or(str::is_empty))?,
    );
    let name = flag.split(' ').next().unwrap_or(&flag);
    Some(Error::new(ErrorCode::InvalidValue, format!("{name} needs a value")).hint(format!("write {flag}")))
}

/// For all else clap's first paragraph is the message.
fn in_claps_words(error: &clap::Error, at: &Place<'_>) -> Error {
    let code = match error.kind() {
        ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::InvalidUtf8 => ErrorCode::InvalidValue,
        _ => ErrorCode::Usage,
    };
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
    Error::new(code, first.split_whitespace().collect::<Vec<_>>().join(" ")).hint(at.see_help())
}

fn later_version(what: &str) -> Error {
    Error::new(ErrorCode::Usage, format!("{what} comes with a later version"))
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    }
}
