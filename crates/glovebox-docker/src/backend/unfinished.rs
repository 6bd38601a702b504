//! A sandbox that is being made, until it is; and one that is being ended, until it has.

use std::sync::Arc;

use glovebox_core::{Backend, SandboxId};

use super::{DockerBackend, Held};
use crate::meeting::Meeting;

/// Sees to it that nothing is left of a sandbox whose maker gives up before it is made: nobody else knows of it yet.
pub(super) struct Unfinished<'a> {
    backend: &'a DockerBackend,
    id: SandboxId,
    meeting: Option<Meeting>,
}

impl<'a> Unfinished<'a> {
    /// One whose folder is about to be made.
    pub(super) fn new(backend: &'a DockerBackend, id: SandboxId, meeting: &Meeting) -> Self {
        Unfinished { backend, id, meeting: Some(meeting.clone()) }
    }

    /// From here on others see to it.
    pub(super) fn done(mut self) {
        self.meeting = None;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(meeting) = &self.meeting {
            self.backend.abandon(self.id);
            meeting.remove();
        }
    }
}

/// Sees to it that a one-shot sandbox ends all the same when whoever waits for its end gives up.
pub(super) struct Going<'a> {
    backend: &'a DockerBackend,
    id: SandboxId,
    held: Option<Arc<Held>>,
}

impl<'a> Going<'a> {
    pub(super) fn new(backend: &'a DockerBackend, id: SandboxId, held: &Arc<Held>) -> Self {
        // What there is of one that stays is found by whoever comes next.
        Going { backend, id, held: held.spec.living.is_none().then(|| held.clone()) }
    }

    /// It is known how it ended.
    pub(super) fn over(mut self) {
        self.held = None;
    }
}

impl Drop for Going<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.backend.all().insert(self.id, held);
            self.backend.abandon(self.id);
        }
    }
}
