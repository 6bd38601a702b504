//! What the control groups of this host can hold, for this caller.

use crate::{
    cgroup::{Cgroups, Controller, mounted_version},
    standing::Standing,
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
    let all = Cgroups::look(true).unwrap_or_default();
    let wanted = [(Controller::Memory, "memory"), (Controller::Pids, "pids"), (Controller::Cpu, "cpu")];
    let (there, missing): (Vec<_>, Vec<_>) = wanted.iter().partition(|(controller, _)| all.has(*controller));
    let names = |list: Vec<&(Controller, &'static str)>| list.into_iter().map(|(_, name)| *name).collect();
    let given = || Cgroups::look(false).is_ok_and(|given| given.is_complete());
    let ours = if Standing::is_root() { all.can_be_written() } else { given() };
    GroupFacts { version: mounted_version(), there: names(there), missing: names(missing), ours }
}
