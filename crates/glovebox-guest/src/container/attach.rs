//! `glovebox-guest attach`: puts folders of the host into a container whose guest waits for them.
//!
//! It is a process of its own that the host's root starts, since it changes its mount namespace. Every tree is attached nowhere until it is
//! inside: whenever this process dies, nothing of it is left on the host. The host's owner of a folder is the user of commands
//! inside, as in the native backend, whichever ids the container has.

use std::{
    io::{self, Read},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    process::ExitCode,
};

use glovebox_proto::container::{Attached, AttachedMount, Attaching, MountPlace};
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat2},
    mount::{MoveMountFlags, move_mount},
    process::umask,
    thread::{LinkNameSpaceType, capabilities, move_into_link_name_space, set_capabilities},
};

use crate::{
    mounts::{InTheWay, Mapped, RANGE, attach, cannot_be_shifted, give_to_nobody, namespace_with, sealed, swapped_map},
    sys::{self, Sealed},
};

/// No orders are longer.
const LONGEST: u64 = 4 << 20;

/// Reads orders, does what they say, and says how it went.
pub(super) fn attach_all() -> ExitCode {
    let (answer, code) = match read_orders().and_then(|orders| Attacher::new(&orders)?.attach_all()) {
        Ok(()) => (Attached::All, ExitCode::SUCCESS),
        Err(Refused { step, error }) => {
            (Attached::Failed { step, errno: error.raw_os_error().unwrap_or(libc::EIO) }, ExitCode::FAILURE)
        }
    };
    match serde_json::to_string(&answer) {
        Ok(text) => println!("{text}"),
        Err(_) => return ExitCode::FAILURE,
    }
    code
}

/// A step that failed.
#[derive(Debug)]
struct Refused {
    step: String,
    error: io::Error,
}

fn step<T>(name: &str, result: Result<T, impl Into<io::Error>>) -> Result<T, Refused> {
    result.map_err(|error| Refused { step: name.to_owned(), error: error.into() })
}

fn read_orders() -> Result<Attaching, Refused> {
    let mut text = Vec::new();
    step("read the orders", io::stdin().take(LONGEST).read_to_end(&mut text))?;
    step("read the orders", serde_json::from_slice(&text))
}

struct Attacher<'a> {
    orders: &'a Attaching,
    users: Ids,
    groups: Ids,
    /// The guest's mount namespace.
    namespace: OwnedFd,
    /// Namespaces by the owners that they make the user of commands.
    owners: Vec<((u32, u32), OwnedFd)>,
}

impl<'a> Attacher<'a> {
    /// Looks at the guest. What was read of it is of no other process: one that has its id now is in no namespace of this name.
    fn new(orders: &'a Attaching) -> Result<Self, Refused> {
        let of_guest = |name: &str| format!("/proc/{}/{name}", orders.guest);
        let users = step("read the ids of the guest", Ids::read(&of_guest("uid_map")))?;
        let groups = step("read the ids of the guest", Ids::read(&of_guest("gid_map")))?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let namespace = step("open the guest's mounts", rustix::fs::open(of_guest("ns/mnt"), flags, Mode::empty()))?;
        let name = step("look at the guest's mounts", rustix::fs::readlinkat(CWD, link(&namespace), Vec::new()))?;
        if name.as_bytes() != orders.mount_namespace.as_bytes() {
            let why = "find the guest's mounts: its runtime does not have them in this kernel, or it has ended";
            return Err(Refused { step: why.to_owned(), error: io::Error::from_raw_os_error(libc::ESRCH) });
        }
        Ok(Attacher { orders, users, groups, namespace, owners: Vec::new() })
    }

    fn attach_all(mut self) -> Result<(), Refused> {
        umask(Mode::empty());
        let orders = self.orders;
        let trees: Vec<OwnedFd> = orders.mounts.iter().map(|mount| self.tree(mount)).collect::<Result<_, _>>()?;
        let moved = move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Mount));
        step("enter the guest's mounts", moved)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = step("open the root", rustix::fs::open("/", flags, Mode::empty()))?;
        step("act as the user of commands", self.act_as_commands())?;
        for (mount, tree) in orders.mounts.iter().zip(&trees) {
            let name = format!("mount {}", mount.target);
            step(&name, put(root.as_fd(), mount, tree.as_fd(), (&orders.mounts, &trees)))?;
        }
        Ok(())
    }

    /// A sealed clone of a file or folder of the host, in which its owner is the user of commands.
    fn tree(&mut self, mount: &AttachedMount) -> Result<OwnedFd, Refused> {
        let name = format!("mount {}", mount.target);
        let kind = if mount.is_volume { OFlags::DIRECTORY } else { OFlags::empty() };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC | kind;
        let source = step(&name, openat2(CWD, &mount.source, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS))?;
        if mount.is_volume {
            step(&name, give_to_nobody(source.as_fd()))?;
        }
        let stat = step(&name, rustix::fs::fstat(&source))?;
        let seal = if mount.read_only { Sealed::ReadOnly } else { Sealed::Writable };
        let owners = step(&name, self.owners_of((stat.st_uid, stat.st_gid)))?;
        let (tree, mapped) = step(&name, sealed(source.as_fd(), seal, owners))?;
        if !mount.read_only && mapped != Mapped::All {
            let step = cannot_be_shifted(&mount.target, &mount.source);
            return Err(Refused { step, error: io::Error::from_raw_os_error(libc::EINVAL) });
        }
        Ok(tree)
    }

    /// A user namespace by which what belongs to an owner belongs to the user of commands.
    fn owners_of(&mut self, owner: (u32, u32)) -> io::Result<BorrowedFd<'_>> {
        let at = match self.owners.iter().position(|(known, _)| *known == owner) {
            Some(at) => at,
            None => {
                let users = self.users.swapped(owner.0, self.orders.uid)?;
                let groups = self.groups.swapped(owner.1, self.orders.gid)?;
                self.owners.push((owner, namespace_with(&users, &groups)?));
                self.owners.len() - 1
            }
        };
        Ok(self.owners[at].1.as_fd())
    }

    /// Has what is made from here on belong to commands, as far as they have an id here. Rights stay as they are: a folder may
    /// be closed to its owner.
    fn act_as_commands(&self) -> io::Result<()> {
        let (Some(uid), Some(gid)) = (self.users.outside(self.orders.uid), self.groups.outside(self.orders.gid)) else {
            return Ok(());
        };
        let rights = capabilities(None)?;
        sys::set_file_ids(uid, gid)?;
        Ok(set_capabilities(None, rights)?)
    }
}

