//! Showing the files of a living sandbox that does not run, in a container that is there to look at them.

use std::{collections::HashMap, fs, io, path::Path};

use bollard::query_parameters::ListContainersOptionsBuilder;
use glovebox_core::{Error, ErrorCode, Result, SandboxId, SandboxSpec};

use super::{DockerBackend, sweeping::Sweeper};
use crate::{
    client::{QUICK, SLOW},
    describe, owner,
};

/// The file in the store of a living sandbox that says that its volumes were made.
const NOTED: &str = "docker-volumes";

/// Notes that the volumes of a living sandbox were made. Whoever removes them removes the note with the store.
pub(super) fn note_files(store: &Path) -> io::Result<()> {
    fs::write(store.join(NOTED), "")
}

impl DockerBackend {
    /// An error for a sandbox that is to show files which are not there. Docker would make an empty volume in their place, and all of them would be
    /// taken for deleted.
    pub(super) async fn check_files_to_show(&self, spec: &SandboxSpec) -> Result<()> {
        match &spec.files_of {
            Some(shown) => self.must_have_files(shown.sandbox).await,
            None => Ok(()),
        }
    }

    /// An error for a sandbox that is started again and whose files are gone: it would begin with none, and nobody would be told.
    pub(super) async fn check_files_are_there(&self, id: SandboxId, store: &Path) -> Result<()> {
        match store.join(NOTED).exists() {
            true => self.must_have_files(id).await,
            false => Ok(()),
        }
    }

    async fn must_have_files(&self, id: SandboxId) -> Result<()> {
        let volume = describe::volume_of_files(id);
        let asked = self.client.docker.inspect_volume(&volume);
        if self.client.ask_if_there("look at a volume", QUICK, asked).await?.is_some() {
            return Ok(());
        }
        let message = format!("the files of the sandbox {id} are gone: Docker has no volume {volume}");
        Err(Error::new(ErrorCode::SandboxLost, message).hint(format!(
            "somebody removed it, or a reset was cut short; glovebox reset {id} makes the sandbox as new"
        )))
    }
}

impl Sweeper {
    /// Removes a volume of a sandbox that is no more. Who looked at its files and died may have it for a moment longer.
    pub(super) async fn remove_shown_volume(&self, name: &str) -> Result<()> {
        if self.client.remove_volume(name).await? {
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
        self.client.remove_volume(name).await.map(drop)
    }
}
