//! Sandboxes and how runs get into them.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use glovebox_core::{
    Backend, ChangeSet, Created, EnvName, Error, ErrorCode, Evidence, Features, LookFor, Result, RunId, RunResult,
    SandboxId, SandboxRecord, SandboxSpec, UsageNow,
};

use glovebox_ledger::Ledger;

use crate::{
    Files, InSession, RunRequest, Stdin,
    attach::EndUnheard,
    begin::{self, Begun, Known},
    channel::Channel,
    compile::{self, Ground},
    entry::{Entry, Lasts},
    known_contents::NotedIn,
    limits::{EngineLimits, Slot, Slots},
    others::Others,
    place::{Lifetime, Place},
    programs::Programs,
    result,
    run::{self, Beginning, Run},
    run_changes::Memory,
    sessions::{self, Notes},
    shelf::Hold,
    through_guest::{self, Inside},
};

const DATA_DIR: &str = "/var/lib/glovebox";

/// Owns the sandboxes of one process and drives them through a backend. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    backend: Arc<dyn Backend>,
    data_dir: PathBuf,
    environment: Arc<[(String, String)]>,
    ledger: Option<Ledger>,
    slots: Slots,
    others: Option<Others>,
    /// Whether somebody has looked for what was cut short in the data folder.
    looked: Arc<AtomicBool>,
}

