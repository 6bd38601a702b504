//! The face of the Docker backend.

mod ending;
mod finding;
mod making;
mod starting;
mod sweeping;
mod watching;

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bollard::query_parameters::KillContainerOptionsBuilder;
use glovebox_core::{
    Backend, Created, Error, ErrorCode, Evidence, Features, Found, GuestStream, Image, ImageReference, Isolation,
    LimitsInForce, Outgrown, Result, RunId, SandboxId, SandboxSpec, SandboxState, StoreUse, UsageNow,
};
use jiff::Timestamp;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::OnceCell,
};

use self::ending::Guest;
use crate::{
    attaching,
    client::{Client, QUICK, SLOW},
    counted::Groups,
    describe::Machine,
    disk::Before,
    gvisor,
    images::{FoundImage, Listener},
    meeting::Meeting,
};
use watching::Watching;

/// Where a Docker backend finds what it needs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where Docker listens: `unix:///path`, `tcp://HOST:PORT`; without one, what `DOCKER_HOST` says, or the usual socket.
    pub host: Option<String>,
    /// The image of sandboxes that name none.
    pub image: Option<ImageReference>,
    /// The runtime of sandboxes that name none; without one, the engine's own choice.
    pub runtime: Option<String>,
    /// The folder for sockets, which does not outlive the host.
    pub runtime_folder: PathBuf,
    /// The folder for what does.
    pub data_folder: PathBuf,
    /// Who hears how far a fetch is.
    pub progress: Option<fn(&ImageReference) -> Listener>,
}

/// Sandboxes that a Docker engine makes.
#[derive(Debug)]
pub struct DockerBackend {
    client: Client,
    settings: Settings,
    machine: OnceCell<Machine>,
    sandboxes: Sandboxes,
    /// How often what others left is removed, in a process that lives that long.
    sweeps_every: Duration,
    /// Whether somebody does so.
    sweeps: AtomicBool,
}

/// The sandboxes that this process has made or taken hold of.
type Sandboxes = Arc<Mutex<HashMap<SandboxId, Arc<Held>>>>;

/// What this process holds of a sandbox.
#[derive(Debug)]
struct Held {
    /// Docker's id of its container.
    container: String,
    spec: SandboxSpec,
    limits: LimitsInForce,
    image: Image,
    image_digest: Option<String>,
    meeting: Meeting,
    /// Where the guest is waited for, until it came.
    listener: Mutex<Option<UnixListener>>,
    /// That of a one-shot sandbox, if it came before Docker said that it started.
    arrived: Mutex<Option<UnixStream>>,
    met: OnceCell<Met>,
    /// What was in the folders and volumes that it writes, before it began.
    before: Before,
    watching: Watching,
    /// How many in this process hold on to a living sandbox.
    users: AtomicUsize,
    /// Docker did not answer when the end was asked for.
    unanswered: AtomicBool,
    /// Why the guest could not be met.
    trouble: Mutex<Option<(ErrorCode, String, Option<String>)>>,
}

/// What is known of a sandbox whose guest said that it is ready.
#[derive(Debug)]
struct Met {
    /// The channel of a one-shot sandbox, until somebody takes it.
    channel: Mutex<Option<UnixStream>>,
    /// The guest, as the host knows it.
    pid: i32,
    /// A handle on that of a one-shot sandbox, where this process may have one.
    guest: Option<Guest>,
    groups: Groups,
    created: Created,
}

impl DockerBackend {
    /// A backend for the engine that the settings name. Nothing is asked of it yet.
    pub fn new(settings: Settings) -> Result<Self> {
        let client = Client::new(settings.host.as_deref())?;
        if !client.is_local {
            let message = format!("Docker at {} is on another machine", client.place);
            return Err(Error::new(ErrorCode::NotSupported, message)
                .hint("this version speaks to a Docker engine on the same machine, by its socket"));
        }
        let sandboxes = Sandboxes::default();
        let (machine, sweeps) = (OnceCell::new(), AtomicBool::default());
        Ok(DockerBackend { client, settings, machine, sandboxes, sweeps_every: sweeping::EVERY, sweeps })
    }

