//! Starting containers. The guest comes before Docker has said that it started, and is at work by then.

use std::{io, sync::PoisonError};

use glovebox_core::{Result, SandboxId};
use tokio::net::UnixStream;

use super::{DockerBackend, Held, Sandboxes, host_io};
use crate::{
    client::{Client, SLOW},
    meeting::Meeting,
};

impl DockerBackend {
    /// Starts a container. One that stays has started when Docker says so, since others ask Docker about it; a one-shot one as soon as
    /// its guest has come.
    pub(super) async fn start(&self, held: &Held) -> Result<()> {
        let (client, container) = (self.client.clone(), held.container.clone());
        // Whoever is first, it is asked for to its end: an engine may give up what nobody waits for.
        let mut asked = tokio::spawn(async move {
            client.ask("start a container", SLOW, client.docker.start_container(&container, None)).await
        });
        let waiting = held.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        let arrived = tokio::select! {
            started = &mut asked => {
                started.map_err(|error| host_io(io::Error::other(error)))??;
                None
            }
            arrived = async {
                match &waiting {
                    Some(listener) if held.spec.living.is_none() => listener.accept().await,
                    _ => std::future::pending().await,
                }
            } => Some(arrived.map_err(host_io)?.0),
        };
        *held.listener.lock().unwrap_or_else(PoisonError::into_inner) = waiting;
        *held.arrived.lock().unwrap_or_else(PoisonError::into_inner) = arrived;
        Ok(())
    }
}

/// A sandbox that is being made. When its maker is given up half-way, nothing of it stays.
pub(super) struct Unfinished {
    client: Client,
    sandboxes: Sandboxes,
    id: SandboxId,
    /// The name of its container.
    name: String,
    meeting: Meeting,
    is_over: bool,
}

impl DockerBackend {
    /// Begins to make a sandbox.
    pub(super) fn unfinished(&self, id: SandboxId, name: String, meeting: &Meeting) -> Unfinished {
        let (client, sandboxes) = (self.client.clone(), self.sandboxes.clone());
        Unfinished { client, sandboxes, id, name, meeting: meeting.clone(), is_over: false }
    }
}

impl Unfinished {
    /// It is made, or what there was of it is removed.
    pub(super) fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.meeting.remove();
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (client, name) = (self.client.clone(), self.name.clone());
            // What does not succeed here is found by its labels.
            runtime.spawn(async move { client.remove(&name).await });
        }
    }
}

impl Held {
    /// The connection of a guest that came before Docker said that it started.
    pub(super) fn take_arrived(&self) -> Option<UnixStream> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
