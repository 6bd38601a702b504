//! The keys that detach from a terminal, among those that are typed.

/// Keys in a row are not more than this.
const MOST_KEYS: usize = 8;
/// A key that a terminal tells as a sequence is not longer than this.
const LONGEST_KEY: usize = 32;
/// How the code of a control key is told by terminals whose keyboard a program has put in another mode.
const CONTROL: u8 = 0x1f;

/// Text that names no keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected keys such as ctrl-],d or ctrl-p,ctrl-q, or none")]
pub struct WrongKeys;

/// Looks for the keys that detach.
#[derive(Clone, Debug)]
pub struct Keys {
    keys: Vec<u8>,
    /// How many of them were typed, as they came.
    typed: usize,
    held: Vec<u8>,
}

impl Default for Keys {
    /// `ctrl-]` and then `d`.
    fn default() -> Self {
        Keys { keys: vec![0x1d, b'd'], typed: 0, held: Vec::new() }
    }
}

impl Keys {
    /// Reads keys with commas between them: `ctrl-]`, or one character. `none` is no keys.
    pub fn parse(text: &str) -> Result<Self, WrongKeys> {
        if text == "none" {
            return Ok(Keys::none());
        }
        let keys = text.split(',').map(key).collect::<Option<Vec<u8>>>();
        let keys = keys.filter(|keys| keys.len() <= MOST_KEYS).ok_or(WrongKeys)?;
        Ok(Keys { keys, ..Keys::none() })
    }

    /// No keys: all that is typed is for the program.
    pub fn none() -> Self {
        Keys { keys: Vec::new(), typed: 0, held: Vec::new() }
    }

    /// How to type them, for people. Nothing where there are none.
    pub fn name(&self) -> Option<String> {
        let names = self.keys.iter().map(|key| match key {
            0..=CONTROL => format!("ctrl-{}", char::from(key + 0x40).to_ascii_lowercase()),
            _ => char::from(*key).to_string(),
        });
        (!self.keys.is_empty()).then(|| names.collect::<Vec<_>>().join(" "))
    }

    /// Takes what was typed, and adds to `out` what is for the program. Says whether the keys to detach were among it; what came
    /// after them is dropped.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> bool {
        if self.keys.is_empty() {
            out.extend_from_slice(bytes);
            return false;
        }
        while !bytes.is_empty() {
            let (typed, length) = next_key(bytes);
            let (raw, rest) = bytes.split_at(length);
            bytes = rest;
            if typed == Some(self.keys[self.typed]) {
                self.typed += 1;
                self.held.extend_from_slice(raw);
                if self.typed == self.keys.len() {
                    (self.typed, self.held) = (0, Vec::new());
                    return true;
                }
            } else if self.typed == 1 && typed == Some(self.keys[0]) {
                // The first key twice is that key, once.
                self.typed = 0;
                out.append(&mut self.held);
            } else {
                out.append(&mut self.held);
                self.typed = usize::from(typed == Some(self.keys[0]) && self.typed > 0);
                if self.typed == 1 { self.held.extend_from_slice(raw) } else { out.extend_from_slice(raw) }
            }
        }
        false
    }
}

fn key(text: &str) -> Option<u8> {
    match text.strip_prefix("ctrl-").or_else(|| text.strip_prefix("^")).map(str::as_bytes) {
        Some([letter @ (b'a'..=b'z' | b'A'..=b'Z' | b'@' | b'['..=b'_')]) => Some(letter & CONTROL),
        Some(_) => None,
        None => match text.as_bytes() {
            [byte @ 0x21..=0x7e] => Some(*byte),
            _ => None,
        },
    }
}

