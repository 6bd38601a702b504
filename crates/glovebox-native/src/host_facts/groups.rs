//! What the control groups of this host can hold, for this caller.

use super::trials::try_groups;
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
    /// Why the caller can make no groups and put processes into them, if so: root can everywhere, others where a part of
    /// the tree was given to them.
    pub refused: Option<String>,
}

impl GroupFacts {
    /// Whether groups can hold every limit of a sandbox.
    pub fn suffice(&self) -> bool {
        self.refused.is_none() && self.missing.is_empty()
    }
}

/// Looks at the host's control groups, and makes one for a moment. The caller must have one thread.
pub fn group_facts() -> GroupFacts {
    let all = Cgroups::look(true).unwrap_or_default();
    let wanted = [(Controller::Memory, "memory"), (Controller::Pids, "pids"), (Controller::Cpu, "cpu")];
    let (there, missing): (Vec<_>, Vec<_>) = wanted.iter().partition(|(controller, _)| all.has(*controller));
    let names = |list: Vec<&(Controller, &'static str)>| list.into_iter().map(|(_, name)| *name).collect();
    let ours = if Standing::is_root() { all } else { Cgroups::look(false).unwrap_or_default() };
    let refused = match ours.is_complete() {
        true => try_groups(&ours).err().map(|error| error.to_string()),
        false => Some("no part of it can be written".to_owned()),
    };
    GroupFacts { version: mounted_version(), there: names(there), missing: names(missing), refused }
}
