//! The engine: drives sandboxes through a backend.
//!
//! ```no_run
//! use std::sync::Arc;
//! use glovebox_core::Command;
//! use glovebox_engine::{Engine, RunRequest};
//! # async fn example(backend: Arc<dyn glovebox_core::Backend>) -> glovebox_core::Result<()> {
//! let engine = Engine::new(backend);
//! let result = engine.run(RunRequest::new(Command::argv(["python3", "-c", "print(6 * 7)"])?)).await?;
//! assert_eq!(result.stdout.text.as_deref(), Some("42\n"));
//! # Ok(()) }
//! ```
//!
//! Where to read first: `engine` makes sandboxes and runs, `run` drives one run from its start to its result, `following`
//! sees one command through, `line` is the stream to it, `attach` finds runs of living sandboxes again, `compile` is the step
//! before a run, `channel` speaks with the guest, `output` keeps head and tail of a stream, `limits` bounds what an engine
//! does at one time, `collecting` takes what a run leaves: `run_changes` tells what it changed, `artifacts` stores files, `entry` writes to the ledger,
//! `contents` brings changed files there. `toolchain` and `source` turn code in a language into commands. `files` reads and
//! writes what is inside, `through_guest` copies workspaces in and finds out changes where the host cannot see them. `sessions` are interpreters that stay. `storage` shows volumes and projects to sandboxes, `shelf` keeps them.

mod artifacts;
mod attach;
mod begin;
mod caller;
mod channel;
mod collecting;
mod compile;
mod contents;
mod engine;
mod entry;
mod file_name;
mod files;
mod following;
mod handles;
mod input;
mod known_contents;
mod limits;
mod line;
mod living;
mod others;
mod output;
mod place;
mod programs;
mod project_files;
mod projects;
mod registry;
mod request;
mod result;
mod run;
mod run_changes;
mod screen;
mod sessions;
mod shelf;
mod source;
mod storage;
mod through_guest;
mod toolchain;
mod volumes;

pub use attach::{KnownRun, RunEnd};
pub use contents::CHANGE_RECORD;
pub use engine::{Engine, Sandbox, remove_unfinished_programs};
pub use files::{
    Archive, Content, Cursor, Entries, Entry, EntryKind, FileEvent, FileEvents, FileStream, Files, FollowLinks, Page,
    Parents, Range, Recursion, Replace, WriteOptions,
};
pub use glovebox_terminal::Screen;
pub use handles::{Canceller, TerminalHandle};
pub use limits::{EngineLimits, WhenFull};
pub use living::{EndedAt, NewSandbox, Paused, SandboxChanges, SandboxStatus};
pub use project_files::{ProjectFile, ProjectFiles};
pub use projects::{ProjectRules, ProjectStatus, Projects};
pub use request::{Capture, Event, FileContent, InSession, InputFile, RunRequest, SessionOutput, Stdin, TerminalSize};
pub use run::Run;
pub use sessions::{SessionStatus, session_languages};
pub use source::{Compile, Prepared, Source, prepare};
pub use toolchain::{Tool, Toolchains, not_found};
pub use volumes::{VolumeStatus, Volumes};
