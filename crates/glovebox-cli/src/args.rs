//! The verbs and flags, as clap reads them.
//!
//! Values stay text here. They are checked once, in [`crate::request`], where an error can say whether the value came
//! from a flag, a variable or a configuration file. [`command`] gives every flag its variable, so none can be forgotten.

mod files;
mod images;
mod living;
mod mcp;
mod runs;
mod sessions;
mod shared;
mod storage;

use std::{ffi::OsString, path::PathBuf};

use clap::{Arg, ArgAction, Args, CommandFactory, Parser, Subcommand};

pub(crate) use files::{CpArgs, FileArg, FilesAct, FilesArgs, ListFilesArgs, ReadArgs, RemoveArgs, WatchArgs};
pub(crate) use images::{ImagesArgs, ImagesVerb, PullArgs};
pub(crate) use living::{
    AttachArgs, CreateArgs, DestroyArgs, ExecArgs, ListSandboxesArgs, RunArg, SandboxArg, SandboxesArg, ShellArgs,
    TopArgs, UsageArgs,
};
pub(crate) use mcp::McpArgs;
pub(crate) use runs::{ListArgs, LogsArgs, RunsArgs, RunsVerb, ShowArgs};
pub(crate) use sessions::{ManySessionsArgs, SessionArgs, SessionsArgs, SessionsVerb};
pub(crate) use shared::{CommandArgs, SandboxArgs, parse_switch};
pub(crate) use storage::{
    CreateProjectArgs, CreateVolumeArgs, ProjectFilesVerb, ProjectsArgs, ProjectsVerb, VolumesArgs, VolumesVerb,
};

const EXAMPLES: &str = "\
Examples:
  glovebox run hello.py                     # run a file; its ending or #! line says how
  glovebox run -l python -c 'print(1 + 1)'  # run a piece of code
  glovebox run -- ls -la                    # run a command
  glovebox run --workspace . -- npm test    # run in your folder, which is not changed
  glovebox changes; glovebox apply          # what it would have changed; change it
  glovebox shell                            # a terminal inside
  glovebox create --name box                # a sandbox that stays
  glovebox exec box -- make                 # run in it, again and again

Every flag can also be set by a variable (--memory is GLOVEBOX_MEMORY) and by a key in
glovebox.toml or ~/.config/glovebox/config.toml. A flag beats a variable, which beats
the project's file, which beats yours. A project's file that opens the sandbox counts
only when you trust the project.";

const RUN_EXAMPLES: &str = "\
Examples:
  glovebox run hello.py one two             # what follows the file belongs to the program
  glovebox run --memory 256m --timeout 10s hello.py
  echo data | glovebox run -- wc -c         # standard input goes in
  glovebox run --workspace . main.py        # the file sees its neighbours
  glovebox run --json -- ls | jq .outcome   # one JSON document: how it ended and much more
  glovebox run --secret TOKEN deploy.py     # your variable TOKEN, masked in the result

Exit codes:
  the program's own; 128+n when signal n ended it; 124 timed out; 137 out of memory;
  123 too much output (with --output-limit-kill); 130 cancelled; 126 cannot be executed;
  127 not found; 2 the command line was not understood; 125 anything else that Glovebox
  could not do.";

const CREATE_EXAMPLES: &str = "\
Examples:
  glovebox create --name box --workspace .  # a sandbox with this folder, which is not changed
  glovebox exec box -- npm test             # run something in it, again and again
  glovebox list                             # which there are
  glovebox destroy box                      # and it is gone";

const EXEC_EXAMPLES: &str = "\
Examples:
  glovebox exec box -- ls -la
  glovebox exec box -l python -c 'print(1 + 1)'
  glovebox exec --timeout 10s --env DEBUG=1 box main.py
  glovebox exec box -l python --session main -c 'x = 1'    # an interpreter that stays
  glovebox exec box --session main -c 'x + 1'              # and remembers
  run=$(glovebox exec --detach box -- make); glovebox attach $run

