//! From the checked description of a sandbox to that of a container, and what is in force then.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
};

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount, MountType,
    MountVolumeOptions, ResourcesUlimits,
};
use glovebox_core::{
    Access, Enforcement, Error, ErrorCode, HOME_DIR, LimitKind, LimitsInForce, MountKind, Network, Result, SandboxId,
    SandboxSpec, User, WORKING_DIR, WORKSPACE_DIR, WorkspaceMode,
};
use glovebox_proto::container::{CHANNEL, Door, GUEST, MountPlace, PLAN, Plan};

use crate::{
    attaching::{self, Attacher},
    counted::OWN_PROCESSES,
    disk::{written_elsewhere, written_in_place, written_volumes},
    gvisor::Runtimes,
    image_volumes,
    images::FoundImage,
    mapped::Root,
    owner,
    told::OF_A_BRIDGE,
};

/// What guest and zygote need to change user, to signal commands, to give them their folders, and to let go of the rest.
const CAPABILITIES: [&str; 5] = ["SETUID", "SETGID", "KILL", "CHOWN", "SETPCAP"];

/// What guest and zygote take of the container's memory, on top of what programs may use.
const OWN_MEMORY: u64 = 16 << 20;

/// No `/dev/shm` and no `/tmp` is larger than this, nor than the disk limit.
const LARGEST_TMP: u64 = 1 << 30;

/// What tells of the host or could change it, and is covered: what Docker covers by itself, and all of `/sys`.
const MASKED: [&str; 13] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sysrq-trigger",
    "/sys/firmware",
    "/sys",
];

/// Where a container has what is in volumes of an engine on another machine; nobody but root inside can look there.
const OWN: &str = "/.glovebox/own";
const GIVEN: &str = "/.glovebox/given";
/// What no such container is without: the last file that was written.
pub(crate) const COMPLETE: &str = "/.glovebox/complete";

/// The loopback of a network without anything else has both kinds of addresses.
const SYSCTLS: [(&str, &str); 1] = [("net.ipv6.conf.all.disable_ipv6", "0")];

/// The name of the machine inside.
const HOST_NAME: &str = "glovebox";

/// Names of a machine that nobody else is on.
const HOSTS: &str = "127.0.0.1 localhost glovebox\n::1 localhost glovebox\n";

/// What Docker has.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) memory: u64,
    pub(crate) cpus: f64,
    /// Whether this process can look at what is in its volumes, and at whatever else programs write.
    pub(crate) can_be_watched: bool,
    /// Whether it is Podman.
    pub(crate) is_podman: bool,
    /// Root in its containers, where that is another one than this machine's.
    pub(crate) root: Option<Root>,
    /// Whether it gives containers a namespace of control groups.
    pub(crate) group_namespaces: bool,
    pub(crate) runtimes: Runtimes,
}

