//! The reader of archives gets bytes from a guest, a hostile witness, and from whoever packed what a user copies in. However
//! the bytes are cut into pieces, it must give the same events and the same verdict, never more bytes of a file than its
//! entry promised, and never panic. What is unpacked must stay in its folder.
#![no_main]

use std::{fs, os::fd::OwnedFd, path::PathBuf, sync::OnceLock};

use glovebox_archive::{Entry, Event, Kind, LONGEST_PATH, LinkRule, Reader, Unpack};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (piece, mut bytes) = input;
    mend_sums(&mut bytes);
    let whole = read(&bytes, bytes.len().max(1));
    assert_eq!(whole, read(&bytes, usize::from(piece).max(1)));
    let mut left = 0;
    for seen in &whole.0 {
        match seen {
            Seen::Entry(entry) => {
                assert!(entry.path.len() <= LONGEST_PATH);
                left = if let Kind::File(size) = entry.kind { size } else { 0 };
            }
            Seen::Data(length) => left = left.checked_sub(*length).expect("no more than was promised"),
            Seen::FileEnd => assert_eq!(left, 0),
        }
    }
    unpack(&bytes);
});

/// Gives every block a right sum where a header could be, so that more than one in a million gets past the first look.
fn mend_sums(bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(512).filter(|block| block[0] != 0) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
}

#[derive(Debug, PartialEq)]
enum Seen {
    Entry(Entry),
    Data(u64),
    FileEnd,
}

fn read(bytes: &[u8], piece: usize) -> (Vec<Seen>, Result<(), String>) {
    let mut reader = Reader::default();
    let mut seen: Vec<Seen> = Vec::new();
    for mut piece in bytes.chunks(piece) {
        loop {
            match reader.next(&mut piece) {
                Ok(Some(Event::Entry(entry))) => seen.push(Seen::Entry(entry)),
                Ok(Some(Event::FileEnd)) => seen.push(Seen::FileEnd),
                Ok(Some(Event::Data(bytes))) => match seen.last_mut() {
                    Some(Seen::Data(length)) => *length += bytes.len() as u64,
                    _ => seen.push(Seen::Data(bytes.len() as u64)),
                },
                Ok(None) => break,
                Err(error) => return (seen, Err(error.to_string())),
            }
        }
    }
    (seen, reader.finish().map_err(|error| error.to_string()))
}

/// Unpacks into a folder of its own and looks whether anything is beside it.
fn unpack(bytes: &[u8]) {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    let place = PLACE.get_or_init(|| std::env::temp_dir().join(format!("glovebox-fuzz-{}", std::process::id())));
    let folder = place.join("in");
    fs::create_dir_all(&folder).expect("a folder can be made");
    let open: OwnedFd = fs::File::open(&folder).expect("the folder is there").into();
    let mut unpack = Unpack::into_folder(open, LinkRule::Inward);
    let _ = bytes.chunks(1000).try_for_each(|piece| unpack.push(piece));
    assert_eq!(fs::read_dir(place).expect("the folder is there").count(), 1);
    fs::remove_dir_all(place).expect("what was made can be removed");
}
