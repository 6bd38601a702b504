//! The messages about files travel both ways, and both sides read what the other sent. None may panic, whatever the bytes,
//! and what is read must be written as something that is read the same.
#![no_main]

use glovebox_core::{FilePath, InsidePath, WORKING_DIR, shown};
use glovebox_proto::file::{
    ArchiveEnd, ChangeFiles, Entries, Entry, FileEvents, FileFailed, FolderArchive, ListEnd, ListFolder, ReadFile, ReadFiles,
    StatFile, WatchFiles, WriteFile,
};
use libfuzzer_sys::fuzz_target;
use prost::Message;

fuzz_target!(|bytes: &[u8]| {
    check::<ReadFile>(bytes);
    check::<ReadFiles>(bytes);
    check::<WriteFile>(bytes);
    check::<ListFolder>(bytes);
    check::<StatFile>(bytes);
    check::<ChangeFiles>(bytes);
    check::<FolderArchive>(bytes);
    check::<WatchFiles>(bytes);
    check::<Entry>(bytes);
    check::<Entries>(bytes);
    check::<ListEnd>(bytes);
    check::<ArchiveEnd>(bytes);
    check::<FileEvents>(bytes);
    check::<FileFailed>(bytes);
    let base = InsidePath::absolute(WORKING_DIR).expect("the working directory is a path");
    for path in [FilePath::absolute(bytes), FilePath::relative_to(&base, bytes)].into_iter().flatten() {
        let own = path.as_bytes();
        assert!(own.starts_with(b"/") && own.len() < 4096 && !own.contains(&0));
        assert!(!own.split(|byte| *byte == b'/').any(|part| part == b".." || part == b"." || part.len() > 255));
        assert_eq!(FilePath::absolute(own).expect("a checked path is a path"), path);
    }
    assert!(!shown(bytes).chars().any(|c| c.is_control() && c != '\t'));
});

fn check<M: Message + Default + PartialEq>(bytes: &[u8]) {
    if let Ok(message) = M::decode(bytes) {
        assert!(M::decode(message.encode_to_vec().as_slice()).is_ok_and(|again| again == message));
    }
}
