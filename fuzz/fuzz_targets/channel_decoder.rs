//! The channel's decoder gets bytes from the guest, a hostile witness. However the bytes are cut into chunks, it must
//! give the same frames and the same verdict, never a payload above the bound, and never panic.
#![no_main]

use bytes::Bytes;
use glovebox_proto::{
    ArtifactQuery, Attach, Attached, Decoder, Exited, FileEntry, Frame, FrameError, Gap, MAX_PAYLOAD, Resize, RunInfo, Signal,
    StartFailed, StartRun, Started,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (chunk, bytes) = input;
    let (frames, verdict) = decode(&bytes, bytes.len().max(1));
    let (cut_frames, cut_verdict) = decode(&bytes, usize::from(chunk).max(1));
    assert_eq!(frames, cut_frames);
    assert_eq!(verdict, cut_verdict);
    for frame in frames {
        assert!(frame.payload.len() <= MAX_PAYLOAD);
        // A payload that is not the message it should be is an error, whatever message is asked for.
        let _ = frame.read::<StartRun>();
        let _ = frame.read::<Started>();
        let _ = frame.read::<StartFailed>();
        let _ = frame.read::<Exited>();
        let _ = frame.read::<Signal>();
        let _ = frame.read::<Resize>();
        let _ = frame.read::<FileEntry>();
        let _ = frame.read::<ArtifactQuery>();
        let _ = frame.read::<Attach>();
        let _ = frame.read::<Attached>();
        let _ = frame.read::<Gap>();
        let _ = frame.read::<RunInfo>();
    }
});

fn decode(bytes: &[u8], chunk: usize) -> (Vec<Frame>, Result<(), FrameError>) {
    let mut decoder = Decoder::new();
    let mut frames = Vec::new();
    for chunk in bytes.chunks(chunk) {
        decoder.push(Bytes::copy_from_slice(chunk));
        loop {
            match decoder.next() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    (frames, decoder.finish())
}
