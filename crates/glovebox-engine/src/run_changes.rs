//! What one run changed, in a sandbox that had runs before it.
//!
//! Theory of operation. A look at the workspace of a sandbox tells all that changed since it was made. What one run did is the
//! difference between two looks, and the time: whatever a program does to a file or folder leaves a mark that only the kernel
//! sets, the time of change, on it or on the folder that it is in. So when nothing that is met carries a time since the run
//! began, the run changed nothing, and nothing else need be known, which is the usual case.
//! Otherwise the last look tells what was there before, and what is gone since.
//!
//! Runs at work at the same time cannot be told apart: each tells all that changed while it was at work. What came
//! between two runs, by `cp` or by what an earlier run left running, belongs to none.

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::Read,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use glovebox_core::{Change, ChangeRecord, FileKind, FileStamp, FileState, NotKept, Secret, SeenEntry, WorkspaceLook};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    contents::SecretFiles,
    known_contents::{SETTLED, write_whole},
};

/// The kernel's clock for files goes by ticks, of which the slowest kernel has a hundred in a second.
const TICKS: SignedDuration = SignedDuration::from_millis(10);
/// More than the largest look takes.
const LONGEST: u64 = 256 << 20;

/// What was met in the workspace of a sandbox when it was last looked at.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LastLook {
    /// When, in nanoseconds since 1970.
    at_ns: i128,
    /// It is not all that was there.
    truncated: bool,
    seen: Vec<SeenEntry>,
    /// What was met whose name, or the place it leads to, holds a secret of the run that met it first. It is not among the seen.
    #[serde(default)]
    unnamed: HashSet<FileStamp>,
}

/// Where the last look of one sandbox is remembered.
pub(crate) enum Memory {
    /// With the sandbox: other processes look too.
    File(PathBuf),
    /// In this process, with which the sandbox ends.
    Process(Mutex<LastLook>),
}

