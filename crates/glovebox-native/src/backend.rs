//! The face of the native backend.

mod ending;
mod evidence;
mod features;
mod living;
mod looking;
mod meeting;
mod planning;

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use glovebox_core::{
    Backend, ContentKeeper, Created, Error, ErrorCode, Evidence, Features, Found, GivenFile, GuestStream, Holders,
    Isolation, Layer, LimitsInForce, LookFor, Outgrown, Result, RunId, SandboxId, SandboxSpec, SandboxState, Tier,
    UsageNow, WorkspaceLook,
};
use jiff::Timestamp;
use rustix::process::{Signal, pidfd_send_signal};
use tokio::net::UnixStream;

use crate::{
    answers::{Answers, another_question, answer, no_launcher},
    cgroup::{Cgroups, HeldByGroups},
    changes::{Layers, Written},
    host_facts, launcher,
    living::{Door, LivingFolder},
    owner::{self, Own, RuntimeFolder},
    plan::{Answer, Order},
    standing::{Standing, caller_is_root_outside},
    sys::{self, Forked},
    wire,
};

use evidence::evidence;
use looking::{look_for_changes, said_by_watch};
use meeting::hear;
use planning::{limits_in_force, make_plan};

/// Sandboxes of this host's own kernel, for root and for ordinary users.
#[derive(Debug)]
pub struct NativeBackend {
    /// The launcher of this process, where there is one.
    launcher: Option<Launcher>,
    /// The program that makes a launcher, where this process has none; see [`NativeBackend::without_launcher`].
    program: Option<PathBuf>,
    cgroups: OnceLock<Cgroups>,
    sandboxes: Mutex<HashMap<SandboxId, Held>>,
    holders: Holders,
}

/// The launcher of this process.
#[derive(Debug)]
struct Launcher {
    control: OwnedFd,
    pid: i32,
}

/// What this process holds of a sandbox.
#[derive(Debug)]
struct Held {
    /// Where a living sandbox is found, and what it was asked to be.
    living: Option<(LivingFolder, Arc<SandboxSpec>)>,
    /// Who keeps it, if it is not the launcher of this process.
    keeper: Option<OwnedFd>,
    channel: Option<OwnedFd>,
    /// Where the launcher answers, until it did.
    answer: Option<OwnedFd>,
    limits: LimitsInForce,
    required: Vec<Layer>,
    layers: Arc<Layers>,
    /// Whether commands are root outside, of one who makes sandboxes as an ordinary user.
    as_root: bool,
    made: Option<Made>,
    /// What it is, once it was made and checked.
    created: Option<Created>,
    /// Where the launcher tells of the end, once it was asked for.
    ending: Option<Answers>,
    /// The name of its groups, once its end was asked for.
    group: Option<String>,
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
    tier: Tier,
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
        let runtime = RuntimeFolder::of_caller_alone()?;
        let not_forked = |e| unavailable("the launcher could not be forked").because(e).hint(host_facts::hint());
        match sys::fork_aside().map_err(not_forked)? {
            Forked::Child => {
                // All descriptors of the caller are closed, its own end of the socket included.
                match sys::keep_only(theirs) {
                    Ok(control) => launcher::main(control, cpus, runtime),
                    Err(_) => sys::exit_now(1),
                }
            }
            Forked::Parent { pid, .. } => {
                let launcher = Some(Launcher { control, pid: pid.as_raw_nonzero().get() });
                Ok(NativeBackend {
                    launcher,
                    program: None,
                    cgroups: OnceLock::new(),
                    sandboxes: Mutex::default(),
                    holders: Holders::default(),
                })
            }
        }
    }

    /// What dead launchers left, for somebody who only wants to know.
    pub fn find_garbage() -> Result<Vec<String>> {
        let cgroups = Cgroups::look(Standing::is_root()).map_err(host_io)?;
        Ok(owner::find_garbage(&RuntimeFolder::of_caller_alone()?, &cgroups))
    }

    /// Removes what dead launchers left, without a launcher of one's own, and says what it was.
    pub fn collect_garbage_now() -> Result<Vec<String>> {
        let cgroups = Cgroups::detect(Standing::is_root()).map_err(host_io)?;
        owner::collect_garbage(&RuntimeFolder::of_caller_alone()?, &cgroups, Own::default()).map_err(host_io)
    }

    /// The launcher's process id.
    pub fn launcher_pid(&self) -> i32 {
        self.launcher.as_ref().map_or(0, |launcher| launcher.pid)
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

    /// Sends the launcher an order, and gives the socket on which the answer will come.
    fn order(&self, order: &Order, further: Option<&OwnedFd>) -> Result<OwnedFd> {
        let launcher = self.launcher.as_ref().ok_or_else(|| unavailable("this process has no launcher"))?;
        send_order(&launcher.control, order, further)
    }

    /// Sends an order to whoever keeps a sandbox, also when that is somebody else by now.
    async fn order_keeper(&self, id: SandboxId, order: &Order) -> Result<OwnedFd> {
        let (sent, folder) = match self.held().get(&id) {
            Some(Held { keeper: Some(keeper), living, .. }) => {
                (send_order(keeper, order, None), living.as_ref().map(|(folder, _)| folder.clone()))
            }
            _ => (self.order(order, None), None),
        };
        match (sent, folder) {
            (Err(error), Some(folder)) if error.code == ErrorCode::SandboxLost => {
                let (keeper, ..) = self.ask_keeper(&folder).await?;
                let sent = send_order(&keeper, order, None);
                if let Some(held) = self.held().get_mut(&id) {
                    held.keeper = Some(keeper);
                }
                sent
            }
            (sent, _) => sent,
        }
    }
}

