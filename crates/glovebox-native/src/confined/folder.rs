//! The folder that a sandbox without namespaces keeps its files in.
//!
//! It lies on the host, in a place of the launcher's user that nobody else can list or write, and is named by its launcher
//! and its sandbox. So whoever finds one whose launcher is dead knows what to end and what to remove.

use std::{
    fs, io,
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt, PermissionsExt, chown},
    },
    path::{Path, PathBuf},
};

use glovebox_core::{HOME_DIR, PROGRAM_DIR, SandboxId, WORKING_DIR, WORKSPACE_DIR};
use glovebox_proto::Places;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, StatVfsMountFlags};

use super::ids::CommandIds;
use crate::{
    owner::{RuntimeFolder, make_private},
    plan::Plan,
};

/// Folders below it: of the sandbox's own, and those that commands can write.
const OWN: [&str; 3] = ["workspace", "workspace/project_files", "home"];
const WRITTEN: [&str; 4] = ["workspace/agent_workspace", "workspace/outputs", "home/user", "tmp"];

/// A file whose time of change tells when the workspace had been copied.
pub(crate) const COPIED: &str = ".copied";

/// The folder of one sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: String,
    /// The host's folder that is the working directory, where it is used itself.
    workspace: Option<String>,
}

impl Folder {
    /// Makes it. When that fails, nothing of it is left.
    pub(crate) fn make(name: &str, runtime: &RuntimeFolder, plan: &Plan, ids: CommandIds) -> io::Result<Self> {
        let path = place(runtime, ids)?.join(name);
        let text = path.to_str().ok_or(io::ErrorKind::InvalidFilename)?.to_owned();
        let workspace = plan.workspace.as_ref().filter(|_| !plan.workspace_overlay).map(|mount| mount.source.clone());
        let folder = Folder { path: text, workspace };
        fs::create_dir(&path)?;
        let made = folder.fill(ids);
        if made.is_err() {
            remove(&path);
        }
        made.map(|()| folder)
    }

    fn fill(&self, ids: CommandIds) -> io::Result<()> {
        for name in OWN.iter().chain(&WRITTEN) {
            fs::create_dir(self.below(name))?;
        }
        // Others of the same host must not see into it; commands pass through what is not theirs.
        let owned = [""].iter().chain(&OWN).chain(&WRITTEN);
        for name in owned {
            let mode = if name.is_empty() { 0o700 } else { 0o755 };
            fs::set_permissions(self.below(name), fs::Permissions::from_mode(mode))?;
            chown(self.below(name), Some(ids.uid), Some(ids.gid))?;
        }
        Ok(())
    }

    /// A path below it.
    pub(crate) fn below(&self, name: &str) -> String {
        if name.is_empty() { self.path.clone() } else { format!("{}/{name}", self.path) }
    }

    /// Folders that commands can write.
    pub(crate) fn written(&self) -> Vec<String> {
        WRITTEN.iter().map(|name| self.below(name)).collect()
    }

    /// Opens it.
    pub(crate) fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::open(&self.path, flags, Mode::empty())?)
    }

    /// Where the folders inside are.
    pub(crate) fn pairs(&self) -> Vec<(String, String)> {
        let mut pairs = vec![
            (WORKSPACE_DIR.to_owned(), self.below("workspace")),
            (HOME_DIR.to_owned(), self.below("home/user")),
            ("/tmp".to_owned(), self.below("tmp")),
        ];
        pairs.extend(self.workspace.iter().map(|real| (WORKING_DIR.to_owned(), real.clone())));
        pairs
    }

    /// The same for the guest.
    pub(crate) fn places(&self) -> Places {
        Places::new(self.pairs()).with_own(PROGRAM_DIR)
    }

    /// Removes it with all that is in it.
    pub(crate) fn remove(&self) {
        remove(Path::new(&self.path));
    }
}

/// Places in which such folders may be: the host's folder for temporary files, unless nothing in it can be executed.
fn candidates(runtime: &RuntimeFolder) -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from(format!("/tmp/glovebox-{}", runtime.uid())), runtime.path()];
    places.dedup();
    places
}

