//! Finding containers again: living ones, and what dead owners left.

use std::{
    collections::HashMap,
    fs, io,
    path::Path,
    sync::{Arc, Mutex},
};

use bollard::{
    models::{ContainerSummary, ContainerSummaryStateEnum as State},
    query_parameters::{ListContainersOptionsBuilder, RemoveVolumeOptionsBuilder},
};
use glovebox_core::{
    Created, EndReason, Error, ErrorCode, Found, Isolation, Result, SandboxId, SandboxSpec, SandboxState,
};
use glovebox_proto::container::{ENDED_IDLE, ENDED_OLD};
use jiff::Timestamp;
use tokio::sync::OnceCell;

use super::{DockerBackend, Held, Met, gone, host_io, remove_folder};
use crate::{
    client::SLOW,
    counted::Groups,
    describe,
    meeting::{self, Meeting},
    owner::{self, Verdict},
};

/// Where a living sandbox notes the volumes that hold its files.
const VOLUMES: &str = "docker-volumes.json";

impl DockerBackend {
    /// The containers that carry our labels, and this one where it is given.
    async fn containers(&self, further: Option<(&str, String)>) -> Result<Vec<ContainerSummary>> {
        let mut labels = vec![format!("{}=true", owner::MANAGED)];
        labels.extend(further.map(|(name, value)| format!("{name}={value}")));
        let filters = HashMap::from([("label".to_owned(), labels)]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        self.client.ask("list the containers", SLOW, self.client.docker.list_containers(Some(options))).await
    }

    /// The container of a sandbox, if there is one.
    async fn container_of(&self, id: SandboxId) -> Result<Option<ContainerSummary>> {
        Ok(self.containers(Some((owner::SANDBOX, id.to_string()))).await?.into_iter().next())
    }

    /// In which state a living sandbox is.
    pub(super) async fn look_at_state(&self, id: SandboxId) -> Result<SandboxState> {
        let found = self.container_of(id).await?;
        if let Some(found) = found.as_ref().filter(|found| matches!(found.state, Some(State::EXITED | State::DEAD))) {
            self.bury(found).await?;
        }
        Ok(match found.and_then(|found| found.state) {
            Some(State::CREATED) => SandboxState::Creating,
            Some(State::RUNNING | State::RESTARTING) => SandboxState::Ready,
            Some(State::PAUSED) => SandboxState::Paused,
            Some(State::REMOVING) => SandboxState::Stopping,
            _ => SandboxState::Stopped,
        })
    }

    /// Notes why a living sandbox ended, if it did so by itself, and removes what is left of its container.
    async fn bury(&self, found: &ContainerSummary) -> Result<()> {
        let Some(container) = &found.id else { return Ok(()) };
        let asked = self.client.docker.inspect_container(container, None);
        let seen = self.client.ask_if_there("look at a container", SLOW, asked).await?;
        let code = seen.and_then(|seen| seen.state).and_then(|state| state.exit_code);
        let reason = match code.and_then(|code| u8::try_from(code).ok()) {
            Some(ENDED_IDLE) => Some(EndReason::IdleTimeout),
            Some(ENDED_OLD) => Some(EndReason::MaxAge),
            _ => None,
        };
        let store = found.labels.as_ref().and_then(|labels| labels.get(owner::STORE));
        if let (Some(reason), Some(folder)) = (reason, store.and_then(|store| Path::new(store).parent())) {
            let note = serde_json::json!({ "reason": reason, "at_ms": Timestamp::now().as_millisecond() });
            match fs::write(folder.join("ended.json"), note.to_string()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(host_io(error)),
                _ => {}
            }
        }
        self.remove(container).await?;
        // One that ended by itself is over, with all of its files.
        if let Some(store) = store.filter(|_| reason.is_some()) {
            self.remove_volumes(Path::new(store)).await?;
        }
        if let Some(id) = owner::sandbox(found) {
            Meeting::of(&self.settings.runtime_folder, id).remove();
        }
        Ok(())
    }

    /// Takes hold of a living sandbox.
    pub(super) async fn take_hold(&self, id: SandboxId, spec: &SandboxSpec) -> Result<Created> {
        let held = match self.held(id) {
            Ok(held) => held,
            Err(_) => {
                let stopped = || {
                    let message = format!("the sandbox {id} is stopped");
                    Error::new(ErrorCode::WrongState, message).hint(format!("glovebox start {id}"))
                };
                let held = self.find_held(id, spec).await?.ok_or_else(stopped)?;
                self.all().insert(id, held.clone());
                held
            }
        };
        held.met.get().map(|met| met.created.clone()).ok_or_else(|| gone(id))
    }

    /// What is known of the container of a sandbox that runs, whoever made it.
    pub(super) async fn find_held(&self, id: SandboxId, spec: &SandboxSpec) -> Result<Option<Arc<Held>>> {
        let Some(found) = self.container_of(id).await? else { return Ok(None) };
        let Some(container) = found.id.clone() else { return Ok(None) };
        let asked = self.client.docker.inspect_container(&container, None);
        let Some(seen) = self.client.ask_if_there("look at a container", SLOW, asked).await? else { return Ok(None) };
        let pid = seen.state.and_then(|state| state.pid).unwrap_or_default() as i32;
        if pid == 0 {
            // It has just ended, and nobody else would remove what is left.
            self.bury(&found).await?;
            return Ok(None);
        }
        let limits = describe::limits_in_force(spec, self.machine().await?);
        let groups = Groups::of(pid);
        let created = Created {
            isolation: Isolation::default(),
            limits: limits.clone(),
            places: Vec::new(),
            image: self.named_image(spec),
            image_digest: found.image_id,
        };
        let met = OnceCell::new_with(Some(Met { channel: Mutex::default(), pid, groups, created }));
        Ok(Some(Arc::new(Held {
            container,
            spec: spec.clone(),
            limits,
            image: self.named_image(spec),
            image_digest: None,
            meeting: Meeting::of(&self.settings.runtime_folder, id),
            listener: Mutex::default(),
            met,
        })))
    }

    /// The sandboxes that there are containers of.
    pub(super) async fn look_around(&self) -> Result<Vec<Found>> {
        let now = Timestamp::now();
        let all = self.containers(None).await?;
        let found = all.iter().filter_map(|container| {
            let id = owner::sandbox(container)?;
            Some(Found { id, owned: owner::judge(container, now) == Verdict::Owned })
        });
        Ok(found.collect())
    }

    /// Removes containers that nobody needs, and folders of sandboxes without a container.
    pub(super) async fn remove_left(&self) -> Result<Vec<String>> {
        let now = Timestamp::now();
        let mut removed = Vec::new();
        let mut needed = Vec::new();
        for container in self.containers(None).await? {
            let Some(id) = owner::sandbox(&container) else { continue };
            match (owner::judge(&container, now), &container.id) {
                (Verdict::Left, Some(_)) => {
                    self.bury(&container).await?;
                    removed.push(format!("the container of the sandbox {id}"));
                }
                _ => needed.push(id.to_string()),
            }
        }
        needed.extend(self.all().keys().map(ToString::to_string));
        for folder in fs::read_dir(meeting::all(&self.settings.runtime_folder)).into_iter().flatten().flatten() {
            let name = folder.file_name().to_string_lossy().into_owned();
            if !needed.contains(&name) && is_old(&folder.path()) {
                remove_folder(&folder.path()).map_err(host_io)?;
                removed.push(format!("the folder of the sandbox {name}"));
            }
        }
        Ok(removed)
    }

    /// Notes which volumes hold the files of a living sandbox.
    pub(super) fn note_volumes(&self, store: &Path, id: SandboxId) -> Result<()> {
        let names: Vec<String> = describe::volumes(id).into_iter().map(|(name, _)| name).collect();
        fs::create_dir_all(store).map_err(host_io)?;
        let text = serde_json::to_vec(&names).map_err(|error| host_io(io::Error::other(error)))?;
        fs::write(store.join(VOLUMES), text).map_err(host_io)
    }

    /// Removes the volumes that a folder names, and the folder.
    pub(super) async fn remove_volumes(&self, store: &Path) -> Result<()> {
        let names: Vec<String> = match fs::read(store.join(VOLUMES)) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        for name in names.iter().filter(|name| name.starts_with("glovebox-")) {
            let options = RemoveVolumeOptionsBuilder::new().force(true).build();
            let asked = self.client.docker.remove_volume(name, Some(options));
            self.client.ask_if_there("remove a volume", SLOW, asked).await?;
        }
        remove_folder(store).map_err(host_io)
    }
}

/// Whether a folder is so old that nobody is about to make the container it is for.
fn is_old(folder: &Path) -> bool {
    const ABOUT: std::time::Duration = std::time::Duration::from_secs(300);
    let modified = fs::metadata(folder).and_then(|found| found.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ABOUT))
}
