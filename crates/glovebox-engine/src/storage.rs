//! What outlives sandboxes, and how it gets into them: volumes, caches and projects become mounts.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use glovebox_core::{
    Access, Backend, Cache, DEFAULT_VOLUME_BYTES, Error, ErrorCode, InsidePath, Mount, MountKind, PROJECT_DIR,
    PROJECT_FILES_DIR, ProjectName, Result, SandboxRecord, SandboxSpec, VolumeName,
};

use crate::{
    Engine,
    projects::{ProjectStatus, Projects},
    shelf::Hold,
    volumes::{Elsewhere, VolumeStatus, Volumes},
};

impl Engine {
    /// The volumes of the data folder.
    pub fn volumes(&self) -> Volumes {
        Volumes::below(self.data_dir())
    }

    /// The projects of the data folder.
    pub fn projects(&self) -> Projects {
        Projects::below(self.data_dir())
    }

    /// All volumes as they are now, by name.
    pub fn list_volumes(&self) -> Result<Vec<VolumeStatus>> {
        let records = self.living_records()?;
        let status = |name: VolumeName| self.volumes().status(&name, users(&records, |spec| uses(spec, &name)));
        present(self.volumes().names().into_iter().map(status), ErrorCode::VolumeNotFound)
    }

    /// One volume as it is now.
    pub fn show_volume(&self, name: &VolumeName) -> Result<VolumeStatus> {
        self.volumes().status(name, users(&self.living_records()?, |spec| uses(spec, name)))
    }

    /// Makes a volume that holds at most so many bytes, where the backend keeps its volumes.
    pub fn create_volume(&self, name: &VolumeName, size_bytes: u64) -> Result<()> {
        self.volumes().create_at(name, size_bytes, self.backend().keeps_volumes_at())
    }

    /// Removes a volume with all that is in it. One that a sandbox has, be it a stopped one, stays.
    pub async fn remove_volume(&self, name: &VolumeName) -> Result<()> {
        let users = || Ok(users(&self.living_records()?, |spec| uses(spec, name)));
        let volumes = self.volumes();
        let hold = volumes.shelf.have_alone(name.as_str(), users)?;
        // What is elsewhere goes first: without it the record would be of an empty volume, and it without the record nobody's.
        if let Some(there) = volumes.elsewhere(name)? {
            self.keeper_of(name, &there)?.remove_volume_there(&there.volume).await?;
        }
        let removed = volumes.shelf.take_off(name.as_str(), hold)?;
        self.backend().remove_store(&removed).await
    }

    /// The backend that keeps its volumes where this one is.
    fn keeper_of(&self, name: &VolumeName, there: &Elsewhere) -> Result<Arc<dyn Backend>> {
        let known = [Some(self.backend().clone()), self.others().and_then(|others| others.get("docker").ok())];
        let keeps = |backend: &Arc<dyn Backend>| backend.keeps_volumes_at().as_ref() == Some(&there.place);
        known.into_iter().flatten().find(keeps).ok_or_else(|| {
            let message = format!("the volume {name} is on the engine at {}", there.place);
            Error::new(ErrorCode::WrongState, message).hint(format!("DOCKER_HOST={} lets it be found", there.place))
        })
    }

    /// All projects as they are now, by name.
    pub fn list_projects(&self) -> Result<Vec<ProjectStatus>> {
        let records = self.living_records()?;
        let status = |name: ProjectName| self.projects().status(&name, users(&records, |spec| belongs(spec, &name)));
        present(self.projects().names().into_iter().map(status), ErrorCode::ProjectNotFound)
    }

    /// One project as it is now.
    pub fn show_project(&self, name: &ProjectName) -> Result<ProjectStatus> {
        self.projects().status(name, users(&self.living_records()?, |spec| belongs(spec, name)))
    }

    /// Removes a project with its files, its volume and its caches. One that has a sandbox, be it a stopped one, stays.
    pub async fn remove_project(&self, name: &ProjectName) -> Result<()> {
        let users = || Ok(users(&self.living_records()?, |spec| belongs(spec, name)));
        let removed = self.projects().shelf.take_away(name.as_str(), users)?;
        self.backend().remove_store(&removed).await
    }

