//! A backend whose connections can be cut, as a network or a dead bridge would; all else is another backend's work.

use std::{
    io,
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use async_trait::async_trait;
use glovebox_core::{
    Backend, ContentKeeper, Created, Evidence, Features, Found, GivenFile, GuestStream, Isolation, LookFor, Outgrown,
    Result, RunId, SandboxId, SandboxSpec, SandboxState, UsageNow, WorkspaceLook,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A backend whose connections can be cut.
pub(crate) struct Cutting {
    backend: Arc<dyn Backend>,
    cuts: Arc<Mutex<Vec<Arc<Cut>>>>,
}

/// Whether a connection was cut, and who must learn of it.
#[derive(Default)]
struct Cut(Mutex<(bool, Option<Waker>)>);

impl Cut {
    fn is_made(&self, cx: &Context<'_>) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 = Some(cx.waker().clone());
        state.0
    }
}

impl Cutting {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        Cutting { backend, cuts: Arc::default() }
    }

    /// Cuts every connection that there is. Says how many were made so far.
    pub(crate) fn cut(&self) -> usize {
        let cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        for cut in cuts.iter() {
            let mut state = cut.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.0 = true;
            if let Some(waker) = state.1.take() {
                waker.wake();
            }
        }
        cuts.len()
    }
}

/// A connection that can be cut.
struct Cuttable {
    stream: GuestStream,
    cut: Arc<Cut>,
}

impl Cuttable {
    fn check(&self, cx: &Context<'_>) -> io::Result<()> {
        if self.cut.is_made(cx) { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl AsyncRead for Cuttable {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Cuttable {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[async_trait]
impl Backend for Cutting {
    async fn connect(&self, id: SandboxId) -> Result<GuestStream> {
        let stream = self.backend.connect(id).await?;
        let cut = Arc::new(Cut::default());
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner).push(cut.clone());
        Ok(Box::new(Cuttable { stream, cut }))
    }

    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn files_through_guest(&self) -> bool {
        self.backend.files_through_guest()
    }

    async fn probe(&self) -> Result<Features> {
        self.backend.probe().await
    }

    fn environment(&self) -> Vec<(String, String)> {
        self.backend.environment()
    }

    async fn create(&self, id: SandboxId, spec: &SandboxSpec) -> Result<()> {
        self.backend.create(id, spec).await
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

    async fn changes(
        &self,
        id: SandboxId,
        look_for: LookFor,
        given: &[GivenFile],
        keeper: Option<Arc<dyn ContentKeeper>>,
    ) -> Result<WorkspaceLook> {
        self.backend.changes(id, look_for, given, keeper).await
    }

    async fn changes_of_living(
        &self,
        id: SandboxId,
        spec: &SandboxSpec,
        keeper: Option<Arc<dyn ContentKeeper>>,
    ) -> Result<WorkspaceLook> {
        self.backend.changes_of_living(id, spec, keeper).await
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
