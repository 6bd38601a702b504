//! Groups for the runs of living sandboxes, as the keeper hands them out.
//!
//! The keeper makes the next leaf ahead and hands its doors to the guest; the guest says which run took which leaf. When
//! somebody asks what a run used, its leaf is read, and what was read is remembered; then it is removed if nothing is left in it. Leaves
//! that nobody asks for are removed when many newer ones are there. A guest that lies can only mix up its own runs, and what it
//! can make the keeper do is bounded: one leaf is handed out at a time, and each must be told of before there is another.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, OwnedFd},
};

use glovebox_core::RunId;
use glovebox_proto::LeafWord;
use rustix::{
    event::epoll,
    net::{RecvFlags, recv},
};

use super::{KIND_BITS, LEAVES, Launcher, live::Live, watch_for};
use crate::{
    cgroup::{Counters, Groups, storage_bytes},
    living::Door,
    plan::Counted,
    sys, wire,
};

/// So many leaves are remembered.
const MOST_LEAVES: usize = 256;
/// Of so many the counters are open.
const MOST_OPEN: usize = 4;
/// So many of the oldest are looked at, at one time, for whether they can go.
const LOOKED_AT: usize = 8;

/// What a keeper knows of the leaves of one sandbox.
pub(super) struct Leaves {
    guest: OwnedFd,
    next: u64,
    /// The one that was handed out and that no run has taken yet.
    pub(super) spare: Option<u64>,
    /// Whether the guest waits for the next one.
    wanted: bool,
    known: VecDeque<Leaf>,
    /// What was counted in leaves that are no longer known.
    forgotten: Counted,
}

/// A leaf that a run took.
struct Leaf {
    number: u64,
    run: String,
    counted: Counted,
    /// What the guest and all that it reaped had read and written before.
    storage_before: Option<(u64, u64)>,
    /// Open while its run is one of a few.
    counters: Option<Counters>,
    is_read: bool,
    /// Whether nobody may fork in it any more. What is refused from then on is our doing.
    is_shut: bool,
    is_gone: bool,
    /// Whether only the interpreter of a session is in it that has nothing to do, as the guest says.
    at_rest: bool,
}

impl Leaf {
    fn read(&mut self, groups: &Groups) {
        if !self.is_gone {
            let counters = self.counters.take();
            self.raise_to(match counters {
                Some(counters) => groups.count_open(&counters),
                None => groups.count_leaf(self.number),
            });
            self.is_read = true;
        }
    }

    fn raise_to(&mut self, mut now: Counted) {
        if self.is_shut {
            now.pids_refused = self.counted.pids_refused;
        }
        self.counted.raise_to(&now);
    }

    /// Lets nobody fork in the leaf any more. What was refused before is read first.
    fn shut(&mut self, groups: &Groups) {
        if !self.is_shut && !self.is_gone {
            self.raise_to(groups.count_leaf(self.number));
            groups.shut_leaf(self.number);
            self.is_shut = true;
        }
    }

    /// Removes the leaf if nothing is in it. Its counters are read once more before: somebody may have looked at them while its run
    /// went on, and from then on nothing counts any more.
    fn put_away(&mut self, groups: &Groups) {
        if !self.is_gone && groups.is_leaf_empty(self.number) {
            self.read(groups);
            self.is_gone = groups.remove_leaf(self.number);
        }
    }
}

impl Leaves {
    /// Takes a guest's word.
    fn hear(&mut self, word: LeafWord, groups: &Groups, guest: i32) {
        if word.leaf >= self.next {
            return;
        }
        match self.known.iter_mut().find(|leaf| leaf.number == word.leaf) {
            Some(leaf) if leaf.run.is_empty() => (leaf.run, leaf.at_rest) = (word.run, word.at_rest),
            Some(leaf) => leaf.at_rest = word.at_rest,
            None if self.spare == Some(word.leaf) && !word.run.is_empty() => {
                self.spare = None;
                let storage_before = Some(storage_bytes(guest));
                let open = self.known.iter().filter(|leaf| leaf.counters.is_some()).count();
                let counters = (open < MOST_OPEN).then(|| groups.open_counters(word.leaf));
                self.add(word.leaf, word.run, storage_before, counters);
            }
            None => {}
        }
        if word.shut
            && let Some(leaf) = self.known.iter_mut().find(|leaf| leaf.number == word.leaf)
        {
            leaf.shut(groups);
        }
        self.forget_old(groups);
    }

