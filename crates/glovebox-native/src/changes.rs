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
//! This runs on the host, as root, over names that hostile code chose. Every step is one name below an open folder,
//! no link is ever followed, nothing but folders and regular files is opened, and the number of entries is bounded.

mod folder;

use std::{
    collections::BTreeSet,
    ffi::{CStr, CString},
    io,
    os::fd::{BorrowedFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
};

use glovebox_core::{ChangeSet, Error, ErrorCode, GivenFile, Result as CoreResult};
use rustix::fs::{FileType, Mode, OFlags, Stat};

use crate::{plan::Plan, standing::Standing};

use folder::{
    attribute, differ_in_content, entries, is_empty, is_folder, is_whiteout, join, look, open_bytes, open_folder,
    open_here, open_path,
};

const MOST: usize = 100_000;
/// Bytes of all paths together.
const MOST_PATH_BYTES: usize = 16 << 20;
/// Bytes that are read to tell whether files of the same size differ; beyond it, a file that was written counts as modified.
const MOST_COMPARED: u64 = 256 << 20;
/// Each level holds up to three descriptors open, so depth is bounded by what a process may open.
const DEEPEST: usize = 64;

/// What is needed to tell the changes of a sandbox.
#[derive(Debug)]
pub(crate) struct Layers {
    working: Working,
    marks: MarkNames,
    /// Places of mounts below `/workspace`: they were made by us, and what is in them belongs to others.
    mounts: BTreeSet<String>,
}

/// The attributes in which overlayfs keeps what it knows of a folder. Only one kind counts: the other could have been
/// written by a program inside.
#[derive(Clone, Copy, Debug)]
struct MarkNames {
    opaque: &'static str,
    redirect: &'static str,
}

impl MarkNames {
    fn of_caller() -> Self {
        match Standing::is_root() {
            true => MarkNames { opaque: "trusted.overlay.opaque", redirect: "trusted.overlay.redirect" },
            false => MarkNames { opaque: "user.overlay.opaque", redirect: "user.overlay.redirect" },
        }
    }
}

/// Which layers the working directory has.
#[derive(Debug)]
enum Working {
    /// It began empty.
    Fresh,
    /// It is an overlay over this folder of the host.
    Overlay(OwnedFd),
    /// It is a folder of the host itself: nothing stays inside.
    Direct,
}

impl Layers {
    /// The layers of a planned sandbox.
    pub(crate) fn of(plan: &Plan) -> CoreResult<Self> {
        let mounts = plan.mounts.iter().filter_map(|mount| mount.target.strip_prefix("/workspace/"));
        Ok(Layers {
            working: Working::of(plan)?,
            marks: MarkNames::of_caller(),
            mounts: mounts.map(str::to_owned).collect(),
        })
    }
}

impl Working {
    fn of(plan: &Plan) -> CoreResult<Self> {
        let Some(workspace) = &plan.workspace else { return Ok(Working::Fresh) };
        if !plan.workspace_overlay {
            return Ok(Working::Direct);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let lower = rustix::fs::open(&workspace.source, flags, Mode::empty()).map_err(|error| {
            Error::new(ErrorCode::FileUnreadable, "the workspace cannot be read").because(io::Error::from(error))
        })?;
        Ok(Working::Overlay(lower))
    }
}

/// Collects what changed below `/workspace`.
pub(crate) fn collect(
    store: BorrowedFd<'_>,
    layers: &Layers,
    given: &[GivenFile],
    stop: &AtomicBool,
) -> io::Result<ChangeSet> {
    let mut walk = Walk {
        root: None,
        marks: layers.marks,
        mounts: &layers.mounts,
        given,
        stop,
        changes: ChangeSet::default(),
        left: MOST,
        path_bytes: MOST_PATH_BYTES,
        compared: MOST_COMPARED,
    };
    // Root inside can move even these folders away; then there is nothing in them.
    if let Ok(outputs) = open_path(store, "workspace/outputs") {
        walk.added_below(&outputs, "outputs", 0)?;
    }
    match &layers.working {
        Working::Fresh => {
            if let Ok(folder) = open_path(store, "workspace/agent_workspace") {
                walk.added_below(&folder, "agent_workspace", 0)?;
            }
        }
        Working::Overlay(lower) => {
            let upper = open_path(store, ".glovebox/upper")?;
            walk.root = Some(lower.try_clone()?);
            walk.compare(Some(&upper), Some(lower), Some(lower), Same::Yes, "agent_workspace", 0)?;
        }
        Working::Direct => {}
    }
    let ChangeSet { added, modified, deleted, truncated } = &mut walk.changes;
    for list in [added, modified, deleted] {
        list.sort_unstable();
        list.dedup();
    }
    *truncated |= walk.left == 0;
    Ok(walk.changes)
}

/// Whether nothing was written below `/workspace` at all: the usual case of a short run, told by three looks.
pub(crate) fn is_untouched(store: BorrowedFd<'_>, layers: &Layers) -> bool {
    let empty = |path: &str| open_path(store, path).is_ok_and(|folder| is_empty(&folder));
    let working = match &layers.working {
        Working::Fresh => empty("workspace/agent_workspace"),
        Working::Overlay(_) => empty(".glovebox/upper"),
        Working::Direct => true,
    };
    working && empty("workspace/outputs")
}

/// Whether the lower folder that shines through is the one that used to be there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Same {
    Yes,
    No,
}

struct Walk<'a> {
    marks: MarkNames,
    mounts: &'a BTreeSet<String>,
    given: &'a [GivenFile],
    /// The root of the lower layer, which absolute redirects count from.
    root: Option<OwnedFd>,
    /// Set when nobody wants the result any more.
    stop: &'a AtomicBool,
    changes: ChangeSet,
    left: usize,
    path_bytes: usize,
    compared: u64,
}