    /// Removes what dead owners left at another pace than once an hour. The first time is with the first sandbox, behind its
    /// start.
    #[must_use]
    pub fn with_sweeps_every(mut self, pace: Duration) -> Self {
        self.sweeps_every = pace;
        self
    }

    /// Whether the engine answers, and within this time.
    pub async fn answers_within(&self, patience: Duration) -> bool {
        self.client.answers_within(patience).await
    }

    /// Where the engine is.
    pub fn place(&self) -> &str {
        &self.client.place
    }

    /// The images that are there.
    pub async fn images(&self) -> Result<Vec<FoundImage>> {
        self.client.images().await
    }

    /// Removes an image.
    pub async fn remove_image(&self, reference: &ImageReference) -> Result<()> {
        self.client.remove_image(reference).await
    }

    /// The host process id of a sandbox's guest, PID 1 inside.
    pub fn guest_pid(&self, id: SandboxId) -> Option<i32> {
        self.all().get(&id).and_then(|held| held.met.get()).map(|met| met.pid)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Held>>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self, id: SandboxId) -> Result<Arc<Held>> {
        self.all().get(&id).cloned().ok_or_else(|| gone(id))
    }

    /// What is known of a sandbox, once its guest said that it is ready.
    async fn met<'a>(&self, held: &'a Held) -> Result<&'a Met> {
        held.met.get_or_try_init(|| async { self.meet(held).await.inspect_err(|error| held.note(error)) }).await
    }

    /// Ends the processes of a container, and says what was counted until then.
    async fn kill(&self, held: &Held) -> Result<Option<Evidence>> {
        let evidence = held.met.get().map(Met::evidence);
        // Where this process can do it, Docker is not asked.
        if let Some(any) = held.kill_guest() {
            return Ok(evidence.filter(|_| any));
        }
        let options = KillContainerOptionsBuilder::new().signal("SIGKILL").build();
        let asked = self.client.docker.kill_container(&held.container, Some(options));
        let killed = self.client.ask_if_there("end a container", SLOW, asked).await?;
        Ok(evidence.filter(|_| killed.is_some()))
    }
}

impl Held {
    /// Keeps why the guest could not be met.
    fn note(&self, error: &Error) {
        let told = (error.code, error.message.clone(), error.hint.clone());
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(told);
    }

    /// Why the guest could not be met.
    fn trouble(&self) -> Error {
        let told = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match told {
            Some((code, message, hint)) => Error { hint, ..Error::new(code, message) },
            None => Error::new(ErrorCode::SandboxLost, "the sandbox is gone"),
        }
    }
}

impl Met {
    /// What the kernel counted until now.
    fn evidence(&self) -> Evidence {
        self.groups.evidence(self.store())
    }

    /// How full the file systems of a one-shot sandbox are. The fullest one decides.
    fn store(&self) -> StoreUse {
        let unknown = Evidence::unknown().store;
        if self.created.limits.store != "tmpfs" {
            return unknown;
        }
        let root = Path::new("/proc").join(self.pid.to_string()).join("root");
        let mut store: Option<StoreUse> = None;
        for folder in ["workspace", "home/user", "tmp", "dev/shm"] {
            let Ok(found) = rustix::fs::statvfs(root.join(folder)) else { return unknown };
            let used = (found.f_blocks - found.f_bfree) * found.f_frsize;
            let (free, inodes) = (found.f_bavail * found.f_frsize, found.f_favail);
            let before = store.unwrap_or(StoreUse { used_bytes: 0, free_bytes: u64::MAX, free_inodes: u64::MAX });
            store = Some(StoreUse {
                used_bytes: before.used_bytes + used,
                free_bytes: before.free_bytes.min(free),
                free_inodes: before.free_inodes.min(inodes),
            });
        }
        store.unwrap_or(unknown)
    }
}

