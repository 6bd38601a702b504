//! From arguments, variables and configuration files to one checked command line.

use std::ffi::{OsStr, OsString};

use clap::{ArgMatches, FromArgMatches, error::ErrorKind};
use glovebox_core::Result;

use crate::{
    args::{self, Cli},
    config::{Config, Places},
    flags::Flags,
    slips::usage,
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

/// Splits `run [FLAGS] -- CMD`, `exec ID -- CMD` and `shell ID -- CMD` at its first `--`. clap would drop the dashes, and with them the difference between a
/// file to run and a command.
fn split_at_dashes(mut args: Vec<OsString>) -> (Vec<OsString>, Option<Vec<OsString>>) {
    let has_command =
        |head: &[OsString]| head.iter().any(|arg| ["run", "exec", "shell"].iter().any(|verb| arg == verb));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Verb;
    use glovebox_core::ErrorCode;

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

    /// The words of the calls of glovebox in a line of a shell. It knows as much of shells as the examples need.
    fn calls(line: &str) -> Vec<Vec<String>> {
        let line = line.split(" # ").next().unwrap_or_default();
        let mut words = vec![String::new()];
        let mut quote = None;
        for c in line.chars() {
            match (quote, c) {
                (Some(open), c) if c == open => quote = None,
                (None, '\'' | '"') => quote = Some(c),
                (None, ' ') => words.push(String::new()),
                // Each of these ends a call.
                (None, '|' | ';' | '>' | '<' | '(' | ')') => words.extend([";".to_owned(), String::new()]),
                (_, c) => words.last_mut().expect("one").push(c),
            }
        }
        words.retain(|word| !word.is_empty());
        let calls = words.split(|word| word == ";");
        let calls =
            calls.filter_map(|call| Some(call[call.iter().position(|word| word == "glovebox")? + 1..].to_vec()));
        calls.collect()
    }

    #[test]
    fn every_verb_has_examples_and_each_is_understood_as_it_is_pasted() {
        fn look(command: &clap::Command, seen: &mut usize) {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let has_examples = text.contains("Examples:");
            assert!(has_examples || command.has_subcommands(), "{} has no examples", command.get_name());
            for line in text.lines().skip_while(|line| *line != "Examples:").skip(1).take_while(|line| !line.is_empty())
            {
                let bare = line.split(" # ").next().unwrap_or_default().trim();
                assert!(!bare.contains("  "), "what follows is no comment: {line}");
                let calls = calls(line);
                assert!(!calls.is_empty(), "{line}");
                for call in calls {
                    let words: Vec<&str> = call.iter().map(String::as_str).collect();
                    parse_words(&words).unwrap_or_else(|error| panic!("{line}: {}", error.message));
                    *seen += 1;
                }
            }
            let below = command.get_subcommands().filter(|below| below.get_name() != "help");
            below.for_each(|below| look(below, seen));
        }
        let mut seen = 0;
        look(&args::command(), &mut seen);
        assert!(seen > 100, "only {seen} examples were looked at");
    }

    #[test]
    fn what_the_guides_type_is_understood() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let guides = std::fs::read_dir(root.join("docs/guides")).expect("the guides");
        let pages = guides.map(|guide| guide.expect("a guide").path()).chain([root.join("README.md")]);
        let mut seen = 0;
        for page in pages.filter(|page| page.extension().is_some_and(|ending| ending == "md")) {
            let text = std::fs::read_to_string(&page).expect("a page");
            // Every second part is a block of code.
            for block in text
                .split("\n```")
                .skip(1)
                .step_by(2)
                .filter(|block| block.starts_with("sh\n") || block.starts_with("console\n"))
            {
                let typed = block.lines().filter_map(|line| match block.starts_with("console") {
                    true => line.strip_prefix("$ "),
                    false => Some(line),
                });
                for call in typed.flat_map(calls) {
                    let words: Vec<&str> = call.iter().map(String::as_str).collect();
                    parse_words(&words)
                        .unwrap_or_else(|error| panic!("{}: {words:?}: {}", page.display(), error.message));
                    seen += 1;
                }
            }
        }
        assert!(seen > 80, "only {seen} calls were looked at");
    }

    #[test]
    fn a_usage_error_is_told_as_json_only_when_our_own_flags_ask_for_it() {
        let args = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        assert!(asks_for_json(&args(&["glovebox", "run", "--bogus", "--json"])));
        assert!(!asks_for_json(&args(&["glovebox", "run", "--", "x", "--json"])));
    }
}