Flags stand before the program; what follows FILE or -- belongs to it. FILE is one of this
machine, and is copied in. Standard input is yours: in a loop that reads lines, give
--stdin /dev/null. Exit codes are those of glovebox run.";

const USAGE_EXAMPLES: &str = "\
Examples:
  glovebox usage box
  glovebox usage --follow box               # a line every second, until it ends
  glovebox usage --follow --json box | jq .memory_bytes";

const TOP_EXAMPLES: &str = "\
Examples:
  glovebox top
  glovebox top --interval 200ms             # looks five times a second
  NO_COLOR=1 glovebox top                   # without colours

For programs there are glovebox list --json and glovebox usage --follow --json ID.";

const CHANGES_EXAMPLES: &str = "\
Examples:
  glovebox run --workspace . -- make format
  glovebox changes                          # what the last run here changed
  glovebox changes --summary 01JCQ6V8       # the list alone, of another run
  glovebox changes box                      # all that changed in a sandbox since it was made
  glovebox changes --patch > agent.patch    # for git apply
  glovebox changes --only src --json        # for programs";

const APPLY_EXAMPLES: &str = "\
Examples:
  glovebox apply                            # all changes of the last run here
  glovebox apply --dry-run                  # what that would do
  glovebox apply -i                         # asks about each file
  glovebox apply 01JCQ6V8 --to ../copy      # another run, another folder
  glovebox apply box                        # all that changed in a sandbox
  glovebox apply --reverse                  # undoes the last apply to this folder

What never comes out of a sandbox: devices, pipes and sockets, set-user-id bits, and
anything through a link that leads out of the folder. An apply that is cut short, by
whatever, is undone by the next one, or by glovebox gc.";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  glovebox doctor
  glovebox doctor --json | jq '.checks[] | select(.status != \"ok\")'
  glovebox doctor --fix                     # folders, leftovers; each thing done is said
  sudo glovebox doctor --fix --user ann     # sub-ids for ann, so that her sandboxes are tighter";

/// Runs code that nobody has read, in a sealed sandbox.
///
/// A sandbox has no network, none of your files and none of your variables, unless you give them to it. It needs no
/// Docker, no KVM and no daemon. That of a run is gone when the run is over; one that you create stays.
#[derive(Debug, Parser)]
#[command(name = "glovebox", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) verb: Option<Verb>,
}