impl Memory {
    /// The last look, or none that counts as one at an untouched sandbox.
    fn recall(&self) -> LastLook {
        match self {
            Memory::File(path) => read(path).unwrap_or_default(),
            Memory::Process(last) => last.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// The files that runs with secrets met and did not keep for their sake.
    pub(crate) fn secret_files(&self) -> SecretFiles {
        match self {
            Memory::File(path) => SecretFiles::noted_in(path.clone()),
            Memory::Process(_) => secret_files(&self.recall()).into(),
        }
    }

    fn remember(&self, look: LastLook) {
        match self {
            Memory::Process(last) => *last.lock().unwrap_or_else(PoisonError::into_inner) = look,
            // What cannot be written is not remembered: the next run then tells more as added and less as modified.
            Memory::File(path) => drop(serde_json::to_vec(&look).map(|text| write_whole(path, &text))),
        }
    }
}

fn read(path: &Path) -> Option<LastLook> {
    let mut text = Vec::new();
    fs::File::open(path).ok()?.take(LONGEST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// What a run changed.
#[derive(Debug, Default)]
pub(crate) struct RunChanges {
    pub(crate) record: ChangeRecord,
    /// The files that it wrote, were it with what they held before.
    pub(crate) written: HashSet<String>,
}

/// Whether nothing that was met changed since a run began. What is gone is told by the folder that it was in.
pub(crate) fn nothing_since(look: &WorkspaceLook, started_at: Timestamp) -> bool {
    let since = since(started_at);
    !look.seen.iter().filter_map(|entry| entry.stamp).any(|stamp| stamp.changed_ns >= since)
}

/// Tells what a run changed by what there is now that it is over, and remembers that for the next one.
/// Names that hold a secret of the run are not written down.
pub(crate) fn of_run(
    memory: &Memory,
    mut look: WorkspaceLook,
    (started_at, now): (Timestamp, Timestamp),
    secrets: &[Secret],
) -> RunChanges {
    let at_ns = now.as_nanosecond();
    let last = memory.recall();
    let changes = compare(&last, &look, since(started_at), started_at.as_nanosecond());
    let names_secret = |text: &str| secrets.iter().any(|secret| secret.is_in(text.as_bytes()));
    let mut unnamed = HashSet::new();
    look.seen.retain(|entry| {
        let kind = entry.state.as_ref().map(|state| &state.kind);
        let is_secret = names_secret(&entry.path)
            || matches!(kind, Some(FileKind::Symlink { target }) if names_secret(target))
            || entry.stamp.is_some_and(|stamp| last.unnamed.contains(&stamp));
        unnamed.extend(entry.stamp.filter(|_| is_secret));
        !is_secret
    });
    memory.remember(LastLook { at_ns, truncated: look.changes.truncated, seen: look.seen, unnamed });
    changes
}

/// The files of which a look noted that they hold a secret.
pub(crate) fn secret_files_in(path: &Path) -> HashSet<FileStamp> {
    read(path).as_ref().map(secret_files).unwrap_or_default()
}

fn secret_files(look: &LastLook) -> HashSet<FileStamp> {
    let is_secret = |entry: &SeenEntry| {
        let kind = entry.state.as_ref().map(|state| &state.kind);
        matches!(kind, Some(FileKind::File { not_kept: Some(NotKept::Secret), .. }))
    };
    look.seen.iter().filter(|entry| is_secret(entry)).filter_map(|entry| entry.stamp).collect()
}

fn since(started_at: Timestamp) -> i128 {
    started_at.as_nanosecond() - TICKS.as_nanos()
}

fn compare(last: &LastLook, look: &WorkspaceLook, since: i128, started: i128) -> RunChanges {
    let by_path = |seen: &'_ [SeenEntry]| -> HashMap<String, SeenEntry> {
        seen.iter().map(|entry| (entry.path.clone(), entry.clone())).collect()
    };
    let compared = Compared {
        before: by_path(&last.seen),
        now: by_path(&look.seen),
        told: look.changes.changes.iter().map(|change| (change.path.as_str(), change)).collect(),
        since,
        settled: last.at_ns - SETTLED.as_nanos() as i128,
        // Another run ended while this one was at work, and what it met may be this one's.
        met_by_other: last.at_ns > started,
    };
    let mut changes = RunChanges::default();
    changes.record.truncated = look.changes.truncated;
    for entry in look.seen.iter().filter(|entry| entry.state.is_some()) {
        if compared.is_written(entry) {
            changes.written.insert(entry.path.clone());
            changes.record.changes.extend(compared.change(entry));
        }
    }
    if !(last.truncated || look.changes.truncated) {
        let gone = last.seen.iter().filter(|entry| entry.state.is_some() && !compared.is_there(&entry.path));
        let gone = gone.map(|entry| (&entry.path, entry.state.clone(), None));
        let removed = look.changes.changes.iter().filter(|change| change.after.is_none());
        let removed = removed.filter(|change| !compared.before.contains_key(&change.path));
        let removed = removed.map(|change| (&change.path, change.before.clone(), change.obstacle));
        for (path, before, obstacle) in gone.chain(removed).filter(|(path, ..)| compared.folder_changed(path)) {
            changes.record.changes.push(Change { path: path.clone(), before, after: None, obstacle });
        }
    }
    changes.record.sort();
    changes
}

/// Two looks side by side.
struct Compared<'a> {
    before: HashMap<String, SeenEntry>,
    now: HashMap<String, SeenEntry>,
    told: HashMap<&'a str, &'a Change>,
    /// What changed before is not the run's.
    since: i128,
    /// What changed later than that may have changed once more without another stamp.
    settled: i128,
    met_by_other: bool,
}

impl Compared<'_> {
    fn is_there(&self, path: &str) -> bool {
        self.now.get(path).is_some_and(|entry| entry.state.is_some())
    }

    /// Whether the run wrote what stands here, or brought it here.
    fn is_written(&self, entry: &SeenEntry) -> bool {
        let Some(stamp) = entry.stamp else { return false };
        let before = self.before.get(&entry.path);
        if before.is_some_and(|before| before.stamp == entry.stamp) {
            // It may have changed once more within a tick.
            let same = before.is_some_and(|before| before.state == entry.state);
            let is_told = self.met_by_other || !same && stamp.changed_ns >= self.settled;
            return is_told && stamp.changed_ns >= self.since;
        }
        stamp.changed_ns >= self.since || self.came_along(&entry.path)
    }

    /// Whether a folder above was brought here by the run. What is in it keeps its own time then.
    fn came_along(&self, path: &str) -> bool {
        let is_new = |folder: &str| {
            let inode = |entry: Option<&SeenEntry>| entry.and_then(|entry| entry.stamp).map(|stamp| stamp.inode);
            let now = self.now.get(folder);
            now.and_then(|entry| entry.stamp).is_some_and(|stamp| stamp.changed_ns >= self.since)
                && inode(self.before.get(folder)) != inode(now)
        };
        // The first two parts of a path are never brought: `agent_workspace` and `outputs` are always there.
        folders_above(path).filter(|folder| folder.contains('/')).any(is_new)
    }

    /// Whether the nearest folder that is still there changed since the run began. Where none is known, it may have.
    fn folder_changed(&self, path: &str) -> bool {
        let stamp = |folder: &str| self.now.get(folder).and_then(|entry| entry.stamp);
        folders_above(path).find_map(stamp).is_none_or(|stamp| stamp.changed_ns >= self.since)
    }

    /// What the run made of what was here before, unless it is the same.
    fn change(&self, entry: &SeenEntry) -> Option<Change> {
        let told = self.told.get(entry.path.as_str()).copied();
        let (before, obstacle) = match self.before.get(&entry.path) {
            // The last look was within the run, so what was here when it began is not known.
            Some(_) if self.met_by_other => (told?.before.clone(), told?.obstacle),
            Some(before) => (before.state.clone(), told.and_then(|told| told.obstacle).filter(|why| why.is_of_name())),
            // It was as on the host.
            None => (told?.before.clone(), told?.obstacle),
        };
        let is_same = before == entry.state && is_known(entry.state.as_ref());
        (!is_same).then(|| Change { path: entry.path.clone(), before, after: entry.state.clone(), obstacle })
    }
}

/// Whether two of the same state are the same in what they hold.
fn is_known(state: Option<&FileState>) -> bool {
    !matches!(state, Some(FileState { kind: FileKind::File { sha256: None, .. }, .. }))
}

/// The folders that a path lies in, the nearest first.
fn folders_above(path: &str) -> impl Iterator<Item = &str> {
    path.rmatch_indices('/').map(|(at, _)| &path[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i128 = 1_000_000_000;

    /// An entry that last changed at a second.
    fn entry(path: &str, text: Option<&str>, inode: u64, second: i128) -> SeenEntry {
        let kind = match text {
            Some(text) => FileKind::File { bytes: text.len() as u64, sha256: Some(text.to_owned()), not_kept: None },
            None => FileKind::Directory,
        };
        let bytes = text.map_or(0, |text| text.len() as u64);
        let stamp = FileStamp { device: 1, inode, changed_ns: second * SECOND, bytes };
        SeenEntry { path: path.to_owned(), state: Some(FileState { mode: 0o644, kind }), stamp: Some(stamp) }
    }

    fn root(second: i128) -> SeenEntry {
        entry("agent_workspace", None, 1, second)
    }

    /// A look at a sandbox that began empty.
    fn look(seen: Vec<SeenEntry>) -> WorkspaceLook {
        let added = seen.iter().filter(|entry| entry.path.contains('/'));
        let added = added.map(|entry| Change {
            path: entry.path.clone(),
            before: None,
            after: entry.state.clone(),
            obstacle: None,
        });
        let changes = ChangeRecord { changes: added.collect(), truncated: false };
        WorkspaceLook { changes, seen, workspace_gone: false }
    }

    fn told(memory: &Memory, seen: Vec<SeenEntry>, started: i128) -> [Vec<String>; 3] {
        let started = Timestamp::from_nanosecond(started * SECOND).unwrap();
        let now = started + SignedDuration::from_secs(5);
        let look = look(seen);
        if nothing_since(&look, started) {
            return Default::default();
        }
        let names = of_run(memory, look, (started, now), &[]).record.names();
        [names.added, names.modified, names.deleted]
    }

    fn of(words: [&str; 3]) -> [Vec<String>; 3] {
        words.map(|words| words.split_whitespace().map(|word| format!("agent_workspace/{word}")).collect())
    }

    #[test]
    fn a_run_tells_what_it_added_modified_and_deleted_and_not_what_others_did_before() {
        let memory = Memory::Process(Mutex::default());
        let file =
            |name: &str, text, inode, second| entry(&format!("agent_workspace/{name}"), Some(text), inode, second);
        let first = vec![root(10), file("a", "1", 2, 10), file("b", "1", 3, 10), file("c", "1", 4, 10)];
        assert_eq!(told(&memory, first.clone(), 10), of(["a b c", "", ""]));
        assert_eq!(told(&memory, first, 20), of(["", "", ""]), "the second run did nothing");
        let third = vec![root(31), file("a", "2", 2, 30), file("c", "1", 4, 31), file("d", "1", 5, 31)];
        assert_eq!(told(&memory, third.clone(), 30), of(["d", "a", "b"]), "c was written as it was");
        let put_in = vec![root(35), file("e", "1", 6, 35)];
        let fourth: Vec<_> = third.into_iter().filter(|entry| entry.path != "agent_workspace").chain(put_in).collect();
        assert_eq!(told(&memory, fourth, 40), of(["", "", ""]), "e was put in before it began");
    }

    #[test]
    fn what_is_in_a_folder_that_was_moved_is_told_at_both_places_although_it_keeps_its_time() {
        let memory = Memory::Process(Mutex::default());
        let inner = |folder: &str| entry(&format!("agent_workspace/{folder}/x"), Some("1"), 3, 10);
        let folder = |name: &str, second| entry(&format!("agent_workspace/{name}"), None, 2, second);
        assert_eq!(told(&memory, vec![root(10), folder("old", 10), inner("old")], 10), of(["old/x", "", ""]));
        assert_eq!(
            told(&memory, vec![root(20), folder("new", 20), inner("new")], 20),
            of(["new/x", "", "old/x"]),
            "the folder was moved"
        );
    }

    #[test]
    fn a_run_tells_what_changed_while_it_was_at_work_although_another_one_ended_meanwhile() {
        let memory =
            Memory::Process(Mutex::new(LastLook { at_ns: 15 * SECOND, seen: vec![root(12)], ..LastLook::default() }));
        let a = entry("agent_workspace/a", Some("1"), 2, 12);
        assert_eq!(told(&memory, vec![root(12), a.clone()], 11), of(["a", "", ""]));
        // The other one ends, and is the last that looked.
        assert_eq!(told(&memory, vec![root(12), a], 10), of(["a", "", ""]));
    }

    #[test]
    fn a_look_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let memory = Memory::File(folder.path().join("seen"));
        let seen = vec![root(10), entry("agent_workspace/a", Some("1"), 2, 10)];
        memory.remember(LastLook { at_ns: 5, truncated: true, seen: seen.clone(), ..LastLook::default() });
        let last = memory.recall();
        assert_eq!((last.at_ns, last.truncated, last.seen), (5, true, seen));
        fs::write(folder.path().join("seen"), "half a").unwrap();
        assert!(memory.recall().seen.is_empty());
    }
}
