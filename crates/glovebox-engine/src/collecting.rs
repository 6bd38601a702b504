//! What is collected from a sandbox when a run in it is over: its changes and its artifacts.

use std::time::Duration;

use glovebox_core::{ChangeRecord, Denial, Error, ErrorCode, Evidence, Result, Secret, Warning, WorkspaceLook};

use jiff::Timestamp;

use crate::{
    artifacts::{self, Outputs},
    caller::Caller,
    run::Driver,
    run_changes::{self, RunChanges},
};

/// How long the collecting of changes and artifacts may take.
const COLLECTING: Duration = Duration::from_secs(60);

/// What is collected from a sandbox before it ends.
#[derive(Default)]
pub(crate) struct Collected {
    pub(crate) changes: ChangeRecord,
    pub(crate) kept: artifacts::Kept,
    pub(crate) warnings: Vec<Warning>,
}

impl Driver {
    /// Collects changes and artifacts, as long as the caller wants them and within bounds. How a program ended is never
    /// lost because of what it left behind: what cannot be collected is said in the result.
    pub(crate) async fn collect_in_time(&mut self, caller: &mut Caller) -> Collected {
        let already_cancelled = self.command.ending.cancelled;
        let mut collected = Collected::default();
        let why = tokio::select! {
            failed = self.collect(&mut collected) => failed.err().map(|error| error.message),
            () = caller.orders.end_wanted(&caller.events), if !already_cancelled => Some("it was cancelled".to_owned()),
            () = tokio::time::sleep(COLLECTING) => Some(format!("it took longer than {} s", COLLECTING.as_secs())),
        };
        if let Some(why) = why {
            collected.changes.truncated = true;
            let hint = format!("not all changes and artifacts could be collected: {why}");
            collected.kept.denials.push(Denial { kind: "artifact".into(), target: "outputs/**".into(), hint });
        }
        collected
    }

    /// What of the evidence is this run's own, and not of what ran before it.
    pub(crate) fn own(&self, evidence: Evidence) -> Evidence {
        match (&self.session, &self.counted_before) {
            (Some(session), _) => session.since(evidence),
            (None, Some(before)) => evidence.since(before),
            (None, None) => evidence,
        }
    }

    /// Collects changes and artifacts of a run that ended while its guest lives.
    async fn collect(&self, collected: &mut Collected) -> Result<()> {
        let secrets = self.asked.secrets();
        let look = self.entry.changes(&self.place, &self.given, &secrets).await?;
        collected.warnings.extend(self.place.inside.as_ref().and_then(|inside| inside.left_out()));
        if look.workspace_gone {
            collected.warnings.push(workspace_gone());
        }
        let outputs = self.tell_apart(look, collected).await?;
        if matches!(outputs, Outputs::None) && self.request.artifacts.is_empty() {
            return Ok(());
        }
        let folder = self.engine.artifact_dir(self.entry.run);
        let wanted = (self.request.artifacts.as_slice(), outputs, self.place.disk);
        artifacts::collect_all(&self.place.channel, wanted, &folder, &secrets, &mut collected.kept).await?;
        collected.kept.note_left_out(&collected.changes.names().added);
        Ok(())
    }

    /// Notes which of the changes in the sandbox are this run's, and says which of the outputs are.
    async fn tell_apart(&self, look: WorkspaceLook, collected: &mut Collected) -> Result<Outputs> {
        let is_output = |path: &str| path.starts_with("outputs/");
        let Some(memory) = self.place.memory.clone() else {
            let mut changes = look.changes.changes.iter();
            let any = changes.any(|change| is_output(&change.path) && change.after.is_some());
            collected.changes = look.changes;
            return Ok(if any { Outputs::All } else { Outputs::None });
        };
        let asked_at = self.asked_at;
        if run_changes::nothing_since(&look, asked_at) {
            collected.changes.truncated = look.changes.truncated;
            return Ok(Outputs::None);
        }
        let all = look.seen.iter().filter(|entry| is_output(&entry.path) && entry.state.is_some()).count();
        // There may be much to compare, which must not hold up other runs.
        let secrets: Vec<Secret> = self.asked.secrets().into_iter().cloned().collect();
        let tell = move || run_changes::of_run(&memory, look, (asked_at, Timestamp::now()), &secrets);
        let told = tokio::task::spawn_blocking(tell).await;
        let RunChanges { record, written } =
            told.map_err(|error| Error::new(ErrorCode::Internal, "the changes cannot be told apart").because(error))?;
        collected.changes = record;
        let mut own: Vec<String> = written.into_iter().filter(|path| is_output(path)).collect();
        own.sort_unstable();
        Ok(match own.len() {
            0 => Outputs::None,
            number if number == all => Outputs::All,
            _ => Outputs::These(own),
        })
    }
}

fn workspace_gone() -> Warning {
    Warning {
        code: ErrorCode::FileNotFound.as_str().into(),
        message:
            "the folder that is the workspace of this sandbox was moved or removed; what changed in it cannot be told"
                .into(),
        hint: Some("the sandbox still has it; glovebox cp brings files out".into()),
    }
}

/// A sandbox that went away, or was stopped meanwhile, needs no end, and tells nothing.
pub(crate) fn unless_lost<T>(ended: Result<T>) -> Result<Option<T>> {
    match ended {
        Err(error) if [ErrorCode::SandboxLost, ErrorCode::WrongState].contains(&error.code) => Ok(None),
        other => other.map(Some),
    }
}
