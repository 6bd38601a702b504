//! Who is told that a sandbox has outgrown its disk.
//!
//! Many runs may be at work in a living sandbox, daemons that earlier ones left among them, and a volume may be written by other
//! sandboxes. Where runs have leaves, the kernel's counters tell what the processes of each have written since the last look. Those who
//! wrote a good part of what was added are told, or ended if nobody follows them. The counters do not see everything: a program
//! can have room set aside that it never writes. What cannot be explained for long is therefore everybody's.

use std::collections::BTreeMap;

use glovebox_core::Outgrown;

use super::{Launcher, live::end_processes};
use crate::{cgroup::storage_bytes, plan::Answer, wire};

/// Whoever wrote at least one part in so many of what was added has a share in it.
const SHARE: u64 = 8;
/// A volume may grow in so many looks in a row by nobody who is known here: there are other sandboxes that end their own.
const UNEXPLAINED: usize = 4;
/// After so many looks in a row those who wrote cannot be all.
const MOST_LOOKS: usize = 8;

/// What is known of those who write.
#[derive(Default)]
pub(super) struct Writers {
    /// What the processes in each leaf had written at the last look.
    before: BTreeMap<u64, u64>,
    /// Looks in a row that found too much.
    looks: usize,
    /// Those of them that found nobody who wrote it.
    unexplained: usize,
}

/// Who is to hear of it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Blamed {
    Nobody,
    /// Whoever writes files by other means than a run.
    NoRun,
    /// The runs in these leaves.
    Leaves(Vec<u64>),
    Everybody,
}

impl Writers {
    /// Takes what the processes in each leaf have written by now. Says who made too much of something, if there is too much: what
    /// it is, and how many bytes of it are new.
    fn judge(&mut self, now: BTreeMap<u64, u64>, outgrown: Option<(&Outgrown, u64)>, others: bool) -> Blamed {
        let before = std::mem::replace(&mut self.before, now);
        let Some((outgrown, grown)) = outgrown else {
            (self.looks, self.unexplained) = (0, 0);
            return Blamed::Nobody;
        };
        let wrote = |leaf: &u64, now: &u64| now.saturating_sub(before.get(leaf).copied().unwrap_or(0));
        let has_share = |wrote: u64| wrote > 0 && wrote.saturating_mul(SHARE) >= grown;
        let writers: Vec<u64> =
            self.before.iter().filter(|(leaf, now)| has_share(wrote(leaf, now))).map(|(leaf, _)| *leaf).collect();
        self.looks += 1;
        if !writers.is_empty() && self.looks <= MOST_LOOKS {
            return Blamed::Leaves(writers);
        }
        self.unexplained += 1;
        // Whoever wrote it may have ended meanwhile, or been ended for what it wrote before.
        let ended = |(leaf, was): (&u64, &u64)| *was > 0 && self.before.get(leaf).is_none_or(|now| now < was);
        let patience = match outgrown {
            Outgrown::Volume { .. } => UNEXPLAINED,
            _ => usize::from(others || before.iter().any(ended)),
        };
        match self.unexplained > patience || self.looks > MOST_LOOKS {
            true => Blamed::Everybody,
            false if others => Blamed::NoRun,
            false => Blamed::Nobody,
        }
    }
}

