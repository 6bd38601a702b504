//! Flags of `mcp`.

use std::path::PathBuf;

use clap::Args;

use super::SandboxArgs;

pub(super) const EXAMPLES: &str = "\
Examples:
  claude mcp add sandbox -- glovebox mcp            # Claude Code; the guide has other programs
  glovebox mcp --workspace ~/project                # your folder inside; writes stay inside
  glovebox mcp --workspace ~/project --allow-apply  # the agent may bring its changes to your folder
  glovebox mcp --root ~/data --memory 4g            # files that the agent may copy in and out
  glovebox mcp --sandbox box                        # a sandbox of yours, which stays
  glovebox mcp --backend docker                     # in a container, of the image of python unless --image names one

It is started by an agent program, not by hand. Standard input and output carry the protocol.";

/// Flags of `mcp`.
#[derive(Clone, Debug, Args)]
pub(crate) struct McpArgs {
    /// Work in this sandbox, which stays, in place of a fresh one for each conversation: its id or name
    #[arg(long, value_name = "ID", help_heading = "The conversation")]
    pub(crate) sandbox: Option<String>,
    /// A name for the server, as the agent program shows it
    #[arg(long, value_name = "NAME", default_value = "glovebox", help_heading = "The conversation")]
    pub(crate) name: String,
    /// Let the agent copy files from and to this folder of your machine (repeatable)
    #[arg(long, value_name = "DIR", help_heading = "The conversation")]
    pub(crate) root: Vec<String>,
    /// Let the agent bring its changes to the folder of --workspace
    #[arg(long, help_heading = "The conversation")]
    pub(crate) allow_apply: bool,
    /// The folder of --workspace can only be read: --workspace-mode read-only
    #[arg(long, help_heading = "Files")]
    pub(crate) read_only: bool,
    /// Wall time of one call, then it is ended
    #[arg(long, value_name = "DURATION", default_value = "5m", allow_hyphen_values = true, help_heading = "Limits")]
    pub(crate) timeout: String,
    /// Bytes of each output stream that are kept of a call; its head and tail stay
    #[arg(long, value_name = "SIZE", default_value = "10m", allow_hyphen_values = true, help_heading = "Limits")]
    pub(crate) output_limit: String,
    /// Set a variable for every command; K alone passes yours on (repeatable)
    #[arg(long, value_name = "K[=V]", help_heading = "Environment and network")]
    pub(crate) env: Vec<String>,
    /// Set the variables of a file with lines K=V (repeatable)
    #[arg(long, value_name = "FILE", help_heading = "Environment and network")]
    pub(crate) env_file: Vec<String>,
    /// Set a secret variable, masked in answers and records: NAME alone takes yours, else NAME=env:VAR, NAME=file:PATH or
    /// NAME=command:CMD (repeatable)
    #[arg(long, value_name = "NAME[=SOURCE]", help_heading = "Environment and network")]
    pub(crate) secret: Vec<String>,
    /// Put a label on every run (repeatable)
    #[arg(long, value_name = "K=V", help_heading = "The run")]
    pub(crate) label: Vec<String>,
    /// Leave no record of runs
    #[arg(long, help_heading = "The run")]
    pub(crate) no_record: bool,
    #[command(flatten)]
    pub(crate) of_sandbox: SandboxArgs,
}

impl McpArgs {
    /// The folders of `--root`, with the caller's home written out.
    pub(crate) fn roots(texts: Vec<&str>) -> Vec<PathBuf> {
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let folder = |text: &str| match (text.strip_prefix("~/"), &home) {
            (Some(below), Some(home)) => home.join(below),
            _ => PathBuf::from(text),
        };
        texts.into_iter().map(folder).collect()
    }
}
