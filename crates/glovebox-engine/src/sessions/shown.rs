//! What a run in a session shows, as it comes from the guest. Nothing of it is believed beyond its bounds.

use bytes::{Bytes, BytesMut};
use glovebox_core::{Denial, ExceptionRecord, Result, ResultKind, ResultRecord, Secret};
use glovebox_proto::{
    Frame, bound,
    session::{ResultHead, is_mime},
};

use crate::{
    Event, SessionOutput,
    channel::{read, unexpected, violation},
};

/// What was shown so far.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    whole: Vec<SessionOutput>,
    /// One whose bytes are still coming.
    coming: Option<(ResultHead, BytesMut)>,
    bytes: u64,
    exception: Option<ExceptionRecord>,
    /// Whether something was lost on its way.
    pub(crate) missed: bool,
}

impl Shown {
    /// Something begins.
    pub(crate) fn begin(&mut self, frame: &Frame) -> Result<Option<Event>> {
        let head: ResultHead = read(frame)?;
        self.bytes = self.bytes.saturating_add(head.bytes);
        let fits = head.bytes <= bound::RESULT as u64 && self.bytes <= bound::ALL_RESULTS;
        if self.coming.is_some() && !self.missed || !fits || self.whole.len() >= bound::RESULTS || !is_mime(&head.mime)
        {
            return Err(unexpected(frame));
        }
        self.coming = Some((head, BytesMut::new()));
        Ok(self.complete())
    }

    /// Bytes of what began. Those of something whose beginning was missed are of no use.
    pub(crate) fn data(&mut self, frame: &Frame) -> Result<Option<Event>> {
        let Some((head, bytes)) = &mut self.coming else {
            return if self.missed { Ok(None) } else { Err(unexpected(frame)) };
        };
        if bytes.len() as u64 + frame.payload.len() as u64 > head.bytes {
            return Err(unexpected(frame));
        }
        bytes.extend_from_slice(&frame.payload);
        Ok(self.complete())
    }

    fn complete(&mut self) -> Option<Event> {
        let (head, bytes) = self.coming.take_if(|(head, bytes)| bytes.len() as u64 == head.bytes)?;
        let kind = if head.displayed { ResultKind::Display } else { ResultKind::Value };
        let shown = SessionOutput { mime: head.mime, value: head.value, kind, bytes: bytes.freeze() };
        self.whole.push(shown.clone());
        Some(Event::Result(shown))
    }

    /// The code failed.
    pub(crate) fn fail(&mut self, text: &Bytes) -> Result<Option<Event>> {
        if text.len() > bound::EXCEPTION {
            return Err(violation("an exception longer than it may be".to_owned()));
        }
        // What the code itself wrote there may be anything.
        let exception: ExceptionRecord = serde_json::from_slice(text).unwrap_or_else(|_| ExceptionRecord {
            name: "Error".into(),
            message: String::from_utf8_lossy(text).into_owned(),
            traceback: String::new(),
        });
        self.exception = Some(exception.clone());
        Ok(Some(Event::Exception(exception)))
    }

    /// So many bytes were lost on their way.
    pub(crate) fn skip(&mut self, bytes: u64) {
        if bytes > 0 {
            (self.missed, self.coming) = (true, None);
        }
    }

    /// The records of all, with the secrets masked. Text is rewritten; what is not text and holds a secret is left out, and said so.
    pub(crate) fn records(self, secrets: &[&Secret]) -> (Vec<ResultRecord>, Option<ExceptionRecord>, Vec<Denial>) {
        let mask = |text: String| {
            String::from_utf8(Secret::mask_all(secrets.iter().copied(), text.into_bytes())).unwrap_or_default()
        };
        let mut denials = Vec::new();
        let mut records = Vec::new();
        for SessionOutput { mime, value, kind, bytes } in self.whole {
            let masked = Secret::mask_all(secrets.iter().copied(), bytes.to_vec());
            let record = ResultRecord::new(mime, value, kind, masked);
            if record.text.is_none() && record.to_bytes() != bytes {
                let hint = "a result that is not text is kept only without the values of secrets".to_owned();
                denials.push(Denial { kind: "result".into(), target: format!("{} {}", record.mime, value), hint });
                continue;
            }
            records.push(record);
        }
        let exception = self.exception.map(|exception| ExceptionRecord {
            name: mask(exception.name),
            message: mask(exception.message),
            traceback: mask(exception.traceback),
        });
        (records, exception, denials)
    }
}

