//! Flags that several verbs share: those of a command, and those of the sandbox that it runs in.

use std::path::PathBuf;

use clap::Args;

/// What to run and how, for `run` and `exec`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CommandArgs {
    /// The language of FILE or CODE: python, javascript, typescript, shell, bash, ruby, php, perl, lua, r, go, java, kotlin,
    /// c, c++, rust, c#, powershell or sql
    #[arg(long, short, value_name = "LANGUAGE", help_heading = "What to run")]
    pub(crate) language: Option<String>,
    /// Run this code; needs --language
    #[arg(long, short, value_name = "CODE", allow_hyphen_values = true, help_heading = "What to run")]
    pub(crate) code: Option<String>,
    /// Give the program a terminal; Ctrl-C then goes to the program
    #[arg(long, short, help_heading = "What to run")]
    pub(crate) terminal: bool,
    /// Read the program's standard input from this file
    #[arg(long, value_name = "FILE", help_heading = "What to run")]
    pub(crate) stdin: Option<PathBuf>,
    /// Start in this folder of the sandbox, relative to /workspace/agent_workspace
    #[arg(long, value_name = "DIR", help_heading = "What to run")]
    pub(crate) workdir: Option<String>,
    /// Wall time, then the run is ended
    #[arg(long, value_name = "DURATION", default_value = "5m", allow_hyphen_values = true, help_heading = "Limits")]
    pub(crate) timeout: String,
    /// Time between the polite and the hard ending of a run that timed out
    #[arg(long, value_name = "DURATION", default_value = "2s", allow_hyphen_values = true, help_heading = "Limits")]
    pub(crate) grace: String,
    /// Bytes of each output stream that the JSON result keeps; its head and tail stay
    #[arg(long, value_name = "SIZE", default_value = "10m", allow_hyphen_values = true, help_heading = "Limits")]
    pub(crate) output_limit: String,
    /// End the run when a stream passes --output-limit
    #[arg(long, help_heading = "Limits")]
    pub(crate) output_limit_kill: bool,
    /// Copy a file or folder into the working directory (repeatable)
    #[arg(long, value_name = "SRC[:DST]", help_heading = "Files")]
    pub(crate) file: Vec<String>,
    /// Keep files that match, below /workspace; outputs/** is always kept (repeatable)
    #[arg(long, value_name = "GLOB", help_heading = "Files")]
    pub(crate) artifact: Vec<String>,
    /// Set a variable; K alone passes yours on (repeatable)
    #[arg(long, value_name = "K[=V]", help_heading = "Environment and network")]
    pub(crate) env: Vec<String>,
    /// Set the variables of a file with lines K=V (repeatable)
    #[arg(long, value_name = "FILE", help_heading = "Environment and network")]
    pub(crate) env_file: Vec<String>,
    /// Set a secret variable, masked in the result: NAME alone takes yours, else NAME=env:VAR, NAME=file:PATH or
    /// NAME=command:CMD (repeatable)
    #[arg(long, value_name = "NAME[=SOURCE]", help_heading = "Environment and network")]
    pub(crate) secret: Vec<String>,
    /// Put a label on the run (repeatable)
    #[arg(long, value_name = "K=V", help_heading = "The run")]
    pub(crate) label: Vec<String>,
    /// Leave no record of the run
    #[arg(long, help_heading = "The run")]
    pub(crate) no_record: bool,
}

