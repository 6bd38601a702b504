//! What a backend must do.

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    ContentKeeper, Error, ErrorCode, Evidence, GivenFile, Image, Isolation, LimitKind, LimitsInForce, LookFor, Result,
    RunId, SandboxId, SandboxSpec, SandboxState, UsageNow, WorkspaceLook,
};

/// A byte stream to the guest inside a sandbox.
pub type GuestStream = Box<dyn GuestIo>;

/// What a [`GuestStream`] can do.
pub trait GuestIo: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> GuestIo for T {}

/// What a backend can do. A test that needs what is not declared is skipped, and says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// A sandbox has namespaces and a root of its own: `/workspace`, `/home/user` and `/tmp` are where they always are,
    /// and nothing of the host's processes, networks and names is there.
    pub namespaces: bool,
    /// Memory, CPU and processes are held by control groups.
    pub cgroup_limits: bool,
    /// A workspace can be an overlay over a host directory.
    pub workspace_overlay: bool,
    /// Host files and folders can be mounted.
    pub mounts: bool,
    /// The host's network can be given to a sandbox.
    pub network_full: bool,
    /// The size of all that can be written is limited.
    pub disk_limit: bool,
    /// The image `host` can be used.
    pub host_image: bool,
    /// Programs can set extended attributes on what they write.
    pub user_xattrs: bool,
    /// With the host's network, the host's abstract sockets are still out of reach.
    pub scoped_sockets: bool,
    /// Without control groups memory is held by a watch and by a resource limit of each process.
    pub watched_memory: bool,
    /// Folders of the host that are mounted appear with shifted owners: whoever they belong to is the user of commands inside.
    pub idmapped_mounts: bool,
    /// Every sandbox has ids of the host that nothing else has.
    pub own_ids: bool,
    /// A sandbox that was killed and in which the kernel does not let a process die is told as one that ends, and is over when that process is.
    pub ends_later: bool,
    /// The guest runs under another id than the commands.
    pub separate_guest: bool,
    /// Processes of several runs in one sandbox are told apart by the kernel, so that ending one run ends all of it,
    /// daemons in sessions of their own included, and nothing of the others.
    pub run_groups: bool,
    /// Sandboxes can outlive those who made them.
    pub living: bool,
    /// A living sandbox can be frozen and go on later.
    pub pause: bool,
    /// Its guest answers while it is frozen: its runs can be listed, followed and ended.
    pub guest_outlives_pause: bool,
    /// All that can be written lies in one file system, whose size is the disk limit and which is no memory of the programs.
    pub one_store: bool,
    /// The root is Glovebox's own: its mounts show no path of the host and run no program with the rights of its owner, and only
    /// what was asked for is in it.
    pub own_root: bool,
    /// A sandbox has a namespace of control groups of its own.
    pub group_namespace: bool,
    /// How many files and folders a sandbox that ends with its run can hold is limited.
    pub inode_limit: bool,
    /// Programs meet the host's own kernel. Another one, such as gVisor's, lacks calls of it, files of its `/proc` and what it counts.
    pub host_kernel: bool,
    /// No folder of the host holds the files of a sandbox, so they are reached through a guest: see
    /// [`Backend::files_through_guest`].
    pub files_through_guest: bool,
    /// A sandbox sees the host's own files and folders, and can be let write to them. Else they are copied to where it is, and it
    /// can read them.
    pub host_folders: bool,
    /// Volumes are kept where the sandboxes are, on another machine: see [`Backend::keeps_volumes_at`].
    pub volumes_elsewhere: bool,
    /// What the kernel counted is read where it counts: the most processes that there were, those that were refused, and how full
    /// the files are.
    pub counters: bool,
}

/// What was made, as checked after it was made.
#[derive(Clone, Debug)]
pub struct Created {
    /// Layers that are in place and that are missing.
    pub isolation: Isolation,
    /// Limits that are really in force.
    pub limits: LimitsInForce,
    /// Where the folders of a sandbox without a root of its own are: each by its path inside and its path on the host.
    pub places: Vec<(String, String)>,
    /// What it started from.
    pub image: Image,
    /// The digest of that image, where it has one.
    pub image_digest: Option<String>,
}

