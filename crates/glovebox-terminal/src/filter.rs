//! The filter between what a program prints and the caller's terminal.
//!
//! A state machine after the one that terminals have. A sequence is held until it is whole and then passed on as it came, or not at
//! all, so that no terminal ever sees a half that it would complete with something else. What is not on a list is dropped: the
//! lists are in `modes` and `strings` and below, by what the sequences do.
//!
//! How the output is cut into pieces makes no difference. A sequence that is longer than its bound is dropped.

use crate::{modes::State, strings};

/// A sequence without a string is not longer than this. The longest in use set many colours at once.
const LONGEST_SEQUENCE: usize = 512;
/// A string, such as a title or a link, is not longer than this.
const LONGEST_STRING: usize = 4096;
/// Bytes of one picture. Who draws larger ones wants to fill the terminal's memory.
const LARGEST_PICTURE: usize = 16 * 1024 * 1024;

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;
/// Ends a half sequence at once.
const CANCEL: u8 = 0x18;
const SUBSTITUTE: u8 = 0x1a;
/// What stands for bytes that are no text.
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

/// Lets through what is harmless of what a program prints to a terminal.
#[derive(Debug, Default)]
pub struct Filter {
    at: At,
    /// The sequence that is not whole yet, from its first byte on; or a character that is not.
    held: Vec<u8>,
    /// What the program has changed and must be put back.
    state: State,
    asked: bool,
    /// The program is over, so nobody waits for answers.
    past: bool,
}

/// Where in a sequence the output stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// In none.
    #[default]
    Text,
    /// In a character of several bytes.
    Character,
    /// Behind the escape character, or behind what follows it and is not the last byte.
    Escape,
    /// In a control sequence.
    Control,
    /// In a control sequence that is too long.
    LongControl,
    /// In an operating system command.
    Command,
    /// In the head of a device control string.
    DeviceHead,
    /// In a picture, which is passed on as it comes. So many bytes of it came.
    Picture(usize),
    /// In a string that is dropped; those of commands also end with a bell.
    Dropped { bell: bool },
    /// In a string, behind an escape character which may be the beginning of its end.
    End(Of),
}

/// The string that may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Command,
    Picture,
    Dropped,
}

/// Bytes that are passed on as they are, outside of sequences: text in ASCII, and the controls that move.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0x20;
    while byte < 0x7f {
        plain[byte] = true;
        byte += 1;
    }
    let controls = *b"\x07\x08\t\n\x0b\x0c\r\x0e\x0f";
    let mut at = 0;
    while at < controls.len() {
        plain[controls[at] as usize] = true;
        at += 1;
    }
    plain
};

impl Filter {
    /// A filter for the output of one program.
    pub fn new() -> Self {
        Filter::default()
    }

    /// A filter for what a program printed that is over. Its questions are not asked: the answers would reach somebody else.
    pub fn of_the_past() -> Self {
        Filter { past: true, ..Filter::default() }
    }

