//! Starting containers. The guest comes before Docker has said that it started, and is at work by then.

use std::{io, sync::PoisonError};

use glovebox_core::Result;
use tokio::net::UnixStream;

use super::{DockerBackend, Held, host_io};
use crate::client::SLOW;

impl DockerBackend {
    /// Starts a container. One that stays has started when Docker says so, since others ask Docker about it; a one-shot one as soon as
    /// its guest has come.
    pub(super) async fn start_container(&self, held: &Held) -> Result<()> {
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

impl Held {
    /// The connection of a guest that came before Docker said that it started.
    pub(super) fn take_arrived(&self) -> Option<UnixStream> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
