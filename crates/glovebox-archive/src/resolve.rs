//! Opening a path with a say in what may be on the way, also where the kernel has no `openat2`.
//!
//! Kernels older than 5.6 have none, and gVisor's had none for long. There the path is walked here, part by part, and each part is opened without
//! following a link: whatever others do to the folders meanwhile, nothing is reached that `openat2` would have refused.
//! Where the two differ the walk refuses more: beneath a folder it takes no `..` at all, and it follows no link of /proc.

use std::{
    collections::{HashSet, VecDeque},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::OnceLock,
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, fstatfs, openat, openat2, readlinkat},
    io::{Errno, Result},
};

/// As many links as the kernel follows on the way to one file.
const MOST_LINKS: usize = 40;

/// The file system that has links which are more than their text.
const PROC: u64 = 0x9fa0;

/// How a folder on the way is opened, which needs no right to read it.
const PASS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens what a path leads to from `top`. Nothing is ever made.
pub fn open_at(top: impl AsFd, path: &[u8], flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd> {
    match openat2(&top, path, flags, Mode::empty(), resolve) {
        Err(Errno::NOSYS) => Way::from(top.as_fd(), path, resolve)?.open(flags),
        other => other,
    }
}

/// A path that is being walked.
struct Way {
    /// The folder that was reached.
    at: OwnedFd,
    /// What is left.
    parts: VecDeque<Vec<u8>>,
    /// Whether it ends with a slash, and so means a folder.
    is_folder: bool,
    links: usize,
    resolve: ResolveFlags,
}

impl Way {
    fn from(top: BorrowedFd<'_>, path: &[u8], resolve: ResolveFlags) -> Result<Self> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        let at = match path.starts_with(b"/") {
            true if resolve.contains(ResolveFlags::BENEATH) => return Err(Errno::XDEV),
            true => openat(CWD, "/", PASS, Mode::empty())?,
            false => openat(top, ".", PASS, Mode::empty())?,
        };
        let parts = parts(path).collect();
        Ok(Way { at, parts, is_folder: path.ends_with(b"/"), links: 0, resolve })
    }

    fn open(mut self, mut flags: OFlags) -> Result<OwnedFd> {
        flags.set(OFlags::DIRECTORY, self.is_folder || flags.contains(OFlags::DIRECTORY));
        while let Some(name) = self.parts.pop_front() {
            let is_last = self.parts.is_empty();
            if name == b".." && self.resolve.contains(ResolveFlags::BENEATH) {
                return Err(Errno::XDEV);
            }
            // Who asks for a link itself gets it, or is told that it is one, by the last open.
            let may_follow = !is_last || self.is_folder || !flags.contains(OFlags::NOFOLLOW);
            if may_follow && self.follow(&name)? {
                continue;
            }
            let how = if is_last { flags | OFlags::NOFOLLOW } else { PASS };
            let opened = openat(&self.at, &name[..], how, Mode::empty())?;
            if self.resolve.contains(ResolveFlags::NO_XDEV) && is_elsewhere(&self.at, &opened)? {
                return Err(Errno::XDEV);
            }
            // It was none a moment ago.
            let is_link = FileType::from_raw_mode(fstat(&opened)?.st_mode) == FileType::Symlink;
            match is_last {
                true if is_link && may_follow => return Err(Errno::LOOP),
                true => return Ok(opened),
                false => self.at = opened,
            }
        }
        openat(&self.at, ".", flags, Mode::empty())
    }

    /// Whether a name is a link; then the way goes on where it leads.
    fn follow(&mut self, name: &[u8]) -> Result<bool> {
        let target = match readlinkat(&self.at, name, Vec::new()) {
            Ok(target) => target.into_bytes(),
            Err(Errno::INVAL) => return Ok(false),
            Err(error) => return Err(error),
        };
        self.links += 1;
        let is_refused = self.resolve.contains(ResolveFlags::NO_SYMLINKS)
            || fstatfs(&self.at)?.f_type as u64 == PROC
            || self.links > MOST_LINKS;
        if is_refused {
            return Err(Errno::LOOP);
        }
        if target.starts_with(b"/") {
            if self.resolve.contains(ResolveFlags::BENEATH) {
                return Err(Errno::XDEV);
            }
            self.at = openat(CWD, "/", PASS, Mode::empty())?;
        }
        self.is_folder |= self.parts.is_empty() && target.ends_with(b"/");
        for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
            self.parts.push_front(part);
        }
        Ok(true)
    }
}

fn parts(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).map(<[u8]>::to_vec)
}

