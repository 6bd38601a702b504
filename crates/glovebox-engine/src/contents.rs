//! The contents of changed files on their way into the ledger.

use std::{
    collections::HashSet,
    io::{self, Read},
    path::PathBuf,
    sync::OnceLock,
};

use glovebox_core::{
    ChangeRecord, ContentKeeper, FileKind, FileStamp, FileState, KeptContent, NotKept, Obstacle, Secret, SecretScan,
};
use glovebox_ledger::{Blob, Blobs, KeptContent as Content, KeptFile};

use crate::{known_contents::KnownContents, run_changes};

/// The name of the record of changes among the files of a run.
pub const CHANGE_RECORD: &str = "changes/record.json";

/// Puts contents among the blobs, but for those that hold a secret.
pub(crate) struct BlobKeeper {
    pub(crate) blobs: Blobs,
    pub(crate) secrets: Vec<Secret>,
    /// What earlier runs of the same sandbox kept. A run with secrets reads all: they may be in what was kept before.
    pub(crate) known: Option<KnownContents>,
    /// The files in which earlier runs of the same sandbox met their secrets, once somebody asks.
    pub(crate) refused: SecretFiles,
}

/// Files in which earlier runs of a sandbox met their secrets, by where that was noted.
#[derive(Default)]
pub(crate) struct SecretFiles {
    noted_in: Option<PathBuf>,
    files: OnceLock<HashSet<FileStamp>>,
}

impl SecretFiles {
    /// Those that are noted in a file, which is read when somebody asks.
    pub(crate) fn noted_in(path: PathBuf) -> Self {
        SecretFiles { noted_in: Some(path), files: OnceLock::new() }
    }

    fn hold(&self, stamp: &FileStamp) -> bool {
        let read = || self.noted_in.as_deref().map(run_changes::secret_files_in).unwrap_or_default();
        self.files.get_or_init(read).contains(stamp)
    }
}

impl From<HashSet<FileStamp>> for SecretFiles {
    fn from(files: HashSet<FileStamp>) -> Self {
        SecretFiles { noted_in: None, files: files.into() }
    }
}

impl ContentKeeper for BlobKeeper {
    fn refuses(&self, stamp: &FileStamp) -> Option<NotKept> {
        self.refused.hold(stamp).then_some(NotKept::Secret)
    }

    fn known(&self, stamp: &FileStamp) -> Option<KeptContent> {
        let kept = self.known.as_ref()?.get(stamp)?;
        kept.sha256.parse().is_ok_and(|sha256| self.blobs.contains(&sha256)).then_some(kept)
    }

    fn note(&self, stamp: FileStamp, kept: &KeptContent) {
        if let Some(known) = &self.known {
            known.note(stamp, kept);
        }
    }

    fn keep(&self, content: &mut dyn Read) -> Result<KeptContent, NotKept> {
        let mut guarded = Guarded { content, scan: SecretScan::new(&self.secrets), stopped: None };
        match (self.blobs.put(&mut guarded), guarded.stopped) {
            (Ok(blob), _) => Ok(KeptContent { sha256: blob.sha256.to_string(), bytes: blob.bytes }),
            (Err(_), Some(reason)) => Err(reason),
            (Err(_), None) => Err(NotKept::StoreFailed),
        }
    }
}

/// A content that breaks off where a secret is found in it, so that nothing of it is stored.
struct Guarded<'a> {
    content: &'a mut dyn Read,
    scan: SecretScan<'a>,
    stopped: Option<NotKept>,
}

impl Read for Guarded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.content.read(buffer).inspect_err(|_| self.stopped = Some(NotKept::Unreadable))?;
        if self.scan.finds_in(&buffer[..count]) {
            self.stopped = Some(NotKept::Secret);
            return Err(io::Error::other("it holds a secret"));
        }
        Ok(count)
    }
}

/// Masks secrets in the names that a program chose. What is masked has lost its name, so it cannot be applied.
pub(crate) fn mask_names(record: &mut ChangeRecord, secrets: &[&Secret]) {
    let mask = |text: &mut String| {
        let hit = secrets.iter().any(|secret| secret.is_in(text.as_bytes()));
        if hit {
            let masked = Secret::mask_all(secrets.iter().copied(), std::mem::take(text).into_bytes());
            *text = String::from_utf8_lossy(&masked).into_owned();
        }
        hit
    };
    for change in &mut record.changes {
        let mut hit = mask(&mut change.path);
        for state in [&mut change.before, &mut change.after].into_iter().flatten() {
            if let FileState { kind: FileKind::Symlink { target }, .. } = state {
                hit |= mask(target);
            }
        }
        if hit {
            change.obstacle = Some(Obstacle::NameHoldsSecret);
        }
    }
}

/// The files that the ledger keeps of a change set: the record, and by name every content, so that none is removed while
/// the run is there.
pub(crate) fn kept_files(record: &ChangeRecord) -> Vec<KeptFile> {
    if record.changes.is_empty() {
        return Vec::new();
    }
    // The record is plain data; only a map with odd keys could fail.
    let bytes = serde_json::to_vec(record).unwrap_or_default();
    let mut kept = vec![KeptFile { name: CHANGE_RECORD.into(), content: Content::Bytes(bytes) }];
    for change in &record.changes {
        for (side, state) in [("before", &change.before), ("after", &change.after)] {
            if let Some(FileState { kind: FileKind::File { bytes, sha256: Some(sha256), .. }, .. }) = state
                && let Ok(sha256) = sha256.parse()
            {
                let name = format!("changes/{side}/{}", change.path);
                kept.push(KeptFile { name, content: Content::Stored(Blob { sha256, bytes: *bytes }) });
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_with_a_secret_in_it_is_never_stored_however_it_is_cut() {
        struct OneByOne<'a>(&'a [u8]);
        impl Read for OneByOne<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let count = self.0.len().min(1);
                buffer[..count].copy_from_slice(&self.0[..count]);
                self.0 = &self.0[count..];
                Ok(count)
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(folder.path()).unwrap();
        let keeper = BlobKeeper {
            blobs,
            secrets: vec![Secret::new("hunter2"), Secret::new("x7")],
            known: None,
            refused: SecretFiles::default(),
        };
        assert_eq!(keeper.keep(&mut OneByOne(b"my hunter2 here")), Err(NotKept::Secret));
        assert_eq!(keeper.keep(&mut &b"x7"[..]), Err(NotKept::Secret));
        assert!(folder.path().read_dir().unwrap().next().is_none(), "something was stored");
        let kept = keeper.keep(&mut OneByOne(b"hunter 2")).unwrap();
        assert_eq!(kept.bytes, 8);
    }
}
