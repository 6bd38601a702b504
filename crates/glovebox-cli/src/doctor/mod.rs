//! `glovebox doctor`: what this host can do, and how to get the rest. Looking changes nothing; [`fix`] does.

mod docker;
pub(crate) mod fix;
mod stores;

use glovebox_core::Language;
use glovebox_engine::Toolchains;
use glovebox_native::host_facts::{self, GroupFacts, OLDEST_KERNEL, Obstacle, Signs, Standing, Step, SubIds};

use crate::{
    backends::{Kind, of_catalog},
    check::{Check, Status},
};
pub(crate) use docker::docker;
pub(crate) use stores::stores;

const HOST: &str = "host";
const LAYERS: &str = "layers";
const BACKENDS: &str = "backends";
const LANGUAGES: &str = "languages";

/// What was found out about the host and the caller.
pub(crate) struct Facts {
    signs: Signs,
    uid: u32,
    name: Option<String>,
    sub_ids: SubIds,
    groups: GroupFacts,
    obstacle: Option<Obstacle>,
    id_mapped: Option<String>,
    /// Capabilities that a root needs and the caller does not have.
    lacking: Vec<&'static str>,
}

impl Facts {
    /// Looks at everything. The caller must have one thread, because some things are tried in a forked process.
    pub(crate) fn gather() -> Self {
        let signs = Signs::read();
        let uid = rustix::process::geteuid().as_raw();
        let name = host_facts::user_name(uid);
        Facts {
            sub_ids: SubIds::of(uid, name.as_deref()),
            groups: host_facts::group_facts(),
            obstacle: host_facts::try_user_namespace().err(),
            id_mapped: host_facts::try_id_mapped_mount("/usr").err().map(|error| error.to_string()),
            lacking: host_facts::lacking(),
            signs,
            uid,
            name,
        }
    }

    /// Whether the caller is a root who makes sandboxes as root.
    fn is_root(&self) -> bool {
        host_facts::standing() == Standing::Root
    }

    /// Whether the host lets this caller do what a sandbox needs.
    fn is_let(&self) -> bool {
        self.obstacle.is_none()
    }

    fn standing(&self) -> Option<Standing> {
        self.is_let().then(host_facts::standing)
    }

    pub(crate) fn caller(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.uid.to_string())
    }
}

/// All checks but those of stores and of Docker, in the order of the table. Those of the host are needed for the backend native.
pub(crate) fn checks(facts: &Facts, kind: Kind) -> Vec<Check> {
    let mut checks = vec![
        kernel(),
        known_host(facts),
        caller(facts),
        capabilities(facts),
        namespaces(facts),
        sub_ids(facts),
        groups(facts),
        seccomp(),
        landlock(),
        without_namespaces(facts),
        id_mapped_mounts(facts),
        overlay(),
        extended_attributes(),
    ];
    match kind {
        Kind::Native => checks.extend(Language::ALL.iter().map(language)),
        Kind::Docker => {
            checks = checks.into_iter().map(Check::optional).collect();
            checks.extend(Language::ALL.iter().map(language_of_image));
        }
    }
    checks
}

fn kernel() -> Check {
    let (release, numbers) = host_facts::kernel();
    let (major, minor) = OLDEST_KERNEL;
    let status = if numbers >= OLDEST_KERNEL { Status::Ok } else { Status::Missing };
    let check = Check::new(HOST, "kernel", status, release);
    check.fix(format!("install a kernel of version {major}.{minor} or newer"))
}

fn known_host(facts: &Facts) -> Check {
    let Some(host) = host_facts::known_host().filter(|_| !facts.is_let()) else {
        let what = match facts.signs.container {
            Some(container) => format!("a container ({container:?}) with the options that sandboxes need"),
            None if facts.signs.version.to_ascii_lowercase().contains("microsoft") => "WSL 2".to_owned(),
            None => "none of the kinds that are known to refuse sandboxes".to_owned(),
        };
        return Check::new(HOST, "kind of host", Status::Ok, what);
    };
    Check::new(HOST, "kind of host", Status::Missing, host.name).fix(host.remedy)
}

fn caller(facts: &Facts) -> Check {
    let caller = facts.caller();
    let (status, what) = match facts.standing() {
        Some(Standing::Root) => (Status::Ok, "every sandbox has an id range of its own"),
        Some(Standing::SubIds) => (Status::Ok, "sandboxes use your sub-ids; guest and commands have different ids"),
        Some(Standing::OneId) => (Status::Degraded, "guest and commands share your own id"),
        None => (Status::Missing, "no sandbox can be made"),
    };
    let check = Check::new(HOST, "sandboxes of this user", status, format!("{caller}: {what}"));
    match facts.standing() {
        None => check.fix("see what is missing below"),
        Some(Standing::OneId) if facts.uid == 0 => check.fix("see capabilities below"),
        _ => check.fix(give_sub_ids(&caller)),
    }
}

