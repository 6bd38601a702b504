//! What this host is and what it can do, read without changing anything.
//!
//! `glovebox doctor` shows all of it. The backend uses [`hint`] for its own errors, so that a host which refuses to make
//! sandboxes is called by its name there too. [`known`] has the table of such hosts, [`trials`] tries what no file tells,
//! [`groups`] looks at control groups.

mod groups;
mod known;
mod trials;

pub use groups::{GroupFacts, group_facts};
pub use known::{Container, KNOWN_HOSTS, KnownHost, Signs};
pub use trials::{Obstacle, Step, try_id_mapped_mount, try_user_namespace};

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::sys;

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

/// How many ids a user may give to sandboxes, at one piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubIds {
    /// In `/etc/subuid`.
    pub users: u64,
    /// In `/etc/subgid`.
    pub groups: u64,
    /// Whether `newuidmap` and `newgidmap`, which hand them out, are there.
    pub tools: bool,
}

impl SubIds {
    /// Those of a user, whose name may not be known.
    pub fn of(uid: u32, name: Option<&str>) -> Self {
        let count = |file| sub_ids(&fs::read_to_string(file).unwrap_or_default(), uid, name);
        let is_there = |tool: &&str| Path::new("/usr/bin").join(tool).exists() || Path::new("/bin").join(tool).exists();
        let tools = ["newuidmap", "newgidmap"].iter().all(is_there);
        SubIds { users: count("/etc/subuid"), groups: count("/etc/subgid"), tools }
    }

    /// Whether they are enough for a sandbox.
    pub fn suffice(self) -> bool {
        let range = u64::from(crate::idmap::RANGE);
        self.tools && self.users >= range && self.groups >= range
    }
}

/// The largest range of a user in a table with lines `NAME:FIRST:COUNT`.
fn sub_ids(table: &str, uid: u32, name: Option<&str>) -> u64 {
    let number = uid.to_string();
    let is_ours = |who: &str| Some(who) == name || who == number;
    let ranges = table.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let ours = ranges.filter(|fields| fields.len() == 3 && is_ours(fields[0]));
    ours.map(|fields| fields[2].trim().parse().unwrap_or(0)).max().unwrap_or(0)
}

/// The name of a user, from the host's own list of accounts.
pub fn user_name(uid: u32) -> Option<String> {
    let accounts = fs::read_to_string("/etc/passwd").ok()?;
    let account = accounts.lines().find(|line| line.split(':').nth(2) == Some(&uid.to_string()))?;
    account.split(':').next().map(str::to_owned)
}

/// The folder of what does not outlive the host: root's, the one that the session gives, or one in /tmp.
pub fn runtime_folder() -> PathBuf {
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return "/run/glovebox".into();
    }
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
    session.map_or_else(|| format!("/tmp/glovebox-{}", uid.as_raw()).into(), |folder| folder.join("glovebox"))
}

/// How the native backend works for a caller on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Root: every layer, an id range of its own for each sandbox, id-mapped mounts.
    Root,
    /// An ordinary user with sub-ids: guest and commands have different ids.
    SubIds,
    /// An ordinary user without: guest and commands share the caller's id.
    OneId,
    /// No user namespace, so no sandbox.
    Nothing,
}

impl Level {
    /// The level for a caller, from what was found out about the host. A root who may not administrate, as in a container,
    /// is an ordinary user.
    pub fn of(root: bool, namespaces_work: bool, sub_ids: SubIds) -> Self {
        match (namespaces_work, root) {
            (false, _) => Level::Nothing,
            (true, true) => Level::Root,
            (true, false) if sub_ids.suffice() => Level::SubIds,
            (true, false) => Level::OneId,
        }
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

    #[test]
    fn the_largest_range_of_a_user_is_found_by_name_and_number() {
        let table = "ann:100000:65536\nbob:165536:65536\n1000:300000:10\nann:1:x\nann:1\n";
        assert_eq!(sub_ids(table, 1000, Some("ann")), 65536);
        assert_eq!(sub_ids(table, 1000, None), 10);
        assert_eq!(sub_ids(table, 1001, Some("bob")), 65536);
        assert_eq!(sub_ids(table, 5, None), 0);
    }

    #[test]
    fn the_level_follows_from_namespaces_and_sub_ids() {
        let enough = SubIds { users: 65536, groups: 65536, tools: true };
        assert_eq!(Level::of(false, true, enough), Level::SubIds);
        assert_eq!(Level::of(false, true, SubIds { tools: false, ..enough }), Level::OneId);
        assert_eq!(Level::of(false, true, SubIds { groups: 10, ..enough }), Level::OneId);
        assert_eq!(Level::of(true, true, SubIds::default()), Level::Root);
        assert_eq!(Level::of(true, false, enough), Level::Nothing);
    }
}
