//! Why a living sandbox went away under those who worked in it.

use glovebox_core::{Error, ErrorCode, SandboxId};
use serde::{Deserialize, Serialize};

use super::errors::gone;
use crate::Engine;

/// What its owner had done to a sandbox whose processes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Act {
    Stopped,
    Reset,
    Destroyed,
}

impl Engine {
    /// Says of a living sandbox that went away who ended it, where that is known: its owner, or its lifetime. Any other error
    /// stays as it is.
    pub fn explain_lost(&self, id: SandboxId, error: Error) -> Error {
        match error.code {
            ErrorCode::SandboxLost => self.why_lost(id).unwrap_or(error),
            _ => error,
        }
    }

    /// The error for what a living sandbox cannot do any more because somebody ended it, if that is so.
    pub(crate) fn why_lost(&self, id: SandboxId) -> Option<Error> {
        let registry = self.registry();
        let lost = |how: &str| Error::new(ErrorCode::SandboxLost, format!("the sandbox {id} was {how}"));
        let record = match registry.read(id) {
            Ok(record) => record,
            Err(error) if error.code == ErrorCode::SandboxNotFound => return Some(lost("destroyed")),
            Err(_) => return None,
        };
        if let Some(ended) = registry.ended(id) {
            let Error { message, hint, .. } = gone(&record, &ended);
            return Some(Error::new(ErrorCode::SandboxLost, message).hint(hint.unwrap_or_default()));
        }
        Some(match registry.last_act(id)? {
            Act::Stopped => lost("stopped").hint(format!("glovebox start {id} starts it again, with its files")),
            Act::Reset => lost("reset").hint("it is there again, as new"),
            Act::Destroyed => lost("destroyed"),
        })
    }
}
