//! Living sandboxes as they are now.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use glovebox_core::{ErrorCode, Isolation, Result, SandboxId, SandboxName, SandboxRecord, SandboxState};
use jiff::Timestamp;
use serde::Serialize;

use crate::Engine;

/// How long a backend is waited for that is to say in which state a sandbox is.
const PATIENCE: Duration = Duration::from_secs(5);

/// A living sandbox as it is now: one document of `list` and `show`.
#[derive(Clone, Debug, Serialize)]
pub struct SandboxStatus {
    /// Its id.
    pub sandbox: SandboxId,
    /// Its name.
    pub name: Option<SandboxName>,
    /// Its state.
    pub state: SandboxState,
    /// Why its state is not known, when it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Why it ended by itself, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndedAt>,
    /// The backend that made it.
    pub backend: String,
    /// Its image.
    pub image: String,
    /// Its project.
    pub project: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends at the latest.
    pub expires_at: Option<Timestamp>,
    /// When it ends if nobody uses it from now on, be it for that or for its age.
    pub ends_at: Option<Timestamp>,
    /// After how long without use it ends, milliseconds.
    pub idle_timeout_ms: Option<u64>,
    /// The caller's labels.
    pub labels: BTreeMap<String, String>,
    /// Layers that are in place and that are missing, while it has processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// How it was made.
    #[serde(skip)]
    pub record: Arc<SandboxRecord>,
}

/// Why and when a sandbox ended by itself.
#[derive(Clone, Debug, Serialize)]
pub struct EndedAt {
    /// Why.
    pub reason: glovebox_core::EndReason,
    /// When.
    pub at: Timestamp,
}

impl Engine {
    /// All living sandboxes of the data folder, the oldest first. Of a backend that does not answer the states are unknown.
    pub async fn sandboxes(&self) -> Result<Vec<SandboxStatus>> {
        let (mut all, mut silent) = (Vec::new(), BTreeMap::new());
        for id in self.registry().ids()? {
            match self.status_of(id, &mut silent).await {
                Ok(status) => all.push(status),
                // It went while the others were looked at.
                Err(error) if error.code == ErrorCode::SandboxNotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Which living sandbox is meant by an id, the beginning of an id, or a name.
    pub fn id_of(&self, text: &str) -> Result<SandboxId> {
        self.registry().find(text)
    }

    /// One living sandbox as it is now.
    pub async fn status(&self, text: &str) -> Result<SandboxStatus> {
        self.status_of(self.registry().find(text)?, &mut BTreeMap::new()).await
    }

    /// In which state the processes of a sandbox are. Whoever did not answer is in `silent`, and is not asked again.
    async fn state_of(&self, record: &SandboxRecord, silent: &mut BTreeMap<String, String>) -> Result<SandboxState> {
        if silent.contains_key(&record.backend) {
            return Ok(SandboxState::Unknown);
        }
        let why = match self.of(record) {
            Err(error) => error.message,
            Ok(engine) => match tokio::time::timeout(PATIENCE, engine.backend().state(record.sandbox)).await {
                Ok(Err(error)) if error.code == ErrorCode::BackendUnavailable => error.message,
                Ok(found) => return found,
                Err(_) => format!("the backend {} did not answer within {} s", record.backend, PATIENCE.as_secs()),
            },
        };
        silent.insert(record.backend.clone(), why);
        Ok(SandboxState::Unknown)
    }

    async fn status_of(&self, id: SandboxId, silent: &mut BTreeMap<String, String>) -> Result<SandboxStatus> {
        let record = self.registry().read(id)?;
        let ended = self.registry().ended(id).map(|ended| EndedAt { reason: ended.reason, at: ended.at() });
        let state = match ended {
            Some(_) => SandboxState::Gone,
            None if self.registry().is_doomed(id) => SandboxState::Destroying,
            None => self.state_of(&record, silent).await?,
        };
        let lifetime = record.spec.living.as_ref().map(|living| living.lifetime).unwrap_or_default();
        let expires_at = lifetime.expires_at(record.created_at);
        // Whatever is at work there holds the time, and so does a pause.
        let engine = self.of(&record).ok();
        let unused = match &engine {
            Some(engine) if state == SandboxState::Ready => engine.backend().unused_for(id).await,
            _ => None,
        };
        let isolation = match &engine {
            Some(engine) if state.has_processes() => engine.backend().isolation(id).await,
            _ => None,
        };
        let left = lifetime.idle.zip(unused).map(|(idle, unused)| idle.saturating_sub(unused));
        let idle_ends_at = left.and_then(|left| Timestamp::now().checked_add(left).ok());
        Ok(SandboxStatus {
            sandbox: id,
            name: record.name.clone(),
            state,
            trouble: silent.get(&record.backend).filter(|_| state == SandboxState::Unknown).cloned(),
            ended,
            backend: record.backend.clone(),
            image: record.spec.image.to_string(),
            project: record.spec.project.as_ref().map(ToString::to_string),
            created_at: record.created_at,
            expires_at,
            ends_at: [expires_at, idle_ends_at].into_iter().flatten().min(),
            idle_timeout_ms: lifetime.idle.map(|idle| idle.as_millis() as u64),
            labels: record.labels.clone(),
            isolation,
            record: Arc::new(record),
        })
    }
}
