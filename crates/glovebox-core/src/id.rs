//! Typed ids: a prefix and a UUIDv7 in Crockford base32, so that ids sort by time and cannot be mixed up.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const ENCODED_LEN: usize = 26;

/// The text is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not an id of the form {prefix}_ and 26 characters")]
pub struct ParseIdError {
    text: String,
    prefix: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Uuid);

        impl $name {
            /// A new id, later in order than all made before it on this host.
            #[allow(clippy::new_without_default)]
            pub fn new() -> Self {
                $name(Uuid::now_v7())
            }

            /// The number behind the id.
            pub fn as_u128(self) -> u128 {
                self.0.as_u128()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!($prefix, "_"))?;
                f.write_str(&encode(self.0.as_u128()))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                text.strip_prefix(concat!($prefix, "_"))
                    .and_then(decode)
                    .map(|n| $name(Uuid::from_u128(n)))
                    .ok_or_else(|| ParseIdError { text: text.to_owned(), prefix: $prefix })
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseIdError;
            fn try_from(text: String) -> Result<Self, ParseIdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.to_string()
            }
        }
    };
}

id!(
    /// Names one sandbox.
    SandboxId, "sb"
);
id!(
    /// Names one run.
    RunId, "run"
);

/// Whose changes something is about: those of one run, or all of a sandbox since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ChangeSource {
    /// Those of a run.
    Run(RunId),
    /// All of a sandbox.
    Sandbox(SandboxId),
}

impl ChangeSource {
    /// The run, if it is one.
    pub fn run(self) -> Option<RunId> {
        match self {
            ChangeSource::Run(run) => Some(run),
            ChangeSource::Sandbox(_) => None,
        }
    }
}

impl fmt::Display for ChangeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangeSource::Run(run) => run.fmt(f),
            ChangeSource::Sandbox(sandbox) => sandbox.fmt(f),
        }
    }
}

impl From<RunId> for ChangeSource {
    fn from(run: RunId) -> Self {
        ChangeSource::Run(run)
    }
}

fn encode(number: u128) -> String {
    (0..ENCODED_LEN).rev().map(|i| CROCKFORD[(number >> (5 * i)) as usize & 31] as char).collect()
}

fn decode(text: &str) -> Option<u128> {
    if text.len() != ENCODED_LEN {
        return None;
    }
    text.bytes().try_fold(0u128, |number, byte| {
        let digit = CROCKFORD.iter().position(|c| *c == byte.to_ascii_uppercase())?;
        if number >> 123 != 0 {
            return None;
        }
        Some((number << 5) | digit as u128)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_number_survives_the_way_through_text(number: u128) {
            prop_assert_eq!(decode(&encode(number)), Some(number));
        }

        #[test]
        fn decoding_never_panics(text in ".*") {
            let _ = text.parse::<RunId>();
        }
    }

    #[test]
    fn ids_carry_their_prefix_and_do_not_parse_as_another_kind() {
        let id = RunId::new();
        assert!(id.to_string().starts_with("run_"));
        assert_eq!(id.to_string().parse::<RunId>(), Ok(id));
        assert!(id.to_string().parse::<SandboxId>().is_err());
    }

    #[test]
    fn later_ids_sort_after_earlier_ones() {
        let ids: Vec<_> = (0..1000).map(|_| SandboxId::new().to_string()).collect();
        assert!(ids.is_sorted());
    }
}
