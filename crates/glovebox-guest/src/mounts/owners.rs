//! Whom files belong to inside: maps of ids, and user namespaces that hold one.

use std::{
    fs, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, Gid, Mode, OFlags, Uid},
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    process::{Pid, WaitId, WaitIdOptions, waitid},
};

use crate::sys::{self, Forked};

/// Where ranges begin that neither accounts nor the usual sub-ids use.
pub const FIRST: u32 = 0x2000_0000;

/// Who owns volumes on disk: an id before all ranges.
pub const NOBODY: u32 = FIRST - 1;

/// How many ids a sandbox has.
pub const RANGE: u32 = 65536;

/// The map of a sandbox of root.
pub fn plain_map(base: u32) -> String {
    format!("0 {base} {RANGE}\n")
}

/// A map in which the owner of a host folder and the user inside change places.
pub fn swapped_map(base: u32, owner: u32, user: u32) -> String {
    if owner == user {
        return plain_map(base);
    }
    let mut lines = format!("{owner} {} 1\n", base + user);
    if owner < RANGE {
        lines += &format!("{user} {} 1\n", base + owner);
    }
    let mut from = 0;
    let (first, second) = (owner.min(user), owner.max(user));
    for hole in [first, second, RANGE] {
        let end = hole.min(RANGE);
        if end > from {
            lines += &format!("{from} {} {}\n", base + from, end - from);
        }
        from = end.saturating_add(1);
    }
    lines
}

/// Gives a new process's user namespace its maps.
pub fn write_maps(pid: Pid, users: &str, groups: &str) -> io::Result<()> {
    let pid = pid.as_raw_nonzero();
    fs::write(format!("/proc/{pid}/uid_map"), users)?;
    fs::write(format!("/proc/{pid}/gid_map"), groups)
}

/// The user namespace of a process, as a descriptor.
pub fn namespace_of(pid: Pid) -> io::Result<OwnedFd> {
    let path = format!("/proc/{}/ns/user", pid.as_raw_nonzero());
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Makes a user namespace that serves only as a map for mounts: a process that waits in it until the map is read.
pub fn namespace_with(users: &str, groups: &str) -> io::Result<OwnedFd> {
    let (here, there) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    match sys::fork_with(libc::CLONE_NEWUSER as u64)? {
        Forked::Child => {
            drop(here);
            // Ends when the other side is closed, however that comes about.
            let _ = rustix::io::read(&there, &mut [0u8; 1][..]);
            sys::exit_now(0)
        }
        Forked::Parent { pid, pidfd } => {
            drop(there);
            let namespace = write_maps(pid, users, groups).and_then(|()| namespace_of(pid));
            drop(here);
            // Whether or not the kernel reaps for us, the process is over when this returns.
            let _ = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
            namespace
        }
    }
}

/// Gives the folder of a volume to an id that no account and no sandbox has. It is the user of commands in every sandbox that
/// has the volume, and nothing that they leave there is ever root's own, such as a set-user-id program.
pub fn give_to_nobody(folder: BorrowedFd<'_>) -> io::Result<()> {
    let stat = rustix::fs::fstat(folder)?;
    if (stat.st_uid, stat.st_gid) == (NOBODY, NOBODY) {
        return Ok(());
    }
    let (owner, group) = (Some(Uid::from_raw(NOBODY)), Some(Gid::from_raw(NOBODY)));
    Ok(rustix::fs::chownat(folder, "", owner, group, AtFlags::EMPTY_PATH)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn look_up(map: &str, id: u32) -> Vec<u32> {
        map.lines()
            .filter_map(|line| {
                let n: Vec<u32> = line.split(' ').map(|n| n.parse().unwrap()).collect();
                (n[0] <= id && id - n[0] < n[2]).then(|| n[1] + (id - n[0]))
            })
            .collect()
    }

    proptest! {
        #[test]
        fn owner_and_user_change_places_and_all_others_stay(owner in 0u32..100_000, user in 0u32..65_535, other in 0u32..65_536) {
            let base = 0x2000_0000;
            let map = swapped_map(base, owner, user);
            prop_assert_eq!(look_up(&map, owner), vec![base + user]);
            if other != owner && other != user {
                prop_assert_eq!(look_up(&map, other), vec![base + other]);
            }
            if user != owner && owner < RANGE {
                prop_assert_eq!(look_up(&map, user), vec![base + owner]);
            }
        }
    }
}