/// The sandbox to make, for `run` and `create`. The defaults of the limits are those of `glovebox_core::Limits`; a test
/// compares them.
#[derive(Clone, Debug, Args)]
pub(crate) struct SandboxArgs {
    /// Run as this user of the sandbox: user, root, nobody, UID or UID:GID
    #[arg(long, value_name = "USER", default_value = "user", allow_hyphen_values = true, help_heading = "What to run")]
    pub(crate) user: String,
    /// The root file system: host, which is this machine's own programs, read-only; or with --backend docker an image such as
    /// python:3.12-slim, which is the language's own when none is named
    #[arg(long, value_name = "IMAGE", default_value = "host", help_heading = "What to run")]
    pub(crate) image: String,
    /// The runtime of the Docker engine that makes the container, such as runsc
    #[arg(long, value_name = "NAME", help_heading = "What to run")]
    pub(crate) runtime: Option<String>,
    /// Use this backend when that of --backend cannot be used: native. The result says so; a named image is no other
    /// backend's, and is never replaced (repeatable)
    #[arg(long, value_name = "NAME", help_heading = "What to run")]
    pub(crate) fallback: Vec<String>,
    /// Memory of all processes together; there is no swap
    #[arg(long, value_name = "SIZE", default_value = "2g", allow_hyphen_values = true, help_heading = "Limits")]
    pub(crate) memory: String,
    /// Processors, parts of one allowed
    #[arg(long, value_name = "NUMBER", default_value = "1", allow_hyphen_values = true, help_heading = "Limits")]
    pub(crate) cpus: String,
    /// Processes and threads at one time
    #[arg(long, value_name = "NUMBER", default_value = "100", allow_hyphen_values = true, help_heading = "Limits")]
    pub(crate) pids: String,
    /// Bytes of all that the program can write
    #[arg(long, value_name = "SIZE", default_value = "1g", allow_hyphen_values = true, help_heading = "Limits")]
    pub(crate) disk: String,
    /// Files and folders that the program can make
    #[arg(long, value_name = "NUMBER", default_value = "100000", allow_hyphen_values = true, help_heading = "Limits")]
    pub(crate) inodes: String,
    /// Open files of one process
    #[arg(long, value_name = "NUMBER", default_value = "1024", allow_hyphen_values = true, help_heading = "Limits")]
    pub(crate) open_files: String,
    /// Make DIR the working directory inside; writes stay in the sandbox and come back as changes
    #[arg(long, value_name = "DIR", help_heading = "Files")]
    pub(crate) workspace: Option<PathBuf>,
    /// What happens to writes into the workspace: overlay, read-only or read-write
    #[arg(long, value_name = "MODE", default_value = "overlay", help_heading = "Files")]
    pub(crate) workspace_mode: String,
    /// Show a file or folder of this machine inside, read-only unless :rw is added (repeatable)
    #[arg(long, value_name = "SRC:DST[:ro|rw]", help_heading = "Files")]
    pub(crate) mount: Vec<String>,
    /// Attach a volume, read-write unless :ro is added; it is made when it is not there (repeatable)
    #[arg(long, value_name = "NAME:DST[:ro|rw]", help_heading = "Files")]
    pub(crate) volume: Vec<String>,
    /// Make it a sandbox of this project: its files read-only at /workspace/project_files, its volume at /workspace/project
    #[arg(long, value_name = "NAME", help_heading = "Files")]
    pub(crate) project: Option<String>,
    /// Keep what this package manager downloads: pip, npm, cargo, go, maven, gradle, nuget, gem, composer or all (repeatable)
    #[arg(long, value_name = "TOOL", help_heading = "Files")]
    pub(crate) cache: Vec<String>,
    /// Show a toolchain of yours inside, read-only and first in PATH: a folder with bin in it, such as
    /// ~/.rustup/toolchains/NAME (repeatable)
    #[arg(long, value_name = "DIR", help_heading = "Files")]
    pub(crate) toolchain: Vec<String>,
    /// What the program reaches: none, or full, which is all that this machine reaches
    #[arg(long, value_name = "NETWORK", default_value = "none", help_heading = "Environment and network")]
    pub(crate) network: String,
    /// The weakest isolation to accept: namespaces, or landlock, which runs with less where the machine gives no namespaces
    #[arg(long, value_name = "TIER", default_value = "namespaces", help_heading = "The run")]
    pub(crate) isolation: String,
    /// Fail when this layer of isolation is missing (repeatable)
    #[arg(long, value_name = "LAYER", help_heading = "The run")]
    pub(crate) require_layer: Vec<String>,
}

/// Reads the value of a switch's variable.
pub(crate) fn parse_switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "t" | "yes" | "y" | "on" => Ok(true),
        "0" | "false" | "f" | "no" | "n" | "off" => Ok(false),
        _ => Err("expected 1, true, yes or on, or 0, false, no or off".to_owned()),
    }
}
