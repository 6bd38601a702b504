//! The Landlock rules of a sandbox without namespaces: an allow list, where one with a root of its own needs none.
//!
//! Two domains, one within the other. That of the guest may also look at all of /proc, to find the processes of its
//! sandbox, and make terminals. That of the commands may not, and keeps signals and abstract sockets inside. Being within
//! the guest's it gives the guest power over the commands, and never the other way.

use std::{io, path::Path};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::folder::Folder;
use crate::{host_image::HostImage, plan::Plan};

/// The newest Landlock that this code was written for; older kernels give what they have.
const LANDLOCK: ABI = ABI::V6;

/// Whose domain it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    Guest,
    Commands,
}

/// Devices that are harmless.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Where the guest makes terminals.
const TERMINALS: [&str; 2] = ["/dev/ptmx", "/dev/pts"];

/// Files of /etc that other sandboxes have in a version of their own. Here they are the host's; every account of a host
/// may read them.
const ACCOUNTS: [&str; 3] = ["/etc/passwd", "/etc/group", "/etc/nsswitch.conf"];

/// What programs need to find hosts.
const RESOLVER: [&str; 4] = ["/etc/hosts", "/etc/resolv.conf", "/etc/host.conf", "/etc/gai.conf"];

/// Files of /proc that tell of the machine and of no process.
const MACHINE: [&str; 22] = [
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/loadavg",
    "/proc/uptime",
    "/proc/version",
    "/proc/filesystems",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/ostype",
    "/proc/sys/kernel/version",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/kernel/threads-max",
    "/proc/sys/kernel/cap_last_cap",
    "/proc/sys/kernel/ngroups_max",
    "/proc/sys/kernel/random",
    "/proc/sys/fs/file-max",
    "/proc/sys/fs/nr_open",
    "/proc/sys/fs/pipe-max-size",
    "/proc/sys/net/core/somaxconn",
    "/proc/sys/vm/max_map_count",
    "/proc/sys/vm/mmap_min_addr",
    "/proc/sys/vm/overcommit_memory",
];

/// Restricts this process and all that descend from it.
pub(crate) fn restrict(domain: Domain, folder: &Folder, plan: &Plan) -> io::Result<()> {
    let enforced = || -> Result<RulesetStatus, Box<dyn std::error::Error + Send + Sync>> {
        let mut ruleset = Ruleset::default().handle_access(AccessFs::from_all(LANDLOCK))?;
        if domain == Domain::Commands {
            ruleset = ruleset.scope(Scope::Signal | Scope::AbstractUnixSocket)?;
            if !plan.host_network {
                ruleset = ruleset.handle_access(AccessNet::from_all(LANDLOCK))?;
            }
        }
        let rules = allow(ruleset.create()?, domain, folder, plan)?;
        Ok(rules.restrict_self()?.ruleset)
    };
    match enforced() {
        Ok(RulesetStatus::NotEnforced) => Err(rustix::io::Errno::OPNOTSUPP.into()),
        Ok(_) => Ok(()),
        Err(error) => Err(io::Error::other(error)),
    }
}

type Rules = Result<RulesetCreated, landlock::RulesetError>;

fn allow(mut rules: RulesetCreated, domain: Domain, folder: &Folder, plan: &Plan) -> Rules {
    let all = AccessFs::from_all(LANDLOCK);
    let read = AccessFs::from_read(LANDLOCK);
    let look = AccessFs::ReadFile | AccessFs::ReadDir;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let image = HostImage::detect();
    let shown = image.mounts.iter().map(|(path, _)| path).chain(image.files.iter().map(|(path, _)| path));
    for path in shown {
        rules = add(rules, path, read)?;
    }
    for path in DEVICES {
        rules = add(rules, path, device)?;
    }
    let resolver = if plan.host_network { &RESOLVER[..] } else { &[] };
    for path in ACCOUNTS.iter().chain(&MACHINE).chain(resolver) {
        rules = add(rules, path, look)?;
    }
    rules = add(rules, &folder.below("workspace"), read)?;
    for path in folder.written() {
        rules = add(rules, &path, all)?;
    }
    let workspace = plan.workspace.iter().filter(|_| !plan.workspace_overlay);
    for mount in workspace.chain(&plan.mounts) {
        rules = add(rules, &mount.source, if mount.read_only { read } else { all })?;
    }
    if domain == Domain::Guest {
        rules = add(rules, "/proc", look)?;
        for path in TERMINALS {
            rules = add(rules, path, device)?;
        }
    }
    Ok(rules)
}

/// Adds a rule, with as much of it as there can be for a file. What this host does not have needs none.
fn add(rules: RulesetCreated, path: &str, access: BitFlags<AccessFs>) -> Rules {
    let Ok(place) = PathFd::new(path) else { return Ok(rules) };
    let access = if Path::new(path).is_dir() { access } else { access & AccessFs::from_file(LANDLOCK) };
    rules.add_rule(PathBeneath::new(place, access))
}
