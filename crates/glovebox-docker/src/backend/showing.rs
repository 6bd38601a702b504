//! Showing the files of a living sandbox that does not run, in a container that is there to look at them.

use std::collections::HashMap;

use bollard::query_parameters::ListContainersOptionsBuilder;
use glovebox_core::{Error, ErrorCode, Result, SandboxSpec};

use super::{DockerBackend, sweeping::Sweeper};
use crate::{
    client::{QUICK, SLOW},
    describe, owner,
};

impl DockerBackend {
    /// An error for a sandbox that is to show files which are not there. Docker would make an empty volume in their place, and all of them would be
    /// taken for deleted.
    pub(super) async fn check_files_to_show(&self, spec: &SandboxSpec) -> Result<()> {
        let Some(shown) = &spec.files_of else { return Ok(()) };
        let volume = describe::volume_of_files(shown.sandbox);
        let asked = self.client.docker.inspect_volume(&volume);
        if self.client.ask_if_there("look at a volume", QUICK, asked).await?.is_some() {
            return Ok(());
        }
        let id = shown.sandbox;
        let message = format!("the files of the sandbox {id} are gone: Docker has no volume {volume}");
        Err(Error::new(ErrorCode::SandboxLost, message).hint(format!(
            "somebody removed it, or a reset was cut short; glovebox reset {id} makes the sandbox as new"
        )))
    }
}

impl Sweeper {
    /// Removes a volume of a sandbox that is no more. Who looked at its files and died may have it for a moment longer.
    pub(super) async fn remove_shown_volume(&self, name: &str) -> Result<()> {
        if self.remove_volume(name).await? {
            return Ok(());
        }
        let filters = [("label", format!("{}=true", owner::MANAGED)), ("volume", name.to_owned())];
        let filters: HashMap<String, Vec<String>> =
            filters.into_iter().map(|(kind, value)| (kind.to_owned(), vec![value])).collect();
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let asked = self.client.docker.list_containers(Some(options));
        let found = self.client.ask("list the containers", SLOW, asked).await?;
        for found in found.into_iter().filter(|found| owner::sandbox(found).is_some()) {
            self.client.remove(&found.id.unwrap_or_default()).await?;
        }
        self.remove_volume(name).await.map(drop)
    }
}
