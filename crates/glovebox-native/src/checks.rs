//! Which layers are really there: read from the kernel by the host, after the guest is ready.
//!
//! Only what the host cannot see is taken from the processes inside, which say it before anything hostile has run. The
//! host's own look may come a moment after the first command has started, unless a layer was asked for: what it reads
//! of guest and zygote is the kernel's word, and nothing that a command could still change.

use std::{
    fs,
    path::{Path, PathBuf},
};

use glovebox_core::Layer;
use glovebox_guest::{mounts::Mapped, own};
use rustix::process::Pid;

use crate::{
    cgroup::{Groups, Side},
    plan::{OwnView, Report},
    standing::Standing,
    sys,
};

/// What a sandbox was asked to be, as far as its layers depend on it.
pub(crate) struct Settings {
    pub(crate) mapped: Mapped,
    pub(crate) host_network: bool,
    pub(crate) user: u32,
    pub(crate) standing: Standing,
}

/// Checks every layer of a new sandbox. Says which are there, and the zygote's process id.
pub(crate) fn present(
    guest: Pid,
    host: &HostNamespaces,
    groups: &Groups,
    settings: &Settings,
    report: &Report,
) -> (Vec<Layer>, Option<i32>) {
    let Settings { mapped, host_network, user, standing } = *settings;
    // Every command descends from the zygote and inherits what it has.
    let found = groups.processes(Side::Run).into_iter().find_map(zygote_status);
    let found = found.or_else(|| zygote_of(guest).and_then(zygote_status));
    let guest = guest.as_raw_nonzero().get();
    let (found, status) = found.map_or((None, String::new()), |(pid, status)| (Some(pid), status));
    let in_groups = found.is_some_and(|pid| groups.hold(Side::Run, pid)) && groups.hold(Side::Guest, guest);
    let zygote = found.unwrap_or(guest);
    let users = sys::read_small(format!("/proc/{guest}/uid_map")).unwrap_or_default();
    // An ordinary user may not look at the namespaces of a process that hides itself; it says itself where it is.
    let is_own = |name: &str, pid: i32| match &report.own {
        Some(own) => host.differs_from(name, own.namespaces.iter().find(|(known, _)| known == name).map(|(_, n)| n)),
        None => host.differs(name, pid),
    };
    let present = Layer::ALL
        .iter()
        .copied()
        .filter(|layer| match layer {
            Layer::Cgroup => in_groups,
            Layer::UserNs => is_own("user", zygote) && (standing != Standing::Root || is_unprivileged(&users)),
            Layer::IdmappedMounts => mapped == Mapped::All,
            Layer::MountNs => is_own("mnt", zygote),
            Layer::PidNs => is_own("pid", zygote),
            Layer::NetworkNs => !host_network && is_own("net", zygote) && is_own("net", guest),
            Layer::IpcNs => is_own("ipc", zygote),
            Layer::UtsNs => is_own("uts", zygote),
            Layer::CgroupNs => is_own("cgroup", zygote),
            // Our /dev is part of the root that the guest moved into; without a namespace there is none.
            Layer::PrivateDev => report.masked_proc,
            Layer::MaskedProc => report.masked_proc,
            Layer::Keyring => report.keyring,
            Layer::NoCapabilities => {
                sys::status_field(&status, "CapBnd").is_some_and(|set| set.bytes().all(|b| b == b'0'))
            }
            Layer::NoNewPrivs => sys::status_field(&status, "NoNewPrivs") == Some("1"),
            Layer::Seccomp => sys::status_field(&status, "Seccomp") == Some("2"),
            Layer::Landlock => report.landlock,
            Layer::Rlimits => report.rlimits,
            Layer::CleanStart => match &report.own {
                Some(own) => own.clean_environment,
                None => has_nothing_of_the_caller(guest),
            },
            Layer::SeparateGuest => standing != Standing::OneId && user != 0,
            Layer::UnprivilegedUser => user != 0,
            _ => false,
        })
        .collect();
    (present, found)
}

/// What this process sees of itself, for a launcher that may not look.
pub(crate) fn own_view() -> OwnView {
    let namespaces = own::namespaces().into_iter();
    OwnView {
        namespaces: namespaces.map(|(name, link)| (name.to_owned(), link.to_string_lossy().into_owned())).collect(),
        clean_environment: own::has_clean_environment(),
        pid: rustix::process::getpid().as_raw_nonzero().get(),
    }
}

/// The zygote's process id: it is the guest's first child.
pub(crate) fn zygote_of(guest: Pid) -> Option<i32> {
    let guest = guest.as_raw_nonzero();
    let children = sys::read_small(format!("/proc/{guest}/task/{guest}/children")).ok()?;
    children.split_ascii_whitespace().filter_map(|word| word.parse().ok()).find(|pid| zygote_status(*pid).is_some())
}

/// A process's status, if it is the zygote: the one whose id inside is 2.
fn zygote_status(pid: i32) -> Option<(i32, String)> {
    let status = sys::read_small(format!("/proc/{pid}/status")).ok()?;
    let inside = sys::status_field(&status, "NSpid")?.split_ascii_whitespace().last()?;
    (inside == "2").then_some((pid, status))
}

/// The namespaces of the host, for comparison.
pub(crate) struct HostNamespaces(Vec<(&'static str, PathBuf)>);

impl HostNamespaces {
    /// Those of this process.
    pub(crate) fn own() -> Self {
        HostNamespaces(own::namespaces())
    }

    fn differs(&self, name: &str, pid: i32) -> bool {
        self.differs_from(name, fs::read_link(format!("/proc/{pid}/ns/{name}")).ok().as_ref())
    }

    fn differs_from(&self, name: &str, theirs: Option<impl AsRef<Path>>) -> bool {
        let ours = self.0.iter().find(|(known, _)| *known == name).map(|(_, link)| link);
        matches!((ours, theirs), (Some(ours), Some(theirs)) if ours.as_path() != theirs.as_ref())
    }
}

/// Whether a map gives root inside an id that means nothing outside.
fn is_unprivileged(map: &str) -> bool {
    let mut lines = map.lines().map(|line| line.split_ascii_whitespace().map(|n| n.parse::<u64>().unwrap_or(0)));
    lines.all(|mut numbers| numbers.nth(1).is_some_and(|outside| outside >= 65536)) && !map.is_empty()
}

/// Whether the memory in which the kernel finds a process's environment is wiped.
fn has_nothing_of_the_caller(pid: i32) -> bool {
    sys::read_small(format!("/proc/{pid}/environ")).is_ok_and(|text| text.bytes().all(|b| b == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_onto_ordinary_ids_is_not_unprivileged() {
        assert!(is_unprivileged("         0  536870912      65536\n"));
        assert!(!is_unprivileged("         0          0 4294967295\n"));
        assert!(!is_unprivileged(""));
    }
}
