//! Removing what dead owners left, and what ended by itself.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use bollard::models::ContainerSummary;
use glovebox_core::{EndReason, Result, SandboxId, living_store};
use glovebox_proto::container::{ENDED_IDLE, ENDED_OLD};
use jiff::Timestamp;

use super::{DockerBackend, Sandboxes, host_io};
use crate::{
    client::{Client, SLOW, is_unanswered},
    describe,
    meeting::{self, Meeting},
    owner::{self, Stores, Verdict},
};

/// How often a process that lives so long removes what others left.
pub(super) const EVERY: Duration = Duration::from_secs(3600);

/// Who removes what nobody needs any more.
pub(super) struct Sweeper {
    pub(super) client: Client,
    runtime_folder: PathBuf,
    stores: Stores,
    /// What this process needs.
    held: Sandboxes,
}

impl DockerBackend {
    pub(super) fn sweeper(&self) -> Sweeper {
        let (client, runtime_folder) = (self.client.clone(), self.settings.runtime_folder.clone());
        Sweeper { client, runtime_folder, stores: self.stores.clone(), held: self.sandboxes.clone() }
    }

    /// Begins to remove what others left, once a process: now, and again for as long as this backend is there. Nobody waits for it.
    pub(super) fn sweep_now_and_then(&self) {
        if self.sweeps.swap(true, Ordering::Relaxed) {
            return;
        }
        let Sweeper { client, runtime_folder, stores, held } = self.sweeper();
        let (held, pace) = (Arc::downgrade(&held), self.sweeps_every);
        tokio::spawn(async move {
            while let Some(held) = held.upgrade() {
                let (client, runtime_folder, stores) = (client.clone(), runtime_folder.clone(), stores.clone());
                let sweeper = Sweeper { client, runtime_folder, stores, held };
                // What fails now is tried again at the next time, and `gc` says why.
                let _ = sweeper.remove_left().await;
                drop(sweeper);
                tokio::time::sleep(pace).await;
            }
        });
    }
}

