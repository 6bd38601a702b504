//! What a run executes: a file, a piece of code, or a command.

use std::{
    ffi::OsString,
    fs::{self, Metadata},
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use glovebox_core::{Error, ErrorCode, InsidePath, Language, Result, SandboxSpec, Shebang, WorkspaceMode};
use glovebox_engine::{FileContent, InputFile};

use crate::{args::RunArgs, files};

/// Where programs of the image `host` are looked for, to choose between an interpreter's names.
const PROGRAM_DIRS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// Longest beginning of a file that is searched for a `#!` line; the kernel reads 256 bytes.
const FIRST_LINE: u64 = 1024;

/// What to execute, and the file that has to be there for it.
#[derive(Debug)]
pub(crate) struct Program {
    /// The program and its arguments.
    pub(crate) argv: Vec<String>,
    /// A file that is copied in.
    pub(crate) file: Option<InputFile>,
    /// The language, where one is known.
    pub(crate) language: Option<&'static Language>,
    /// The host's folder of a FILE that was copied in without its neighbours.
    pub(crate) left_behind: Option<PathBuf>,
}

/// Finds out what to run.
pub(crate) fn find(args: &RunArgs, after_dashes: Option<Vec<OsString>>, spec: &SandboxSpec) -> Result<Program> {
    let mut words = texts(&args.program)?.into_iter();
    if let Some(code) = &args.code {
        let rest = words.chain(texts(&after_dashes.unwrap_or_default())?).collect();
        return code_program(code, args.language.as_deref(), rest, spec);
    }
    match (words.next(), after_dashes) {
        (Some(file), after_dashes) => {
            let mut rest: Vec<String> = words.collect();
            if let Some(after_dashes) = after_dashes {
                rest.push("--".to_owned());
                rest.extend(texts(&after_dashes)?);
            }
            file_program(Path::new(&file), rest, args, spec)
        }
        (None, Some(command)) if !command.is_empty() => command_program(texts(&command)?, args.language.as_deref()),
        (None, _) => {
            let hint = "glovebox run FILE, glovebox run -l python -c CODE or glovebox run -- COMMAND";
            Err(Error::new(ErrorCode::Usage, "there is nothing to run").hint(hint))
        }
    }
}

fn command_program(argv: Vec<String>, language: Option<&str>) -> Result<Program> {
    if language.is_some() {
        let error = Error::new(ErrorCode::Usage, "--language belongs to a FILE or to --code, not to a command");
        return Err(error.hint("leave out either --language or the --"));
    }
    Ok(Program { argv, file: None, language: None, left_behind: None })
}

fn code_program(code: &str, language: Option<&str>, rest: Vec<String>, spec: &SandboxSpec) -> Result<Program> {
    let Some(name) = language else {
        let error = Error::new(ErrorCode::Usage, "--code needs --language");
        return Err(error.hint(format!("languages: {}", Language::names())));
    };
    let language = by_name(name)?;
    let interpreter = interpreter(language);
    let (mut argv, file) = match language.run_code(interpreter, code) {
        Some(argv) => (argv, None),
        None => {
            let name = language.code_file();
            let target = InsidePath::relative_to(&files::working_dir(), &name)?;
            files::check_target(&target, spec)?;
            let content = FileContent::Bytes(Bytes::copy_from_slice(code.as_bytes()));
            (language.run_file(interpreter, &name), Some(InputFile { target, content, mode: 0o644 }))
        }
    };
    argv.extend(rest);
    Ok(Program { argv, file, language: Some(language), left_behind: None })
}

fn file_program(path: &Path, rest: Vec<String>, args: &RunArgs, spec: &SandboxSpec) -> Result<Program> {
    let metadata = files::look_at(path)?;
    if metadata.is_dir() {
        let hint = format!("to run a command in that folder: glovebox run --workspace {} -- COMMAND", path.display());
        return Err(files::is_a_folder(path).hint(hint));
    }
    if !metadata.is_file() {
        let message = format!("{} is not an ordinary file", path.display());
        return Err(Error::new(ErrorCode::FileUnreadable, message));
    }
    let place = place(path, args, spec)?;
    let shebang = read_shebang(path)?;
    let (mut argv, language) = match &args.language {
        Some(name) => {
            let language = by_name(name)?;
            (language.run_file(interpreter(language), &place.inside), Some(language))
        }
        None => interpreted(path, &metadata, &place, shebang.as_ref())?,
    };
    argv.extend(rest);
    Ok(Program { argv, file: place.copy, language, left_behind: place.left_behind })
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

fn place(path: &Path, args: &RunArgs, spec: &SandboxSpec) -> Result<Place> {
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
        Error::new(ErrorCode::InvalidPath, format!("the name of {} cannot be used inside", path.display()))
    })?;
    let in_workspace = match &spec.workspace {
        Some(workspace) => files::canonical(path)?.strip_prefix(&workspace.source).ok().map(Path::to_path_buf),
        None => None,
    };
    let relative = match &in_workspace {
        Some(below) => below.to_str().ok_or_else(|| {
            Error::new(ErrorCode::InvalidPath, format!("the path {} is not valid UTF-8", path.display()))
        })?,
        None => name,
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

/// The command line for a file whose language nobody named.
fn interpreted(
    path: &Path,
    metadata: &Metadata,
    place: &Place,
    shebang: Option<&Shebang>,
) -> Result<(Vec<String>, Option<&'static Language>)> {
    let language = Language::of_file(&place.name, shebang);
    let named = shebang.filter(|shebang| language == Language::by_interpreter(shebang.program_name()));
    match (language, named) {
        // The `#!` line agrees with the language: its flags count, and so does a version such as python3.11.
        (Some(language), Some(shebang)) => {
            let known = language.interpreters.contains(&shebang.program_name());
            let program = if known { interpreter(language) } else { shebang.program_name() };
            Ok((shebang.run_file(program, &place.inside), Some(language)))
        }
        (Some(language), None) => Ok((language.run_file(interpreter(language), &place.inside), Some(language))),
        (None, Some(shebang)) => Ok((shebang.run_file(&shebang.program, &place.inside), None)),
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

fn read_shebang(path: &Path) -> Result<Option<Shebang>> {
    let mut beginning = Vec::new();
    let file = files::open_ordinary(path)?;
    file.take(FIRST_LINE).read_to_end(&mut beginning).map_err(|error| files::cannot_read(path, error))?;
    Ok(Shebang::parse(&beginning))
}

fn by_name(name: &str) -> Result<&'static Language> {
    Language::by_name(name).ok_or_else(|| {
        Error::new(ErrorCode::UnknownLanguage, format!("{name:?} is not a language that is known here"))
            .hint(format!("languages: {}; any other program runs with: glovebox run -- COMMAND", Language::names()))
    })
}

/// The first of an interpreter's names that this machine has, or its usual name when there is none.
fn interpreter(language: &Language) -> &'static str {
    let is_here = |name: &&&str| PROGRAM_DIRS.iter().any(|dir| fs::exists(Path::new(dir).join(name)).unwrap_or(false));
    language.interpreters.iter().find(is_here).unwrap_or(&language.interpreters[0])
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
