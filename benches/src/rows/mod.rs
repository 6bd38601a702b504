//! One file for each row of the table.

mod changes;
mod cold;
mod command_line;
mod density;
mod docker;
mod exec;
mod files;
mod living_run;
mod mcp;
mod memory;
mod ordinary_user;
mod output;
mod rate;
mod recording;
mod second_run;
mod sessions;
mod terminal;

use anyhow::Result;

use crate::{Bench, report::Report};

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Row {
    /// Library: create, run, destroy.
    Cold,
    /// `glovebox run` from the shell.
    Cli,
    /// Library, cold, as an ordinary user.
    User,
    /// A second run in a living sandbox.
    Second,
    /// A run in a sandbox that stays, with usage per run.
    Living,
    /// `glovebox exec` from the shell.
    Exec,
    /// One more line, and a figure, in a Python session.
    Session,
    /// A tool over MCP.
    Mcp,
    /// What recording adds to a run.
    Recording,
    /// Cold sandboxes per second.
    Rate,
    /// Memory of an idle sandbox.
    Memory,
    /// Many sandboxes that stay, idle.
    Density,
    /// 1 GiB of output.
    Output,
    /// Text through a terminal.
    Terminal,
    /// The change set of a large tree.
    Changes,
    /// Files of a living sandbox, in, out and listed.
    Files,
    /// The Docker backend against `docker` itself.
    Docker,
}

impl Row {
    /// Every row.
    pub(crate) const ALL: &'static [Row] = &[
        Row::Cold,
        Row::Cli,
        Row::User,
        Row::Second,
        Row::Living,
        Row::Exec,
        Row::Session,
        Row::Mcp,
        Row::Recording,
        Row::Rate,
        Row::Memory,
        Row::Density,
        Row::Output,
        Row::Terminal,
        Row::Changes,
        Row::Files,
        Row::Docker,
    ];

    /// Measures it.
    pub(crate) fn measure(self, bench: &Bench, report: &mut Report) -> Result<()> {
        match self {
            Row::Cold => cold::measure(bench, report),
            Row::Cli => command_line::measure(bench, report),
            Row::User => ordinary_user::measure(bench, report),
            Row::Second => second_run::measure(bench, report),
            Row::Living => living_run::measure(bench, report),
            Row::Exec => exec::measure(bench, report),
            Row::Session => sessions::measure(bench, report),
            Row::Mcp => mcp::measure(bench, report),
            Row::Recording => recording::measure(bench, report),
            Row::Rate => rate::measure(bench, report),
            Row::Memory => memory::measure(bench, report),
            Row::Density => density::measure(bench, report),
            Row::Output => output::measure(bench, report),
            Row::Terminal => terminal::measure(bench, report),
            Row::Changes => changes::measure(bench, report),
            Row::Files => files::measure(bench, report),
            Row::Docker => docker::measure(bench, report),
        }
    }
}
