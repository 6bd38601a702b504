//! From a survey to what changed.
//!
//! Theory of operation. In a folder that began empty everything is new. A workspace that was copied in is compared by two
//! questions. Whether something was done to a file is told by the survey that was taken right after the copying: the kernel's
//! marks are the same, or they are not. What was there before is told by the folder of the host, as it is when a
//! workspace is shown in place of copied. So a file of the host that changed meanwhile is marked, and one that nobody
//! inside touched is no change, whatever became of it on the host.

use std::{
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
};

use glovebox_core::{
    Change, ChangeRecord, FileKind, FileStamp, FileState, GivenFile, LookFor, Obstacle, Result, SeenEntry,
    WorkspaceLook, look_bound,
};
use glovebox_proto::file::EntryKind;
use rustix::fs::FileType;

use super::{
    contents::{Contents, Inside, changed_ns, lossy},
    host::{self, HostEntry},
    survey::{Known, Node},
};

/// A look that is under way.
pub(super) struct Walk<'a> {
    pub(super) look_for: LookFor,
    pub(super) given: &'a [GivenFile],
    pub(super) contents: Contents<'a>,
    /// Set when nobody wants the result any more.
    pub(super) stop: &'a AtomicBool,
    /// The survey is not all that is there, so what is missing in it may be there.
    pub(super) truncated: bool,
    /// When the workspace was copied, in nanoseconds since 1970.
    pub(super) copied_at: i128,
    pub(super) found: Found,
}

/// What was found so far.
pub(super) struct Found {
    record: ChangeRecord,
    seen: Vec<SeenEntry>,
    left: usize,
    path_bytes: usize,
    compared: u64,
}

impl Default for Found {
    fn default() -> Self {
        Found {
            record: ChangeRecord::default(),
            seen: Vec::new(),
            left: look_bound::CHANGES,
            path_bytes: look_bound::PATH_BYTES,
            compared: look_bound::COMPARED,
        }
    }
}

