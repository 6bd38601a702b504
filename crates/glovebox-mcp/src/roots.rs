//! Folders of the host that a client may copy from and to. Nothing below them is reached through a link.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Component, Path, PathBuf},
};

use glovebox_core::{Error, ErrorCode, Result, printable};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, openat2},
    io::Errno,
};

/// How many names are tried for a file that is being written, where the file system has no nameless ones.
const TRIES: u32 = 16;

/// The folders that the user named.
#[derive(Debug, Default)]
pub struct Roots(Vec<Root>);

#[derive(Debug)]
struct Root {
    /// As the user wrote it, made absolute.
    typed: PathBuf,
    /// Without links.
    path: PathBuf,
    folder: OwnedFd,
}

/// A place below a root.
pub(crate) struct HostPlace<'a> {
    root: &'a Root,
    below: PathBuf,
}

/// What stands at a place.
pub(crate) enum HostFile {
    File(File),
    Folder(OwnedFd),
}

impl Roots {
    /// Opens the folders.
    pub(crate) fn open(folders: &[PathBuf]) -> Result<Roots> {
        let open = |typed: &PathBuf| {
            let failed = |error: io::Error| {
                let code = if error.kind() == io::ErrorKind::NotFound {
                    ErrorCode::FileNotFound
                } else {
                    ErrorCode::NotADirectory
                };
                Error::new(code, format!("the root {} cannot be used", typed.display())).because(error)
            };
            let path = typed.canonicalize().map_err(failed)?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let folder = rustix::fs::open(&path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
            Ok(Root { typed: std::path::absolute(typed).map_err(failed)?, path, folder })
        };
        folders.iter().map(open).collect::<Result<_>>().map(Roots)
    }

    /// Whether there is any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The folders, as they are told to a model.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.iter().map(|root| printable(&root.path.display().to_string())).collect()
    }

    /// The place of a path: absolute, or relative to the first root.
    pub(crate) fn find(&self, text: &str) -> Result<HostPlace<'_>> {
        let shown = printable(&crate::text::cut(text, 200));
        let refused = |why: &str, hint: String| {
            Error::new(ErrorCode::PermissionDenied, format!("{shown} cannot be copied from or to: {why}")).hint(hint)
        };
        let Some(first) = self.0.first() else {
            let hint = "the user can name folders when starting: glovebox mcp --root DIR".to_owned();
            return Err(refused("no folder of the host was opened for that", hint));
        };
        let path = Path::new(text);
        if text.contains('\0') || path.components().any(|part| part == Component::ParentDir) {
            return Err(refused("it holds '..' or a NUL byte", format!("below {}", self.names().join(", "))));
        }
        if path.is_relative() {
            return Ok(HostPlace { root: first, below: clean(path) });
        }
        let within = |root: &'_ Root| {
            [&root.path, &root.typed].into_iter().find_map(|folder| path.strip_prefix(folder).ok()).map(clean)
        };
        // Of two roots one may lie in the other; the inner one has more rights to the path.
        let found = self.0.iter().filter_map(|root| Some((root, within(root)?)));
        match found.min_by_key(|(_, below)| below.components().count()) {
            Some((root, below)) => Ok(HostPlace { root, below }),
            None => Err(refused(
                "it is not below a folder that was opened",
                format!("allowed: {}", self.names().join(", ")),
            )),
        }
    }
}

