//! Frames: a kind, a length, a payload. Data travels as it is, everything else as a prost message.

use bytes::{Buf, Bytes, BytesMut};
use prost::Message;

/// No payload is longer than this.
pub const MAX_PAYLOAD: usize = 1024 * 1024;

const HEADER: usize = 5;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// What a frame carries.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum FrameKind { $($(#[$doc])* $name = $number,)* }

        impl FrameKind {
            fn from_u8(number: u8) -> Option<Self> {
                match number { $($number => Some(FrameKind::$name),)* _ => None }
            }
        }
    };
}

kinds! {
    /// Host: start a command ([`StartRun`](crate::StartRun)).
    Start = 1,
    /// Host: bytes for standard input or the terminal.
    Stdin = 2,
    /// Host: end of standard input.
    StdinEnd = 3,
    /// Host: send a signal ([`Signal`](crate::Signal)).
    Signal = 4,
    /// Host: the terminal has a new size ([`Resize`](crate::Resize)).
    Resize = 5,
    /// Host: attach to a run ([`Attach`](crate::Attach)).
    Attach = 6,
    /// Guest: the command started ([`Started`](crate::Started)).
    Started = 16,
    /// Guest: bytes of standard output or of the terminal.
    Stdout = 17,
    /// Guest: bytes of standard error.
    Stderr = 18,
    /// Guest: the command ended ([`Exited`](crate::Exited)).
    Exited = 19,
    /// Guest: the command could not be started ([`StartFailed`](crate::StartFailed)).
    StartFailed = 20,
    /// Guest: the run that was asked for is there ([`Attached`](crate::Attached)).
    Attached = 21,
    /// Guest: output that was lost before it could be told ([`Gap`](crate::Gap)).
    Gap = 22,
    /// Guest: a run ([`RunInfo`](crate::RunInfo)).
    RunInfo = 23,
    /// Guest: there is no such run, or session.
    NoRun = 24,
    /// Guest: a result of a session begins ([`ResultHead`](crate::session::ResultHead)).
    Result = 25,
    /// Guest: bytes of the result that began.
    ResultData = 26,
    /// Guest: what failed in the code of a session, a JSON object.
    Exception = 27,
    /// Guest: a session ([`SessionInfo`](crate::session::SessionInfo)).
    SessionInfo = 28,
    /// Both: a file begins ([`FileEntry`](crate::FileEntry)).
    File = 32,
    /// Both: bytes of the file that began.
    FileData = 33,
    /// Both: the file is complete.
    FileEnd = 34,
    /// Host: what is asked for; which message it is goes with the path of the request.
    Query = 35,
    /// Guest: what was asked for is done.
    Done = 36,
    /// Guest: what is known of a file or folder ([`Entry`](crate::file::Entry)).
    Entry = 37,
    /// Guest: some entries of a folder ([`Entries`](crate::file::Entries)).
    Entries = 38,
    /// Guest: the listing is complete ([`ListEnd`](crate::file::ListEnd)).
    ListEnd = 39,
    /// Guest: the archive is complete ([`ArchiveEnd`](crate::file::ArchiveEnd)).
    ArchiveEnd = 40,
    /// Guest: what happened to files ([`FileEvents`](crate::file::FileEvents)).
    Events = 41,
    /// Guest: what was asked for could not be done ([`FileFailed`](crate::file::FileFailed)).
    Failed = 42,
    /// Guest: some of what was met in a survey ([`MetFiles`](crate::file::MetFiles)).
    MetFiles = 43,
    /// Guest: the survey is over ([`SurveyEnd`](crate::file::SurveyEnd)).
    SurveyEnd = 44,
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it carries.
    pub kind: FrameKind,
    /// The bytes.
    pub payload: Bytes,
}

/// Bytes that are not a row of frames.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A frame of a kind that does not exist.
    #[error("a frame of the unknown kind {0}")]
    UnknownKind(u8),
    /// A frame that is longer than allowed.
    #[error("a frame of {0} bytes, more than the {MAX_PAYLOAD} allowed")]
    TooLong(usize),
    /// The stream ended within a frame.
    #[error("the stream ended within a frame")]
    Truncated,
    /// A payload that is not the message it should be.
    #[error("a message that cannot be read: {0}")]
    Message(String),
}

impl Frame {
    /// A frame that carries a message.
    pub fn message(kind: FrameKind, message: &impl Message) -> Bytes {
        let mut bytes = BytesMut::with_capacity(HEADER + message.encoded_len());
        bytes.extend_from_slice(&header(kind, message.encoded_len()));
        message.encode(&mut bytes).expect("the buffer grows as needed");
        bytes.freeze()
    }

    /// A frame that carries bytes.
    pub fn data(kind: FrameKind, payload: &[u8]) -> Bytes {
        let mut bytes = BytesMut::with_capacity(HEADER + payload.len());
        bytes.extend_from_slice(&header(kind, payload.len()));
        bytes.extend_from_slice(payload);
        bytes.freeze()
    }