impl Walk<'_> {
    /// What was found.
    pub(super) fn finish(mut self) -> WorkspaceLook {
        self.found.record.truncated |= self.found.left == 0 || self.truncated;
        self.found.record.sort();
        WorkspaceLook { changes: self.found.record, seen: self.found.seen, workspace_gone: false }
    }

    /// One of the folders of `/workspace` itself.
    pub(super) fn see_root(&mut self, name: &[u8], root: &Node) {
        if self.look_for == LookFor::Everything {
            let state = Some(FileState { mode: root.known.mode, kind: FileKind::Directory });
            self.found.seen.push(SeenEntry { path: lossy(name), state, stamp: Some(root.known.stamp) });
        }
    }

    /// Everything below a folder is new.
    pub(super) fn added_below(&mut self, folder: &Node, path: &[u8]) -> Result<()> {
        self.found.record.truncated |= folder.known.unread;
        for (name, node) in folder.below.iter().filter(|(_, node)| !node.known.mounted) {
            if self.found.left == 0 {
                return Ok(());
            }
            let below = join(path, name);
            let noted = self.found.record.changes.len();
            let counts = match node.is_folder() {
                true => {
                    self.added_below(node, &below)?;
                    // A folder that only holds what we put there is none of the program's.
                    self.found.record.changes.len() > noted || node.below.is_empty()
                }
                false => !self.is_as_given(&below, &node.known),
            };
            let inside = Inside { known: &node.known, path: &below, mode: node.known.mode };
            if counts { self.note(&below, None, Some(inside))? } else { self.see(inside)? }
        }
        Ok(())
    }

    /// Compares a folder with what was copied into it, and with where that came from.
    pub(super) fn compare(
        &mut self,
        now: &Node,
        copied: Option<&Node>,
        host: Option<&OwnedFd>,
        path: &[u8],
    ) -> Result<()> {
        if self.found.left == 0 || now.known.unread {
            self.found.record.truncated = true;
            return Ok(());
        }
        for (name, node) in now.below.iter().filter(|(_, node)| !node.known.mounted) {
            let old = copied.and_then(|folder| folder.below.get(name));
            let stat = host.and_then(|folder| host::look(folder, name));
            let before = host.zip(stat.as_ref()).map(|(folder, stat)| HostEntry { folder, name, stat });
            let (below, old) = (join(path, name), old.map(|old| old as &Node));
            match node.is_folder() {
                true => self.compare_folder(node, old, before, &below)?,
                false => self.compare_file(node, old, before, &below)?,
            }
        }
        if self.truncated {
            return Ok(());
        }
        for (name, _) in copied.iter().flat_map(|folder| &folder.below).filter(|(_, old)| !old.known.mounted) {
            if !now.below.contains_key(name) {
                let stat = host.and_then(|folder| host::look(folder, name));
                match host.zip(stat.as_ref()) {
                    Some((folder, stat)) => self.deleted(HostEntry { folder, name, stat }, &join(path, name), 0)?,
                    None => self.remember(&join(path, name), None, None),
                }
            }
        }
        Ok(())
    }

    fn compare_folder(
        &mut self,
        node: &Node,
        old: Option<&Node>,
        before: Option<HostEntry<'_>>,
        path: &[u8],
    ) -> Result<()> {
        let (noted, met) = (self.found.record.changes.len(), self.found.seen.len());
        let old_folder = old.filter(|old| old.is_folder());
        let host_folder = before.filter(HostEntry::is_folder);
        let opened = host_folder.and_then(|folder| folder.open_folder());
        self.compare(node, old_folder, opened.as_ref(), path)?;
        let inside = Inside { known: &node.known, path, mode: told_mode(node, old, before) };
        let holds_changes = self.found.record.changes.len() > noted;
        let is_change = match (host_folder, old_folder) {
            (Some(folder), _) => folder.mode() != inside.mode,
            // It is gone from the host, and was not made here.
            (None, Some(_)) => holds_changes,
            // A folder that only holds what we put there is none of the program's.
            (None, None) => before.is_some() || holds_changes || node.below.is_empty(),
        };
        if is_change {
            return self.note(path, before, Some(inside));
        }
        let is_touched = old.is_none_or(|old| !node.known.is_as(&old.known));
        if is_touched || self.found.seen.len() > met { self.see(inside) } else { Ok(()) }
    }

    fn compare_file(
        &mut self,
        node: &Node,
        old: Option<&Node>,
        before: Option<HostEntry<'_>>,
        path: &[u8],
    ) -> Result<()> {
        if old.is_some_and(|old| node.known.is_as(&old.known)) {
            return Ok(());
        }
        let inside = Inside { known: &node.known, path, mode: told_mode(node, old, before) };
        if self.is_as_given(path, &node.known) {
            return self.see(inside);
        }
        match before {
            Some(folder) if folder.is_folder() => {
                self.deleted_below(folder, path, 0)?;
                self.note(path, before, Some(inside))
            }
            Some(file) if !self.differ(inside, file)? => self.see(inside),
            _ => self.note(path, before, Some(inside)),
        }
    }

    /// Whether a file is really another than on the host: kind, mode, size or content. What cannot be read any more is.
    fn differ(&mut self, inside: Inside<'_>, host: HostEntry<'_>) -> Result<bool> {
        let bytes = inside.known.stamp.bytes;
        if kind_of(host.kind()) != inside.known.kind || host.mode() != inside.mode {
            return Ok(true);
        }
        match inside.known.kind {
            EntryKind::File if bytes != host.stat.st_size as u64 || bytes > self.found.compared => Ok(true),
            EntryKind::File => {
                self.found.compared -= bytes;
                self.contents.differ(inside, host)
            }
            EntryKind::Symlink => Ok(host.target().is_none_or(|target| target != inside.known.target)),
            EntryKind::Directory | EntryKind::Other => Ok(false),
        }
    }

    fn deleted(&mut self, old: HostEntry<'_>, path: &[u8], depth: usize) -> Result<()> {
        self.deleted_below(old, path, depth)?;
        self.note(path, Some(old), None)
    }

    /// What was in a folder of the host is gone; a file has nothing in it.
    fn deleted_below(&mut self, old: HostEntry<'_>, path: &[u8], depth: usize) -> Result<()> {
        if !old.is_folder() {
            return Ok(());
        }
        if depth >= look_bound::DEEPEST {
            self.found.record.truncated = true;
            return Ok(());
        }
        let Some(folder) = old.open_folder() else { return Ok(()) };
        for (name, stat) in host::entries(&folder) {
            if self.found.left == 0 {
                return Ok(());
            }
            self.deleted(HostEntry { folder: &folder, name: &name, stat: &stat }, &join(path, &name), depth + 1)?;
        }
        Ok(())
    }

    fn note(&mut self, path: &[u8], before: Option<HostEntry<'_>>, after: Option<Inside<'_>>) -> Result<()> {
        let path = lossy(path);
        if self.found.left == 0 || !self.has_room(&path) {
            return Ok(());
        }
        self.found.left -= 1;
        let meanwhile = before.is_some_and(|entry| !entry.is_folder() && changed_ns(entry.stat) > self.copied_at);
        let before = before.map(|entry| self.contents.of_host(entry)).transpose()?;
        let stamp = after.map(|inside| inside.known.stamp);
        let after = after.map(|inside| self.contents.of_inside(inside)).transpose()?;
        self.push_seen(&path, after.clone(), stamp);
        // This character stands for bytes that are no text. A name that really holds it is rare enough.
        let odd = |text: &str| text.contains(char::REPLACEMENT_CHARACTER);
        let odd_target = after.iter().any(|state| matches!(&state.kind, FileKind::Symlink { target } if odd(target)));
        let obstacle = match (odd(&path) || odd_target, meanwhile) {
            (true, _) => Some(Obstacle::NameNotUtf8),
            (false, true) => Some(Obstacle::ChangedMeanwhile),
            (false, false) => None,
        };
        self.found.record.changes.push(Change { path, before, after, obstacle });
        Ok(())
    }

    /// Something that is there and no change: a folder on the way, a file that was written and is as before.
    fn see(&mut self, inside: Inside<'_>) -> Result<()> {
        let path = lossy(inside.path);
        if self.look_for == LookFor::Changes || self.found.left == 0 || !self.has_room(&path) {
            return Ok(());
        }
        let state = self.contents.of_inside(inside)?;
        self.push_seen(&path, Some(state), Some(inside.known.stamp));
        Ok(())
    }

    /// Something that is gone, from the host too.
    fn remember(&mut self, path: &[u8], state: Option<FileState>, stamp: Option<FileStamp>) {
        self.push_seen(&lossy(path), state, stamp);
    }

    /// Takes room for a path. Where there is none, or nobody waits any more, the look is over.
    fn has_room(&mut self, path: &str) -> bool {
        if path.len() > self.found.path_bytes || self.stop.load(Ordering::Relaxed) {
            self.found.left = 0;
            return false;
        }
        self.found.path_bytes -= path.len();
        true
    }

    fn push_seen(&mut self, path: &str, state: Option<FileState>, stamp: Option<FileStamp>) {
        if self.look_for == LookFor::Changes {
            return;
        }
        // Folders on the way count towards no bound of the changes, so there is one here.
        match self.found.seen.len() < look_bound::MET {
            true => self.found.seen.push(SeenEntry { path: path.to_owned(), state, stamp }),
            false => self.found.left = 0,
        }
    }

    /// Whether a file is one that was copied in for a run, and still as it was.
    fn is_as_given(&self, path: &[u8], known: &Known) -> bool {
        self.given.iter().any(|given| {
            given.path.as_bytes() == path && given.bytes == known.stamp.bytes && given.modified_ns == known.modified_ns
        })
    }
}

/// The mode of something inside. An archive carries fewer bits than a file has, so a mode that nobody changed since the copying
/// is still that of the host.
fn told_mode(node: &Node, old: Option<&Node>, before: Option<HostEntry<'_>>) -> u32 {
    match (old, before) {
        (Some(old), Some(before))
            if (old.known.kind, old.known.mode) == (node.known.kind, node.known.mode)
                && kind_of(before.kind()) == node.known.kind =>
        {
            before.mode()
        }
        _ => node.known.mode,
    }
}

fn kind_of(kind: FileType) -> EntryKind {
    match kind {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        _ => EntryKind::Other,
    }
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    [path, b"/", name].concat()
}
