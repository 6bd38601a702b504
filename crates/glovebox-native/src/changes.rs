//! The change set of a sandbox, read from its store.
//!
//! Theory of operation. Without a workspace everything in the working directory is new. With an overlay the upper layer
//! holds what changed: files that were written, whiteouts (character device 0:0) for what was removed, and folders.
//! (With an ordinary user's overlay the marks begin with `user.` in place of `trusted.`.)
//! A folder that carries `trusted.overlay.opaque` hides the lower folder of the same name; one that carries
//! `trusted.overlay.redirect` was renamed, and shows a lower folder that lies elsewhere. So each folder is compared by
//! three parts: `upper`, what was written; `source`, the lower folder that shines through it; and `before`, the lower
//! folder that used to be at this path. As long as the last two are the same, only `upper` needs to be read, never the
//! whole tree.
//!
//! Each change carries what was there and what is there now. Whoever asked may want the contents too; then both files
//! are handed to a keeper as they are found. A file of the host that changed after the sandbox was made was not what the
//! sandbox saw, and is marked.
//!
//! This runs on the host, as root, over names that hostile code chose. Every step is one name below an open folder,
//! no link is ever followed, nothing but folders and regular files is opened, and entries, bytes and time are bounded.

mod content;
mod folder;
mod layers;

use std::{
    collections::BTreeSet,
    io,
    os::fd::{BorrowedFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
};

use glovebox_core::{
    Change, ChangeRecord, ContentKeeper, FileKind, FileStamp, FileState, GivenFile, LookFor, Obstacle, SeenEntry,
    WorkspaceLook, look_bound,
};
use rustix::fs::{FileType, OFlags, Stat};

use crate::confined;

pub(crate) use layers::{Layers, Written};

use content::{Contents, stamp};
use folder::{
    Entry, attribute, differ_in_content, entries, is_empty, is_folder, is_whiteout, join, look, open_bytes,
    open_folder, open_here, open_path,
};
use layers::Working;

/// Collects what changed below `/workspace`.
pub(crate) fn collect(
    store: BorrowedFd<'_>,
    layers: &Layers,
    (written, look_for): (Written, LookFor),
    given: &[GivenFile],
    keeper: Option<&dyn ContentKeeper>,
    stop: &AtomicBool,
) -> io::Result<WorkspaceLook> {
    let mut walk = Walk {
        look_for,
        seen: Vec::new(),
        root: None,
        copied: None,
        layers,
        given,
        stop,
        record: ChangeRecord::default(),
        contents: Contents::new(keeper),
        left: look_bound::CHANGES,
        path_bytes: look_bound::PATH_BYTES,
        compared: look_bound::COMPARED,
    };
    // Root inside can move even these folders away; then there is nothing in them.
    if let Ok(outputs) = open_path(store, "workspace/outputs") {
        walk.see_root("outputs", &outputs);
        walk.all_below(&outputs, "outputs", 0, Side::Added)?;
    }
    match &layers.working {
        Working::Fresh => {
            if let Ok(folder) = open_path(store, "workspace/agent_workspace") {
                walk.see_root("agent_workspace", &folder);
                walk.all_below(&folder, "agent_workspace", 0, Side::Added)?;
            }
        }
        Working::Overlay(lower) if written == Written::Copy => {
            let copy = open_path(store, "workspace/agent_workspace")?;
            walk.see_root("agent_workspace", &copy);
            walk.copied = Some(time_of_copy(store)?);
            walk.compare(Some(&copy), None, Some(lower), Same::No, "agent_workspace", 0)?;
        }
        Working::Overlay(lower) => {
            let upper = open_path(store, ".glovebox/upper")?;
            walk.see_root("agent_workspace", &upper);
            walk.root = Some(lower.try_clone()?);
            walk.compare(Some(&upper), Some(lower), Some(lower), Same::Yes, "agent_workspace", 0)?;
        }
        Working::OverlayOfGone => walk.record.truncated = true,
        Working::Direct => {}
    }
    walk.record.truncated |= walk.left == 0;
    walk.record.sort();
    let workspace_gone = matches!(layers.working, Working::OverlayOfGone);
    Ok(WorkspaceLook { changes: walk.record, seen: walk.seen, workspace_gone })
}

/// What there is to tell when nothing was written below `/workspace` at all: the usual case of a short run, told by three looks.
pub(crate) fn untouched(
    store: BorrowedFd<'_>,
    layers: &Layers,
    (written, look_for): (Written, LookFor),
) -> Option<WorkspaceLook> {
    let mut seen = Vec::new();
    let mut empty = |root: &str, path: &str| {
        let Ok(folder) = open_path(store, path) else { return false };
        if look_for == LookFor::Everything {
            seen.extend(seen_root(root, &folder));
        }
        is_empty(&folder)
    };
    let working = match &layers.working {
        Working::Fresh => empty("agent_workspace", "workspace/agent_workspace"),
        Working::Overlay(_) | Working::OverlayOfGone => {
            written == Written::Overlay && empty("agent_workspace", ".glovebox/upper")
        }
        Working::Direct => true,
    };
    let untouched = working && empty("outputs", "workspace/outputs");
    untouched.then(|| WorkspaceLook { seen, ..WorkspaceLook::default() })
}

/// A folder of `/workspace` itself, as it is met.
fn seen_root(path: &str, folder: &OwnedFd) -> Option<SeenEntry> {
    let stat = rustix::fs::fstat(folder).ok()?;
    let state = Some(FileState { mode: stat.st_mode & 0o7777, kind: FileKind::Directory });
    Some(SeenEntry { path: path.to_owned(), state, stamp: Some(stamp(&stat)) })
}

/// When the kernel last changed the stamp that was left after the workspace had been copied.
fn time_of_copy(store: BorrowedFd<'_>) -> io::Result<(i64, i64)> {
    let stat = rustix::fs::statat(store, confined::COPIED, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((stat.st_ctime, stat.st_ctime_nsec as i64))
}

/// Whether the lower folder that shines through is the one that used to be there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Same {
    Yes,
    No,
}

/// Whether everything below a folder came or went.
#[derive(Clone, Copy)]
enum Side {
    Added,
    Deleted,
}

struct Walk<'a> {
    layers: &'a Layers,
    given: &'a [GivenFile],
    /// The root of the lower layer, which absolute redirects count from.
    root: Option<OwnedFd>,
    /// When the workspace had been copied, where it was: a file that last changed before is the copy as it was made.
    copied: Option<(i64, i64)>,
    /// Set when nobody wants the result any more.
    stop: &'a AtomicBool,
    record: ChangeRecord,
    look_for: LookFor,
    seen: Vec<SeenEntry>,
    contents: Contents<'a>,
    left: usize,
    path_bytes: usize,
    compared: u64,
}