/// What a sandbox has too much of, as a watch saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outgrown {
    /// Bytes.
    Bytes,
    /// Files and folders.
    Files,
    /// What is in a volume, which others may write too.
    Volume {
        /// Its path inside.
        target: String,
        /// How much it may hold.
        bytes: u64,
    },
}

impl Outgrown {
    /// The limit that was passed.
    pub fn limit(&self) -> LimitKind {
        match self {
            Outgrown::Bytes => LimitKind::Disk,
            Outgrown::Files => LimitKind::Inodes,
            Outgrown::Volume { .. } => LimitKind::Volume,
        }
    }
}

/// A sandbox that a backend knows of, or what is left of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its id.
    pub id: SandboxId,
    /// Whether a live owner holds it.
    pub owned: bool,
}

/// Makes sandboxes somewhere, holds them to their limits, gives evidence of what happened there, and carries a
/// byte stream to the guest inside each.
#[async_trait]
pub trait Backend: Send + Sync {
    /// The backend's name, as in `--backend`.
    fn name(&self) -> &'static str;

    /// Whether it can work here, and what it can do.
    async fn probe(&self) -> Result<Features>;

    /// The environment that every command starts from.
    fn environment(&self) -> Vec<(String, String)>;

    /// Whether the files of its sandboxes can be reached through the guest alone. The engine then copies a workspace in whose
    /// writes stay inside, so [`Backend::create`] is told of none, and finds out changes by asking the guest, so
    /// [`Backend::changes`] is never called; those of a living sandbox that does not run by asking that of another one, which shows its
    /// files ([`SandboxSpec::files_of`]). It is what [`Features::files_through_guest`] says, without asking.
    fn files_through_guest(&self) -> bool {
        false
    }

    /// Whether what is counted of a living sandbox is that of all its runs, and is quickly told: the engine then asks before a run too, and takes the
    /// difference for the run's own.
    fn counts_runs_together(&self) -> bool {
        false
    }

    /// Begins to make a sandbox; [`Backend::ready`] tells when it is made. When it fails, nothing of it is left.
    async fn create(&self, id: SandboxId, spec: &SandboxSpec) -> Result<()>;

    /// Connects to the guest. The stream may be used before the sandbox is ready: the guest reads what was written as
    /// soon as it lives.
    async fn connect(&self, id: SandboxId) -> Result<GuestStream>;

    /// Waits until a sandbox is made and checked. When it fails, nothing of it is left.
    async fn ready(&self, id: SandboxId) -> Result<Created>;

    /// What the host saw of the sandbox so far; of one run alone, where the backend tells runs apart and the run is over.
    async fn evidence(&self, id: SandboxId, run: Option<RunId>) -> Result<Evidence>;

    /// What the sandbox uses now.
    async fn usage(&self, id: SandboxId) -> Result<UsageNow>;

    /// What the sandbox did to its workspace so far, apart from the files that it was given. Where there is a keeper, the
    /// contents of changed files are handed to it, as they were and as they are. Count, bytes and time are bounded; what
    /// is over a bound is said in the record.
    async fn changes(
        &self,
        _id: SandboxId,
        _look_for: LookFor,
        _given: &[GivenFile],
        _keeper: Option<Arc<dyn ContentKeeper>>,
    ) -> Result<WorkspaceLook> {
        Err(not_supported(self.name(), "files that the host can see"))
    }

    /// The same for a living sandbox that nobody holds, be it stopped. Its spec is that which it was made by.
    async fn changes_of_living(
        &self,
        _id: SandboxId,
        _spec: &SandboxSpec,
        _keeper: Option<Arc<dyn ContentKeeper>>,
    ) -> Result<WorkspaceLook> {
        Err(not_supported(self.name(), "sandboxes that stay"))
    }

    /// Waits until a limit that only a watch holds is passed, by this run as far as that is known. Where nothing needs a watch,
    /// it waits for ever. Without a run, somebody wants to know who writes files by other means.
    async fn watched_limit(&self, id: SandboxId, run: Option<RunId>) -> Outgrown;

