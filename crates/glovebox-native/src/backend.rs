//! The face of the native backend.

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use glovebox_core::{
    Access, Backend, ChangeRecord, ContentKeeper, Created, Enforcement, Error, ErrorCode, Evidence, Features, Found,
    GivenFile, GuestStream, Isolation, Layer, LimitKind, LimitsInForce, Network, Result, SandboxId, SandboxSpec,
    StoreUse, Usage, WORKING_DIR, WorkspaceMode,
};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::net::UnixStream;

use crate::{
    cgroup::{Cgroups, HeldByGroups, storage_bytes},
    changes::{self, Layers},
    host_facts, launcher,
    owner::{self, RuntimeFolder},
    plan::{Answer, Counted, Order, Plan, PlannedMount},
    standing::{Standing, SubIds},
    store,
    sys::{self, Forked},
    watch, wire,
};

/// Sandboxes of this host's own kernel, for root and for ordinary users.
#[derive(Debug)]
pub struct NativeBackend {
    control: OwnedFd,
    launcher_pid: i32,
    cgroups: OnceLock<Cgroups>,
    sandboxes: Mutex<HashMap<SandboxId, Held>>,
}

/// What this process holds of a sandbox.
#[derive(Debug)]
struct Held {
    channel: Option<OwnedFd>,
    /// Where the launcher answers, until it did.
    answer: Option<OwnedFd>,
    limits: LimitsInForce,
    required: Vec<Layer>,
    layers: Arc<Layers>,
    made: Option<Made>,
}

/// What this process holds of a sandbox that is made.
#[derive(Debug)]
struct Made {
    store: OwnedFd,
    guest: OwnedFd,
    /// Becomes readable when a host folder has outgrown the disk limit.
    watch: Option<OwnedFd>,
    guest_pid: i32,
    group: String,
    /// Limits that groups hold.
    by_groups: HeldByGroups,
}

impl NativeBackend {
    /// Forks the launcher. Call this first thing in `main`, before any thread or runtime exists; the launcher then
    /// prepares itself while the caller goes on. It ends with the caller and cleans up after it.
    pub fn start() -> Result<Self> {
        if !sys::has_one_thread() {
            return Err(unavailable("the launcher must be started before the program has threads")
                .hint("call NativeBackend::start() first thing in main, before any async runtime"));
        }
        let (control, theirs) =
            wire::message_pair().map_err(|e| unavailable("no socket for the launcher").because(e))?;
        let cpus =
            rustix::thread::sched_getaffinity(None).map_err(|e| unavailable("no CPU").because(io::Error::from(e)))?;
        let runtime = RuntimeFolder::of_caller();
        let not_forked = |e| unavailable("the launcher could not be forked").because(e).hint(host_facts::hint());
        match sys::fork_with(0).map_err(not_forked)? {
            Forked::Child => {
                // All descriptors of the caller are closed, its own end of the socket included.
                match sys::keep_only(theirs) {
                    Ok(control) => launcher::main(control, cpus, runtime),
                    Err(_) => sys::exit_now(1),
                }
            }
            Forked::Parent { pid, .. } => {
                sys::send_elsewhere(pid);
                let cgroups = OnceLock::new();
                let launcher_pid = pid.as_raw_nonzero().get();
                Ok(NativeBackend { control, launcher_pid, cgroups, sandboxes: Mutex::default() })
            }
        }
    }

    /// What dead launchers left, for somebody who only wants to know.
    pub fn find_garbage() -> Result<Vec<String>> {
        let cgroups = Cgroups::look(Standing::is_root()).map_err(host_io)?;
        let found =
            owner::found_groups(&RuntimeFolder::of_caller(), &cgroups, None).into_iter().filter(|group| !group.owned);
        Ok(found.map(|group| format!("groups of {}", group.id)).collect())
    }

    /// Removes what dead launchers left, without a launcher of one's own, and says what it was.
    pub fn collect_garbage_now() -> Result<Vec<String>> {
        let cgroups = Cgroups::detect(Standing::is_root()).map_err(host_io)?;
        owner::collect_garbage(&RuntimeFolder::of_caller(), &cgroups, None).map_err(host_io)
    }

    /// The folder in which launchers of this user keep their locks, and below which each has its scratch folder.
    pub fn runtime_folder() -> PathBuf {
        RuntimeFolder::of_caller().path()
    }

    /// The launcher's process id.
    pub fn launcher_pid(&self) -> i32 {
        self.launcher_pid
    }