    fn add(&mut self, number: u64, run: String, storage_before: Option<(u64, u64)>, counters: Option<Counters>) {
        let counted = Counted::default();
        let (is_read, is_shut, is_gone, at_rest) = (false, false, false, false);
        let leaf = Leaf { number, run, counted, storage_before, counters, is_read, is_shut, is_gone, at_rest };
        self.known.push_back(leaf);
    }

    /// How many interpreters only wait. One beside which something else runs in its leaf does not count: that is at work.
    pub(super) fn at_rest(&self, groups: &Groups) -> usize {
        let resting: Vec<u64> = self.known.iter().filter(|leaf| leaf.at_rest).map(|leaf| leaf.number).collect();
        if resting.is_empty() {
            return 0;
        }
        let alone = |(number, processes): &(u64, Vec<i32>)| resting.contains(number) && processes.len() == 1;
        groups.leaf_processes().iter().filter(|leaf| alone(leaf)).count()
    }

    /// The leaves that a run took.
    pub(super) fn of_run(&self, run: RunId) -> Vec<u64> {
        let run = run.to_string();
        self.known.iter().filter(|leaf| leaf.run == run).map(|leaf| leaf.number).collect()
    }

    /// Removes leaves that were read, and the oldest of too many.
    fn forget_old(&mut self, groups: &Groups) {
        let mut surplus = self.known.len().saturating_sub(MOST_LEAVES);
        let sum = &mut self.forgotten;
        self.known.retain(|leaf| {
            let forgotten = surplus > 0 && leaf.is_gone;
            surplus -= usize::from(forgotten);
            if forgotten {
                sum.add(&leaf.counted);
            }
            !forgotten
        });
        let old = self.known.iter_mut().filter(|leaf| !leaf.is_gone).take(LOOKED_AT);
        for (at, leaf) in old.enumerate() {
            if leaf.is_read || at < surplus {
                leaf.put_away(groups);
            }
        }
    }

    /// Removes the leaves of a run of which was told what was counted, as far as nothing is left in them.
    pub(super) fn put_away(&mut self, run: RunId, groups: &Groups) {
        let run = run.to_string();
        self.known.iter_mut().filter(|leaf| leaf.run == run).for_each(|leaf| leaf.put_away(groups));
    }

    /// Hands out the next leaf, if the guest waits for one.
    fn hand_out(&mut self, groups: &Groups, pids: u64) -> io::Result<()> {
        if !std::mem::take(&mut self.wanted) || self.spare.is_some() {
            return Ok(());
        }
        let number = self.next;
        let doors = groups.make_leaf(number, pids).inspect_err(|_| {
            groups.remove_leaf(number);
        })?;
        let fds: Vec<_> = doors.iter().map(AsFd::as_fd).collect();
        wire::send_bytes(&self.guest, groups.leaf_name(number).as_bytes(), &fds)?;
        (self.next, self.spare) = (number + 1, Some(number));
        Ok(())
    }

    /// What was counted in all leaves that this keeper has known.
    fn count_all(&mut self, groups: &Groups) -> Counted {
        let mut sum = self.forgotten;
        for leaf in &mut self.known {
            if !leaf.is_gone {
                leaf.raise_to(groups.count_leaf(leaf.number));
            }
            sum.add(&leaf.counted);
        }
        sum
    }

    /// What was counted of a run in all its leaves; none if it has had none.
    fn count(&mut self, run: &str, groups: &Groups, guest: i32) -> Option<Counted> {
        let now = storage_bytes(guest);
        let mut sum: Option<Counted> = None;
        for leaf in self.known.iter_mut().filter(|leaf| leaf.run == run) {
            leaf.read(groups);
            let storage =
                leaf.storage_before.map(|(read, written)| (now.0.saturating_sub(read), now.1.saturating_sub(written)));
            match &mut sum {
                None => sum = Some(Counted { storage, ..leaf.counted }),
                Some(sum) => sum.add(&leaf.counted),
            }
        }
        sum
    }
}

