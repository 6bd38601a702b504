//! What is mounted where commands write: what the plan knows of, and nothing else.
//!
//! An image can have volumes of its own, which its engine mounts from its disk. No limit of the sandbox holds what is written there, so
//! they may only be elsewhere, or read-only. The backend sees to that by their paths, but a link in the image can lead one anywhere.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use glovebox_archive::open_at;
use glovebox_proto::container::{CHANNEL, Door, GUEST, Plan};
use rustix::{
    fs::{CWD, OFlags, ResolveFlags},
    io::Errno,
};

use crate::own::WRITTEN;

/// No list of mounts is longer.
const LONGEST_LIST: u64 = 4 << 20;

/// Sees to it that what is Glovebox's own is where it belongs: a link of the image's would have led its mounts to where commands write.
pub(super) fn own_places(plan: &Plan) -> rustix::io::Result<()> {
    let channel = matches!(plan.door, Door::Folder).then_some(CHANNEL);
    for path in [GUEST].into_iter().chain(channel) {
        open_at(CWD, path.as_bytes(), OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::NO_SYMLINKS)?;
    }
    Ok(())
}

/// The place of a mount that commands could write to and that the plan does not know.
pub(super) fn stranger(plan: &Plan) -> io::Result<Option<PathBuf>> {
    let mut list = Vec::new();
    File::open("/proc/self/mountinfo")?.take(LONGEST_LIST + 1).read_to_end(&mut list)?;
    if list.len() as u64 > LONGEST_LIST {
        return Err(Errno::FBIG.into());
    }
    // An image may have a link there, and what is attached later may not be there.
    let real = |path: &str| fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let folders: Vec<PathBuf> = WRITTEN.into_iter().chain(plan.written.iter().map(String::as_str)).map(real).collect();
    find(&list, &folders)
}

/// Finds a mount below one of these folders that can be written to, or a second one on one of them.
fn find(list: &[u8], folders: &[PathBuf]) -> io::Result<Option<PathBuf>> {
    let mut seen: Vec<PathBuf> = Vec::new();
    for line in list.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let mut words = line.split(|byte| *byte == b' ');
        let (place, options) = words.nth(4).zip(words.next()).ok_or(io::ErrorKind::InvalidData)?;
        let place = PathBuf::from(OsString::from_vec(plain(place)));
        let is_known = folders.contains(&place);
        if (is_known && seen.contains(&place)) || (!is_known && is_below(&place, folders) && !is_read_only(options)) {
            return Ok(Some(place));
        }
        seen.push(place);
    }
    Ok(None)
}

fn is_below(place: &Path, folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| place.starts_with(folder))
}

fn is_read_only(options: &[u8]) -> bool {
    options.split(|byte| *byte == b',').any(|option| option == b"ro")
}

/// A path as it is: the list has a backslash and three octal digits for what would divide its words.
fn plain(written: &[u8]) -> Vec<u8> {
    let (mut path, mut rest) = (Vec::with_capacity(written.len()), written);
    while let [first, after @ ..] = rest {
        let digits = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                path.push(byte);
                rest = &after[3..];
            }
            None => {
                path.push(*first);
                rest = after;
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(places: &[(&str, &str)]) -> Option<String> {
        let lines = places.iter().map(|(place, options)| format!("9 8 0:6 / {place} {options}  - tmpfs none rw\n"));
        let folders = ["/workspace", "/home/user", "/data"].map(PathBuf::from);
        let found = find(lines.collect::<String>().as_bytes(), &folders).expect("a list");
        found.map(|place| place.to_string_lossy().into_owned())
    }

    #[test]
    fn what_can_be_written_below_a_folder_and_is_not_known_is_a_stranger() {
        let usual = [("/", "ro"), ("/workspace", "rw,nosuid"), ("/home/user", "rw"), ("/data", "rw"), ("/dev", "rw")];
        assert_eq!(found(&usual), None);
        let with = |place: &'static str, options: &'static str| found(&[&usual[..], &[(place, options)]].concat());
        assert_eq!(with("/workspace/v", "rw,relatime"), Some("/workspace/v".to_owned()));
        assert_eq!(with("/home/user/a\\040ro,\\134b", "rw"), Some("/home/user/a ro,\\b".to_owned()));
        assert_eq!(with("/workspace", "ro"), Some("/workspace".to_owned()), "a second one");
        for (place, options) in [("/workspace/v", "ro,relatime"), ("/workspaces", "rw"), ("/home", "rw"), ("/x", "rw")]
        {
            assert_eq!(with(place, options), None, "{place}");
        }
    }

    #[test]
    fn a_list_that_cannot_be_understood_is_none() {
        assert!(find(b"1 2 3\n", &[]).is_err());
    }
}
