//! Which layers a container has: from what the kernel says on the host, and what the guest found before anything hostile ran.

use std::fs;

use glovebox_core::{Isolation, Layer, Network, SandboxSpec, Tier};
use glovebox_proto::container::Ready;

/// The namespaces that a kernel begins with, by the numbers that they have on every machine.
const FIRST: [(&str, u32); 6] = [
    ("ipc", 0xEFFF_FFFF),
    ("uts", 0xEFFF_FFFE),
    ("user", 0xEFFF_FFFD),
    ("pid", 0xEFFF_FFFC),
    ("cgroup", 0xEFFF_FFFB),
    ("mnt", 0xEFFF_FFF8),
];

/// The link of a sandbox's namespace.
fn theirs<'a>(ready: &'a Ready, name: &str) -> Option<&'a str> {
    ready.namespaces.iter().find(|(known, _)| known == name).map(|(_, link)| link.as_str())
}

/// Whether a namespace of a process on the same machine is another than ours.
pub(crate) fn is_not_ours(ready: &Ready, own_kernel: bool, pid: i32, name: &str) -> bool {
    let seen = |pid: &str| Some(fs::read_link(format!("/proc/{pid}/ns/{name}")).ok()?.to_str()?.to_owned());
    let said = || theirs(ready, name).filter(|_| !own_kernel).map(str::to_owned);
    // What the guest says is asked for where the host does not let this user look. A kernel of its own has other names for them.
    let (theirs, ours) = (seen(&pid.to_string()).or_else(said), seen("self"));
    theirs.is_some() && ours.is_some() && theirs != ours
}

/// Whether a namespace is another than the first of its machine, which may not be this one.
pub(crate) fn is_not_the_first(ready: &Ready, name: &str) -> bool {
    let first = FIRST.iter().find(|(known, _)| *known == name).map(|(_, number)| format!("{name}:[{number}]"));
    theirs(ready, name).is_some_and(|link| first.is_some_and(|first| link != first))
}

/// Sorts the layers of a sandbox into those that are there and those that are not.
pub(crate) fn look(spec: &SandboxSpec, ready: &Ready, is_own: impl Fn(&str) -> bool, holds_memory: bool) -> Isolation {
    Isolation::from_checks(Tier::Namespaces, |layer| match layer {
        Layer::Cgroup => holds_memory,
        Layer::UserNs => is_own("user"),
        Layer::MountNs => is_own("mnt"),
        Layer::PidNs => is_own("pid"),
        Layer::NetworkNs => spec.network == Network::None && is_own("net"),
        Layer::IpcNs => is_own("ipc"),
        Layer::UtsNs => is_own("uts"),
        Layer::CgroupNs => is_own("cgroup"),
        // Docker gives every container a /dev of its own, unless it is privileged, which ours are not.
        Layer::PrivateDev => is_own("mnt"),
        Layer::MaskedProc => ready.masked_proc,
        Layer::Keyring => ready.keyring,
        Layer::NoCapabilities => ready.no_capabilities,
        Layer::NoNewPrivs => ready.no_new_privs,
        Layer::Seccomp => ready.seccomp,
        Layer::Landlock => ready.landlock,
        Layer::Rlimits => ready.rlimits,
        // The guest is a program of its own, started by Docker with nothing of the caller's.
        Layer::CleanStart => true,
        Layer::SeparateGuest | Layer::UnprivilegedUser => spec.user.uid != 0,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_namespaces_of_a_machine_are_nobodys_own() {
        // Those of this process are the first, unless the tests run in a container.
        let of = |links: &[(&str, &str)]| Ready {
            namespaces: links.iter().map(|(name, link)| ((*name).to_owned(), (*link).to_owned())).collect(),
            ..Ready::default()
        };
        let ready = of(&[("pid", "pid:[4026531836]"), ("ipc", "ipc:[4026532999]"), ("net", "net:[4026532998]")]);
        assert!(!is_not_the_first(&ready, "pid"));
        assert!(is_not_the_first(&ready, "ipc"));
        assert!(!is_not_the_first(&ready, "net"), "the first network has no number of its own");
        assert!(!is_not_the_first(&ready, "uts"), "what is not told is not there");
    }
}