#[cfg(test)]
mod tests {
    use glovebox_proto::{Decoder, FrameKind};

    use super::*;

    fn frame(bytes: Bytes) -> Frame {
        let mut decoder = Decoder::new();
        decoder.push(bytes);
        decoder.next().expect("a frame").expect("a whole one")
    }

    fn head(bytes: u64) -> Frame {
        let head = ResultHead { mime: "text/plain".into(), value: 0, displayed: true, bytes };
        frame(Frame::message(FrameKind::Result, &head))
    }

    fn data(bytes: &[u8]) -> Frame {
        frame(Frame::data(FrameKind::ResultData, bytes))
    }

    #[test]
    fn a_result_is_whole_when_its_last_bytes_came() {
        let mut shown = Shown::default();
        assert!(shown.begin(&head(5)).unwrap().is_none());
        assert!(shown.data(&data(b"hel")).unwrap().is_none());
        let Some(Event::Result(whole)) = shown.data(&data(b"lo")).unwrap() else { panic!("it is whole") };
        assert_eq!((whole.bytes.as_ref(), whole.kind), (&b"hello"[..], ResultKind::Display));
        assert!(matches!(shown.begin(&head(0)).unwrap(), Some(Event::Result(_))));
    }

    #[test]
    fn what_is_more_than_it_may_be_is_refused() {
        assert!(Shown::default().begin(&head(bound::RESULT as u64 + 1)).is_err());
        let mut shown = Shown::default();
        shown.begin(&head(2)).unwrap();
        assert!(shown.data(&data(b"abc")).is_err());
        assert!(shown.begin(&head(2)).is_err(), "one has not ended");
        assert!(Shown::default().data(&data(b"abc")).is_err());
    }

    #[test]
    fn what_was_cut_by_a_gap_is_left_out_and_the_next_one_counts() {
        let mut shown = Shown::default();
        shown.begin(&head(5)).unwrap();
        shown.skip(5);
        assert!(shown.data(&data(b"xyz")).unwrap().is_none());
        assert!(shown.begin(&head(1)).unwrap().is_none());
        assert!(shown.data(&data(b"x")).unwrap().is_some());
        assert!(shown.missed);
    }

    #[test]
    fn secrets_are_masked_in_text_and_what_is_not_text_is_left_out() {
        let secret = Secret::new("hunter2");
        let mut shown = Shown::default();
        for (mime, bytes) in [("text/plain", &b"a hunter2"[..]), ("image/png", b"\xffhunter2"), ("image/png", b"\xff")]
        {
            let head = ResultHead { mime: mime.into(), value: 0, displayed: true, bytes: bytes.len() as u64 };
            shown.begin(&frame(Frame::message(FrameKind::Result, &head))).unwrap();
            shown.data(&data(bytes)).unwrap();
        }
        shown.fail(&Bytes::from_static(br#"{"name":"E","message":"hunter2","traceback":"hunter2"}"#)).unwrap();
        let (records, exception, denials) = shown.records(&[&secret]);
        let texts: Vec<Option<&str>> = records.iter().map(|record| record.text.as_deref()).collect();
        assert_eq!(texts, [Some("a [redacted]"), None]);
        assert_eq!(denials.len(), 1);
        assert_eq!(exception.unwrap().message, "[redacted]");
    }
}
