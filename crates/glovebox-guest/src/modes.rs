//! The modes that a program has put its terminal in, by output that is not held any more.
//!
//! Whoever attaches gets the output that is still there. A program that switched to the second screen a megabyte ago has said so in
//! output that is gone; without knowing it, the rest would be drawn on the wrong screen. Only what lasts is looked for, and only in
//! output that is let go of, so that most terminals never pay for it.

use bytes::Bytes;

/// A sequence that is not whole yet is kept up to this length; the longest that counts is a title.
const LONGEST: usize = 512;
/// Modes that are remembered. A program that sets more of them makes them up.
const MOST: usize = 64;
const ESCAPE: u8 = 0x1b;

/// What a terminal was put into.
#[derive(Default)]
pub(crate) struct Modes {
    /// Modes that were set or reset, the last word on each.
    private: Vec<(u16, bool)>,
    /// The keypad of applications.
    keypad: bool,
    /// The command that set the title last.
    title: Vec<u8>,
    /// The beginning of a sequence, from its escape character on.
    half: Vec<u8>,
}

impl Modes {
    /// Takes output that is let go of.
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) {
        while !self.half.is_empty() && !bytes.is_empty() {
            // The rest of the sequence is at the beginning; a longer one is none that counts.
            let taken = bytes.len().min(LONGEST - self.half.len());
            let joined = [std::mem::take(&mut self.half).as_slice(), &bytes[..taken]].concat();
            bytes = &bytes[taken..];
            self.look(&joined);
        }
        if self.half.is_empty() {
            self.look(bytes);
        }
    }

    fn look(&mut self, mut bytes: &[u8]) {
        while let Some(at) = memchr::memchr(ESCAPE, bytes) {
            bytes = &bytes[at..];
            match self.sequence(bytes) {
                Some(length) => bytes = &bytes[length..],
                None if bytes.len() < LONGEST => {
                    self.half = bytes.to_vec();
                    return;
                }
                None => bytes = &bytes[1..],
            }
        }
    }

    /// Looks at a sequence and says how much of it was looked at; nothing when it is not whole.
    fn sequence(&mut self, bytes: &[u8]) -> Option<usize> {
        match (bytes.get(1)?, bytes.get(2)) {
            (b'[', None) | (b']', None) => None,
            (b'[', Some(b'?')) => {
                let length = bytes[3..].iter().position(|byte| !byte.is_ascii_digit() && *byte != b';')?;
                let set = match bytes[3 + length] {
                    b'h' => true,
                    b'l' => false,
                    _ => return Some(3),
                };
                let numbers = bytes[3..3 + length].split(|byte| *byte == b';');
                for number in numbers.filter_map(|digits| std::str::from_utf8(digits).ok()?.parse().ok()) {
                    self.set(number, set);
                }
                Some(4 + length)
            }
            (b']', Some(b'0' | b'2')) => {
                let length = bytes[3..].iter().position(|byte| *byte < b' ')?;
                if bytes[3] == b';' {
                    self.title = [&bytes[..3 + length], b"\x07"].concat();
                }
                Some(3 + length)
            }
            (b'=', _) => self.key(true),
            (b'>', _) => self.key(false),
            (b'c', _) => {
                *self = Modes::default();
                Some(2)
            }
            _ => Some(1),
        }
    }

    fn key(&mut self, applications: bool) -> Option<usize> {
        self.keypad = applications;
        Some(2)
    }

    fn set(&mut self, number: u16, set: bool) {
        match self.private.iter().position(|(known, _)| *known == number) {
            Some(at) => self.private[at].1 = set,
            None if self.private.len() < MOST => self.private.push((number, set)),
            None => {}
        }
    }

    /// What brings another terminal to the same, and the half of a sequence that the output which is still there begins with the rest
    /// of.
    pub(crate) fn to_bytes(&self) -> Bytes {
        let mut bytes = self.title.clone();
        for (number, set) in &self.private {
            bytes.extend_from_slice(format!("\x1b[?{number}{}", if *set { 'h' } else { 'l' }).as_bytes());
        }
        if self.keypad {
            bytes.extend_from_slice(b"\x1b=");
        }
        bytes.extend_from_slice(&self.half);
        bytes.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(pieces: &[&[u8]]) -> String {
        let mut modes = Modes::default();
        pieces.iter().for_each(|piece| modes.pass(piece));
        modes.to_bytes().escape_ascii().to_string()
    }

    #[test]
    fn the_last_word_on_each_mode_counts_however_the_output_is_cut() {
        let output =
            b"text\x1b[?1049h\x1b[?1;25l more \x1b]0;name\x07\x1b[31m\x1b[?2004h\x1b=\x1b[?2004l\x1b[?25h\x1b[?1000";
        let whole = passed(&[output]);
        assert_eq!(whole, "\\x1b]0;name\\x07\\x1b[?1049h\\x1b[?1l\\x1b[?25h\\x1b[?2004l\\x1b=\\x1b[?1000");
        for cut in 1..9 {
            assert_eq!(passed(&output.chunks(cut).collect::<Vec<_>>()), whole, "{cut}");
        }
        let long = [b"\x1b[?1h".repeat(1000), b"\x1b[?25l".to_vec()].concat();
        for cut in [3, 511, 512, 513, 700] {
            assert_eq!(passed(&[&long[..cut], &long[cut..]]), "\\x1b[?1h\\x1b[?25l", "{cut}");
        }
    }

    #[test]
    fn a_hostile_program_makes_it_remember_no_more_than_its_bounds() {
        let mut modes = Modes::default();
        for number in 0..10_000 {
            modes.pass(format!("\x1b[?{number}h\x1b]2;{}", "x".repeat(3000)).as_bytes());
        }
        assert!(modes.to_bytes().len() < LONGEST * 2 + MOST * 12);
        assert_eq!(passed(&[b"\x1b[?1h\x1b=\x1bc"]), "");
    }
}
