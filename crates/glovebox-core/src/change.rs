//! The change set of a run: the names that everybody sees, and the record that can be reviewed and applied.

use std::io::Read;

use serde::{Deserialize, Serialize};

/// What a sandbox did to its files: paths below `/workspace`, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSet {
    /// Files, links and empty folders that are new.
    pub added: Vec<String>,
    /// Files whose content, kind or mode changed, and folders whose mode changed.
    pub modified: Vec<String>,
    /// Files that are gone.
    pub deleted: Vec<String>,
    /// There were more changes than are listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// A change set with all that is needed to review it and to bring it to the host. Folders are listed too, so that one
/// that is new gets its mode, and one that is gone goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeRecord {
    /// The changes, sorted by path, each path once.
    pub changes: Vec<Change>,
    /// There were more changes than are listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// What happened at one path. It was there before, or is there after, or both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The path below `/workspace`.
    pub path: String,
    /// What was here before: in the host's folder, or before the run in a sandbox that had runs before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<FileState>,
    /// What the sandbox held here when the run was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<FileState>,
    /// Why it cannot be brought to the host, where that was known at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<Obstacle>,
}

/// Why a change cannot be brought to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// The host's file was changed while the run lasted, so the run did not see it as it is.
    ChangedMeanwhile,
    /// The name, or the target of the link, is not UTF-8; it is shown as well as it can be.
    NameNotUtf8,
    /// The name, or the target of the link, held the value of a `--secret`, which is masked.
    NameHoldsSecret,
}

impl Obstacle {
    /// Whether the name is what stands in the way, and not what the host's folder held.
    pub fn is_of_name(self) -> bool {
        self != Obstacle::ChangedMeanwhile
    }
}

/// A file, link or folder as it was at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// Permission bits, with those for set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// What it is.
    #[serde(flatten)]
    pub kind: FileKind,
}

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FileKind {
    /// An ordinary file.
    File {
        /// Its size.
        bytes: u64,
        /// SHA-256 of its content, where that was kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sha256: Option<String>,
        /// Why its content was not kept, where somebody wanted it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_kept: Option<NotKept>,
    },
    /// A symbolic link.
    Symlink {
        /// Where it leads, as it is written in the link.
        target: String,
    },
    /// A folder.
    Directory,
    /// A pipe, socket or device.
    Special,
}

/// Why the content of a file was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotKept {
    /// The file is larger than what is kept of one file.
    TooLarge,
    /// Other files of the run took all that is kept of one run.
    TooMuch,
    /// Keeping what came before took too long.
    TooSlow,
    /// It holds the value of a `--secret`.
    Secret,
    /// It could not be read.
    Unreadable,
    /// There was no room or no access where contents are kept.
    StoreFailed,
}

impl NotKept {
    /// The reason, to stand behind "its content was not kept: ".
    pub fn reason(self) -> &'static str {
        match self {
            NotKept::TooLarge => "the file is too large",
            NotKept::TooMuch => "the run changed too many bytes",
            NotKept::TooSlow => "keeping it took too long",
            NotKept::Secret => "it holds the value of a --secret",
            NotKept::Unreadable => "it could not be read",
            NotKept::StoreFailed => "it could not be stored",
        }
    }
}

/// A content that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptContent {
    /// Its SHA-256, hexadecimal.
    pub sha256: String,
    /// Its length.
    pub bytes: u64,
}

/// Keeps the contents of files that changed, while the sandbox that holds them is still there. A backend hands it each
/// file, before and after, as it finds them.
pub trait ContentKeeper: Send + Sync {
    /// Reads a content to its end and keeps it, or says why not.
    fn keep(&self, content: &mut dyn Read) -> Result<KeptContent, NotKept>;

    /// Why a file is not to be kept, where that was found before and it has not changed since.
    fn refuses(&self, _stamp: &FileStamp) -> Option<NotKept> {
        None
    }

    /// What was kept of a file before, where it has not changed since. It need not be read then.
    fn known(&self, _stamp: &FileStamp) -> Option<KeptContent> {
        None
    }

    /// Notes what was kept of a file with this stamp, which was taken before the file was read.
    fn note(&self, _stamp: FileStamp, _kept: &KeptContent) {}
}

/// What to look for in the workspace of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookFor {
    /// What changed.
    Changes,
    /// Also what is no change, since somebody will look again.
    Everything,
}

/// How far a look at a workspace goes, whoever looks.
pub mod look_bound {
    use std::time::Duration;

    /// Changes that are told.
    pub const CHANGES: usize = 100_000;
    /// Entries that are met, where it is looked for everything.
    pub const MET: usize = 2 * CHANGES;
    /// Bytes of all paths together.
    pub const PATH_BYTES: usize = 16 << 20;
    /// Bytes that are read to tell whether files of the same size differ; beyond it, a file that was written counts as modified.
    pub const COMPARED: u64 = 256 << 20;
    /// How deep folders are looked into: each level may hold descriptors open.
    pub const DEEPEST: usize = 64;
    /// Bytes of one file that are kept.
    pub const KEPT_FILE: u64 = 256 << 20;
    /// Bytes of all files of a change set that are kept.
    pub const KEPT: u64 = 1 << 30;
    /// How long the keeping may take; the names are collected all the same.
    pub const KEEPING: Duration = Duration::from_secs(30);
}