/// A relative path without needless parts.
fn clean(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

impl HostPlace<'_> {
    /// The path, as it is told.
    pub(crate) fn shown(&self) -> String {
        printable(&self.path().display().to_string())
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.root.path.join(&self.below)
    }

    /// The last name of the path; none for a root itself.
    pub(crate) fn name(&self) -> Option<&[u8]> {
        Some(self.below.file_name()?.as_encoded_bytes())
    }

    /// Opens what stands here, for reading.
    pub(crate) fn read(&self) -> Result<HostFile> {
        let failed = |error: io::Error| self.failed("read", error);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let file: OwnedFd = open_below(&self.root.folder, &self.below, flags).map_err(failed)?;
        let stat = rustix::fs::fstat(&file).map_err(|error| failed(error.into()))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(HostFile::File(file.into())),
            FileType::Directory => Ok(HostFile::Folder(file)),
            _ => Err(Error::new(
                ErrorCode::NotAnOrdinaryFile,
                format!("{} is neither a file nor a folder", self.shown()),
            )),
        }
    }

    /// Makes a folder here, and those on the way. One that is there already is fine.
    pub(crate) fn make_folder(&self) -> Result<OwnedFd> {
        self.make(&self.below)
    }

    fn make(&self, below: &Path) -> Result<OwnedFd> {
        let failed = |error: io::Error| self.failed("made", error);
        let mut folder = self.root.folder.try_clone().map_err(failed)?;
        for part in below.components() {
            match rustix::fs::mkdirat(&folder, part.as_os_str(), Mode::from_raw_mode(0o755)) {
                Ok(()) => give(&folder, part.as_os_str(), &folder).map_err(failed)?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(failed(error.into())),
            }
            folder =
                open_below(&folder, Path::new(part.as_os_str()), OFlags::PATH | OFlags::DIRECTORY).map_err(failed)?;
        }
        // For reading, and not only as a place.
        open_below(&folder, Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed)
    }

    /// Begins to write a file here, which appears when it is whole.
    pub(crate) fn write(&self, executable: bool) -> Result<Writing<'_>> {
        let Some(name) = self.below.file_name() else {
            return Err(Error::new(ErrorCode::IsADirectory, format!("{} is a folder", self.shown())));
        };
        let folder = self.make(self.below.parent().unwrap_or(Path::new("")))?;
        let mode = Mode::from_raw_mode(if executable { 0o755 } else { 0o644 });
        let nameless = rustix::fs::openat(&folder, ".", OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, mode);
        let (file, unfinished) = match nameless {
            Ok(file) => (file, None),
            // Not every file system has nameless files.
            Err(_) => {
                let name = temporary_name();
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&folder, &name, flags, mode);
                (file.map_err(|error| self.failed("written", error.into()))?, Some(name))
            }
        };
        give_file(&file, &folder).map_err(|error| self.failed("written", error))?;
        Ok(Writing { place: self, folder, file: file.into(), unfinished, name: name.to_owned() })
    }

    fn failed(&self, act: &str, error: io::Error) -> Error {
        let cannot = |code, why: &str| Error::new(code, format!("{} cannot be {act}: {why}", self.shown()));
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => cannot(ErrorCode::FileNotFound, "it is not there"),
            Some(Errno::LOOP) => {
                cannot(ErrorCode::PermissionDenied, "a link is in the way, and links are not followed")
            }
            Some(Errno::NOTDIR) => cannot(ErrorCode::NotADirectory, "a part of its path is no folder, or a link"),
            Some(Errno::ACCESS | Errno::PERM) => cannot(ErrorCode::PermissionDenied, "the user of glovebox may not"),
            _ => Error::new(ErrorCode::HostIo, format!("{} cannot be {act}", self.shown())).because(error),
        }
    }
}

/// A file of the host that is being written. Until it is finished, nobody sees it.
pub(crate) struct Writing<'a> {
    place: &'a HostPlace<'a>,
    folder: OwnedFd,
    file: File,
    /// Its name until then, where it needs one.
    unfinished: Option<String>,
    name: std::ffi::OsString,
}

