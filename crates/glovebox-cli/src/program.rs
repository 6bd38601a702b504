//! What a run executes: a file, a piece of code, or a command.

use std::{
    ffi::OsString,
    fs::Metadata,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use glovebox_core::{Error, ErrorCode, InsidePath, Language, Result, SandboxSpec, Shebang, WorkspaceMode};
use glovebox_engine::{Compile, InputFile, Prepared, Source, Toolchains, prepare};

use crate::{args::CommandArgs, files};

/// Longest beginning of a file that is searched for a `#!` line; the kernel reads 256 bytes.
const FIRST_LINE: u64 = 1024;

/// What to execute, and the file that has to be there for it.
#[derive(Debug)]
pub(crate) struct Program {
    /// The program and its arguments.
    pub(crate) argv: Vec<String>,
    /// Variables that its toolchain needs.
    pub(crate) env: Vec<(String, String)>,
    /// The step that makes it from its source.
    pub(crate) compile: Option<Compile>,
    /// A file that is copied in.
    pub(crate) file: Option<InputFile>,
    /// The language, where one is known.
    pub(crate) language: Option<&'static Language>,
    /// The host's folder of a FILE that was copied in without its neighbours.
    pub(crate) left_behind: Option<PathBuf>,
}

/// What was typed of the program.
#[derive(Debug)]
pub(crate) struct Typed<'a> {
    /// How the verb was called, for hints: `glovebox run`, or `glovebox exec box`.
    pub(crate) call: String,
    /// FILE and what follows it.
    pub(crate) program: &'a [OsString],
    /// What follows `--`.
    pub(crate) after_dashes: Option<Vec<OsString>>,
}

/// Finds out what to run.
pub(crate) fn find(
    typed: Typed<'_>,
    args: &CommandArgs,
    spec: &SandboxSpec,
    toolchains: &Toolchains,
) -> Result<Program> {
    let Typed { call, program, after_dashes } = typed;
    let mut words = texts(program)?.into_iter();
    if let Some(code) = &args.code {
        let rest = words.chain(texts(&after_dashes.unwrap_or_default())?).collect();
        return code_program(code, args.language.as_deref(), rest, spec, toolchains);
    }
    match (words.next(), after_dashes) {
        (Some(file), after_dashes) => {
            let mut rest: Vec<String> = words.collect();
            if let Some(after_dashes) = after_dashes {
                rest.push("--".to_owned());
                rest.extend(texts(&after_dashes)?);
            }
            file_program(Path::new(&file), rest, args, spec, toolchains).map_err(|e| explain_no_file(e, &call, program))
        }
        (None, Some(command)) if !command.is_empty() => command_program(texts(&command)?, args.language.as_deref()),
        (None, _) => {
            let hint = format!("{call} -- COMMAND, {call} FILE or {call} -l python -c CODE");
            Err(Error::new(ErrorCode::Usage, "there is nothing to run").hint(hint))
        }
    }
}

/// Adds what was probably meant to the error for a FILE that is not there: a command, or a file inside.
fn explain_no_file(error: Error, call: &str, program: &[OsString]) -> Error {
    let words: Vec<&str> = program.iter().filter_map(|word| word.to_str()).collect();
    let Some(file) = words.first().filter(|_| error.code == ErrorCode::FileNotFound && error.hint.is_none()) else {
        return error;
    };
    if *file == "-" {
        return error.hint(format!("for a program on standard input: {call} -- python3 -"));
    }
    if file.contains(":/") {
        return error.hint(format!("--mount {file} shows a file or folder of this machine inside; -v is --verbose"));
    }
    if !file.contains(['.', '/']) {
        return error.hint(format!("a command follows --, as in: {call} -- {}", words.join(" ")));
    }
    match call.starts_with("glovebox exec") {
        true => error.hint(format!("FILE is one of this machine; for one in the sandbox: {call} -- PROGRAM {file}")),
        false => error,
    }
}