/// Files of ours that every container has.
#[derive(Clone, Debug)]
pub(crate) struct OwnFiles {
    /// The guest's program.
    pub(crate) guest: PathBuf,
    /// Those of `/etc`, each with its place there.
    pub(crate) of_etc: Vec<(PathBuf, &'static str)>,
    /// A folder and a file with nothing in them, for places of mounts, where we attach them.
    pub(crate) empty: Option<(PathBuf, PathBuf)>,
    /// The volume of the engine that holds them, where it sees no folder of ours.
    pub(crate) volume: Option<String>,
}

/// Where a program looks for who answers to names.
const RESOLVER: &str = "/etc/resolv.conf";

/// What `/etc` says in every sandbox, whatever its image and its engine have there: who there is inside, and that there is nobody else.
/// Names, texts and places.
pub(crate) fn texts_of_etc(user: User) -> [(&'static str, String, &'static str); 4] {
    [
        ("passwd", user.passwd(), "/etc/passwd"),
        ("group", user.group(), "/etc/group"),
        ("hosts", HOSTS.to_owned(), "/etc/hosts"),
        ("resolv.conf", String::new(), RESOLVER),
    ]
}

/// How the host reaches the guest.
#[derive(Clone, Debug)]
pub(crate) enum Entrance {
    /// Through a folder that both see.
    Folder(PathBuf),
    /// Through a bridge that knows the key with this hash.
    Bridge {
        /// Hexadecimal.
        key_sha256: String,
    },
}

/// The limits that the machine can give.
pub(crate) fn limits_in_force(spec: &SandboxSpec, machine: Machine) -> LimitsInForce {
    let asked = &spec.limits;
    let memory = asked.memory.min(machine.memory);
    let cpus = asked.cpus.min(machine.cpus);
    let disk = if spec.living.is_some() { asked.disk } else { asked.disk.min(machine.memory) };
    let lowered = [
        (LimitKind::Memory, memory < asked.memory),
        (LimitKind::Cpus, cpus < asked.cpus),
        (LimitKind::Disk, disk < asked.disk),
    ];
    let files = match needs_watch(spec) {
        false => Enforcement::Filesystem,
        true if machine.can_be_watched => Enforcement::Watched,
        true => Enforcement::None,
    };
    let volumes = if machine.can_be_watched { Enforcement::Watched } else { Enforcement::None };
    let volumes = match written_elsewhere(spec).next() {
        Some(_) => Some(("volumes", Enforcement::None)),
        None => written_volumes(spec).next().map(|_| ("volumes", volumes)),
    };
    let is_gvisor = machine.runtimes.is_gvisor(spec.runtime.as_deref());
    let held = [
        ("memory", Enforcement::Cgroup),
        ("cpus", Enforcement::Cgroup),
        // Nobody outside can count processes of another kernel.
        ("pids", if is_gvisor { Enforcement::None } else { Enforcement::Cgroup }),
        ("disk", files),
        ("inodes", files),
        ("open_files", Enforcement::Rlimit),
        ("timeout", Enforcement::Timer),
    ];
    LimitsInForce {
        memory_bytes: memory,
        cpus,
        pids: asked.pids,
        disk_bytes: disk,
        inodes: asked.inodes,
        open_files: asked.open_files,
        timeout_ms: asked.timeout.as_millis() as u64,
        output_bytes: asked.output,
        memory_group_bytes: Some(memory + OWN_MEMORY),
        store: if spec.living.is_some() { "volume" } else { "tmpfs" }.into(),
        lowered: lowered.into_iter().filter(|(_, is_lower)| *is_lower).map(|(kind, _)| kind).collect(),
        enforcement: held
            .into_iter()
            .chain(volumes)
            .map(|(name, by)| (name.to_owned(), by))
            .collect::<BTreeMap<_, _>>(),
    }
}

/// Whether a sandbox writes to something that no file system limits.
fn needs_watch(spec: &SandboxSpec) -> bool {
    spec.living.is_some() || written_in_place(spec).next().is_some()
}

/// Whether what programs write outlives the sandbox and belongs to somebody: the owner of a folder, or the id 1000 of the host. What is in a
/// volume that we attach is nobody's.
fn writes_to_host(spec: &SandboxSpec, attacher: Attacher) -> bool {
    needs_watch(spec)
        || written_elsewhere(spec).next().is_some()
        || (attacher == Attacher::Engine && written_volumes(spec).next().is_some())
}

/// No file of a sandbox that writes to something which no file system limits is larger: it could outgrow that before anybody looks.
fn largest_file(spec: &SandboxSpec, disk: u64) -> Option<u64> {
    let volumes = written_volumes(spec).chain(written_elsewhere(spec)).map(|(_, bytes)| bytes).max();
    (needs_watch(spec) || volumes.is_some()).then(|| disk.max(volumes.unwrap_or(0)))
}

/// Turns the paths of the host in a description into real ones, or says which cannot be used.
pub(crate) fn with_real_paths(spec: &SandboxSpec) -> Result<SandboxSpec> {
    let mut spec = spec.clone();
    if let Some(workspace) = &mut spec.workspace {
        workspace.source = real(&workspace.source)?;
        if !workspace.source.is_dir() {
            let message = format!("the workspace {} is not a directory", workspace.source.display());
            return Err(Error::new(ErrorCode::NotADirectory, message));
        }
    }
    for mount in spec.mounts.iter_mut().filter(|mount| !is_elsewhere(mount)) {
        mount.source = real(&mount.source)?;
    }
    Ok(spec)
}

/// Whether a mount is a volume of the engine's own machine.
pub(crate) fn is_elsewhere(mount: &glovebox_core::Mount) -> bool {
    matches!(mount.kind, MountKind::VolumeElsewhere { .. })
}

fn real(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).map_err(|error| Error::unusable(path, error))
}

