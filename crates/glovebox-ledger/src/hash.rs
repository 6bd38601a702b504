//! SHA-256 as a value: the name of a blob.

use std::{fmt, str::FromStr};

use sha2::{Digest, Sha256};

/// The SHA-256 of some bytes. Prints as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sha256Hash([u8; 32]);

impl Sha256Hash {
    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Sha256Hash(Sha256::digest(bytes).into())
    }

    pub(crate) fn finish(hasher: Sha256) -> Self {
        Sha256Hash(hasher.finalize().into())
    }
}

impl fmt::Display for Sha256Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a SHA-256.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a SHA-256, which is 64 hexadecimal digits")]
pub struct ParseHashError;

impl FromStr for Sha256Hash {
    type Err = ParseHashError;

    fn from_str(text: &str) -> Result<Self, ParseHashError> {
        // Checked first: a number in Rust may also have a sign, and a slice may not cut a character.
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(ParseHashError);
        }
        let mut bytes = [0; 32];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| ParseHashError)?;
        }
        Ok(Sha256Hash(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_survives_the_way_through_text_and_nothing_else_is_one() {
        let hash = Sha256Hash::of(b"abc");
        assert_eq!(hash.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        for wrong in ["", "ab", &"+a".repeat(32), &"é".repeat(32), &"0".repeat(65)] {
            assert_eq!(wrong.parse::<Sha256Hash>(), Err(ParseHashError), "{wrong:?}");
        }
    }
}
