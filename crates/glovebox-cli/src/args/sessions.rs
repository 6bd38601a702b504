//! Flags of the verbs for sessions.

use clap::{Args, Subcommand};

const SESSIONS_EXAMPLES: &str = "\
Examples:
  glovebox exec box -l python --session main -c 'x = 1'
  glovebox exec box --session main -c 'x + 1'      # 2
  glovebox sessions list box
  glovebox sessions interrupt box main             # as Ctrl-C: what it holds stays
  glovebox sessions restart box main               # begins anew with the next run";

#[derive(Debug, Args)]
#[command(after_help = SESSIONS_EXAMPLES)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    pub(crate) verb: SessionsVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsVerb {
    /// List the sessions of a sandbox
    #[command(after_help = "Examples:\n  glovebox sessions list box\n  glovebox sessions list --json box")]
    List(super::SandboxArg),
    /// Interrupt what runs in a session, as Ctrl-C would; what it holds stays
    #[command(after_help = "Examples:\n  glovebox sessions interrupt box main")]
    Interrupt(SessionArgs),
    /// End the interpreter of a session and all that it started; the next run in it begins anew
    #[command(after_help = "Examples:\n  glovebox sessions restart box main")]
    Restart(SessionArgs),
    /// End sessions, with all that they started
    ///
    /// One that cannot be closed does not keep the others.
    #[command(after_help = "Examples:\n  glovebox sessions close box main plots")]
    Close(ManySessionsArgs),
}

/// A session of a sandbox.
#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// The sandbox: its id, the beginning of its id, or its name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The session
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// Sessions of a sandbox.
#[derive(Debug, Args)]
pub(crate) struct ManySessionsArgs {
    /// The sandbox: its id, the beginning of its id, or its name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The sessions
    #[arg(value_name = "NAME", num_args = 1.., required = true)]
    pub(crate) names: Vec<String>,
}