fn send_order(socket: &OwnedFd, order: &Order, further: Option<&OwnedFd>) -> Result<OwnedFd> {
    let (here, there) = wire::message_pair().map_err(no_launcher)?;
    let fds: Vec<_> = [Some(&there), further].into_iter().flatten().map(AsFd::as_fd).collect();
    wire::send(socket, order, &fds).map_err(no_launcher)?;
    Ok(here)
}

/// What is said of a sandbox that was to end.
const NOT_ENDED: &str = "the sandbox could not be ended";

#[async_trait]
impl Backend for NativeBackend {
    fn name(&self) -> &'static str {
        "native"
    }

    async fn probe(&self) -> Result<Features> {
        self.features().await
    }

    fn environment(&self) -> Vec<(String, String)> {
        let variables = [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", glovebox_core::HOME_DIR),
            ("LANG", "C.UTF-8"),
            ("TERM", "xterm-256color"),
        ];
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    async fn create(&self, id: SandboxId, spec: &SandboxSpec) -> Result<()> {
        let (plan, lowered) = make_plan(spec)?;
        let layers = Arc::new(Layers::of(&plan)?);
        let limits = limits_in_force(spec, &plan, lowered);
        let as_root = plan.as_caller && caller_is_root_outside();
        let living = plan.living.is_some().then(|| LivingFolder::of(&RuntimeFolder::of_caller(), id));
        let living = living.map(|folder| (folder, Arc::new(spec.clone())));
        let order = Order::Create { id, plan: Box::new(plan) };
        let (channel, answer) = if living.is_some() {
            (None, Some(self.order(&order, None)?))
        } else {
            let (channel, theirs) = wire::stream_pair().map_err(host_io)?;
            (Some(channel), Some(self.order(&order, Some(&theirs))?))
        };
        let required = spec.required_layers.clone();
        let held = Held {
            living,
            keeper: None,
            channel,
            answer,
            limits,
            required,
            layers,
            as_root,
            made: None,
            created: None,
            ending: None,
            group: None,
        };
        let mut all = self.held();
        if held.living.is_some() {
            self.holders.add(id);
        }
        all.insert(id, held);
        Ok(())
    }

    async fn connect(&self, id: SandboxId) -> Result<GuestStream> {
        self.catch_up(id).await?;
        let channel = match self.held().get_mut(&id).ok_or_else(|| gone(id))? {
            Held { living: Some((folder, _)), .. } => {
                folder.touch().and_then(|()| folder.connect(Door::Channel)).map_err(|e| gone(id).or_too_many(e))?
            }
            held => held.channel.take().ok_or_else(|| gone(id))?,
        };
        rustix::io::ioctl_fionbio(&channel, true).map_err(|e| host_io(e.into()))?;
        let stream = UnixStream::from_std(channel.into()).map_err(host_io)?;
        Ok(Box::new(stream))
    }

    async fn ready(&self, id: SandboxId) -> Result<Created> {
        let socket = self.held().get_mut(&id).and_then(|held| held.answer.take()).ok_or_else(|| gone(id))?;
        let heard = hear(id, socket).await?;
        self.held().get_mut(&id).ok_or_else(|| gone(id))?.take(heard)
    }

    fn counts_runs_together(&self) -> bool {
        !self.has_run_groups()
    }

    async fn evidence(&self, id: SandboxId, run: Option<RunId>) -> Result<Evidence> {
        let (seen, groups, living) = {
            let all = self.held();
            let held = all.get(&id).ok_or_else(|| gone(id))?;
            let made = held.made.as_ref().ok_or_else(|| gone(id))?;
            let seen = made.look().map_err(host_io)?;
            (seen, made.by_groups.memory.then(|| made.group.clone()), held.living.is_some())
        };
        // Only the keeper knows the groups of the runs; and where no group counts, the launcher's watch does.
        let asked = match &groups {
            Some(_) if !living => None,
            _ => Some(answer(self.order_keeper(id, &Order::Count { id, run }).await?).await),
        };
        let counted = match (asked, groups) {
            (Some(Ok((Answer::Counted(counted), _))), _) => counted,
            (_, Some(name)) => self.cgroups()?.named(&name).count(),
            (Some(Err(error)), None) => return Err(error),
            _ => return Err(gone(id)),
        };
        Ok(evidence(counted, seen))
    }

    async fn usage(&self, id: SandboxId) -> Result<UsageNow> {
        match answer(self.order_keeper(id, &Order::Usage { id }).await?).await? {
            (Answer::Usage(usage), _) => Ok(usage),
            _ => Err(gone(id)),
        }
    }

    async fn changes(
        &self,
        id: SandboxId,
        look_for: LookFor,
        given: &[GivenFile],
        keeper: Option<Arc<dyn ContentKeeper>>,
    ) -> Result<WorkspaceLook> {
        let (store, layers, written) = {
            let all = self.held();
            let held = all.get(&id).ok_or_else(|| gone(id))?;
            let made = held.made.as_ref().ok_or_else(|| gone(id))?;
            (made.store.try_clone().map_err(host_io)?, held.layers.clone(), Written::by(made.tier))
        };
        look_for_changes(store, layers, (written, look_for), given, keeper).await
    }

    async fn changes_of_living(
        &self,
        _id: SandboxId,
        spec: &SandboxSpec,
        keeper: Option<Arc<dyn ContentKeeper>>,
    ) -> Result<WorkspaceLook> {
        let (store, layers) = planning::files_of_living(spec)?;
        let how = (Written::Overlay, LookFor::Changes);
        look_for_changes(store, Arc::new(layers), how, &[], keeper).await
    }

    async fn isolation(&self, id: SandboxId) -> Option<Isolation> {
        self.look_at_layers(id)
    }

    async fn unused_for(&self, id: SandboxId) -> Option<Duration> {
        self.look_at_use(id)
    }

    async fn watched_limit(&self, id: SandboxId, run: Option<RunId>) -> Outgrown {
        if self.held().get(&id).is_some_and(|held| held.living.is_some()) {
            return self.watched_disk(id, run).await;
        }
        let watch = self.held().get(&id).and_then(|held| held.made.as_ref()?.watch.as_ref()?.try_clone().ok());
        said_by_watch(watch).await
    }

    async fn list(&self) -> Result<Vec<Found>> {
        let runtime = RuntimeFolder::of_caller_alone()?;
        let found = owner::found_groups(&runtime, self.cgroups()?, Own::default());
        let groups = found.into_iter().map(|group| (group.id, group.owned));
        let all = groups.chain(owner::found_folders(&runtime));
        Ok(all.map(|(id, owned)| Found { id, owned }).collect())
    }

    async fn end(&self, id: SandboxId) -> Result<Option<Evidence>> {
        // Our own hold on the store must go first, or its memory would outlive the sandbox.
        let (made, living) =
            self.held().get_mut(&id).map_or((None, false), |held| (held.made.take(), held.living.is_some()));
        let seen = made.as_ref().and_then(|made| made.look().ok());
        if let (Some(made), Some(held)) = (&made, self.held().get_mut(&id)) {
            held.group = Some(made.group.clone());
        }
        let counts = |made: &&Made| made.tier == Tier::Namespaces && made.by_groups.memory;
        if let Some(made) = made.as_ref().filter(|made| !living && counts(made)) {
            // The launcher does it too; but the sooner the kernel knows, the sooner all is over. A keeper that sees its
            // guest end by itself goes, and would not hear the order; and where no groups count, a guest that has ended can no
            // longer be asked what was used.
            let _ = pidfd_send_signal(&made.guest, Signal::KILL);
        }
        let answers = Answers::on(self.order_keeper(id, &Order::Destroy { id }).await?)?;
        match answers.next().await? {
            (Answer::Counted(counted), _) => {
                if let Some(made) = made.filter(|_| living) {
                    // The keeper has done it, unless it is another one than made the sandbox, and an ordinary user's: from its own
                    // user namespace it may not, while their owner may everywhere.
                    let _ = pidfd_send_signal(&made.guest, Signal::KILL);
                }
                if let Some(held) = self.held().get_mut(&id) {
                    held.ending = Some(answers);
                }
                Ok(seen.map(|seen| evidence(counted, seen)))
            }
            (Answer::Destroyed, _) => Ok(None),
            (Answer::Failed(failure), _) => Err(failure.into_error_of(NOT_ENDED)),
            _ => Err(another_question()),
        }
    }

    async fn destroy(&self, id: SandboxId) -> Result<()> {
        if self.held().get(&id).is_none_or(|held| held.ending.is_none()) {
            self.end(id).await?;
        }
        // Its keeper is held on to until it has told of the end.
        let held = self.held().remove(&id);
        let Some(answers) = held.as_ref().and_then(|held| held.ending.as_ref()) else { return Ok(()) };
        match self.hear_of_end(id, answers, held.as_ref().and_then(|held| held.group.as_deref())).await? {
            Answer::Destroyed => Ok(()),
            Answer::Failed(failure) => Err(failure.into_error_of(NOT_ENDED)),
            _ => Err(another_question()),
        }
    }

    fn abandon(&self, id: SandboxId) {
        self.held().remove(&id);
        if let Some(launcher) = &self.launcher {
            let _ = wire::send(&launcher.control, &Order::Destroy { id }, &[]);
        }
    }

    async fn state(&self, id: SandboxId) -> Result<SandboxState> {
        self.look_at_state(id)
    }

    async fn open(&self, id: SandboxId, spec: &SandboxSpec) -> Result<Created> {
        self.open_living(id, spec).await
    }

    fn release(&self, id: SandboxId) {
        let mut all = self.held();
        if self.holders.let_go(id) {
            all.remove(&id);
        }
    }

    async fn pause(&self, id: SandboxId) -> Result<Option<u64>> {
        self.freeze(id, true).await
    }

    fn paused_since(&self, id: SandboxId, since: Timestamp) -> Duration {
        self.look_at_pauses(id, since)
    }

    async fn let_die(&self, id: SandboxId) -> Result<()> {
        self.let_killed_die(id).await
    }

    async fn resume(&self, id: SandboxId) -> Result<()> {
        self.freeze(id, false).await.map(drop)
    }

    async fn remove_store(&self, store: &Path) -> Result<()> {
        self.remove_files(store).await
    }

    async fn collect_garbage(&self) -> Result<Vec<String>> {
        Self::collect_garbage_now()
    }
}

fn unavailable(message: &str) -> Error {
    Error::new(ErrorCode::BackendUnavailable, message)
}

fn host_io(error: io::Error) -> Error {
    Error::new(ErrorCode::HostIo, "an operation on the host failed").or_too_many(error)
}

fn gone(id: SandboxId) -> Error {
    Error::new(ErrorCode::SandboxLost, format!("the sandbox {id} is gone"))
}
