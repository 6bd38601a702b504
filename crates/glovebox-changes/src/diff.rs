//! How the content of a file changed, line by line.

use std::{io::Read, time::Duration};

use glovebox_core::{Change, Error, ErrorCode, FileKind, FileState, Result};
use glovebox_ledger::{BlobReader, Blobs, Sha256Hash};
use similar::{ChangeTag, TextDiff};

/// Larger files are shown by size and hash alone.
const LARGEST: u64 = 1 << 20;
/// After this a diff may be longer than it need be; hostile texts are made to take for ever.
const LONGEST: Duration = Duration::from_millis(500);
/// Lines around a change.
const CONTEXT: usize = 3;

/// How a file changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Diff {
    /// Lines.
    Text(Vec<DiffLine>),
    /// The content is no text.
    Binary,
    /// The content is too large to be shown.
    TooLarge,
    /// The content is the same, there is none, or it was not kept.
    Nothing,
}

/// One line of a diff, without its end. Lines end with `\n` alone, as for Git, and their text is as it was written: it is
/// for [`glovebox_core::printable`] before it is for a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiffLine {
    /// Where the following lines are.
    Place(String),
    /// A line that stayed.
    Same(String),
    /// A line that came.
    Added(String),
    /// A line that went.
    Removed(String),
    /// The line before has no end.
    NoNewline,
}

/// The diff of one change.
pub fn diff(blobs: &Blobs, change: &Change) -> Result<Diff> {
    let (before, after) = (Side::of(change.before.as_ref()), Side::of(change.after.as_ref()));
    if matches!(before, Side::Unknown) || matches!(after, Side::Unknown) || before == after {
        return Ok(Diff::Nothing);
    }
    if before.bytes() > LARGEST || after.bytes() > LARGEST {
        return Ok(Diff::TooLarge);
    }
    let (Some(before), Some(after)) = (before.text(blobs)?, after.text(blobs)?) else { return Ok(Diff::Binary) };
    Ok(Diff::Text(lines(&before, &after)))
}

/// The content of a file before or after.
#[derive(PartialEq, Eq)]
enum Side<'a> {
    Empty,
    Kept { sha256: &'a str, bytes: u64 },
    Unknown,
}

impl<'a> Side<'a> {
    fn of(state: Option<&'a FileState>) -> Self {
        match state.map(|state| &state.kind) {
            Some(FileKind::File { sha256: Some(sha256), bytes, .. }) => Side::Kept { sha256, bytes: *bytes },
            Some(FileKind::File { .. }) => Side::Unknown,
            _ => Side::Empty,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Side::Kept { bytes, .. } => *bytes,
            _ => 0,
        }
    }

    /// The content, if it is text.
    fn text(&self, blobs: &Blobs) -> Result<Option<String>> {
        match self {
            Side::Kept { sha256, .. } => read_text(blobs, sha256, LARGEST),
            _ => Ok(Some(String::new())),
        }
    }
}

/// Reads a blob that is text, up to a size.
pub(crate) fn read_text(blobs: &Blobs, sha256: &str, most: u64) -> Result<Option<String>> {
    let damaged = |text: String| Error::new(ErrorCode::LedgerDamaged, text);
    let hash: Sha256Hash = sha256.parse().map_err(|_| damaged(format!("{sha256:?} is not a SHA-256")))?;
    let blob = blobs.open_blob(&hash)?;
    if BlobReader::bytes(&blob) > most {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    { blob }.read_to_end(&mut bytes).map_err(|error| damaged("a content cannot be read".into()).because(error))?;
    // Text with a NUL in it is none that a person wants to read.
    Ok(String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')))
}

fn lines(before: &str, after: &str) -> Vec<DiffLine> {
    let (before, after): (Vec<&str>, Vec<&str>) =
        (before.split_inclusive('\n').collect(), after.split_inclusive('\n').collect());
    let diff = TextDiff::configure().timeout(LONGEST).diff_slices(&before, &after);
    let mut shown = Vec::new();
    for hunk in diff.unified_diff().context_radius(CONTEXT).iter_hunks() {
        shown.push(DiffLine::Place(hunk.header().to_string()));
        for change in hunk.iter_changes() {
            let whole = change.value().strip_suffix('\n');
            let line = whole.unwrap_or(change.value()).to_owned();
            shown.push(match change.tag() {
                ChangeTag::Equal => DiffLine::Same(line),
                ChangeTag::Delete => DiffLine::Removed(line),
                ChangeTag::Insert => DiffLine::Added(line),
            });
            if whole.is_none() {
                shown.push(DiffLine::NoNewline);
            }
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(blobs: &Blobs, before: Option<&[u8]>, after: Option<&[u8]>) -> Change {
        let state = |bytes: &[u8]| {
            let blob = blobs.put(bytes).unwrap();
            let kind = FileKind::File { bytes: blob.bytes, sha256: Some(blob.sha256.to_string()), not_kept: None };
            FileState { mode: 0o644, kind }
        };
        Change { path: "x".into(), before: before.map(state), after: after.map(state), obstacle: None }
    }

    #[test]
    fn text_is_compared_line_by_line_and_only_a_newline_ends_one() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(folder.path()).unwrap();
        let shown = diff(&blobs, &change(&blobs, Some(b"a\r\nb\n"), Some(b"a\r\nc\rd"))).unwrap();
        let expected = [
            DiffLine::Place("@@ -1,2 +1,2 @@".into()),
            DiffLine::Same("a\r".into()),
            DiffLine::Removed("b".into()),
            DiffLine::Added("c\rd".into()),
            DiffLine::NoNewline,
        ];
        assert_eq!(shown, Diff::Text(expected.into()));
    }

    #[test]
    fn what_is_no_text_or_too_large_or_the_same_is_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(folder.path()).unwrap();
        let of = |before: Option<&[u8]>, after: Option<&[u8]>| diff(&blobs, &change(&blobs, before, after)).unwrap();
        assert_eq!(of(None, Some(b"\0\x01")), Diff::Binary);
        assert_eq!(of(Some(b"a"), Some(b"\xff")), Diff::Binary);
        assert_eq!(of(Some(&vec![b'a'; 2 << 20]), None), Diff::TooLarge);
        assert_eq!(of(Some(b"same"), Some(b"same")), Diff::Nothing);
    }

    #[test]
    fn texts_that_are_made_to_take_for_ever_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(folder.path()).unwrap();
        let text = |seed: u32| -> Vec<u8> {
            let next = |n: &u32| Some(n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
            let lines = std::iter::successors(Some(seed), next).take(100_000);
            lines.flat_map(|n| format!("{}\n", n >> 25).into_bytes()).collect()
        };
        let started = std::time::Instant::now();
        let shown = diff(&blobs, &change(&blobs, Some(&text(1)), Some(&text(2)))).unwrap();
        assert!(matches!(shown, Diff::Text(_)));
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    }
}
