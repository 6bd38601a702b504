//! Flags of the verbs for living sandboxes.

use std::ffi::OsString;

use clap::Args;

use super::{CommandArgs, SandboxArgs};

pub(super) const LIST_EXAMPLES: &str = "\
Examples:
  glovebox list
  glovebox list --label team=red --state stopped
  glovebox list --ended                     # also those that ended by themselves, and why
  glovebox list --json | jq -r '.sandboxes[].sandbox'";

pub(super) const SHOW_EXAMPLES: &str = "\
Examples:
  glovebox show box
  glovebox show --json box | jq .limits";

pub(super) const ATTACH_EXAMPLES: &str = "\
Examples:
  run=$(glovebox exec --detach box -- make); glovebox attach $run
  run=$(glovebox exec -t --detach box -- htop); glovebox attach $run
  glovebox attach                           # the only terminal there is

What is typed goes to the program. Several may be attached to one terminal, and all of them
may type; its size is that of the one who typed last.";

pub(super) const SHELL_EXAMPLES: &str = "\
Examples:
  glovebox shell                            # in a fresh sandbox that is gone afterwards
  glovebox shell --workspace .              # with this folder, which is not changed
  glovebox shell box                        # in a sandbox that stays; ctrl-] d leaves it running
  glovebox shell box -- python3             # another program than a shell
  glovebox attach                           # back to it

A terminal that is closed, or whose connection breaks, leaves the shell of a sandbox that stays
at work, and ends that of a fresh one. The exit code is the shell's.";

pub(super) const WAIT_EXAMPLES: &str = "\
Examples:
  run=$(glovebox exec --detach box -- make); glovebox wait $run";

pub(super) const CANCEL_EXAMPLES: &str = "\
Examples:
  run=$(glovebox exec --detach box -- sleep 60); glovebox cancel $run
  glovebox runs list --outcome running      # which there are";

pub(super) const STOP_EXAMPLES: &str = "\
Examples:
  glovebox stop box
  glovebox stop $(glovebox list --ids)      # all of them";

pub(super) const START_EXAMPLES: &str = "\
Examples:
  glovebox start box
  glovebox start $(glovebox list --ids --state stopped)";

pub(super) const PAUSE_EXAMPLES: &str = "\
Examples:
  glovebox pause box
  glovebox pause --json box | jq .reclaimed_bytes";

pub(super) const RESUME_EXAMPLES: &str = "\
Examples:
  glovebox resume box
  glovebox resume $(glovebox list --ids --state paused)";

pub(super) const RESET_EXAMPLES: &str = "\
Examples:
  glovebox reset box";

pub(super) const DESTROY_EXAMPLES: &str = "\
Examples:
  glovebox destroy box
  glovebox destroy --all                    # every sandbox there is; asks first
  glovebox destroy --all --label team=red --yes

One that cannot be destroyed does not keep the others.";

/// Flags of `create`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CreateArgs {
    /// A name for it, which can stand for its id
    #[arg(long, value_name = "NAME", help_heading = "The sandbox")]
    pub(crate) name: Option<String>,
    /// End it after so long without use; a running process is use; 0 for never
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "1h",
        allow_hyphen_values = true,
        help_heading = "The sandbox"
    )]
    pub(crate) idle_timeout: String,
    /// End it so long after it was made; 0 for never
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "24h",
        allow_hyphen_values = true,
        help_heading = "The sandbox"
    )]
    pub(crate) max_age: String,
    /// Put a label on it (repeatable)
    #[arg(long, value_name = "K=V", help_heading = "The sandbox")]
    pub(crate) label: Vec<String>,
    /// Set a variable for every command in it; K alone passes yours on (repeatable)
    #[arg(long, value_name = "K[=V]", help_heading = "Environment and network")]
    pub(crate) env: Vec<String>,
    /// Set the variables of a file with lines K=V (repeatable)
    #[arg(long, value_name = "FILE", help_heading = "Environment and network")]
    pub(crate) env_file: Vec<String>,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
}

