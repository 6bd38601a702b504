//! The face of the Docker backend.

mod elsewhere;
mod ending;
mod finding;
mod later;
mod making;
mod showing;
mod starting;
mod sweeping;
mod unfinished;
mod watching;

use std::{
    collections::HashMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use async_trait::async_trait;
use glovebox_core::{
    Backend, Created, Error, ErrorCode, Evidence, Features, Found, GuestStream, Holders, Image, ImageReference,
    Isolation, LimitsInForce, Outgrown, Result, RunId, SandboxId, SandboxSpec, SandboxState, UsageNow,
};
use jiff::Timestamp;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::OnceCell,
};

use crate::{
    attaching,
    bridge::{Bridge, Key},
    client::{Client, QUICK, SLOW, is_unanswered},
    counted::Groups,
    describe::{self, Machine, OwnFiles},
    disk::Before,
    gvisor,
    images::{FoundImage, Listener},
    meeting::Meeting,
    owner::Stores,
    told::Ear,
};
use ending::GuestHandle;
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
    /// The folder for what does, that of the engine which this backend is for.
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
    /// The files of ours that an engine on another machine has.
    installed: Installed,
    sandboxes: Sandboxes,
    holders: Holders,
    /// Where the records of living ones are.
    stores: Stores,
    /// How often what others left is removed, in a process that lives that long.
    sweeps_every: Duration,
    /// Whether somebody does so.
    sweeps: AtomicBool,
}

/// Files of ours on another machine, by the ids of the users that they name.
type Installed = tokio::sync::Mutex<HashMap<(u32, u32), OwnFiles>>;

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
    /// What the guest lets somebody in for, where it is on another machine and this process made it.
    key: Option<Key>,
    /// The bridge to it there, which all connections of this process go over.
    bridge: tokio::sync::Mutex<Option<Bridge>>,
    /// Who hears of kills for memory there.
    ear: Option<Ear>,
    met: OnceCell<Met>,
    /// What was in the folders and volumes that it writes, before it began.
    before: Before,
    watching: Watching,
    /// Why it is not known to have ended, although Docker was asked to end it.
    unended: Mutex<Option<Error>>,
    /// Why the guest could not be met.
    trouble: Mutex<Option<(ErrorCode, String, Option<String>)>>,
}

/// What is known of a sandbox whose guest said that it is ready.
struct Met {
    /// The channel of a one-shot sandbox, until somebody takes it.
    channel: Mutex<Option<GuestStream>>,
    /// The guest, as the host knows it, if it is on this machine.
    pid: Option<i32>,
    /// A handle on that of a one-shot sandbox, where this process may have one.
    guest: Option<GuestHandle>,
    groups: Groups,
    created: Created,
}

impl fmt::Debug for Met {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Met").field("pid", &self.pid).field("created", &self.created).finish_non_exhaustive()
    }
}

impl DockerBackend {
    /// A backend for the usual engine, which keeps all that it needs below a folder of the caller's own, and whose sandboxes are of this image unless
    /// they name another.
    pub fn start(folder: impl Into<PathBuf>, image: &str) -> Result<Self> {
        let folder = folder.into();
        let image =
            Some(ImageReference::parse(image).map_err(|error| Error::new(ErrorCode::Usage, error.to_string()))?);
        let (runtime_folder, data_folder) = (folder.join("run"), folder);
        DockerBackend::new(Settings { host: None, image, runtime: None, runtime_folder, data_folder, progress: None })
    }

    /// A backend for the engine that the settings name. Nothing is asked of it yet.
    pub fn new(settings: Settings) -> Result<Self> {
        let client = Client::new(settings.host.as_deref())?;
        let (sandboxes, holders) = (Sandboxes::default(), Holders::default());
        let stores = Stores::below(settings.data_folder.clone());
        let (machine, sweeps) = (OnceCell::new(), AtomicBool::default());
        let (installed, sweeps_every) = (Installed::default(), sweeping::EVERY);
        Ok(DockerBackend { client, settings, machine, installed, sandboxes, holders, stores, sweeps_every, sweeps })
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
        self.all().get(&id).and_then(|held| held.met.get()).and_then(|met| met.pid)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Held>>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self, id: SandboxId) -> Result<Arc<Held>> {
        self.all().get(&id).cloned().ok_or_else(|| gone(id))
    }

