//! Leaves: below the commands' group of a living sandbox lie one for the zygote and one for each run.
//!
//! A leaf has no limits but that of processes; those of the commands' group hold all leaves together. It is there for what the
//! kernel counts in it, and to tell the processes of one run from those of another. Version 2 gives controllers to groups
//! below one only when no process is in that group itself; the zygote therefore enters the commands' group first, which
//! becomes the root of its view, and then its own leaf.

use std::{
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};

use super::{CONTROLLERS, Cgroups, Controller, Groups, Hierarchy, Side, Version, make_group};
use crate::{plan::Counted, standing::Standing, sys};

/// The zygote's leaf.
const ZYGOTE: &str = "zygote";

impl Cgroups {
    /// Whether runs of a living sandbox can have leaves. Version 1 lets an ordinary user move no process of another id, and
    /// with sub-ids the zygote has one.
    pub(crate) fn has_leaves(&self, standing: Standing) -> bool {
        let may_move = standing != Standing::SubIds || self.hierarchies.iter().all(|h| h.version == Version::Two);
        may_move && self.has(Controller::Memory) && self.has(Controller::Pids)
    }
}

impl Hierarchy {
    /// Whether leaves are of use here.
    fn has_leaves(&self) -> bool {
        let counts = [Controller::Memory, Controller::Pids, Controller::CpuAccount];
        self.version == Version::Two || self.controllers.iter().any(|controller| counts.contains(controller))
    }
}

impl Groups {
    fn leafed(&self) -> impl Iterator<Item = &Hierarchy> {
        self.hierarchies.iter().filter(|hierarchy| hierarchy.has_leaves())
    }

    fn leaf(&self, hierarchy: &Hierarchy, name: &str) -> PathBuf {
        self.path(hierarchy, Side::Run).join(name)
    }

    /// Makes the zygote's leaf and opens its doors.
    pub(crate) fn make_zygote_leaf(&self) -> io::Result<Vec<OwnedFd>> {
        for hierarchy in self.leafed() {
            // Kernels before 5.11 add up what is below a group only where they are told to.
            if hierarchy.version == Version::One && hierarchy.controllers.contains(&Controller::Memory) {
                let _ = fs::write(self.path(hierarchy, Side::Run).join("memory.use_hierarchy"), "1");
            }
        }
        self.make_leaf_named(ZYGOTE)
    }

    /// Gives leaves their controllers. The zygote must be in its own by now.
    pub(crate) fn allow_leaves(&self) -> io::Result<()> {
        for hierarchy in self.hierarchies.iter().filter(|h| h.version == Version::Two) {
            let names = CONTROLLERS.iter().filter(|(controller, _)| hierarchy.controllers.contains(controller));
            let wanted: Vec<String> = names.map(|(_, name)| format!("+{name}")).collect();
            fs::write(self.path(hierarchy, Side::Run).join("cgroup.subtree_control"), wanted.join(" "))?;
        }
        Ok(())
    }

    /// Makes the leaf of a run and opens its doors. It has the limit of processes too, since newer kernels count a refusal
    /// where the limit is.
    pub(crate) fn make_leaf(&self, number: u64, pids: u64) -> io::Result<Vec<OwnedFd>> {
        let doors = self.make_leaf_named(&number.to_string())?;
        self.limit_leaf(number, pids)?;
        Ok(doors)
    }

    /// Lets nobody fork in the leaf of a run any more.
    pub(crate) fn shut_leaf(&self, number: u64) {
        // One that is not there needs no limit.
        let _ = self.limit_leaf(number, 0);
    }

    fn limit_leaf(&self, number: u64, pids: u64) -> io::Result<()> {
        let file = self.file_in(&number.to_string(), Controller::Pids, "pids.max", "pids.max");
        file.map_or(Ok(()), |file| fs::write(file, pids.to_string()))
    }

    fn make_leaf_named(&self, name: &str) -> io::Result<Vec<OwnedFd>> {
        let open = |hierarchy: &Hierarchy| {
            let leaf = self.leaf(hierarchy, name);
            make_group(&leaf)?;
            let file = if hierarchy.version == Version::One { "tasks" } else { "cgroup.procs" };
            Ok(rustix::fs::open(leaf.join(file), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?)
        };
        self.leafed().map(open).collect()
    }

    /// The end of a leaf's path in every hierarchy.
    pub(crate) fn leaf_name(&self, number: u64) -> String {
        format!("{}/{number}", self.group_name(Side::Run))
    }

    /// What was counted in the leaf of a run.
    pub(crate) fn count_leaf(&self, number: u64) -> Counted {
        self.count_in(&number.to_string())
    }

    /// Whether no process is in the leaf of a run, or it is not there any more.
    pub(crate) fn is_leaf_empty(&self, number: u64) -> bool {
        let file = self.file_in(&number.to_string(), Controller::Pids, "pids.current", "pids.current");
        let processes = file.and_then(|path| sys::read_small(path).ok());
        processes.is_none_or(|text| text.trim() == "0")
    }

    /// What was counted in the zygote's leaf, where those are who were started without one of their own.
    pub(crate) fn count_zygote_leaf(&self) -> Counted {
        self.count_in(ZYGOTE)
    }

    /// Removes the leaf of a run, if no process is in it. Says whether nothing of it is left.
    pub(crate) fn remove_leaf(&self, number: u64) -> bool {
        let name = number.to_string();
        // Each is tried, whatever became of the others.
        let left = self.leafed().filter(|hierarchy| !is_removed(&self.leaf(hierarchy, &name))).count();
        left == 0
    }

    /// The numbers of the leaves that are there, the oldest first.
    pub(crate) fn leaf_numbers(&self) -> Vec<u64> {
        let Some(hierarchy) = self.leafed().next() else { return Vec::new() };
        let names = below(&self.path(hierarchy, Side::Run)).into_iter();
        let mut numbers: Vec<u64> = names.filter_map(|path| path.file_name()?.to_str()?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// The processes of the commands' side, those of one leaf left out; host ids.
    pub(crate) fn processes_but(&self, spare: Option<u64>) -> Vec<i32> {
        let Some(hierarchy) = self.leafed().next() else { return Vec::new() };
        let group = self.path(hierarchy, Side::Run);
        let left_out = spare.map(|number| group.join(number.to_string()));
        let all = below(&group).into_iter().chain([group]);
        let read = |group: PathBuf| sys::read_small(group.join("cgroup.procs")).unwrap_or_default();
        let texts = all.filter(|group| Some(group) != left_out.as_ref()).map(read);
        texts.flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<i32>>()).collect()
    }

    /// The processes in each leaf of a run; host ids.
    pub(crate) fn leaf_processes(&self) -> Vec<(u64, Vec<i32>)> {
        let Some(hierarchy) = self.leafed().next() else { return Vec::new() };
        let read = |number: u64| {
            let file = self.leaf(hierarchy, &number.to_string()).join("cgroup.procs");
            sys::read_small(file).unwrap_or_default().lines().filter_map(|line| line.parse().ok()).collect()
        };
        self.leaf_numbers().into_iter().map(|number| (number, read(number))).collect()
    }

    /// Removes all leaves. They must be empty.
    pub(super) fn remove_leaves(&self) {
        for hierarchy in self.leafed() {
            for leaf in below(&self.path(hierarchy, Side::Run)) {
                let _ = fs::remove_dir(leaf);
            }
        }
    }
}

/// The groups directly below one.
fn below(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

fn is_removed(group: &Path) -> bool {
    fs::remove_dir(group).is_ok() || !group.exists()
}
