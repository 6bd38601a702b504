//! Reading small files ahead, many by one request: of thousands of new files each would else be a request of its own.
//!
//! The walk comes to files in one order, that of their paths, part by part; so a row of those that it may read says which come
//! next. What was read ahead is kept until the next lot is.

use std::{cmp::Ordering, collections::HashMap, collections::VecDeque};

use bytes::Bytes;
use glovebox_core::{FilePath, FileStamp, WORKSPACE_DIR};
use glovebox_proto::{bound, file::SmallFile};

use super::survey::Node;

/// Bytes of one lot: contents, and paths.
const CONTENTS: u64 = 1 << 20;
const PATHS: usize = 32 * 1024;

/// Files that the walk may read, and contents that were read before it came to them.
#[derive(Default)]
pub(super) struct Ahead {
    row: VecDeque<(Vec<u8>, FileStamp)>,
    read: HashMap<Vec<u8>, Bytes>,
}

impl Ahead {
    /// The walk will come to what is in a folder, but for what is as it was.
    pub(super) fn expect(&mut self, folder: &Node, before: Option<&Node>, path: &[u8]) {
        for (name, node) in folder.below.iter().filter(|(_, node)| !node.known.mounted) {
            let below = [path, b"/", name].concat();
            let old = before.and_then(|folder| folder.below.get(name));
            let stamp = node.known.stamp;
            match node.is_folder() {
                true => self.expect(node, old, &below),
                false if stamp.bytes > bound::CHUNK as u64 || !node.is_file() => {}
                false if old.is_some_and(|old| node.known.is_as(&old.known)) => {}
                false => self.row.push_back((below, stamp)),
            }
        }
    }

    /// The content of a file, if it was read ahead.
    pub(super) fn content(&self, path: &[u8]) -> Option<Bytes> {
        self.read.get(path).cloned()
    }

    /// The next lot, of which a file is the first; nothing if it is not expected, or alone. What is not wanted is left out.
    pub(super) fn lot(&mut self, path: &[u8], wanted: impl Fn(&FileStamp) -> bool) -> Option<Vec<SmallFile>> {
        while self.row.front().is_some_and(|(next, _)| order(next, path) == Ordering::Less) {
            self.row.pop_front();
        }
        self.row.front().filter(|(next, _)| next == path)?;
        let (mut lot, mut contents, mut paths) = (Vec::new(), 0, 0);
        while let Some((next, stamp)) = self.row.front() {
            (contents, paths) = (contents + stamp.bytes, paths + next.len());
            let is_full = lot.len() == bound::SMALL_FILES || contents > CONTENTS || paths > PATHS;
            if is_full && !lot.is_empty() {
                break;
            }
            if (lot.is_empty() || wanted(stamp))
                && let Ok(path) = FilePath::absolute([WORKSPACE_DIR.as_bytes(), b"/", next].concat())
            {
                lot.push(SmallFile { path: path.as_bytes().to_vec(), length: stamp.bytes as u32 });
            }
            self.row.pop_front();
        }
        (lot.len() > 1).then_some(lot)
    }

    /// Keeps what was read, in place of the lot before.
    pub(super) fn keep(&mut self, read: impl Iterator<Item = (Vec<u8>, Bytes)>) {
        let below = WORKSPACE_DIR.len() + 1;
        self.read = read.map(|(path, content)| (path[below..].to_vec(), content)).collect();
    }
}

/// The order in which a walk comes to paths.
fn order(one: &[u8], other: &[u8]) -> Ordering {
    one.split(|byte| *byte == b'/').cmp(other.split(|byte| *byte == b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead(files: &[(&str, u64)]) -> Ahead {
        let stamp = |bytes| FileStamp { device: 0, inode: 0, changed_ns: 0, bytes };
        let row = files.iter().map(|(path, bytes)| (path.as_bytes().to_vec(), stamp(*bytes))).collect();
        Ahead { row, ..Ahead::default() }
    }

    fn paths(lot: Option<Vec<SmallFile>>) -> Vec<String> {
        lot.into_iter().flatten().map(|file| String::from_utf8(file.path).unwrap()).collect()
    }

    #[test]
    fn a_lot_begins_with_what_is_asked_for_and_is_bounded() {
        let mut ahead = ahead(&[("o/a", 1), ("o/a/b", 1), ("o/a-c", 1), ("o/d", 1 << 20), ("o/e", 1), ("o/f", 1)]);
        assert_eq!(paths(ahead.lot(b"o/a/b", |_| true)), ["/workspace/o/a/b", "/workspace/o/a-c"]);
        assert_eq!(paths(ahead.lot(b"o/a", |_| true)), [""; 0], "the walk is past it");
        assert_eq!(paths(ahead.lot(b"o/e", |_| false)), [""; 0], "one alone is no lot");
        assert_eq!(paths(ahead.lot(b"o/f", |_| true)), [""; 0], "it was looked at with the one before");
    }

    #[test]
    fn no_lot_has_more_files_than_a_request_takes() {
        let names: Vec<String> = (0..200).map(|n| format!("o/{n:03}")).collect();
        let files: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 0)).collect();
        let mut ahead = ahead(&files);
        assert_eq!(ahead.lot(b"o/000", |_| true).unwrap().len(), bound::SMALL_FILES);
        assert_eq!(ahead.row.len(), 200 - bound::SMALL_FILES);
    }
}