impl Writing<'_> {
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| self.place.failed("written", error))
    }

    /// Gives it its name. What is there already stays, unless it may be replaced.
    pub(crate) fn finish(mut self, replace: bool) -> Result<()> {
        match self.try_finish(replace) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => {
                let message = format!("{} is there already", self.place.shown());
                Err(Error::new(ErrorCode::FileExists, message).hint("overwrite: true replaces it"))
            }
            Err(error) => Err(self.place.failed("written", error.into())),
        }
    }

    fn try_finish(&mut self, replace: bool) -> Result<(), Errno> {
        if let (None, false) = (&self.unfinished, replace) {
            return self.link(&self.name);
        }
        let mut tries = 0;
        while self.unfinished.is_none() {
            let name = temporary_name();
            match self.link(name.as_ref()) {
                Ok(()) => self.unfinished = Some(name),
                Err(Errno::EXIST) if tries < TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
        let name = self.unfinished.as_ref().expect("it has a name now");
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        rustix::fs::renameat_with(&self.folder, name, &self.folder, &self.name, flags)?;
        self.unfinished = None;
        Ok(())
    }

    fn link(&self, name: &std::ffi::OsStr) -> Result<(), Errno> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::linkat(rustix::fs::CWD, own, &self.folder, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.unfinished {
            // Whatever stands in the way now, somebody else put it there.
            let _ = rustix::fs::unlinkat(&self.folder, name, AtFlags::empty());
        }
    }
}

fn temporary_name() -> String {
    format!(".glovebox-{}", uuid::Uuid::now_v7().simple())
}

fn open_below(folder: impl AsFd, below: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    Ok(openat2(folder, below, flags | OFlags::CLOEXEC, Mode::empty(), stay)?)
}

/// Gives a new entry the owner of its folder. Only root can, and only root needs to.
fn give(folder: impl AsFd, name: &std::ffi::OsStr, owner: impl AsFd) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let stat = rustix::fs::fstat(owner)?;
    let (uid, gid) = (rustix::fs::Uid::from_raw(stat.st_uid), rustix::fs::Gid::from_raw(stat.st_gid));
    Ok(rustix::fs::chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
}

fn give_file(file: impl AsFd, folder: impl AsFd) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let stat = rustix::fs::fstat(folder)?;
    let (uid, gid) = (rustix::fs::Uid::from_raw(stat.st_uid), rustix::fs::Gid::from_raw(stat.st_gid));
    Ok(rustix::fs::fchown(file, Some(uid), Some(gid))?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn roots() -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        fs::write(dir.path().join("outside"), "secret").unwrap();
        let roots = Roots::open(&[dir.path().join("root")]).unwrap();
        (dir, roots)
    }

    #[test]
    fn nothing_outside_is_reached_by_a_path_or_by_a_link() {
        let (dir, roots) = roots();
        let root = dir.path().join("root");
        std::os::unix::fs::symlink("../outside", root.join("link")).unwrap();
        std::os::unix::fs::symlink("..", root.join("up")).unwrap();
        let outside = dir.path().join("outside").display().to_string();
        for path in ["../outside", &outside, "/etc/passwd", "a/../../outside", "a\0b"] {
            assert!(roots.find(path).is_err(), "{path:?}");
        }
        for path in ["link", "up/outside", &format!("{}/up/outside", root.display())] {
            assert!(roots.find(path).unwrap().read().is_err(), "{path}");
        }
        let through = roots.find("up/new").unwrap();
        assert!(through.write(false).is_err());
        // A link at the very place is replaced, and not what it leads to.
        let place = roots.find("link").unwrap();
        let mut writing = place.write(false).unwrap();
        writing.write(b"new").unwrap();
        writing.finish(true).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("outside")).unwrap(), "secret");
        assert_eq!(fs::read_to_string(root.join("link")).unwrap(), "new");
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all_and_replaces_only_when_it_may() {
        let (dir, roots) = roots();
        let place = roots.find("a/b/file").unwrap();
        let mut writing = place.write(true).unwrap();
        writing.write(b"one").unwrap();
        drop(writing);
        let folder = dir.path().join("root/a/b");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        for (text, replace, fits) in [("one", false, true), ("two", false, false), ("three", true, true)] {
            let mut writing = place.write(false).unwrap();
            writing.write(text.as_bytes()).unwrap();
            assert_eq!(writing.finish(replace).is_ok(), fits, "{text}");
        }
        assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "three");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn without_a_root_every_path_is_refused_with_the_flag_that_opens_one() {
        let error = Roots::default().find("/etc/passwd").err().unwrap();
        assert!(error.hint.unwrap().contains("--root"));
        assert_eq!(Roots::open(&["/nonexistent".into()]).unwrap_err().code, ErrorCode::FileNotFound);
    }
}
