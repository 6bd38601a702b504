//! Under which id commands run.
//!
//! A root that may change ids gives every sandbox one that nobody else has, so that the kernel itself keeps it from the
//! processes and files of others. Anybody else has only their own.

use std::collections::HashSet;

use glovebox_core::SandboxId;
use rustix::{
    process::{getegid, geteuid},
    thread::{CapabilitySet, capabilities},
};

use super::folder;
use crate::{owner::RuntimeFolder, sys};

/// The id of a sandbox's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommandIds {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Whether nobody else has it.
    pub(crate) separate: bool,
}

/// What a root needs to give commands another id, and to end them and remove their files.
const NEEDED: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER);

impl CommandIds {
    /// The id for a new sandbox.
    pub(crate) fn choose(id: SandboxId, runtime: &RuntimeFolder) -> Self {
        let may = geteuid().is_root() && capabilities(None).is_ok_and(|sets| sets.effective.contains(NEEDED));
        let shared = CommandIds { uid: geteuid().as_raw(), gid: getegid().as_raw(), separate: false };
        let maps = ["uid", "gid"].map(|kind| sys::read_small(format!("/proc/self/{kind}_map")).unwrap_or_default());
        let Some((first, count)) = range(&maps[0], &maps[1]).filter(|_| may) else { return shared };
        let taken: HashSet<u32> = folder::find(runtime).into_iter().map(|found| found.uid).collect();
        let start = (id.as_u128() % u128::from(count)) as u32;
        let free = (0..count).map(|step| first + (start + step) % count).find(|uid| !taken.contains(uid));
        free.map_or(shared, |uid| CommandIds { uid, gid: uid, separate: true })
    }
}

/// Ids that neither accounts nor the usual sub-ids are among: a large range where all ids exist, else the upper end of what
/// a container has.
fn range(users: &str, groups: &str) -> Option<(u32, u32)> {
    const RANGES: [(u32, u32); 2] = [(0x7000_0000, 0x0100_0000), (61_184, 4_000)];
    let maps = |map: &str, (first, count): (u32, u32)| {
        map.lines().any(|line| {
            let n: Vec<u64> = line.split_ascii_whitespace().filter_map(|n| n.parse().ok()).collect();
            matches!(n[..], [inside, _, length] if inside <= first.into() && u64::from(first) + u64::from(count) <= inside + length)
        })
    };
    RANGES.into_iter().find(|range| maps(users, *range) && maps(groups, *range))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_ids_must_exist_here() {
        let all = "         0          0 4294967295\n";
        let container = "         0     100000      65536\n";
        assert_eq!(range(all, all), Some((0x7000_0000, 0x0100_0000)));
        assert_eq!(range(container, all), Some((61_184, 4_000)));
        assert_eq!(range("0 1000 1\n", "0 1000 1\n"), None);
        assert_eq!(range("", ""), None);
    }
}
