//! Sandboxes that stay: made, found again, stopped and started, ended.
//!
//! Each act takes the sandbox's lock first, so that two processes never make, start or end the same one at once, and looks at
//! its state under the lock. Running commands takes no lock.

mod errors;
mod looking;
mod losing;
mod status;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use glovebox_core::{
    Created, Error, ErrorCode, Lifetime, Living, Result, RunId, SandboxId, SandboxName, SandboxRecord, SandboxSpec,
    SandboxState, Usage, UsageNow,
};
use glovebox_proto::path;
use jiff::{SignedDuration, Timestamp};

pub(crate) use errors::paused;
use errors::stopping;
pub use looking::SandboxChanges;
pub(crate) use losing::Act;
pub use status::{EndedAt, SandboxStatus};

use crate::{
    Engine, Sandbox, Toolchains,
    channel::Channel,
    engine::Guard,
    registry::{Ended, Hold, Registry},
    storage::left_of_storage,
    through_guest::{self, Inside},
};

/// So long it is known of a sandbox that ended by itself.
const NOTED_FOR: SignedDuration = SignedDuration::from_hours(7 * 24);

/// A living sandbox to make.
#[derive(Clone, Debug, Default)]
pub struct NewSandbox {
    /// A name for it, which no other living sandbox of the data folder has.
    pub name: Option<SandboxName>,
    /// The caller's labels.
    pub labels: BTreeMap<String, String>,
    /// Variables that every command in it starts with.
    pub env: BTreeMap<String, String>,
    /// How to make it.
    pub spec: SandboxSpec,
    /// Toolchains of the caller that appear inside, first in PATH.
    pub toolchains: Toolchains,
    /// When it ends by itself.
    pub lifetime: Lifetime,
}

/// A sandbox that was paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paused {
    /// Its id.
    pub sandbox: SandboxId,
    /// Bytes of memory that were given back, if that was known soon.
    pub reclaimed_bytes: Option<u64>,
}

/// Of whom something is removed that was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Of this engine's backend: nobody is kept waiting by another one.
    OfThisBackend,
    /// Of every one.
    OfAll,
}

/// How many milliseconds a keeper is waited for that tidies up behind a guest.
const TIDYING: u32 = 500;

