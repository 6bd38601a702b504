//! Ending containers, and what is said of one that does not end.

use bollard::query_parameters::KillContainerOptionsBuilder;
use glovebox_core::{Error, ErrorCode, Evidence, Result, SandboxId, waiting_in_kernel};

use super::{DockerBackend, Held};
use crate::client::SLOW;

impl DockerBackend {
    /// What is said of a sandbox that Docker was asked to end, and that did not for this reason: who keeps it from ending, if that can be
    /// seen from here.
    pub(super) fn unended(&self, id: SandboxId, held: &Held, error: Error) -> Error {
        match error.code {
            ErrorCode::BackendUnavailable => left_to_docker(&self.client.place).because(error),
            ErrorCode::StillEnding => {
                let processes = held.met.get().map(|met| met.groups.processes()).unwrap_or_default();
                match processes.into_iter().find_map(waiting_in_kernel) {
                    Some(waiting) => Error::still_ending(id, &waiting),
                    None => error,
                }
            }
            _ => error,
        }
    }

    /// Ends the processes of a container, and says what was counted until then.
    pub(super) async fn kill(&self, held: &Held) -> Result<Option<Evidence>> {
        let evidence = self.seen(held, None).await?;
        let options = KillContainerOptionsBuilder::new().signal("SIGKILL").build();
        let asked = self.client.docker.kill_container(&held.container, Some(options));
        let killed = self.client.ask_if_there("end a container", SLOW, asked).await?;
        Ok(evidence.filter(|_| killed.is_some()))
    }
}

/// What is said of a container whose end Docker was asked for and did not confirm.
fn left_to_docker(place: &str) -> Error {
    let message = format!("Docker at {place} does not answer, so nobody knows whether the container is removed");
    Error::new(ErrorCode::StillEnding, message).hint(
        "it ends by itself without us; when Docker answers again, `glovebox gc --backend docker` removes what is left",
    )
}
