//! Whether a project's configuration file may say what it says.
//!
//! The caller may stand in a folder that somebody else filled, and may never have read its `glovebox.toml`. Such a file
//! can tighten a sandbox, set its limits and show it the project's own folder. Whatever lets the sandbox reach more of
//! the caller's machine needs the caller's word. See docs/decisions/0007-project-files-are-not-trusted.md.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use glovebox_core::{Error, ErrorCode, Limits, User, parse_size};

use crate::{config::Setting, files};

/// Keys that reach nothing of the caller's, whatever their value.
const HARMLESS: [&str; 18] = [
    "memory",
    "cpus",
    "pids",
    "disk",
    "inodes",
    "open-files",
    "timeout",
    "grace",
    "output-limit-kill",
    "json",
    "verbose",
    "terminal",
    "language",
    "code",
    "artifact",
    "label",
    "interval",
    "read-only",
];

/// Whether a key of a project's file, with these values, needs the caller's trust. A key that is not known here does.
pub(crate) fn needs_trust(key: &str, setting: &Setting, values: &[String]) -> bool {
    let folder = setting.file.parent().unwrap_or(Path::new("/"));
    let any = |opens: &dyn Fn(&str) -> bool| values.iter().any(|value| opens(value));
    match key {
        "network" => any(&|value| value != "none"),
        "image" => any(&|value| value != "host"),
        "backend" => any(&|value| value != "native"),
        "isolation" => any(&|value| value != "namespaces"),
        "workspace-mode" => any(&|value| !["overlay", "read-only"].contains(&value)),
        "user" => any(&|value| User::parse(value).is_ok_and(|user| user.uid == 0 || user.gid == 0)),
        // What is kept of output is kept in the caller's own memory.
        "output-limit" => any(&|value| parse_size(value).is_ok_and(|bytes| bytes > Limits::default().output)),
        // A path inside of the sandbox.
        "workdir" => false,
        "workspace" | "stdin" | "env-file" => any(&|value| !lies_below(Path::new(value), folder)),
        "file" => any(&|value| !lies_below(Path::new(files::source_and_target(value).0), folder)),
        // A name alone is the caller's own variable.
        "env" => any(&|value| !value.contains('=')),
        // Fewer layers than the caller's own file asks for.
        "require-layer" => setting.replaces_own,
        _ => !HARMLESS.contains(&key) && !values.is_empty(),
    }
}

/// The error for a project's file that needs trust and has none.
pub(crate) fn refused(what: &str, file: &Path) -> Error {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let message = format!("{what}, and the project {} is not trusted", folder.display());
    Error::new(ErrorCode::UntrustedConfig, message).hint(format!(
        "read {} first; then --trust-project lets it count this time, trust = [{folder:?}] in your own \
         ~/.config/glovebox/config.toml lets it count always, and --config /dev/null leaves it out",
        file.display()
    ))
}

/// Whether a project's folder is one of those that the caller trusts. Each is named by itself: what lies below a trusted
/// folder may be somebody else's.
pub(crate) fn is_among(folder: &Path, trusted: &[PathBuf]) -> bool {
    let Ok(folder) = fs::canonicalize(folder) else { return false };
    trusted.iter().any(|path| fs::canonicalize(path).is_ok_and(|path| path == folder))
}

/// Whether a path, its links followed, lies in a folder. One that does not exist is judged by its parts: the error that
/// it is not there says more than a refusal.
fn lies_below(path: &Path, folder: &Path) -> bool {
    match (fs::canonicalize(path), fs::canonicalize(folder)) {
        (Ok(path), Ok(folder)) => path.starts_with(folder),
        (Err(error), _) if error.kind() == io::ErrorKind::NotFound => {
            path.starts_with(folder) && !path.components().any(|part| part == Component::ParentDir)
        }
        _ => false,
    }
}
