//! What a guest that lies answers to requests about files.

use bytes::Bytes;
use glovebox_proto::{
    Frame, FrameKind,
    file::{
        ArchiveEnd, Entries, Entry, EntryKind, EventKind, FileEvent, FileEvents, FileFailed, ListEnd, Met, MetFiles,
    },
};

/// A lie about files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileLie {
    /// More bytes than it said that the file has.
    TooMuch,
    /// A file that ends without an end.
    NoEnd,
    /// A name that leads elsewhere.
    ClimbingName,
    /// A name that is none.
    EmptyName,
    /// More entries in one frame than a frame may hold.
    TooManyEntries,
    /// An event with a path that leads elsewhere.
    ClimbingEvent,
    /// A watch that begins with its end.
    NoWatch,
    /// An answer that belongs to another request.
    OtherAnswer,
    /// An error number that does not exist.
    StrangeErrno(i32),
    /// A file of the workspace that was told before.
    MetTwice,
    /// A file of the workspace that climbs out of it.
    ClimbingMet,
    /// More files of the workspace than can be asked for.
    EndlessSurvey,
    /// A survey that ends without an end.
    NoSurveyEnd,
    /// An archive that is none.
    NoArchive,
    /// An archive with a path that leads elsewhere.
    ClimbingArchive,
    /// An archive that is cut off, with an end that says it is whole.
    CutArchive,
}

impl FileLie {
    /// What it sends.
    pub(crate) fn frames(self) -> Vec<Bytes> {
        let entry = |name: &'static [u8]| Entry { name: Bytes::from_static(name), bytes: 3, ..Entry::default() };
        let entries = |entries| Frame::message(FrameKind::Entries, &Entries { entries });
        let begun = || Frame::message(FrameKind::Events, &FileEvents::default());
        let done = || Frame::data(FrameKind::Done, &[]);
        let archive = |bytes: &[u8]| {
            vec![Frame::data(FrameKind::FileData, bytes), Frame::message(FrameKind::ArchiveEnd, &ArchiveEnd::default())]
        };
        match self {
            FileLie::TooMuch => {
                let known = Frame::message(FrameKind::Entry, &entry(b"file"));
                vec![known, Frame::data(FrameKind::FileData, b"four"), done()]
            }
            FileLie::NoEnd => vec![Frame::message(FrameKind::Entry, &entry(b"file"))],
            FileLie::ClimbingName => vec![entries(vec![entry(b"../../etc/passwd")])],
            FileLie::EmptyName => vec![entries(vec![entry(b"")])],
            FileLie::TooManyEntries => vec![entries(vec![entry(b"x"); 60_000])],
            FileLie::ClimbingEvent => {
                let path = Bytes::from_static(b"a/../../x");
                let event = FileEvent { kind: EventKind::Create.into(), path, ..FileEvent::default() };
                vec![begun(), Frame::message(FrameKind::Events, &FileEvents { events: vec![event] })]
            }
            FileLie::NoWatch => vec![done()],
            FileLie::OtherAnswer => vec![Frame::message(FrameKind::ListEnd, &ListEnd::default())],
            FileLie::StrangeErrno(errno) => {
                vec![Frame::message(FrameKind::Failed, &FileFailed { errno, ..FileFailed::default() })]
            }
            FileLie::MetTwice => vec![met(vec!["outputs", "outputs"])],
            FileLie::ClimbingMet => vec![met(vec!["outputs", "outputs/../../etc"])],
            FileLie::EndlessSurvey => {
                let names: Vec<String> = (0..250_000).map(|number| format!("outputs/{number}")).collect();
                let frames = names.chunks(1000).map(|some| met(some.iter().map(String::as_str).collect()));
                std::iter::once(met(vec!["outputs"])).chain(frames).collect()
            }
            FileLie::NoSurveyEnd => vec![met(vec!["outputs"])],
            FileLie::NoArchive => archive(&[0xa5; 5000]),
            FileLie::ClimbingArchive => archive(&climbing()),
            FileLie::CutArchive => archive(&climbing()[..300]),
        }
    }
}

/// Folders of these paths, as a survey tells them.
fn met(paths: Vec<&str>) -> Bytes {
    let entry = |path: &str| Entry {
        name: Bytes::copy_from_slice(path.as_bytes()),
        kind: EntryKind::Directory.into(),
        ..Entry::default()
    };
    let met = paths.into_iter().map(|path| Met { entry: Some(entry(path)), ..Met::default() }).collect();
    Frame::message(FrameKind::MetFiles, &MetFiles { met })
}

/// An archive with one file whose path climbs.
fn climbing() -> Vec<u8> {
    let mut block = [0u8; 512];
    block[..9].copy_from_slice(b"../escape");
    block[100..107].copy_from_slice(b"0000644");
    block[124..135].copy_from_slice(b"00000000003");
    block[136..147].copy_from_slice(b"00000000000");
    block[148..156].fill(b' ');
    block[156] = b'0';
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    [&block[..], b"out", &[0; 509 + 1024]].concat()
}
