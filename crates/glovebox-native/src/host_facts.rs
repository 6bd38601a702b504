//! What this host is and what it can do, read without changing anything.
//!
//! `glovebox doctor` shows all of it. The backend uses [`hint`] for its own errors, so that a host which refuses to make
//! sandboxes is called by its name there too. [`known`] has the table of such hosts, [`trials`] tries what no file tells,
//! [`groups`] looks at control groups.

mod groups;
mod known;
mod trials;

pub use crate::standing::{Standing, has_ids_for_sandboxes, lacking, may_give_ids};
pub use groups::{GroupFacts, group_facts};
pub use known::{Container, KNOWN_HOSTS, KnownHost, Signs};
pub use trials::{Obstacle, Step, try_id_mapped_mount, try_user_namespace};

use std::{fs, path::Path};

use crate::{
    standing::{self, PROGRAMS, first_range},
    sys,
};

/// The first kernel that has all that the native backend uses: mounts of overlays inside user namespaces, id-mapped
/// mounts and `mount_setattr`.
pub const OLDEST_KERNEL: (u32, u32) = (5, 12);

/// The host of [`KNOWN_HOSTS`] that this is, if it is one.
pub fn known_host() -> Option<&'static KnownHost> {
    known::recognise(&Signs::read())
}

/// What to do when this host refused something that a sandbox needs: the remedy of a known host, else where to look.
pub fn hint() -> String {
    match known_host() {
        Some(host) => format!("this is {}: {}", host.name, host.remedy),
        None => "glovebox doctor says what this host lacks".to_owned(),
    }
}

/// The same, with the way to run that is left where Landlock is there.
pub(crate) fn hint_with_tier() -> String {
    match landlock_version() {
        0 => hint(),
        _ => format!("{}; or --isolation landlock, which runs here without namespaces and isolates less", hint()),
    }
}

/// The kernel's release, and its first two numbers.
pub fn kernel() -> (String, (u32, u32)) {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let numbers = kernel_numbers(&release);
    (release, numbers)
}

fn kernel_numbers(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The version of Landlock; 0 when the kernel has none or does not use it.
pub fn landlock_version() -> i64 {
    sys::landlock_version()
}

/// Whether a file in memory takes extended attributes of users.
pub fn tmpfs_has_user_xattrs() -> bool {
    sys::tmpfs_has_user_xattrs()
}

/// Whether the kernel takes filters of system calls.
pub fn has_seccomp() -> bool {
    let actions = sys::read_small("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    actions.split_ascii_whitespace().any(|action| action == "errno")
}

/// Whether the kernel knows a file system, or has a module of it to load.
pub fn knows_file_system(name: &str) -> bool {
    let listed = sys::read_small("/proc/filesystems").unwrap_or_default();
    let module = Path::new("/lib/modules").join(kernel().0).join("modules.dep");
    let file = format!("/{name}.ko");
    listed.lines().any(|line| line.split_ascii_whitespace().next_back() == Some(name))
        || fs::read_to_string(module).is_ok_and(|modules| modules.contains(&file))
}

/// What a user has of ids to give to sandboxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubIds {
    /// Whether `/etc/subuid` has enough of them.
    pub users: bool,
    /// Whether `/etc/subgid` has enough of them.
    pub groups: bool,
    /// Whether `newuidmap` and `newgidmap`, which hand them out, are there.
    pub tools: bool,
}

impl SubIds {
    /// Those of a user, whose name may not be known.
    pub fn of(uid: u32, name: Option<&str>) -> Self {
        let has = |table| first_range(&fs::read_to_string(table).unwrap_or_default(), name, uid).is_some();
        let tools = PROGRAMS.iter().all(|program| Path::new(program).exists());
        SubIds { users: has("/etc/subuid"), groups: has("/etc/subgid"), tools }
    }

    /// Whether sandboxes can use them.
    pub fn suffice(self) -> bool {
        self.tools && self.users && self.groups
    }
}

/// The name of a user, from the host's own list of accounts.
pub fn user_name(uid: u32) -> Option<String> {
    let accounts = fs::read_to_string("/etc/passwd").ok()?;
    let account = accounts.lines().find(|line| line.split(':').nth(2) == Some(&uid.to_string()))?;
    account.split(':').next().map(str::to_owned)
}

/// On what terms the caller would make sandboxes, where the host lets them.
pub fn standing() -> Standing {
    match Standing::is_root() {
        true => Standing::Root,
        false if standing::SubIds::of_caller().is_some() => Standing::SubIds,
        false => Standing::OneId,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_release_gives_its_first_two_numbers() {
        assert_eq!(kernel_numbers("6.18.44-fc-v490"), (6, 18));
        assert_eq!(kernel_numbers("5.15.167.4-microsoft-standard-WSL2"), (5, 15));
        assert_eq!(kernel_numbers("strange"), (0, 0));
    }
}
