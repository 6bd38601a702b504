//! Giving up what is no longer needed.

use std::io;

use glovebox_guest::own;
use rustix::{
    process::{Resource, Rlimit, setrlimit},
    thread::CapabilitySet,
};

use crate::{
    plan::{Failure, Plan, step},
    standing::Standing,
    sys,
};

/// Processes of root inside: the guest and the zygote, and nothing else. Commands are forked by the zygote, which does not
/// have this limit.
const GUEST_PROCESSES: u64 = 2;

/// Becomes root inside, where there is one. A process that shares its only id with the commands keeps it, and has root's
/// rights for as long as it does not give them up.
pub(super) fn become_root(standing: Standing) -> io::Result<()> {
    match standing {
        Standing::Root | Standing::SubIds => sys::become_root(),
        Standing::OneId => Ok(()),
    }
}

/// The guest keeps the right to signal commands. Its file accesses become those of the commands, so that it can never
/// be talked into opening what they could not.
pub(super) fn drop_for_guest(plan: &Plan) -> Result<(), Failure> {
    let forks = Rlimit { current: Some(GUEST_PROCESSES), maximum: Some(GUEST_PROCESSES) };
    step("limit the guest's processes", setrlimit(Resource::Nproc, forks))?;
    step("take the commands' id for files", sys::set_file_ids(plan.uid, plan.gid))?;
    own::drop_capabilities(CapabilitySet::KILL)?;
    // Changes of ids have cleared this, so it is set once more.
    step("die with the launcher", sys::die_with_parent())
}

/// The zygote keeps the right to become the commands' user.
pub(super) fn drop_for_zygote() -> Result<(), Failure> {
    Ok(own::drop_capabilities(CapabilitySet::SETUID | CapabilitySet::SETGID)?)
}
