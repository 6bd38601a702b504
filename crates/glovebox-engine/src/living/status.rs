//! Living sandboxes as they are now.

use std::{collections::BTreeMap, sync::Arc};

use glovebox_core::{ErrorCode, Isolation, Result, SandboxId, SandboxName, SandboxRecord, SandboxState};
use jiff::Timestamp;
use serde::Serialize;

use crate::Engine;

/// A living sandbox as it is now: one document of `list` and `show`.
#[derive(Clone, Debug, Serialize)]
pub struct SandboxStatus {
    /// Its id.
    pub sandbox: SandboxId,
    /// Its name.
    pub name: Option<SandboxName>,
    /// Its state.
    pub state: SandboxState,
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
    /// All living sandboxes of the data folder, the oldest first.
    pub async fn sandboxes(&self) -> Result<Vec<SandboxStatus>> {
        let mut all = Vec::new();
        for id in self.registry().ids()? {
            match self.status_of(id).await {
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
        self.status_of(self.registry().find(text)?).await
    }

    async fn status_of(&self, id: SandboxId) -> Result<SandboxStatus> {
        let record = self.registry().read(id)?;
        let ended = self.registry().ended(id).map(|ended| EndedAt { reason: ended.reason, at: ended.at() });
        let state = match ended {
            Some(_) => SandboxState::Gone,
            None if self.registry().is_doomed(id) => SandboxState::Destroying,
            None => self.backend().state(id).await?,
        };
        let lifetime = record.spec.living.as_ref().map(|living| living.lifetime).unwrap_or_default();
        let expires_at = lifetime.expires_at(record.created_at);
        // Whatever is at work there holds the time, and so does a pause.
        let unused = if state == SandboxState::Ready { self.backend().unused_for(id).await } else { None };
        let left = lifetime.idle.zip(unused).map(|(idle, unused)| idle.saturating_sub(unused));
        let idle_ends_at = left.and_then(|left| Timestamp::now().checked_add(left).ok());
        Ok(SandboxStatus {
            sandbox: id,
            name: record.name.clone(),
            state,
            ended,
            backend: record.backend.clone(),
            image: record.spec.image.to_string(),
            project: record.spec.project.as_ref().map(ToString::to_string),
            created_at: record.created_at,
            expires_at,
            ends_at: [expires_at, idle_ends_at].into_iter().flatten().min(),
            idle_timeout_ms: lifetime.idle.map(|idle| idle.as_millis() as u64),
            labels: record.labels.clone(),
            isolation: if state.has_processes() { self.backend().isolation(id).await } else { None },
            record: Arc::new(record),
        })
    }
}
