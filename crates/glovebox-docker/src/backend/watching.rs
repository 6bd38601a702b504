//! Who is watched, and by what.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use glovebox_core::{Enforcement, Evidence, SandboxId, SandboxSpec, StoreUse};
use tokio::sync::OnceCell;

use super::{DockerBackend, Held, Met, host_io};
use crate::{
    client::QUICK,
    describe, disk,
    disk::{Before, Watch},
};

/// The watch over one sandbox, once somebody wanted it.
pub(super) type Watching = OnceCell<Option<Arc<Watch>>>;

impl DockerBackend {
    /// The watch over a sandbox, where what it writes needs one.
    pub(super) async fn watch_over<'a>(&self, id: SandboxId, held: &'a Held) -> Option<&'a Arc<Watch>> {
        held.watching.get_or_init(|| self.begin_watch(id, held)).await.as_ref()
    }

    async fn begin_watch(&self, id: SandboxId, held: &Held) -> Option<Arc<Watch>> {
        let is_watched = |limit: &str| held.limits.enforcement.get(limit) == Some(&Enforcement::Watched);
        if !is_watched("disk") && !is_watched("volumes") {
            return None;
        }
        let groups = self.met(held).await.ok()?.groups.clone();
        let mut volumes = Vec::new();
        if held.spec.living.is_some() {
            for (name, _) in describe::volumes(id) {
                let asked = self.client.docker.inspect_volume(&name);
                volumes.push(PathBuf::from(self.client.ask("look at a volume", QUICK, asked).await.ok()?.mountpoint));
            }
        }
        Watch::over(&volumes, &held.spec, &held.limits, (groups, &held.before)).ok().map(Arc::new)
    }

    /// What the volumes of a living sandbox hold, where that can be seen.
    pub(super) async fn in_volumes(&self, id: SandboxId, held: &Held) -> Option<u64> {
        let watch = self.watch_over(id, held).await?.clone();
        tokio::task::spawn_blocking(move || watch.in_volumes()).await.ok().flatten()
    }

    /// What is in the volumes that runs in a living sandbox are about to write, as far as that can be seen.
    pub(super) async fn look_at_volumes(&self, spec: &SandboxSpec) -> Before {
        if disk::written_volumes(spec).next().is_none() {
            return Before::default();
        }
        let spec = spec.clone();
        let looked = tokio::task::spawn_blocking(move || disk::before_in_volumes(&spec)).await;
        looked.map_err(std::io::Error::other).flatten().unwrap_or_default()
    }

    /// What is in the folders and volumes that a sandbox is about to write.
    pub(super) async fn look_before(&self, spec: &SandboxSpec) -> glovebox_core::Result<Before> {
        if disk::written_in_place(spec).next().is_none() && disk::written_volumes(spec).next().is_none() {
            return Ok(Before::default());
        }
        let spec = spec.clone();
        let looked = tokio::task::spawn_blocking(move || disk::before(&spec)).await;
        looked.map_err(std::io::Error::other).flatten().map_err(host_io)
    }
}

impl Met {
    /// What the kernel counted until now.
    pub(super) fn evidence(&self) -> Evidence {
        self.groups.evidence(self.store())
    }

    /// How full the file systems of a one-shot sandbox are. The fullest one decides.
    pub(super) fn store(&self) -> StoreUse {
        let unknown = Evidence::unknown().store;
        if self.created.limits.store != "tmpfs" {
            return unknown;
        }
        let Some(pid) = self.pid else { return unknown };
        let root = Path::new("/proc").join(pid.to_string()).join("root");
        let mut store: Option<StoreUse> = None;
        for folder in ["workspace", "home/user", "tmp", "dev/shm"] {
            let Ok(found) = rustix::fs::statvfs(root.join(folder)) else { return unknown };
            let used = (found.f_blocks - found.f_bfree) * found.f_frsize;
            let (free, inodes) = (found.f_bavail * found.f_frsize, found.f_favail);
            let before = store.unwrap_or(StoreUse { used_bytes: 0, free_bytes: u64::MAX, free_inodes: u64::MAX });
            store = Some(StoreUse {
                used_bytes: before.used_bytes + used,
                free_bytes: before.free_bytes.min(free),
                free_inodes: before.free_inodes.min(inodes),
            });
        }
        store.unwrap_or(unknown)
    }
}
