//! The watch over what a sandbox writes where no file system limits it: the volumes of a living one, folders of the host that it
//! writes in place, and volumes that outlive sandboxes, each of which has a size of its own.
//!
//! Theory of operation. It is done from outside, by the process that follows a run: one thread for each sandbox adds up what is in these
//! places, again and again, with what was deleted in them and is still open, and tells all who wait when it has become too much. Who
//! makes room, or does nothing, is let. Where it goes on after those who were told have ended, it is a daemon that nobody follows, and
//! all commands of the sandbox are ended. What was seen last is noted beside the record of a living sandbox, so that it is known
//! whether there is more now, whichever process looked before.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use glovebox_archive::taken::{self, Place, Size};
use glovebox_core::{Access, LimitsInForce, Mount, MountKind, Outgrown, SandboxSpec, WorkspaceMode};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use crate::counted::Groups;

/// How long the watch rests between two looks.
const REST: Duration = Duration::from_millis(250);

/// After so many words in a row it is not one of those who heard them.
const ENOUGH_TOLD: u32 = 3;

/// Where a living sandbox notes what was seen of its disk.
const NOTE: &str = "docker-disk.json";

/// The folders and files of the host that programs inside write in place.
pub(crate) fn written_in_place(spec: &SandboxSpec) -> impl Iterator<Item = &Path> {
    let workspace = spec.workspace.iter().filter(|workspace| workspace.mode == WorkspaceMode::ReadWrite);
    let mounts = spec.mounts.iter().filter(|mount| mount.access == Access::ReadWrite && mount.kind == MountKind::Host);
    workspace.map(|workspace| workspace.source.as_path()).chain(mounts.map(|mount| mount.source.as_path()))
}

/// The volumes that outlive sandboxes and that programs inside can write, with how much each may hold.
pub(crate) fn written_volumes(spec: &SandboxSpec) -> impl Iterator<Item = (&Mount, u64)> {
    let written = spec.mounts.iter().filter(|mount| mount.access == Access::ReadWrite);
    written.filter_map(|mount| match mount.kind {
        MountKind::Volume { bytes } => Some((mount, bytes)),
        MountKind::VolumeElsewhere { .. } | MountKind::Host => None,
    })
}

/// The same of volumes on the machine of the engine, which nobody here can look into.
pub(crate) fn written_elsewhere(spec: &SandboxSpec) -> impl Iterator<Item = (&Mount, u64)> {
    let written = spec.mounts.iter().filter(|mount| mount.access == Access::ReadWrite);
    written.filter_map(|mount| match mount.kind {
        MountKind::VolumeElsewhere { bytes } => Some((mount, bytes)),
        MountKind::Volume { .. } | MountKind::Host => None,
    })
}

/// What is there before anything runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before {
    /// In the folders that are written in place.
    pub(crate) folders: Size,
    /// In each volume that outlives the sandbox.
    volumes: Vec<Size>,
}

/// What is there before anything runs. Too much to look at is an error of a one-shot sandbox; a living one must be kept whatever
/// there is, and its next look finds that it is too much.
pub(crate) fn before(spec: &SandboxSpec) -> io::Result<Before> {
    let folders = written_in_place(spec).map(open).collect::<io::Result<Vec<_>>>()?;
    Ok(Before { folders: size(&folders, spec)?, ..before_in_volumes(spec)? })
}

/// The same of volumes alone: what was in the folders of a living sandbox is noted since its start.
pub(crate) fn before_in_volumes(spec: &SandboxSpec) -> io::Result<Before> {
    let volumes = written_volumes(spec).map(|(mount, _)| size(&[open(&mount.source)?], spec));
    Ok(Before { volumes: volumes.collect::<io::Result<_>>()?, folders: Size::default() })
}

fn size(places: &[OwnedFd], spec: &SandboxSpec) -> io::Result<Size> {
    match taken::total(places) {
        Some(size) => Ok(size),
        None if spec.living.is_some() => Ok(Size::default()),
        None => Err(rustix::io::Errno::FBIG.into()),
    }
}

