//! Sandboxes and how runs get into them.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use glovebox_core::{
    Backend, ChangeSet, Created, Error, Evidence, Features, Result, RunId, RunResult, SandboxId, SandboxSpec,
};

use crate::{
    RunRequest,
    channel::Channel,
    run::{self, Lifetime, Place, Run},
};

const DATA_DIR: &str = "/var/lib/glovebox";

/// Owns the sandboxes of one process and drives them through a backend. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    backend: Arc<dyn Backend>,
    data_dir: PathBuf,
}

impl Engine {
    /// An engine on a backend.
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Engine { backend, data_dir: DATA_DIR.into() }
    }

    /// Keeps artifacts below another folder.
    #[must_use]
    pub fn with_data_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.data_dir = folder.into();
        self
    }

    /// The folder for the artifacts of a run; it exists only when there are any.
    pub fn artifact_dir(&self, run: RunId) -> PathBuf {
        self.data_dir.join("runs").join(run.to_string()).join("artifacts")
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
    pub async fn start(&self, request: RunRequest) -> Result<Run> {
        let sandbox = self.create(request.spec.clone()).await?;
        let place = sandbox.place.clone();
        match run::start(self.clone(), place, request, Lifetime::EndsWithRun(sandbox.into_guard())).await {
            Ok(run) => Ok(run),
            Err((error, Lifetime::EndsWithRun(guard))) => Err(guard.end_after(error).await),
            Err((error, Lifetime::Stays(_))) => Err(error),
        }
    }

    /// Makes a sandbox that stays while the value lives.
    pub async fn create(&self, spec: SandboxSpec) -> Result<Sandbox> {
        let id = SandboxId::new();
        let created = Arc::new(self.backend.create(id, &spec).await?);
        let guard = Guard { backend: self.backend.clone(), id, ended: OnceLock::new() };
        let connected = async { Channel::open(self.backend.connect(id).await?).await };
        match connected.await {
            Ok(channel) => {
                let place = Place { id, channel, created, disk: spec.limits.disk, backend: self.backend.clone() };
                Ok(Sandbox { engine: self.clone(), place, guard: Arc::new(guard) })
            }
            Err(error) => Err(Arc::new(guard).end_after(error).await),
        }
    }

    /// Removes what dead owners left, and says what it was.
    pub async fn collect_garbage(&self) -> Result<Vec<String>> {
        self.backend.collect_garbage().await
    }
}

/// A living sandbox. Dropping it ends it without waiting; [`Sandbox::destroy`] waits.
pub struct Sandbox {
    engine: Engine,
    place: Place,
    guard: Arc<Guard>,
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

    /// Another run in this sandbox. Of the request's spec only the time and output limits count.
    pub async fn run(&self, request: RunRequest) -> Result<RunResult> {
        self.start(request).await?.wait().await
    }

    /// Another run in this sandbox, as a stream of events.
    pub async fn start(&self, request: RunRequest) -> Result<Run> {
        let lifetime = Lifetime::Stays(self.guard.clone());
        run::start(self.engine.clone(), self.place.clone(), request, lifetime).await.map_err(|(error, _)| error)
    }

    /// What the host saw of it so far.
    pub async fn evidence(&self) -> Result<Evidence> {
        self.engine.backend.evidence(self.place.id).await
    }

    /// What it did to its workspace so far.
    pub async fn changes(&self) -> Result<ChangeSet> {
        self.engine.backend.changes(self.place.id).await
    }

    /// Ends it and waits until nothing of it is left.
    pub async fn destroy(self) -> Result<()> {
        self.guard.end().await
    }

    fn into_guard(self) -> Arc<Guard> {
        self.guard
    }
}

/// Sees to it that a sandbox ends, whatever happens to those who use it.
pub(crate) struct Guard {
    backend: Arc<dyn Backend>,
    id: SandboxId,
    ended: OnceLock<()>,
}

impl Guard {
    /// Ends the sandbox and waits until nothing is left.
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
        if self.ended.get().is_none() {
            self.backend.abandon(self.id);
        }
    }
}