/// Flags that every verb takes, before and after it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global flags")]
pub(crate) struct Globals {
    /// What makes the sandbox: native, which is this host's own kernel, or docker
    #[arg(long, global = true, value_name = "NAME", default_value = "native")]
    pub(crate) backend: String,
    /// Print one JSON document on standard output, and nothing else
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Read this configuration file in place of the project's glovebox.toml
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Let the project's glovebox.toml open the sandbox this time; read it first
    #[arg(long, global = true)]
    pub(crate) trust_project: bool,
    /// Say on standard error what was used and what it took
    #[arg(long, short = 'v', global = true)]
    pub(crate) verbose: bool,
    /// Where sandboxes, volumes, projects, the record of runs, artifacts and compiled programs are kept;
    /// what is in another one is not seen [default: /var/lib/glovebox for root, else ~/.local/share/glovebox]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a file, a piece of code or a command in a fresh sandbox that is gone afterwards
    ///
    /// FILE is copied into the sandbox; its language comes from its ending or its #! line. All that follows FILE or --
    /// belongs to the program.
    #[command(
        after_help = RUN_EXAMPLES,
        override_usage = "glovebox run [FLAGS] FILE [ARGS]...\n       glovebox run [FLAGS] -l LANGUAGE -c CODE [ARGS]...\n       glovebox run [FLAGS] -- COMMAND [ARGS]..."
    )]
    Run(Box<RunArgs>),
    /// Make a sandbox that stays, and print its id
    ///
    /// It stays when this command is over, until it is destroyed or its time is over. Work in it with exec, files and cp. Its
    /// files are kept on disk; stop ends its processes and keeps them.
    #[command(after_help = CREATE_EXAMPLES)]
    Create(Box<CreateArgs>),
    /// List the sandboxes that stay
    #[command(after_help = living::LIST_EXAMPLES)]
    List(ListSandboxesArgs),
    /// Show all that is known of a sandbox
    #[command(after_help = living::SHOW_EXAMPLES)]
    Show(SandboxArg),
    /// Run a file, a piece of code or a command in a sandbox that stays
    ///
    /// The same as run, but in the sandbox of this id or name, which keeps its files and processes.
    #[command(
        after_help = EXEC_EXAMPLES,
        override_usage = "glovebox exec [FLAGS] ID FILE [ARGS]...\n       glovebox exec [FLAGS] ID -l LANGUAGE -c CODE [ARGS]...\n       glovebox exec [FLAGS] ID -- COMMAND [ARGS]..."
    )]
    Exec(Box<ExecArgs>),
    /// Open a shell in a sandbox, on this terminal
    ///
    /// In the sandbox of this id or name, or in a fresh one that is gone afterwards. It is bash where there is bash, else sh; what
    /// follows -- is run in its place. Of what programs print, only what cannot harm your terminal reaches it.
    #[command(
        after_help = living::SHELL_EXAMPLES,
        override_usage = "glovebox shell [FLAGS] [ID] [-- COMMAND [ARGS]...]",
        mut_arg("timeout", |arg| arg.default_value("24h")),
        mut_arg("language", |arg| arg.hide(true)),
        mut_arg("code", |arg| arg.hide(true)),
        mut_arg("terminal", |arg| arg.hide(true)),
        mut_arg("stdin", |arg| arg.hide(true))
    )]
    Shell(Box<ShellArgs>),
    /// See what a run in a sandbox that stays writes, and wait for its end; or come back to its terminal
    ///
    /// First what is still kept of what it wrote, then the rest as it comes. Ctrl-C stops looking; the run goes on. A run that
    /// is over is shown as it was recorded. Of a run with a terminal, first its screen is shown, and what is typed goes to it.
    #[command(after_help = living::ATTACH_EXAMPLES)]
    Attach(AttachArgs),
    /// Wait for the end of a run, and end with its exit code
    #[command(after_help = living::WAIT_EXAMPLES)]
    Wait(RunArg),
    /// End a run
    #[command(after_help = living::CANCEL_EXAMPLES)]
    Cancel(RunArg),
    /// Show what a sandbox uses: CPU, memory, processes, disk
    ///
    /// CPU time, peaks and bytes are those since it was started. Looking is not use: the idle time of the sandbox goes on.
    #[command(after_help = USAGE_EXAMPLES)]
    Usage(UsageArgs),
    /// Watch all sandboxes on the whole terminal, with plots
    ///
    /// A row for each sandbox: CPU, memory, processes, disk, what it reads and writes, runs at work. Enter shows one alone, with
    /// larger plots and what each of its runs uses; ? lists the keys. Looking is not use: the idle time of sandboxes goes on.
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// End all processes of sandboxes and keep their files
    #[command(after_help = living::STOP_EXAMPLES)]
    Stop(SandboxesArg),
    /// Start stopped sandboxes again, with their files
    #[command(after_help = living::START_EXAMPLES)]
    Start(SandboxesArg),
    /// Freeze all processes of sandboxes
    #[command(after_help = living::PAUSE_EXAMPLES)]
    Pause(SandboxesArg),
    /// Let the processes of paused sandboxes go on
    #[command(after_help = living::RESUME_EXAMPLES)]
    Resume(SandboxesArg),
    /// End all processes of sandboxes and clean their working directories, outputs and homes
    #[command(after_help = living::RESET_EXAMPLES)]
    Reset(SandboxesArg),
    /// End sandboxes and remove all that is left of them
    #[command(after_help = living::DESTROY_EXAMPLES, override_usage = "glovebox destroy ID...\n       glovebox destroy --all [--label K=V]... [--yes]")]
    Destroy(DestroyArgs),
    /// Copy files and folders between this machine and sandboxes
    ///
    /// A path in a sandbox is written ID:PATH; - is standard input or output, where a folder is a tar archive. A file arrives
    /// whole or not at all.
    #[command(after_help = files::CP_EXAMPLES)]
    Cp(CpArgs),
    /// Work with the files of a sandbox, one by one
    Files(FilesArgs),
    /// Interpreters that stay in a sandbox and remember: list, interrupt, restart and close them
    ///
    /// exec --session NAME runs code in one, and begins it. Several sessions of a sandbox are apart from each other, but share its
    /// files and limits.
    Sessions(SessionsArgs),
    /// Named storage that outlives sandboxes
    ///
    /// run and create attach a volume with --volume NAME:DST. Any number of sandboxes may have the same one.
    Volumes(VolumesArgs),
    /// Files and storage that belong together and outlive sandboxes
    ///
    /// A sandbox of a project, made with --project NAME, sees its files read-only in /workspace/project_files and writes to its
    /// volume in /workspace/project. No other sandbox does.
    Projects(ProjectsArgs),
    /// What sandboxes of --backend docker start from; those of native have this machine's own programs
    Images(ImagesArgs),
    /// Look back at runs: list them, show one, read its output
    Runs(RunsArgs),
    /// Show what a run changed, or a sandbox since it was made: a list, and the text that came and went
    ///
    /// Without ID it is the last run with this folder as its workspace. Files that .gitignore leaves out are not shown, nor
    /// those that Git itself keeps.
    #[command(after_help = CHANGES_EXAMPLES)]
    Changes(ChangesArgs),
    /// Bring the changes of a run or a sandbox to a folder of this machine: all of them, or none
    ///
    /// Without ID it is the last run with this folder as its workspace. Nothing is applied when the folder is not as the run
    /// saw it; the conflicts are listed, and the exit code is 1.
    #[command(after_help = APPLY_EXAMPLES)]
    Apply(ApplyArgs),
    /// Give an AI agent a sandbox, over the Model Context Protocol
    ///
    /// An agent program starts it and gets tools: run code and commands, work with files, start processes. Each conversation has
    /// a sandbox of its own, made when it is first needed and gone when the program closes the connection.
    #[command(after_help = mcp::EXAMPLES)]
    Mcp(Box<McpArgs>),
    /// Say what this machine can do, what is missing, and the command that gives it
    ///
    /// Looks at the kernel, at what this user may do, at folders, Docker and languages. Changes nothing unless --fix is given. Exit
    /// code 1 when something is missing without which no sandbox can be made; Docker only counts with --backend docker.
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Try to break out of sandboxes on this very machine, and say which guarantees hold
    ///
    /// Makes a few sandboxes as any run would, tries from inside what hostile code would try, and believes what the host
    /// saw. Takes about a second and changes nothing. Exit code 1 when a guarantee does not hold; one that is weaker here
    /// than elsewhere, or could not be judged, is `degraded` and says why.
    #[command(
        after_help = "Examples:\n  glovebox prove\n  glovebox prove --json | jq '.checks[] | select(.status != \"ok\")'"
    )]
    Prove(ProveArgs),
    /// Remove what sandboxes of dead processes left behind, and mend what an apply left that was cut short
    ///
    /// A run cleans up after itself, also when it is interrupted. Only after a `kill -9` of Glovebox or a crash of the
    /// machine is there something to remove, and the next run, or the next apply to the same folder, does that too. Runs of
    /// dead processes become lost runs.
    #[command(after_help = "Examples:\n  glovebox gc")]
    Gc,
    /// Print the completion script of a shell
    #[command(
        after_help = "Examples:\n  glovebox completions bash > ~/.local/share/bash-completion/completions/glovebox"
    )]
    Completions(CompletionsArgs),
    /// Write the man pages into a folder
    #[command(after_help = "Examples:\n  glovebox man ~/.local/share/man/man1")]
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ChangesArgs {
    /// A run, or a sandbox that is there: its id, as much of its beginning as no other has, or the name of the sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Also what .gitignore leaves out, and what Git itself keeps
    #[arg(long)]
    pub(crate) all: bool,
    /// Only this path and what is below it (may be given several times)
    #[arg(long, value_name = "PATH")]
    pub(crate) only: Vec<String>,
    /// Only the list, without the text that came and went
    #[arg(long)]
    pub(crate) summary: bool,
    /// Print a patch for git apply, byte for byte, and nothing else; not to a terminal
    #[arg(long, conflicts_with_all = ["summary", "json"])]
    pub(crate) patch: bool,
    /// At a terminal, show what is longer than that with this command, such as delta; cat is none [default: $PAGER, else less]
    #[arg(long, value_name = "COMMAND")]
    pub(crate) pager: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// A run, or a sandbox that is there: its id, as much of its beginning as no other has, or the name of the sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// The folder to change [default: the workspace of the run or sandbox]
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    /// Say what would be done, and do nothing
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// Show each change and ask
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) interactive: bool,
    /// Only this path and what is below it (may be given several times)
    #[arg(long, value_name = "PATH")]
    pub(crate) only: Vec<String>,
    /// Also what .gitignore leaves out, and what Git itself keeps
    #[arg(long)]
    pub(crate) all: bool,
    /// Also links that lead out of the folder
    #[arg(long)]
    pub(crate) outward_links: bool,
    /// Apply what does not conflict, and leave the rest
    #[arg(long)]
    pub(crate) skip_conflicts: bool,
    /// Undo the last apply to this folder, or the one of ID
    #[arg(long, conflicts_with_all = ["interactive", "only", "all", "outward_links", "skip_conflicts"])]
    pub(crate) reverse: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Do what is safe: make folders, close them to others, remove what dead processes left
    #[arg(long)]
    pub(crate) fix: bool,
    /// With --fix, as root: also give this user sub-ids, and install the tools that hand them out
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ProveArgs {
    /// The weakest isolation to accept: namespaces, or landlock, which runs with less where the machine gives no namespaces
    #[arg(long, value_name = "TIER", default_value = "namespaces")]
    pub(crate) isolation: String,
    /// The image to try in, with the backend docker; without one, that of programs without a language
    #[arg(long, value_name = "IMAGE", default_value = "host", hide_default_value = true)]
    pub(crate) image: String,
    /// The runtime of the Docker engine to try
    #[arg(long, value_name = "NAME")]
    pub(crate) runtime: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The folder, which is made when it is not there
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

/// Flags of `run`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// Leave the sandbox as one that stays, and say its id; it ends after DURATION without use [default: 1h]
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "1h", help_heading = "The run")]
    pub(crate) keep: Option<String>,
    /// The file to run, and the program's arguments
    #[arg(value_name = "FILE", trailing_var_arg = true, num_args = 0..)]
    pub(crate) program: Vec<OsString>,
    #[command(flatten)]
    pub(crate) command: CommandArgs,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
}