impl Launcher {
    /// Connects to the guest of a living sandbox to hand out leaves. Where that fails, runs do without.
    pub(super) fn begin_leaves(&mut self, number: u64) {
        let Some(live) = self.sandboxes.get_mut(&number) else { return };
        let Some(kept) = live.living.as_mut().filter(|kept| kept.record.leaves) else { return };
        let begun = || -> io::Result<OwnedFd> {
            live.groups.allow_leaves()?;
            let guest = sys::put_aside(kept.folder.connect(Door::Leaves)?);
            rustix::io::ioctl_fionbio(&guest, true)?;
            watch_for(&self.events, &guest, number << KIND_BITS | LEAVES)?;
            Ok(guest)
        };
        let Ok(guest) = begun() else { return };
        let there = live.groups.leaf_numbers();
        let next = there.last().map_or(1, |last| last + 1);
        let (known, forgotten) = (VecDeque::new(), Counted::default());
        let mut leaves = Leaves { guest, next, spare: None, wanted: false, known, forgotten };
        // What another keeper handed out; the guest says which run has which.
        there.into_iter().for_each(|number| leaves.add(number, String::new(), None, None));
        kept.leaves = Some(leaves);
    }

    /// Hears what a guest has to say of its leaves.
    pub(super) fn hear_leaves(&mut self, number: u64) {
        let Some(live) = self.sandboxes.get_mut(&number) else { return };
        if listen(live).and_then(|()| hand_out(live)).is_err()
            && let Some(leaves) = live.living.as_mut().and_then(|kept| kept.leaves.take())
        {
            let _ = epoll::delete(&self.events, &leaves.guest);
        }
    }

    /// What was counted of a run in a living sandbox that has a leaf.
    pub(super) fn count_run(live: &mut Live, run: RunId) -> Option<Counted> {
        // What the guest said before whoever asks heard of the end counts.
        let _ = listen(live);
        let guest = live.pid.as_raw_nonzero().get();
        let leaves = live.living.as_mut()?.leaves.as_mut()?;
        leaves.count(&run.to_string(), &live.groups, guest)
    }
}

impl Live {
    /// What was counted so far of the whole sandbox. Kills for memory are counted where the victim was on version 1, and refused
    /// processes where they were asked for on older kernels: in a leaf, and not above it.
    pub(super) fn count_all(&mut self) -> Counted {
        let mut counted = self.count();
        if let Some(leaves) = self.living.as_mut().and_then(|kept| kept.leaves.as_mut()) {
            let mut below = leaves.count_all(&self.groups);
            below.add(&self.groups.count_zygote_leaf());
            counted.memory_kills = counted.memory_kills.max(below.memory_kills);
            counted.pids_refused = counted.pids_refused.max(below.pids_refused);
        }
        counted
    }

    /// What was counted of a run that has no leaf. A kill for memory in the leaf of another run is none of its own.
    pub(super) fn count_beside_leaves(&self) -> Counted {
        let mut counted = self.count();
        if self.living.as_ref().is_some_and(|kept| kept.leaves.is_some()) {
            counted.memory_kills = self.groups.count_zygote_leaf().memory_kills;
        }
        counted
    }
}

/// Takes all that a guest has said of its leaves. An error is the end of the connection.
fn listen(live: &mut Live) -> io::Result<()> {
    let guest = live.pid.as_raw_nonzero().get();
    let Some(kept) = live.living.as_mut() else { return Ok(()) };
    let Some(leaves) = kept.leaves.as_mut() else { return Ok(()) };
    loop {
        let mut bytes = [0; LeafWord::LONGEST];
        let length = match recv(&leaves.guest, &mut bytes[..], RecvFlags::TRUNC) {
            Err(rustix::io::Errno::AGAIN) => return Ok(()),
            Err(rustix::io::Errno::INTR) => continue,
            other => other?.1,
        };
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        let word = bytes.get(..length).filter(|word| !word.is_empty()).ok_or_else(wrong)?;
        let word = LeafWord::from_bytes(word).ok_or_else(wrong)?;
        leaves.wanted |= word.wants;
        // One that says that it has a spare has one that another keeper handed out.
        if word.run.is_empty() && word.leaf > 0 && word.leaf < leaves.next {
            leaves.spare = Some(word.leaf);
            leaves.known.retain(|leaf| leaf.number != word.leaf);
        } else {
            leaves.hear(word, &live.groups, guest);
        }
    }
}

/// Hands out the next leaf of a sandbox, if its guest waits for one.
pub(super) fn hand_out(live: &mut Live) -> io::Result<()> {
    let Some(kept) = live.living.as_mut() else { return Ok(()) };
    let pids = kept.record.plan.pids;
    kept.leaves.as_mut().map_or(Ok(()), |leaves| leaves.hand_out(&live.groups, pids))
}
