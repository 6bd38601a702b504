//! What a sandbox changed since it was made.

use std::{path::PathBuf, sync::Arc};

use glovebox_core::{
    ChangeRecord, ContentKeeper, Error, ErrorCode, FilesOf, LookFor, Result, SandboxId, SandboxName, SandboxRecord,
    SandboxSpec, SandboxState, Secret, WorkspaceLook, WorkspaceMode,
};

use super::errors::half_reset;
use crate::{
    Engine, Sandbox,
    channel::Channel,
    contents::{BlobKeeper, SecretFiles, mask_names},
    known_contents::{KnownContents, NotedIn},
    run_changes::Memory,
    through_guest::{self, Inside},
};

/// What a living sandbox changed since it was made.
#[derive(Clone, Debug)]
pub struct SandboxChanges {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// Its name.
    pub name: Option<SandboxName>,
    /// The folder of the host that its working directory shows.
    pub workspace: Option<PathBuf>,
    /// In which way it shows it.
    pub mode: Option<WorkspaceMode>,
    /// The changes, with their contents where the engine has a ledger.
    pub record: ChangeRecord,
}

impl Engine {
    /// What a living sandbox changed since it was made, in whatever state it is. Where the engine has a ledger, the contents of
    /// changed files are kept there. To look is not to use it: its idle time goes on.
    pub async fn sandbox_changes(&self, text: &str) -> Result<SandboxChanges> {
        let record = Arc::new(self.registry().read(self.registry().find(text)?)?);
        let engine = self.of(&record)?;
        engine.check_not_ended(&record)?;
        let id = record.sandbox;
        let known = KnownContents::noted_in(NotedIn::File(self.registry().contents(id)));
        let keeper = match self.ledger() {
            Some(ledger) => {
                let refused = SecretFiles::noted_in(self.registry().seen(id));
                Some(Arc::new(BlobKeeper { blobs: ledger.blobs()?, secrets: Vec::new(), known: Some(known), refused }))
            }
            None => None,
        };
        let as_keeper = keeper.clone().map(|keeper| keeper as Arc<dyn ContentKeeper>);
        let look = match engine.backend().files_through_guest() {
            true => engine.look_through_guest(&record, as_keeper).await?,
            false => engine.backend().changes_of_living(id, &engine.with_storage(&record.spec)?.0, as_keeper).await?,
        };
        let workspace = record.spec.workspace.as_ref();
        if let Some(workspace) = workspace.filter(|_| look.workspace_gone) {
            let folder = workspace.source.display();
            let message = format!("{folder}, the workspace of {id}, is gone, so what changed in it cannot be told");
            return Err(Error::new(ErrorCode::FileNotFound, message)
                .hint(format!("move it back; or glovebox cp {id}:. DIR brings the files as they are")));
        }
        Ok(SandboxChanges {
            sandbox: id,
            name: record.name.clone(),
            workspace: workspace.map(|workspace| workspace.source.clone()),
            mode: workspace.map(|workspace| workspace.mode),
            record: look.changes,
        })
    }
}

impl Engine {
    /// What a sandbox changed whose files are reached through a guest alone: its own while it runs, or one that is made to look.
    async fn look_through_guest(
        &self,
        record: &Arc<SandboxRecord>,
        keeper: Option<Arc<dyn ContentKeeper>>,
    ) -> Result<WorkspaceLook> {
        let id = record.sandbox;
        if self.backend().state(id).await? == SandboxState::Ready {
            match self.look_in_running(record, keeper.clone()).await {
                // It ended in between, perhaps.
                Err(error) if [ErrorCode::WrongState, ErrorCode::SandboxLost].contains(&error.code) => {}
                look => return look,
            }
        }
        // Nobody starts, ends or removes it until its files have been read.
        let hold = self.hold(id).await?;
        self.check_not_ended(record)?;
        if self.backend().state(id).await? == SandboxState::Ready {
            drop(hold);
            let look = self.look_in_running(record, keeper).await;
            return look.map_err(|error| self.explain_lost(id, error));
        }
        self.look_aside(record, keeper).await
    }

    async fn look_in_running(
        &self,
        record: &Arc<SandboxRecord>,
        keeper: Option<Arc<dyn ContentKeeper>>,
    ) -> Result<WorkspaceLook> {
        self.open_record(record.clone()).await?.place.look(LookFor::Changes, &[], keeper).await
    }

    /// Looks at the files of a sandbox that does not run, or is paused, in another one that shows them and is gone afterwards. It ends with its
    /// connection, so nothing is left whenever this process dies. It is no sandbox of the caller's, so it counts towards no limit:
    /// who has as many as there may be can still look at them.
    async fn look_aside(
        &self,
        record: &SandboxRecord,
        keeper: Option<Arc<dyn ContentKeeper>>,
    ) -> Result<WorkspaceLook> {
        let (backend, registry, made) = (self.backend(), self.registry(), &record.spec);
        if through_guest::copies_workspace(&**backend, made) && !registry.has_copied(record.sandbox) {
            return Err(half_reset(record));
        }
        let id = SandboxId::new();
        let files_of = Some(FilesOf { sandbox: record.sandbox, store: registry.store(record.sandbox) });
        let SandboxSpec { image, runtime, limits, project, user, isolation, .. } = made.clone();
        let spec = SandboxSpec { image, runtime, limits, project, user, isolation, files_of, ..SandboxSpec::default() };
        let guard = self.begin(id, &spec, None, Vec::new()).await?;
        let channel = guard.connect(Channel::once(backend.clone(), id)).await?;
        let look = async {
            backend.ready(id).await?;
            Inside::aside(made, (&registry, record.sandbox)).look(&channel, LookFor::Changes, &[], keeper).await
        };
        let look = look.await;
        // One that does not end now ends by itself, and what was seen is true all the same.
        let _ = guard.end().await;
        look
    }
}

impl Sandbox {
    /// All that it changed since it was made. Where the engine has a ledger, the contents of changed files are kept there, but
    /// for those that hold one of `secrets`, which are masked in names.
    pub async fn change_record(&self, secrets: Vec<Secret>) -> Result<ChangeRecord> {
        if self.record().is_some() {
            return Ok(self.engine.sandbox_changes(&self.id().to_string()).await?.record);
        }
        let names = secrets.clone();
        let keeper = match self.engine.ledger() {
            Some(ledger) => {
                let blobs = ledger.blobs()?;
                let known = self.place.contents.clone().filter(|_| secrets.is_empty()).map(KnownContents::noted_in);
                let refused = self.place.memory.as_deref().map(Memory::secret_files).unwrap_or_default();
                Some(Arc::new(BlobKeeper { blobs, secrets, known, refused }) as Arc<dyn ContentKeeper>)
            }
            None => None,
        };
        let look = self.place.look(LookFor::Changes, &[], keeper).await?;
        let mut record = look.changes;
        mask_names(&mut record, &names.iter().collect::<Vec<_>>());
        Ok(record)
    }
}