impl Engine {
    /// An engine on a backend.
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        let environment = backend.environment().into();
        let (slots, looked) = (Slots::default(), Arc::default());
        Engine { backend, data_dir: DATA_DIR.into(), environment, ledger: None, slots, others: None, looked }
    }

    /// Keeps artifacts and compiled programs below another folder.
    #[must_use]
    pub fn with_data_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.data_dir = folder.into();
        self.looked = Arc::default();
        self
    }

    /// Records every run in a ledger. Without one, nothing is recorded.
    #[must_use]
    pub fn with_ledger(mut self, ledger: Ledger) -> Self {
        self.ledger = Some(ledger);
        self
    }

    /// Bounds how many sandboxes and runs there are at one time. All clones of the engine share the bound.
    #[must_use]
    pub fn with_limits(mut self, limits: EngineLimits) -> Self {
        self.slots = Slots::new(limits);
        self
    }

    /// The same engine with other backends.
    pub(crate) fn having(self, others: Others) -> Self {
        Engine { others: Some(others), ..self }
    }

    /// The same engine on another backend.
    pub(crate) fn on(&self, backend: Arc<dyn Backend>) -> Self {
        Engine { environment: backend.environment().into(), backend, ..self.clone() }
    }

    /// The other backends, where there may be some.
    pub(crate) fn others(&self) -> Option<&Others> {
        self.others.as_ref()
    }

    /// The folder for the artifacts of a run; it exists only when there are any.
    pub fn artifact_dir(&self, run: RunId) -> PathBuf {
        self.data_dir.join("runs").join(run.to_string()).join("artifacts")
    }

    /// The folder that everything is kept below.
    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Whether this is the first time that somebody asks. A folder of many sandboxes is not looked through for each one more.
    pub(crate) fn is_first_look(&self) -> bool {
        !self.looked.swap(true, Ordering::Relaxed)
    }

    /// Something is left that cannot be removed yet, so the next one looks again.
    pub(crate) fn look_again(&self) {
        self.looked.store(false, Ordering::Relaxed);
    }

    /// The environment that every command starts from.
    pub(crate) fn environment(&self) -> &[(String, String)] {
        &self.environment
    }

    /// The backend.
    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// How many sandboxes and runs there may be.
    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// The backend's name.
    pub(crate) fn backend_name(&self) -> &'static str {
        self.backend.name()
    }

    /// What the backend can do.
    pub async fn features(&self) -> Result<Features> {
        self.backend.probe().await
    }

    /// Makes a fresh sandbox, runs a command in it, and ends it.
    pub async fn run(&self, request: RunRequest) -> Result<RunResult> {
        self.start(request).await?.wait().await
    }

    /// The same as [`Engine::run`], as a stream of events. The sandbox is gone when [`Run::wait`] returns.
    pub async fn start(&self, mut request: RunRequest) -> Result<Run> {
        if request.session.is_some() {
            return Err(Error::new(ErrorCode::Usage, "a session needs a sandbox that stays")
                .hint("id=$(glovebox create), then glovebox exec $id --session NAME"));
        }
        // Before the compile step is looked up: what is shown to it may change what it makes.
        let (spec, holds) = self.with_storage(&request.spec)?;
        request.spec = spec;
        let (before, first) = compile::look_up(self, &mut request, Ground::Fresh)?;
        request.spec.mounts.extend(request.toolchains.mounts()?);
        let sandbox = SandboxId::new();
        let places = (self.slots.sandbox().await?, self.slots.run().await?);
        let guard = self.begin(sandbox, &request.spec, places.0, holds).await?;
        let channel = guard.connect(Channel::once(self.backend.clone(), sandbox)).await?;
        // Before the command starts, and while the sandbox is being made.
        let entry = self.enter(sandbox, &request, Lasts::OneRun);
        let stdin = std::mem::take(&mut request.stdin);
        let made = async {
            let created = self.backend.ready(guard.id).await?;
            Ok((created, Inside::bring_in(&self.backend, &channel, &request.spec).await?))
        };
        let (command, input) = first.as_ref().map_or((&request, &stdin), |first| (first, &Stdin::Empty));
        let known = Known { run: entry.run, note: None };
        let begin = begin::begin(&channel, &self.environment, command, input, (known, None));
        // The command is on its way while the sandbox is still being made, unless something must be known first.
        let copies = through_guest::copies_workspace(&*self.backend, &request.spec);
        let (made, begun) = if request.spec.required_layers.is_empty() && !copies {
            tokio::join!(made, begin)
        } else {
            match made.await {
                Ok(made) => (Ok(made), begin.await),
                Err(error) => return Err(entry.forget_after(guard.end_after(error).await)),
            }
        };
        // When both failed, the sandbox's own failure is the one that explains.
        match made.and_then(|made| Ok((made, begun?))) {
            Ok((made, begun)) => {
                let place = self.place(&guard, channel, made, &request.spec);
                let (slot, session) = (places.1, None);
                let beginning =
                    Beginning { request, stdin, before, first, begun, entry, slot, session, counted_before: None };
                Ok(run::follow(self.clone(), place, beginning, Lifetime::EndsWithRun(guard)))
            }
            Err(error) => Err(entry.forget_after(guard.end_after(error).await)),
        }
    }

    /// Notes in the ledger, where there is one, that a run is under way.
    fn enter(&self, sandbox: SandboxId, request: &RunRequest, lasts: Lasts) -> Entry {
        Entry::begin(self.ledger.as_ref(), lasts, |run| result::if_lost(run, sandbox, self.backend.name(), request))
    }

    /// The ledger, where there is one.
    pub(crate) fn ledger(&self) -> Option<&Ledger> {
        self.ledger.as_ref()
    }

    /// Makes a sandbox that stays while the value lives.
    pub async fn create(&self, spec: SandboxSpec) -> Result<Sandbox> {
        let id = SandboxId::new();
        let (spec, holds) = self.with_storage(&spec)?;
        let guard = self.begin(id, &spec, self.slots.sandbox().await?, holds).await?;
        let channel = guard.connect(Channel::to(self.backend.clone(), id)).await?;
        let made = async {
            let created = self.backend.ready(guard.id).await?;
            Ok((created, Inside::bring_in(&self.backend, &channel, &spec).await?))
        };
        match made.await {
            Ok(made) => {
                let place = self.place(&guard, channel, made, &spec);
                Ok(Sandbox { engine: self.clone(), place, guard, record: None, spec: Arc::new(spec) })
            }
            Err(error) => Err(guard.end_after(error).await),
        }
    }

    /// Begins to make a sandbox.
    pub(crate) async fn begin(
        &self,
        id: SandboxId,
        spec: &SandboxSpec,
        slot: Slot,
        holds: Vec<Hold>,
    ) -> Result<Arc<Guard>> {
        self.backend.create(id, &through_guest::spec_for(&*self.backend, spec)).await?;
        let ended = OnceLock::new();
        Ok(Arc::new(Guard { backend: self.backend.clone(), id, ended, living: false, _slot: slot, _holds: holds }))
    }

    fn place(
        &self,
        guard: &Guard,
        channel: Channel,
        (created, inside): (Created, Option<Arc<Inside>>),
        spec: &SandboxSpec,
    ) -> Place {
        let created = Arc::new(created);
        let (memory, contents) = match (guard.living, channel.outlives_connections()) {
            (true, _) => {
                let (seen, contents) = (self.registry().seen(guard.id), self.registry().contents(guard.id));
                (Some(Memory::File(seen)), Some(NotedIn::File(contents)))
            }
            (false, true) => (Some(Memory::Process(Mutex::default())), Some(NotedIn::Process(Arc::default()))),
            (false, false) => (None, None),
        };
        let (backend, memory) = (self.backend.clone(), memory.map(Arc::new));
        let sessions = Arc::new(match guard.living {
            true => Notes::Folder(self.registry().sessions(guard.id)),
            false => Notes::Process(Mutex::default()),
        });
        let disk = spec.limits.disk;
        Place { id: guard.id, channel, created, disk, backend, inside, memory, contents, sessions }
    }

    /// A living sandbox that this process has hold of.
    pub(crate) fn living_sandbox(
        &self,
        guard: Arc<Guard>,
        channel: Channel,
        made: (Created, Option<Arc<Inside>>),
        record: Arc<SandboxRecord>,
    ) -> Sandbox {
        let place = self.place(&guard, channel, made, &record.spec);
        Sandbox { engine: self.clone(), place, guard, spec: Arc::new(record.spec.clone()), record: Some(record) }
    }

    /// Removes what dead owners left, and says what it was.
    pub async fn collect_garbage(&self) -> Result<Vec<String>> {
        let mut removed = self.backend.collect_garbage().await?;
        removed.extend(remove_unfinished_programs(&self.data_dir)?);
        Ok(removed)
    }
}

