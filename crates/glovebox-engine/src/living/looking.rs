//! What a sandbox changed since it was made.

use std::{path::PathBuf, sync::Arc};

use glovebox_core::{
    ChangeRecord, ContentKeeper, Error, ErrorCode, LookFor, Result, SandboxId, SandboxName, SandboxRecord, Secret,
    WorkspaceMode,
};

use crate::{
    Engine, Sandbox,
    contents::{BlobKeeper, SecretFiles, mask_names},
    known_contents::{KnownContents, NotedIn},
    run_changes::Memory,
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
        let record = self.registry().read(self.registry().find(text)?)?;
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
            true => engine.open_to_look(&record, text).await?.place.look(LookFor::Changes, &[], as_keeper).await?,
            false => engine.backend().changes_of_living(id, &self.with_storage(&record.spec)?.0, as_keeper).await?,
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
    /// Takes hold of a sandbox whose files are there only while it runs.
    async fn open_to_look(&self, record: &SandboxRecord, text: &str) -> Result<Sandbox> {
        self.open(text).await.map_err(|error| match error.code {
            ErrorCode::WrongState => {
                let message = format!("{}, and what it changed can be told only while it runs", error.message);
                Error { message, ..error }
            }
            _ => self.explain_lost(record.sandbox, error),
        })
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
