//! One file for each verb.

pub(crate) mod completions;
pub(crate) mod gc;
pub(crate) mod man;
pub(crate) mod run;

use glovebox_core::{Error, ErrorCode, Result};

use crate::{args, flags::Flags};

/// Backends that the contract knows.
const BACKENDS: [&str; 4] = ["native", "docker", "kubernetes", "local"];

/// Prints the help, for a caller who named no verb.
pub(crate) fn help() -> Result<u8> {
    // A reader that went away is no failure.
    let _ = args::command().print_help();
    Ok(0)
}

/// Makes sure that the backend that was asked for is the one of this build.
fn require_native(backend: &str, flags: &Flags) -> Result<()> {
    match backend {
        "native" => Ok(()),
        known if BACKENDS.contains(&known) => {
            let message = format!("the backend {known} is not part of this build");
            Err(Error::new(ErrorCode::BackendUnavailable, message).hint("leave out --backend, or use --backend native"))
        }
        other => Err(flags.wrong("backend", other, "expected native, docker, kubernetes or local")),
    }
}
