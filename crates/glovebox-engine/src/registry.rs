//! The living sandboxes of a data folder: what each is, under which name, and who is changing it.
//!
//! `DATA/sandboxes/ID/` holds `sandbox.json`, which is written once and whole; `files/`, the store; `lock`, held by whoever
//! makes, starts, stops or removes the sandbox; `ended.json`, when it ended by itself; and `doomed`, when it was destroyed
//! and a process of it could not end; `act`, what its owner did to it last; `contents` and `seen`, which save work; `backend`, the name of the backend that
//! makes it, for as long as no record says so; `copied`, what its workspace was when it had been copied in, where it is not shown; `sessions/`, a file for
//! each session that it was given. A folder without `sandbox.json`
//! whose lock is free was left by somebody who died while making it. `DATA/sandboxes/names/NAME` holds the id of the sandbox
//! with that name.

use std::{
    fs,
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use glovebox_core::{
    EndReason, Error, ErrorCode, Result, SANDBOXES_DIR, SandboxId, SandboxName, SandboxRecord, living_store,
};
use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use serde::Deserialize;

use crate::living::Act;

/// So many sandboxes are named when an id stands for several.
const NAMED: usize = 5;

/// Looks at and changes the sandboxes of one data folder.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    folder: PathBuf,
}

/// The right to change a sandbox. Others wait until it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    _lock: fs::File,
}

/// Why and when a sandbox ended by itself.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Ended {
    pub(crate) reason: EndReason,
    at_ms: i64,
}

impl Ended {
    pub(crate) fn at(&self) -> Timestamp {
        Timestamp::from_millisecond(self.at_ms).unwrap_or_default()
    }
}

impl Registry {
    /// That of a data folder.
    pub(crate) fn below(data_dir: &Path) -> Self {
        Registry { folder: data_dir.join(SANDBOXES_DIR) }
    }

    fn place(&self, id: SandboxId) -> PathBuf {
        self.folder.join(id.to_string())
    }

    /// Where the files of a sandbox are.
    pub(crate) fn store(&self, id: SandboxId) -> PathBuf {
        living_store(&self.folder, id)
    }

    /// Where it is noted what was kept of the files of a sandbox.
    pub(crate) fn contents(&self, id: SandboxId) -> PathBuf {
        self.place(id).join("contents")
    }

    /// Where it is noted what was met in the workspace of a sandbox when it was last looked at.
    pub(crate) fn seen(&self, id: SandboxId) -> PathBuf {
        self.place(id).join("seen")
    }

    /// Where it is noted which sessions a sandbox was given.
    pub(crate) fn sessions(&self, id: SandboxId) -> PathBuf {
        self.place(id).join("sessions")
    }

    /// It is as new, and so was given no session.
    pub(crate) fn forget_sessions(&self, id: SandboxId) {
        let _ = fs::remove_dir_all(self.sessions(id));
    }

    /// Its workspace is as new, and nothing was met there.
    pub(crate) fn forget_seen(&self, id: SandboxId) {
        let _ = fs::remove_file(self.seen(id));
    }

    /// Makes the folder of a new sandbox.
    pub(crate) fn begin(&self, id: SandboxId, name: Option<&SandboxName>, backend: &str) -> Result<Hold> {
        let begun = || {
            make_folder(&self.folder.join("names")).map_err(failed)?;
            let hold = self.make_held(id)?;
            fs::write(self.place(id).join("backend"), backend).map_err(failed)?;
            self.make_store(id)?;
            if let Some(name) = name {
                self.take_name(name, id)?;
            }
            Ok(hold)
        };
        begun().inspect_err(|_| drop(self.remove(id, None)))
    }

    /// The backend that makes a sandbox, or made it; none in a folder of an earlier version.
    pub(crate) fn maker(&self, id: SandboxId) -> Option<String> {
        fs::read_to_string(self.place(id).join("backend")).ok().filter(|name| !name.is_empty())
    }

