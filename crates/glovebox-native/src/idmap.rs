//! User namespaces and the shifting of owners.
//!
//! Each sandbox of root has its own range of 65536 host ids that nobody else uses; which one, `ranges` decides. Root inside is the first of them.
//! What there is for an ordinary user is in `standing`. Files of
//! the host keep their owners as seen inside: what belongs to host id 0 belongs to 0 inside. A workspace is the one
//! exception: its owner becomes the user that commands run as, so that they can work in it.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
};

use glovebox_core::SandboxId;
use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, WaitIdOptions},
};

use crate::{
    plan::Plan,
    standing::Standing,
    sys::{self, Forked},
};

/// Where ranges begin that neither accounts nor the usual sub-ids use.
pub(crate) const FIRST: u32 = 0x2000_0000;

/// Who owns volumes on disk: an id before all ranges.
pub(crate) const NOBODY: u32 = FIRST - 1;

/// How many ids a sandbox has.
pub(crate) const RANGE: u32 = 65536;

/// How the ids inside a sandbox map to those of the launcher's user namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SandboxIds {
    standing: Standing,
    kind: Kind,
    /// What root inside is, where there is one.
    base: u32,
    /// The user of commands, inside.
    uid: u32,
    gid: u32,
}

/// Which ids there are inside.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A range of the launcher's, one after the other.
    Range,
    /// The same, but the caller is the user of commands.
    RangeWithCaller,
    /// The caller, and nobody else.
    Caller,
}

impl SandboxIds {
    /// The ids of a planned sandbox. One of root has this range.
    pub(crate) fn new(standing: Standing, range: u32, plan: &Plan) -> Self {
        let (kind, base) = match standing {
            Standing::Root => (Kind::Range, base(range)),
            Standing::SubIds if !plan.as_caller => (Kind::Range, 1),
            Standing::SubIds => (Kind::RangeWithCaller, 1),
            Standing::OneId => (Kind::Caller, 0),
        };
        SandboxIds { standing, kind, base, uid: plan.uid, gid: plan.gid }
    }

    /// On what terms the sandbox is made.
    pub(crate) fn standing(&self) -> Standing {
        self.standing
    }

    /// Who owns what belongs to root inside.
    pub(crate) fn root(&self) -> (u32, u32) {
        match self.kind {
            Kind::RangeWithCaller => (outside(0, self.uid), outside(0, self.gid)),
            Kind::Range | Kind::Caller => (self.base, self.base),
        }
    }

    /// Who owns what belongs to the user of commands.
    pub(crate) fn user(&self) -> (u32, u32) {
        match self.kind {
            Kind::Range => (self.base + self.uid, self.base + self.gid),
            Kind::RangeWithCaller | Kind::Caller => (0, 0),
        }
    }

    /// The maps for users and for groups.
    pub(crate) fn maps(&self) -> (String, String) {
        let map = |user: u32| match self.kind {
            Kind::Range => plain_map(self.base),
            Kind::RangeWithCaller => map_with_caller(user),
            Kind::Caller => format!("{user} 0 1\n"),
        };
        (map(self.uid), map(self.gid))
    }

    /// Whose account a sandbox of root is charged to: an id that nothing else has. The kernel counts inotify instances, timers
    /// and more by user, and charges those of a user namespace to whoever made it; root must not be left with nothing.
    pub(crate) fn account(&self) -> u32 {
        ACCOUNTS + (self.base - FIRST) / RANGE
    }

    /// The first host id of the sandbox, for mounts that root shifts.
    pub(crate) fn base(&self) -> u32 {
        self.base
    }
}

/// The id of the launcher's namespace for one inside, where the caller is 0 and becomes `user`.
fn outside(inside: u32, user: u32) -> u32 {
    if inside == user { 0 } else { inside + 1 }
}

/// A map in which the caller, id 0 of the launcher's namespace, is `user`, and every other id is a sub-id.
fn map_with_caller(user: u32) -> String {
    let mut lines = String::new();
    if user > 0 {
        lines += &format!("0 1 {user}\n");
    }
    lines += &format!("{user} 0 1\n");
    let next = user + 1;
    if next < RANGE {
        lines += &format!("{next} {} {}\n", next + 1, RANGE - next);
    }
    lines
}

/// How many ranges there are.
pub(crate) const RANGES: u32 = 20_000;

/// Behind the ranges, one id for each.
const ACCOUNTS: u32 = FIRST + RANGES * RANGE;

/// The host id of root inside.
fn base(range: u32) -> u32 {
    FIRST + range * RANGE
}

/// The range whose first id this is.
pub(crate) fn range_from(first: u32) -> Option<u32> {
    let from = first.checked_sub(FIRST)?;
    (from % RANGE == 0 && from / RANGE < RANGES).then_some(from / RANGE)
}

/// The range that a sandbox has unless another one has it.
pub(crate) fn usual_range(id: SandboxId) -> u32 {
    (id.as_u128() % u128::from(RANGES)) as u32
}

/// A map by which what one range owns belongs to another.
pub(crate) fn moved_map(from: u32, to: u32) -> String {
    format!("{from} {to} {RANGE}\n")
}

/// The map of a sandbox of root.
pub(crate) fn plain_map(base: u32) -> String {
    format!("0 {base} {RANGE}\n")
}

/// A map in which the owner of a host folder and the user inside change places.
pub(crate) fn swapped_map(base: u32, owner: u32, user: u32) -> String {
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
pub(crate) fn write_maps(pid: Pid, users: &str, groups: &str) -> io::Result<()> {
    let pid = pid.as_raw_nonzero();
    fs::write(format!("/proc/{pid}/uid_map"), users)?;
    fs::write(format!("/proc/{pid}/gid_map"), groups)
}

/// The user namespace of a process, as a descriptor.
pub(crate) fn namespace_of(pid: Pid) -> io::Result<OwnedFd> {
    let path = format!("/proc/{}/ns/user", pid.as_raw_nonzero());
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Makes a user namespace that serves only as a map for mounts: a process that waits in it until the map is read.
pub(crate) fn namespace_with(users: &str, groups: &str) -> io::Result<OwnedFd> {
    let (here, there) = crate::wire::stream_pair()?;
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
            let _ = rustix::process::waitid(rustix::process::WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
            namespace
        }
    }
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

    proptest! {
        #[test]
        fn the_caller_becomes_the_user_and_every_other_id_a_sub_id(user in 0u32..65_535, inside in 0u32..65_536) {
            let map = map_with_caller(user);
            prop_assert_eq!(look_up(&map, inside), vec![outside(inside, user)]);
            prop_assert!(outside(inside, user) <= RANGE);
        }
    }

    #[test]
    fn every_range_has_an_account_that_is_in_no_range() {
        for base in [FIRST, FIRST + (RANGES - 1) * RANGE] {
            let account =
                SandboxIds { standing: Standing::Root, kind: Kind::Range, base, uid: 1000, gid: 1000 }.account();
            assert!((ACCOUNTS..0x7fff_ffff).contains(&account), "{account}");
        }
    }

    #[test]
    fn ranges_never_touch_ordinary_ids_or_overflow() {
        for _ in 0..1000 {
            let range = usual_range(SandboxId::new());
            let base = base(range);
            assert!(base >= 0x2000_0000 && base.checked_add(RANGE).is_some_and(|end| end <= ACCOUNTS));
            assert_eq!(range_from(base), Some(range));
        }
        for no_range in [0, FIRST - 1, FIRST + 1, ACCOUNTS] {
            assert_eq!(range_from(no_range), None);
        }
    }
}
