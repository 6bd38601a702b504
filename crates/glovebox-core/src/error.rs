//! What Glovebox says when it could not do its part: a stable code, a message, a hint.
//!
//! The fate of a program is never an [`Error`]; it is an [`Outcome`](crate::Outcome).

use std::{fmt, io, path::Path};

use crate::SandboxId;

/// The result of anything that Glovebox itself may fail at.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! error_codes {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal, $exit:literal;)*) => {
        /// A stable name for a kind of failure. Scripts may rely on these texts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode { $($(#[doc = $doc])* $name,)* }

        impl ErrorCode {
            /// Every code, for the reference docs.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name,)*];

            /// The stable text of this code, as it stands in JSON.
            pub fn as_str(self) -> &'static str {
                match self { $(ErrorCode::$name => $text,)* }
            }

            /// The exit code of the command line for this error.
            pub fn exit_code(self) -> u8 {
                match self { $(ErrorCode::$name => $exit,)* }
            }

            /// What this code means, one line.
            pub fn meaning(self) -> &'static str {
                match self { $(ErrorCode::$name => concat!($($doc),*).trim_ascii(),)* }
            }
        }
    };
}

error_codes! {
    /// The command line was not understood.
    Usage = "usage", 2;
    /// A value does not parse or is out of its range.
    InvalidValue = "invalid_value", 2;
    /// An environment name is empty or holds `=`, NUL or a line break, or a value holds NUL.
    InvalidEnvironment = "invalid_environment", 2;
    /// A mount's source or target breaks the rules for mounts.
    InvalidMount = "invalid_mount", 2;
    /// A path inside the sandbox breaks the rules for such paths.
    InvalidPath = "invalid_path", 2;
    /// A configuration file cannot be read or holds something unknown.
    InvalidConfiguration = "invalid_configuration", 2;
    /// A project's configuration file opens the sandbox, and the caller does not trust the project.
    UntrustedConfig = "untrusted_config", 125;
    /// A file or folder that was named does not exist.
    FileNotFound = "file_not_found", 125;
    /// A file or folder that was named cannot be read.
    FileUnreadable = "file_unreadable", 125;
    /// A folder was expected.
    NotADirectory = "not_a_directory", 125;
    /// A folder is where a file was expected.
    IsADirectory = "is_a_directory", 125;
    /// A pipe, a socket, a device or a file of the kernel's own, which is neither read nor written.
    NotAnOrdinaryFile = "not_an_ordinary_file", 125;
    /// Something is there already.
    FileExists = "file_exists", 125;
    /// A folder is not empty.
    FolderNotEmpty = "folder_not_empty", 125;
    /// The user inside may not do this to the file or folder.
    PermissionDenied = "permission_denied", 125;
    /// The file or folder can only be read.
    ReadOnly = "read_only", 125;
    /// There is no room left inside: bytes, or files and folders.
    DiskFull = "disk_full", 125;
    /// A name is longer than 255 bytes, or a path longer than 4095.
    NameTooLong = "name_too_long", 125;
    /// What was asked for would be larger than is done.
    TooLarge = "too_large", 125;
    /// An archive cannot be read.
    InvalidArchive = "invalid_archive", 125;
    /// Two paths lie in different mounts, between which nothing can be renamed.
    DifferentMounts = "different_mounts", 125;
    /// A file inside could not be read or changed for another reason.
    FileFailed = "file_failed", 125;
    /// The language of a file is not known, or the name given is not a language.
    UnknownLanguage = "unknown_language", 125;
    /// The toolchain of a language is not there.
    ToolchainNotFound = "toolchain_not_found", 125;
    /// A secret's source did not give a value.
    SecretUnavailable = "secret_unavailable", 125;
    /// The program was not found inside the sandbox.
    CommandNotFound = "command_not_found", 127;
    /// The program was found but cannot be executed.
    CommandNotExecutable = "command_not_executable", 126;
    /// The working directory does not exist inside the sandbox or cannot be entered.
    WorkdirUnusable = "workdir_unusable", 125;
    /// The backend cannot work on this host.
    BackendUnavailable = "backend_unavailable", 125;
    /// There is no image of this name, or nobody here may have it.
    ImageNotFound = "image_not_found", 125;
    /// An image could not be fetched.
    ImageUnavailable = "image_unavailable", 125;
    /// A layer of isolation that was asked for is missing.
    LayerMissing = "layer_missing", 125;
    /// A step of making a sandbox failed.
    SandboxSetup = "sandbox_setup", 125;
    /// A sandbox was killed, but the kernel does not let a process of it end yet.
    StillEnding = "still_ending", 125;
    /// A Docker engine is spoken to through a network without TLS.
    NoTls = "no_tls", 125;
    /// The sandbox went away or stopped answering.
    SandboxLost = "sandbox_lost", 125;
    /// The guest broke the rules of the channel.
    ChannelViolation = "channel_violation", 125;
    /// There are as many sandboxes, runs or connections at one time as there may be.
    TooMany = "too_many", 125;
    /// An artifact could not be stored.
    ArtifactFailed = "artifact_failed", 125;
    /// The ledger cannot be opened, read or written.
    LedgerUnavailable = "ledger_unavailable", 125;
    /// The ledger was written by a newer version of Glovebox.
    LedgerTooNew = "ledger_too_new", 125;
    /// Something that the ledger should hold is not there or is not what was stored.
    LedgerDamaged = "ledger_damaged", 125;
    /// There is no run with this id.
    RunNotFound = "run_not_found", 125;
    /// A shortened id stands for several.
    AmbiguousId = "ambiguous_id", 125;
    /// No sandbox has this id or name.
    SandboxNotFound = "sandbox_not_found", 125;
    /// Another sandbox, volume or project has this name already.
    NameTaken = "name_taken", 125;
    /// No volume has this name.
    VolumeNotFound = "volume_not_found", 125;
    /// No project has this name.
    ProjectNotFound = "project_not_found", 125;
    /// A volume or project is attached to a sandbox, or used by a run, and cannot be removed.
    InUse = "in_use", 125;
    /// A file breaks the rules of its project: what it is, its size, its type, or how many there are.
    FileRefused = "file_refused", 125;
    /// The sandbox is in a state in which this cannot be done.
    WrongState = "wrong_state", 125;
    /// No session has this name.
    SessionNotFound = "session_not_found", 125;
    /// The session has another run under way.
    SessionBusy = "session_busy", 125;
    /// What the session held is lost, because its interpreter ended.
    SessionLost = "session_lost", 125;
    /// This backend or this host cannot do what was asked for.
    NotSupported = "not_supported", 125;
    /// The host is not as the run saw it, so its changes were not applied.
    Conflicts = "conflicts", 1;
    /// No apply is on the list that could be undone.
    NothingToReverse = "nothing_to_reverse", 125;
    /// Somebody else is applying changes to the same folder.
    FolderBusy = "folder_busy", 125;
    /// An operation of the host's file system failed.
    HostIo = "host_io", 125;
    /// Something that should not happen happened; please report it.
    Internal = "internal", 125;
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Glovebox could not do its part.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// The stable code.
    pub code: ErrorCode,
    /// What happened, for people. Never holds a secret.
    pub message: String,
    /// What to do about it, where there is something to do.
    pub hint: Option<String>,
    /// The failure below this one.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// What is said of a file or folder of the host that was named and cannot be used.
    pub fn unusable(path: &Path, why: io::Error) -> Self {
        let code = match why.kind() {
            io::ErrorKind::NotFound => ErrorCode::FileNotFound,
            io::ErrorKind::NotADirectory => ErrorCode::NotADirectory,
            _ => ErrorCode::FileUnreadable,
        };
        Error::new(code, format!("{} cannot be used", path.display())).because(why)
    }

    /// An error with a code and a message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Error { code, message: message.into(), hint: None, source: None }
    }

    /// The same error with a hint about what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same error with the failure below it, whose text joins the message.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let source = source.into();
        self.message = format!("{}: {source}", self.message);
        self.source = Some(source);
        self
    }

    /// What is said of a living sandbox that is not there yet.
    pub fn being_started(id: SandboxId) -> Self {
        Error::new(ErrorCode::WrongState, format!("the sandbox {id} is being started")).hint("try again in a moment")
    }

    /// The same error with a failure of the host below it. Where that is a want of descriptors it is another error, which says so.
    #[must_use]
    pub fn or_too_many(self, cause: io::Error) -> Self {
        match cause.raw_os_error() {
            Some(EMFILE) => Error::new(ErrorCode::TooMany, "this process has as many files open as it may")
                .because(cause)
                .hint("ulimit -n tells how many that are, and raises it; or do less at one time"),
            Some(ENFILE) => {
                Error::new(ErrorCode::TooMany, "this machine has as many files open as it may").because(cause)
            }
            _ => self.because(cause),
        }
    }
}

/// The kernel's number for a machine that has no descriptor left, and for a process that has none.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
