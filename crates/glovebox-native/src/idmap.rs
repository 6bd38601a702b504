//! User namespaces and the shifting of owners.
//!
//! Each sandbox of root has its own range of 65536 host ids that nobody else uses; which one, `ranges` decides. Root inside is the first of them.
//! What there is for an ordinary user is in `standing`. Files of
//! the host keep their owners as seen inside: what belongs to host id 0 belongs to 0 inside. A workspace is the one
//! exception: its owner becomes the user that commands run as, so that they can work in it.

use glovebox_core::SandboxId;
use glovebox_guest::mounts::{FIRST, RANGE, plain_map};

use crate::{plan::Plan, standing::Standing};

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