/// What is known of the disk of a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    /// Bytes and entries of the folders that are written in place, before anything ran.
    before: (u64, u64),
    /// Bytes and entries at the last look, of everything.
    last: (u64, u64),
    /// Somebody was told at the last look that it is too much, and may have written more until he ended.
    settling: bool,
    /// How often somebody was told in a row.
    told: u32,
}

/// Notes for a living sandbox that starts what its folders hold, and leaves the rest of an earlier note as it is.
pub(crate) fn note_before(store: &Path, before: Size) -> io::Result<()> {
    let noted = Noted { before: (before.bytes, before.entries), ..read_note(store) };
    write_note(store, &noted)
}

fn read_note(store: &Path) -> Noted {
    fs::read(store.join(NOTE)).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

fn write_note(store: &Path, noted: &Noted) -> io::Result<()> {
    let unfinished = store.join(format!("{NOTE}.{}", std::process::id()));
    fs::write(&unfinished, serde_json::to_vec(noted)?)?;
    fs::rename(&unfinished, store.join(NOTE))
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// What is watched, and who waits.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The volumes, which are the sandbox's own.
    volumes: Vec<OwnedFd>,
    /// Folders of the host, of which only what is new counts.
    folders: Vec<OwnedFd>,
    most: Size,
    /// The container's, for the processes that may have deleted files open.
    groups: Groups,
    /// Where a living sandbox keeps what is noted of it.
    store: Option<PathBuf>,
    noted: Mutex<Noted>,
    /// Volumes that others may write too.
    shared: Vec<Shared>,
    teller: Mutex<Option<broadcast::Sender<Outgrown>>>,
    /// Wakes the one that rests between two looks.
    rest: Condvar,
}

/// One who waits for the word that there is too much. The watch ends with the last of them, also while it rests.
#[derive(Debug)]
pub(crate) struct Waiter {
    told: Option<broadcast::Receiver<Outgrown>>,
    watch: Arc<Watch>,
}

impl Waiter {
    /// What there is too much of. Never, where nobody looks.
    pub(crate) async fn outgrown(mut self) -> Outgrown {
        match self.told.as_mut().expect("it is there until the end").recv().await {
            Ok(outgrown) => outgrown,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let _held = self.watch.teller();
        self.told = None;
        self.watch.rest.notify_all();
    }
}

/// A volume that outlives the sandbox.
#[derive(Debug)]
struct Shared {
    /// Its path inside.
    target: String,
    place: [OwnedFd; 1],
    /// How much it may hold.
    bytes: u64,
    noted: Mutex<Noted>,
}

impl Shared {
    /// Every volume that a spec can write, which held so much before.
    fn all(spec: &SandboxSpec, before: &[Size]) -> io::Result<Vec<Self>> {
        let before = before.iter().copied().chain(std::iter::repeat(Size::default()));
        let made = written_volumes(spec).zip(before).map(|((mount, bytes), before)| {
            let noted = Mutex::new(Noted { last: (before.bytes, before.entries), ..Noted::default() });
            let (target, place) = (mount.target.as_str().to_owned(), [open(&mount.source)?]);
            Ok(Shared { target, place, bytes, noted })
        });
        made.collect()
    }

    fn judge(&self, now: Size) -> Option<Outgrown> {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, outgrown) = judged(&noted, now, Size { bytes: self.bytes, entries: taken::MOST_ENTRIES });
        *noted = next;
        outgrown.map(|_| Outgrown::Volume { target: self.target.clone(), bytes: self.bytes })
    }
}

/// The devices that places lie on.
fn devices<'a>(places: impl Iterator<Item = &'a OwnedFd>) -> Vec<u64> {
    places.filter_map(|place| Some(rustix::fs::fstat(place.as_fd()).ok()?.st_dev)).collect()
}

