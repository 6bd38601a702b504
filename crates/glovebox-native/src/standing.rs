//! What a launcher may do on this host, and how that of an ordinary user becomes able to make sandboxes.
//!
//! Theory of operation. Root makes sandboxes as it is. The launcher of an ordinary user first enters a user namespace of
//! its own, in which it is root: there it may mount, make further namespaces and write their id maps. Id 0 there is the
//! caller. Where the caller has sub-ids, the ids 1 to 65536 there are these, written by the setuid program `newuidmap`;
//! otherwise there is no other id at all.
//!
//! A root who lacks one of the capabilities that a root needs, or the ids, as most roots of containers do, is an ordinary user
//! here. Most of them may still give ids away: they have ids that no account uses as their sub-ids, and commands that are
//! shown no folder of theirs get one of these in place of root's own.
//!
//! ```text
//! host          launcher's namespace      inside a sandbox
//! caller        0                         1000, the user of commands
//! sub-id n      n + 1                     every other id, root included
//! ```
//!
//! Without sub-ids guest and commands share the one id there is. The guest is then protected by being PID 1 and not
//! dumpable, and the layer `separate_guest` is missing.

use std::{fs, io, process::Command, sync::OnceLock};

use glovebox_guest::mounts::{FIRST, RANGE};
use rustix::{
    process::{getegid, geteuid, getpid},
    thread::{CapabilitySet, capabilities},
};

use crate::{
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
        // Asked several times by a command that lasts three milliseconds. What a launcher becomes later does not change it: an
        // ordinary user is root of a namespace then, which has not all ids.
        static IS_ROOT: OnceLock<bool> = OnceLock::new();
        *IS_ROOT.get_or_init(|| geteuid().is_root() && lacking().is_empty() && has_ids_for_sandboxes())
    }

    /// Takes the best standing there is. For an ordinary user this process is in another user namespace afterwards.
    pub(crate) fn take() -> Result<Self, Failure> {
        if Self::is_root() {
            return Ok(Standing::Root);
        }
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        let mapped = match SubIds::of_caller() {
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

/// Whether this process is a root who makes sandboxes as an ordinary user, and cannot even do that: the kernel wants this
/// capability of whoever gives the id 0 to a namespace.
pub(crate) fn is_powerless_root() -> bool {
    geteuid().is_root() && !Standing::is_root() && !holds(CapabilitySet::SETFCAP)
}

/// Whether this process is a root who is treated as an ordinary user and may give ids to a namespace without help.
pub fn may_give_ids() -> bool {
    // The last one is for reading what commands with such an id wrote.
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::SETFCAP | CapabilitySet::DAC_OVERRIDE;
    geteuid().is_root() && holds(needed) && has_ids_for_sandboxes()
}

/// Whether commands of the caller would be root outside, whom the kernel holds to no number of processes.
pub(crate) fn caller_is_root_outside() -> bool {
    geteuid().is_root() && !Standing::is_root() && has_ids_for_sandboxes()
}

fn holds(wanted: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(wanted))
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

/// The first of a user's sub-ids, for users and for groups, and who maps them.
pub(crate) struct SubIds {
    first_uid: u32,
    first_gid: u32,
    mapper: Mapper,
}

/// Who may map ids that are not the caller's own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mapper {
    /// The setuid programs.
    Programs,
    /// The caller, by its capabilities.
    Itself,
}

impl SubIds {
    /// The sub-ids of the caller, if there are enough of them and somebody who maps them.
    pub(crate) fn of_caller() -> Option<Self> {
        if may_give_ids() {
            let (first_uid, first_gid) = (FIRST, FIRST);
            return Some(SubIds { first_uid, first_gid, mapper: Mapper::Itself });
        }
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let account =
            passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| is_id(fields, 2, uid));
        let name = account.as_ref().and_then(|fields| fields.first().copied());
        // The program for groups serves nobody whose group is not that of the account.
        let served = account.as_ref().is_none_or(|fields| is_id(fields, 3, gid));
        let first = |table: &str| first_range(&fs::read_to_string(table).unwrap_or_default(), name, uid);
        let programs = PROGRAMS.iter().all(|program| fs::metadata(program).is_ok());
        let (first_uid, first_gid) = (first("/etc/subuid")?, first("/etc/subgid")?);
        (programs && served).then_some(SubIds { first_uid, first_gid, mapper: Mapper::Programs })
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
            // Groups come first: theirs is the map that may be refused, and then none must be written.
            let mapped = go
                && self.write_map("gid", &launcher, gid, self.first_gid)
                && self.write_map("uid", &launcher, uid, self.first_uid);
            let _ = wire::send(&there, &mapped, &[]);
            sys::exit_now(0)
        }
        drop(there);
        sys::unshare(libc::CLONE_NEWUSER)?;
        wire::send(&here, &(), &[])?;
        Ok(wire::receive::<bool>(&here)?.is_some_and(|(mapped, _)| mapped))
    }

    /// Writes one of a process's maps: the caller is 0 there, and the sub-ids follow.
    fn write_map(&self, kind: &str, process: &str, caller: u32, first: u32) -> bool {
        let numbers = [0, caller, 1, 1, first, RANGE].map(|number| number.to_string());
        match self.mapper {
            Mapper::Itself => {
                let lines = format!("{}\n{}\n", numbers[..3].join(" "), numbers[3..].join(" "));
                fs::write(format!("/proc/{process}/{kind}_map"), lines).is_ok()
            }
            Mapper::Programs => {
                let program = PROGRAMS[usize::from(kind == "gid")];
                let status = Command::new(program).arg(process).args(numbers).env_clear().status();
                status.is_ok_and(|status| status.success())
            }
        }
    }
}

fn is_id(account: &[&str], field: usize, id: u32) -> bool {
    account.get(field).is_some_and(|text| text.parse() == Ok(id))
}

/// Programs that may write a map with more ids than the caller's own: for users, for groups.
pub(crate) const PROGRAMS: [&str; 2] = ["/usr/bin/newuidmap", "/usr/bin/newgidmap"];

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