    /// The host process id of a sandbox's guest, PID 1 inside.
    pub fn guest_pid(&self, id: SandboxId) -> Option<i32> {
        self.held().get(&id).and_then(|held| held.made.as_ref()).map(|made| made.guest_pid)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<SandboxId, Held>> {
        self.sandboxes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The host's control groups, looked at once.
    fn cgroups(&self) -> Result<&Cgroups> {
        if self.cgroups.get().is_none() {
            let _ = self.cgroups.set(Cgroups::detect(Standing::is_root()).map_err(host_io)?);
        }
        Ok(self.cgroups.get().expect("it was set above"))
    }

    /// Sends an order, and gives the socket on which the answer will come.
    fn order(&self, order: &Order, further: Option<&OwnedFd>) -> Result<OwnedFd> {
        let (here, there) = wire::message_pair().map_err(no_launcher)?;
        let fds: Vec<_> = [Some(&there), further].into_iter().flatten().map(AsFd::as_fd).collect();
        wire::send(&self.control, order, &fds).map_err(no_launcher)?;
        Ok(here)
    }
}

/// Tells a walk that nobody waits for it any more.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits for the launcher's answer.
async fn answer(socket: OwnedFd) -> Result<(Answer, Vec<OwnedFd>)> {
    rustix::io::ioctl_fionbio(&socket, true).map_err(|e| no_launcher(e.into()))?;
    let socket = sys::register(socket).map_err(no_launcher)?;
    let answer = socket.async_io(tokio::io::Interest::READABLE, |socket| wire::receive::<Answer>(socket)).await;
    answer.map_err(no_launcher)?.ok_or_else(|| no_launcher(io::ErrorKind::UnexpectedEof.into()))
}

fn no_launcher(error: io::Error) -> Error {
    Error::new(ErrorCode::SandboxLost, "the launcher does not answer").because(error)
}

#[async_trait]
impl Backend for NativeBackend {
    fn name(&self) -> &'static str {
        "native"
    }

    async fn probe(&self) -> Result<Features> {
        Ok(Features {
            cgroup_limits: self.cgroups()?.is_complete(),
            workspace_overlay: true,
            mounts: true,
            network_full: true,
            disk_limit: true,
            host_image: true,
            user_xattrs: sys::tmpfs_has_user_xattrs(),
            scoped_sockets: sys::landlock_version() >= 6,
            watched_memory: !self.cgroups()?.held().memory,
            idmapped_mounts: Standing::is_root(),
            separate_guest: Standing::is_root() || SubIds::of(rustix::process::geteuid().as_raw()).is_some(),
            // Comes with groups for each run.
            run_groups: false,
        })
    }

    fn environment(&self) -> Vec<(String, String)> {
        clean_environment()
    }

    async fn create(&self, id: SandboxId, spec: &SandboxSpec) -> Result<()> {
        let (plan, lowered) = make_plan(spec)?;
        let layers = Arc::new(Layers::of(&plan)?);
        let limits = limits_in_force(spec, &plan, lowered);
        let (channel, theirs) = wire::stream_pair().map_err(host_io)?;
        let answer = Some(self.order(&Order::Create { id, plan: Box::new(plan) }, Some(&theirs))?);
        let required = spec.required_layers.clone();
        let held = Held { channel: Some(channel), answer, limits, required, layers, made: None };
        self.held().insert(id, held);
        Ok(())
    }

    async fn connect(&self, id: SandboxId) -> Result<GuestStream> {
        let channel = self.held().get_mut(&id).and_then(|held| held.channel.take()).ok_or_else(|| gone(id))?;
        rustix::io::ioctl_fionbio(&channel, true).map_err(|e| host_io(e.into()))?;
        let stream = UnixStream::from_std(channel.into()).map_err(host_io)?;
        Ok(Box::new(stream))
    }

    async fn ready(&self, id: SandboxId) -> Result<Created> {
        let socket = self.held().get_mut(&id).and_then(|held| held.answer.take()).ok_or_else(|| gone(id))?;
        let (by_groups, guest_pid, group, present, fds) = match answer(socket).await? {
            (Answer::Created { held, guest_pid, group, present }, fds) => (held, guest_pid, group, present, fds),
            (Answer::Failed(failure), _) => return Err(failure.into_error()),
            (Answer::Destroyed(_) | Answer::Counted(_), _) => return Err(gone(id)),
        };
        let mut fds = fds.into_iter();
        let (Some(store), Some(guest)) = (fds.next(), fds.next()) else {
            return Err(Error::new(ErrorCode::Internal, "the launcher's answer is not whole"));
        };
        let isolation = Isolation::from_checks(|layer| present.contains(&layer));
        let mut all = self.held();
        let held = all.get_mut(&id).ok_or_else(|| gone(id))?;
        held.made = Some(Made { store, guest, watch: fds.next(), guest_pid, group, by_groups });
        substitute(&mut held.limits, by_groups);
        if let Some(layer) = held.required.iter().find(|layer| !isolation.has(**layer)) {
            let message = format!("the layer {layer} was asked for and is missing");
            return Err(Error::new(ErrorCode::LayerMissing, message));
        }
        Ok(Created { isolation, limits: held.limits.clone() })
    }

    async fn evidence(&self, id: SandboxId) -> Result<Evidence> {
        let (seen, groups) = {
            let all = self.held();
            let made = all.get(&id).and_then(|held| held.made.as_ref()).ok_or_else(|| gone(id))?;
            let seen = made.look().map_err(host_io)?;
            (seen, made.by_groups.memory.then(|| made.group.clone()))
        };
        let counted = match groups {
            Some(name) => self.cgroups()?.named(&name).count(),
            // Where no group counts, the launcher's watch does.
            None => match answer(self.order(&Order::Count { id }, None)?).await? {
                (Answer::Counted(counted), _) => counted,
                _ => return Err(gone(id)),
            },
        };
        Ok(evidence(counted, seen))
    }

    async fn changes(
        &self,
        id: SandboxId,
        given: &[GivenFile],
        keeper: Option<Arc<dyn ContentKeeper>>,
    ) -> Result<ChangeRecord> {
        let (store, layers) = {
            let all = self.held();
            let held = all.get(&id).ok_or_else(|| gone(id))?;
            let made = held.made.as_ref().ok_or_else(|| gone(id))?;
            (made.store.try_clone().map_err(host_io)?, held.layers.clone())
        };
        if changes::is_untouched(store.as_fd(), &layers) {
            return Ok(ChangeRecord::default());
        }
        // How long this takes is up to what ran inside, so it must not hold up other sandboxes.
        let (given, stop) = (given.to_vec(), StopOnDrop::default());
        let stopped = stop.0.clone();
        let walk = move || changes::collect(store.as_fd(), &layers, &given, keeper.as_deref(), &stopped);
        let collected = tokio::task::spawn_blocking(walk).await;
        collected.map_err(|error| host_io(io::Error::other(error)))?.map_err(host_io)
    }

    async fn watched_limit(&self, id: SandboxId) -> LimitKind {
        let watch = self.held().get_mut(&id).and_then(|held| held.made.as_mut()?.watch.take());
        let watch = watch.and_then(|watch| sys::register(watch).ok());
        let mut said = [0];
        if let Some(watch) = watch
            && watch.readable().await.is_ok()
            // The end of the watch makes its pipe readable too, but empty.
            && rustix::io::read(watch.get_ref(), &mut said[..]) == Ok(1)
        {
            return if said == [watch::OUTGROWN_FILES] { LimitKind::Inodes } else { LimitKind::Disk };
        }
        std::future::pending().await
    }

    async fn list(&self) -> Result<Vec<Found>> {
        let found = owner::found_groups(&RuntimeFolder::of_caller(), self.cgroups()?, None);
        Ok(found.into_iter().map(|group| Found { id: group.id, owned: group.owned }).collect())
    }

    async fn destroy(&self, id: SandboxId) -> Result<Option<Evidence>> {
        // Our own hold on the store must go first, or its memory would outlive the sandbox.
        let made = self.held().remove(&id).and_then(|held| held.made);
        let seen = made.as_ref().and_then(|made| made.look().ok());
        if let Some(made) = made {
            // The launcher does it too; but the sooner the kernel knows, the sooner all is over.
            let _ = pidfd_send_signal(&made.guest, Signal::KILL);
        }
        match answer(self.order(&Order::Destroy { id }, None)?).await? {
            (Answer::Destroyed(counted), _) => Ok(counted.zip(seen).map(|(counted, seen)| evidence(counted, seen))),
            (Answer::Failed(failure), _) => Err(failure.into_error()),
            (Answer::Created { .. } | Answer::Counted(_), _) => {
                Err(Error::new(ErrorCode::Internal, "the launcher answered another question"))
            }
        }
    }

    fn abandon(&self, id: SandboxId) {
        self.held().remove(&id);
        let _ = wire::send(&self.control, &Order::Destroy { id }, &[]);
    }

    async fn collect_garbage(&self) -> Result<Vec<String>> {
        Self::collect_garbage_now()
    }
}

/// Turns a spec into what the launcher needs. Limits above what the host has are lowered, and named.
fn make_plan(spec: &SandboxSpec) -> Result<(Plan, Vec<LimitKind>)> {
    let limits = &spec.limits;
    let mut lowered = Vec::new();
    let mut lower = |kind, wanted: u64, there: u64| {
        if wanted > there {
            lowered.push(kind);
        }
        wanted.min(there)
    };
    let info = rustix::system::sysinfo();
    let total = info.totalram as u64 * u64::from(info.mem_unit);
    let cpus = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count().max(1)) as f64;
    let open_files = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let plan = Plan {
        memory: lower(LimitKind::Memory, limits.memory, total),
        pids: limits.pids,
        cpus: limits.cpus.min(cpus),
        disk: lower(LimitKind::Disk, limits.disk, total),
        inodes: limits.inodes,
        open_files: lower(LimitKind::OpenFiles, limits.open_files, open_files),
        host_network: spec.network == Network::Full,
        workspace: spec.workspace.as_ref().map(plan_workspace).transpose()?,
        workspace_overlay: spec.workspace.as_ref().is_some_and(|w| w.mode == WorkspaceMode::Overlay),
        mounts: spec.mounts.iter().map(plan_mount).collect::<Result<_>>()?,
        uid: spec.user.uid,
        gid: spec.user.gid,
    };
    if limits.cpus > cpus {
        lowered.push(LimitKind::Cpus);
    }
    if plan.mounts.len() > wire::MOST_DESCRIPTORS / 2 {
        return Err(Error::new(ErrorCode::InvalidMount, "there are more mounts than the 64 that a sandbox takes"));
    }
    Ok((plan, lowered))
}