enum Kind {
    Added,
    Modified,
    Deleted,
}

impl Walk<'_> {
    fn note(&mut self, kind: Kind, path: &str) {
        if self.left == 0 || self.mounts.contains(path) {
            return;
        }
        if path.len() > self.path_bytes || self.stop.load(Ordering::Relaxed) {
            self.left = 0;
            return;
        }
        self.path_bytes -= path.len();
        self.left -= 1;
        let list = match kind {
            Kind::Added => &mut self.changes.added,
            Kind::Modified => &mut self.changes.modified,
            Kind::Deleted => &mut self.changes.deleted,
        };
        list.push(path.to_owned());
    }

    /// Whether a file is one that was copied in, and still as it was.
    fn is_as_given(&self, path: &str, stat: &Stat) -> bool {
        let modified = stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec as i64);
        let same = |given: &&GivenFile| given.bytes == stat.st_size as u64 && given.modified_ns == modified;
        self.given.iter().filter(|given| given.path == path).any(|given| same(&given))
    }

    /// Everything below a folder is new.
    fn added_below(&mut self, folder: &OwnedFd, path: &str, depth: usize) -> io::Result<()> {
        self.all_below(folder, path, depth, || Kind::Added)
    }

    fn all_below(&mut self, folder: &OwnedFd, path: &str, depth: usize, kind: fn() -> Kind) -> io::Result<()> {
        for (name, stat) in entries(folder)? {
            if self.left == 0 {
                return Ok(());
            }
            let below = join(path, &name);
            match (is_folder(&stat), depth < DEEPEST) {
                (true, true) => {
                    // What lives inside may still move things about; a folder that is gone has no changes.
                    let Ok(inner) = open_folder(folder, &name) else { continue };
                    if is_empty(&inner) {
                        self.note(kind(), &below);
                    } else {
                        self.all_below(&inner, &below, depth + 1, kind)?;
                    }
                }
                (true, false) => {
                    self.changes.truncated = true;
                    self.note(kind(), &below);
                }
                _ if self.is_as_given(&below, &stat) => {}
                _ => self.note(kind(), &below),
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
        if depth >= DEEPEST || self.left == 0 {
            self.changes.truncated = true;
            return Ok(());
        }
        let written = upper.map(entries).transpose()?.unwrap_or_default();
        let mut seen = BTreeSet::new();
        for (name, stat) in &written {
            seen.insert(name.clone());
            self.compare_entry(upper, source, before, (name, stat), (path, depth))?;
        }
        if same == Same::Yes {
            return Ok(());
        }
        for (name, stat) in source.map(entries).transpose()?.unwrap_or_default() {
            if seen.insert(name.clone()) {
                self.compare_shining(source, before, (&name, &stat), (path, depth))?;
            }
        }
        for (name, stat) in before.map(entries).transpose()?.unwrap_or_default() {
            if !seen.contains(&name)
                && let Some(before) = before
            {
                self.deleted(before, &name, &stat, &join(path, &name), depth)?;
            }
        }
        Ok(())
    }

    /// An entry that the upper layer holds.
    fn compare_entry(
        &mut self,
        upper: Option<&OwnedFd>,
        source: Option<&OwnedFd>,
        before: Option<&OwnedFd>,
        (name, stat): (&CString, &Stat),
        (path, depth): (&str, usize),
    ) -> io::Result<()> {
        let Some(upper) = upper else { return Ok(()) };
        let below = join(path, name);
        let old = before.and_then(|folder| look(folder, name));
        if is_whiteout(stat) {
            return match (before, old) {
                (Some(before), Some(old)) => self.deleted(before, name, &old, &below, depth),
                _ => Ok(()),
            };
        }
        if !is_folder(stat) {
            return self.compare_file(upper, name, stat, before, &below, depth);
        }
        let Ok(inner) = open_folder(upper, name) else { return Ok(()) };
        let (source, same) = match self.layer_marks(&inner, source)? {
            Marks::None => (source.and_then(|folder| open_folder(folder, name).ok()), Same::Yes),
            Marks::Opaque => (None, Same::No),
            Marks::Redirect(elsewhere) => (elsewhere, Same::No),
        };
        let old_folder = before.filter(|_| old.is_some_and(|old| is_folder(&old)));
        let old_folder = old_folder.and_then(|folder| open_folder(folder, name).ok());
        if old_folder.is_none() {
            self.replaced(before, name, old.as_ref(), &below, depth)?;
        }
        let same = if old_folder.is_some() && source.is_some() { same } else { Same::No };
        if old_folder.is_none() && source.is_none() && is_empty(&inner) {
            self.note(Kind::Added, &below);
        }
        self.compare(Some(&inner), source.as_ref(), old_folder.as_ref(), same, &below, depth + 1)
    }

    /// An entry that shines through from a lower folder which used to lie elsewhere.
    fn compare_shining(
        &mut self,
        source: Option<&OwnedFd>,
        before: Option<&OwnedFd>,
        (name, stat): (&CString, &Stat),
        (path, depth): (&str, usize),
    ) -> io::Result<()> {
        let Some(source) = source else { return Ok(()) };
        let below = join(path, name);
        if !is_folder(stat) {
            return self.compare_file(source, name, stat, before, &below, depth);
        }
        let old = before.and_then(|folder| look(folder, name));
        let Ok(inner) = open_folder(source, name) else { return Ok(()) };
        let old_folder = match (before, &old) {
            (Some(folder), Some(old)) if is_folder(old) => open_folder(folder, name).ok(),
            _ => None,
        };
        if old_folder.is_none() {
            self.replaced(before, name, old.as_ref(), &below, depth)?;
            if is_empty(&inner) {
                self.note(Kind::Added, &below);
            }
        }
        self.compare(None, Some(&inner), old_folder.as_ref(), Same::No, &below, depth + 1)
    }

    fn compare_file(
        &mut self,
        folder: &OwnedFd,
        name: &CStr,
        stat: &Stat,
        before: Option<&OwnedFd>,
        path: &str,
        depth: usize,
    ) -> io::Result<()> {
        if self.is_as_given(path, stat) {
            return Ok(());
        }
        let old = before.and_then(|before| Some((before, look(before, name)?)));
        match old {
            None => self.note(Kind::Added, path),
            Some((before, old)) if is_folder(&old) => {
                self.deleted(before, name, &old, path, depth)?;
                self.note(Kind::Added, path);
            }
            Some((before, old)) => {
                if self.differs(folder, stat, before, &old, name) {
                    self.note(Kind::Modified, path);
                }
            }
        }
        Ok(())
    }

    /// Whether a file is really another than before: kind, mode, size or content. What cannot be read any more is.
    fn differs(&mut self, folder: &OwnedFd, stat: &Stat, before: &OwnedFd, old: &Stat, name: &CStr) -> bool {
        if stat.st_mode != old.st_mode || stat.st_size != old.st_size {
            return true;
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if stat.st_size as u64 > self.compared => true,
            FileType::RegularFile => {
                self.compared -= stat.st_size as u64;
                let open = |folder| open_here(folder, name, OFlags::RDONLY | OFlags::NONBLOCK);
                match (open(folder), open(before)) {
                    (Ok(new), Ok(old)) => differ_in_content(&new, &old).unwrap_or(true),
                    _ => true,
                }
            }
            FileType::Symlink => {
                let target = |folder: &OwnedFd| rustix::fs::readlinkat(folder, name, Vec::new()).ok();
                target(folder) != target(before)
            }
            _ => false,
        }
    }

    /// A file that was in the way of a folder is gone.
    fn replaced(
        &mut self,
        before: Option<&OwnedFd>,
        name: &CStr,
        old: Option<&Stat>,
        path: &str,
        depth: usize,
    ) -> io::Result<()> {
        match (before, old) {
            (Some(before), Some(old)) => self.deleted(before, name, old, path, depth),
            _ => Ok(()),
        }
    }

    fn deleted(&mut self, before: &OwnedFd, name: &CStr, old: &Stat, path: &str, depth: usize) -> io::Result<()> {
        if !is_folder(old) {
            self.note(Kind::Deleted, path);
            return Ok(());
        }
        let Ok(folder) = open_folder(before, name) else { return Ok(()) };
        if is_empty(&folder) {
            self.note(Kind::Deleted, path);
            return Ok(());
        }
        self.all_below(&folder, path, depth + 1, || Kind::Deleted)
    }

    /// What overlayfs wrote on a folder of the upper layer.
    fn layer_marks(&self, folder: &OwnedFd, parent_source: Option<&OwnedFd>) -> io::Result<Marks> {
        if let Some(redirect) = attribute(folder, self.marks.redirect)? {
            let start = if redirect.starts_with(b"/") { self.root.as_ref() } else { parent_source };
            return Ok(Marks::Redirect(start.and_then(|start| open_bytes(start, &redirect))));
        }
        match attribute(folder, self.marks.opaque)?.as_deref() {
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