/// Flags of `exec`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExecArgs {
    /// The sandbox: its id, the beginning of its id, or its name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The file to run, and the program's arguments
    #[arg(value_name = "FILE", trailing_var_arg = true, num_args = 0..)]
    pub(crate) program: Vec<OsString>,
    /// Print the run's id and do not wait for it; attach, wait and cancel take the id
    #[arg(long, short, help_heading = "The run")]
    pub(crate) detach: bool,
    /// Run CODE, or the text of FILE, in this session: an interpreter that stays, and knows what runs before it defined; it is
    /// begun by the first run
    #[arg(long, value_name = "NAME", help_heading = "What to run")]
    pub(crate) session: Option<String>,
    /// With --session: write what the run shows (values, figures, tables) into files in this folder, beside those of earlier runs
    #[arg(long, value_name = "DIR", help_heading = "Files")]
    pub(crate) results: Option<std::path::PathBuf>,
    /// The keys that leave a terminal, whose program goes on: ctrl-X or one character each, commas between; or none. The first
    /// one twice types it
    #[arg(long, value_name = "KEYS", default_value = "ctrl-],d", help_heading = "The run")]
    pub(crate) detach_keys: String,
    #[command(flatten)]
    pub(crate) command: CommandArgs,
}

/// Flags of `attach`.
#[derive(Clone, Debug, Args)]
pub(crate) struct AttachArgs {
    /// The id of the run, or as much of its beginning as no other run has. May be left out where only one terminal is at work
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// The keys that leave a terminal, whose program goes on: ctrl-X or one character each, commas between; or none. The first
    /// one twice types it
    #[arg(long, value_name = "KEYS", default_value = "ctrl-],d")]
    pub(crate) detach_keys: String,
}

/// Flags of `shell`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ShellArgs {
    /// A sandbox that stays: its id, the beginning of its id, or its name. Without one, a fresh sandbox that is gone afterwards
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// The keys that leave a terminal in a sandbox that stays: ctrl-X or one character each, commas between; or none. The first
    /// one twice types it
    #[arg(long, value_name = "KEYS", default_value = "ctrl-],d", help_heading = "The run")]
    pub(crate) detach_keys: String,
    #[command(flatten)]
    pub(crate) command: CommandArgs,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
}

/// One run.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArg {
    /// The id of the run, or as much of its beginning as no other run has
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
}

/// Flags of `list`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ListSandboxesArgs {
    /// Also those that ended by themselves, with the reason
    #[arg(long)]
    pub(crate) ended: bool,
    /// Only the ids, one a line
    #[arg(long)]
    pub(crate) ids: bool,
    /// Only sandboxes in this state: creating, ready, paused, stopping, stopped, destroying or gone
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,
    /// Only sandboxes with this label (may be given several times; all must be there)
    #[arg(long, value_name = "K=V")]
    pub(crate) label: Vec<String>,
}

/// One sandbox.
#[derive(Clone, Debug, Args)]
pub(crate) struct SandboxArg {
    /// The sandbox: its id, the beginning of its id, or its name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// Several sandboxes.
#[derive(Clone, Debug, Args)]
pub(crate) struct SandboxesArg {
    /// The sandboxes: ids, beginnings of ids, or names
    #[arg(value_name = "ID", num_args = 1.., required = true)]
    pub(crate) ids: Vec<String>,
}

/// Flags of `destroy`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DestroyArgs {
    /// The sandboxes: ids, beginnings of ids, or names
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Every sandbox that glovebox list shows; at a terminal it asks first. Counts only on the command line
    #[arg(long)]
    pub(crate) all: bool,
    /// With --all: only sandboxes with this label (may be given several times; all must be there)
    #[arg(long, value_name = "K=V")]
    pub(crate) label: Vec<String>,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Flags of `usage`.
#[derive(Clone, Debug, Args)]
pub(crate) struct UsageArgs {
    /// The sandbox: its id, the beginning of its id, or its name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Go on, a line every second, until the sandbox ends
    #[arg(long, short)]
    pub(crate) follow: bool,
}

/// Flags of `top`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TopArgs {
    /// Look so often, 100ms to 1h
    #[arg(long, short = 'n', value_name = "DURATION", default_value = "1s")]
    pub(crate) interval: String,
}