    fn living_records(&self) -> Result<Vec<SandboxRecord>> {
        let registry = self.registry();
        let living = registry.ids()?.into_iter().filter(|id| registry.ended(*id).is_none());
        present(living.map(|id| registry.read(id)), ErrorCode::SandboxNotFound)
    }

    /// Turns what a spec names of storage into mounts. It stays while the holds live.
    pub(crate) fn with_storage(&self, spec: &SandboxSpec) -> Result<(SandboxSpec, Vec<Hold>)> {
        let mut spec = spec.clone();
        let mut holds = Vec::new();
        let mut add = |source, target, access, kind| spec.mounts.push(Mount { source, target, access, kind });
        for volume in &spec.volumes {
            let (source, kind, hold) = self.volumes().attach(&volume.name, self.backend().keeps_volumes_at())?;
            add(source, volume.target.clone(), volume.access, kind);
            holds.push(hold);
        }
        if let Some(project) = &spec.project {
            let shown = self.projects().attach(project)?;
            let volume = MountKind::Volume { bytes: shown.size_bytes };
            add(shown.files, inside(PROJECT_FILES_DIR), Access::ReadOnly, MountKind::Host);
            add(shown.volume, inside(PROJECT_DIR), Access::ReadWrite, volume);
            holds.push(shown.hold);
        }
        for cache in spec.caches.iter().copied().collect::<BTreeSet<Cache>>() {
            let (source, kind) = match &spec.project {
                // What one project's code left in a cache must not run in another's.
                Some(project) => {
                    (self.projects().cache(project, cache)?, MountKind::Volume { bytes: DEFAULT_VOLUME_BYTES })
                }
                None => {
                    let (source, kind, hold) = self.volumes().attach(&cache.volume(), None)?;
                    holds.push(hold);
                    (source, kind)
                }
            };
            add(source, cache.target(), Access::ReadWrite, kind);
        }
        check_targets(&spec)?;
        Ok((spec, holds))
    }
}

/// What is left in a data folder of volumes and projects whose making or removing was cut short.
pub(crate) fn left_of_storage(data_dir: &Path) -> Vec<PathBuf> {
    let projects = Projects::below(data_dir).shelf.leftovers();
    Volumes::below(data_dir).shelf.leftovers().into_iter().chain(projects).collect()
}

/// Two mounts at one place would hide one of them.
fn check_targets(spec: &SandboxSpec) -> Result<()> {
    let mut seen = BTreeSet::new();
    for mount in &spec.mounts {
        let own = mount.kind != MountKind::Host;
        if !seen.insert(&mount.target) && own {
            let message = format!("two things are to appear at {}", mount.target);
            return Err(Error::new(ErrorCode::InvalidMount, message).hint("give each a place of its own"));
        }
    }
    Ok(())
}

fn inside(path: &str) -> InsidePath {
    InsidePath::absolute(path).expect("it is a checked path")
}

/// Whether a sandbox of this spec has a volume.
fn uses(spec: &SandboxSpec, name: &VolumeName) -> bool {
    let caches = spec.caches.iter().filter(|_| spec.project.is_none());
    spec.volumes.iter().any(|volume| volume.name == *name) || caches.into_iter().any(|cache| cache.volume() == *name)
}

/// Whether a sandbox of this spec belongs to a project.
fn belongs(spec: &SandboxSpec, name: &ProjectName) -> bool {
    spec.project.as_ref() == Some(name)
}

/// The sandboxes of whose specs something holds, as their users call them.
fn users(records: &[SandboxRecord], holds: impl Fn(&SandboxSpec) -> bool) -> Vec<String> {
    let found = records.iter().filter(|record| holds(&record.spec));
    found.map(|record| record.name.as_ref().map_or_else(|| record.sandbox.to_string(), ToString::to_string)).collect()
}

/// Those that are still there; what went while the others were looked at is no failure.
fn present<T>(all: impl Iterator<Item = Result<T>>, missing: ErrorCode) -> Result<Vec<T>> {
    all.filter(|one| !matches!(one, Err(error) if error.code == missing)).collect()
}
