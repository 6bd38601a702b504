//! Containers that are being made. A request that makes one is carried to its end whoever still waits for it: an engine that was asked goes on
//! when nobody listens any more. What nobody takes then is removed.

use bollard::{
    errors::Error as DockerError,
    models::{ContainerCreateBody, ContainerCreateResponse},
    query_parameters::CreateContainerOptionsBuilder,
};
use glovebox_core::{Error, ErrorCode, Result};
use tokio::{runtime::Handle, sync::oneshot};

use crate::{
    client::{Client, SLOW},
    meeting::Meeting,
};

/// What is of no use without a container, and goes with it if nobody keeps that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Belongings {
    pub(crate) volume: Option<String>,
    /// Whoever gave up has removed it. Podman makes a folder again that it is to mount.
    pub(crate) folder: Option<Meeting>,
}

/// A container that was made, and is removed again unless somebody keeps it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Fresh {
    client: Client,
    container: Option<String>,
    belongings: Belongings,
}

impl Fresh {
    /// Whoever asks for its id sees to it from now on.
    pub(crate) fn keep(mut self) -> String {
        self.belongings = Belongings::default();
        self.container.take().unwrap_or_default()
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let (container, Belongings { volume, folder }) = (self.container.take(), std::mem::take(&mut self.belongings));
        if container.is_none() && volume.is_none() && folder.is_none() {
            return;
        }
        // What does not succeed here is found by its labels.
        if let Ok(runtime) = Handle::try_current() {
            let client = self.client.clone();
            runtime.spawn(async move {
                if let Some(container) = container {
                    let _ = client.remove(&container).await;
                }
                if let Some(volume) = volume {
                    let _ = client.remove_volume(&volume).await;
                }
                folder.iter().for_each(Meeting::remove);
            });
        }
    }
}

impl Client {
    /// Makes a container. What belongs to it goes with it, if nobody keeps it.
    pub(crate) async fn make(&self, name: &str, body: ContainerCreateBody, belongings: Belongings) -> Result<Fresh> {
        let (tell, told) = oneshot::channel();
        tokio::spawn(carry(self.clone(), name.to_owned(), body, belongings, tell));
        told.await.unwrap_or_else(|_| Err(Error::new(ErrorCode::Internal, "nobody makes the container any more")))
    }
}

/// Carries a request to its end. What was made is removed where the one who asked has gone, or was told that the engine does not answer.
async fn carry(
    client: Client,
    name: String,
    body: ContainerCreateBody,
    belongings: Belongings,
    tell: oneshot::Sender<Result<Fresh>>,
) {
    const WHAT: &str = "make a container";
    let options = CreateContainerOptionsBuilder::new().name(&name).build();
    let docker = client.docker.clone();
    let mut asked = std::pin::pin!(docker.create_container(Some(options), body));
    let made = |answer: Result<ContainerCreateResponse, DockerError>| match answer {
        Ok(made) => Ok(Fresh { client: client.clone(), container: Some(made.id), belongings: belongings.clone() }),
        Err(error) => Err(error),
    };
    match client.answer(WHAT, SLOW, &mut asked).await {
        Ok(answer) => {
            let untold = tell.send(made(answer).map_err(|error| client.failed(WHAT, error)));
            if let Err(Err(_)) = untold {
                // Nobody else removes what it was to have.
                drop(Fresh { client: client.clone(), container: None, belongings: belongings.clone() });
            }
        }
        Err(silent) => {
            let _ = tell.send(Err(silent));
            drop(made(asked.await));
        }
    }
}