    /// Takes the next piece of output, and adds to `out` what may go to the terminal.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while let Some(&byte) = bytes.first() {
            match self.at {
                At::Text => {
                    let plain = bytes.iter().position(|byte| !PLAIN[usize::from(*byte)]).unwrap_or(bytes.len());
                    out.extend_from_slice(&bytes[..plain]);
                    bytes = &bytes[plain..];
                    if let Some((&byte, rest)) = bytes.split_first() {
                        bytes = rest;
                        self.begin(byte);
                    }
                }
                At::Picture(before) => bytes = self.picture(before, bytes, out),
                _ => {
                    if self.step(byte, out) {
                        bytes = &bytes[1..];
                    }
                }
            }
        }
    }

    /// Some output is missing here: what was begun before is not completed by what comes now.
    pub fn gap(&mut self, out: &mut Vec<u8>) {
        if matches!(self.at, At::Picture(_) | At::End(Of::Picture)) {
            out.extend_from_slice(b"\x1b\\");
        }
        self.at = At::Text;
        self.held.clear();
    }

    /// What puts the terminal back to how it was before the program: to be sent at the end, whatever the end was.
    pub fn restore(&mut self, out: &mut Vec<u8>) {
        self.gap(out);
        self.state.restore(out);
    }

    /// Whether the terminal may still send what nobody typed: answers to questions, or reports of the mouse.
    pub fn may_answer(&self) -> bool {
        self.asked || self.state.may_report()
    }

    /// Takes the first byte that is not plain.
    fn begin(&mut self, byte: u8) {
        self.held.clear();
        match byte {
            ESCAPE => {
                self.held.push(byte);
                self.at = At::Escape;
            }
            0x80.. => {
                self.held.push(byte);
                self.at = At::Character;
            }
            // Of the other controls, some ask for an answer and some stop the terminal; none is needed.
            _ => {}
        }
    }

    /// Takes one byte within a sequence. Says whether it was used; where not, it is looked at again.
    fn step(&mut self, byte: u8, out: &mut Vec<u8>) -> bool {
        match self.at {
            At::Character => return self.character(byte, out),
            At::End(of) => return self.end_of(of, byte, out),
            _ => {}
        }
        match byte {
            CANCEL | SUBSTITUTE => self.at = At::Text,
            ESCAPE => self.escape_within(),
            _ => match self.at {
                At::Escape => return self.escape(byte, out),
                At::Control | At::LongControl => return self.control(byte, out),
                At::DeviceHead => self.device_head(byte, out),
                At::Command if byte == BELL => self.command(b"\x07", out),
                At::Command => self.hold_of_string(byte),
                At::Dropped { bell: true } if byte == BELL => self.at = At::Text,
                _ => {}
            },
        }
        true
    }

    /// An escape character within a sequence begins another one, or is the beginning of the end of a string.
    fn escape_within(&mut self) {
        self.at = match self.at {
            At::Command => At::End(Of::Command),
            At::Dropped { .. } | At::DeviceHead => At::End(Of::Dropped),
            _ => {
                self.held.clear();
                self.held.push(ESCAPE);
                At::Escape
            }
        };
    }

    /// The byte behind an escape character in a string: its end, or the first of another sequence, which cuts the string off.
    fn end_of(&mut self, of: Of, byte: u8, out: &mut Vec<u8>) -> bool {
        let is_end = byte == b'\\';
        match of {
            Of::Command if is_end => self.command(b"\x1b\\", out),
            // A picture is ended in any case: the terminal has its beginning.
            Of::Picture => {
                out.extend_from_slice(b"\x1b\\");
                self.at = At::Text;
            }
            _ => self.at = At::Text,
        }
        if !is_end {
            self.held.clear();
            self.held.push(ESCAPE);
            self.at = At::Escape;
        }
        is_end
    }

    /// Takes a byte of a character of several bytes.
    fn character(&mut self, byte: u8, out: &mut Vec<u8>) -> bool {
        let length = match self.held[0] {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 1,
        };
        let goes_on = (0x80..0xc0).contains(&byte);
        if length == 1 || !goes_on {
            out.extend_from_slice(REPLACEMENT);
            self.at = At::Text;
            return false;
        }
        self.held.push(byte);
        if self.held.len() == length {
            match std::str::from_utf8(&self.held) {
                // The controls above 0x80 are those of escape sequences in one character, and some terminals obey them.
                Ok(text) if text.chars().all(char::is_control) => {}
                Ok(text) => out.extend_from_slice(text.as_bytes()),
                Err(_) => out.extend_from_slice(REPLACEMENT),
            }
            self.at = At::Text;
        }
        true
    }

    /// Takes a byte behind an escape character.
    fn escape(&mut self, byte: u8, out: &mut Vec<u8>) -> bool {
        let is_first = self.held.len() == 1;
        match byte {
            b'[' if is_first => self.hold(byte, At::Control),
            b']' if is_first => self.hold(byte, At::Command),
            b'P' if is_first => self.hold(byte, At::DeviceHead),
            // Strings that applications use among themselves, kitty for pictures from files, and screen for titles.
            b'X' | b'^' | b'_' | b'k' if is_first => self.at = At::Dropped { bell: false },
            0x20..=0x2f if self.held.len() < LONGEST_SEQUENCE => self.held.push(byte),
            0x20..=0x2f => {}
            0x30..=0x7e => {
                self.held.push(byte);
                self.at = At::Text;
                self.state.escape(&self.held, out);
            }
            0x80.. => {
                self.at = At::Text;
                return false;
            }
            _ => control_within(byte, out),
        }
        true
    }

    /// Takes a byte of a control sequence.
    fn control(&mut self, byte: u8, out: &mut Vec<u8>) -> bool {
        match byte {
            0x40..=0x7e if self.at == At::LongControl => self.at = At::Text,
            0x40..=0x7e => {
                self.held.push(byte);
                self.at = At::Text;
                let before = out.len();
                let asks = self.state.control(&self.held, out);
                self.note_question(asks, before, out);
            }
            0x20..=0x3f if self.held.len() < LONGEST_SEQUENCE => self.held.push(byte),
            0x20..=0x3f => self.at = At::LongControl,
            0x80.. => {
                self.at = At::Text;
                return false;
            }
            _ => control_within(byte, out),
        }
        true
    }

    /// Takes a byte of the head of a device control string. Only pictures are let through.
    fn device_head(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            b'0'..=b'9' | b';' if self.held.len() < 32 => self.held.push(byte),
            b'q' => {
                self.held.push(byte);
                out.extend_from_slice(&self.held);
                self.at = At::Picture(0);
            }
            _ => self.at = At::Dropped { bell: false },
        }
    }

    /// Passes on what belongs to a picture. Says what is left.
    fn picture<'a>(&mut self, before: usize, bytes: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
        let belongs = |byte: &u8| matches!(byte, 0x20..=0x7e | b'\r' | b'\n');
        let length = bytes.iter().position(|byte| !belongs(byte)).unwrap_or(bytes.len());
        let length = length.min(LARGEST_PICTURE - before);
        out.extend_from_slice(&bytes[..length]);
        self.at = At::Picture(before + length);
        match bytes.get(length) {
            None => &[],
            Some(&ESCAPE) => {
                self.at = At::End(Of::Picture);
                &bytes[length + 1..]
            }
            Some(byte) => {
                out.extend_from_slice(b"\x1b\\");
                self.at = if belongs(byte) { At::Dropped { bell: false } } else { At::Text };
                &bytes[length..]
            }
        }
    }

    fn hold(&mut self, byte: u8, at: At) {
        self.held.push(byte);
        self.at = at;
    }

    fn hold_of_string(&mut self, byte: u8) {
        if self.held.len() < LONGEST_STRING {
            self.held.push(byte);
        } else {
            self.at = At::Dropped { bell: true };
        }
    }

    /// Judges an operating system command that is whole. `end` is how it ended.
    fn command(&mut self, end: &[u8], out: &mut Vec<u8>) {
        self.at = At::Text;
        // The held bytes begin with the two that introduce the command.
        let before = out.len();
        let asks = strings::command(&self.held[2..], end, &mut self.state, out);
        self.note_question(asks, before, out);
    }

    /// Notes that a question was let through, or takes it back.
    fn note_question(&mut self, asks: bool, before: usize, out: &mut Vec<u8>) {
        if asks && self.past {
            out.truncate(before);
        } else {
            self.asked |= asks;
        }
    }
}

/// A control character within a sequence counts at once, as terminals have it.
fn control_within(byte: u8, out: &mut Vec<u8>) {
    if PLAIN[usize::from(byte)] {
        out.push(byte);
    }
}

#[cfg(test)]
mod tests;
