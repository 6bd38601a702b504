//! Making a sandbox: the host's side.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use glovebox_core::SandboxId;
use glovebox_guest::{
    GuestChannel,
    mounts::{Mapped, write_maps},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Pid,
};

use super::{Launcher, handing::hand_over, live::Live};
use crate::{
    cgroup::{GroupLimits, Groups},
    idmap::{self, SandboxIds},
    inside::{self, Inside},
    mounts::{self, Tree},
    plan::{Failure, GuestReport, Plan, step},
    ranges::Range,
    standing::Standing,
    store,
    sys::{self, Forked, KillOnDrop},
    watch::{self, MemoryWatch},
    wire,
};

/// The connection on which a guest says that it is ready.
pub(super) struct Reporting {
    pub(super) report: OwnedFd,
    /// What the guest was born with. Until it has taken its own descriptors they must stay where they are; its first word, or its
    /// end, says that they no longer need to.
    guest_ends: (OwnedFd, OwnedFd, GuestChannel, Option<OwnedFd>),
}

impl Reporting {
    /// The first word of a guest that is known to have spoken or to have ended; none if it ended without one. Children that do chores
    /// may have its end of the connection too, so that an end of the stream is not waited for.
    pub(super) fn hear(self) -> io::Result<Option<GuestReport>> {
        let Reporting { report, guest_ends: ends } = self;
        drop(ends);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut [PollFd::new(&report, PollFlags::IN)], Some(&now))? == 0 {
            return Ok(None);
        }
        Ok(wire::receive::<GuestReport>(&report)?.map(|(report, _)| report))
    }
}

impl Launcher {
    /// The steps on the host's side. The guest's are in `inside`. The fork comes first, so that the slow steps of the
    /// processes inside go on beside those here.
    pub(super) fn launch(
        &mut self,
        id: SandboxId,
        plan: &Plan,
        groups: &Groups,
        channel: GuestChannel,
        leaves: Option<OwnedFd>,
        range: Option<&Range>,
    ) -> Result<(Live, Reporting, Option<OwnedFd>), Failure> {
        let ids = SandboxIds::new(self.standing, range.map_or(0, |range| range.number), plan);
        let (report, guest_report) = step("make sockets", wire::message_pair())?;
        let (door_sender, doors) = step("make sockets", wire::message_pair())?;
        let forked = step("fork the guest", self.fork_into_network(plan, &ids))?;
        let has_leaves = leaves.is_some();
        let (pid, process) = match forked {
            Forked::Child => inside::main(Inside {
                launcher: guest_report,
                channel,
                leaves,
                doors,
                // That of a living sandbox is the guest's own: it must stay taken when this process is gone.
                range: range.filter(|_| plan.living.is_some()).map(|range| range.lock.as_raw_fd()),
                plan: plan.clone(),
                filter: std::mem::take(&mut self.filter),
                proc_masks: std::mem::take(&mut self.proc_masks),
                standing: self.standing,
                held: self.cgroups.held(),
                cpus: self.cpus,
            }),
            Forked::Parent { pid, pidfd } => (pid, pidfd),
        };
        // Whatever fails from here on must take the new process along.
        let guard = KillOnDrop::new(process);
        // Where the skeleton is still being assembled, the guest must not take that CPU; this one is free meanwhile.
        if !self.skeletons.is_busy() {
            sys::send_elsewhere(pid);
        }
        let (users, user_groups) = ids.maps();
        step("write the id maps", write_maps(pid, &users, &user_groups))?;
        let (trees, mapped, store) = self.make_trees(plan, &ids, pid)?;
        if self.standing != Standing::Root {
            // A change of ids for files has hidden this process, and would hide the next guest from its own launcher.
            step("be seen again", sys::set_dumpable(true))?;
        }
        // A keeper watches by itself. What is there before anything can be written counts as before, so the watch starts before the mounts go in.
        let written = plan.writes_to_host() || plan.written_volumes().next().is_some();
        let watched = written && plan.living.is_none();
        let watching = watched.then(|| step("watch the disk", watch::start_disk_watch(plan, pid))).transpose()?;
        let (watch, disk_watch) = watching.unzip();
        sys::send_elsewhere(pid);
        // With leaves, a child waits for the next run; it is no process of the program's.
        let pids = plan.pids + u64::from(has_leaves);
        let limits = GroupLimits::new(plan.group_memory(), plan.store_memory(), pids, plan.cpus);
        hand_over(&report, &door_sender, &trees, groups, &limits, has_leaves)?;
        let reporting = Reporting { report, guest_ends: (guest_report, doors, channel, leaves) };
        let live = Live {
            id,
            pid,
            process: guard.keep(),
            groups: groups.clone(),
            store,
            mounts: None,
            memory: watch_memory(groups, pid, plan),
            living: None,
            range: None,
            disk_watch,
            mapped,
            host_network: plan.host_network,
            user: plan.uid,
            pending: None,
            exited: false,
            ending: Vec::new(),
            destroy: false,
            zygote: None,
        };
        Ok((live, reporting, watch))
    }