/// The first key of what was typed, where it is a plain or a control key, and its length. A terminal whose keyboard is in another mode
/// tells keys as sequences: `CSI 93;5u` or `CSI 27;5;93~` is ctrl-].
fn next_key(bytes: &[u8]) -> (Option<u8>, usize) {
    if !bytes.starts_with(b"\x1b[") {
        return (Some(bytes[0]), 1);
    }
    let body = &bytes[2..bytes.len().min(LONGEST_KEY)];
    let Some(end) = body.iter().position(|byte| (0x40..=0x7e).contains(byte)) else { return (None, 1) };
    let length = end + 3;
    let Ok(text) = std::str::from_utf8(&body[..end]) else { return (None, length) };
    let numbers: Vec<&str> = text.split(';').collect();
    let (code, modifiers) = match (body[end], numbers.as_slice()) {
        (b'u', [code]) => (*code, "1"),
        (b'u', [code, modifiers, ..]) => (*code, *modifiers),
        (b'~', ["27", modifiers, code]) => (*code, *modifiers),
        _ => return (None, length),
    };
    let first = |text: &str| text.split(':').next().and_then(|number| number.parse::<u8>().ok());
    // Releases of keys are told too in some modes; they are no keys.
    let pressed = !modifiers.contains(':') || modifiers.ends_with(":1");
    let typed = match (first(code), first(modifiers)) {
        (Some(code), Some(1)) if pressed => Some(code),
        (Some(code), Some(5)) if pressed => Some(code & CONTROL),
        _ => None,
    };
    (typed, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &mut Keys, pieces: &[&[u8]]) -> (Vec<u8>, bool) {
        let mut out = Vec::new();
        let detached = pieces.iter().any(|piece| keys.push(piece, &mut out));
        (out, detached)
    }

    #[test]
    fn the_keys_detach_however_they_are_cut_and_nothing_of_them_reaches_the_program() {
        for pieces in [&[&b"ls\r\x1dd"[..]][..], &[b"ls\r\x1d", b"d"], &[b"ls\r", b"\x1d", b"dmore"]] {
            assert_eq!(typed(&mut Keys::default(), pieces), (b"ls\r".to_vec(), true), "{pieces:?}");
        }
    }

    #[test]
    fn the_first_key_twice_is_that_key_and_with_another_one_both_go_in() {
        assert_eq!(typed(&mut Keys::default(), &[b"a\x1d\x1db"]), (b"a\x1db".to_vec(), false));
        assert_eq!(typed(&mut Keys::default(), &[b"\x1dx"]), (b"\x1dx".to_vec(), false));
        assert_eq!(typed(&mut Keys::default(), &[b"\x1d\x1dd"]), (b"\x1dd".to_vec(), false));
    }

    #[test]
    fn keys_that_are_told_as_sequences_are_the_same_keys() {
        for keys in [&b"\x1b[93;5ud"[..], b"\x1b[27;5;93~d", b"\x1b[93;5u\x1b[93;5:3u"] {
            let detached = typed(&mut Keys::default(), &[keys]).1;
            assert_eq!(detached, keys.ends_with(b"d"), "{keys:?}");
        }
        assert_eq!(typed(&mut Keys::default(), &[b"\x1b[A\x1b[200~x"]).0, b"\x1b[A\x1b[200~x");
    }

    #[test]
    fn keys_are_read_as_they_are_named() {
        for (text, name) in [("ctrl-],d", "ctrl-] d"), ("ctrl-p,ctrl-q", "ctrl-p ctrl-q"), ("^A,x", "ctrl-a x")] {
            assert_eq!(Keys::parse(text).expect("keys").name().expect("a name"), name);
        }
        let mut none = Keys::parse("none").expect("no keys");
        assert_eq!((none.name(), typed(&mut none, &[b"\x1dd"])), (None, (b"\x1dd".to_vec(), false)));
        for wrong in ["", "ctrl-", "ctrl-1", "ab", "a,,b", "a,b,c,d,e,f,g,h,i", "\u{e4}"] {
            assert_eq!(Keys::parse(wrong).unwrap_err(), WrongKeys, "{wrong}");
        }
    }
}