impl Engine {
    /// Makes a sandbox that stays when this process is gone, until it is destroyed or its lifetime is over.
    pub async fn create_living(&self, new: NewSandbox) -> Result<Sandbox> {
        if self.is_first_look() {
            self.remove_abandoned(Left::OfThisBackend).await;
        }
        let NewSandbox { name, labels, mut env, mut spec, toolchains, lifetime } = new;
        if !toolchains.is_empty() {
            spec.mounts.extend(toolchains.mounts()?);
            let usual = self.environment().iter().find(|(name, _)| name == "PATH").map_or("", |(_, path)| path);
            env.entry("PATH".to_owned()).or_insert_with(|| toolchains.search_path(usual));
        }
        make_absolute(&mut spec)?;
        let (id, registry, created_at) = (SandboxId::new(), self.registry(), Timestamp::now());
        let _hold = registry.begin(id, name.as_ref(), self.backend_name())?;
        spec.living = Some(Living { store: absolute(registry.store(id))?, lifetime, created_at });
        let backend = self.backend().name().to_owned();
        let record = Arc::new(SandboxRecord { sandbox: id, name, backend, labels, env, spec, created_at });
        // Held until the record tells that the sandbox has it.
        let storage = self.with_storage(&record.spec);
        let made = match storage {
            Ok((spec, _holds)) => match self.bring_up(&record, &spec).await {
                Ok(sandbox) => registry.commit(&record).map(|()| sandbox),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        if made.is_err() {
            let _ = self.backend().destroy(id).await;
            // What cannot be ended now stays noted, and is ended and removed by the next start.
            if self.end_guest(id, &SandboxSpec::default()).await.is_ok() {
                let _ = self.backend().remove_store(&registry.store(id)).await;
                let _ = registry.remove(id, record.name.as_ref());
            }
        }
        made
    }

    /// Takes hold of a living sandbox by its id, the beginning of its id, or its name.
    pub async fn open(&self, text: &str) -> Result<Sandbox> {
        let record = Arc::new(self.registry().read(self.registry().find(text)?)?);
        let engine = self.of(&record)?;
        match engine.backend().state(record.sandbox).await? {
            SandboxState::Paused => Err(paused(record.sandbox, text)),
            SandboxState::Stopping => Err(stopping(&record)),
            SandboxState::Stopped => Err(engine.cannot_be_reached(&record, text)),
            SandboxState::Creating => Err(Error::being_started(record.sandbox)),
            _ => engine.open_record(record).await,
        }
    }

    /// The same as [`Engine::open`] for one that may be paused: its runs can be listed, followed and ended, and none can be
    /// started before it goes on.
    pub async fn open_paused(&self, text: &str) -> Result<Sandbox> {
        let record = Arc::new(self.registry().read(self.registry().find(text)?)?);
        self.of(&record)?.open_record(record).await
    }

    /// What a living sandbox uses now, be it paused. To look is not to use it: its idle time goes on.
    pub async fn usage(&self, text: &str) -> Result<UsageNow> {
        let record = self.registry().read(self.registry().find(text)?)?;
        let engine = self.of(&record)?;
        if engine.backend().state(record.sandbox).await? == SandboxState::Stopped {
            return Err(engine.cannot_be_reached(&record, text));
        }
        let (_guard, _) = engine.hold_on(&record).await?;
        engine.backend().usage(record.sandbox).await
    }

    /// What one run of a living sandbox has used so far. Where runs have no groups of their own
    /// ([`Features::run_groups`](glovebox_core::Features)), it is what the whole sandbox has used. To look is not to use it.
    pub async fn run_usage(&self, text: &str, run: RunId) -> Result<Usage> {
        let record = self.registry().read(self.registry().find(text)?)?;
        let engine = self.of(&record)?;
        let (_guard, _) = engine.hold_on(&record).await?;
        Ok(engine.backend().evidence(record.sandbox, Some(run)).await?.usage)
    }

    async fn open_record(&self, record: Arc<SandboxRecord>) -> Result<Sandbox> {
        let (guard, created) = self.hold_on(&record).await?;
        let channel = Channel::to(self.backend().clone(), record.sandbox).await?;
        let inside = Inside::known(&**self.backend(), &record.spec, (&self.registry(), record.sandbox));
        Ok(self.living_sandbox(guard, channel, (created, inside), record))
    }

    /// Takes hold of the processes of a living sandbox.
    async fn hold_on(&self, record: &SandboxRecord) -> Result<(Arc<Guard>, Created)> {
        let id = record.sandbox;
        self.check_not_ended(record)?;
        let spec = self.with_storage(&record.spec)?.0;
        let created = self.backend().open(id, &through_guest::spec_for(&**self.backend(), &spec)).await?;
        Ok((Arc::new(Guard::living(self.backend().clone(), id, None)), created))
    }

    /// Ends all processes of a sandbox and keeps its files. One that is stopped stays so.
    pub async fn stop(&self, text: &str) -> Result<SandboxId> {
        let (engine, record, _hold) = self.take(text).await?;
        engine.end_processes(&record, Act::Stopped).await?;
        Ok(record.sandbox)
    }

    /// Starts a stopped sandbox again, with its files. One that is ready stays so.
    pub async fn restart(&self, text: &str) -> Result<Sandbox> {
        let (engine, record, _hold) = self.take(text).await?;
        // A reset that was cut short has left none.
        engine.registry().make_store(record.sandbox)?;
        let state = engine.backend().state(record.sandbox).await?;
        if matches!(state, SandboxState::Stopped | SandboxState::Stopping) {
            engine.check_time_left(&record)?;
        }
        match state {
            SandboxState::Stopped => engine.bring_up(&record, &engine.with_storage(&record.spec)?.0).await,
            SandboxState::Paused => Err(paused(record.sandbox, text)),
            SandboxState::Stopping => {
                engine.end_processes(&record, Act::Stopped).await?;
                engine.bring_up(&record, &engine.with_storage(&record.spec)?.0).await
            }
            _ => engine.open_record(record).await,
        }
    }

    /// Ends all processes of a sandbox, cleans its working directory, outputs and home, and starts it again.
    pub async fn reset(&self, text: &str) -> Result<Sandbox> {
        let (engine, record, _hold) = self.take(text).await?;
        engine.check_time_left(&record)?;
        engine.end_processes(&record, Act::Reset).await?;
        let store = engine.registry().store(record.sandbox);
        // Before the files go: without it they are copied in again, whatever is cut short here.
        engine.registry().forget_copied(record.sandbox)?;
        engine.backend().remove_store(&store).await?;
        engine.registry().make_store(record.sandbox)?;
        engine.registry().forget_seen(record.sandbox);
        engine.registry().forget_sessions(record.sandbox);
        engine.bring_up(&record, &engine.with_storage(&record.spec)?.0).await
    }

    /// Freezes all processes of a sandbox, and gives back memory that they do not need for that. The time of its runs stands
    /// still, and so does its idle time; its maximum age does not.
    pub async fn pause(&self, text: &str) -> Result<Paused> {
        let (engine, record, _hold) = self.take_started(text).await?;
        let id = record.sandbox;
        let told = async {
            let sandbox = engine.open_record(record).await?;
            // The guest goes first: what it has begun to start would be frozen halfway.
            sandbox.tell_paused(path::PAUSE).await?;
            Ok::<_, Error>(sandbox)
        };
        let sandbox = match told.await {
            Ok(sandbox) => sandbox,
            // A guest that is frozen with all else cannot be told, and need not.
            Err(error)
                if error.code == ErrorCode::WrongState && engine.backend().state(id).await? == SandboxState::Paused =>
            {
                return Ok(Paused { sandbox: id, reclaimed_bytes: None });
            }
            Err(error) => return Err(error),
        };
        match engine.backend().pause(sandbox.id()).await {
            Ok(reclaimed_bytes) => Ok(Paused { sandbox: sandbox.id(), reclaimed_bytes }),
            Err(error) => {
                // The first failure is the one that explains.
                let _ = sandbox.tell_paused(path::RESUME).await;
                Err(error)
            }
        }
    }

    /// Lets the processes of a paused sandbox go on.
    pub async fn resume(&self, text: &str) -> Result<SandboxId> {
        let (engine, record, _hold) = self.take_started(text).await?;
        // The guest may be frozen too, so it is spoken to afterwards.
        let (_guard, _) = engine.hold_on(&record).await?;
        engine.backend().resume(record.sandbox).await?;
        let sandbox = engine.open_record(record).await?;
        sandbox.tell_paused(path::RESUME).await?;
        Ok(sandbox.id())
    }

    /// Ends a sandbox and removes all of it. Where the kernel does not let one of its processes end, the error says so, and
    /// the rest is removed by whoever comes next once that process has ended: [`Engine::create_living`],
    /// [`Engine::collect_sandboxes`], or this again.
    pub async fn destroy(&self, text: &str) -> Result<SandboxId> {
        let id = self.registry().find(text)?;
        let _hold = self.hold(id).await?;
        let record = self.registry().read(id)?;
        let engine = self.of(&record)?;
        if let Err(error) = engine.end_processes(&record, Act::Destroyed).await {
            if error.code == ErrorCode::StillEnding {
                // On a full disk it cannot be noted, and stays what it was: the first failure is the one that explains.
                let _ = engine.registry().doom(id);
                engine.look_again();
            }
            return Err(error);
        }
        // From here on it is no sandbox any more; what is cut short below is finished by the next start.
        engine.registry().forget(id)?;
        engine.backend().remove_store(&engine.registry().store(id)).await?;
        engine.registry().remove(id, record.name.as_ref())?;
        Ok(id)
    }

    /// Removes what is left of sandboxes and storage whose making or removing was cut short, and says what. Another backend may keep
    /// something elsewhere that only it can remove, and only that folder tells of.
    async fn remove_abandoned(&self, which: Left) -> Vec<String> {
        let mut removed = Vec::new();
        for id in self.registry().abandoned() {
            let maker = self.registry().maker(id).unwrap_or_else(|| self.backend_name().to_owned());
            if which == Left::OfThisBackend && maker != self.backend_name() {
                continue;
            }
            let Ok(engine) = self.of_backend(&maker, id) else { continue };
            let Some(_hold) = self.registry().take_abandoned(id) else { continue };
            // What cannot be ended or removed now is found again by the next start.
            if engine.end_guest(id, &SandboxSpec::default()).await.is_err() {
                self.look_again();
                continue;
            }
            let emptied = engine.backend().remove_store(&self.registry().store(id)).await;
            if emptied.is_ok() && self.registry().remove(id, None).is_ok() {
                removed.push(format!("what was left of {id}"));
            }
        }
        for id in self.registry().ids().unwrap_or_default().into_iter().filter(|id| self.registry().is_doomed(*id)) {
            let Ok(engine) = self.registry().read(id).and_then(|record| self.of(&record)) else { continue };
            let is_over = engine.backend().state(id).await.is_ok_and(|state| state == SandboxState::Stopped);
            if is_over && self.destroy(&id.to_string()).await.is_ok() {
                removed.push(format!("what was left of {id}"));
            } else {
                self.look_again();
            }
        }
        for left in left_of_storage(self.data_dir()) {
            if self.backend().remove_store(&left).await.is_ok() {
                removed.push("what was left of a volume or a project".to_owned());
            }
        }
        removed
    }

    /// Removes what is left of sandboxes and storage whose making or removing was cut short, and the notes of sandboxes that
    /// ended by themselves more than a week ago. Says what it was.
    pub async fn collect_sandboxes(&self) -> Vec<String> {
        let mut removed = self.remove_abandoned(Left::OfAll).await;
        for id in self.registry().ids().unwrap_or_default() {
            let is_old = |ended: &Ended| Timestamp::now().duration_since(ended.at()) > NOTED_FOR;
            if self.registry().ended(id).is_some_and(|ended| is_old(&ended))
                && self.destroy(&id.to_string()).await.is_ok()
            {
                removed.push(format!("the note of {id}, which ended by itself"));
            }
        }
        removed
    }

    /// Whether there is something for [`Engine::collect_sandboxes`] in a data folder.
    pub fn has_left_sandboxes(data_dir: &Path) -> bool {
        let registry = Registry::below(data_dir);
        !registry.abandoned().is_empty()
            || !left_of_storage(data_dir).is_empty()
            || registry
                .ids()
                .unwrap_or_default()
                .into_iter()
                .any(|id| registry.ended(id).is_some() || registry.is_doomed(id))
    }

    /// Reads what a sandbox is, under its lock, and gives the engine for it.
    async fn take(&self, text: &str) -> Result<(Engine, Arc<SandboxRecord>, Hold)> {
        let id = self.registry().find(text)?;
        let hold = self.hold(id).await?;
        let record = self.registry().read(id)?;
        let engine = self.of(&record)?;
        engine.check_not_ended(&record)?;
        Ok((engine, Arc::new(record), hold))
    }

    /// The same for what a stopped sandbox cannot do.
    async fn take_started(&self, text: &str) -> Result<(Engine, Arc<SandboxRecord>, Hold)> {
        let (engine, record, hold) = self.take(text).await?;
        match engine.backend().state(record.sandbox).await? {
            SandboxState::Stopped => Err(engine.cannot_be_reached(&record, text)),
            _ => Ok((engine, record, hold)),
        }
    }

    pub(crate) async fn hold(&self, id: SandboxId) -> Result<Hold> {
        let registry = self.registry();
        let waiting = tokio::task::spawn_blocking(move || registry.hold(id)).await;
        waiting.map_err(|error| Error::new(ErrorCode::Internal, "waiting for a sandbox failed").because(error))?
    }

    /// Makes the sandbox of a record, whose storage is in the spec.
    async fn bring_up(&self, record: &Arc<SandboxRecord>, spec: &SandboxSpec) -> Result<Sandbox> {
        let id = record.sandbox;
        let slot = self.slots().sandbox().await?;
        self.backend().create(id, &through_guest::spec_for(&**self.backend(), spec)).await?;
        let made = async {
            let created = self.backend().ready(id).await?;
            let channel = Channel::to(self.backend().clone(), id).await?;
            let inside = Inside::bring_in_once(self.backend(), &channel, spec, (&self.registry(), id)).await?;
            Ok::<_, Error>(((created, inside), channel))
        };
        match made.await {
            Ok((made, channel)) => {
                self.registry().forget_act(id);
                let guard = Arc::new(Guard::living(self.backend().clone(), id, slot));
                Ok(self.living_sandbox(guard, channel, made, record.clone()))
            }
            Err(error) => {
                // The first failure is the one that explains.
                let _ = self.backend().destroy(id).await;
                self.backend().release(id);
                Err(error)
            }
        }
    }

    async fn end_processes(&self, record: &SandboxRecord, act: Act) -> Result<()> {
        // Before those hear of it who work in it.
        self.registry().note_act(record.sandbox, act);
        self.end_guest(record.sandbox, &record.spec).await
    }

    async fn end_guest(&self, id: SandboxId, spec: &SandboxSpec) -> Result<()> {
        let mut tries = 0;
        loop {
            if self.backend().state(id).await? == SandboxState::Stopped {
                return Ok(());
            }
            match self.backend().open(id, &through_guest::spec_for(&**self.backend(), spec)).await {
                Ok(_) => {
                    let ended = self.backend().destroy(id).await;
                    self.backend().release(id);
                    return ended;
                }
                // It ended by itself in between.
                Err(error) if error.code == ErrorCode::WrongState => return Ok(()),
                // It has just ended, and its keeper is about to tidy up behind it.
                Err(error) if error.code == ErrorCode::SandboxLost && tries < TIDYING => tries += 1,
                Err(error) => return Err(error),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) fn registry(&self) -> Registry {
        Registry::below(self.data_dir())
    }
}

/// Paths of the host must mean the same wherever the sandbox is started from.
fn make_absolute(spec: &mut SandboxSpec) -> Result<()> {
    if let Some(workspace) = &mut spec.workspace {
        workspace.source = absolute(std::mem::take(&mut workspace.source))?;
    }
    for mount in &mut spec.mounts {
        mount.source = absolute(std::mem::take(&mut mount.source))?;
    }
    Ok(())
}

fn absolute(path: PathBuf) -> Result<PathBuf> {
    std::path::absolute(&path).map_err(|error| {
        Error::new(ErrorCode::FileNotFound, format!("{} cannot be used", path.display())).because(error)
    })
}