fn command_program(argv: Vec<String>, language: Option<&str>) -> Result<Program> {
    if language.is_some() {
        let error = Error::new(ErrorCode::Usage, "--language belongs to a FILE or to --code, not to a command");
        return Err(error.hint("leave out either --language or the --"));
    }
    Ok(Program { argv, env: Vec::new(), compile: None, file: None, language: None, left_behind: None })
}

fn code_program(
    code: &str,
    language: Option<&str>,
    rest: Vec<String>,
    spec: &SandboxSpec,
    toolchains: &Toolchains,
) -> Result<Program> {
    let Some(name) = language else {
        let error = Error::new(ErrorCode::Usage, "--code needs --language");
        return Err(error.hint(format!("languages: {}", Language::names())));
    };
    let language = by_name(name)?;
    let Prepared { mut argv, env, file, compile } =
        prepare(language, &toolchains.find(language)?, Source::Code(code), &spec.limits)?;
    if let Some(file) = &file {
        files::check_target(&file.target, spec)?;
    }
    argv.extend(rest);
    Ok(Program { argv, env, compile, file, language: Some(language), left_behind: None })
}

fn file_program(
    path: &Path,
    rest: Vec<String>,
    args: &CommandArgs,
    spec: &SandboxSpec,
    toolchains: &Toolchains,
) -> Result<Program> {
    let metadata = files::look_at(path)?;
    if metadata.is_dir() {
        let hint = format!("to run a command in that folder: glovebox run --workspace {} -- COMMAND", path.display());
        return Err(files::is_a_folder(path).hint(hint));
    }
    if !metadata.is_file() {
        let message = format!("{} is not an ordinary file", path.display());
        return Err(Error::new(ErrorCode::FileUnreadable, message));
    }
    let named = args.language.as_deref().map(by_name).transpose()?;
    let place = place(path, named, args, spec)?;
    let (prepared, language) = match named {
        Some(language) => (of_language(language, &place, spec, toolchains)?, Some(language)),
        None => of_file(path, &metadata, &place, spec, toolchains)?,
    };
    let Prepared { mut argv, env, compile, .. } = prepared;
    argv.extend(rest);
    Ok(Program { argv, env, compile, file: place.copy, language, left_behind: place.left_behind })
}

/// Whether a file says itself what language it is in, by its ending or its `#!` line.
pub(crate) fn knows_language(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let shebang = read_shebang(path).ok().flatten();
    shebang.is_some() || Language::of_file(name, None).is_some()
}

/// Where FILE is inside, and whether it has to be copied there.
struct Place {
    name: String,
    inside: String,
    copy: Option<InputFile>,
    left_behind: Option<PathBuf>,
}

fn place(path: &Path, language: Option<&Language>, args: &CommandArgs, spec: &SandboxSpec) -> Result<Place> {
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
        Error::new(ErrorCode::InvalidPath, format!("the name of {} cannot be used inside", path.display()))
    })?;
    let in_workspace = match &spec.workspace {
        Some(workspace) => files::canonical(path)?.strip_prefix(&workspace.source).ok().map(Path::to_path_buf),
        None => None,
    };
    let copied_name = language.map_or_else(|| name.to_owned(), |language| language.file_name(name));
    let relative = match &in_workspace {
        Some(below) => below.to_str().ok_or_else(|| {
            Error::new(ErrorCode::InvalidPath, format!("the path {} is not valid UTF-8", path.display()))
        })?,
        None => &copied_name,
    };
    let target = InsidePath::relative_to(&files::working_dir(), relative)?;
    let inside = match relative {
        // The program starts elsewhere, so only the whole path leads to the file.
        _ if args.workdir.is_some() => target.to_string(),
        // An interpreter would take the name for a flag.
        name if name.starts_with('-') => format!("./{name}"),
        name => name.to_owned(),
    };
    let copy = match in_workspace {
        Some(_) => None,
        None => Some(copy_in(path, target, spec)?),
    };
    let folder = || path.parent().map(|parent| if parent == Path::new("") { Path::new(".") } else { parent });
    let left_behind = if spec.workspace.is_none() { folder().map(Path::to_path_buf) } else { None };
    Ok(Place { name: name.to_owned(), inside, copy, left_behind })
}