#[async_trait]
impl Backend for DockerBackend {
    fn name(&self) -> &'static str {
        "docker"
    }

    async fn probe(&self) -> Result<Features> {
        self.client.ask("say whether it is there", QUICK, self.client.docker.ping()).await?;
        let machine = self.machine().await?;
        let features = Features {
            disk_limit: machine.can_be_watched,
            namespaces: true,
            cgroup_limits: true,
            separate_guest: true,
            living: true,
            pause: true,
            workspace_overlay: true,
            host_kernel: true,
            files_through_guest: true,
            mounts: attaching::may_attach() || attaching::is_user_of_commands(),
            idmapped_mounts: attaching::may_attach(),
            group_namespace: machine.group_namespaces,
            inode_limit: !machine.is_podman,
            ..Features::default()
        };
        let in_gvisor = machine.runtimes.is_gvisor(self.settings.runtime.as_deref());
        Ok(if in_gvisor { gvisor::features(features) } else { features })
    }

    fn files_through_guest(&self) -> bool {
        true
    }

    fn environment(&self) -> Vec<(String, String)> {
        // The variables of the image, PATH among them, are known inside.
        let variables = [("HOME", glovebox_core::HOME_DIR), ("LANG", "C.UTF-8"), ("TERM", "xterm-256color")];
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    async fn create(&self, id: SandboxId, spec: &SandboxSpec) -> Result<()> {
        self.make(id, spec).await?;
        self.sweep_now_and_then();
        Ok(())
    }

    async fn connect(&self, id: SandboxId) -> Result<GuestStream> {
        let held = self.held(id)?;
        if held.spec.living.is_some() {
            // The guest is frozen with all else, and would not answer.
            if self.look_at_state(id).await? == SandboxState::Paused {
                let message = format!("the sandbox {id} is paused");
                return Err(Error::new(ErrorCode::WrongState, message).hint(format!("glovebox resume {id}")));
            }
            let stream = held.meeting.connect().await.map_err(|error| gone(id).because(error))?;
            return Ok(Box::new(stream));
        }
        let met = self.met(&held).await?;
        let channel = met.channel.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(Box::new(channel.ok_or_else(|| gone(id))?))
    }

    async fn ready(&self, id: SandboxId) -> Result<Created> {
        let held = self.held(id)?;
        Ok(self.met(&held).await?.created.clone())
    }

    async fn evidence(&self, id: SandboxId, _run: Option<RunId>) -> Result<Evidence> {
        let held = self.held(id)?;
        held.met.get().map(Met::evidence).ok_or_else(|| gone(id))
    }

    async fn usage(&self, id: SandboxId) -> Result<UsageNow> {
        let held = self.hold(id).await?;
        let met = held.met.get().ok_or_else(|| gone(id))?;
        let disk = match met.created.limits.store == "tmpfs" {
            true => Some(met.store().used_bytes),
            false => self.in_volumes(id, &held).await,
        };
        Ok(met.groups.usage(disk))
    }

    async fn watched_limit(&self, id: SandboxId, _run: Option<RunId>) -> Outgrown {
        if let Ok(held) = self.held(id)
            && let Some(watch) = self.watch_over(id, &held).await
            && let Ok(outgrown) = watch.follow().recv().await
        {
            return outgrown;
        }
        std::future::pending().await
    }

    async fn list(&self) -> Result<Vec<Found>> {
        self.look_around().await
    }

    async fn end(&self, id: SandboxId) -> Result<Option<Evidence>> {
        let Ok(held) = self.held(id) else { return Ok(None) };
        match self.kill(&held).await {
            Err(error) if error.code == ErrorCode::BackendUnavailable => {
                // What was counted is known all the same, and `destroy` says that the end is not.
                held.unanswered.store(true, Ordering::Relaxed);
                Ok(held.met.get().map(Met::evidence))
            }
            killed => killed,
        }
    }

    async fn why_gone(&self, id: SandboxId) -> Option<Error> {
        let held = self.held(id).ok()?;
        self.look_why_gone(&held.container).await
    }

    async fn destroy(&self, id: SandboxId) -> Result<()> {
        let Some(held) = self.all().remove(&id) else { return Ok(()) };
        let removed = match held.unanswered.load(Ordering::Relaxed) {
            true => Err(left_to_docker(&self.client.place)),
            false => self.remove(&held).await.map_err(|error| match error.code {
                ErrorCode::BackendUnavailable => left_to_docker(&self.client.place).because(error),
                _ => error,
            }),
        };
        held.meeting.remove();
        removed
    }

    fn abandon(&self, id: SandboxId) {
        let Some(held) = self.all().remove(&id) else { return };
        // The guest of a one-shot sandbox ends with its connection, and Docker removes its container then. One that has not
        // come yet finds nobody who listens.
        held.meeting.remove();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (client, container) = (self.client.clone(), held.container.clone());
            // What does not succeed here is found by its labels.
            runtime.spawn(async move { client.remove(&container).await });
        }
    }

    async fn state(&self, id: SandboxId) -> Result<SandboxState> {
        self.look_at_state(id).await
    }

    async fn isolation(&self, id: SandboxId) -> Option<Isolation> {
        let held = self.hold(id).await.ok()?;
        held.met.get().map(|met| met.created.isolation.clone())
    }

    async fn open(&self, id: SandboxId, spec: &SandboxSpec) -> Result<Created> {
        self.take_hold(id, spec).await
    }

    fn release(&self, id: SandboxId) {
        let mut all = self.all();
        if all.get(&id).is_some_and(|held| held.users.fetch_sub(1, Ordering::Relaxed) == 1) {
            all.remove(&id);
        }
    }

    async fn pause(&self, id: SandboxId) -> Result<Option<u64>> {
        let held = self.held(id)?;
        held.meeting.note_pause(true).map_err(host_io)?;
        self.client.ask("pause a container", SLOW, self.client.docker.pause_container(&held.container)).await?;
        let groups = held.met.get().map(|met| met.groups.clone());
        let reclaiming = tokio::task::spawn_blocking(move || groups.and_then(|groups| groups.reclaim()));
        // It goes on when nobody waits for it any more.
        Ok(tokio::time::timeout(RECLAIMING, reclaiming).await.ok().and_then(Result::ok).flatten())
    }

    async fn resume(&self, id: SandboxId) -> Result<()> {
        let held = self.held(id)?;
        held.meeting.note_pause(false).map_err(host_io)?;
        self.client.ask("let a container go on", SLOW, self.client.docker.unpause_container(&held.container)).await
    }

    fn paused_since(&self, id: SandboxId, since: Timestamp) -> Duration {
        Meeting::of(&self.settings.runtime_folder, id).paused_since(since)
    }

    async fn unused_for(&self, id: SandboxId) -> Option<Duration> {
        let held = self.hold(id).await.ok()?;
        let met = held.met.get()?;
        held.meeting.unused_for().filter(|_| met.groups.usage(None).processes == 0)
    }

    async fn remove_store(&self, store: &Path) -> Result<()> {
        self.sweeper().remove_volumes(store).await
    }

    async fn collect_garbage(&self) -> Result<Vec<String>> {
        self.sweeper().remove_left().await
    }
}

/// What is said of a sandbox that is not there.
fn gone(id: SandboxId) -> Error {
    Error::new(ErrorCode::SandboxLost, format!("the sandbox {id} is gone"))
}

/// What is said of a container whose end Docker was asked for and did not confirm.
fn left_to_docker(place: &str) -> Error {
    let message = format!("Docker at {place} does not answer, so nobody knows whether the container is removed");
    Error::new(ErrorCode::StillEnding, message).hint(
        "it ends by itself without us; when Docker answers again, `glovebox gc --backend docker` removes what is left",
    )
}

/// What is said of a failure of this machine's own.
fn host_io(error: io::Error) -> Error {
    Error::new(ErrorCode::HostIo, "an operation of the host failed").because(error)
}

/// Removes a folder and all in it, if it is there.
fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// How long is waited for memory to be given back.
const RECLAIMING: Duration = Duration::from_secs(2);

/// How long a guest may take from the start of its container until it is ready.
const ARRIVAL: Duration = Duration::from_secs(60);
