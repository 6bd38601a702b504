//! From the checked description of a sandbox to what the launcher needs, and what is in force then.

use std::{collections::BTreeMap, fs, io, os::fd::OwnedFd, path::Path};

use glovebox_core::{
    Access, Enforcement, Error, ErrorCode, Isolation, Layer, LimitKind, Limits, LimitsInForce, Living, MountKind,
    Network, Result, SandboxSpec, Tier, WORKING_DIR, WorkspaceMode,
};

use rustix::fs::{Mode, OFlags};

use crate::{
    cgroup::HeldByGroups,
    changes::Layers,
    plan::{Plan, PlannedLife, PlannedMount},
    standing::may_give_ids,
    wire,
};

/// Opens the files of a living sandbox, be it stopped.
pub(super) fn files_of_living(spec: &SandboxSpec) -> Result<(OwnedFd, Layers)> {
    let wrong = || Error::new(ErrorCode::Internal, "the sandbox is not one that stays");
    let store = &spec.living.as_ref().ok_or_else(wrong)?.store;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let store = rustix::fs::open(store, flags, Mode::empty()).map_err(|error| {
        Error::new(ErrorCode::HostIo, "the files of the sandbox cannot be read").because(io::Error::from(error))
    })?;
    Ok((store, Layers::of_living(spec)))
}

/// The limits of a sandbox that was made which are lower than was asked for.
pub(super) fn lowered(asked: &Limits, plan: &Plan) -> Vec<LimitKind> {
    let all = [
        (LimitKind::Memory, plan.memory < asked.memory),
        (LimitKind::Disk, plan.disk < asked.disk),
        (LimitKind::OpenFiles, plan.open_files < asked.open_files),
        (LimitKind::Cpus, plan.cpus < asked.cpus),
    ];
    all.into_iter().filter(|(_, is_lower)| *is_lower).map(|(kind, _)| kind).collect()
}

/// Turns a spec into what the launcher needs. Limits above what the host has are lowered, and named.
pub(super) fn make_plan(spec: &SandboxSpec) -> Result<(Plan, Vec<LimitKind>)> {
    if spec.files_of.is_some() {
        return Err(Error::new(ErrorCode::NotSupported, "the host sees the files of a sandbox, so none shows them"));
    }
    let limits = &spec.limits;
    let info = rustix::system::sysinfo();
    let total = info.totalram as u64 * u64::from(info.mem_unit);
    let cpus = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count().max(1)) as f64;
    let open_files = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let plan = Plan {
        memory: limits.memory.min(total),
        pids: limits.pids,
        cpus: limits.cpus.min(cpus),
        // What lives in memory cannot be more than there is of it.
        disk: if spec.living.is_some() { limits.disk } else { limits.disk.min(total) },
        inodes: limits.inodes,
        open_files: limits.open_files.min(open_files),
        host_network: spec.network == Network::Full,
        workspace: spec.workspace.as_ref().map(plan_workspace).transpose()?,
        workspace_overlay: spec.workspace.as_ref().is_some_and(|w| w.mode == WorkspaceMode::Overlay),
        mounts: spec.mounts.iter().map(plan_mount).collect::<Result<_>>()?,
        uid: spec.user.uid,
        gid: spec.user.gid,
        as_caller: !may_give_ids() || spec.workspace.is_some() || !spec.mounts.is_empty() || spec.living.is_some(),
        living: spec.living.as_ref().map(plan_life),
        isolation: spec.isolation,
    };
    if plan.mounts.len() > wire::MOST_DESCRIPTORS / 2 {
        return Err(Error::new(ErrorCode::InvalidMount, "there are more mounts than the 64 that a sandbox takes"));
    }
    let lowered = lowered(limits, &plan);
    Ok((plan, lowered))
}

fn plan_life(living: &Living) -> PlannedLife {
    PlannedLife {
        store: living.store.clone(),
        idle_ms: living.lifetime.idle.map(|idle| idle.as_millis() as u64),
        expires_ms: living.lifetime.expires_at(living.created_at).map(|at| at.as_millisecond()),
    }
}