/// What the guest is to set up.
fn plan(spec: &SandboxSpec, limits: &LimitsInForce, attacher: Attacher, entrance: &Entrance) -> Plan {
    let written = spec.mounts.iter().filter(|mount| mount.access == Access::ReadWrite);
    let written = written.map(|mount| mount.target.as_str().to_owned());
    // One more that the guest is to find there.
    let workspace = spec.workspace.iter().filter(|found| found.mode == WorkspaceMode::ReadWrite);
    let workspace = workspace.filter(|_| attacher == Attacher::Engine).map(|_| WORKING_DIR.to_owned());
    Plan {
        uid: spec.user.uid,
        gid: spec.user.gid,
        open_files: limits.open_files,
        largest_file: largest_file(spec, limits.disk_bytes),
        living: spec.living.is_some(),
        network: spec.network == Network::Full,
        writes_to_host: writes_to_host(spec, attacher),
        awaits_mounts: attacher == Attacher::Us && !attaching::mounts(spec).is_empty(),
        own_volumes: written_elsewhere(spec).map(|(mount, _)| mount.target.as_str().to_owned()).collect(),
        written: written.chain(workspace).collect(),
        idle_ms: spec.living.as_ref().and_then(|living| living.lifetime.idle).map(|idle| idle.as_millis() as u64),
        expires_ms: spec
            .living
            .as_ref()
            .and_then(|living| living.lifetime.expires_at(living.created_at).map(|at| at.as_millisecond())),
        own_kernel: false,
        door: match entrance {
            Entrance::Folder(_) => Door::Folder,
            Entrance::Bridge { key_sha256 } => Door::Bridge { key_sha256: key_sha256.clone() },
        },
    }
}