/// FILE as a copy. A workspace whose writes do not stay in the sandbox takes none: it would change the caller's folder.
fn copy_in(path: &Path, target: InsidePath, spec: &SandboxSpec) -> Result<InputFile> {
    match &spec.workspace {
        Some(workspace) if workspace.mode != WorkspaceMode::Overlay => {
            let message = format!("{} does not lie in the workspace {}", path.display(), workspace.source.display());
            Err(Error::new(ErrorCode::Usage, message)
                .hint("only with --workspace-mode overlay can a file from elsewhere be copied in"))
        }
        _ => files::copied(path, target),
    }
}

/// How a file of a language runs.
fn of_language(
    language: &'static Language,
    place: &Place,
    spec: &SandboxSpec,
    toolchains: &Toolchains,
) -> Result<Prepared> {
    prepare(language, &toolchains.find(language)?, Source::File(&place.inside), &spec.limits)
}

/// How a file runs whose language nobody named.
fn of_file(
    path: &Path,
    metadata: &Metadata,
    place: &Place,
    spec: &SandboxSpec,
    toolchains: &Toolchains,
) -> Result<(Prepared, Option<&'static Language>)> {
    let shebang = read_shebang(path)?;
    let language = Language::of_file(&place.name, shebang.as_ref());
    let named = shebang.filter(|shebang| language == Language::by_interpreter(shebang.program_name()));
    match (language, named) {
        // The `#!` line agrees with the language: its flags count, and so does a version such as python3.11.
        (Some(language), Some(shebang)) => {
            let program = interpreter(language, shebang.program_name(), toolchains);
            Ok((by_shebang(&shebang, program, place), Some(language)))
        }
        (Some(language), None) => Ok((of_language(language, place, spec, toolchains)?, Some(language))),
        (None, Some(shebang)) => Ok((by_shebang(&shebang, &shebang.program, place), None)),
        (None, None) => {
            let (path, name) = (path.display(), &place.name);
            let message = format!("the language of {path} is not known: its ending says nothing, nor does a #! line");
            let executable = metadata.permissions().mode() & 0o111 != 0;
            let runner = if executable { format!("./{name}") } else { format!("PROGRAM {name}") };
            Err(Error::new(ErrorCode::UnknownLanguage, message).hint(format!(
                "name it with --language ({}), or say what runs it: glovebox run --file {path} -- {runner}",
                Language::names()
            )))
        }
    }
}

fn by_shebang(shebang: &Shebang, program: &str, place: &Place) -> Prepared {
    Prepared { argv: shebang.run_file(program, &place.inside), env: Vec::new(), file: None, compile: None }
}

fn read_shebang(path: &Path) -> Result<Option<Shebang>> {
    let mut beginning = Vec::new();
    let file = files::open_ordinary(path)?;
    file.take(FIRST_LINE).read_to_end(&mut beginning).map_err(|error| files::cannot_read(path, error))?;
    Ok(Shebang::parse(&beginning))
}

/// The language of a name.
pub(crate) fn by_name(name: &str) -> Result<&'static Language> {
    Language::by_name(name).ok_or_else(|| {
        Error::new(ErrorCode::UnknownLanguage, format!("{name:?} is not a language that is known here"))
            .hint(format!("languages: {}; any other program is a command, which follows --", Language::names()))
    })
}

/// The interpreter that a `#!` line names, or another name of it that is here: python3 where there is no python.
fn interpreter<'a>(language: &'static Language, named: &'a str, toolchains: &Toolchains) -> &'a str {
    let way = language.ways.iter().find(|way| way.programs.contains(&named));
    let other = || way.and_then(|way| way.programs.iter().find(|name| toolchains.has(name)));
    if toolchains.has(named) { named } else { other().map_or(named, |name| *name) }
}

fn texts(words: &[OsString]) -> Result<Vec<String>> {
    let text = |word: &OsString| {
        word.to_str().map(str::to_owned).ok_or_else(|| {
            let message = format!("the argument {:?} is not valid UTF-8", word.to_string_lossy());
            Error::new(ErrorCode::InvalidValue, message)
        })
    };
    words.iter().map(text).collect()
}