impl Walk<'_> {
    fn note(&mut self, path: &str, before: Option<Entry<'_>>, after: Option<Entry<'_>>) {
        if self.left == 0 || self.layers.mounts.contains(path) {
            return;
        }
        if path.len() > self.path_bytes || self.stop.load(Ordering::Relaxed) {
            self.left = 0;
            return;
        }
        self.path_bytes -= path.len();
        self.left -= 1;
        let meanwhile = before.is_some_and(|entry| !is_folder(entry.stat) && self.is_younger(entry.stat));
        let before = before.map(|entry| self.contents.state(entry));
        let new = after.map(|entry| stamp(entry.stat));
        let after = after.map(|entry| self.contents.state(entry));
        self.remember(path, after.clone(), new);
        // This character stands for bytes that are no text. A name that really holds it is rare enough.
        let odd = |text: &str| text.contains(char::REPLACEMENT_CHARACTER);
        let odd_target = after.iter().any(|state| matches!(&state.kind, FileKind::Symlink { target } if odd(target)));
        let obstacle = match (odd(path) || odd_target, meanwhile) {
            (true, _) => Some(Obstacle::NameNotUtf8),
            (false, true) => Some(Obstacle::ChangedMeanwhile),
            (false, false) => None,
        };
        self.record.changes.push(Change { path: path.to_owned(), before, after, obstacle });
    }

    /// Something that is there and no change: a folder on the way, a file that was written and is as before.
    fn see(&mut self, path: &str, entry: Entry<'_>) {
        if self.look_for == LookFor::Changes || self.left == 0 {
            return;
        }
        if path.len() > self.path_bytes || self.stop.load(Ordering::Relaxed) {
            self.left = 0;
            return;
        }
        self.path_bytes -= path.len();
        let state = self.contents.state(entry);
        self.remember(path, Some(state), Some(stamp(entry.stat)));
    }

    fn see_root(&mut self, path: &str, folder: &OwnedFd) {
        if self.look_for == LookFor::Everything {
            self.seen.extend(seen_root(path, folder));
        }
    }

    fn remember(&mut self, path: &str, state: Option<FileState>, stamp: Option<FileStamp>) {
        if self.look_for == LookFor::Changes {
            return;
        }
        // Folders on the way count towards no bound of the changes, so there is one here.
        match self.seen.len() < look_bound::MET {
            true => self.seen.push(SeenEntry { path: path.to_owned(), state, stamp }),
            false => self.left = 0,
        }
    }

    /// Whether a file of the host changed after the sandbox was made.
    fn is_younger(&self, stat: &Stat) -> bool {
        let made = &self.layers.made;
        (stat.st_ctime, stat.st_ctime_nsec as i64) > (made.tv_sec, made.tv_nsec)
    }

    /// Whether a file is one that was copied in, and still as it was.
    fn is_as_given(&self, path: &str, stat: &Stat) -> bool {
        let modified = stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec as i64);
        let same = |given: &&GivenFile| given.bytes == stat.st_size as u64 && given.modified_ns == modified;
        self.given.iter().filter(|given| given.path == path).any(|given| same(&given))
    }

    /// Everything below a folder came, or went.
    fn all_below(&mut self, folder: &OwnedFd, path: &str, depth: usize, side: Side) -> io::Result<()> {
        for (name, stat) in entries(folder)? {
            if self.left == 0 {
                return Ok(());
            }
            let below = join(path, &name);
            let noted = self.record.changes.len();
            let mut counts = true;
            if is_folder(&stat) && depth < look_bound::DEEPEST {
                // What lives inside may still move things about; a folder that is gone has no changes.
                let Ok(inner) = open_folder(folder, &name) else { continue };
                self.all_below(&inner, &below, depth + 1, side)?;
                // A folder that only holds what we put there is none of the program's.
                counts = self.record.changes.len() > noted || is_empty(&inner);
            } else if is_folder(&stat) {
                self.record.truncated = true;
            } else {
                counts = !self.is_as_given(&below, &stat);
            }
            let entry = Some(Entry { folder, name: &name, stat: &stat });
            match side {
                Side::Deleted if !counts => {}
                Side::Added if !counts => self.see(&below, Entry { folder, name: &name, stat: &stat }),
                Side::Added => self.note(&below, None, entry),
                Side::Deleted => self.note(&below, entry, None),
            }
        }
        Ok(())
    }

    /// Compares a folder with what used to be at its path.
    fn compare(
        &mut self,
        upper: Option<&OwnedFd>,
        source: Option<&OwnedFd>,
        before: Option<&OwnedFd>,
        same: Same,
        path: &str,
        depth: usize,
    ) -> io::Result<()> {
        if depth >= look_bound::DEEPEST || self.left == 0 {
            self.record.truncated = true;
            return Ok(());
        }
        let mut seen = BTreeSet::new();
        if let Some(upper) = upper {
            for (name, stat) in entries(upper)? {
                let entry = Entry { folder: upper, name: &name, stat: &stat };
                self.compare_written(entry, source, before, (path, depth))?;
                seen.insert(name);
            }
        }
        if same == Same::Yes {
            return Ok(());
        }
        if let Some(source) = source {
            for (name, stat) in entries(source)? {
                if seen.insert(name.clone()) {
                    let entry = Entry { folder: source, name: &name, stat: &stat };
                    self.compare_shining(entry, before, (path, depth))?;
                }
            }
        }
        if let Some(before) = before {
            for (name, stat) in entries(before)? {
                if !seen.contains(&name) {
                    let entry = Entry { folder: before, name: &name, stat: &stat };
                    self.deleted(entry, &join(path, &name), depth)?;
                }
            }
        }
        Ok(())
    }

    /// An entry that the upper layer holds.
    fn compare_written(
        &mut self,
        entry: Entry<'_>,
        source: Option<&OwnedFd>,
        before: Option<&OwnedFd>,
        (path, depth): (&str, usize),
    ) -> io::Result<()> {
        let below = join(path, entry.name);
        let old_stat = before.and_then(|folder| look(folder, entry.name));
        let old = before.zip(old_stat.as_ref()).map(|(folder, stat)| Entry { folder, name: entry.name, stat });
        if is_whiteout(entry.stat) {
            return match old {
                Some(old) => self.deleted(old, &below, depth),
                None => {
                    self.remember(&below, None, None);
                    Ok(())
                }
            };
        }
        if !is_folder(entry.stat) {
            return self.compare_file(entry, old, &below, depth);
        }
        let Ok(inner) = open_folder(entry.folder, entry.name) else { return Ok(()) };
        let (source, same) = match self.layer_marks(&inner, source)? {
            Marks::None => (source.and_then(|folder| open_folder(folder, entry.name).ok()), Same::Yes),
            Marks::Opaque => (None, Same::No),
            Marks::Redirect(elsewhere) => (elsewhere, Same::No),
        };
        self.compare_folder(entry, (Some(&inner), source.as_ref(), same), old, &below, depth)
    }

    /// An entry that shines through from a lower folder which used to lie elsewhere.
    fn compare_shining(
        &mut self,
        entry: Entry<'_>,
        before: Option<&OwnedFd>,
        (path, depth): (&str, usize),
    ) -> io::Result<()> {
        let below = join(path, entry.name);
        let old_stat = before.and_then(|folder| look(folder, entry.name));
        let old = before.zip(old_stat.as_ref()).map(|(folder, stat)| Entry { folder, name: entry.name, stat });
        if !is_folder(entry.stat) {
            return self.compare_file(entry, old, &below, depth);
        }
        let Ok(inner) = open_folder(entry.folder, entry.name) else { return Ok(()) };
        self.compare_folder(entry, (None, Some(&inner), Same::No), old, &below, depth)
    }

    /// A folder, of which `upper` and `source` are what it shows, and `old` is what used to be there.
    fn compare_folder(
        &mut self,
        entry: Entry<'_>,
        (upper, source, same): (Option<&OwnedFd>, Option<&OwnedFd>, Same),
        old: Option<Entry<'_>>,
        path: &str,
        depth: usize,
    ) -> io::Result<()> {
        let noted = self.record.changes.len();
        let old_folder = old.filter(|old| is_folder(old.stat));
        let opened = old_folder.and_then(|old| open_folder(old.folder, old.name).ok());
        let same = if opened.is_some() && source.is_some() { same } else { Same::No };
        self.compare(upper, source, opened.as_ref(), same, path, depth + 1)?;
        match old_folder {
            Some(old_folder) if old_folder.stat.st_mode != entry.stat.st_mode => {
                self.note(path, Some(old_folder), Some(entry));
            }
            Some(_) => self.see(path, entry),
            // As above, a folder that only holds what we put there does not count.
            None => {
                let holds_nothing = [upper, source].into_iter().flatten().all(is_empty);
                if old.is_some() || holds_nothing || self.record.changes.len() > noted {
                    self.note(path, old, Some(entry));
                } else {
                    self.see(path, entry);
                }
            }
        }
        Ok(())
    }

    fn compare_file(&mut self, new: Entry<'_>, old: Option<Entry<'_>>, path: &str, depth: usize) -> io::Result<()> {
        let untouched = |copied: (i64, i64)| (new.stat.st_ctime, new.stat.st_ctime_nsec as i64) < copied;
        if self.is_as_given(path, new.stat) {
            self.see(path, new);
            return Ok(());
        }
        if old.is_some() && self.copied.is_some_and(untouched) {
            return Ok(());
        }
        match old {
            Some(folder) if is_folder(folder.stat) => {
                self.deleted_below(folder, path, depth)?;
                self.note(path, old, Some(new));
            }
            Some(file) if !self.differ(new, file) => self.see(path, new),
            _ => self.note(path, old, Some(new)),
        }
        Ok(())
    }

    /// Whether a file is really another than before: kind, mode, size or content. What cannot be read any more is.
    fn differ(&mut self, new: Entry<'_>, old: Entry<'_>) -> bool {
        if new.stat.st_mode != old.stat.st_mode || new.stat.st_size != old.stat.st_size {
            return true;
        }
        let bytes = new.stat.st_size as u64;
        match FileType::from_raw_mode(new.stat.st_mode) {
            FileType::RegularFile if bytes > self.compared => true,
            FileType::RegularFile => {
                self.compared -= bytes;
                let open = |entry: Entry<'_>| open_here(entry.folder, entry.name, OFlags::RDONLY | OFlags::NONBLOCK);
                match (open(new), open(old)) {
                    (Ok(new), Ok(old)) => differ_in_content(&new, &old).unwrap_or(true),
                    _ => true,
                }
            }
            FileType::Symlink => {
                let target = |entry: Entry<'_>| rustix::fs::readlinkat(entry.folder, entry.name, Vec::new()).ok();
                target(new) != target(old)
            }
            _ => false,
        }
    }

    fn deleted(&mut self, old: Entry<'_>, path: &str, depth: usize) -> io::Result<()> {
        self.deleted_below(old, path, depth)?;
        self.note(path, Some(old), None);
        Ok(())
    }

    /// What was in a folder is gone; a file has nothing in it.
    fn deleted_below(&mut self, old: Entry<'_>, path: &str, depth: usize) -> io::Result<()> {
        match open_folder(old.folder, old.name) {
            Ok(folder) if is_folder(old.stat) => self.all_below(&folder, path, depth + 1, Side::Deleted),
            _ => Ok(()),
        }
    }

    /// What overlayfs wrote on a folder of the upper layer.
    fn layer_marks(&self, folder: &OwnedFd, parent_source: Option<&OwnedFd>) -> io::Result<Marks> {
        if self.copied.is_some() {
            return Ok(Marks::None);
        }
        if let Some(redirect) = attribute(folder, self.layers.marks.redirect)? {
            let start = if redirect.starts_with(b"/") { self.root.as_ref() } else { parent_source };
            return Ok(Marks::Redirect(start.and_then(|start| open_bytes(start, &redirect))));
        }
        match attribute(folder, self.layers.marks.opaque)?.as_deref() {
            Some(b"y") => Ok(Marks::Opaque),
            _ => Ok(Marks::None),
        }
    }
}

enum Marks {
    None,
    Opaque,
    Redirect(Option<OwnedFd>),
}
