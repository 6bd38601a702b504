//! A backend whose files are reached through the guest alone, as those of a container are; all else is another backend's work.

use std::{borrow::Cow, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use glovebox_core::{
    Access, Backend, Created, Evidence, Features, Found, GuestStream, InsidePath, Isolation, Mount, MountKind,
    OUTPUTS_DIR, Outgrown, Result, RunId, SandboxId, SandboxSpec, SandboxState, UsageNow, WORKING_DIR,
};
use jiff::Timestamp;

/// Another backend, of whose files the host sees nothing.
pub(crate) struct ThroughGuest {
    backend: Arc<dyn Backend>,
}

impl ThroughGuest {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        ThroughGuest { backend }
    }
}

/// A backend that sees files shows those of another sandbox as folders of the host.
fn showing(spec: &SandboxSpec) -> Cow<'_, SandboxSpec> {
    let Some(shown) = &spec.files_of else { return Cow::Borrowed(spec) };
    let show = |target: &str| Mount {
        source: shown.store.join(target.trim_start_matches('/')),
        target: InsidePath::absolute(target).expect("it is a path"),
        access: Access::ReadOnly,
        kind: MountKind::Host,
    };
    let mounts = vec![show(WORKING_DIR), show(OUTPUTS_DIR)];
    Cow::Owned(SandboxSpec { files_of: None, mounts, ..spec.clone() })
}

#[async_trait]
impl Backend for ThroughGuest {
    fn files_through_guest(&self) -> bool {
        true
    }

    async fn probe(&self) -> Result<Features> {
        Ok(Features { files_through_guest: true, ..self.backend.probe().await? })
    }

    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn environment(&self) -> Vec<(String, String)> {
        self.backend.environment()
    }

    async fn connect(&self, id: SandboxId) -> Result<GuestStream> {
        self.backend.connect(id).await
    }

    async fn create(&self, id: SandboxId, spec: &SandboxSpec) -> Result<()> {
        self.backend.create(id, &showing(spec)).await
    }

    async fn ready(&self, id: SandboxId) -> Result<Created> {
        self.backend.ready(id).await
    }

    async fn evidence(&self, id: SandboxId, run: Option<RunId>) -> Result<Evidence> {
        self.backend.evidence(id, run).await
    }

    async fn usage(&self, id: SandboxId) -> Result<UsageNow> {
        self.backend.usage(id).await
    }

    async fn watched_limit(&self, id: SandboxId, run: Option<RunId>) -> Outgrown {
        self.backend.watched_limit(id, run).await
    }

    async fn list(&self) -> Result<Vec<Found>> {
        self.backend.list().await
    }

    async fn end(&self, id: SandboxId) -> Result<Option<Evidence>> {
        self.backend.end(id).await
    }

    async fn destroy(&self, id: SandboxId) -> Result<()> {
        self.backend.destroy(id).await
    }

    fn abandon(&self, id: SandboxId) {
        self.backend.abandon(id);
    }

    async fn state(&self, id: SandboxId) -> Result<SandboxState> {
        self.backend.state(id).await
    }

    async fn unused_for(&self, id: SandboxId) -> Option<Duration> {
        self.backend.unused_for(id).await
    }

    async fn isolation(&self, id: SandboxId) -> Option<Isolation> {
        self.backend.isolation(id).await
    }

    async fn open(&self, id: SandboxId, spec: &SandboxSpec) -> Result<Created> {
        self.backend.open(id, spec).await
    }

    fn release(&self, id: SandboxId) {
        self.backend.release(id);
    }

    async fn pause(&self, id: SandboxId) -> Result<Option<u64>> {
        self.backend.pause(id).await
    }

    fn paused_since(&self, id: SandboxId, since: Timestamp) -> Duration {
        self.backend.paused_since(id, since)
    }

    async fn let_die(&self, id: SandboxId) -> Result<()> {
        self.backend.let_die(id).await
    }

    async fn resume(&self, id: SandboxId) -> Result<()> {
        self.backend.resume(id).await
    }

    async fn remove_store(&self, store: &Path) -> Result<()> {
        self.backend.remove_store(store).await
    }

    fn keeps_volumes_at(&self) -> Option<String> {
        self.backend.keeps_volumes_at()
    }

    async fn remove_volume_there(&self, volume: &str) -> Result<()> {
        self.backend.remove_volume_there(volume).await
    }

    async fn collect_garbage(&self) -> Result<Vec<String>> {
        self.backend.collect_garbage().await
    }
}
