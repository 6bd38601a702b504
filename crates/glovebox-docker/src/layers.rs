//! Which layers a container has: from what the kernel says on the host, and what the guest found before anything hostile ran.

use std::fs;

use glovebox_core::{Isolation, Layer, Network, SandboxSpec, Tier};
use glovebox_proto::container::Ready;

use crate::counted::Groups;

/// Sorts the layers of a sandbox into those that are there and those that are not.
pub(crate) fn look(spec: &SandboxSpec, ready: &Ready, (pid, groups): (i32, &Groups)) -> Isolation {
    let is_own = |name: &str| {
        let seen = |pid: &str| Some(fs::read_link(format!("/proc/{pid}/ns/{name}")).ok()?.to_str()?.to_owned());
        let said = || ready.namespaces.iter().find(|(known, _)| known == name).map(|(_, link)| link.clone());
        // What the guest says is asked for where the host does not let this user look. A kernel of its own has other names for them.
        let (theirs, ours) = (seen(&pid.to_string()).or_else(said), seen("self"));
        theirs.is_some() && ours.is_some() && theirs != ours
    };
    Isolation::from_checks(Tier::Namespaces, |layer| match layer {
        Layer::Cgroup => groups.hold_memory(),
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
