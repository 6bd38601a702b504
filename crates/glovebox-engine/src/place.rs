//! Where a run happens, and what becomes of the place afterwards.

use std::sync::Arc;

use glovebox_core::{
    Backend, ContentKeeper, Created, GivenFile, LookFor, Result, SandboxId, SandboxState, WorkspaceLook,
};

use crate::{
    channel::Channel, engine::Guard, known_contents::NotedIn, run_changes::Memory, sessions::Notes,
    through_guest::Inside,
};

/// Where a run happens.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) id: SandboxId,
    pub(crate) channel: Channel,
    pub(crate) created: Arc<Created>,
    pub(crate) disk: u64,
    pub(crate) backend: Arc<dyn Backend>,
    /// Its files, where they are reached through the guest.
    pub(crate) inside: Option<Arc<Inside>>,
    /// What was last met in its workspace, if it is for several runs.
    pub(crate) memory: Option<Arc<Memory>>,
    /// Where it is noted what was kept of its files, if it is for several runs.
    pub(crate) contents: Option<NotedIn>,
    /// Which sessions it was given.
    pub(crate) sessions: Arc<Notes>,
}

impl Place {
    /// Whether the sandbox outlives those who use it.
    pub(crate) fn is_living(&self) -> bool {
        matches!(self.memory.as_deref(), Some(Memory::File(_)))
    }

    /// What the sandbox did to its workspace so far; see [`Backend::changes`].
    pub(crate) async fn look(
        &self,
        look_for: LookFor,
        given: &[GivenFile],
        keeper: Option<Arc<dyn ContentKeeper>>,
    ) -> Result<WorkspaceLook> {
        match &self.inside {
            Some(inside) => inside.look(&self.channel, look_for, given, keeper).await,
            None => self.backend.changes(self.id, look_for, given, keeper).await,
        }
    }

    /// Lets those processes end that were killed, where the sandbox is one that may be paused.
    pub(crate) async fn let_die(&self) -> Result<()> {
        if self.channel.outlives_connections() && self.backend.state(self.id).await? == SandboxState::Paused {
            return self.backend.let_die(self.id).await;
        }
        Ok(())
    }
}

/// What happens to the sandbox when the run is over.
pub(crate) enum Lifetime {
    EndsWithRun(Arc<Guard>),
    /// The sandbox outlives its runs, and lasts for as long as somebody holds one of them.
    Stays(Arc<Guard>),
}
