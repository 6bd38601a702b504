//! The skeleton: all of a sandbox's root that nobody inside can write, assembled once and lent to every sandbox.
//!
//! Theory of operation. A skeleton is one small tmpfs with the folders, links, devices and files of a root, and the
//! host's toolchains mounted in it. The launcher attaches it in its own mount namespace, below the scratch folder, and
//! seals it. A sandbox gets a clone of the whole tree of mounts with its owners shifted: two calls in place of some
//! hundred. What can be written inside lies in the store, whose folders the guest mounts over empty ones here.
//!
//! Nearly all sandboxes of a launcher want the same skeleton. Those that want another user, the host's network or
//! mounts at places of their own get one made for them; the last few are kept.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use glovebox_core::User;
use glovebox_guest::mounts::{InTheWay, Mapped, make_place, namespace_of, sealed};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{CWD, FileType, Mode, OFlags},
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
        fsconfig_set_string, fsmount, fsopen, mount_bind, mount_bind_recursive, move_mount, open_tree, unmount,
    },
    process::Pid,
};

use crate::{
    host_image::{self, HostImage},
    mounts::Tree,
    plan::{Failure, Plan, step},
    standing::Standing,
    store,
    sys::{self, Forked, Sealed},
    wire,
};

/// Folders of every root.
const FOLDERS: [(&str, u32); 15] = [
    ("dev", 0o755),
    ("dev/pts", 0o755),
    ("dev/shm", 0o1777),
    ("etc", 0o755),
    ("etc/ssl", 0o755),
    ("home", 0o755),
    ("home/user", 0o755),
    ("proc", 0o555),
    // Empty, unless a toolchain of root's is shown below it; commands must be able to get there.
    ("root", 0o711),
    ("run", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("workspace", 0o755),
    (".glovebox", 0o700),
];

/// A folder of the skeleton that is always empty.
pub(crate) const EMPTY_FOLDER: &str = "sys";

const LINKS: [(&str, &str); 7] = [
    ("dev/fd", "/proc/self/fd"),
    ("dev/stdin", "/proc/self/fd/0"),
    ("dev/stdout", "/proc/self/fd/1"),
    ("dev/stderr", "/proc/self/fd/2"),
    ("dev/ptmx", "pts/ptmx"),
    ("etc/mtab", "/proc/mounts"),
    ("var/tmp", "/tmp"),
];

/// Devices that are harmless: name, major, minor.
const DEVICES: [(&str, u32, u32); 6] = [
    ("dev/null", 1, 3),
    ("dev/zero", 1, 5),
    ("dev/full", 1, 7),
    ("dev/random", 1, 8),
    ("dev/urandom", 1, 9),
    ("dev/tty", 5, 0),
];

/// So many skeletons are kept.
const KEPT: usize = 4;

/// What tells one skeleton from another.
#[derive(PartialEq, Eq)]
struct Needs {
    own_files: Vec<(&'static str, String)>,
    /// Places of the caller's mounts, and whether each is a folder.
    places: Vec<(String, bool)>,
}

impl Needs {
    fn of(plan: &Plan) -> io::Result<Self> {
        let mut places = Vec::new();
        for mount in plan.mounts.iter().filter(|mount| !store::holds(&mount.target)) {
            places.push((mount.target.clone(), std::fs::metadata(&mount.source)?.is_dir()));
        }
        Ok(Needs { own_files: host_image::own_files(plan.uid, plan.gid, plan.host_network), places })
    }

    /// What a sandbox needs of which nobody asked anything.
    fn usual() -> Self {
        let user = User::default();
        Needs { own_files: host_image::own_files(user.uid, user.gid, false), places: Vec::new() }
    }
}

struct Skeleton {
    needs: Needs,
    /// Where it is attached.
    path: String,
}

impl Drop for Skeleton {
    fn drop(&mut self) {
        // Sandboxes have clones of their own.
        let _ = unmount(&self.path, UnmountFlags::DETACH);
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// The skeletons of a launcher, which must be in a mount namespace of its own.
pub(crate) struct Skeletons {
    standing: Standing,
    kept: Vec<Skeleton>,
    /// The first one, while a process of its own assembles it. The socket tells of its end.
    begun: Option<(Skeleton, OwnedFd)>,
    next: u64,
}

impl Skeletons {
    /// None are made yet.
    pub(crate) fn new(standing: Standing) -> Self {
        Skeletons { standing, kept: Vec::new(), begun: None, next: 0 }
    }

    /// Begins to assemble the skeleton that most sandboxes need, beside whatever the launcher does meanwhile.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        let skeleton = self.place_for(Needs::usual())?;
        let (here, there) = wire::message_pair()?;
        // It must not hold up the caller, who reads the command line meanwhile and gives the first order.
        match sys::fork_aside()? {
            Forked::Child => {
                let _ = sys::die_with_parent();
                if assemble(&skeleton, &HostImage::detect(), self.standing).is_ok() {
                    let _ = wire::send(&there, &(), &[]);
                }
                sys::exit_now(0)
            }
            Forked::Parent { .. } => {
                self.begun = Some((skeleton, here));
                Ok(())
            }
        }
    }

    /// Whether a process is assembling one just now: nothing has come from it yet, not even its end.
    pub(crate) fn is_busy(&self) -> bool {
        let silent = |end: &OwnedFd| poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&Timespec::default())) == Ok(0);
        self.begun.as_ref().is_some_and(|(_, end)| silent(end))
    }

    fn place_for(&mut self, needs: Needs) -> io::Result<Skeleton> {
        let path = format!("skeleton-{}", self.next);
        self.next += 1;
        std::fs::create_dir(&path)?;
        Ok(Skeleton { needs, path })
    }

    /// Keeps the skeleton that was begun, if it was finished.
    fn finish_begun(&mut self) {
        if let Some((skeleton, end)) = self.begun.take()
            && let Ok(Some(((), _))) = wire::receive::<()>(&end)
        {
            self.kept.push(skeleton);
        }
    }

    /// The path of the skeleton that a plan needs, which is made if there is none.
    fn prepare(&mut self, plan: &Plan) -> Result<&str, Failure> {
        let needs = step("look at the mounts", Needs::of(plan))?;
        if self.begun.as_ref().is_some_and(|(skeleton, _)| skeleton.needs == needs) {
            self.finish_begun();
        }
        let found = self.kept.iter().position(|skeleton| skeleton.needs == needs);
        let at = match found {
            Some(at) => at,
            None => {
                let skeleton = step("make the root", self.place_for(needs))?;
                step("make the root", assemble(&skeleton, &HostImage::detect(), self.standing))?;
                if self.kept.len() == KEPT {
                    self.kept.remove(0);
                }
                self.kept.push(skeleton);
                self.kept.len() - 1
            }
        };
        Ok(&self.kept[at].path)
    }

    /// A clone of a plan's skeleton for one sandbox, with owners shifted by its guest's user namespace; trees to mount over it
    /// where that cannot be done for all of it at once; and whether the host's folders were shifted.
    pub(crate) fn lend(&mut self, plan: &Plan, guest: Pid) -> Result<(OwnedFd, Vec<Tree>, Mapped), Failure> {
        let standing = self.standing;
        let path = self.prepare(plan)?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        let tree = step("clone the root", open_tree(CWD, path, flags))?;
        if standing != Standing::Root {
            return Ok((tree, Vec::new(), Mapped::NotAll));
        }
        let namespace = step("open the user namespace", namespace_of(guest))?;
        Ok(match sys::shift_owners(tree.as_fd(), namespace.as_fd()) {
            Ok(()) => (tree, Vec::new(), Mapped::All),
            Err(_) => {
                let (over, mapped) = shift_one_by_one(namespace.as_fd());
                (tree, over, mapped)
            }
        })
    }
}

/// Shifts the owners of each of the host's folders on its own. A kernel that cannot do it for our tmpfs, before Linux 6.3,
/// shows the owner of /etc and /dev as nobody, which takes nothing from anybody; the host's folders are what counts.
fn shift_one_by_one(namespace: BorrowedFd<'_>) -> (Vec<Tree>, Mapped) {
    let mut trees = Vec::new();
    let mut mapped = Mapped::All;
    for (path, _) in HostImage::detect().mounts {
        let opened = rustix::fs::open(path.as_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let shifted = opened.map_err(io::Error::from);
        match shifted.and_then(|opened| sealed(opened.as_fd(), Sealed::ReadOnly, namespace)) {
            Ok((tree, Mapped::All)) => trees.push(Tree { target: path, tree }),
            _ => mapped = Mapped::NotAll,
        }
    }
    (trees, mapped)
}

/// Makes a skeleton and attaches it at a path.
fn assemble(skeleton: &Skeleton, image: &HostImage, standing: Standing) -> io::Result<()> {
    let Skeleton { needs, path } = skeleton;
    // With sub-ids, root inside is the first one of them; root's own ids are shifted when the skeleton is lent.
    let owner = if standing == Standing::SubIds { 1 } else { 0 };
    let root = mount_tmpfs(owner)?;
    sys::set_file_ids(owner, owner)?;
    let filled = fill(root.as_fd(), image, needs);
    sys::set_file_ids(0, 0)?;
    filled?;
    if standing == Standing::Root {
        make_devices(root.as_fd())?;
    } else {
        make_places_of_devices(root.as_fd())?;
    }
    // Mounts can only be attached below what is itself attached.
    move_mount(&root, "", CWD, path.as_str(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    for (source, _) in &image.mounts {
        mount_bind_recursive(source.as_str(), format!("{path}{source}"))?;
    }
    sys::seal_tree(root.as_fd(), Sealed::ReadOnly, None)?;
    match standing {
        // Our own devices lie in this one file system; nobody inside can make others.
        Standing::Root => sys::allow_devices(root.as_fd()),
        // Only root makes devices, so these are the host's own.
        Standing::SubIds | Standing::OneId => {
            for (device, _, _) in DEVICES {
                mount_bind(format!("/{device}"), format!("{path}/{device}"))?;
            }
            Ok(())
        }
    }
}

fn make_devices(root: BorrowedFd<'_>) -> io::Result<()> {
    for (path, major, minor) in DEVICES {
        let device = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(root, path, FileType::CharacterDevice, Mode::from_raw_mode(0o666), device)?;
    }
    Ok(())
}

fn make_places_of_devices(root: BorrowedFd<'_>) -> io::Result<()> {
    DEVICES.into_iter().try_for_each(|(path, _, _)| write_file(root, path, b""))
}

fn mount_tmpfs(owner: u32) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let owner = owner.to_string();
    for (key, value) in [("source", "glovebox"), ("mode", "0755"), ("uid", &owner), ("gid", &owner)] {
        fsconfig_set_string(context.as_fd(), key, value)?;
    }
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NOSUID)
}

fn fill(root: BorrowedFd<'_>, image: &HostImage, needs: &Needs) -> io::Result<()> {
    for (path, mode) in FOLDERS {
        rustix::fs::mkdirat(root, path, Mode::from_raw_mode(mode))?;
    }
    for (path, target) in LINKS {
        rustix::fs::symlinkat(target, root, path)?;
    }
    for (path, target) in &image.links {
        rustix::fs::symlinkat(target, root, path.trim_start_matches('/'))?;
    }
    for (path, folder) in &image.mounts {
        let path = path.trim_start_matches('/');
        match folder {
            true => rustix::fs::mkdirat(root, path, Mode::from_raw_mode(0o755))?,
            false => write_file(root, path, b"")?,
        }
    }
    for (path, content) in &image.files {
        write_file(root, path.trim_start_matches('/'), content)?;
    }
    for (name, content) in &needs.own_files {
        write_file(root, &format!("etc/{name}"), content.as_bytes())?;
    }
    for (path, folder) in &needs.places {
        // One that cannot be made, below a link for example, is told when the guest cannot mount there.
        let _ = make_place(root, path, *folder, InTheWay::Stays);
    }
    Ok(())
}

fn write_file(root: BorrowedFd<'_>, path: &str, mut content: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, path, flags, Mode::from_raw_mode(0o644))?;
    while !content.is_empty() {
        let written = rustix::io::write(&file, content)?;
        content = &content[written..];
    }
    Ok(())
}
