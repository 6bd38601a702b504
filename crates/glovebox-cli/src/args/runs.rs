//! Flags of the verbs that look back at runs.

use clap::{Args, Subcommand};

const LIST_EXAMPLES: &str = "\
Examples:
  glovebox runs list --outcome timed_out --since 1h
  glovebox runs list --label team=red --limit 10
  glovebox runs list --sandbox box --outcome running            # what is at work in a sandbox
  glovebox runs list --before run_01JCQ6V8XM7B2T4N9R5K3H1DZE    # the next page

Variables and configuration keys of these flags carry the verb's name: --since is
GLOVEBOX_RUNS_SINCE and runs-since.";

const SHOW_EXAMPLES: &str = "\
Examples:
  glovebox runs show                        # the last run
  glovebox runs show --json | jq .outcome";

const LOGS_EXAMPLES: &str = "\
Examples:
  glovebox runs logs                        # what the last run wrote
  glovebox runs logs --stderr | less";

#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    pub(crate) verb: RunsVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunsVerb {
    /// List runs, the newest first
    #[command(after_help = LIST_EXAMPLES)]
    List(ListArgs),
    /// Show all that is known of a run
    ///
    /// With --json this is the result document, as `run --json` gave it.
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArgs),
    /// Write the output of a run, byte for byte
    ///
    /// Without a flag, its standard output goes to standard output and its standard error to standard error. Of a stream
    /// that was longer than --output-limit there are the head and the tail.
    #[command(after_help = LOGS_EXAMPLES)]
    Logs(LogsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only runs that ended so: exited, signaled, timed_out, out_of_memory, output_exceeded, disk_full, cancelled or
    /// lost; or running
    #[arg(long, value_name = "KIND")]
    pub(crate) outcome: Option<String>,
    /// Only runs with this label (may be given several times; all must be there)
    #[arg(long, value_name = "K=V")]
    pub(crate) label: Vec<String>,
    /// Only runs of files or code in this language
    #[arg(long, short = 'l', value_name = "LANGUAGE")]
    pub(crate) language: Option<String>,
    /// Only runs in this sandbox: its id or name, or the whole id of one that is gone
    #[arg(long, value_name = "ID")]
    pub(crate) sandbox: Option<String>,
    /// Only runs of this project
    #[arg(long, value_name = "NAME")]
    pub(crate) project: Option<String>,
    /// Only runs that started at most so long ago
    #[arg(long, value_name = "DURATION")]
    pub(crate) since: Option<String>,
    /// At most so many runs
    #[arg(long, value_name = "NUMBER", default_value = "50", allow_hyphen_values = true)]
    pub(crate) limit: String,
    /// Only runs that started before this one: the next page
    #[arg(long, value_name = "RUN")]
    pub(crate) before: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The id of the run, or as much of its beginning as no other run has [default: the last run]
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The id of the run, or as much of its beginning as no other run has [default: the last run]
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Only its standard output
    #[arg(long, conflicts_with = "stderr")]
    pub(crate) stdout: bool,
    /// Only its standard error, which then goes to standard output
    #[arg(long)]
    pub(crate) stderr: bool,
}