/// Removes what dead processes left of programs that they compiled, and says what it was.
pub fn remove_unfinished_programs(data_dir: &Path) -> Result<Vec<String>> {
    let failed = |error| Error::new(ErrorCode::HostIo, "the compiled programs cannot be looked at").because(error);
    Programs::below(data_dir).remove_unfinished().map_err(failed)
}

/// A sandbox for several runs. One of [`Engine::create`] ends, without waiting, when the value and all [`Run`]s in it are
/// dropped; [`Sandbox::destroy`] waits for that. One of [`Engine::create_living`] stays.
pub struct Sandbox {
    pub(crate) engine: Engine,
    pub(crate) place: Place,
    pub(crate) guard: Arc<Guard>,
    /// What it is, if it is a living one.
    record: Option<Arc<SandboxRecord>>,
    /// How it was made.
    spec: Arc<SandboxSpec>,
}

impl Sandbox {
    /// Its id.
    pub fn id(&self) -> SandboxId {
        self.place.id
    }

    /// What was made: layers and limits.
    pub fn created(&self) -> &Created {
        &self.place.created
    }

    /// What it is, if it is a living one.
    pub fn record(&self) -> Option<&SandboxRecord> {
        self.record.as_deref()
    }

    /// Another run in this sandbox. Of the request's spec only the time and output limits count.
    pub async fn run(&self, request: RunRequest) -> Result<RunResult> {
        self.start(request).await?.wait().await
    }

    /// Another run in this sandbox, as a stream of events. It goes on when the [`Run`] is dropped, and is recorded for as long
    /// as this process and the sandbox live; [`Sandbox::attach`] finds it again.
    pub async fn start(&self, mut request: RunRequest) -> Result<Run> {
        // Before the sandbox's own variables are added: they belong to the beginning of a session, and may have been changed since.
        let mut session = sessions::Beginning::of(&self.place, &request).await?;
        self.add_variables(&mut request)?;
        request.spec.project.clone_from(&self.spec.project);
        request.spec.caches.clone_from(&self.spec.caches);
        let (before, first) = compile::look_up(&self.engine, &mut request, Ground::Lived)?;
        let slot = self.engine.slots.run().await?;
        let counted_alone = self.guard.living && !self.engine.backend.counts_runs_together();
        let counted_before = match counted_alone || session.is_some() {
            true => None,
            // The end of a sandbox that cannot be counted is told by what comes next.
            false => self.evidence().await.ok(),
        };
        let stdin = std::mem::take(&mut request.stdin);
        let lasts = if self.guard.living { Lasts::BeyondProcess } else { Lasts::Process };
        let entry = self.engine.enter(self.place.id, &request, lasts);
        let (command, input) = first.as_ref().map_or((&request, &stdin), |first| (first, &Stdin::Empty));
        let known = Known { run: entry.run, note: entry.if_lost.as_ref() };
        let unheard = EndUnheard::new(&self.place.channel, entry.run);
        let begin = self.begin(command, input, known, session.as_mut());
        // What ran here before may keep a command from starting, so the clock does not wait for that.
        let begun = match tokio::time::timeout(request.spec.limits.timeout, begin).await {
            Ok(begun) => {
                unheard.heard();
                begun
            }
            Err(_) => Err(match &request.session {
                Some(session) => sessions::busy(&session.name),
                None => Error::new(ErrorCode::SandboxLost, "the command did not start within its time"),
            }),
        };
        let session = match (session, &begun, &request.session) {
            (Some(session), Ok(Begun { session: Some(told), .. }), Some(InSession { name, .. })) => {
                Some(session.started(&self.place, name, told.clone()).await)
            }
            _ => None,
        };
        match begun {
            Ok(begun) => {
                let beginning =
                    Beginning { request, stdin, before, first, begun, entry, slot, session, counted_before };
                let lifetime = Lifetime::Stays(self.guard.clone());
                Ok(run::follow(self.engine.clone(), self.place.clone(), beginning, lifetime))
            }
            Err(error) => Err(entry.forget_after(error)),
        }
    }