impl Sweeper {
    /// Removes containers and volumes that nobody needs, and folders of sandboxes without a container. One that cannot be removed keeps nothing of
    /// the others.
    pub(super) async fn remove_left(&self) -> Result<Vec<String>> {
        let now = Timestamp::now();
        let (mut removed, mut needed, mut failed) = (Vec::new(), Vec::new(), None);
        for container in self.client.containers(None).await? {
            let Some(id) = owner::sandbox(&container) else { continue };
            if owner::judge(&container, now, &self.stores) == Verdict::Owned {
                needed.push(id.to_string());
                continue;
            }
            match self.bury(&container).await {
                Ok(()) => removed.push(format!("the container of the sandbox {id}")),
                Err(error) if is_unanswered(&error) => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let mut volumes = self.client.volumes(owner::MANAGED).await?;
        volumes.retain(|volume| owner::is_left(volume, now));
        if !self.client.is_local() {
            let guests = self.client.volumes(owner::GUEST).await?;
            volumes.extend(guests.into_iter().filter(|volume| owner::is_old_guest(volume, now)));
        }
        for volume in volumes {
            let told = format!("the volume {}", volume.name);
            match self.client.remove_volume(&volume.name).await {
                Ok(was_there) => removed.extend(was_there.then_some(told)),
                Err(error) if is_unanswered(&error) => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).keys().map(ToString::to_string).collect();
        needed.extend::<Vec<String>>(held);
        let is_own = meeting::must_be_own(&self.runtime_folder).is_ok();
        let folders = fs::read_dir(meeting::all(&self.runtime_folder)).ok().filter(|_| is_own);
        for folder in folders.into_iter().flatten().flatten() {
            let name = folder.file_name().to_string_lossy().into_owned();
            let Ok(id) = name.parse::<SandboxId>() else { continue };
            let of_another = meeting::is_of_another(&folder.path(), &self.client.place);
            let is_left = meeting::is_over(&folder.path()) || is_old(&folder.path());
            if !of_another && !needed.contains(&name) && is_left {
                match Meeting::of(&self.runtime_folder, id).try_remove() {
                    Ok(()) => removed.push(format!("the folder of the sandbox {name}")),
                    Err(error) => failed = failed.or(Some(host_io(error))),
                }
            }
        }
        failed.map_or(Ok(removed), Err)
    }

    /// Notes why a living sandbox ended, if it did so by itself, and removes what is left of its container.
    pub(super) async fn bury(&self, found: &ContainerSummary) -> Result<()> {
        let Some(container) = &found.id else { return Ok(()) };
        let seen = self.client.look_at(container, SLOW).await?;
        let code = seen.and_then(|seen| seen.state).and_then(|state| state.exit_code);
        let reason = match code.and_then(|code| u8::try_from(code).ok()) {
            Some(ENDED_IDLE) => Some(EndReason::IdleTimeout),
            Some(ENDED_OLD) => Some(EndReason::MaxAge),
            _ => None,
        };
        let store = self.stores.of(found).filter(|_| reason.is_some());
        let folder = store.as_deref().and_then(Path::parent);
        let note = serde_json::json!({ "reason": reason, "at_ms": Timestamp::now().as_millisecond() }).to_string();
        let noted = folder.map_or(Ok(()), |folder| fs::write(folder.join("ended.json"), &note));
        let mut is_full = false;
        match noted.map_err(|error| (error.kind(), error)) {
            Ok(()) | Err((io::ErrorKind::NotFound, _)) => {}
            Err((io::ErrorKind::StorageFull, _)) => is_full = true,
            Err((_, error)) => return Err(host_io(error)),
        }
        self.client.remove(container).await?;
        // One that ended by itself is over, with all of its files.
        if let Some(store) = &store {
            self.remove_volumes(store).await?;
        }
        if let Some(folder) = folder.filter(|_| is_full) {
            // What was just removed has made some room.
            fs::write(folder.join("ended.json"), &note).map_err(host_io)?;
        }
        if let Some(id) = owner::sandbox(found) {
            Meeting::of(&self.runtime_folder, id).remove();
        }
        Ok(())
    }

    /// Removes a folder, and the volumes of the sandbox whose store it is, if it is one. Nothing that lies in it says which they are: programs may have
    /// written to it.
    pub(super) async fn remove_volumes(&self, store: &Path) -> Result<()> {
        let id = store.parent().and_then(|place| place.file_name()?.to_str()?.parse::<SandboxId>().ok());
        let above = store.parent().and_then(Path::parent);
        if let (Some(id), Some(above)) = (id, above)
            && living_store(above, id) == store
        {
            self.stores.forget(id);
            let [workspace, home] = describe::volumes(id).map(|(name, _)| name);
            for name in [workspace, home, describe::volume_of_given(id)] {
                self.remove_shown_volume(&name).await?;
            }
        }
        // Docker may have removed its container without us.
        if let Some(id) = id {
            Meeting::of(&self.runtime_folder, id).remove();
        }
        remove_folder(store).map_err(host_io)
    }

    /// Removes a container, and a volume that is of no use without it.
    pub(super) async fn remove(&self, container: &str, volume: Option<&str>) -> Result<()> {
        self.client.remove(container).await?;
        match volume {
            Some(name) => self.client.remove_volume(name).await.map(drop),
            None => Ok(()),
        }
    }
}

/// Removes a folder and all in it, if it is there. Another process may note its last look at the disk there meanwhile.
fn remove_folder(folder: &Path) -> io::Result<()> {
    const ATTEMPTS: usize = 10;
    let mut removed = Ok(());
    for _ in 0..ATTEMPTS {
        removed = fs::remove_dir_all(folder);
        match &removed {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            _ => break,
        }
    }
    removed
}

/// Whether a folder is so old that nobody is about to make the container it is for.
fn is_old(folder: &Path) -> bool {
    const ABOUT: Duration = Duration::from_secs(300);
    let modified = fs::metadata(folder).and_then(|found| found.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ABOUT))
}