/// Whether what was opened in a folder is of another mount. One of the same device is known by its place: nobody inside a sandbox mounts
/// anything, so the table is read once.
fn is_elsewhere(folder: &OwnedFd, opened: &OwnedFd) -> Result<bool> {
    static MOUNTS: OnceLock<Option<HashSet<Vec<u8>>>> = OnceLock::new();
    if fstat(folder)?.st_dev != fstat(opened)?.st_dev {
        return Ok(true);
    }
    let place = readlinkat(CWD, format!("/proc/self/fd/{}", opened.as_raw_fd()), Vec::new())?;
    let mounts = MOUNTS.get_or_init(|| std::fs::read("/proc/self/mountinfo").ok().map(|table| mount_points(&table)));
    mounts.as_ref().map(|mounts| mounts.contains(place.as_bytes())).ok_or(Errno::NOENT)
}

/// The mount points of a table, in which `\040` is a space.
fn mount_points(table: &[u8]) -> HashSet<Vec<u8>> {
    let points = table.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    points.map(unescaped).collect()
}

fn unescaped(mut rest: &[u8]) -> Vec<u8> {
    let mut path = Vec::new();
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| str::from_utf8(digits).ok());
        let byte = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    path
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    /// A folder in which each of these is told the same by the kernel and by the walk, or refused by both.
    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/file"), "x").unwrap();
        for (target, name) in [
            ("a/b", "to_folder"),
            ("a/b/", "to_folder_slash"),
            ("../a/b/file", "a/to_file"),
            ("nowhere", "dangling"),
            ("round", "round"),
            ("/proc/self/exe", "to_magic"),
            ("/", "to_root"),
        ] {
            symlink(target, at(name)).unwrap();
        }
        folder
    }

    const PATHS: [&str; 22] = [
        "a/b/file",
        "a//b/./file",
        "a/b/",
        "a/b/file/",
        ".",
        "a/..",
        "a/../a/b",
        "../..",
        "to_folder",
        "to_folder/file",
        "to_folder_slash",
        "to_folder/",
        "a/to_file",
        "a/to_file/x",
        "dangling",
        "dangling/x",
        "round",
        "round/x",
        "to_magic",
        "to_root/proc/self/status",
        "missing",
        "",
    ];

    #[test]
    fn the_walk_reaches_what_the_kernel_does_and_refuses_what_it_refuses() {
        let folder = tree();
        let top = openat(CWD, folder.path(), PASS, Mode::empty()).unwrap();
        let ways = [
            ResolveFlags::NO_MAGICLINKS,
            ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
            ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        ];
        let opens = [OFlags::RDONLY, OFlags::PATH, OFlags::PATH | OFlags::NOFOLLOW, OFlags::RDONLY | OFlags::DIRECTORY];
        for (path, resolve) in PATHS.into_iter().flat_map(|path| ways.map(|resolve| (path, resolve))) {
            for flags in opens {
                let flags = flags | OFlags::CLOEXEC;
                let by_kernel = openat2(&top, path, flags, Mode::empty(), resolve);
                let walked = Way::from(top.as_fd(), path.as_bytes(), resolve).and_then(|way| way.open(flags));
                let told = |opened: &Result<OwnedFd>| {
                    opened.as_ref().map(|file| fstat(file).map(|stat| (stat.st_dev, stat.st_ino))).map_err(|e| *e)
                };
                let stricter = resolve.contains(ResolveFlags::BENEATH)
                    && (path.contains("..") || path.starts_with("a/to_file"))
                    || path == "to_root/proc/self/status";
                match told(&walked) {
                    Err(_) if stricter => {}
                    walked => assert_eq!(walked, told(&by_kernel), "{path} {resolve:?} {flags:?}"),
                }
            }
        }
    }

    #[test]
    fn another_mount_is_told_from_a_folder() {
        let top = openat(CWD, "/", PASS, Mode::empty()).unwrap();
        let open = |name: &[u8], resolve| Way::from(top.as_fd(), name, resolve).and_then(|way| way.open(PASS));
        assert!(open(b"proc", ResolveFlags::BENEATH).is_ok());
        assert_eq!(open(b"proc", ResolveFlags::BENEATH | ResolveFlags::NO_XDEV).err(), Some(Errno::XDEV));
        assert!(open(b"etc", ResolveFlags::BENEATH | ResolveFlags::NO_XDEV).is_ok());
    }

    #[test]
    fn mount_points_are_read_as_they_are() {
        let table = b"1 2 0:1 / /a\\040b rw - tmpfs none rw\n3 4 0:2 / /c rw - tmpfs none rw\n";
        let points = mount_points(table);
        assert!(points.contains(&b"/a b"[..]) && points.contains(&b"/c"[..]) && points.len() == 2);
    }
}