    /// Reads a frame's payload as a message.
    pub fn read<M: Message + Default>(&self) -> Result<M, FrameError> {
        M::decode(self.payload.clone()).map_err(|error| FrameError::Message(error.to_string()))
    }

    /// A buffer with room for a data frame: fill it behind [`Frame::HEADER`], then call [`Frame::finish`].
    pub const HEADER: usize = HEADER;

    /// Writes the header into the first bytes of a buffer that holds a payload behind them. One read from a pipe
    /// thus needs no copy to become a frame.
    pub fn finish(kind: FrameKind, buffer: &mut [u8]) {
        let length = buffer.len() - HEADER;
        buffer[..HEADER].copy_from_slice(&header(kind, length));
    }
}

fn header(kind: FrameKind, length: usize) -> [u8; HEADER] {
    assert!(length <= MAX_PAYLOAD, "senders split what is longer");
    let mut header = [kind as u8, 0, 0, 0, 0];
    header[1..].copy_from_slice(&(length as u32).to_le_bytes());
    header
}

/// Turns chunks of bytes into frames. Holds at most one unfinished frame.
#[derive(Debug, Default)]
pub struct Decoder {
    partial: BytesMut,
    whole: Bytes,
}

impl Decoder {
    /// An empty decoder.
    pub fn new() -> Self {
        Decoder::default()
    }

    /// Takes the next chunk. All frames of the chunk before must have been taken with [`Decoder::next`].
    pub fn push(&mut self, chunk: Bytes) {
        if self.partial.is_empty() && self.whole.is_empty() {
            self.whole = chunk;
            return;
        }
        let rest = std::mem::take(&mut self.whole);
        self.partial.extend_from_slice(&rest);
        self.partial.extend_from_slice(&chunk);
    }

    /// The next whole frame, if there is one.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        if !self.partial.is_empty() {
            let Some((kind, length)) = peek(&self.partial)? else { return Ok(None) };
            if self.partial.len() < HEADER + length {
                return Ok(None);
            }
            self.partial.advance(HEADER);
            let payload = self.partial.split_to(length).freeze();
            if self.partial.is_empty() {
                self.partial = BytesMut::new();
            }
            return Ok(Some(Frame { kind, payload }));
        }
        let Some((kind, length)) = peek(&self.whole)? else { return Ok(None) };
        if self.whole.len() < HEADER + length {
            return Ok(None);
        }
        self.whole.advance(HEADER);
        Ok(Some(Frame { kind, payload: self.whole.split_to(length) }))
    }

    /// Bytes that wait for the rest of their frame, once [`Decoder::next`] gives none.
    pub fn held(&self) -> usize {
        self.partial.len() + self.whole.len()
    }

    /// Says whether the stream may end here.
    pub fn finish(&self) -> Result<(), FrameError> {
        if self.partial.is_empty() && self.whole.is_empty() { Ok(()) } else { Err(FrameError::Truncated) }
    }
}

fn peek(bytes: &[u8]) -> Result<Option<(FrameKind, usize)>, FrameError> {
    let Some(&kind) = bytes.first() else { return Ok(None) };
    let kind = FrameKind::from_u8(kind).ok_or(FrameError::UnknownKind(kind))?;
    let Some(length) = bytes.get(1..HEADER) else { return Ok(None) };
    let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
    if length > MAX_PAYLOAD {
        return Err(FrameError::TooLong(length));
    }
    Ok(Some((kind, length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(chunks: impl IntoIterator<Item = Bytes>) -> Result<Vec<Frame>, FrameError> {
        let mut decoder = Decoder::new();
        let mut frames = Vec::new();
        for chunk in chunks {
            decoder.push(chunk);
            while let Some(frame) = decoder.next()? {
                frames.push(frame);
            }
        }
        decoder.finish()?;
        Ok(frames)
    }

    proptest! {
        #[test]
        fn frames_survive_any_cutting_into_chunks(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
            cut in 1usize..50,
        ) {
            let mut bytes = Vec::new();
            for payload in &payloads {
                bytes.extend_from_slice(&Frame::data(FrameKind::Stdout, payload));
            }
            let frames = decode(bytes.chunks(cut).map(Bytes::copy_from_slice)).unwrap();
            let decoded: Vec<Vec<u8>> = frames.into_iter().map(|f| f.payload.to_vec()).collect();
            prop_assert_eq!(decoded, payloads);
        }

        #[test]
        fn arbitrary_bytes_never_panic(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..10)) {
            let _ = decode(chunks.into_iter().map(Bytes::from));
        }
    }

    #[test]
    fn unknown_kinds_long_frames_and_cut_streams_are_errors() {
        assert_eq!(decode([Bytes::from_static(&[99])]), Err(FrameError::UnknownKind(99)));
        let long = Bytes::from_static(&[17, 0xff, 0xff, 0xff, 0x7f]);
        assert!(matches!(decode([long]), Err(FrameError::TooLong(_))));
        let cut = Frame::data(FrameKind::Stdout, b"hello").slice(..7);
        assert_eq!(decode([cut]), Err(FrameError::Truncated));
    }
}
