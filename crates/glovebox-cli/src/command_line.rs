//! From arguments, variables and configuration files to one checked command line.

use std::ffi::{OsStr, OsString};

use clap::{
    ArgMatches, FromArgMatches,
    error::{ContextKind, ContextValue, ErrorKind},
};
use glovebox_core::{Error, ErrorCode, Result};

use crate::{
    args::{self, Cli},
    config::{Config, Places},
    flags::Flags,
    later,
};

/// What the caller asked for.
#[derive(Debug)]
pub(crate) struct CommandLine {
    /// The verb and the flags.
    pub(crate) cli: Cli,
    /// Where the flags came from.
    pub(crate) flags: Flags,
    /// What follows the first `--`, if there is one.
    pub(crate) after_dashes: Option<Vec<OsString>>,
}

/// What came out of reading the arguments.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// Something to do.
    Line(Box<CommandLine>),
    /// A text to print: help or version.
    Help(clap::Error),
}

/// Reads the arguments of this process and the configuration files that count here.
pub(crate) fn parse(args: Vec<OsString>) -> Result<Parsed> {
    parse_with(args, &Places::of_this_process())
}

/// Reads arguments and configuration files. Most callers have no configuration file and are parsed once; the others are
/// parsed again with the files' values as defaults, so that clap itself lets flags and variables win.
pub(crate) fn parse_with(args: Vec<OsString>, places: &Places) -> Result<Parsed> {
    let (args, after_dashes) = split_at_dashes(args);
    let matches = match read(&args) {
        Ok(matches) => matches,
        Err(error) => return help_or_error(error),
    };
    // What only prints something about the command line itself does not depend on the folder it is called in.
    let config = match matches.subcommand_name() {
        Some("completions" | "man") => Config::default(),
        _ => {
            let named = matches.get_one::<std::path::PathBuf>("config").map(AsRef::as_ref);
            Config::load(named, matches.get_flag("trust_project"), places)?
        }
    };
    let matches = if config.is_empty() {
        matches
    } else {
        match config.apply(args::command())?.try_get_matches_from(&args) {
            Ok(matches) => matches,
            Err(error) => return help_or_error(error),
        }
    };
    let cli = Cli::from_arg_matches(&matches).map_err(|error| usage(&error))?;
    let flags = Flags::new(&matches, config);
    Ok(Parsed::Line(Box::new(CommandLine { cli, flags, after_dashes })))
}

/// Reads the arguments. `run` and `exec` have a short way; everything else, help and errors included, takes the long one.
fn read(args: &[OsString]) -> clap::error::Result<ArgMatches> {
    let short_way = args.iter().find_map(|arg| args::short_command(arg.to_str()?));
    match short_way.map(|command| command.try_get_matches_from(args)) {
        Some(Ok(matches)) => Ok(matches),
        _ => args::command().try_get_matches_from(args),
    }
}

/// Whether an error in these arguments is to be told as JSON. Only a guess is possible where they cannot be parsed.
pub(crate) fn asks_for_json(args: &[OsString]) -> bool {
    let on_command_line = args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--json");
    let yes = |value: OsString| value.to_str().is_some_and(|text| args::parse_switch(text) == Ok(true));
    on_command_line || std::env::var_os(args::variable("json")).is_some_and(yes)
}

/// Splits `run [FLAGS] -- CMD` and `exec ID -- CMD` at its first `--`. clap would drop the dashes, and with them the difference between a
/// file to run and a command.
fn split_at_dashes(mut args: Vec<OsString>) -> (Vec<OsString>, Option<Vec<OsString>>) {
    let has_command = |head: &[OsString]| head.iter().any(|arg| arg == "run" || arg == "exec");
    match args.iter().position(|arg| arg == OsStr::new("--")) {
        Some(at) if has_command(&args[..at]) => {
            let tail = args.split_off(at + 1);
            args.truncate(at);
            (args, Some(tail))
        }
        _ => (args, None),
    }
}

fn help_or_error(error: clap::Error) -> Result<Parsed> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Parsed::Help(error)),
        _ => Err(usage(&error)),
    }
}

/// clap's words as one of our errors: the first paragraph is the message, its tips are the hint.
fn usage(error: &clap::Error) -> Error {
    if let Some(error) = comes_later(error).or_else(|| no_verb(error)).or_else(|| wrong_switch(error)) {
        return error;
    }
    let code = match error.kind() {
        ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::InvalidUtf8 => ErrorCode::InvalidValue,
        _ => ErrorCode::Usage,
    };
    let text = error.render().to_string();
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut paragraphs = text.split("\n\n");
    let message = one_line(paragraphs.next().unwrap_or_default().trim_start_matches("error: "));
    // What follows `--` is the command here, so clap's advice to put a flag behind it would run the flag.
    let tips: Vec<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("tip: "))
        .filter(|tip| !tip.starts_with("to pass "))
        .collect();
    let hint = if tips.is_empty() { "see glovebox --help".to_owned() } else { tips.join("; ") };
    Error::new(code, message).hint(hint)
}

/// The error for a verb or a flag that is promised but not there yet. clap would guess what else may be meant.
fn comes_later(error: &clap::Error) -> Option<Error> {
    let (what, hint) = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let verb = context(error, ContextKind::InvalidSubcommand).filter(|verb| later::has_verb(verb))?;
            (format!("glovebox {verb}"), "see glovebox --help for what there is")
        }
        ErrorKind::UnknownArgument => {
            let word = context(error, ContextKind::InvalidArg)?;
            let flag = word.split('=').next().unwrap_or(word);
            flag.strip_prefix("--").filter(|name| later::has_flag(name))?;
            (flag.to_owned(), "see glovebox run --help for the flags that there are")
        }
        _ => return None,
    };
    Some(Error::new(ErrorCode::Usage, format!("{what} comes with a later version")).hint(hint))
}

