//! What the interpreter of a session says to the guest, on a socket of its own.
//!
//! A reply is a line of words, and for some a payload of as many bytes as the line says:
//!
//! ```text
//! ready
//! result MIME VALUE value|display LENGTH
//! exception LENGTH
//! done CODE TOKEN
//! ```
//!
//! The token is the one that came with the run. Whoever says another one speaks of another run, or guesses.
//!
//! Whoever runs code in a session can say all of it as well. It harms that session only: whatever does not follow the rules
//! ends it.

use bytes::{Buf, Bytes, BytesMut};
use prost::Message;

use crate::bound;

/// No line of a reply is longer.
const LONGEST_LINE: usize = 256;
/// No MIME type is longer.
const LONGEST_MIME: usize = 128;
/// No token is longer.
const LONGEST_TOKEN: usize = 64;

/// A run in a session: part of [`StartRun`](crate::StartRun).
#[derive(Clone, PartialEq, Message)]
pub struct SessionRun {
    /// The session's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The language of its interpreter.
    #[prost(string, tag = "2")]
    pub language: String,
    /// What its group is known by, if it is started now: an id as those of runs.
    #[prost(string, tag = "3")]
    pub key: String,
    /// What its interpreter is told first, if it is started now.
    #[prost(bytes = "bytes", tag = "4")]
    pub opening: Bytes,
    /// What it is told for this run.
    #[prost(bytes = "bytes", tag = "5")]
    pub input: Bytes,
    /// What its end is known by. It is among what the interpreter is told.
    #[prost(string, tag = "6")]
    pub token: String,
}

/// Which session a run is in: part of [`Started`](crate::Started).
#[derive(Clone, PartialEq, Message)]
pub struct SessionStarted {
    /// What its group is known by.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Whether its interpreter was started for this run.
    #[prost(bool, tag = "2")]
    pub new: bool,
    /// How the one before it ended, where there was one.
    #[prost(message, optional, tag = "3")]
    pub before: Option<crate::Exited>,
    /// Runs in it so far, this one included. None if this one never had its turn.
    #[prost(uint64, tag = "4")]
    pub runs: u64,
}

/// A session that the guest knows of.
#[derive(Clone, PartialEq, Message)]
pub struct SessionInfo {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The language of its interpreter.
    #[prost(string, tag = "2")]
    pub language: String,
    /// The process id inside of its interpreter.
    #[prost(int32, tag = "3")]
    pub pid: i32,
    /// When it started, nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub started_ns: i64,
    /// Runs in it so far.
    #[prost(uint64, tag = "5")]
    pub runs: u64,
    /// The run that is under way in it.
    #[prost(string, optional, tag = "6")]
    pub busy: Option<String>,
    /// How its interpreter ended, once it did.
    #[prost(message, optional, tag = "7")]
    pub ended: Option<crate::Exited>,
    /// The runs that wait for their turn in it, in their order.
    #[prost(string, repeated, tag = "8")]
    pub waiting: Vec<String>,
}

/// Names a session.
#[derive(Clone, PartialEq, Message)]
pub struct SessionName {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// The head of a result; its bytes follow.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ResultHead {
    /// What it is: a MIME type.
    #[prost(string, tag = "1")]
    pub mime: String,
    /// Which of the values that the run shows it is of. One value may come in several forms.
    #[prost(uint64, tag = "2")]
    pub value: u64,
    /// Whether the code asked for it to be shown; otherwise it is the value of the last expression.
    #[prost(bool, tag = "3")]
    pub displayed: bool,
    /// How many bytes follow.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
}

/// One reply, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The interpreter takes runs.
    Ready,
    /// A result begins.
    Result(ResultHead),
    /// Bytes of the result that began.
    Data(Bytes),
    /// The code failed: a JSON object.
    Exception(Bytes),
    /// The run is over that has this token.
    Done(u8, String),
}

/// A reply that does not follow the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what came from the interpreter is no reply")]
pub struct WrongReply;

/// Turns bytes into replies. Holds no more than a line, or an exception.
#[derive(Debug, Default)]
pub struct Replies {
    held: BytesMut,
    /// Bytes of the result that began and have not come.
    due: u64,
    /// The length of the exception that is coming.
    exception: Option<usize>,
}