impl Watch {
    /// A watch over these volumes, and over what the sandbox writes in place.
    pub(crate) fn over(
        volumes: &[PathBuf],
        spec: &SandboxSpec,
        limits: &LimitsInForce,
        (groups, before): (Groups, &Before),
    ) -> io::Result<Self> {
        let store = spec.living.as_ref().map(|living| living.store.clone());
        let fresh = Noted { before: (before.folders.bytes, before.folders.entries), ..Noted::default() };
        Ok(Watch {
            shared: Shared::all(spec, &before.volumes)?,
            volumes: volumes.iter().map(|path| open(path)).collect::<io::Result<_>>()?,
            folders: written_in_place(spec).map(open).collect::<io::Result<_>>()?,
            most: Size { bytes: limits.disk_bytes, entries: limits.inodes },
            groups,
            noted: Mutex::new(store.as_deref().map_or(fresh, read_note)),
            store,
            teller: Mutex::default(),
            rest: Condvar::new(),
        })
    }

    /// One more who waits for the word that there is too much. The watch goes on for as long as somebody does.
    pub(crate) fn follow(self: &Arc<Self>) -> Waiter {
        let mut teller = self.teller();
        let told = match &*teller {
            Some(teller) => teller.subscribe(),
            None => {
                let (tell, told) = broadcast::channel(1);
                let watch = Arc::clone(self);
                // A machine that can have no more threads has other limits that hold.
                let thread = std::thread::Builder::new().name("glovebox-watch".to_owned());
                *teller = thread.spawn(move || watch.look_on()).is_ok().then_some(tell);
                told
            }
        };
        Waiter { told: Some(told), watch: Arc::clone(self) }
    }

    /// What the volumes hold; nothing when that is too much to look at.
    pub(crate) fn in_volumes(&self) -> Option<u64> {
        taken::total(&self.volumes).map(|size| size.bytes)
    }

    fn look_on(&self) {
        let is_followed = |teller: &mut Option<broadcast::Sender<Outgrown>>| {
            teller.as_ref().is_some_and(|tell| tell.receiver_count() > 0)
        };
        for turn in 0.. {
            let outgrown = self.judge(self.look(turn));
            let teller = self.teller();
            if let (Some(tell), Some(outgrown)) = (&*teller, outgrown) {
                let _ = tell.send(outgrown);
            }
            let rested = self.rest.wait_timeout_while(teller, REST, is_followed);
            let (mut teller, _) = rested.unwrap_or_else(PoisonError::into_inner);
            if !is_followed(&mut teller) {
                *teller = None;
                return;
            }
        }
    }

    /// What is in the sandbox's own places now, and in each volume of several.
    fn look(&self, turn: usize) -> (Size, Vec<Size>) {
        let own = Place { target: None, devices: devices(self.volumes.iter().chain(&self.folders)) };
        let shared = self.shared.iter();
        let shared = shared.map(|one| Place { target: Some(&one.target), devices: devices(one.place.iter()) });
        let places: Vec<Place<'_>> = [own].into_iter().chain(shared).collect();
        let mut deleted = taken::find(&self.groups.processes(), &places, turn).into_iter();
        let of_own = deleted.next().unwrap_or_default();
        let total = |places: &[OwnedFd]| taken::total(places).unwrap_or(Size::TOO_MUCH);
        let own = total(&self.volumes).and(total(&self.folders)).and(of_own);
        (own, self.shared.iter().zip(deleted).map(|(one, deleted)| total(&one.place).and(deleted)).collect())
    }

    /// What there is too much of, if somebody made it more since the last look.
    fn judge(&self, (own, shared): (Size, Vec<Size>)) -> Option<Outgrown> {
        let full = self.shared.iter().zip(shared).filter_map(|(one, now)| one.judge(now)).reduce(|first, _| first);
        self.judge_own(own).or(full)
    }

    fn judge_own(&self, now: Size) -> Option<Outgrown> {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, outgrown) = judged(&noted, now, self.most);
        if let Some(store) = self.store.as_deref().filter(|_| next != *noted) {
            // Where it cannot be noted, the next process looks as if it were the first.
            let _ = write_note(store, &next);
        }
        *noted = next;
        if outgrown.is_some() && next.told >= ENOUGH_TOLD {
            self.groups.end_commands();
        }
        outgrown
    }

    fn teller(&self) -> MutexGuard<'_, Option<broadcast::Sender<Outgrown>>> {
        self.teller.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known after a look, and what there is too much of.
