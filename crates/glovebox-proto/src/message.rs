//! The messages, written by hand in prost's derive so that building needs no protoc.

use bytes::Bytes;
use prost::{Enumeration, Message};

use crate::session::{SessionRun, SessionStarted};

/// Starts a command.
#[derive(Clone, PartialEq, Message)]
pub struct StartRun {
    /// Program and arguments.
    #[prost(string, repeated, tag = "1")]
    pub argv: Vec<String>,
    /// The whole environment, `K=V`.
    #[prost(string, repeated, tag = "2")]
    pub env: Vec<String>,
    /// Working directory inside.
    #[prost(string, tag = "3")]
    pub cwd: String,
    /// Rows of the terminal, when there is one.
    #[prost(uint32, optional, tag = "4")]
    pub rows: Option<u32>,
    /// Columns of the terminal, when there is one.
    #[prost(uint32, optional, tag = "5")]
    pub columns: Option<u32>,
    /// Standard input is empty: no pipe is made.
    #[prost(bool, tag = "6")]
    pub stdin_empty: bool,
    /// The host's name for the run. No other run under way may have it.
    #[prost(string, tag = "7")]
    pub run: String,
    /// After so many milliseconds the guest ends the run by itself, with SIGTERM first.
    #[prost(uint64, optional, tag = "8")]
    pub timeout_ms: Option<u64>,
    /// Milliseconds between SIGTERM and SIGKILL when it does.
    #[prost(uint64, tag = "9")]
    pub grace_ms: u64,
    /// Others may attach: output is also kept when the owner has it already.
    #[prost(bool, tag = "10")]
    pub keep_output: bool,
    /// Whatever the host wants to be told by [`Attached`]; nothing to the guest.
    #[prost(bytes = "bytes", tag = "11")]
    pub note: Bytes,
    /// The session that it runs in. Arguments, environment and folder are then those of the interpreter, if it is started now.
    #[prost(message, optional, tag = "12")]
    pub session: Option<SessionRun>,
}

/// The command started.
#[derive(Clone, PartialEq, Message)]
pub struct Started {
    /// Its process id inside.
    #[prost(int32, tag = "1")]
    pub pid: i32,
    /// How long its start took.
    #[prost(uint64, tag = "2")]
    pub took_ns: u64,
    /// The session that it is in.
    #[prost(message, optional, tag = "3")]
    pub session: Option<SessionStarted>,
}

/// The command ended; exactly one of code and signal is there.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Exited {
    /// Exit code.
    #[prost(int32, optional, tag = "1")]
    pub code: Option<i32>,
    /// Signal.
    #[prost(int32, optional, tag = "2")]
    pub signal: Option<i32>,
    /// Why it was ended, when it did not end by itself. The first reason that reached the guest.
    #[prost(enumeration = "EndReason", tag = "3")]
    pub reason: i32,
    /// How long it ran, nanoseconds.
    #[prost(uint64, tag = "4")]
    pub lasted_ns: u64,
    /// The interpreter of its session ended with it.
    #[prost(bool, tag = "5")]
    pub session_over: bool,
    /// It was ended while it waited for its turn in a session, and nothing of it ran.
    #[prost(bool, tag = "6")]
    pub never_began: bool,
}

/// Why somebody ended a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum EndReason {
    /// Nobody did.
    None = 0,
    /// Somebody asked for its end.
    Cancelled = 1,
    /// Its time was over.
    TimedOut = 2,
    /// It wrote more than it may.
    OutputExceeded = 3,
    /// A watch found no room for its bytes.
    DiskFull = 4,
    /// A watch found no room for its files.
    InodesFull = 5,
    /// A watch found too much in a volume.
    VolumeFull = 6,
    /// The interpreter of its session said something that it may not.
    BrokenSession = 7,
    /// The interpreter of its session closed its socket and went on, as another program does that takes its place.
    LeftSession = 8,
}

/// The command could not be started.
#[derive(Clone, PartialEq, Message)]
pub struct StartFailed {
    /// Which step failed: `exec`, `chdir`, or another of the guest's steps.
    #[prost(string, tag = "1")]
    pub step: String,
    /// The error number.
    #[prost(int32, tag = "2")]
    pub errno: i32,
}

/// Sends a signal to the processes of a run: all of the sandbox but the guest's own when it is the only run, else the
/// command, its descendants and its session.
#[derive(Clone, PartialEq, Message)]
pub struct Signal {
    /// Its number.
    #[prost(int32, tag = "1")]
    pub number: i32,
    /// Which run.
    #[prost(string, tag = "2")]
    pub run: String,
    /// Why the run is to end, when the signal is to end it.
    #[prost(enumeration = "EndReason", tag = "3")]
    pub reason: i32,
}