fn plan_workspace(workspace: &glovebox_core::Workspace) -> Result<PlannedMount> {
    let source = host_path(&workspace.source)?;
    if !Path::new(&source).is_dir() {
        let message = format!("the workspace {} is not a directory", workspace.source.display());
        return Err(Error::new(ErrorCode::NotADirectory, message));
    }
    let read_only = workspace.mode == WorkspaceMode::ReadOnly;
    Ok(PlannedMount { source, target: WORKING_DIR.into(), read_only })
}

fn plan_mount(mount: &glovebox_core::Mount) -> Result<PlannedMount> {
    let source = host_path(&mount.source)?;
    Ok(PlannedMount { source, target: mount.target.as_str().into(), read_only: mount.access == Access::ReadOnly })
}

/// The absolute form of a path that the caller named on the host.
fn host_path(path: &Path) -> Result<String> {
    let absolute = fs::canonicalize(path).map_err(|error| {
        let code = match error.kind() {
            io::ErrorKind::NotFound => ErrorCode::FileNotFound,
            io::ErrorKind::NotADirectory => ErrorCode::NotADirectory,
            _ => ErrorCode::FileUnreadable,
        };
        Error::new(code, format!("{} cannot be used", path.display())).because(error)
    })?;
    absolute
        .into_os_string()
        .into_string()
        .map_err(|path| Error::new(ErrorCode::InvalidMount, format!("{} is not UTF-8", Path::new(&path).display())))
}

