//! What host and guest say to each other.
//!
//! The channel is HTTP/2 on one byte stream; the host is the client. Each request is a `POST` to one of the
//! [`path`]s. Bodies in both directions are rows of [`Frame`]s. Every size is bounded here, on both sides: the
//! guest is a hostile witness, and whatever it sends past a bound makes its sandbox fail.

pub mod container;
pub mod file;
mod frame;
mod leaf;
mod message;
mod places;
pub mod session;

pub use frame::{Decoder, Frame, FrameError, FrameKind, MAX_PAYLOAD};
pub use leaf::LeafWord;
pub use message::{
    ArtifactQuery, Attach, Attached, EndReason, Exited, FileEntry, FileKind, Gap, Resize, Role, RunInfo, Signal,
    StartFailed, StartRun, Started,
};
pub use places::Places;

/// Version of this protocol; the first thing that the guest says.
pub const VERSION: u32 = 1;

/// Request paths.
pub mod path {
    /// Starts a command; the body carries its input, the answer its output and end.
    pub const RUN: &str = "/run";
    /// Writes files; the body carries them.
    pub const PUT: &str = "/put";
    /// Reads the files that match a query; the answer carries them.
    pub const FETCH: &str = "/fetch";
    /// Attaches to a run; body and answer are as those of [`RUN`].
    pub const ATTACH: &str = "/attach";
    /// Lists the runs under way and those whose end nobody asked for yet.
    pub const RUNS: &str = "/runs";
    /// Reads a file ([`ReadFile`](crate::file::ReadFile)).
    pub const READ: &str = "/files/read";
    /// Reads several small files ([`ReadFiles`](crate::file::ReadFiles)).
    pub const READ_SMALL: &str = "/files/read-small";
    /// Writes a file ([`WriteFile`](crate::file::WriteFile)).
    pub const WRITE: &str = "/files/write";
    /// Lists a folder ([`ListFolder`](crate::file::ListFolder)).
    pub const LIST: &str = "/files/list";
    /// Tells what lies under a path ([`StatFile`](crate::file::StatFile)).
    pub const STAT: &str = "/files/stat";
    /// Tells all that lies below some folders ([`SurveyFiles`](crate::file::SurveyFiles)).
    pub const SURVEY: &str = "/files/survey";
    /// Makes folders, renames, removes, sets modes ([`ChangeFiles`](crate::file::ChangeFiles)).
    pub const CHANGE: &str = "/files/change";
    /// Gives a folder as an archive ([`FolderArchive`](crate::file::FolderArchive)).
    pub const PULL: &str = "/files/pull";
    /// Takes an archive into a folder ([`FolderArchive`](crate::file::FolderArchive)).
    pub const PUSH: &str = "/files/push";
    /// Tells what happens to files ([`WatchFiles`](crate::file::WatchFiles)).
    pub const WATCH: &str = "/files/watch";
    /// Sends a signal to a run. A stream of its own, because the run's may be full of input that nobody reads.
    pub const SIGNAL: &str = "/signal";
    /// Says that all commands are about to be frozen: their clocks stand still, and no command is started.
    pub const PAUSE: &str = "/pause";
    /// Says that all commands go on.
    pub const RESUME: &str = "/resume";
    /// Lists the sessions.
    pub const SESSIONS: &str = "/sessions";
    /// Interrupts what runs in a session ([`SessionName`](crate::session::SessionName)).
    pub const INTERRUPT: &str = "/sessions/interrupt";
    /// Ends a session, and all that it started ([`SessionName`](crate::session::SessionName)).
    pub const END_SESSION: &str = "/sessions/end";
}

/// Bounds of the HTTP/2 connection.
pub mod bound {
    /// Connections to one guest at one time.
    pub const CONNECTIONS: usize = 256;
    /// Streams of one connection at one time.
    pub const STREAMS: u32 = 4096;
    /// Bytes under way on one stream.
    pub const STREAM_WINDOW: u32 = 256 * 1024;
    /// Bytes under way on the connection: as many as all its streams may have, so that no number of readers that stand still
    /// holds up the others.
    pub const CONNECTION_WINDOW: u32 = STREAMS * STREAM_WINDOW;
    /// Bytes under way on one connection that a bridge carries: as many as on the busiest stream of it, twice.
    pub const CARRIED_WINDOW: u32 = 2 * STREAM_WINDOW;
    /// Bytes under way on a bridge. All of its connections are read at all times, so none holds up the others; and what waits in the
    /// bridge is memory of its sandbox.
    pub const BRIDGE_WINDOW: u32 = 8 * CARRIED_WINDOW;
    /// Bytes of one HTTP/2 frame.
    pub const FRAME: u32 = 128 * 1024;
    /// Bytes of all headers of a request.
    pub const HEADERS: u32 = 16 * 1024;
    /// Bytes of a run's output that the guest keeps. More than what may be under way to a reader when its connection breaks
    /// (a window and two chunks) and what waits for it ([`WAITING`], and the chunk that passed that), so that an owner who connects again
    /// has missed nothing. On a slow way all of it is full.
    pub const OUTPUT: usize = 2 * STREAM_WINDOW as usize + 2 * CHUNK;
    /// Bytes of output that wait for an owner before its command does.
    pub const WAITING: usize = 2 * CHUNK;
    /// Runs that are over and whose end nobody asked for.
    pub const ENDED_RUNS: usize = 64;
    /// Bytes of a run's note.
    pub const NOTE: usize = 64 * 1024;
    /// Bytes that one read of a pipe or file takes.
    pub const CHUNK: usize = 64 * 1024;
    /// Small files that are read by one request. None has more bytes than [`CHUNK`].
    pub const SMALL_FILES: usize = 64;
    /// Sessions of one sandbox.
    pub const SESSIONS: usize = 64;
    /// Bytes of one result of a session.
    pub const RESULT: usize = 16 * 1024 * 1024;
    /// Bytes of all results of one run.
    pub const ALL_RESULTS: u64 = 32 * 1024 * 1024;
    /// Results of one run.
    pub const RESULTS: usize = 1000;
    /// Bytes of what a session tells of an exception.
    pub const EXCEPTION: usize = 256 * 1024;
    /// Bytes of the code of one run in a session, and what goes with it.
    pub const SESSION_INPUT: usize = 640 * 1024;
    /// Bytes of one frame of entries or events: a message takes more room when it is read than when it travels.
    pub const LISTED: usize = 128 * 1024;
}