/// A root who lacks something is what most containers have.
fn capabilities(facts: &Facts) -> Check {
    let lacking = &facts.lacking;
    let check = |status, detail: String| Check::new(HOST, "capabilities", status, detail);
    if facts.uid != 0 {
        return check(Status::Ok, "an ordinary user needs none".into());
    }
    if !lacking.is_empty() {
        let detail = format!("this root lacks {} and is treated as an ordinary user", lacking.join(", "));
        if host_facts::may_give_ids() {
            return check(Status::Ok, detail);
        }
        return check(Status::Degraded, detail)
            .fix(format!("run the container with --cap-add {}", lacking.join(" --cap-add ")));
    }
    if !host_facts::has_ids_for_sandboxes() {
        let detail = "this root is that of a user namespace, which has few ids, and is treated as an ordinary user";
        return check(Status::Degraded, detail.into());
    }
    check(Status::Ok, "all that a root needs for sandboxes".into())
}

fn give_sub_ids(user: &str) -> String {
    format!("sudo glovebox doctor --fix --user {user}")
}

fn namespaces(facts: &Facts) -> Check {
    match &facts.obstacle {
        None => {
            Check::new(LAYERS, "namespaces", Status::Ok, "user, mount, process, network, IPC and name; with a /proc")
        }
        Some(obstacle) => {
            let fix = match (host_facts::known_host(), obstacle.step) {
                (Some(host), _) => host.remedy,
                (None, Step::Proc) => {
                    "docker run --security-opt systempaths=unconfined (parts of /proc are covered here)"
                }
                (None, Step::Mount) => {
                    "docker run --security-opt apparmor=unconfined (a security module refuses mounts)"
                }
                (None, Step::Namespaces | Step::Ids) => "run glovebox as root, or on a host with user namespaces",
            };
            Check::new(LAYERS, "namespaces", Status::Missing, obstacle.to_string()).fix(fix)
        }
    }
}

fn sub_ids(facts: &Facts) -> Check {
    if facts.is_root() {
        return Check::new(LAYERS, "sub-ids", Status::Ok, "root needs none").optional();
    }
    if host_facts::may_give_ids() {
        return Check::new(LAYERS, "sub-ids", Status::Ok, "this root may give some to itself").optional();
    }
    let detail = match facts.sub_ids {
        SubIds { tools: false, .. } => "newuidmap and newgidmap are not installed",
        SubIds { users: false, .. } => "/etc/subuid has no 65536 ids for this user",
        SubIds { groups: false, .. } => "/etc/subgid has no 65536 ids for this user",
        SubIds { .. } if host_facts::standing() != Standing::SubIds => {
            return Check::new(
                LAYERS,
                "sub-ids",
                Status::Missing,
                "newgidmap refuses a group that is not your account's",
            )
            .fix("newgrp (without a name it gives you the group of your account)")
            .optional();
        }
        SubIds { .. } => "65536 users and groups",
    };
    let status = if facts.sub_ids.suffice() { Status::Ok } else { Status::Missing };
    let check = Check::new(LAYERS, "sub-ids", status, detail).optional();
    // A root without rights is helped by capabilities, not by sub-ids.
    if facts.uid == 0 { check } else { check.fix(give_sub_ids(&facts.caller())) }
}

fn groups(facts: &Facts) -> Check {
    let GroupFacts { version, there, missing, refused } = &facts.groups;
    let check = |status, detail: String| Check::new(LAYERS, "control groups", status, detail).optional();
    if facts.groups.suffice() {
        return check(Status::Ok, format!("{version}: {}", there.join(", ")));
    }
    let without = "limits are held by each process's own and by a watcher, CPU time by nothing";
    let why = refused.as_deref().unwrap_or_default();
    match missing.as_slice() {
        [_, ..] if *version == "none" => {
            check(Status::Degraded, format!("none is mounted; {without}")).fix("mount -t cgroup2 none /sys/fs/cgroup")
        }
        [_, ..] => check(Status::Degraded, format!("{version} without {}; {without}", missing.join(", ")))
            .fix("boot with cgroup_enable=memory systemd.unified_cgroup_hierarchy=1"),
        [] if facts.uid == 0 => {
            check(Status::Degraded, format!("{version}, but no group can be made ({why}); {without}"))
                .fix("run the container with -v /sys/fs/cgroup:/sys/fs/cgroup")
        }
        [] => check(Status::Degraded, format!("{version}, but no group can be made for you ({why}); {without}"))
            .fix("systemd-run --user --scope -p Delegate=yes glovebox run …"),
    }
}

