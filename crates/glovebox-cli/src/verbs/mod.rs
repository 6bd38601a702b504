//! One file for each verb.

pub(crate) mod completions;
pub(crate) mod gc;
pub(crate) mod man;
pub(crate) mod run;

use glovebox_core::{Error, ErrorCode, Result};

use crate::{args, flags::Flags};

/// Backends of later versions.
const LATER_BACKENDS: [&str; 3] = ["docker", "kubernetes", "local"];

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
        known if LATER_BACKENDS.contains(&known) => {
            let message = format!("the backend {known} comes with a later version");
            Err(Error::new(ErrorCode::BackendUnavailable, message).hint("leave out --backend, or use --backend native"))
        }
        other => {
            let forms = format!("expected native, the only one of this version (later: {})", LATER_BACKENDS.join(", "));
            Err(flags.wrong("backend", other, &forms))
        }
    }
}