/// The whole command line, with a variable for every flag.
pub(crate) fn command() -> clap::Command {
    map_flags(Cli::command(), &with_variable)
}

/// The same with no verb but this one, for the two that are called most and must start soonest: to describe all the others takes
/// longer than to fork a process. It has no help; what it does not understand is for [`command`] to read.
pub(crate) fn short_command(verb: &str) -> Option<clap::Command> {
    let described = match verb {
        "run" => RunArgs::augment_args(clap::Command::new("run")),
        "exec" => ExecArgs::augment_args(clap::Command::new("exec")),
        _ => return None,
    };
    Some(map_flags(Globals::augment_args(clap::Command::new("glovebox")).subcommand(described), &with_variable))
}

/// Changes every flag of the command line; `change` gets the flag's key first. The key is the flag's name, and below a
/// verb of verbs also the name of that verb: `runs list --label` is `runs-label`, since `label` belongs to `run`. For the same
/// reason `list --label` is `list-label`, and `destroy --label` is `destroy-label`.
pub(crate) fn map_flags(command: clap::Command, change: &impl Fn(String, Arg) -> Arg) -> clap::Command {
    let changed = |prefix: &str, arg: Arg| match arg.get_long() {
        Some(long) => change(key(prefix, long), arg),
        None => arg,
    };
    command.mut_args(|arg| changed("", arg)).mut_subcommands(|verb| {
        let name = verb.get_name().to_owned();
        let verb = verb.mut_args(|arg| changed(prefix(&name), arg));
        verb.mut_subcommands(|below| below.mut_args(|arg| changed(&name, arg)))
    })
}

