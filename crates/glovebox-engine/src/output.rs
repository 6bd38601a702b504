//! Keeping the head and the tail of an output stream in bounded memory.

use glovebox_core::{OutputRecord, Secret};

use crate::Capture;

/// One output stream as it comes in.
#[derive(Debug)]
pub(crate) struct Output {
    capture: Capture,
    /// Half of the limit goes to the head, the rest to the tail.
    head_room: usize,
    tail_room: usize,
    head: Vec<u8>,
    /// The last bytes, as a ring once it is full.
    tail: Vec<u8>,
    tail_start: usize,
    limit: u64,
    /// Bytes that came.
    bytes: u64,
    /// Bytes that the program wrote and that never came.
    missed: u64,
    /// Bytes of those that came that stand in their place.
    marks: u64,
}

impl Output {
    pub(crate) fn new(limit: u64, capture: Capture) -> Self {
        let kept = usize::try_from(limit).unwrap_or(usize::MAX);
        let head_room = kept - kept / 2;
        Output {
            capture,
            head_room,
            tail_room: kept / 2,
            head: Vec::new(),
            tail: Vec::new(),
            tail_start: 0,
            limit,
            bytes: 0,
            missed: 0,
            marks: 0,
        }
    }

    /// Takes the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if self.capture == Capture::Count {
            return;
        }
        let to_head = bytes.len().min(self.head_room - self.head.len());
        let (head, rest) = bytes.split_at(to_head);
        append(&mut self.head, head, self.head_room);
        self.push_tail(rest);
    }

    /// Notes that bytes were lost on their way.
    pub(crate) fn skip(&mut self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mark = format!("\n[glovebox: {bytes} bytes missed]\n");
        self.missed = self.missed.saturating_add(bytes);
        self.marks += mark.len() as u64;
        self.push(mark.as_bytes());
    }

    fn push_tail(&mut self, bytes: &[u8]) {
        let mut bytes = &bytes[bytes.len().saturating_sub(self.tail_room)..];
        let to_grow = bytes.len().min(self.tail_room - self.tail.len());
        append(&mut self.tail, &bytes[..to_grow], self.tail_room);
        bytes = &bytes[to_grow..];
        while !bytes.is_empty() {
            let room = self.tail.len() - self.tail_start;
            let part = bytes.len().min(room);
            self.tail[self.tail_start..self.tail_start + part].copy_from_slice(&bytes[..part]);
            self.tail_start = (self.tail_start + part) % self.tail.len();
            bytes = &bytes[part..];
        }
    }

    /// Whether more came in than is kept.
    pub(crate) fn exceeded(&self) -> bool {
        self.bytes > self.limit
    }

    /// The record of the stream, with the secrets masked.
    pub(crate) fn record<'a>(self, secrets: impl IntoIterator<Item = &'a Secret>) -> OutputRecord {
        let truncated = self.exceeded() && self.capture == Capture::Keep;
        let written = (self.bytes - self.marks).saturating_add(self.missed);
        let left_out = self.bytes.saturating_sub((self.head.len() + self.tail.len()) as u64);
        let mut kept = self.head;
        kept.reserve_exact(self.tail.len() + 64);
        if truncated {
            kept.extend_from_slice(format!("\n[glovebox: {left_out} bytes left out]\n").as_bytes());
        }
        kept.extend_from_slice(&self.tail[self.tail_start..]);
        kept.extend_from_slice(&self.tail[..self.tail_start]);
        if truncated || self.missed > 0 {
            kept = on_character_borders(kept);
        }
        OutputRecord::new(Secret::mask_all(secrets, kept), written, truncated || self.missed > 0)
    }
}

/// Appends to bytes that never become more than `most`, and takes no memory beyond that.
fn append(all: &mut Vec<u8>, more: &[u8], most: usize) {
    let needed = all.len() + more.len();
    if needed > all.capacity() {
        all.reserve_exact(needed.max(2 * all.capacity()).min(most) - all.len());
    }
    all.extend_from_slice(more);
}

/// Cutting a stream can cut a character; its pieces are dropped, so that text stays text. Bytes that are no text are
/// left as they are.
fn on_character_borders(bytes: Vec<u8>) -> Vec<u8> {
    if std::str::from_utf8(&bytes).is_ok() {
        return bytes;
    }
    let cleaned: String = bytes.utf8_chunks().map(|chunk| chunk.valid()).collect();
    // A character has at most 4 bytes and there are two cuts; more than that was never text.
    if bytes.len() - cleaned.len() <= 6 { cleaned.into_bytes() } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(limit: u64, chunks: &[&[u8]]) -> OutputRecord {
        let mut output = Output::new(limit, Capture::Keep);
        chunks.iter().for_each(|chunk| output.push(chunk));
        output.record([])
    }

    #[test]
    fn a_short_stream_is_kept_whole() {
        let record = record(10, &[b"hello ", b"you"]);
        assert_eq!((record.text.as_deref(), record.bytes, record.truncated), (Some("hello you"), 9, false));
    }

    #[test]
    fn a_long_stream_keeps_head_and_tail_and_says_how_much_is_missing() {
        let record = record(4, &[b"abcdef", b"gh", b"ij"]);
        assert_eq!(record.text.as_deref(), Some("ab\n[glovebox: 6 bytes left out]\nij"));
        assert!(record.truncated);
    }

    #[test]
    fn what_was_missed_is_marked_and_counted() {
        let mut output = Output::new(100, Capture::Keep);
        output.push(b"one");
        output.skip(0);
        output.skip(70);
        output.push(b"two");
        let record = output.record([]);
        assert_eq!(record.text.as_deref(), Some("one\n[glovebox: 70 bytes missed]\ntwo"));
        assert_eq!((record.bytes, record.truncated), (76, true));
    }

    #[test]
    fn a_character_that_was_cut_does_not_make_text_binary() {
        let record = record(5, &["ééééé".as_bytes()]);
        assert!(record.text.is_some(), "{record:?}");
    }

    #[test]
    fn secrets_are_masked() {
        let mut output = Output::new(100, Capture::Keep);
        output.push(b"token=hunter2.");
        assert_eq!(output.record(&[Secret::new("hunter2")]).text.as_deref(), Some("token=[redacted]."));
    }

    proptest! {
        #[test]
        fn head_and_tail_are_those_of_the_stream(limit in 1usize..40, chunks in prop::collection::vec(prop::collection::vec(b'a'..=b'z', 0..20), 0..20)) {
            let mut output = Output::new(limit as u64, Capture::Keep);
            for chunk in &chunks { output.push(chunk); }
            let whole: Vec<u8> = chunks.concat();
            let text = output.record([]).text.unwrap().into_bytes();
            if whole.len() <= limit {
                prop_assert_eq!(text, whole);
            } else {
                let tail = limit / 2;
                prop_assert!(text.starts_with(&whole[..limit - tail]));
                prop_assert!(text.ends_with(&whole[whole.len() - tail..]));
            }
        }
    }
}
