//! Values that must never reach a log, an error text or the ledger.

use std::fmt;

use zeroize::Zeroizing;

/// A secret value. It prints as `[redacted]`, and its memory is wiped when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// What stands in place of a secret.
    pub const MASK: &'static str = "[redacted]";

    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Secret(Zeroizing::new(value.into()))
    }

    /// The value itself, for the one place that hands it to the program.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Replaces every occurrence of the secrets in `bytes` by `[redacted]`. Longer secrets go first, so that one
    /// that holds another is masked whole.
    pub fn mask_all<'a>(secrets: impl IntoIterator<Item = &'a Secret>, bytes: Vec<u8>) -> Vec<u8> {
        let mut needles: Vec<Zeroizing<String>> = secrets.into_iter().flat_map(Secret::forms).collect();
        needles.sort_by_key(|needle| std::cmp::Reverse(needle.len()));
        needles.iter().fold(bytes, |bytes, needle| replace(bytes, needle.as_bytes()))
    }

    /// The value, and how it stands in quotes: as languages print a text, and in JSON.
    fn forms(&self) -> Vec<Zeroizing<String>> {
        let escaped = |quotes: &[char]| {
            let mut text = Zeroizing::new(String::with_capacity(2 * self.0.len()));
            for c in self.0.chars() {
                match c {
                    '\n' => text.push_str("\\n"),
                    '\r' => text.push_str("\\r"),
                    '\t' => text.push_str("\\t"),
                    '\\' => text.push_str("\\\\"),
                    c if quotes.contains(&c) => text.extend(['\\', c]),
                    c => text.push(c),
                }
            }
            text
        };
        let mut forms = vec![self.0.clone()];
        if self.0.contains(['\n', '\r', '\t', '\\', '"', '\'']) {
            forms.extend([escaped(&[]), escaped(&['"']), escaped(&['\''])]);
        }
        forms.dedup();
        forms.retain(|form| !form.is_empty());
        forms
    }

    /// Whether `bytes` hold this secret.
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        !self.0.is_empty() && find(bytes, self.0.as_bytes()).is_some()
    }
}

/// Looks for secrets in bytes that come piece by piece.
#[derive(Debug)]
pub struct SecretScan<'a> {
    secrets: Vec<&'a Secret>,
    /// The end of what was seen, one byte shorter than the longest secret, for secrets across two pieces.
    seen: Vec<u8>,
}

impl<'a> SecretScan<'a> {
    /// A scan for these secrets.
    pub fn new(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        SecretScan { secrets: secrets.into_iter().collect(), seen: Vec::new() }
    }

    /// Whether a secret ends in the next piece.
    pub fn finds_in(&mut self, piece: &[u8]) -> bool {
        let Some(longest) = self.secrets.iter().map(|secret| secret.0.len()).max() else { return false };
        self.seen.extend_from_slice(piece);
        let found = self.secrets.iter().any(|secret| secret.is_in(&self.seen));
        self.seen.drain(..self.seen.len().saturating_sub(longest.saturating_sub(1)));
        found
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Secret::MASK)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Secret::MASK)
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let first = needle[0];
    let mut from = 0;
    while let Some(at) = haystack[from..].iter().position(|b| *b == first) {
        let start = from + at;
        if haystack[start..].starts_with(needle) {
            return Some(start);
        }
        from = start + 1;
    }
    None
}

fn replace(bytes: Vec<u8>, needle: &[u8]) -> Vec<u8> {
    let Some(mut at) = find(&bytes, needle) else { return bytes };
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = &bytes[..];
    loop {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(Secret::MASK.as_bytes());
        rest = &rest[at + needle.len()..];
        match find(rest, needle) {
            Some(next) => at = next,
            None => break,
        }
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_occurrence_is_masked_and_the_longest_secret_first() {
        let secrets = [Secret::new("abc"), Secret::new("abcdef"), Secret::new("")];
        let masked = Secret::mask_all(&secrets, b"x abcdef abc y aab".to_vec());
        assert_eq!(masked, b"x [redacted] [redacted] y aab");
    }

    #[test]
    fn a_secret_is_masked_as_languages_print_it_too() {
        let secrets = [Secret::new("a\n\"b\"'\\c")];
        for printed in ["a\n\"b\"'\\c", r#"a\n\"b\"'\\c"#, r#"a\n"b"\'\\c"#, r#"a\n"b"'\\c"#] {
            assert_eq!(Secret::mask_all(&secrets, printed.as_bytes().to_vec()), b"[redacted]", "{printed}");
        }
    }

    #[test]
    fn a_secret_does_not_print() {
        assert_eq!(format!("{:?} {}", Secret::new("k"), Secret::new("k")), "[redacted] [redacted]");
    }
}
