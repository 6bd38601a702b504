//! What the interpreter of a session says to the guest: code in the session can say anything there.
#![no_main]

use glovebox_proto::{
    bound,
    session::{Replies, Reply, is_mime},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let mut replies = Replies::default();
    let mut due = 0u64;
    for part in bytes.chunks(usize::from(piece).max(1)) {
        replies.push(part);
        loop {
            match replies.next() {
                Ok(None) => break,
                Err(_) => return,
                Ok(Some(Reply::Result(head))) => {
                    assert_eq!(due, 0, "the one before is whole");
                    assert!(is_mime(&head.mime) && head.bytes <= bound::RESULT as u64);
                    due = head.bytes;
                }
                Ok(Some(Reply::Data(data))) => {
                    assert!(!data.is_empty() && data.len() <= bound::CHUNK && data.len() as u64 <= due);
                    due -= data.len() as u64;
                }
                Ok(Some(Reply::Exception(text))) => assert!(text.len() <= bound::EXCEPTION),
                Ok(Some(Reply::Ready)) => assert_eq!(due, 0),
                Ok(Some(Reply::Done(_, token))) => assert!(due == 0 && !token.is_empty() && !token.contains([' ', '\n'])),
            }
        }
    }
});