/// What was found when the workspace of a sandbox was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceLook {
    /// What changed since the sandbox was made.
    pub changes: ChangeRecord,
    /// Where it was looked for everything: all that was met on the way, be it a change or not. Whoever looks again can tell by
    /// it what happened in between.
    pub seen: Vec<SeenEntry>,
    /// The folder of the host that the working directory shows is gone, so what changed there cannot be told.
    pub workspace_gone: bool,
}

/// A file, link or folder that was met in a workspace, or a place where one was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenEntry {
    /// The path below `/workspace`.
    pub path: String,
    /// What is there, if it is not gone.
    pub state: Option<FileState>,
    /// Its stamp.
    pub stamp: Option<FileStamp>,
}

/// By what it is known whether a file changed: the kernel's own marks, which no program can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileStamp {
    /// The device that it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// When it last changed, in nanoseconds since 1970.
    pub changed_ns: i128,
    /// Its length.
    pub bytes: u64,
}

impl FileState {
    /// Whether this is a folder.
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

impl ChangeRecord {
    /// Puts the changes in order. Paths are compared part by part, so that a folder stands right before what is in it.
    pub fn sort(&mut self) {
        self.changes.sort_by(|a, b| a.path.split('/').cmp(b.path.split('/')));
        self.changes.dedup_by(|a, b| a.path == b.path);
    }

    /// The names alone. Of folders that came or went only empty ones are named; the others show by what is in them.
    pub fn names(&self) -> ChangeSet {
        let mut names = ChangeSet { truncated: self.truncated, ..ChangeSet::default() };
        let is_folder = |state: &Option<FileState>| state.as_ref().is_some_and(FileState::is_directory);
        for (at, change) in self.changes.iter().enumerate() {
            let (was, is) = (is_folder(&change.before), is_folder(&change.after));
            let below = || self.changes[at + 1..].iter().take_while(|other| other.is_below(&change.path));
            if change.before.is_some() && change.after.is_some() && was == is {
                names.modified.push(change.path.clone());
                continue;
            }
            if change.after.is_some() && !(is && below().any(|other| other.after.is_some())) {
                names.added.push(change.path.clone());
            }
            if change.before.is_some() && !(was && below().any(|other| other.before.is_some())) {
                names.deleted.push(change.path.clone());
            }
        }
        for list in [&mut names.added, &mut names.modified, &mut names.deleted] {
            list.sort_unstable();
        }
        names
    }
}

impl Change {
    /// Whether the path lies below a folder.
    pub fn is_below(&self, folder: &str) -> bool {
        self.path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Option<FileState> {
        let kind = FileKind::File { bytes: text.len() as u64, sha256: Some(text.into()), not_kept: None };
        Some(FileState { mode: 0o644, kind })
    }

    fn folder() -> Option<FileState> {
        Some(FileState { mode: 0o755, kind: FileKind::Directory })
    }

    fn record(changes: Vec<(&str, Option<FileState>, Option<FileState>)>) -> ChangeRecord {
        let of = |(path, before, after): (&str, _, _)| Change { path: path.into(), before, after, obstacle: None };
        let mut record = ChangeRecord { changes: changes.into_iter().map(of).collect(), truncated: false };
        record.sort();
        record
    }

    #[test]
    fn a_folder_is_named_only_when_nothing_is_in_it() {
        let names = record(vec![
            ("a", None, folder()),
            ("a-b", None, file("x")),
            ("a/file", None, file("x")),
            ("empty", None, folder()),
            ("gone", folder(), None),
            ("gone/file", file("x"), None),
            ("hollow", folder(), None),
        ])
        .names();
        assert_eq!(names.added, ["a-b", "a/file", "empty"]);
        assert_eq!(names.deleted, ["gone/file", "hollow"]);
    }

    #[test]
    fn what_became_another_kind_went_and_came() {
        let names = record(vec![
            ("was_file", file("x"), folder()),
            ("was_file/inner", None, file("x")),
            ("was_folder", folder(), file("x")),
            ("was_folder/inner", file("x"), None),
            ("mode", folder(), folder()),
            ("text", file("x"), file("y")),
        ])
        .names();
        assert_eq!(names.added, ["was_file/inner", "was_folder"]);
        assert_eq!(names.deleted, ["was_file", "was_folder/inner"]);
        assert_eq!(names.modified, ["mode", "text"]);
    }

    #[test]
    fn a_record_survives_the_way_through_json() {
        let mut record = record(vec![("a", None, file("x")), ("b", folder(), None)]);
        record.changes[0].obstacle = Some(Obstacle::ChangedMeanwhile);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<ChangeRecord>(&text).unwrap(), record);
        assert!(text.contains(r#""after":{"mode":420,"kind":"file","bytes":1,"sha256":"x"}"#), "{text}");
    }
}
