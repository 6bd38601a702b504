//! What a launcher may do on this host, and how that of an ordinary user becomes able to make sandboxes.
//!
//! Theory of operation. Root makes sandboxes as it is. The launcher of an ordinary user first enters a user namespace of
//! its own, in which it is root: there it may mount, make further namespaces and write their id maps. A root who lacks one
//! of the capabilities that a root needs, or the ids, as most roots of containers do, is an ordinary user here. Id 0 there is the
//! caller. Where the caller has sub-ids, the ids 1 to 65536 there are these, written by the setuid program `newuidmap`;
//! otherwise there is no other id at all.
//!
//! ```text
//! host          launcher's namespace      inside a sandbox
//! caller        0                         1000, the user of commands
//! sub-id n      n + 1                     every other id, root included
//! ```
//!
//! Without sub-ids guest and commands share the one id there is. The guest is then protected by being PID 1 and not
//! dumpable, and the layer `separate_guest` is missing.

use std::{fs, io, process::Command};

use rustix::{
    process::{getegid, geteuid, getpid},
    thread::{CapabilitySet, capabilities},
};

use crate::{
    idmap::RANGE,
    plan::{Failure, step},
    sys::{self, Forked},
    wire,
};

/// On what terms a launcher makes sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// As root of the host.
    Root,
    /// As an ordinary user who has sub-ids.
    SubIds,
    /// As an ordinary user who has no id but their own.
    OneId,
}

impl Standing {
    /// Whether this process is root with all that root needs for sandboxes.
    pub(crate) fn is_root() -> bool {
        geteuid().is_root() && lacking().is_empty() && has_ids_for_sandboxes()
    }

    /// Takes the best standing there is. For an ordinary user this process is in another user namespace afterwards.
    pub(crate) fn take() -> Result<Self, Failure> {
        if Self::is_root() {
            return Ok(Standing::Root);
        }
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        let mapped = match SubIds::of(uid) {
            Some(ids) => step("ask for sub-ids", ids.enter(uid, gid))?,
            None => {
                step(NEW_NAMESPACE, sys::unshare(libc::CLONE_NEWUSER))?;
                false
            }
        };
        if mapped {
            return Ok(Standing::SubIds);
        }
        step("map the caller's id", map_one(uid, gid))?;
        Ok(Standing::OneId)
    }
}

/// What a root needs to make sandboxes as root.
const NEEDED: [(CapabilitySet, &str); 8] = [
    (CapabilitySet::CHOWN, "CHOWN"),
    (CapabilitySet::DAC_OVERRIDE, "DAC_OVERRIDE"),
    (CapabilitySet::KILL, "KILL"),
    (CapabilitySet::SETGID, "SETGID"),
    (CapabilitySet::SETUID, "SETUID"),
    (CapabilitySet::NET_ADMIN, "NET_ADMIN"),
    (CapabilitySet::SYS_PTRACE, "SYS_PTRACE"),
    (CapabilitySet::SYS_ADMIN, "SYS_ADMIN"),
];

/// Those capabilities that a root needs and this process does not have, without `CAP_`.
pub fn lacking() -> Vec<&'static str> {
    let held = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    NEEDED.iter().filter(|(capability, _)| !held.contains(*capability)).map(|(_, name)| *name).collect()
}

/// Whether the ids that root gives to sandboxes exist here. In a user namespace of somebody else, as rootless containers
/// have it, most do not.
pub fn has_ids_for_sandboxes() -> bool {
    ["/proc/self/uid_map", "/proc/self/gid_map"].iter().all(|map| {
        let map = sys::read_small(map).unwrap_or_default();
        map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
    })
}

/// The step that hosts refuse which forbid user namespaces.
pub(crate) const NEW_NAMESPACE: &str = "make a user namespace";

/// Maps nothing but the caller, which every user may do for a namespace of their own.
fn map_one(uid: u32, gid: u32) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// The first of a user's sub-ids, for users and for groups.
pub(crate) struct SubIds {
    first_uid: u32,
    first_gid: u32,
}

impl SubIds {
    /// The sub-ids of a user, if there are enough of them and the programs that map them.
    pub(crate) fn of(uid: u32) -> Option<Self> {
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let is_user = |line: &&str| line.split(':').nth(2).is_some_and(|id| id.parse() == Ok(uid));
        let name = passwd.lines().find(is_user).and_then(|line| line.split(':').next());
        let first = |table: &str| first_range(&fs::read_to_string(table).unwrap_or_default(), name, uid);
        let programs = PROGRAMS.iter().all(|program| fs::metadata(program).is_ok());
        Some(SubIds { first_uid: first("/etc/subuid")?, first_gid: first("/etc/subgid")? }).filter(|_| programs)
    }

    /// Enters a new user namespace and has it mapped from outside. Says whether that could be done; when not, nothing is
    /// mapped.
    fn enter(&self, uid: u32, gid: u32) -> io::Result<bool> {
        let launcher = getpid().as_raw_nonzero().to_string();
        let (here, there) = wire::message_pair()?;
        if let Forked::Child = sys::fork_with(0)? {
            drop(here);
            sys::wait_for_children_again();
            // The namespace is there once the launcher speaks; its end of the socket closes if there is none.
            let go = matches!(wire::receive::<()>(&there), Ok(Some(_)));
            let mapped = go
                && write_map(PROGRAMS[0], &launcher, uid, self.first_uid)
                && write_map(PROGRAMS[1], &launcher, gid, self.first_gid);
            let _ = wire::send(&there, &mapped, &[]);
            sys::exit_now(0)
        }
        drop(there);
        sys::unshare(libc::CLONE_NEWUSER)?;
        wire::send(&here, &(), &[])?;
        Ok(wire::receive::<bool>(&here)?.is_some_and(|(mapped, _)| mapped))
    }
}

/// Programs that may write a map with more ids than the caller's own: for users, for groups.
pub(crate) const PROGRAMS: [&str; 2] = ["/usr/bin/newuidmap", "/usr/bin/newgidmap"];

fn write_map(program: &str, process: &str, caller: u32, first: u32) -> bool {
    let numbers = [0, caller, 1, 1, first, RANGE].map(|number| number.to_string());
    Command::new(program).arg(process).args(numbers).env_clear().status().is_ok_and(|status| status.success())
}

/// The first id of a large enough range of a user in a table of `name:first:count` lines.
pub(crate) fn first_range(table: &str, name: Option<&str>, uid: u32) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut fields = line.trim().split(':');
        let owner = fields.next()?;
        let (first, count) = (fields.next()?.parse::<u32>().ok()?, fields.next()?.parse::<u32>().ok()?);
        let ours = Some(owner) == name || owner.parse() == Ok(uid);
        (ours && count >= RANGE && first.checked_add(count).is_some()).then_some(first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_found_by_name_or_number_and_must_be_large_enough() {
        let table = "root:1:65536\nanna:100000:65536\nbert:165536:1000\n1003:300000:70000\nbroken\n";
        assert_eq!(first_range(table, Some("anna"), 1000), Some(100_000));
        assert_eq!(first_range(table, Some("bert"), 1001), None);
        assert_eq!(first_range(table, None, 1003), Some(300_000));
        assert_eq!(first_range(table, Some("carl"), 1002), None);
    }
}