fn plan_workspace(workspace: &glovebox_core::Workspace) -> Result<PlannedMount> {
    let source = host_path(&workspace.source)?;
    if !Path::new(&source).is_dir() {
        let message = format!("the workspace {} is not a directory", workspace.source.display());
        return Err(Error::new(ErrorCode::NotADirectory, message));
    }
    let read_only = workspace.mode == WorkspaceMode::ReadOnly;
    Ok(PlannedMount { source, target: WORKING_DIR.into(), read_only, volume: None })
}

fn plan_mount(mount: &glovebox_core::Mount) -> Result<PlannedMount> {
    let volume = match mount.kind {
        MountKind::Host => None,
        MountKind::Volume { bytes } => Some(bytes),
        MountKind::VolumeElsewhere { .. } => {
            let message = format!("the volume {} is on another machine", mount.source.display());
            return Err(Error::new(ErrorCode::InvalidMount, message));
        }
    };
    let source = host_path(&mount.source)?;
    let (target, read_only) = (mount.target.as_str().into(), mount.access == Access::ReadOnly);
    Ok(PlannedMount { source, target, read_only, volume })
}

/// The absolute form of a path that the caller named on the host.
fn host_path(path: &Path) -> Result<String> {
    let absolute = fs::canonicalize(path).map_err(|error| Error::unusable(path, error))?;
    absolute
        .into_os_string()
        .into_string()
        .map_err(|path| Error::new(ErrorCode::InvalidMount, format!("{} is not UTF-8", Path::new(&path).display())))
}

pub(super) fn limits_in_force(spec: &SandboxSpec, plan: &Plan, lowered: Vec<LimitKind>) -> LimitsInForce {
    let disk = if plan.writes_to_host() { Enforcement::Watched } else { Enforcement::Filesystem };
    let held = [
        ("memory", Enforcement::Cgroup),
        ("cpus", Enforcement::Cgroup),
        ("pids", Enforcement::Cgroup),
        ("disk", disk),
        ("inodes", disk),
        ("open_files", Enforcement::Rlimit),
        ("timeout", Enforcement::Timer),
    ];
    // Each volume has a size of its own, which no file system knows.
    let volumes = plan.written_volumes().next().map(|_| ("volumes", Enforcement::Watched));
    LimitsInForce {
        memory_bytes: plan.memory,
        cpus: plan.cpus,
        pids: plan.pids,
        disk_bytes: plan.disk,
        inodes: plan.inodes,
        open_files: plan.open_files,
        timeout_ms: spec.limits.timeout.as_millis() as u64,
        output_bytes: spec.limits.output,
        memory_group_bytes: Some(plan.group_memory()),
        store: if plan.living.is_some() { "folder" } else { "tmpfs" }.into(),
        lowered,
        enforcement: held
            .into_iter()
            .chain(volumes)
            .map(|(name, by)| (name.to_owned(), by))
            .collect::<BTreeMap<_, _>>(),
    }
}

/// Says by what the limits are held that groups do not hold, or no file system.
pub(super) fn substitute(limits: &mut LimitsInForce, by_groups: HeldByGroups, as_root: bool, isolation: &Isolation) {
    let mut put = |name: &str, by: Enforcement| {
        limits.enforcement.insert(name.to_owned(), by);
    };
    if !by_groups.memory {
        put("memory", Enforcement::Watched);
        limits.memory_group_bytes = None;
    }
    if !by_groups.pids {
        // The kernel holds the root of the host to no number of processes.
        put("pids", if as_root { Enforcement::None } else { Enforcement::Rlimit });
    }
    if !by_groups.cpus {
        put("cpus", Enforcement::None);
    }
    if isolation.tier == Tier::Landlock {
        put("disk", Enforcement::Watched);
        put("inodes", Enforcement::Watched);
        // The kernel limits the processes of every user but root.
        if rustix::process::geteuid().is_root() && !isolation.has(Layer::SeparateGuest) {
            put("pids", Enforcement::None);
        }
        limits.store = "folder".into();
    }
}