/// The place for a new folder, which is made.
fn place(runtime: &RuntimeFolder, ids: CommandIds) -> io::Result<PathBuf> {
    let mut candidates = candidates(runtime);
    let executable = rustix::fs::statvfs("/tmp").is_ok_and(|stat| !stat.f_flag.contains(StatVfsMountFlags::NOEXEC));
    let chosen = if executable { candidates.swap_remove(0) } else { candidates.pop().unwrap_or_default() };
    let files = chosen.join("files");
    make_private(&chosen)?;
    make_private(&files)?;
    if ids.separate {
        // Commands under an id of their own must be able to get there, and to see nothing on the way.
        for folder in [&chosen, &files] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o711))?;
        }
    }
    fs::canonicalize(files)
}

/// A folder that was found.
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) owner: String,
    pub(crate) id: SandboxId,
    /// The id of its commands.
    pub(crate) uid: u32,
}

/// Every folder of this user's launchers, living and dead.
pub(crate) fn find(runtime: &RuntimeFolder) -> Vec<Found> {
    let mut found = Vec::new();
    for place in candidates(runtime) {
        for entry in fs::read_dir(place.join("files")).into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap_or_default();
            if let Some((owner, id)) = name.split_once('.')
                && let Ok(id) = id.parse()
                && let Ok(metadata) = entry.metadata()
            {
                found.push(Found { path: entry.path(), owner: owner.to_owned(), id, uid: metadata.uid() });
            }
        }
    }
    found
}

/// So deep a tree is removed as it is; what is deeper is moved up first, so that no depth needs more descriptors.
const DEEPEST: usize = 32;

/// Removes a folder with all that is in it, however deep and with whatever modes. No link is followed. Says whether
/// nothing is left.
pub(crate) fn remove(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Ok(top) = rustix::fs::open(path, flags, Mode::empty()) {
        let mut moved = 0;
        // Each round leaves what was too deep at the top; there is an end, because every round removes some.
        while empty(&top, &top, 0, &mut moved) {}
    }
    fs::remove_dir(path).is_ok()
}

/// Empties a folder. Says whether something was moved to the top that must be looked at again.
fn empty(folder: &OwnedFd, top: &OwnedFd, depth: usize, moved: &mut u64) -> bool {
    let mut again = false;
    let Ok(entries) = Dir::read_from(folder) else { return false };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if rustix::fs::unlinkat(folder, name, AtFlags::empty()).is_ok() {
            continue;
        }
        if depth >= DEEPEST {
            *moved += 1;
            again |= rustix::fs::renameat(folder, name, top, format!(".deep-{moved}")).is_ok();
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(folder, name, flags, Mode::empty());
        let inner = open().or_else(|error| {
            let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                return Err(error);
            }
            // All processes of the sandbox have ended, so nobody puts a link in its place meanwhile.
            rustix::fs::chmodat(folder, name, Mode::RWXU, AtFlags::empty())?;
            open()
        });
        if let Ok(inner) = inner {
            // A folder whose entries may not be removed belongs to us all the same.
            let _ = rustix::fs::fchmod(&inner, Mode::RWXU);
            again |= empty(&inner, top, depth + 1, moved);
            let _ = rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR);
        }
    }
    again
}

/// Leaves the stamp by which copied files that nobody touched are told from others.
pub(crate) fn stamp(folder: &Folder) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, folder.below(COPIED), flags, Mode::RUSR)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_removed_however_deep_it_is_and_whatever_its_modes_are_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, outside) = (dir.path().join("victim"), dir.path().join("outside"));
        fs::create_dir_all(&victim).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        std::os::unix::fs::symlink(&outside, victim.join("link")).unwrap();
        fs::create_dir_all(victim.join("closed/inner")).unwrap();
        fs::set_permissions(victim.join("closed/inner"), fs::Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(victim.join("closed"), fs::Permissions::from_mode(0o500)).unwrap();
        let mut at = rustix::fs::open(&victim, OFlags::PATH, Mode::empty()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&at, "deep", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, "deep", OFlags::PATH, Mode::empty()).unwrap();
        }
        assert!(remove(&victim));
        assert!(!victim.exists() && outside.join("kept").exists());
    }
}