    /// What is known of a sandbox, once its guest said that it is ready.
    async fn met<'a>(&self, held: &'a Held) -> Result<&'a Met> {
        let meet = || async { self.meet_and_note(held).await.inspect_err(|error| held.note(error)) };
        held.met.get_or_try_init(meet).await
    }

    /// What was counted of a sandbox until now, by this kernel or by an engine on another machine.
    async fn seen(&self, held: &Held, run: Option<RunId>) -> Result<Option<Evidence>> {
        match (held.met.get(), self.client.is_local()) {
            (None, _) => Ok(None),
            (Some(met), true) => Ok(Some(met.evidence())),
            (Some(_), false) => self.client.evidence(&held.container, held.ear.as_ref(), run).await.map(Some),
        }
    }

    /// What a sandbox uses now.
    async fn in_use(&self, id: SandboxId, held: &Held) -> Result<Option<UsageNow>> {
        match (held.met.get(), self.client.is_local()) {
            (None, _) => Ok(None),
            (Some(met), true) => {
                let disk = match met.created.limits.store == "tmpfs" {
                    true => Some(met.store().used_bytes),
                    false => self.in_volumes(id, held).await,
                };
                Ok(Some(met.groups.usage(disk)))
            }
            (Some(_), false) => self.client.usage(&held.container).await.map(Some),
        }
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

#[async_trait]
impl Backend for DockerBackend {
    fn name(&self) -> &'static str {
        "docker"
    }

    async fn probe(&self) -> Result<Features> {
        self.client.ask("say whether it is there", QUICK, self.client.docker.ping()).await?;
        let machine = self.machine().await?;
        let is_local = self.client.is_local();
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
            mounts: is_local && (attaching::may_attach() || attaching::is_user_of_commands(machine.root)),
            idmapped_mounts: is_local && attaching::may_attach(),
            group_namespace: machine.group_namespaces,
            inode_limit: !machine.is_podman,
            host_folders: is_local,
            volumes_elsewhere: !is_local,
            counters: is_local,
            ends_later: is_local && !machine.is_podman,
            ..Features::default()
        };
        let in_gvisor = machine.runtimes.is_gvisor(self.settings.runtime.as_deref());
        Ok(if in_gvisor { gvisor::features(features) } else { features })
    }

    fn files_through_guest(&self) -> bool {
        true
    }

    fn counts_runs_together(&self) -> bool {
        // To ask an engine on another machine takes a second or two.
        self.client.is_local()
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
            let (held, is_paused) = self.look_again(id, held).await?;
            if let Some(other) = held.meeting.other_way(&self.client.place) {
                let message =
                    format!("the sandbox {id} was started by way of {other}, and this is {}", self.client.place);
                return Err(Error::new(ErrorCode::WrongState, message).hint(format!("set DOCKER_HOST={other}")));
            }
            // The guest is frozen with all else, and would not answer.
            if is_paused {
                let message = format!("the sandbox {id} is paused");
                return Err(Error::new(ErrorCode::WrongState, message).hint(format!("glovebox resume {id}")));
            }
            return Ok(match self.client.is_local() {
                true => Box::new(held.connect().await.map_err(|error| gone(id).or_too_many(error))?),
                false => Box::new(self.reach(id, &held).await?),
            });
        }
        let met = self.met(&held).await?;
        let channel = met.channel.lock().unwrap_or_else(PoisonError::into_inner).take();
        channel.ok_or_else(|| gone(id))
    }

    async fn ready(&self, id: SandboxId) -> Result<Created> {
        let held = self.held(id)?;
        Ok(self.met(&held).await?.created.clone())
    }

    async fn evidence(&self, id: SandboxId, run: Option<RunId>) -> Result<Evidence> {
        let held = self.held(id)?;
        self.seen(&held, run).await?.ok_or_else(|| gone(id))
    }

    async fn usage(&self, id: SandboxId) -> Result<UsageNow> {
        let held = self.hold(id).await?;
        self.in_use(id, &held).await?.ok_or_else(|| gone(id))
    }

    async fn watched_limit(&self, id: SandboxId, _run: Option<RunId>) -> Outgrown {
        // Most runs are over by then, and nobody starts a thread for them.
        tokio::time::sleep(BEFORE_THE_FIRST_LOOK).await;
        if let Ok(held) = self.held(id)
            && let Some(watch) = self.watch_over(id, &held).await
        {
            return watch.follow().outgrown().await;
        }
        std::future::pending().await
    }

    async fn list(&self) -> Result<Vec<Found>> {
        self.look_around().await
    }

    async fn end(&self, id: SandboxId) -> Result<Option<Evidence>> {
        let Ok(held) = self.held(id) else { return Ok(None) };
        match self.kill(&held).await {
            // What was counted is known all the same, and `destroy` says that the end is not.
            Err(error) if is_unanswered(&error) || error.code == ErrorCode::StillEnding => {
                let unended = self.unended(id, &held, error);
                *held.unended.lock().unwrap_or_else(PoisonError::into_inner) = Some(unended);
                Ok(held.met.get().filter(|_| self.client.is_local()).map(Met::evidence))
            }
            killed => killed,
        }
    }

    async fn why_gone(&self, id: SandboxId) -> Option<Error> {
        let held = self.held(id).ok()?;
        self.look_why_gone(&held).await
    }

    async fn destroy(&self, id: SandboxId) -> Result<()> {
        self.destroy_held(id).await
    }

    fn abandon(&self, id: SandboxId) {
        let Some(held) = self.all().remove(&id) else { return };
        // The guest of a one-shot sandbox ends with its connection, and Docker removes its container then. One that has not
        // come yet finds nobody who listens.
        held.meeting.remove();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (sweeper, container) = (self.sweeper(), held.container.clone());
            let given =
                (!self.client.is_local() && describe::needs_files(&held.spec)).then(|| describe::volume_of_given(id));
            // One that stays may be started again meanwhile, in the same folder.
            let meeting = held.spec.living.is_none().then(|| held.meeting.clone());
            runtime.spawn(async move {
                // What does not succeed here is found by its labels.
                let _ = sweeper.remove(&container, given.as_deref()).await;
                // Podman makes a folder again that is gone when it comes to mount it.
                meeting.iter().for_each(Meeting::remove);
            });
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
        if self.holders.let_go(id) {
            all.remove(&id);
        }
    }

    async fn pause(&self, id: SandboxId) -> Result<Option<u64>> {
        let held = self.held(id)?;
        if self.machine().await?.runtimes.is_gvisor(held.spec.runtime.as_deref()) {
            let message = "a sandbox in gVisor cannot be paused: it could not be ended before it goes on";
            return Err(Error::new(ErrorCode::NotSupported, message).hint("glovebox stop keeps its files"));
        }
        held.meeting.note_pause(true).map_err(host_io)?;
        let asked = self.client.docker.pause_container(&held.container);
        if let Err(error) = self.client.ask("pause a container", SLOW, asked).await {
            // It goes on, and its time with it.
            held.meeting.note_pause(false).map_err(host_io)?;
            return Err(error);
        }
        let groups = held.met.get().map(|met| met.groups.clone());
        let reclaiming = tokio::task::spawn_blocking(move || groups.and_then(|groups| groups.reclaim()));
        // It goes on when nobody waits for it any more.
        Ok(tokio::time::timeout(RECLAIMING, reclaiming).await.ok().and_then(Result::ok).flatten())
    }

    async fn resume(&self, id: SandboxId) -> Result<()> {
        let (held, is_paused) = self.look_again(id, self.held(id)?).await?;
        if !is_paused {
            return Ok(());
        }
        held.meeting.note_pause(false).map_err(host_io)?;
        self.client.ask("let a container go on", SLOW, self.client.docker.unpause_container(&held.container)).await
    }

    fn paused_since(&self, id: SandboxId, since: Timestamp) -> Duration {
        Meeting::of(&self.settings.runtime_folder, id).paused_since(since)
    }

    async fn unused_for(&self, id: SandboxId) -> Option<Duration> {
        let held = self.hold(id).await.ok()?;
        let unused = held.meeting.unused_for()?;
        self.in_use(id, &held).await.ok().flatten().filter(|now| now.processes == 0).map(|_| unused)
    }

    async fn remove_store(&self, store: &Path) -> Result<()> {
        self.sweeper().remove_volumes(store).await
    }

    fn keeps_volumes_at(&self) -> Option<String> {
        (!self.client.is_local()).then(|| self.client.place.clone())
    }

    async fn remove_volume_there(&self, volume: &str) -> Result<()> {
        self.client.remove_volume(volume).await.map(drop)
    }

    async fn collect_garbage(&self) -> Result<Vec<String>> {
        self.sweeper().remove_left().await
    }
}

/// What is said of a sandbox that is not there.
fn gone(id: SandboxId) -> Error {
    Error::new(ErrorCode::SandboxLost, format!("the sandbox {id} is gone"))
}

/// What is said of a failure of this machine's own.
fn host_io(error: io::Error) -> Error {
    let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let failed = Error::new(ErrorCode::HostIo, "an operation of the host failed").or_too_many(error);
    if is_full { failed.hint("make room on the disk of the data folder, or use another --data-dir") } else { failed }
}

/// How long a run goes on before somebody looks at what it writes. Looks are some tenths of a second apart.
const BEFORE_THE_FIRST_LOOK: Duration = Duration::from_millis(20);

/// How long is waited for memory to be given back.
const RECLAIMING: Duration = Duration::from_secs(2);

/// How long a guest may take from the start of its container until it is ready.
const ARRIVAL: Duration = Duration::from_secs(60);