    /// Sandboxes, and leftovers of sandboxes, that this host knows of.
    async fn list(&self) -> Result<Vec<Found>>;

    /// Why a sandbox went away whose guest does not answer any more, where that can be known from outside.
    async fn why_gone(&self, id: SandboxId) -> Option<Error> {
        let _ = id;
        None
    }

    /// Begins to end a sandbox: no process inside goes on. Says what the host saw of it until then, unless it is gone
    /// already. [`Backend::destroy`] waits for the rest.
    async fn end(&self, id: SandboxId) -> Result<Option<Evidence>>;

    /// Ends a sandbox, if that has not begun, and waits until nothing of it is left: processes, mounts, groups, files. Where
    /// the kernel does not let a process end, it does not wait for ever: [`ErrorCode::StillEnding`]. What is left then is
    /// removed when that process ends.
    async fn destroy(&self, id: SandboxId) -> Result<()>;

    /// Asks for the end of a sandbox without waiting for it. For destructors.
    fn abandon(&self, id: SandboxId);

    /// In which state a living sandbox is: [`SandboxState::Creating`] while it is made or started, [`SandboxState::Ready`],
    /// [`SandboxState::Paused`], [`SandboxState::Stopping`] when it was killed and has not ended, or [`SandboxState::Stopped`]
    /// when no process of it is there.
    async fn state(&self, _id: SandboxId) -> Result<SandboxState> {
        Ok(SandboxState::Stopped)
    }

    /// For how long a living sandbox was not used, where nothing is at work in it now.
    async fn unused_for(&self, _id: SandboxId) -> Option<Duration> {
        None
    }

    /// The layers of a living sandbox, once they were looked at.
    async fn isolation(&self, _id: SandboxId) -> Option<Isolation> {
        None
    }

    /// Takes hold of a living sandbox, whoever made it. Its spec is that which it was made by. Who did so, or made it, lets go of it once,
    /// whatever becomes of the sandbox.
    async fn open(&self, _id: SandboxId, _spec: &SandboxSpec) -> Result<Created> {
        Err(not_supported(self.name(), "sandboxes that stay"))
    }

    /// Lets go of a living sandbox without ending it, or after its end.
    fn release(&self, _id: SandboxId) {}

    /// Freezes all processes of a living sandbox, and gives back memory that they do not need for that. Says how many bytes,
    /// if that was known soon.
    async fn pause(&self, _id: SandboxId) -> Result<Option<u64>> {
        Err(not_supported(self.name(), "pausing"))
    }

    /// How long a living sandbox was paused since a moment, as far as it was since its last start.
    fn paused_since(&self, _id: SandboxId, _since: Timestamp) -> Duration {
        Duration::ZERO
    }

    /// Lets those processes of a paused sandbox end that were killed.
    async fn let_die(&self, _id: SandboxId) -> Result<()> {
        Ok(())
    }

    /// Lets the processes of a paused sandbox go on.
    async fn resume(&self, _id: SandboxId) -> Result<()> {
        Err(not_supported(self.name(), "pausing"))
    }

    /// Removes the folder that holds the files of a living sandbox, which must have ended.
    async fn remove_store(&self, _store: &Path) -> Result<()> {
        Err(not_supported(self.name(), "sandboxes that stay"))
    }

    /// Where volumes of its sandboxes are kept, if that is no folder of this machine: what people know it by, and what tells it from others.
    fn keeps_volumes_at(&self) -> Option<String> {
        None
    }

    /// Removes a volume that is kept there, by the name that it has there. One that is not there is as good as removed.
    async fn remove_volume_there(&self, _volume: &str) -> Result<()> {
        Err(not_supported(self.name(), "remove volumes of another machine"))
    }

    /// Removes what dead owners left, and says what it was.
    async fn collect_garbage(&self) -> Result<Vec<String>>;
}

fn not_supported(backend: &str, what: &str) -> Error {
    Error::new(ErrorCode::NotSupported, format!("the backend {backend} does not have {what}"))
}
