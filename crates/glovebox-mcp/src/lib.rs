//! A sandbox for each conversation with an AI agent, over the Model Context Protocol.
//!
//! Where to read first: [`serve`] speaks with one client until it goes; `server` answers what the protocol asks; `tools` has a
//! file for each group of tools and one table of all; `conversation` holds the sandbox, which is made when a tool first needs
//! it and ends with the client; `running` sees a run through, with progress and cancellation; `answer` turns what came of a
//! call into content that a model reads; `roots` are the folders of the host that a client may copy from and to.
//!
//! Invariant: standard output carries the protocol and nothing else. What a model asks for is no more trusted than what runs
//! inside: every path of the host is opened below a folder that the user named, by a call that follows no link.

mod answer;
mod call;
mod conversation;
mod instructions;
mod pattern;
mod process;
mod report;
mod resources;
mod roots;
mod running;
mod server;
mod shown;
mod stdio;
mod subscriptions;
mod text;
mod tools;
mod walk;

use std::{path::PathBuf, time::Duration};

use glovebox_core::{Command, Label, Limits, Result, SandboxSpec};
use glovebox_engine::{Engine, Toolchains};
use glovebox_ledger::Ledger;

pub use roots::Roots;
pub use stdio::serve;

/// What the user allows, and how sandboxes are made.
pub struct Settings {
    /// The folder that everything is kept below.
    pub data_dir: PathBuf,
    /// The record of runs, unless none is wanted.
    pub ledger: Option<Ledger>,
    /// The name of the server, as clients show it.
    pub name: String,
    /// The sandbox to make for the conversation.
    pub spec: SandboxSpec,
    /// Toolchains of the caller that appear inside.
    pub toolchains: Toolchains,
    /// A living sandbox to use in place of one of its own.
    pub sandbox: Option<String>,
    /// Variables and secrets of every command; its argv does not count.
    pub variables: Command,
    /// The caller's labels, on every run.
    pub labels: Vec<Label>,
    /// Folders of the host that can be copied from and to.
    pub roots: Roots,
    /// Whether changes may be brought to the workspace's folder of the host.
    pub allow_apply: bool,
}

impl Settings {
    /// How long a call may take at the most.
    pub(crate) fn longest(&self) -> Duration {
        self.limits().timeout
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.spec.limits
    }
}

/// An engine with the record that the settings ask for.
pub(crate) fn recorded(engine: Engine, settings: &Settings) -> Engine {
    match &settings.ledger {
        Some(ledger) => engine.with_ledger(ledger.clone()),
        None => engine,
    }
}

/// Checks a folder of the host that can be copied from and to.
pub fn roots(folders: &[PathBuf]) -> Result<Roots> {
    Roots::open(folders)
}