    async fn begin(
        &self,
        request: &RunRequest,
        stdin: &Stdin,
        known: Known<'_>,
        mut session: Option<&mut sessions::Beginning>,
    ) -> Result<Begun> {
        let (channel, clean) = (&self.place.channel, &self.engine.environment);
        match begin::begin(channel, clean, request, stdin, (known, session.as_deref_mut())).await {
            Err(error) if self.guard.living && error.code == ErrorCode::WrongState => {
                match self.end_half_a_pause().await? {
                    true => begin::begin(channel, clean, request, stdin, (known, session)).await,
                    false => Err(error),
                }
            }
            begun => begun,
        }
    }

    /// Its files.
    pub fn files(&self) -> Files {
        let watched = self.guard.living.then(|| (self.engine.backend.clone(), self.place.id));
        Files::new(self.place.channel.clone(), watched)
    }

    /// What the host saw of it so far.
    pub async fn evidence(&self) -> Result<Evidence> {
        self.engine.backend.evidence(self.place.id, None).await
    }

    /// What it uses now.
    pub async fn usage(&self) -> Result<UsageNow> {
        self.engine.backend.usage(self.place.id).await
    }

    /// What it did to its workspace so far.
    pub async fn changes(&self) -> Result<ChangeSet> {
        Ok(self.place.look(LookFor::Changes, &[], None).await?.changes.names())
    }

    /// Gives a command the variables of the sandbox, as far as it does not have them itself.
    fn add_variables(&self, request: &mut RunRequest) -> Result<()> {
        for (name, value) in self.record.iter().flat_map(|record| &record.env) {
            let name = EnvName::parse(name)?;
            if !request.command.secrets.contains_key(&name) {
                request.command.env.entry(name).or_insert_with(|| value.clone());
            }
        }
        Ok(())
    }

    /// Ends it and waits until nothing of it is left; of a living one the files go too.
    pub async fn destroy(&self) -> Result<()> {
        match &self.record {
            Some(record) => self.engine.destroy(&record.sandbox.to_string()).await.map(drop),
            None => self.guard.end().await,
        }
    }
}

/// Sees to it that a sandbox ends, whatever happens to those who use it.
pub(crate) struct Guard {
    backend: Arc<dyn Backend>,
    id: SandboxId,
    ended: OnceLock<()>,
    /// A living sandbox does not end with those who use it.
    living: bool,
    _slot: Slot,
    /// What it is shown stays as long as it does. Of a living one the record tells.
    _holds: Vec<Hold>,
}

impl Guard {
    /// Holds on to a living sandbox.
    pub(crate) fn living(backend: Arc<dyn Backend>, id: SandboxId, slot: Slot) -> Self {
        Guard { backend, id, ended: OnceLock::new(), living: true, _slot: slot, _holds: Vec::new() }
    }

    /// Whether the sandbox outlives those who use it.
    pub(crate) fn is_living(&self) -> bool {
        self.living
    }

    /// Connects to the sandbox's guest, or ends the sandbox.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        connecting: impl Future<Output = Result<Channel>>,
    ) -> Result<Channel> {
        match connecting.await {
            Ok(channel) => Ok(channel),
            Err(error) => {
                // A guest that went away this early did so because the sandbox could not be made, and that explains more.
                let error = self.backend.ready(self.id).await.err().unwrap_or(error);
                Err(self.clone().end_after(error).await)
            }
        }
    }

    /// Begins to end the sandbox, and says what the host saw of it.
    pub(crate) async fn begin_end(&self) -> Result<Option<Evidence>> {
        self.backend.end(self.id).await
    }

    /// Ends the sandbox, and waits until nothing is left.
    pub(crate) async fn end(&self) -> Result<()> {
        self.backend.destroy(self.id).await?;
        let _ = self.ended.set(());
        Ok(())
    }

    /// Ends the sandbox after something failed, and gives that failure back.
    pub(crate) async fn end_after(self: Arc<Self>, error: Error) -> Error {
        // The first failure is the one that explains; a launcher that is gone too has taken the sandbox with it.
        let _ = self.end().await;
        error
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.living {
            self.backend.release(self.id);
        } else if self.ended.get().is_none() {
            self.backend.abandon(self.id);
        }
    }
}