    /// Makes an empty folder for the files of a sandbox.
    pub(crate) fn make_store(&self, id: SandboxId) -> Result<()> {
        make_folder(&self.store(id)).map_err(failed)
    }

    /// Makes the folder of a sandbox and takes the right to change it. In between a collector may take it for one that was left.
    fn make_held(&self, id: SandboxId) -> Result<Hold> {
        let mut tries = 0;
        loop {
            make_folder(&self.place(id)).map_err(failed)?;
            match self.hold(id) {
                Err(error) if error.code == ErrorCode::SandboxNotFound && tries < 100 => tries += 1,
                other => return other,
            }
        }
    }

    /// Waits for the right to change a sandbox.
    pub(crate) fn hold(&self, id: SandboxId) -> Result<Hold> {
        let lock = self.open_lock(id).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => not_found(&id.to_string()),
            _ => failed(error),
        })?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        // Whoever had it before may have removed the sandbox.
        if lock.metadata().map_err(failed)?.nlink() == 0 {
            return Err(not_found(&id.to_string()));
        }
        Ok(Hold { _lock: lock })
    }

    /// The right to remove what was left of a sandbox, unless somebody makes or removes it right now.
    pub(crate) fn take_abandoned(&self, id: SandboxId) -> Option<Hold> {
        let lock = self.open_lock(id).ok()?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        let is_left =
            lock.metadata().is_ok_and(|lock| lock.nlink() > 0) && !self.place(id).join("sandbox.json").exists();
        is_left.then_some(Hold { _lock: lock })
    }

    fn open_lock(&self, id: SandboxId) -> io::Result<fs::File> {
        fs::File::options().create(true).truncate(false).write(true).mode(0o600).open(self.place(id).join("lock"))
    }

    /// Writes down what a sandbox is, now that it is one.
    pub(crate) fn commit(&self, record: &SandboxRecord) -> Result<()> {
        let text = serde_json::to_vec_pretty(record).map_err(|error| failed(error.into()))?;
        self.write_whole(record.sandbox, "sandbox.json", &text)
    }

    /// Writes a file of a sandbox that must be there. After a crash of the host it is there, or it is not.
    fn write_whole(&self, id: SandboxId, name: &str, bytes: &[u8]) -> Result<()> {
        let place = self.place(id);
        let write = || -> io::Result<()> {
            let new = place.join(format!("{name}.new"));
            let mut file = fs::File::options().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(new, place.join(name))
        };
        write().map_err(failed)
    }

    /// Notes what the workspace was when it had been copied in.
    pub(crate) fn note_copied(&self, id: SandboxId, bytes: &[u8]) -> Result<()> {
        self.write_whole(id, "copied", bytes)
    }

    /// Whether it was noted what the workspace was, which means that it is there.
    pub(crate) fn has_copied(&self, id: SandboxId) -> bool {
        self.place(id).join("copied").exists()
    }

    /// What was noted of a workspace when it had been copied in; no more than `most` bytes.
    pub(crate) fn copied(&self, id: SandboxId, most: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = fs::File::open(self.place(id).join("copied")).map_err(failed)?;
        file.take(most).read_to_end(&mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    /// The files of a sandbox are about to go, and with them what was copied in.
    pub(crate) fn forget_copied(&self, id: SandboxId) -> Result<()> {
        match fs::remove_file(self.place(id).join("copied")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }

    /// What a sandbox is.
    pub(crate) fn read(&self, id: SandboxId) -> Result<SandboxRecord> {
        let path = self.place(id).join("sandbox.json");
        let text = fs::read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => not_found(&id.to_string()),
            _ => failed(error),
        })?;
        serde_json::from_slice(&text).map_err(|error| {
            Error::new(
                ErrorCode::HostIo,
                format!("the record of {id} cannot be read; was it written by a newer version?"),
            )
            .because(error)
        })
    }

    /// Why a sandbox ended by itself, if it did.
    pub(crate) fn ended(&self, id: SandboxId) -> Option<Ended> {
        serde_json::from_slice(&fs::read(self.place(id).join("ended.json")).ok()?).ok()
    }

    /// The ids of all sandboxes, the oldest first.
    pub(crate) fn ids(&self) -> Result<Vec<SandboxId>> {
        let mut ids = self.folders()?;
        ids.retain(|id| self.place(*id).join("sandbox.json").exists());
        ids.sort();
        Ok(ids)
    }

    /// The ids of all that has a folder.
    fn folders(&self) -> Result<Vec<SandboxId>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    }

    /// The sandbox that a name, an id, or the beginning of an id stands for.
    pub(crate) fn find(&self, text: &str) -> Result<SandboxId> {
        if let Ok(id) = text.parse::<SandboxId>() {
            return self.place(id).join("sandbox.json").exists().then_some(id).ok_or_else(|| not_found(text));
        }
        if let Ok(name) = SandboxName::parse(text)
            && let Some(id) = self.named(&name)?
        {
            return Ok(id);
        }
        let wanted = text.strip_prefix("sb_").unwrap_or(text).to_ascii_uppercase();
        let fits = |id: &SandboxId| id.to_string()[3..].starts_with(&wanted) && !wanted.is_empty();
        let found: Vec<SandboxId> = self.ids()?.into_iter().filter(fits).collect();
        match &found[..] {
            [] => Err(self.written_otherwise(text).map_or_else(
                || not_found(text),
                |name| not_found(text).hint(format!("did you mean {name}? capital letters count")),
            )),
            [id] => Ok(*id),
            several => {
                // The newest are the likeliest.
                let named: Vec<String> = several.iter().rev().take(NAMED).map(ToString::to_string).collect();
                let more = if several.len() > NAMED { " and others" } else { "" };
                Err(Error::new(ErrorCode::AmbiguousId, format!("the id {text:?} stands for several sandboxes"))
                    .hint(format!("write more of it: {}{more}", named.join(", "))))
            }
        }
    }

    /// The name of a sandbox that differs from a text in capital letters alone.
    fn written_otherwise(&self, text: &str) -> Option<SandboxName> {
        let names = fs::read_dir(self.folder.join("names")).ok()?.flatten();
        let mut names = names.filter_map(|entry| SandboxName::parse(entry.file_name().to_str()?).ok());
        names.find(|name| name.as_str().eq_ignore_ascii_case(text) && matches!(self.named(name), Ok(Some(_))))
    }

    fn named(&self, name: &SandboxName) -> Result<Option<SandboxId>> {
        let owner = self.owner_of(&self.folder.join("names").join(name.as_str()))?;
        Ok(owner.filter(|id| self.place(*id).join("sandbox.json").exists()))
    }

    /// The sandbox that the file of a name names.
    fn owner_of(&self, path: &Path) -> Result<Option<SandboxId>> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(text.parse().ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Takes a name that no sandbox has. Those who take names do so one after the other, so that of two who find the same
    /// name left by somebody dead only one gets it.
    fn take_name(&self, name: &SandboxName, id: SandboxId) -> Result<()> {
        let names = self.folder.join("names");
        let lock = fs::File::open(&names).map_err(failed)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        let path = names.join(name.as_str());
        // One that ended by itself needs no name any more.
        let is_free = |owner| self.is_abandoned(owner) || self.ended(owner).is_some();
        if self.owner_of(&path)?.is_some_and(|owner| !is_free(owner)) {
            return Err(Error::new(ErrorCode::NameTaken, format!("another sandbox has the name {name}")).hint(format!(
                "glovebox exec {name} works in it, glovebox destroy {name} removes it with its files; or take another name"
            )));
        }
        // It gets its place when it is whole: one that is empty would be nobody's.
        let new = self.place(id).join("name.new");
        let mut file =
            fs::File::options().create(true).truncate(true).write(true).mode(0o600).open(&new).map_err(failed)?;
        file.write_all(id.to_string().as_bytes()).map_err(failed)?;
        // Whoever had the name before died before it had a sandbox, or has just gone.
        fs::rename(new, path).map_err(failed)
    }

    /// Whether a folder was left by somebody who died while making the sandbox, or while removing it.
    fn is_abandoned(&self, id: SandboxId) -> bool {
        if self.place(id).join("sandbox.json").exists() {
            return false;
        }
        match fs::File::options().write(true).open(self.place(id).join("lock")) {
            Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
            // One that cannot be looked at, for want of a descriptor perhaps, may be somebody's.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    /// The sandboxes whose making or removing was cut short.
    pub(crate) fn abandoned(&self) -> Vec<SandboxId> {
        // What cannot be looked at now is found by the next one who looks.
        self.folders().unwrap_or_default().into_iter().filter(|id| self.is_abandoned(*id)).collect()
    }

    /// Notes what its owner is about to do to a sandbox, for those who work in it. On a full disk they are told less.
    pub(crate) fn note_act(&self, id: SandboxId, act: Act) {
        if let Ok(text) = serde_json::to_vec(&act) {
            let _ = fs::write(self.place(id).join("act"), text);
        }
    }

    /// A sandbox was started again.
    pub(crate) fn forget_act(&self, id: SandboxId) {
        let _ = fs::remove_file(self.place(id).join("act"));
    }

    /// What its owner did to a sandbox that was not started since.
    pub(crate) fn last_act(&self, id: SandboxId) -> Option<Act> {
        serde_json::from_slice(&fs::read(self.place(id).join("act")).ok()?).ok()
    }

    /// Says that a sandbox is to be removed as soon as its processes have ended.
    pub(crate) fn doom(&self, id: SandboxId) -> Result<()> {
        fs::File::create(self.place(id).join("doomed")).map(drop).map_err(failed)
    }

    /// Whether a sandbox is to be removed as soon as its processes have ended.
    pub(crate) fn is_doomed(&self, id: SandboxId) -> bool {
        self.place(id).join("doomed").exists()
    }

    /// Says that a sandbox is no more, before its files go.
    pub(crate) fn forget(&self, id: SandboxId) -> Result<()> {
        match fs::remove_file(self.place(id).join("sandbox.json")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }

    /// Removes what is left of a sandbox whose files are gone.
    pub(crate) fn remove(&self, id: SandboxId, name: Option<&SandboxName>) -> Result<()> {
        self.forget(id)?;
        if let Some(name) = name {
            let path = self.folder.join("names").join(name.as_str());
            if fs::read_to_string(&path).is_ok_and(|owner| owner == id.to_string()) {
                let _ = fs::remove_file(path);
            }
        }
        let place = self.place(id);
        let _ = fs::remove_dir(self.store(id));
        let mut tries = 0;
        loop {
            self.forget_sessions(id);
            for file in [
                "ended.json",
                "doomed",
                "act",
                "contents",
                "contents.new",
                "seen",
                "seen.new",
                "copied",
                "copied.new",
                "name.new",
                "sandbox.json.new",
                "backend",
                "lock",
            ] {
                let _ = fs::remove_file(place.join(file));
            }
            tries += 1;
            match fs::remove_dir(&place) {
                // A run that ended just now has noted what it kept.
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && tries < 3 => {}
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => return Ok(()),
            }
        }
    }
}

fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn not_found(text: &str) -> Error {
    if text.starts_with("run_") {
        let message = format!("{text} is the id of a run, and a sandbox is needed");
        return Error::new(ErrorCode::SandboxNotFound, message)
            .hint(format!("glovebox runs show {text} shows the run and its sandbox"));
    }
    let hint = match text.contains(':') {
        true => "ID:PATH is how glovebox cp names a file; elsewhere ID and PATH stand apart",
        false => "glovebox list shows the sandboxes there are",
    };
    Error::new(ErrorCode::SandboxNotFound, format!("there is no sandbox {text}")).hint(hint)
}

fn failed(error: io::Error) -> Error {
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let failed = Error::new(ErrorCode::HostIo, "the folder of sandboxes cannot be used").or_too_many(error);
    if full { failed.hint("make room on the disk of the data folder, or use another --data-dir") } else { failed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_core::SandboxSpec;

    fn registry() -> (tempfile::TempDir, Registry) {
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::below(folder.path());
        (folder, registry)
    }

    fn record(id: SandboxId, name: Option<&str>) -> SandboxRecord {
        SandboxRecord {
            sandbox: id,
            name: name.map(|name| SandboxName::parse(name).unwrap()),
            backend: "native".into(),
            labels: Default::default(),
            env: Default::default(),
            spec: SandboxSpec::default(),
            created_at: Timestamp::now(),
        }
    }

    fn made(registry: &Registry, name: Option<&str>) -> SandboxId {
        let id = SandboxId::new();
        let record = record(id, name);
        let _hold = registry.begin(id, record.name.as_ref(), "native").unwrap();
        registry.commit(&record).unwrap();
        id
    }

    #[test]
    fn a_sandbox_is_found_by_its_id_its_name_and_the_beginning_of_its_id() {
        let (_folder, registry) = registry();
        let id = made(&registry, Some("box"));
        let text = id.to_string();
        for way in [text.as_str(), "box", &text[..20], &text[3..20].to_lowercase()] {
            assert_eq!(registry.find(way).unwrap(), id, "{way}");
        }
        assert_eq!(registry.find("other").unwrap_err().code, ErrorCode::SandboxNotFound);
        made(&registry, None);
        assert_eq!(registry.find(&text[..8]).unwrap_err().code, ErrorCode::AmbiguousId);
    }

    #[test]
    fn a_name_is_given_once_and_free_again_when_its_sandbox_is_gone() {
        let (_folder, registry) = registry();
        let id = made(&registry, Some("box"));
        let name = SandboxName::parse("box").unwrap();
        assert_eq!(registry.begin(SandboxId::new(), Some(&name), "native").unwrap_err().code, ErrorCode::NameTaken);
        assert_eq!(registry.ids().unwrap(), [id]);
        registry.remove(id, Some(&name)).unwrap();
        made(&registry, Some("box"));
    }

    #[test]
    fn of_many_who_want_the_name_of_one_who_died_only_one_gets_it() {
        for _ in 0..100 {
            let (_folder, registry) = registry();
            let name = SandboxName::parse("box").unwrap();
            drop(registry.begin(SandboxId::new(), Some(&name), "native").unwrap());
            let start = std::sync::Barrier::new(4);
            let take = || {
                let id = SandboxId::new();
                start.wait();
                registry.begin(id, Some(&name), "native").ok().map(|hold| (id, hold))
            };
            let taken: Vec<(SandboxId, Hold)> = std::thread::scope(|scope| {
                let all: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
                all.into_iter().filter_map(|one| one.join().unwrap()).collect()
            });
            let owner = fs::read_to_string(registry.folder.join("names/box")).unwrap();
            let ids: Vec<String> = taken.iter().map(|(id, _)| id.to_string()).collect();
            assert_eq!(ids, [owner]);
        }
    }

    #[test]
    fn what_was_left_half_made_is_no_sandbox_and_holds_no_name() {
        let (_folder, registry) = registry();
        let (id, name) = (SandboxId::new(), SandboxName::parse("box").unwrap());
        let hold = registry.begin(id, Some(&name), "native").unwrap();
        assert!(registry.abandoned().is_empty(), "its maker lives");
        assert_eq!(registry.maker(id).as_deref(), Some("native"));
        assert_eq!(registry.begin(SandboxId::new(), Some(&name), "native").unwrap_err().code, ErrorCode::NameTaken);
        drop(hold);
        assert_eq!(registry.abandoned(), [id]);
        assert!(registry.ids().unwrap().is_empty());
        made(&registry, Some("box"));
    }
}