/// What stands before the keys of the flags of a verb.
pub(crate) fn prefix(verb: &str) -> &str {
    if ["list", "destroy"].contains(&verb) { verb } else { "" }
}

/// The key of a flag, by which a configuration file names it.
pub(crate) fn key(prefix: &str, flag: &str) -> String {
    if prefix.is_empty() { flag.to_owned() } else { format!("{prefix}-{flag}") }
}

/// Whether every verb takes this flag.
pub(crate) fn is_global(flag: &str) -> bool {
    Globals::augment_args(clap::Command::new("")).get_arguments().any(|arg| arg.get_long() == Some(flag))
}

/// Whether a variable stands for a flag that every verb takes.
pub(crate) fn is_global_variable(name: &str) -> bool {
    let globals = Globals::augment_args(clap::Command::new(""));
    globals.get_arguments().filter_map(Arg::get_long).any(|flag| variable(flag) == name)
}

/// The variable of a key: `output-limit` is `GLOVEBOX_OUTPUT_LIMIT`.
pub(crate) fn variable(key: &str) -> String {
    format!("GLOVEBOX_{}", key.to_ascii_uppercase().replace('-', "_"))
}

fn with_variable(key: String, arg: Arg) -> Arg {
    // The list of variables would make the help twice as long; its last lines state the rule instead.
    let arg = arg.env(variable(&key)).hide_env(true);
    match arg.get_action() {
        ArgAction::SetTrue => arg.value_parser(parse_switch),
        _ => arg,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn every_flag_has_the_variable_of_its_name() {
        let command = command();
        let mut seen = 0;
        let mut look = |part: &clap::Command, prefix: &str| {
            for arg in part.get_arguments() {
                let Some(long) = arg.get_long() else { continue };
                assert_eq!(arg.get_env().unwrap().to_str().unwrap(), variable(&key(prefix, long)));
                seen += 1;
            }
        };
        look(&command, "");
        for verb in command.get_subcommands() {
            look(verb, prefix(verb.get_name()));
            verb.get_subcommands().for_each(|below| look(below, verb.get_name()));
        }
        assert_eq!(variable(&key("runs", "label")), "GLOVEBOX_RUNS_LABEL");
        assert!(seen > 25, "only {seen} flags were looked at");
    }

    #[test]
    fn the_help_names_every_language() {
        let command = command();
        let run = command.find_subcommand("run").unwrap();
        let language = run.get_arguments().find(|arg| arg.get_id() == "language").unwrap();
        let help = language.get_help().unwrap().to_string();
        for known in glovebox_core::Language::ALL {
            assert!(help.split([' ', ',']).any(|word| word == known.name), "{}", known.name);
        }
    }

    #[test]
    fn every_flag_has_a_help_text_and_every_flag_of_run_a_heading() {
        let command = command();
        let run = command.find_subcommand("run").unwrap();
        for arg in run.get_arguments() {
            assert!(arg.get_help().is_some(), "{}", arg.get_id());
            assert!(arg.get_long().is_none() || arg.get_help_heading().is_some(), "{}", arg.get_id());
        }
    }
}