/// The volumes of a living sandbox, by the folders that they hold.
pub(crate) fn volumes(id: SandboxId) -> [(String, &'static str); 2] {
    [(volume_of_files(id), WORKSPACE_DIR), (format!("glovebox-{id}-home"), HOME_DIR)]
}

/// The volume that holds the workspace of a living sandbox.
pub(crate) fn volume_of_files(id: SandboxId) -> String {
    format!("glovebox-{id}-workspace")
}

/// The volume that holds what a sandbox on another machine is given to read.
pub(crate) fn volume_of_given(id: SandboxId) -> String {
    format!("glovebox-{id}-given")
}

/// Whether a sandbox is to see files of the caller's.
pub(crate) fn needs_files(spec: &SandboxSpec) -> bool {
    !spec.mounts.iter().all(is_elsewhere) || spec.workspace.is_some()
}

/// Describes the container of a sandbox.
pub(crate) fn container(
    id: SandboxId,
    spec: &SandboxSpec,
    image: &FoundImage,
    limits: &LimitsInForce,
    (own, entrance): (&OwnFiles, &Entrance),
) -> ContainerCreateBody {
    let attacher = if own.empty.is_some() { Attacher::Us } else { Attacher::Engine };
    let plan = serde_json::to_string(&plan(spec, limits, attacher, entrance)).expect("a plan is plain values");
    let tmpfs = |size: u64, mode: &str| {
        let LimitsInForce { inodes, .. } = limits;
        format!("rw,exec,nosuid,nodev,size={size},nr_inodes={inodes},mode={mode}")
    };
    let small = limits.disk_bytes.min(LARGEST_TMP);
    // The engine's own limits bytes and no files.
    let shared = tmpfs(small.min(limits.memory_bytes), "1777");
    let mut tmpfses = HashMap::from([("/tmp".to_owned(), tmpfs(small, "1777")), ("/dev/shm".to_owned(), shared)]);
    let mut mounts = vec![bind(&own.guest, GUEST, true)];
    let mut own_processes = OWN_PROCESSES;
    match entrance {
        // Only the guest of one that stays makes something in it: its socket.
        Entrance::Folder(channel) => mounts.push(bind(channel, CHANNEL, spec.living.is_none())),
        Entrance::Bridge { .. } => own_processes += OF_A_BRIDGE,
    }
    // What is in a volume is bound piece by piece. That the container has all of it keeps others from removing it.
    mounts.extend(own.volume.iter().map(|name| held(name.clone(), OWN)));
    if own.volume.is_some() && needs_files(spec) {
        mounts.push(held(volume_of_given(id), GIVEN));
    }
    let has_network = spec.network == Network::Full;
    // Who has a network has the engine's resolver.
    let of_etc = own.of_etc.iter().filter(|(_, target)| !has_network || *target != RESOLVER);
    mounts.extend(of_etc.map(|(source, target)| bind(source, target, true)));
    if spec.living.is_some() {
        mounts.extend(volumes(id).map(|(name, target)| volume(name, target, owner::labels(id, spec))));
    } else {
        match &spec.files_of {
            Some(shown) => mounts.push(held(volume_of_files(shown.sandbox), WORKSPACE_DIR)),
            None => drop(tmpfses.insert(WORKSPACE_DIR.to_owned(), tmpfs(limits.disk_bytes, "0755"))),
        }
        tmpfses.insert(HOME_DIR.to_owned(), tmpfs(limits.disk_bytes, "0755"));
    }
    mounts.extend(of_this_machine(spec, own));
    let mut labels = owner::labels(id, spec);
    labels.extend(image.digest().map(|digest| (owner::DIGEST.to_owned(), digest)));
    let memory = limits.memory_group_bytes.unwrap_or(limits.memory_bytes) as i64;
    let mut host = HostConfig {
        memory: Some(memory),
        // The same number for both is no swap.
        memory_swap: Some(memory),
        nano_cpus: Some((limits.cpus * 1e9) as i64),
        pids_limit: Some((limits.pids + own_processes) as i64),
        // Files that may be open are bounded by the zygote; the guest needs some for each run.
        ulimits: Some(vec![ulimit("core", 0)]),
        tmpfs: Some(tmpfses),
        mounts: Some(mounts),
        readonly_rootfs: Some(true),
        network_mode: Some(if has_network { "default" } else { "none" }.to_owned()),
        cap_drop: Some(vec!["ALL".to_owned()]),
        cap_add: Some(CAPABILITIES.map(str::to_owned).to_vec()),
        security_opt: Some(vec!["no-new-privileges:true".to_owned(), filter()]),
        masked_paths: Some(MASKED.map(str::to_owned).to_vec()),
        sysctls: (!has_network)
            .then(|| SYSCTLS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        ipc_mode: Some("private".to_owned()),
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        auto_remove: Some(spec.living.is_none()),
        init: Some(false),
        runtime: spec.runtime.clone(),
        ..HostConfig::default()
    };
    image_volumes::cover(&mut host, &image.volumes);
    ContainerCreateBody {
        image: Some(image.id.clone()),
        hostname: Some(HOST_NAME.to_owned()),
        user: Some("0:0".to_owned()),
        working_dir: Some("/".to_owned()),
        entrypoint: Some(vec![GUEST.to_owned(), "init".to_owned()]),
        cmd: Some(Vec::new()),
        env: Some(vec![format!("{PLAN}={plan}")]),
        labels: Some(labels),
        healthcheck: Some(bollard::models::HealthConfig { test: Some(vec!["NONE".to_owned()]), ..Default::default() }),
        stop_signal: Some("SIGKILL".to_owned()),
        // One without any is what the kernel makes. To look after the network `none` would take Docker longer than all else.
        network_disabled: Some(!has_network),
        host_config: Some(host),
        ..ContainerCreateBody::default()
    }
}

/// What the engine is to mount of this machine; where we attach, empty places for what has none otherwise, as the root is read-only.
fn of_this_machine(spec: &SandboxSpec, own: &OwnFiles) -> Vec<Mount> {
    if let Some((folder, file)) = &own.empty {
        let attached = attaching::mounts(spec);
        let places = attached.iter().filter(|mount| mount.place == MountPlace::Made);
        let empty = |source: &str| if Path::new(source).is_dir() { folder } else { file };
        return places.map(|mount| bind(empty(&mount.source), &mount.target, true)).collect();
    }
    let workspace = spec.workspace.iter().filter(|workspace| workspace.mode != WorkspaceMode::Overlay);
    let workspace = workspace.map(|found| bind(&found.source, WORKING_DIR, found.mode == WorkspaceMode::ReadOnly));
    let mounts = spec.mounts.iter();
    let mounts = mounts.map(|mount| {
        let is_read_only = mount.access == Access::ReadOnly;
        if !is_elsewhere(mount) {
            return bind(&mount.source, mount.target.as_str(), is_read_only);
        }
        let name = mount.source.to_string_lossy().into_owned();
        let labels = HashMap::from([(owner::VOLUME.to_owned(), name.clone())]);
        Mount { read_only: Some(is_read_only), ..volume(name, mount.target.as_str(), labels) }
    });
    workspace.chain(mounts).collect()
}

/// The filter of system calls that the whole container has, in place of the engine's own.
fn filter() -> String {
    format!("seccomp={}", glovebox_guest::seccomp::container_profile())
}

fn bind(source: &Path, target: &str, read_only: bool) -> Mount {
    Mount {
        target: Some(target.to_owned()),
        source: Some(source.to_string_lossy().into_owned()),
        typ: Some(MountType::BIND),
        read_only: Some(read_only),
        ..Mount::default()
    }
}

fn volume(name: String, target: &str, labels: HashMap<String, String>) -> Mount {
    Mount {
        target: Some(target.to_owned()),
        source: Some(name),
        typ: Some(MountType::VOLUME),
        read_only: Some(false),
        // What an image holds there is not copied into it.
        volume_options: Some(MountVolumeOptions { no_copy: Some(true), labels: Some(labels), ..Default::default() }),
        ..Mount::default()
    }
}

/// A volume that is there, to be read or only to be held.
fn held(name: String, target: &str) -> Mount {
    Mount { read_only: Some(true), ..volume(name, target, HashMap::new()) }
}

fn ulimit(name: &str, value: i64) -> ResourcesUlimits {
    ResourcesUlimits { name: Some(name.to_owned()), soft: Some(value), hard: Some(value) }
}