/// Attaches to a run.
#[derive(Clone, PartialEq, Message)]
pub struct Attach {
    /// Which run.
    #[prost(string, tag = "1")]
    pub run: String,
    /// Bytes of standard output that are known already.
    #[prost(uint64, tag = "2")]
    pub stdout_from: u64,
    /// Bytes of standard error that are known already.
    #[prost(uint64, tag = "3")]
    pub stderr_from: u64,
    /// As what.
    #[prost(enumeration = "Role", tag = "4")]
    pub role: i32,
    /// Bytes of results that are known already.
    #[prost(uint64, tag = "5")]
    pub results_from: u64,
}

/// What somebody is to a run. The command waits for its owner, as for the reader of a pipe; others lose what they are too
/// slow for. At a terminal it waits for them too, for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Role {
    /// Somebody who looks on.
    Watcher = 0,
    /// Its owner, unless it has one.
    OwnerIfFree = 1,
    /// Its owner, whoever was before.
    Owner = 2,
}

/// The answer to [`Attach`]; what the run wrote follows.
#[derive(Clone, PartialEq, Message)]
pub struct Attached {
    /// Whether the reader is the owner.
    #[prost(bool, tag = "1")]
    pub owner: bool,
    /// Bytes of input that have reached the guest.
    #[prost(uint64, tag = "2")]
    pub stdin_bytes: u64,
    /// The note of [`StartRun`].
    #[prost(bytes = "bytes", tag = "3")]
    pub note: Bytes,
    /// The size of its terminal, when it has one.
    #[prost(message, optional, tag = "4")]
    pub terminal: Option<Resize>,
    /// For a terminal: what brings another one into the modes that this one was in before the output that is still there.
    #[prost(bytes = "bytes", tag = "5")]
    pub modes: Bytes,
    /// Bytes of standard output so far.
    #[prost(uint64, tag = "6")]
    pub stdout_bytes: u64,
}

/// Output that is not there any more.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Gap {
    /// Bytes of standard output.
    #[prost(uint64, tag = "1")]
    pub stdout: u64,
    /// Bytes of standard error.
    #[prost(uint64, tag = "2")]
    pub stderr: u64,
    /// Bytes of results.
    #[prost(uint64, tag = "3")]
    pub results: u64,
}

/// A run that the guest knows of.
#[derive(Clone, PartialEq, Message)]
pub struct RunInfo {
    /// Which run.
    #[prost(string, tag = "1")]
    pub run: String,
    /// The process id inside of its command.
    #[prost(int32, tag = "2")]
    pub pid: i32,
    /// When it started, or was asked for while it waits, nanoseconds since 1970.
    #[prost(int64, tag = "3")]
    pub started_ns: i64,
    /// How it ended, once it did.
    #[prost(message, optional, tag = "4")]
    pub ended: Option<Exited>,
    /// Bytes of standard output so far.
    #[prost(uint64, tag = "5")]
    pub stdout_bytes: u64,
    /// Bytes of standard error so far.
    #[prost(uint64, tag = "6")]
    pub stderr_bytes: u64,
    /// Whether it has an owner.
    #[prost(bool, tag = "7")]
    pub owned: bool,
    /// Whether it has a terminal.
    #[prost(bool, tag = "8")]
    pub terminal: bool,
    /// Whether it waits for its turn in a session.
    #[prost(bool, tag = "9")]
    pub waiting: bool,
}

/// The size of a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Resize {
    /// Rows.
    #[prost(uint32, tag = "1")]
    pub rows: u32,
    /// Columns.
    #[prost(uint32, tag = "2")]
    pub columns: u32,
}

/// What a file entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum FileKind {
    /// A regular file; its bytes follow.
    Regular = 0,
    /// A folder.
    Directory = 1,
    /// A symbolic link.
    Symlink = 2,
}

/// A file begins.
#[derive(Clone, PartialEq, Message)]
pub struct FileEntry {
    /// Absolute path when it goes in; path below the query's root when it comes out.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Permission bits.
    #[prost(uint32, tag = "2")]
    pub mode: u32,
    /// What it is.
    #[prost(enumeration = "FileKind", tag = "3")]
    pub kind: i32,
    /// Where a symbolic link points.
    #[prost(string, tag = "4")]
    pub link: String,
    /// When a regular file was last modified, nanoseconds since 1970; the guest sets it on what goes in.
    #[prost(int64, tag = "5")]
    pub modified_ns: i64,
}

/// Which files to send.
#[derive(Clone, PartialEq, Message)]
pub struct ArtifactQuery {
    /// Globs below the root.
    #[prost(string, repeated, tag = "1")]
    pub globs: Vec<String>,
    /// No more files than this.
    #[prost(uint64, tag = "2")]
    pub most: u64,
    /// No more bytes than this in all files together; a file that would pass it is left out.
    #[prost(uint64, tag = "3")]
    pub most_bytes: u64,
    /// The folder that globs and names count from.
    #[prost(string, tag = "4")]
    pub root: String,
}
