//! The entry of a run in the ledger, where there is one.

use std::{path::PathBuf, sync::Arc};

use glovebox_core::{
    ChangeRecord, ContentKeeper, Error, ErrorCode, GivenFile, LookFor, Result, RunId, RunResult, Secret, Warning,
    WorkspaceLook,
};
use glovebox_ledger::{KeptContent, KeptFile, Ledger, Recording};

use crate::{
    contents::{self, BlobKeeper, SecretFiles},
    known_contents::{KnownContents, NotedIn},
    place::Place,
    run_changes::Memory,
};

/// How long a sandbox lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lasts {
    /// As long as its one run.
    OneRun,
    /// As long as the process that made it wants: others can attach to its runs.
    Process,
    /// Longer than the process that made it: so may its runs.
    BeyondProcess,
}

/// The id of a run, and the right to record it. Dropped without a word, the run is lost; one in a sandbox that stays waits
/// to be followed again.
pub(crate) struct Entry {
    pub(crate) run: RunId,
    /// The result that the run has when nobody is left to finish it, where somebody may want to know.
    pub(crate) if_lost: Option<RunResult>,
    recording: Option<Recording>,
    ledger: Option<Ledger>,
}

impl Entry {
    /// Notes that a run is under way, which must come before its command starts.
    pub(crate) fn begin(ledger: Option<&Ledger>, lasts: Lasts, if_lost: impl FnOnce(RunId) -> RunResult) -> Entry {
        let run = RunId::new();
        let known = (lasts > Lasts::OneRun || ledger.is_some()).then(|| if_lost(run));
        let recording = known.clone().zip(ledger).map(|(known, ledger)| match lasts {
            Lasts::BeyondProcess => ledger.begin_in_living(known),
            Lasts::OneRun | Lasts::Process => ledger.begin(known),
        });
        let known = known.filter(|_| lasts > Lasts::OneRun);
        let if_lost = known.map(|known| RunResult { recorded: recording.is_some(), ..known });
        Entry { run, if_lost, recording, ledger: ledger.cloned() }
    }

    /// A run that was begun by somebody else.
    pub(crate) fn of_another(run: RunId, ledger: Option<&Ledger>, recording: Option<Recording>) -> Entry {
        let ledger = ledger.filter(|_| recording.is_some()).cloned();
        Entry { run, if_lost: None, recording, ledger }
    }

    /// There was no run, because its command did not start. Gives the failure back. Where the sandbox went away, the command
    /// may have been what took it down before its start was told, so that run is lost and not forgotten.
    pub(crate) fn forget_after(self, error: Error) -> Error {
        if let Some(recording) = self.recording.filter(|_| error.code != ErrorCode::SandboxLost) {
            recording.forget();
        }
        error
    }

    /// Collects what changed in a sandbox, with contents where the run is recorded.
    pub(crate) async fn changes(
        &self,
        place: &Place,
        given: &[GivenFile],
        secrets: &[&Secret],
    ) -> Result<WorkspaceLook> {
        let refused = place.memory.as_deref().map(Memory::secret_files).unwrap_or_default();
        let keeper = self.keeper(secrets, place.contents.clone(), refused);
        let look_for = if place.memory.is_some() { LookFor::Everything } else { LookFor::Changes };
        let as_keeper = keeper.clone().map(|keeper| keeper as Arc<dyn ContentKeeper>);
        let look = place.look(look_for, given, as_keeper).await?;
        if let Some(keeper) = keeper.filter(|keeper| keeper.known.is_some() && !look.changes.changes.is_empty()) {
            // A large file must not hold up other runs. It fails only by a panic, which has been printed.
            let written = move || keeper.known.iter().for_each(KnownContents::write);
            let _ = tokio::task::spawn_blocking(written).await;
        }
        Ok(look)
    }

    fn keeper(&self, secrets: &[&Secret], known: Option<NotedIn>, refused: SecretFiles) -> Option<Arc<BlobKeeper>> {
        let secrets: Vec<Secret> = secrets.iter().copied().cloned().collect();
        let known = known.filter(|_| secrets.is_empty()).map(KnownContents::noted_in);
        // Without a folder for blobs the run cannot be recorded either, and the result says so.
        let blobs = self.ledger.as_ref()?.blobs().ok()?;
        Some(Arc::new(BlobKeeper { blobs, secrets, known, refused }))
    }

    /// Writes the finished run. That it could not be written changes nothing but what the result says of it.
    pub(crate) async fn finish(self, result: &mut RunResult, changes: &ChangeRecord) {
        let Some(recording) = self.recording else { return };
        result.recorded = true;
        let folder = result.artifacts_dir.as_deref().map(PathBuf::from).unwrap_or_default();
        let kept = result.artifacts.iter().map(|artifact| KeptFile {
            name: format!("artifacts/{}", artifact.path),
            content: KeptContent::Host(folder.join(&artifact.path)),
        });
        let kept = kept.chain(contents::kept_files(changes)).collect();
        if let Err(error) = recording.finish(result, kept).await {
            result.recorded = false;
            let warning = Warning::from(&error);
            let message = format!("this run is not recorded: {}", warning.message);
            result.warnings.push(Warning { message, ..warning });
        }
    }
}
