//! The messages, written by hand in prost's derive so that building needs no protoc.

use prost::{Enumeration, Message};

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
}

/// The command started.
#[derive(Clone, PartialEq, Message)]
pub struct Started {
    /// Its process id inside.
    #[prost(int32, tag = "1")]
    pub pid: i32,
}

/// The command ended; exactly one of the two is there.
#[derive(Clone, PartialEq, Message)]
pub struct Exited {
    /// Exit code.
    #[prost(int32, optional, tag = "1")]
    pub code: Option<i32>,
    /// Signal.
    #[prost(int32, optional, tag = "2")]
    pub signal: Option<i32>,
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
    /// The process id inside of the run's command.
    #[prost(int32, tag = "2")]
    pub pid: i32,
}

/// A terminal's new size.
#[derive(Clone, PartialEq, Message)]
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