fn limits_in_force(spec: &SandboxSpec, plan: &Plan, lowered: Vec<LimitKind>) -> LimitsInForce {
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
        store: "tmpfs".into(),
        lowered,
        enforcement: held.into_iter().map(|(name, by)| (name.to_owned(), by)).collect::<BTreeMap<_, _>>(),
    }
}

/// Says by what the limits are held that groups do not hold.
fn substitute(limits: &mut LimitsInForce, by_groups: HeldByGroups) {
    let mut put = |name: &str, by: Enforcement| {
        limits.enforcement.insert(name.to_owned(), by);
    };
    if !by_groups.memory {
        put("memory", Enforcement::Watched);
        limits.memory_group_bytes = None;
    }
    if !by_groups.pids {
        put("pids", Enforcement::Rlimit);
    }
    if !by_groups.cpus {
        put("cpus", Enforcement::None);
    }
}

/// The environment that every command starts from.
fn clean_environment() -> Vec<(String, String)> {
    [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("HOME", glovebox_core::HOME_DIR),
        ("LANG", "C.UTF-8"),
        ("TERM", "xterm-256color"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}

/// What is seen of a sandbox besides its groups.
struct Look {
    store: StoreUse,
    read_bytes: u64,
    written_bytes: u64,
}

impl Made {
    /// Looks while the guest lives.
    fn look(&self) -> io::Result<Look> {
        let (read_bytes, written_bytes) = storage_bytes(self.guest_pid);
        Ok(Look { store: store::fullness(self.store.as_fd())?, read_bytes, written_bytes })
    }
}

fn evidence(counted: Counted, seen: Look) -> Evidence {
    Evidence {
        usage: Usage {
            cpu_ms: counted.cpu_ms,
            memory_peak_bytes: counted.memory_peak,
            processes_peak: counted.processes_peak,
            read_bytes: seen.read_bytes,
            written_bytes: seen.written_bytes,
        },
        memory_kills: counted.memory_kills + counted.watcher_kills,
        watched_memory: counted.watcher_kills > 0,
        pids_refused: counted.pids_refused,
        store: seen.store,
    }
}

fn unavailable(message: &str) -> Error {
    Error::new(ErrorCode::BackendUnavailable, message)
}

fn host_io(error: io::Error) -> Error {
    Error::new(ErrorCode::HostIo, "an operation on the host failed").because(error)
}

fn gone(id: SandboxId) -> Error {
    Error::new(ErrorCode::SandboxLost, format!("the sandbox {id} is gone"))
}
