//! Variables and secrets of a run.

use std::{
    env::VarError,
    io::Read,
    path::Path,
    process::{Command as HostCommand, Stdio},
};

use glovebox_core::{Command, Error, ErrorCode, Result, Secret};
use zeroize::Zeroizing;

use crate::{args::CommandArgs, files, flags::Flags, trust};

/// Adds `--env-file`, `--env` and `--secret` to a command, in this order: a later one wins over an earlier one.
pub(crate) fn add_variables(command: Command, args: &CommandArgs, flags: &Flags) -> Result<Command> {
    add_secrets(add_plain(command, &args.env_file, &args.env, flags)?, &args.secret, flags)
}

/// Adds `--secret` to a command.
pub(crate) fn add_secrets(mut command: Command, texts: &[String], flags: &Flags) -> Result<Command> {
    for text in flags.list("secret", texts) {
        command = add_secret(command, text)?;
    }
    Ok(command)
}

/// Adds `--env-file` and `--env` to a command.
pub(crate) fn add_plain(mut command: Command, files: &[String], texts: &[String], flags: &Flags) -> Result<Command> {
    for path in flags.list("env-file", files) {
        command = add_file(command, Path::new(path), flags.untrusted_file("env-file"))?;
    }
    for text in flags.list("env", texts) {
        command = add_variable(command, text).map_err(|error| flags.named("env", error))?;
    }
    Ok(command)
}

/// Adds the lines of a file: `K=V`, or `K` for the caller's own variable. Values are taken as they stand, without
/// quotes or escapes; empty lines and lines that begin with `#` are left out. A file that was chosen by a project which
/// nobody trusts gets no variable of the caller.
fn add_file(mut command: Command, path: &Path, chosen_by: Option<&Path>) -> Result<Command> {
    let bytes = files::read_setting(path)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| {
        let message = format!("the environment file {} is not valid UTF-8", path.display());
        Error::new(ErrorCode::InvalidEnvironment, message)
    })?;
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(project_file) = chosen_by.filter(|_| !line.contains('=')) {
            let what = format!("{} line {} takes a variable of yours", path.display(), number + 1);
            return Err(trust::refused(&what, project_file));
        }
        command = add_variable(command, line).map_err(|mut error| {
            error.message = format!("{} line {}: {}", path.display(), number + 1, error.message);
            error
        })?;
    }
    Ok(command)
}

/// Adds `K=V`, or `K` with the value that it has here.
fn add_variable(command: Command, text: &str) -> Result<Command> {
    match text.split_once('=') {
        Some((name, value)) => command.env(name, value),
        // The name is checked before the environment is asked, which would take a NUL for a missing variable.
        None => {
            let checked = glovebox_core::EnvName::parse(text)?;
            let value = own_variable(checked.as_str())
                .map_err(|why| Error::new(ErrorCode::InvalidEnvironment, why).hint("K=V sets a value"))?;
            command.env(checked.as_str(), &value)
        }
    }
}

/// Adds `NAME`, `NAME=env:VAR`, `NAME=file:PATH` or `NAME=command:CMD`. What follows another `=` may be a secret that
/// somebody typed by mistake, so no error repeats it.
fn add_secret(command: Command, text: &str) -> Result<Command> {
    let (name, source) = text.split_once('=').unwrap_or((text, ""));
    if !is_identifier(name) {
        let message = "a --secret begins with the name of a variable: letters, digits and '_'";
        return Err(Error::new(ErrorCode::InvalidValue, message).hint(SOURCES));
    }
    let mut value = match source.split_once(':') {
        None if text.len() == name.len() => from_variable(name, name),
        Some(("env", variable)) if is_identifier(variable) => from_variable(name, variable),
        Some(("file", path)) => from_file(name, Path::new(path)),
        Some(("command", line)) => from_command(name, line),
        Some(("keyring", _)) => Err(unavailable(name, "reading keyrings comes with a later version").hint(SOURCES)),
        _ => {
            let message = format!("the secret {name} has no source that is known");
            Err(Error::new(ErrorCode::InvalidValue, message).hint(SOURCES))
        }
    }?;
    if value.is_empty() {
        return Err(unavailable(name, "its source gives an empty value"));
    }
    command.secret(name, Secret::new(std::mem::take(&mut *value)))
}

const SOURCES: &str = "a secret's value never stands on the command line: use --secret NAME (your variable NAME), \
                       NAME=env:VAR, NAME=file:PATH or NAME=command:CMD";

fn from_variable(name: &str, variable: &str) -> Result<Zeroizing<String>> {
    own_variable(variable).map(Zeroizing::new).map_err(|why| unavailable(name, &why))
}

fn from_file(name: &str, path: &Path) -> Result<Zeroizing<String>> {
    let bytes = files::read_setting(path)
        .map_err(|error| Error { hint: error.hint.clone(), ..unavailable(name, &error.message) })?;
    text(name, &bytes)
}

/// What a command prints. Its output is bounded, and a command that prints more is ended.
fn from_command(name: &str, line: &str) -> Result<Zeroizing<String>> {
    let failed = |error: std::io::Error| unavailable(name, "its command cannot be run").because(error);
    let mut child = HostCommand::new("sh")
        .args(["-c", line])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(failed)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(4096));
    if let Some(output) = child.stdout.take() {
        output.take(files::LARGEST_SETTING + 1).read_to_end(&mut bytes).map_err(failed)?;
    }
    if bytes.len() as u64 > files::LARGEST_SETTING {
        // One that has ended by itself meanwhile needs no signal.
        let _ = child.kill();
        child.wait().map_err(failed)?;
        return Err(unavailable(name, "its command prints more than 1 MiB"));
    }
    let status = child.wait().map_err(failed)?;
    if !status.success() {
        return Err(unavailable(name, &format!("its command failed ({status})")));
    }
    text(name, &bytes)
}

/// Bytes as text, without the end of their last line.
fn text(name: &str, bytes: &[u8]) -> Result<Zeroizing<String>> {
    let text = std::str::from_utf8(bytes).map_err(|_| unavailable(name, "its value is not valid UTF-8"))?;
    let text = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
    Ok(Zeroizing::new(text.to_owned()))
}

fn unavailable(name: &str, why: &str) -> Error {
    Error::new(ErrorCode::SecretUnavailable, format!("the secret {name} is not available: {why}"))
}

/// A variable of the caller, or why it cannot be used.
fn own_variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|error| match error {
        VarError::NotPresent => format!("the variable {name} is not set here"),
        VarError::NotUnicode(_) => format!("the variable {name} is not valid UTF-8"),
    })
}

fn is_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