fn judged(noted: &Noted, now: Size, most: Size) -> (Noted, Option<Outgrown>) {
    // A tree that cannot be looked at counts as growing.
    let is_more = |now: u64, last: u64, most: u64| now > most && (now > last || now == u64::MAX);
    let bytes = is_more(now.bytes, noted.last.0, noted.before.0.saturating_add(most.bytes));
    let files = is_more(now.entries, noted.last.1, noted.before.1.saturating_add(most.entries));
    let outgrown = match (bytes && now.bytes < u64::MAX, bytes || files) {
        // Whoever was told has been about to end, and others are not to blame for what he wrote meanwhile.
        _ if noted.settling => None,
        (true, _) => Some(Outgrown::Bytes),
        (false, true) => Some(Outgrown::Files),
        (false, false) => None,
    };
    let told = match outgrown {
        Some(_) => noted.told.saturating_add(1),
        None if noted.settling => noted.told,
        None => 0,
    };
    let last = (now.bytes, now.entries);
    (Noted { before: noted.before, last, settling: outgrown.is_some(), told }, outgrown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Size = Size { bytes: 100, entries: 10 };

    fn look(noted: &mut Noted, bytes: u64, entries: u64) -> Option<Outgrown> {
        let (next, outgrown) = judged(noted, Size { bytes, entries }, MOST);
        *noted = next;
        outgrown
    }

    #[test]
    fn who_takes_more_than_there_is_is_told_and_who_makes_room_is_let() {
        let mut noted = Noted::default();
        assert_eq!(look(&mut noted, 100, 10), None);
        assert_eq!(look(&mut noted, 130, 10), Some(Outgrown::Bytes));
        assert_eq!(look(&mut noted, 140, 10), None, "what the one who was told wrote until he ended");
        assert_eq!(look(&mut noted, 140, 10), None, "somebody who does nothing");
        assert_eq!(look(&mut noted, 120, 10), None, "somebody who makes room");
        assert_eq!(look(&mut noted, 125, 10), Some(Outgrown::Bytes));
        assert_eq!(noted.told, 1);
    }

    #[test]
    fn it_is_known_how_often_in_a_row_nobody_who_was_told_had_written_it() {
        let mut noted = Noted::default();
        let told: Vec<u32> = (11..17).map(|n| (look(&mut noted, n * 10, 1), noted.told).1).collect();
        assert_eq!(told, [1, 1, 2, 2, 3, 3]);
        assert_eq!((look(&mut noted, 100, 1), noted.told), (None, 0));
    }

    #[test]
    fn files_count_as_bytes_do_and_so_does_a_tree_that_is_too_much_to_look_at() {
        let mut noted = Noted::default();
        assert_eq!(look(&mut noted, 1, 11), Some(Outgrown::Files));
        let mut noted = Noted { last: (u64::MAX, u64::MAX), ..Noted::default() };
        assert_eq!(look(&mut noted, u64::MAX, u64::MAX), Some(Outgrown::Files));
    }

    #[test]
    fn of_folders_of_the_host_only_what_is_new_counts() {
        let mut noted = Noted { before: (1000, 50), ..Noted::default() };
        assert_eq!(look(&mut noted, 1100, 60), None);
        assert_eq!(look(&mut noted, 1101, 60), Some(Outgrown::Bytes));
    }

    #[test]
    fn the_next_process_knows_what_the_last_one_saw() {
        let store = tempfile::tempdir().unwrap();
        assert_eq!(read_note(store.path()), Noted::default());
        write_note(store.path(), &Noted { last: (7, 8), told: 2, ..Noted::default() }).unwrap();
        note_before(store.path(), Size { bytes: 1, entries: 2 }).unwrap();
        assert_eq!(read_note(store.path()), Noted { before: (1, 2), last: (7, 8), settling: false, told: 2 });
    }
}
