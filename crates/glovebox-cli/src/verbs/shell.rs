//! `glovebox shell`: a shell in a sandbox, on the caller's terminal.

use std::{ffi::OsString, path::Path};

use glovebox_core::{Error, ErrorCode, Result};
use glovebox_native::NativeBackend;

use super::{data_dir, exec, living, run, runtime};
use crate::{
    args::{ExecArgs, Globals, RunArgs, ShellArgs},
    backends::{self, Kind},
    flags::{Flags, Origin},
    terminal,
};

/// Shells, the best first. The image `host` has the programs of this machine.
const SHELLS: [&str; 2] = ["/bin/bash", "/bin/sh"];

/// Flags of commands that a shell has no use for.
const NOT_OF_SHELLS: [&str; 3] = ["language", "code", "stdin"];

/// Flags of a sandbox that is made.
const OF_NEW_SANDBOXES: [&str; 19] = [
    "user",
    "image",
    "runtime",
    "fallback",
    "memory",
    "cpus",
    "pids",
    "disk",
    "inodes",
    "open-files",
    "workspace",
    "workspace-mode",
    "mount",
    "volume",
    "project",
    "cache",
    "toolchain",
    "network",
    "isolation",
];

pub(crate) fn execute(
    globals: &Globals,
    mut args: ShellArgs,
    flags: &Flags,
    after_dashes: Option<Vec<OsString>>,
    backend: Option<Result<NativeBackend>>,
) -> Result<u8> {
    check(globals, &args, flags)?;
    args.command.terminal = true;
    // What a variable or a file says of these is for runs of another kind.
    (args.command.language, args.command.code, args.command.stdin) = (None, None, None);
    let (name, of_host) = match &args.id {
        Some(id) => living_name(globals, id)?,
        None => ("glovebox".to_owned(), backends::kind(globals, flags)? == Kind::Native),
    };
    let program = after_dashes.filter(|words| !words.is_empty()).unwrap_or_else(|| match of_host {
        true => {
            args.command.env.push(prompt(&name));
            shell()
        }
        false => shell_of_image(&name),
    });
    match args.id {
        Some(id) => {
            let args = ExecArgs {
                id,
                program: Vec::new(),
                detach: false,
                session: None,
                results: None,
                detach_keys: args.detach_keys,
                command: args.command,
            };
            exec::execute(globals, &args, flags, Some(program))
        }
        None => {
            let args = RunArgs { keep: None, program: Vec::new(), command: args.command, sandbox: args.sandbox };
            run::execute(globals, &args, flags, Some(program), backend)
        }
    }
}

/// Refuses what does not go together.
fn check(globals: &Globals, args: &ShellArgs, flags: &Flags) -> Result<()> {
    let refuse = |message: String, hint: &str| Err(Error::new(ErrorCode::Usage, message).hint(hint));
    let typed = |flag: &&&str| flags.origin(flag) == Origin::Flag;
    if let Some(flag) = NOT_OF_SHELLS.iter().find(typed) {
        return refuse(format!("--{flag} does not belong to a shell"), "glovebox run and glovebox exec take it");
    }
    if let Some(flag) = OF_NEW_SANDBOXES.iter().find(typed).filter(|_| args.id.is_some()) {
        let message = format!("--{flag} is for a fresh sandbox, and one was named");
        return refuse(
            message,
            "leave out the flag, or the sandbox; glovebox create takes the flag for one that stays",
        );
    }
    if globals.json {
        return refuse(
            "shell and --json do not go together".to_owned(),
            "a terminal's output cannot be a JSON document",
        );
    }
    if !terminal::is_here() {
        let hint = "to run commands from a pipe or a file: glovebox exec ID -- sh, or glovebox run -- sh";
        return refuse("shell needs a terminal as standard input".to_owned(), hint);
    }
    Ok(())
}

/// What a sandbox is called at the prompt: its name, or the end of its id, which differs most. And whether it has the programs of this
/// machine.
fn living_name(globals: &Globals, id: &str) -> Result<(String, bool)> {
    let status = runtime()?.block_on(living::engine_below(&data_dir(globals)).status(id))?;
    let id = status.sandbox.to_string();
    let name = status.name.map_or_else(|| format!("sb_…{}", &id[id.len() - 6..]), |name| name.to_string());
    Ok((name, status.backend == Kind::Native.name()))
}

/// A shell, as one that somebody talks to.
fn shell() -> Vec<OsString> {
    let shell = SHELLS.iter().find(|shell| Path::new(shell).exists()).unwrap_or(&"/bin/sh");
    vec![shell.into(), "-i".into()]
}

/// A shell of an image, which is looked for inside. The images of distributions set a prompt of their own in a file that bash reads, and
/// what it is asked to do before each prompt sets ours again.
fn shell_of_image(name: &str) -> Vec<OsString> {
    let [bash, sh] = [true, false].map(|is_bash| text_of_prompt(name, is_bash));
    let script = format!(
        "if command -v bash >/dev/null 2>&1; then PROMPT_COMMAND='PS1='\\''{bash}'\\''; unset PROMPT_COMMAND' exec bash -i; fi; \
         PS1='{sh}' exec sh -i"
    );
    vec![SHELLS[1].into(), "-c".into(), script.into()]
}

/// The prompt as a variable.
fn prompt(name: &str) -> String {
    format!("PS1={}", text_of_prompt(name, SHELLS[0] == shell()[0].to_string_lossy()))
}

/// The prompt: which sandbox it is, and which folder. Names of sandboxes have no quotes in them.
fn text_of_prompt(name: &str, is_bash: bool) -> String {
    match is_bash {
        true => format!("\\[\\e[1;36m\\]{name}\\[\\e[0m\\]:\\[\\e[1;34m\\]\\w\\[\\e[0m\\]\\$ "),
        false => format!("{name}:$PWD\\$ "),
    }
}