    /// The range of host ids for a sandbox, where it is one of root. A living one that was there before has files that belong to
    /// the range it had.
    pub(super) fn take_range(&mut self, id: SandboxId, plan: &Plan, groups: &Groups) -> Result<Option<Range>, Failure> {
        let Some(ranges) = &mut self.ranges else { return Ok(None) };
        let taken = match &plan.living {
            None => ranges.take_any(&self.cgroups),
            Some(life) => {
                let before = store::owner_range(&life.store).map(|(_, number)| number);
                ranges.take(before.unwrap_or_else(|| idmap::usual_range(id)), groups.name(), &self.cgroups)
            }
        };
        step("take a range of ids", taken).map(Some)
    }

    /// Forks the guest in the network that it will have.
    fn fork_into_network(&mut self, plan: &Plan, ids: &SandboxIds) -> io::Result<Forked> {
        if self.standing != Standing::Root {
            // An ordinary user's launcher could not come back from another network, so the guest makes its own.
            let network = if plan.host_network { 0 } else { libc::CLONE_NEWNET as u64 };
            return sys::fork_with(of_guest() | network);
        }
        if plan.host_network {
            return sys::fork_charged_to(ids.account(), of_guest());
        }
        self.networks.enter()?;
        match sys::fork_charged_to(ids.account(), of_guest()) {
            Ok(Forked::Child) => Ok(Forked::Child),
            Ok(Forked::Parent { pid, pidfd }) => {
                let guard = KillOnDrop::new(pidfd);
                self.networks.leave()?;
                Ok(Forked::Parent { pid, pidfd: guard.keep() })
            }
            Err(error) => {
                self.networks.leave()?;
                Err(error)
            }
        }
    }

    /// All trees that the guest attaches, the root and the store first; whether their owners could be shifted; and the
    /// store once more, to be kept.
    fn make_trees(
        &mut self,
        plan: &Plan,
        ids: &SandboxIds,
        guest: Pid,
    ) -> Result<(Vec<Tree>, Mapped, OwnedFd), Failure> {
        let (root, over, mut mapped) = self.skeletons.lend(plan, guest)?;
        let store = store::make(plan, ids)?;
        let overlay = plan.workspace.as_ref().filter(|_| plan.workspace_overlay);
        let (store, overlay) = match overlay {
            Some(workspace) => mounts::overlay(workspace, ids, plan, store).map(|(tree, store)| (store, Some(tree)))?,
            None => (store, None),
        };
        let kept = step("keep the store", store.try_clone())?;
        let tree = |target: &str, tree| Tree { target: target.into(), tree };
        let mut trees = vec![tree("/", root), tree(store::PLACE, store)];
        trees.extend(over);
        trees.extend(overlay);
        let direct = plan.workspace.iter().filter(|_| !plan.workspace_overlay);
        for mount in direct.chain(&plan.mounts) {
            let (tree, how) = mounts::planned(mount, ids, plan)?;
            mapped = mapped.and(how);
            trees.push(tree);
        }
        Ok((trees, mapped, kept))
    }
}

/// The watch over the memory of a sandbox. Where a group holds all of it, there is none.
pub(super) fn watch_memory(groups: &Groups, guest: Pid, plan: &Plan) -> Option<MemoryWatch> {
    match groups.memory_files() {
        // What a living sandbox writes is not in memory, so the group's own limit is enough.
        Some(_) if plan.living.is_some() => None,
        Some(files) => Some(MemoryWatch::over_group(files, plan.memory)),
        None => Some(MemoryWatch::over_processes(guest, plan.memory)),
    }
}

/// How a guest is forked: with new namespaces, besides its network; the zygote makes the one for control groups. And with the
/// descriptors of this process in common until its first step takes those that are its own: a keeper may have thousands, which
/// would be copied and closed again.
fn of_guest() -> u64 {
    let namespaces =
        libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    (namespaces | libc::CLONE_FILES) as u64
}