impl Launcher {
    /// Tells those who made too much of something, or ends them if nobody follows them.
    pub(super) fn tell_who_outgrew(&mut self, number: u64, outgrown: Option<(Outgrown, u64)>) {
        let Some(live) = self.sandboxes.get_mut(&number) else { return };
        let mut processes = live.groups.leaf_processes();
        let spare = live.spare();
        processes.retain(|(leaf, _)| Some(*leaf) != spare);
        let Some(kept) = &mut live.living else { return };
        let waiting = || self.clients.values().filter(|client| client.waits_for == Some(number));
        let blamed = match &kept.leaves {
            None if outgrown.is_some() => Blamed::Everybody,
            None => Blamed::Nobody,
            Some(_) => {
                let sum = |pids: &Vec<i32>| pids.iter().map(|pid| storage_bytes(*pid).1).sum();
                let now = processes.iter().map(|(leaf, pids)| (*leaf, sum(pids))).collect();
                let found = outgrown.as_ref().map(|(outgrown, grown)| (outgrown, *grown));
                kept.disk.writers.judge(now, found, waiting().any(|client| client.run.is_none()))
            }
        };
        let Some((outgrown, _)) = outgrown else { return };
        let leaves_of = |run| kept.leaves.as_ref().map(|leaves| leaves.of_run(run)).unwrap_or_default();
        let (mut told, mut followed) = (false, Vec::new());
        for client in waiting() {
            let own = client.run.map(leaves_of).unwrap_or_default();
            let is_blamed = match &blamed {
                Blamed::Nobody => false,
                Blamed::NoRun => client.run.is_none(),
                // One that has no leaf may be anybody.
                Blamed::Leaves(leaves) => {
                    client.run.is_some() && (own.is_empty() || own.iter().any(|leaf| leaves.contains(leaf)))
                }
                Blamed::Everybody => true,
            };
            let is_told = is_blamed && wire::send(&client.socket, &Answer::Outgrown(outgrown.clone()), &[]).is_ok();
            told |= is_told;
            followed.extend(own);
        }
        let of_leaves = |wanted: &dyn Fn(&u64) -> bool| {
            let unfollowed = processes.iter().filter(|(leaf, _)| !followed.contains(leaf) && wanted(leaf));
            unfollowed.flat_map(|(_, pids)| pids.clone()).collect::<Vec<i32>>()
        };
        let ended = match &blamed {
            Blamed::Nobody | Blamed::NoRun => Vec::new(),
            Blamed::Leaves(leaves) => of_leaves(&|leaf| leaves.contains(leaf)),
            Blamed::Everybody if told => of_leaves(&|_| true),
            Blamed::Everybody => live.commands(),
        };
        if let Some(live) = self.sandboxes.get(&number) {
            end_processes(live, ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> Outgrown {
        Outgrown::Volume { target: "/data".into(), bytes: 1 }
    }

    #[test]
    fn whoever_wrote_is_blamed_and_nobody_else() {
        let mut writers = Writers::default();
        assert_eq!(writers.judge([(1, 50), (2, 900)].into(), None, false), Blamed::Nobody);
        let now = [(1, 1050), (2, 950), (3, 200)].into();
        assert_eq!(writers.judge(now, Some((&Outgrown::Bytes, 1200)), false), Blamed::Leaves(vec![1, 3]));
    }

    #[test]
    fn what_nobody_wrote_is_everybodys_and_in_a_volume_only_after_a_while() {
        let mut writers = Writers::default();
        assert_eq!(writers.judge([(1, 5)].into(), Some((&Outgrown::Bytes, 1000)), false), Blamed::Everybody);
        let mut writers = Writers::default();
        for _ in 0..UNEXPLAINED {
            assert_eq!(writers.judge([(1, 5)].into(), Some((&volume(), 1000)), false), Blamed::Nobody);
        }
        assert_eq!(writers.judge([(1, 5)].into(), Some((&volume(), 1000)), false), Blamed::Everybody);
        assert_eq!(writers.judge([(1, 5)].into(), None, false), Blamed::Nobody);
        assert_eq!(writers.judge([(1, 5)].into(), Some((&volume(), 1000)), false), Blamed::Nobody);
    }

    #[test]
    fn what_somebody_wrote_who_has_ended_is_nobodys_for_one_look() {
        let mut writers = Writers::default();
        let look = |writers: &mut Writers, now: &[(u64, u64)]| {
            writers.judge(now.iter().copied().collect(), Some((&Outgrown::Bytes, 1000)), false)
        };
        assert_eq!(look(&mut writers, &[(1, 1000), (2, 5)]), Blamed::Leaves(vec![1]));
        assert_eq!(look(&mut writers, &[(1, 0), (2, 5)]), Blamed::Nobody);
        assert_eq!(look(&mut writers, &[(2, 5)]), Blamed::Everybody);
    }

    #[test]
    fn one_who_writes_does_not_hide_another_for_ever() {
        let mut writers = Writers::default();
        for look in 1..=MOST_LOOKS as u64 {
            let blamed = writers.judge([(1, 1000 * look)].into(), Some((&Outgrown::Bytes, 1000)), false);
            assert_eq!(blamed, Blamed::Leaves(vec![1]));
        }
        assert_eq!(writers.judge([(1, 99_000)].into(), Some((&Outgrown::Bytes, 1000)), false), Blamed::Everybody);
    }

    #[test]
    fn files_that_come_from_outside_are_tried_first_where_no_run_wrote() {
        let mut writers = Writers::default();
        assert_eq!(writers.judge([(1, 5)].into(), Some((&Outgrown::Bytes, 1000)), true), Blamed::NoRun);
        assert_eq!(writers.judge([(1, 5)].into(), Some((&Outgrown::Bytes, 1000)), true), Blamed::Everybody);
    }
}
