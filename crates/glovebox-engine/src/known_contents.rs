//! Contents that earlier runs of a sandbox kept.
//!
//! To tell what a run in a sandbox that stays changed, all is looked at that changed since the sandbox was made, and most of it did
//! not change since the run before. What was kept of a file is therefore noted with the stamp of the file (device,
//! inode, time of change, length), and a file with the same stamp is not read again. No program inside can set these. The notes of a
//! sandbox are where it is: a living one has a file, since other processes look too; one that ends with this process has memory.

use std::{
    collections::HashMap,
    fs,
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, SystemTime},
};

use glovebox_core::{FileStamp, KeptContent};

/// A file that changed less long ago may change again within the same tick of the kernel's clock.
pub(crate) const SETTLED: Duration = Duration::from_secs(2);
/// Nobody writes for so long.
const ABANDONED: Duration = Duration::from_secs(60);
/// More than the stamps of the largest change set take.
const LONGEST: u64 = 64 << 20;

type Contents = HashMap<FileStamp, KeptContent>;

/// Where it is noted what is known of the contents of one sandbox.
#[derive(Clone)]
pub(crate) enum NotedIn {
    /// With the sandbox: other processes look too.
    File(PathBuf),
    /// In this process, with which the sandbox ends.
    Process(Arc<Mutex<Arc<Contents>>>),
}

impl NotedIn {
    /// What cannot be read is not known.
    fn read(&self) -> Arc<Contents> {
        let path = match self {
            NotedIn::File(path) => path,
            NotedIn::Process(noted) => return noted.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        let mut text = String::new();
        match fs::File::open(path).and_then(|file| file.take(LONGEST).read_to_string(&mut text)) {
            Ok(_) => Arc::new(text.lines().filter_map(parse).collect()),
            Err(_) => Arc::default(),
        }
    }

    fn write(&self, contents: &Contents) {
        let path = match self {
            NotedIn::File(path) => path,
            NotedIn::Process(noted) => {
                *noted.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(contents.clone());
                return;
            }
        };
        let lines = contents.iter().map(|(stamp, kept)| {
            let FileStamp { device, inode, changed_ns, bytes } = stamp;
            format!("{device} {inode} {changed_ns} {bytes} {} {}\n", kept.sha256, kept.bytes)
        });
        write_whole(path, lines.collect::<String>().as_bytes());
    }
}

/// What is known of the contents of one sandbox.
pub(crate) struct KnownContents {
    noted_in: NotedIn,
    /// What was known, once somebody asked.
    before: OnceLock<Arc<Contents>>,
    /// What was met this time, and whether anything of it is new.
    met: Mutex<(Contents, bool)>,
}

impl KnownContents {
    /// What is known by notes, which are read when somebody asks: most runs change nothing.
    pub(crate) fn noted_in(noted_in: NotedIn) -> Self {
        KnownContents { noted_in, before: OnceLock::new(), met: Mutex::default() }
    }

    fn before(&self) -> &Contents {
        self.before.get_or_init(|| self.noted_in.read())
    }

    /// The content of a file, if it is known.
    pub(crate) fn get(&self, stamp: &FileStamp) -> Option<KeptContent> {
        let kept = self.before().get(stamp)?.clone();
        self.met.lock().unwrap_or_else(PoisonError::into_inner).0.insert(*stamp, kept.clone());
        Some(kept)
    }

    /// Notes the content of a file that was looked at before it was read.
    pub(crate) fn note(&self, stamp: FileStamp, kept: &KeptContent) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        if i128::try_from((now.saturating_sub(SETTLED)).as_nanos()).is_ok_and(|settled| stamp.changed_ns < settled) {
            let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
            met.0.insert(stamp, kept.clone());
            met.1 = true;
        }
    }

    /// Writes down what was met, if it is not what was known. Without it the next run reads more than it must.
    pub(crate) fn write(&self) {
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let (met, has_new) = &*met;
        if !has_new && met.len() == self.before().len() {
            return;
        }
        self.noted_in.write(met);
    }
}

/// Writes a file that is only there to save work, whole or not at all. Of two who write at once one does; a text that is half
/// the one's and half the other's would be untrue.
pub(crate) fn write_whole(path: &Path, text: &[u8]) {
    let new = path.with_extension("new");
    let Ok(mut file) = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new) else {
        return remove_abandoned(&new);
    };
    let written = file.write_all(text).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
}

/// Removes what somebody left who died while writing, so that the next one can.
fn remove_abandoned(new: &Path) {
    let age = fs::metadata(new).and_then(|metadata| metadata.modified()).ok().and_then(|at| at.elapsed().ok());
    if age.is_some_and(|age| age > ABANDONED) {
        let _ = fs::remove_file(new);
    }
}

fn parse(line: &str) -> Option<(FileStamp, KeptContent)> {
    let mut words = line.split(' ');
    let stamp = FileStamp {
        device: words.next()?.parse().ok()?,
        inode: words.next()?.parse().ok()?,
        changed_ns: words.next()?.parse().ok()?,
        bytes: words.next()?.parse().ok()?,
    };
    let kept = KeptContent { sha256: words.next()?.to_owned(), bytes: words.next()?.parse().ok()? };
    (kept.sha256.len() == 64).then_some((stamp, kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(inode: u64, changed_ns: i128) -> FileStamp {
        FileStamp { device: 1, inode, changed_ns, bytes: 3 }
    }

    fn check(noted_in: &NotedIn) {
        let known = || KnownContents::noted_in(noted_in.clone());
        let kept = KeptContent { sha256: "a".repeat(64), bytes: 3 };
        let first = known();
        assert_eq!(first.get(&stamp(1, 5)), None);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as i128;
        first.note(stamp(1, 5), &kept);
        first.note(stamp(2, now), &kept);
        first.write();
        let second = known();
        assert_eq!(second.get(&stamp(1, 5)), Some(kept.clone()));
        assert_eq!(second.get(&stamp(1, 6)), None, "it changed since");
        assert_eq!(second.get(&stamp(2, now)), None, "it may have changed since");
        second.write();
        // What is not met any more is forgotten.
        known().write();
        assert_eq!(known().get(&stamp(1, 5)), None);
    }

    #[test]
    fn what_was_kept_of_a_settled_file_is_known_and_of_one_that_just_changed_is_not() {
        let folder = tempfile::tempdir().unwrap();
        check(&NotedIn::File(folder.path().join("contents")));
        check(&NotedIn::Process(Arc::default()));
    }

    #[test]
    fn of_two_who_write_the_notes_at_once_one_does_and_nonsense_in_them_is_not_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("contents");
        let known = || KnownContents::noted_in(NotedIn::File(path.clone()));
        fs::write(path.with_extension("new"), "half a").unwrap();
        let late = known();
        late.note(stamp(1, 5), &KeptContent { sha256: "a".repeat(64), bytes: 3 });
        late.write();
        assert_eq!(known().get(&stamp(1, 5)), None);
        assert_eq!(fs::read_to_string(path.with_extension("new")).unwrap(), "half a");
        fs::write(&path, "nonsense\n1 2 3\n").unwrap();
        assert_eq!(known().get(&stamp(1, 5)), None);
    }
}