/// The path by which the kernel tells what a descriptor is of.
fn link(descriptor: &OwnedFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

/// Attaches a tree where it belongs.
fn put(
    root: BorrowedFd<'_>,
    mount: &AttachedMount,
    tree: BorrowedFd<'_>,
    (mounts, trees): (&[AttachedMount], &[OwnedFd]),
) -> rustix::io::Result<()> {
    match mount.place {
        MountPlace::OfCommands => attach(root, &mount.target, tree, InTheWay::IsSetAside),
        MountPlace::Below(above) => {
            // What lies in a folder of the caller's or in a volume is not ours to move.
            let wrong = rustix::io::Errno::INVAL;
            let (above, folder) = mounts.get(above).zip(trees.get(above)).ok_or(wrong)?;
            let rest = mount.target.strip_prefix(&above.target).ok_or(wrong)?;
            attach(folder.as_fd(), rest, tree, InTheWay::Stays)
        }
        MountPlace::Made => {
            // The root holds what the image does, which may lead there by a link, as it did for who made the place. Nobody can
            // write there.
            let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            let place = openat2(root, &mount.target, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), inside)?;
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
            move_mount(tree, "", &place, "", flags)
        }
    }
}

/// Which ids of the host a container has: each range by its first id inside, its first id outside, and its length.
#[derive(Debug)]
struct Ids(Vec<[u32; 3]>);

impl Ids {
    fn read(path: &str) -> io::Result<Self> {
        Self::parse(&sys::read_small(path)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn parse(text: &str) -> Option<Self> {
        let range = |line: &str| {
            let mut words = line.split_ascii_whitespace().map(str::parse);
            Some([words.next()?.ok()?, words.next()?.ok()?, words.next()?.ok()?])
        };
        text.lines().map(range).collect::<Option<Vec<_>>>().map(Ids)
    }

    /// The host's id for one inside.
    fn outside(&self, inside: u32) -> Option<u32> {
        let of = |[first, outside, length]: &[u32; 3]| {
            let offset = inside.checked_sub(*first).filter(|offset| offset < length)?;
            outside.checked_add(offset)
        };
        self.0.iter().find_map(of)
    }

    /// A map in which the owner of a folder and the user inside change places, and all others stay who they are. Where ids inside
    /// are not in one piece, all others are nobody.
    fn swapped(&self, owner: u32, user: u32) -> io::Result<String> {
        let whole = self.0.iter().find(|[first, _, length]| *first == 0 && *length >= RANGE);
        match (whole, self.outside(user)) {
            (Some([_, base, _]), _) => Ok(swapped_map(*base, owner, user)),
            (None, Some(user)) => Ok(format!("{owner} {user} 1\n")),
            (None, None) => Err(io::Error::from_raw_os_error(libc::EOVERFLOW)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_in_the_range_that_has_them() {
        let host = Ids::parse("         0          0 4294967295\n").unwrap();
        assert_eq!((host.outside(0), host.outside(1000)), (Some(0), Some(1000)));
        assert_eq!(host.swapped(0, 1000).unwrap(), swapped_map(0, 0, 1000));
        let shifted = Ids::parse("0 100000 65536\n").unwrap();
        assert_eq!((shifted.outside(1000), shifted.outside(65536)), (Some(101_000), None));
        assert_eq!(shifted.swapped(7, 1000).unwrap(), swapped_map(100_000, 7, 1000));
        assert!(Ids::parse("0 x 1").is_none());
    }

    #[test]
    fn where_ids_are_in_pieces_only_the_owner_is_somebody() {
        let pieces = Ids::parse("0 4245 1\n1 100000 65536\n").unwrap();
        assert_eq!((pieces.outside(0), pieces.outside(1000)), (Some(4245), Some(100_999)));
        assert_eq!(pieces.swapped(4245, 1000).unwrap(), "4245 100999 1\n");
        assert!(Ids::parse("0 4245 1\n").unwrap().swapped(4245, 1000).is_err());
    }
}
