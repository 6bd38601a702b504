//! One file for each verb.

pub(crate) mod apply;
pub(crate) mod attach;
pub(crate) mod changes;
pub(crate) mod completions;
pub(crate) mod cp;
pub(crate) mod create;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod files;
pub(crate) mod gc;
pub(crate) mod images;
pub(crate) mod living;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod projects;
pub(crate) mod prove;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod sessions;
mod several;
pub(crate) mod shell;
pub(crate) mod states;
pub(crate) mod top;
pub(crate) mod usage;
pub(crate) mod volumes;

use std::path::PathBuf;

use glovebox_core::{Error, ErrorCode, Result};

use tokio::runtime::Runtime;

use crate::args::{self, Globals};

/// Prints the help, for a caller who named no verb.
pub(crate) fn help() -> Result<u8> {
    // A reader that went away is no failure.
    let _ = args::command().print_help();
    Ok(0)
}

/// One thread is all that a command line needs.
pub(crate) fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::new(ErrorCode::Internal, "cannot start the runtime").because(error))
}

/// The folder that everything is kept below.
pub(crate) fn data_dir(globals: &Globals) -> PathBuf {
    if let Some(dir) = &globals.data_dir {
        return std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/glovebox");
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data_home = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    data_home.unwrap_or_else(|| PathBuf::from("/var/tmp")).join("glovebox")
}