fn seccomp() -> Check {
    match host_facts::has_seccomp() {
        true => Check::new(LAYERS, "seccomp", Status::Ok, ""),
        false => Check::new(LAYERS, "seccomp", Status::Missing, "this kernel takes no filters of system calls")
            .fix("use a kernel with CONFIG_SECCOMP_FILTER=y; every distribution's own has it"),
    }
}

fn landlock() -> Check {
    let check = match host_facts::landlock_version() {
        0 => Check::new(LAYERS, "landlock", Status::Degraded, "this kernel does not use it"),
        version => Check::new(LAYERS, "landlock", Status::Ok, format!("version {version}")),
    };
    check.fix("boot with lsm=landlock, followed by what `cat /sys/kernel/security/lsm` shows").optional()
}

/// What is left where namespaces cannot be had.
fn without_namespaces(facts: &Facts) -> Check {
    let check = |status, detail: String| Check::new(LAYERS, "runs without namespaces", status, detail).optional();
    match (host_facts::landlock_version(), facts.is_let()) {
        (0, _) => check(Status::Missing, "--isolation landlock needs Landlock, which this kernel does not use".into())
            .fix("boot with lsm=landlock, followed by what `cat /sys/kernel/security/lsm` shows"),
        (version, true) => {
            check(Status::Ok, format!("not needed here; --isolation landlock would find version {version}"))
        }
        (version, false) => check(
            Status::Ok,
            format!(
                "--isolation landlock runs here with Landlock version {version}, seccomp and resource limits alone"
            ),
        ),
    }
}

fn id_mapped_mounts(facts: &Facts) -> Check {
    let check = |status, detail: String| Check::new(LAYERS, "id-mapped mounts", status, detail).optional();
    match &facts.id_mapped {
        _ if !facts.is_root() => check(Status::Ok, "root's; not used for you".into()),
        None => check(Status::Ok, "the file system of /usr takes them".into()),
        Some(why) => check(Status::Degraded, format!("the file system of /usr does not take them: {why}"))
            .fix("keep /usr on ext4, btrfs or xfs; the overlay that a container's files lie on takes none"),
    }
}

fn overlay() -> Check {
    let status = if host_facts::knows_file_system("overlay") { Status::Ok } else { Status::Missing };
    let detail = if status == Status::Ok { "" } else { "workspaces whose writes stay inside need it" };
    Check::new(LAYERS, "overlay file system", status, detail).fix("sudo modprobe overlay").optional()
}

fn extended_attributes() -> Check {
    let check = match host_facts::tmpfs_has_user_xattrs() {
        true => Check::new(LAYERS, "extended attributes inside", Status::Ok, ""),
        false => Check::new(LAYERS, "extended attributes inside", Status::Degraded, "files in memory take none here"),
    };
    check.fix("use Linux 6.6 or newer").optional()
}

/// A language is there when something of this machine runs it. Nobody needs all of them.
fn language(language: &'static Language) -> Check {
    match Toolchains::default().find(language) {
        Ok(tool) => Check::new(LANGUAGES, language.name, Status::Ok, tool.path.display().to_string()).optional(),
        Err(error) => {
            let install = language.ways.first().map_or("", |way| way.install);
            let detail = error.message.split(" (").next().unwrap_or_default().to_owned();
            Check::new(LANGUAGES, language.name, Status::Missing, detail).fix(install).optional()
        }
    }
}

/// With an engine a language is that of an image, whatever the host has.
fn language_of_image(language: &'static Language) -> Check {
    let check = match of_catalog(language.name) {
        Some(image) => Check::new(LANGUAGES, language.name, Status::Ok, format!("in the image {image}")),
        None => Check::new(LANGUAGES, language.name, Status::Missing, "no image of the catalog is for it")
            .fix("name one that has it with --image"),
    };
    check.optional()
}

/// The last line of the table.
pub(crate) fn summary(checks: &[Check]) -> String {
    let missing = checks.iter().filter(|check| check.needed && check.status == Status::Missing).count();
    let weaker = checks.iter().any(|check| check.name == "runs without namespaces" && check.status == Status::Ok);
    match missing {
        _ if checks.iter().any(|check| check.group == BACKENDS && check.needed && check.status == Status::Missing) => {
            "no sandbox can be made with --backend docker until what is missing above is there; --backend native needs no Docker"
                .to_owned()
        }
        0 => "sandboxes can be made here; glovebox prove tries to break out of them".to_owned(),
        _ if weaker => "no sandbox with namespaces can be made here until what is missing above is there; \
                        --isolation landlock makes weaker ones"
            .to_owned(),
        _ => "no sandbox can be made here until what is missing above is there".to_owned(),
    }
}
