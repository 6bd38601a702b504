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
    Access, Enforcement, Error, ErrorCode, HOME_DIR, LimitKind, LimitsInForce, Network, Result, SandboxId, SandboxSpec,
    WORKING_DIR, WORKSPACE_DIR, WorkspaceMode,
};
use glovebox_proto::container::{CHANNEL, Door, GUEST, MountPlace, PLAN, Plan};

use crate::{
    attaching,
    counted::OWN_PROCESSES,
    disk::{written_in_place, written_volumes},
    gvisor::Runtimes,
    owner,
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

/// The loopback of a network without anything else has both kinds of addresses.
const SYSCTLS: [(&str, &str); 1] = [("net.ipv6.conf.all.disable_ipv6", "0")];

/// The name of the machine inside.
const HOST_NAME: &str = "glovebox";

/// What Docker has.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) memory: u64,
    pub(crate) cpus: f64,
    /// Whether this process can look at what is in its volumes, and at whatever else programs write.
    pub(crate) can_be_watched: bool,
    /// Whether it is Podman.
    pub(crate) is_podman: bool,
    /// Whether it gives containers a namespace of control groups.
    pub(crate) group_namespaces: bool,
    pub(crate) runtimes: Runtimes,
}

/// Files of ours that every container has.
#[derive(Clone, Debug)]
pub(crate) struct OwnFiles {
    /// The guest's program.
    pub(crate) guest: PathBuf,
    /// Who there is inside, as in every sandbox; each with its place there.
    pub(crate) accounts: Vec<(PathBuf, &'static str)>,
    /// A folder and a file with nothing in them, for places of mounts.
    pub(crate) empty: (PathBuf, PathBuf),
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
    let volumes = written_volumes(spec).next().map(|_| ("volumes", volumes));
    let held = [
        ("memory", Enforcement::Cgroup),
        ("cpus", Enforcement::Cgroup),
        ("pids", Enforcement::Cgroup),
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
fn writes_to_host(spec: &SandboxSpec) -> bool {
    needs_watch(spec) || (attaching::mounts(spec).is_none() && written_volumes(spec).next().is_some())
}

/// No file of a sandbox that writes to something which no file system limits is larger: it could outgrow that before anybody looks.
fn largest_file(spec: &SandboxSpec, disk: u64) -> Option<u64> {
    let volumes = written_volumes(spec).map(|(_, bytes)| bytes).max();
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
    for mount in &mut spec.mounts {
        mount.source = real(&mount.source)?;
    }
    spec.mounts.iter().try_for_each(|mount| attaching::check(&spec, mount))?;
    Ok(spec)
}

fn real(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).map_err(|error| Error::unusable(path, error))
}

/// What the guest is to set up.
pub(crate) fn plan(spec: &SandboxSpec, limits: &LimitsInForce) -> Plan {
    let written = spec.mounts.iter().filter(|mount| mount.access == Access::ReadWrite);
    Plan {
        uid: spec.user.uid,
        gid: spec.user.gid,
        open_files: limits.open_files,
        largest_file: largest_file(spec, limits.disk_bytes),
        living: spec.living.is_some(),
        network: spec.network == Network::Full,
        writes_to_host: writes_to_host(spec),
        awaits_mounts: attaching::mounts(spec).is_some_and(|mounts| !mounts.is_empty()),
        written: written.map(|mount| mount.target.as_str().to_owned()).collect(),
        idle_ms: spec.living.as_ref().and_then(|living| living.lifetime.idle).map(|idle| idle.as_millis() as u64),
        expires_ms: spec
            .living
            .as_ref()
            .and_then(|living| living.lifetime.expires_at(living.created_at).map(|at| at.as_millisecond())),
        own_kernel: false,
        door: Door::Folder,
    }
}

/// The volumes of a living sandbox, by the folders that they hold.
pub(crate) fn volumes(id: SandboxId) -> [(String, &'static str); 2] {
    [(format!("glovebox-{id}-workspace"), WORKSPACE_DIR), (format!("glovebox-{id}-home"), HOME_DIR)]
}

/// Describes the container of a sandbox.
pub(crate) fn container(
    id: SandboxId,
    spec: &SandboxSpec,
    image: &str,
    limits: &LimitsInForce,
    (own, channel): (&OwnFiles, &Path),
) -> ContainerCreateBody {
    let plan = serde_json::to_string(&plan(spec, limits)).expect("a plan is plain values");
    let tmpfs = |size: u64, mode: &str| {
        let LimitsInForce { inodes, .. } = limits;
        format!("rw,exec,nosuid,nodev,size={size},nr_inodes={inodes},mode={mode}")
    };
    let small = limits.disk_bytes.min(LARGEST_TMP);
    // The engine's own limits bytes and no files.
    let shared = tmpfs(small.min(limits.memory_bytes), "1777");
    let mut tmpfses = HashMap::from([("/tmp".to_owned(), tmpfs(small, "1777")), ("/dev/shm".to_owned(), shared)]);
    let mut mounts = vec![bind(&own.guest, GUEST, true), bind(channel, CHANNEL, false)];
    mounts.extend(own.accounts.iter().map(|(source, target)| bind(source, target, true)));
    if spec.living.is_some() {
        mounts.extend(volumes(id).map(|(name, target)| volume(name, target, owner::labels(id, spec))));
    } else {
        tmpfses.insert(WORKSPACE_DIR.to_owned(), tmpfs(limits.disk_bytes, "0755"));
        tmpfses.insert(HOME_DIR.to_owned(), tmpfs(limits.disk_bytes, "0755"));
    }
    mounts.extend(of_this_machine(spec, own));
    let memory = limits.memory_group_bytes.unwrap_or(limits.memory_bytes) as i64;
    let host = HostConfig {
        memory: Some(memory),
        // The same number for both is no swap.
        memory_swap: Some(memory),
        nano_cpus: Some((limits.cpus * 1e9) as i64),
        pids_limit: Some((limits.pids + OWN_PROCESSES) as i64),
        // Files that may be open are bounded by the zygote; the guest needs some for each run.
        ulimits: Some(vec![ulimit("core", 0)]),
        tmpfs: Some(tmpfses),
        mounts: Some(mounts),
        readonly_rootfs: Some(true),
        network_mode: Some(if spec.network == Network::Full { "default" } else { "none" }.to_owned()),
        cap_drop: Some(vec!["ALL".to_owned()]),
        cap_add: Some(CAPABILITIES.map(str::to_owned).to_vec()),
        security_opt: Some(vec!["no-new-privileges:true".to_owned(), filter()]),
        masked_paths: Some(MASKED.map(str::to_owned).to_vec()),
        sysctls: (spec.network == Network::None)
            .then(|| SYSCTLS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        ipc_mode: Some("private".to_owned()),
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        auto_remove: Some(spec.living.is_none()),
        init: Some(false),
        runtime: spec.runtime.clone(),
        ..HostConfig::default()
    };
    ContainerCreateBody {
        image: Some(image.to_owned()),
        hostname: Some(HOST_NAME.to_owned()),
        user: Some("0:0".to_owned()),
        working_dir: Some("/".to_owned()),
        entrypoint: Some(vec![GUEST.to_owned(), "init".to_owned()]),
        cmd: Some(Vec::new()),
        env: Some(vec![format!("{PLAN}={plan}")]),
        labels: Some(owner::labels(id, spec)),
        healthcheck: Some(bollard::models::HealthConfig { test: Some(vec!["NONE".to_owned()]), ..Default::default() }),
        stop_signal: Some("SIGKILL".to_owned()),
        host_config: Some(host),
        ..ContainerCreateBody::default()
    }
}

/// What the engine is to mount of this machine; where we attach, empty places for what has none otherwise, as the root is read-only.
fn of_this_machine(spec: &SandboxSpec, own: &OwnFiles) -> Vec<Mount> {
    if let Some(attached) = attaching::mounts(spec) {
        let places = attached.iter().filter(|mount| mount.place == MountPlace::Made);
        let (folder, file) = &own.empty;
        let empty = |source: &str| if Path::new(source).is_dir() { folder } else { file };
        return places.map(|mount| bind(empty(&mount.source), &mount.target, true)).collect();
    }
    let workspace = spec.workspace.iter().filter(|workspace| workspace.mode != WorkspaceMode::Overlay);
    let workspace = workspace.map(|found| bind(&found.source, WORKING_DIR, found.mode == WorkspaceMode::ReadOnly));
    let mounts = spec.mounts.iter();
    let mounts = mounts.map(|mount| bind(&mount.source, mount.target.as_str(), mount.access == Access::ReadOnly));
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

fn ulimit(name: &str, value: i64) -> ResourcesUlimits {
    ResourcesUlimits { name: Some(name.to_owned()), soft: Some(value), hard: Some(value) }
}
