//! Code for a session: where it comes from, and what becomes of what it shows.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{ErrorKind, IsTerminal, Read, Write},
    path::{Path, PathBuf},
};

use glovebox_core::{Error, ErrorCode, Language, Result, ResultRecord, RunResult, SessionName};
use glovebox_engine::session_languages;
use serde_json::Value;

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

/// Writes all that a run showed into a folder, and says where each is: `0.png`, `0.txt`, `1.html` … The numbers go on where those
/// of earlier runs end, and nothing that is there is written over.
pub(crate) fn write_results(result: &RunResult, folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |path: &Path, error| {
        Error::new(ErrorCode::HostIo, format!("{} cannot be written", path.display())).because(error)
    };
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let first = first_free_number(folder).map_err(|error| failed(folder, error))?;
    let write = |shown: &ResultRecord| {
        let (number, ending) = (first.saturating_add(shown.value), shown.ending());
        let names = (1..).map(|times| format!("{number}-{times}.{ending}"));
        for name in std::iter::once(format!("{number}.{ending}")).chain(names) {
            let path = folder.join(name);
            // One value may have two forms of one type, and another run may write at the same time.
            match File::create_new(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                file => {
                    let written = file.and_then(|mut file| file.write_all(&shown.to_bytes()));
                    return written.map(|()| path.clone()).map_err(|error| failed(&path, error));
                }
            }
        }
        unreachable!("there is always one more name")
    };
    result.results.iter().flatten().map(write).collect()
}

/// The number after the highest that a file in a folder has.
fn first_free_number(folder: &Path) -> std::io::Result<u64> {
    let mut first = 0;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let digits = name.to_str().and_then(|name| name.split(['.', '-']).next());
        if let Some(number) = digits.and_then(|digits| digits.parse::<u64>().ok()) {
            first = first.max(number.saturating_add(1));
        }
    }
    Ok(first)
}

/// The document of a run, with where each result was written.
pub(crate) fn document(result: &RunResult, written: &[PathBuf]) -> Result<Value> {
    let unwritable = |error| Error::new(ErrorCode::Internal, "the result cannot be written as JSON").because(error);
    let mut document = serde_json::to_value(result).map_err(unwritable)?;
    for (at, path) in written.iter().enumerate() {
        document["results"][at]["file"] = path.display().to_string().into();
    }
    Ok(document)
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
