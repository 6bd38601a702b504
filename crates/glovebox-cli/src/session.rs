//! Code for a session: where it comes from, and what becomes of what it shows.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    io::{IsTerminal, Read},
    path::{Path, PathBuf},
};

use glovebox_core::{Error, ErrorCode, Language, Result, ResultRecord, RunResult, SessionName};
use glovebox_engine::session_languages;

use crate::{args::ExecArgs, files, flags::Flags, program, report};

/// Code that is longer is refused by the engine; so much more is read at the most to find out.
const LONGEST_CODE: u64 = 1024 * 1024;

/// What was typed of a run in a session.
pub(crate) struct Wanted {
    pub(crate) name: SessionName,
    pub(crate) code: String,
    /// The language, where it was named or the file tells it. Else it is that of the session.
    pub(crate) language: Option<&'static Language>,
}

/// The session that `exec` names, and the code for it.
pub(crate) fn wanted(args: &ExecArgs, flags: &Flags, after_dashes: Option<&[OsString]>) -> Result<Option<Wanted>> {
    let Some(name) = &args.session else {
        if args.results.is_some() {
            let error = Error::new(ErrorCode::Usage, "--results needs --session");
            return Err(error.hint("only a session shows values; files of any run are kept with --artifact"));
        }
        return Ok(None);
    };
    let name = flags.check("session", name, SessionName::parse)?;
    let refuse = |message: &str, hint: String| Err(Error::new(ErrorCode::Usage, message).hint(hint));
    if args.command.terminal || args.command.stdin.is_some() {
        let message = "a session has neither a terminal nor standard input";
        return refuse(message, format!("leave out {}", if args.command.terminal { "-t" } else { "--stdin" }));
    }
    if let Some(words) = after_dashes {
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        let hint = format!("glovebox exec {} --session {name} -l bash -c '{}'", args.id, words.join(" "));
        return refuse("a session runs code, and no command after --", hint);
    }
    let mut language = args.command.language.as_deref().map(program::by_name).transpose()?;
    let code = match (&args.command.code, args.program.as_slice()) {
        (Some(code), []) => code.clone(),
        (Some(_), [first, ..]) => {
            let hint = "code in a session has no arguments; write them into it".to_owned();
            return refuse(&format!("{} does not belong to code in a session", first.to_string_lossy()), hint);
        }
        (None, [file]) if file == "-" => from_stdin()?,
        (None, [file]) => {
            let path = Path::new(file);
            language = language.or_else(|| Language::of_file(&path.file_name()?.to_string_lossy(), None));
            from_file(path)?
        }
        (None, [_, ..]) => {
            return refuse("a file in a session has no arguments", "set a variable with --env instead".to_owned());
        }
        (None, []) => {
            let hint = format!(
                "glovebox exec {} --session {name} -l {} -c CODE; FILE, or - for standard input, in place of -c CODE",
                args.id,
                session_languages().next().unwrap_or("python")
            );
            return refuse("there is no code to run", hint);
        }
    };
    Ok(Some(Wanted { name, code, language }))
}

fn from_file(path: &Path) -> Result<String> {
    text(files::open(path)?, &path.display().to_string())
}

fn from_stdin() -> Result<String> {
    if std::io::stdin().is_terminal() {
        report::say("reading the code from standard input; Ctrl-D ends it");
    }
    text(std::io::stdin(), "standard input")
}

fn text(input: impl Read, what: &str) -> Result<String> {
    let mut bytes = Vec::new();
    input
        .take(LONGEST_CODE + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::new(ErrorCode::FileUnreadable, format!("{what} cannot be read")).because(error))?;
    if bytes.len() as u64 > LONGEST_CODE {
        let error = Error::new(ErrorCode::InvalidValue, format!("{what} is longer than 1 MiB"));
        return Err(error.hint("copy it into the sandbox, and import it"));
    }
    String::from_utf8(bytes).map_err(|_| Error::new(ErrorCode::InvalidValue, format!("{what} is not valid UTF-8")))
}

/// Writes all that a run showed into a folder, and says where it is: `0.png`, `0.txt`, `1.html` …
pub(crate) fn write_results(result: &RunResult, folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |path: &Path, error| {
        Error::new(ErrorCode::HostIo, format!("{} cannot be written", path.display())).because(error)
    };
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    let mut written = Vec::new();
    for shown in result.results.iter().flatten() {
        let (value, ending) = (shown.value, shown.ending());
        let times = names.entry(format!("{value}.{ending}")).or_default();
        let name = if *times == 0 { format!("{value}.{ending}") } else { format!("{value}-{times}.{ending}") };
        *times += 1;
        let path = folder.join(name);
        fs::write(&path, shown.to_bytes()).map_err(|error| failed(&path, error))?;
        written.push(path);
    }
    Ok(written)
}

/// Says what a run showed that a terminal cannot.
pub(crate) fn report_results(result: &RunResult) {
    // Data is for programs, and comes beside something for people.
    let is_seen = |shown: &&ResultRecord| shown.mime == "text/plain" || shown.mime.ends_with("json");
    let unseen: Vec<String> =
        result.results.iter().flatten().filter(|shown| !is_seen(shown)).map(|shown| shown.mime.clone()).collect();
    if !unseen.is_empty() {
        report::say(&format!("also shown: {}; --results DIR writes them to files", unseen.join(", ")));
    }
}
