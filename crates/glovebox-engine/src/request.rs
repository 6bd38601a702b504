//! What a caller asks for.

use std::path::PathBuf;

use bytes::Bytes;
use glovebox_core::{
    Command, ExceptionRecord, Filling, InsidePath, Label, Language, Limits, Result, ResultKind, SandboxSpec,
    SessionName, Warning,
};
use tokio::sync::mpsc;

use crate::{sessions::driver_of, source::Compile, toolchain::Toolchains};

/// A run to make: the command, the sandbox for it, and what goes in and comes out.
#[derive(Debug)]
pub struct RunRequest {
    /// What to run.
    pub command: Command,
    /// The sandbox to make for it. In a living sandbox only its time and output limits count.
    pub spec: SandboxSpec,
    /// Files that are copied in before the command starts.
    pub files: Vec<InputFile>,
    /// What the command reads.
    pub stdin: Stdin,
    /// Globs below `/workspace` of files to keep; `outputs/**` is always kept.
    pub artifacts: Vec<String>,
    /// The caller's labels.
    pub labels: Vec<Label>,
    /// Gives the command a terminal of this size; its output is then one stream.
    pub terminal: Option<TerminalSize>,
    /// Whether the output is kept for the result.
    pub capture: Capture,
    /// A step before the command that makes it from source.
    pub compile: Option<Compile>,
    /// Toolchains of the caller that appear inside, first in PATH.
    pub toolchains: Toolchains,
    /// The session that it runs in, in place of a process of its own.
    pub session: Option<InSession>,
    /// What the result is to say beside what the engine finds, such as that another backend was used than the one asked for.
    pub warnings: Vec<Warning>,
}

impl RunRequest {
    /// A run of `command` in a fresh sandbox with the default limits, no network, no input.
    pub fn new(command: Command) -> Self {
        RunRequest {
            command,
            spec: SandboxSpec::default(),
            files: Vec::new(),
            stdin: Stdin::Empty,
            artifacts: Vec::new(),
            labels: Vec::new(),
            terminal: None,
            capture: Capture::Keep,
            compile: None,
            toolchains: Toolchains::default(),
            session: None,
            warnings: Vec::new(),
        }
    }

    /// A run of `code` in a session of a sandbox that stays. The interpreter is started by the first run; what a run defines is there for
    /// the next. The languages are those of [`session_languages`](crate::session_languages).
    pub fn in_session(name: SessionName, language: &str, code: impl Into<String>) -> Result<Self> {
        let driver = driver_of(language)?;
        let code = code.into();
        // As it would be run without a session, for the record; what is started is up to the driver.
        let program = driver.argv().swap_remove(0);
        let form = Language::by_name(driver.language).and_then(|language| language.ways.first()?.code_form(&code));
        let limits = Limits::default();
        let filling = Filling { program: &program, source: &code, out: "", cpus: limits.cpus, memory: limits.memory };
        let argv = form.map_or_else(|| vec![program.clone(), code.clone()], |form| filling.fill(form));
        let mut command = Command::argv(argv)?;
        command.language = Some(driver.language.to_owned());
        let session = InSession { name, language: driver.language, code, workdir: None };
        Ok(RunRequest { session: Some(session), ..RunRequest::new(command) })
    }
}

/// A run's session, and the code that it runs there.
#[derive(Clone, Debug)]
pub struct InSession {
    /// The session's name.
    pub name: SessionName,
    /// The language of its interpreter.
    pub language: &'static str,
    /// What to run. The variables and secrets of the command are set before, and stay.
    pub code: String,
    /// The folder to go to before. Without one, the session stays where it is.
    pub workdir: Option<InsidePath>,
}

/// A file that is copied into the sandbox.
#[derive(Clone, Debug)]
pub struct InputFile {
    /// Where it appears inside.
    pub target: InsidePath,
    /// Its bytes.
    pub content: FileContent,
    /// Its permission bits.
    pub mode: u32,
}

/// Where the bytes of an input file come from.
#[derive(Clone, Debug)]
pub enum FileContent {
    /// A file or folder of the host; a folder is copied whole.
    Host(PathBuf),
    /// These bytes.
    Bytes(Bytes),
    /// None: it is an empty folder.
    Folder,
}

/// What a command reads.
#[derive(Debug, Default)]
pub enum Stdin {
    /// Nothing: end of file at once.
    #[default]
    Empty,
    /// These bytes.
    Bytes(Bytes),
    /// What comes through a channel; its end is the end of file. For a terminal these are the keys.
    Stream(mpsc::Receiver<Bytes>),
}

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}

/// Whether output is kept for the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Capture {
    /// Head and tail up to the limit are kept.
    #[default]
    Keep,
    /// Only counted; the caller reads the events.
    Count,
}

/// What happens during a run, as it happens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The command started.
    Started,
    /// Bytes on standard output, or of the terminal.
    Stdout(Bytes),
    /// Bytes on standard error.
    Stderr(Bytes),
    /// Output that this reader was too late or too slow for. Only a run in a living sandbox loses some, and never its
    /// owner, who is waited for.
    Missed {
        /// Bytes of standard output.
        stdout: u64,
        /// Bytes of standard error.
        stderr: u64,
    },
    /// A run in a session shows something.
    Result(SessionOutput),
    /// The code of a run in a session failed. Its traceback came on standard error too.
    Exception(ExceptionRecord),
}

/// Something that a run in a session shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOutput {
    /// What it is: a MIME type.
    pub mime: String,
    /// Which of the values that the run shows it is of, from 0. One value may come in several forms.
    pub value: u64,
    /// Why it is shown.
    pub kind: ResultKind,
    /// Its bytes.
    pub bytes: Bytes,
}