impl Replies {
    /// Takes what came next.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// Whether there is something that belongs to a reply which did not come whole.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.due == 0 && self.exception.is_none()
    }

    /// The next reply, if it is there.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Reply>, WrongReply> {
        if self.due > 0 {
            if self.held.is_empty() {
                return Ok(None);
            }
            let length = self.held.len().min(usize::try_from(self.due).unwrap_or(usize::MAX)).min(bound::CHUNK);
            self.due -= length as u64;
            return Ok(Some(Reply::Data(self.held.split_to(length).freeze())));
        }
        if let Some(length) = self.exception {
            if self.held.len() < length {
                return Ok(None);
            }
            self.exception = None;
            return Ok(Some(Reply::Exception(self.held.split_to(length).freeze())));
        }
        let Some(end) = self.held.iter().take(LONGEST_LINE).position(|&byte| byte == b'\n') else {
            return if self.held.len() < LONGEST_LINE { Ok(None) } else { Err(WrongReply) };
        };
        let line = self.held.split_to(end);
        self.held.advance(1);
        self.read_line(&line).map(Some).ok_or(WrongReply).and_then(|reply| match reply {
            // The payload is the reply.
            Some(Reply::Exception(_)) => self.next(),
            reply => Ok(reply),
        })
    }

    fn read_line(&mut self, line: &[u8]) -> Option<Reply> {
        let line = str::from_utf8(line).ok()?;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["ready"] => Some(Reply::Ready),
            ["result", mime, value, kind, bytes] => {
                let displayed = match kind {
                    "value" => false,
                    "display" => true,
                    _ => return None,
                };
                let bytes = number(bytes).filter(|&bytes| bytes <= bound::RESULT as u64)?;
                let mime = Some(mime).filter(|mime| is_mime(mime))?.to_owned();
                self.due = bytes;
                Some(Reply::Result(ResultHead { mime, value: number(value)?, displayed, bytes }))
            }
            ["exception", length] => {
                self.exception = Some(usize::try_from(number(length)?).ok().filter(|&n| n <= bound::EXCEPTION)?);
                Some(Reply::Exception(Bytes::new()))
            }
            ["done", code, token] => {
                let code = u8::try_from(number(code)?).ok()?;
                (!token.is_empty() && token.len() <= LONGEST_TOKEN).then(|| Reply::Done(code, token.to_owned()))
            }
            _ => None,
        }
    }
}

fn number(word: &str) -> Option<u64> {
    (word.bytes().all(|byte| byte.is_ascii_digit()) && word.len() <= 18).then(|| word.parse().ok())?
}

/// Whether a text has the form of a MIME type, in lower case and without parameters.
pub fn is_mime(text: &str) -> bool {
    let is_part = |part: &str| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".+-".contains(&byte);
        !part.is_empty() && part.bytes().all(allowed)
    };
    text.len() <= LONGEST_MIME && text.split_once('/').is_some_and(|(kind, form)| is_part(kind) && is_part(form))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(bytes: &[u8], piece: usize) -> Result<Vec<Reply>, WrongReply> {
        let mut replies = Replies::default();
        let mut found: Vec<Reply> = Vec::new();
        for part in bytes.chunks(piece.max(1)) {
            replies.push(part);
            while let Some(reply) = replies.next()? {
                match (found.last_mut(), reply) {
                    (Some(Reply::Data(before)), Reply::Data(more)) => *before = [&before[..], &more].concat().into(),
                    (_, reply) => found.push(reply),
                }
            }
        }
        Ok(found)
    }

    #[test]
    fn replies_are_read_however_they_come_in_pieces() {
        let bytes =
            b"ready\nresult image/png 0 value 5\nab\ncdexception 2\n{}result text/plain 1 display 0\ndone 1 run_7\n";
        let head = |mime: &str, value, displayed, bytes| ResultHead { mime: mime.into(), value, displayed, bytes };
        let expected = [
            Reply::Ready,
            Reply::Result(head("image/png", 0, false, 5)),
            Reply::Data(Bytes::from_static(b"ab\ncd")),
            Reply::Exception(Bytes::from_static(b"{}")),
            Reply::Result(head("text/plain", 1, true, 0)),
            Reply::Done(1, "run_7".to_owned()),
        ];
        for piece in [1, 2, 7, 1000] {
            assert_eq!(all(bytes, piece).unwrap(), expected, "{piece}");
        }
    }

    #[test]
    fn what_breaks_the_rules_is_refused() {
        let long = vec![b'x'; LONGEST_LINE];
        let large = format!("result text/plain 0 value {}\n", bound::RESULT + 1);
        for wrong in [
            &b"hello\n"[..],
            b"done 256 a\n",
            b"done -1 a\n",
            b"done  1 a\n",
            b"done 1\n",
            b"done 1 \n",
            b"done 1 a b\n",
            &[b"done 1 ", &[b'a'; LONGEST_TOKEN + 1][..], b"\n"].concat(),
            b"result text 0 value 1\n",
            b"result Text/plain 0 value 1\n",
            b"result text/plain 0 shown 1\n",
            b"exception 99999999\n",
            b"\n",
            b"ready \xff\n",
            &long,
            large.as_bytes(),
        ] {
            assert_eq!(all(wrong, 1000), Err(WrongReply), "{}", String::from_utf8_lossy(wrong));
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_refused_and_little_is_held(bytes in prop::collection::vec(any::<u8>(), 0..2000), piece in 1usize..100) {
            let mut replies = Replies::default();
            for part in bytes.chunks(piece) {
                replies.push(part);
                loop {
                    match replies.next() {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(WrongReply) => return Ok(()),
                    }
                }
                prop_assert!(replies.held.len() <= LONGEST_LINE.max(bound::EXCEPTION));
            }
        }
    }
}