/// The error for a file where a verb belongs, the commonest first slip.
fn no_verb(error: &clap::Error) -> Option<Error> {
    let word = context(error, ContextKind::InvalidSubcommand).filter(|word| std::path::Path::new(word).is_file())?;
    let message = format!("{word:?} is no verb of glovebox");
    Some(Error::new(ErrorCode::Usage, message).hint(format!("to run the file: glovebox run {word}")))
}

/// The error for a switch whose variable holds neither yes nor no. A switch on the command line has no value.
fn wrong_switch(error: &clap::Error) -> Option<Error> {
    let flag = context(error, ContextKind::InvalidArg).filter(|_| error.kind() == ErrorKind::ValueValidation)?;
    let value = context(error, ContextKind::InvalidValue)?;
    let forms = args::parse_switch(value).err()?;
    let hint = format!("the value comes from the variable {}", args::variable(flag.trim_start_matches("--")));
    Some(Error::new(ErrorCode::InvalidValue, format!("invalid value {value:?} for {flag}: {forms}")).hint(hint))
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Verb;

    fn parse_words(words: &[&str]) -> Result<CommandLine> {
        let args = std::iter::once("glovebox").chain(words.iter().copied()).map(OsString::from).collect();
        match parse_with(args, &Places::nowhere())? {
            Parsed::Line(line) => Ok(*line),
            Parsed::Help(text) => panic!("unexpected help: {text}"),
        }
    }

    fn program_of(line: &CommandLine) -> &[OsString] {
        match &line.cli.verb {
            Some(Verb::Run(run)) => &run.program,
            other => panic!("not a run: {other:?}"),
        }
    }

    #[test]
    fn what_follows_the_file_belongs_to_the_program() {
        let line = parse_words(&["run", "--pids", "5", "a.py", "--json", "-v", "--", "-x", "--memory"]).unwrap();
        assert_eq!(program_of(&line), ["a.py", "--json", "-v"]);
        assert_eq!(line.after_dashes.as_deref().unwrap(), ["-x", "--memory"]);
        assert!(!line.cli.globals.json && !line.cli.globals.verbose);
    }

    #[test]
    fn the_short_way_reads_a_run_and_an_exec_as_the_long_way_does() {
        for words in [
            &["run", "a.py"][..],
            &["--json", "run", "-v", "--memory", "1g", "--label", "a=b", "--label", "c=d", "a.py", "run", "--json"],
            &["--data-dir", "x", "run", "-l", "sh", "-c", "true", "--no-record", "--config", "y"],
            &["run", "-t", "--workspace", ".", "run"],
            &["exec", "box", "ls", "-la", "run"],
            &["--data-dir", "x", "exec", "--json", "--timeout", "5s", "--env", "A=b", "run", "-l", "sh", "-c", "true"],
            &["exec", "--detach", "box", "a.py", "--detach"],
        ] {
            let verb = words.iter().find(|word| ["run", "exec"].contains(word)).unwrap();
            let words = || std::iter::once(&"glovebox").chain(words);
            let [short, long] = [args::short_command(verb).unwrap(), args::command()].map(|command| {
                let matches = command.try_get_matches_from(words()).unwrap();
                format!("{:?}", Cli::from_arg_matches(&matches).unwrap())
            });
            assert_eq!(short, long);
        }
        for words in [&["runs", "list", "--label", "run"][..], &["--version", "run"], &["help", "run"], &["gc", "run"]]
        {
            let words = std::iter::once(&"glovebox").chain(words);
            assert!(args::short_command("run").unwrap().try_get_matches_from(words).is_err());
        }
    }

    #[test]
    fn what_follows_the_dashes_is_the_command() {
        let line = parse_words(&["--json", "run", "-v", "--", "ls", "--", "-la"]).unwrap();
        assert!(program_of(&line).is_empty());
        assert_eq!(line.after_dashes.as_deref().unwrap(), ["ls", "--", "-la"]);
        assert!(line.cli.globals.json && line.cli.globals.verbose);
    }

    #[test]
    fn global_flags_are_taken_before_and_after_the_verb() {
        for words in [["--json", "--backend", "docker", "gc"], ["gc", "--json", "--backend", "docker"]] {
            let line = parse_words(&words).unwrap();
            assert!(line.cli.globals.json);
            assert_eq!(line.cli.globals.backend, "docker");
        }
    }

    #[test]
    fn an_unknown_flag_is_an_error_with_the_usage_code() {
        for words in [&["run", "--bogus", "a.py"][..], &["frobnicate"], &["gc", "extra"]] {
            assert_eq!(parse_words(words).unwrap_err().code, ErrorCode::Usage, "{words:?}");
        }
        let error = parse_words(&["run", "--memmory", "1g", "a.py"]).unwrap_err();
        assert!(error.hint.unwrap().contains("--memory"));
    }

    #[test]
    fn a_usage_error_is_told_as_json_only_when_our_own_flags_ask_for_it() {
        let args = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        assert!(asks_for_json(&args(&["glovebox", "run", "--bogus", "--json"])));
        assert!(!asks_for_json(&args(&["glovebox", "run", "--", "x", "--json"])));
    }
}
