//! What the control groups of this host can hold, for this caller.

use std::path::PathBuf;

use rustix::fs::Access;

use crate::{
    cgroup::{Cgroups, Controller},
    sys,
};

/// What there is of control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFacts {
    /// `v1`, `v2`, `hybrid`, or `none`.
    pub version: &'static str,
    /// Controllers that sandboxes use and that are there: memory, pids, cpu.
    pub there: Vec<&'static str>,
    /// Those that are not.
    pub missing: Vec<&'static str>,
    /// Whether the caller may make groups: root everywhere, others where a part of the tree was given to them.
    pub ours: bool,
}

impl GroupFacts {
    /// Whether groups can hold every limit of a sandbox.
    pub fn suffice(&self) -> bool {
        self.ours && self.missing.is_empty()
    }
}

/// Looks at the host's control groups. Makes none.
pub fn group_facts() -> GroupFacts {
    let cgroups = Cgroups::look(true).unwrap_or_default();
    let wanted = [(Controller::Memory, "memory"), (Controller::Pids, "pids"), (Controller::Cpu, "cpu")];
    let (there, missing): (Vec<_>, Vec<_>) = wanted.iter().partition(|(controller, _)| cgroups.has(*controller));
    let names = |list: Vec<&(Controller, &'static str)>| list.into_iter().map(|(_, name)| *name).collect();
    let ours = if rustix::process::geteuid().is_root() { cgroups.can_be_written() } else { is_delegated() };
    GroupFacts { version: cgroups.version(), there: names(there), missing: names(missing), ours }
}

/// Whether the group that this process is in was given to the caller, with all controllers. Only version 2 can do that.
fn is_delegated() -> bool {
    let table = sys::read_small("/proc/self/cgroup").unwrap_or_default();
    let Some(own) = table.lines().find_map(|line| line.strip_prefix("0::/")) else { return false };
    let Some(mount) = Cgroups::look(true).ok().and_then(|cgroups| cgroups.unified()) else { return false };
    let folder = mount.join(own);
    let controllers = sys::read_small(folder.join("cgroup.controllers")).unwrap_or_default();
    let has = |name: &str| controllers.split_ascii_whitespace().any(|word| word == name);
    let writable = |path: PathBuf| rustix::fs::access(path, Access::WRITE_OK).is_ok();
    writable(folder.join("cgroup.procs")) && writable(folder) && ["memory", "pids", "cpu"].into_iter().all(has)
}
