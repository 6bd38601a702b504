//! Projects: files and storage that belong together and outlive sandboxes.
//!
//! `DATA/projects/NAME/` holds `project.json`, which never changes; `volume`, which its sandboxes can write; `caches`, a folder
//! for each package manager; and the files: `files`, which its sandboxes are shown read-only, `about`, which says of each what it
//! is, and `content`, each content once, by its hash. Projects share nothing, not even a content that both have: whether
//! another project has the same file is its own business.

use std::{
    io,
    path::{Path, PathBuf},
};

use glovebox_core::{Cache, DEFAULT_VOLUME_BYTES, Error, ErrorCode, ProjectName, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    project_files::ProjectFiles,
    shelf::{Hold, Shelf, make_folder, read_record, write_record},
    volumes::used,
};

/// The projects of a data folder.
#[derive(Clone, Debug)]
pub struct Projects {
    pub(crate) shelf: Shelf,
}

/// What a project's files and volume are held to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectRules {
    /// How much its volume may hold.
    pub size_bytes: u64,
    /// The largest file.
    pub file_bytes: u64,
    /// The most files.
    pub files: u64,
    /// Endings of files that it takes, in small letters and without a dot; none: all.
    pub types: Vec<String>,
}

impl Default for ProjectRules {
    fn default() -> Self {
        ProjectRules { size_bytes: DEFAULT_VOLUME_BYTES, file_bytes: 1 << 30, files: 10_000, types: Vec::new() }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    rules: ProjectRules,
    created_at: Timestamp,
}

/// A project as it is now: one document of `projects list` and `projects show`.
#[derive(Clone, Debug, Serialize)]
pub struct ProjectStatus {
    /// Its name.
    pub name: ProjectName,
    /// When it was made.
    pub created_at: Timestamp,
    /// How many files it has.
    pub file_count: u64,
    /// Bytes of all its files, each as often as it is there.
    pub file_bytes: u64,
    /// How much its volume holds; null when that is more than can be counted.
    pub used_bytes: Option<u64>,
    /// What it is held to.
    pub rules: ProjectRules,
    /// Its living sandboxes, by name or else by id.
    pub sandboxes: Vec<String>,
}

/// What a sandbox of a project is shown.
pub(crate) struct Shown {
    pub(crate) files: PathBuf,
    pub(crate) volume: PathBuf,
    pub(crate) size_bytes: u64,
    pub(crate) hold: Hold,
}

impl Projects {
    /// Those of a data folder.
    pub fn below(data_dir: &Path) -> Self {
        Projects { shelf: Shelf::new(data_dir.join("projects"), "project", ErrorCode::ProjectNotFound) }
    }

    /// Makes a project.
    pub fn create(&self, name: &ProjectName, rules: ProjectRules) -> Result<()> {
        let made = self.shelf.make(name.as_str(), |place| {
            for folder in ["volume", "caches"] {
                make_folder(&place.join(folder))?;
            }
            ProjectFiles::make(place)?;
            write_record(&place.join("project.json"), &Record { rules, created_at: Timestamp::now() })
        })?;
        if made { Ok(()) } else { Err(self.shelf.taken(name.as_str())) }
    }

    /// The files of a project, which stays while the value lives.
    pub fn files(&self, name: &ProjectName) -> Result<ProjectFiles> {
        let hold = self.shelf.hold(name.as_str())?;
        Ok(ProjectFiles::new(self.shelf.place(name.as_str()), self.read(name)?.rules, hold))
    }

    /// What a sandbox of a project is shown.
    pub(crate) fn attach(&self, name: &ProjectName) -> Result<Shown> {
        let hold = self.shelf.hold(name.as_str())?;
        let place = self.shelf.place(name.as_str());
        let size_bytes = self.read(name)?.rules.size_bytes;
        Ok(Shown { files: place.join("files"), volume: place.join("volume"), size_bytes, hold })
    }

    /// The folder of a cache of a project, which must be held.
    pub(crate) fn cache(&self, name: &ProjectName, cache: Cache) -> Result<PathBuf> {
        let folder = self.shelf.place(name.as_str()).join("caches").join(cache.as_str());
        make_folder(&folder).map_err(|error| self.shelf.failed(error))?;
        Ok(folder)
    }

    fn read(&self, name: &ProjectName) -> Result<Record> {
        let path = self.shelf.place(name.as_str()).join("project.json");
        read_record(&path).map_err(|error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => self.shelf.not_found(name.as_str()),
            _ => {
                Error::new(ErrorCode::HostIo, format!("the record of the project {name} cannot be read")).because(error)
            }
        })
    }

    pub(crate) fn names(&self) -> Vec<ProjectName> {
        self.shelf.names().iter().filter_map(|name| ProjectName::parse(name).ok()).collect()
    }

    pub(crate) fn status(&self, name: &ProjectName, sandboxes: Vec<String>) -> Result<ProjectStatus> {
        let Record { rules, created_at } = self.read(name)?;
        let files = self.files(name)?.list()?;
        Ok(ProjectStatus {
            name: name.clone(),
            created_at,
            file_count: files.len() as u64,
            file_bytes: files.iter().map(|file| file.bytes).sum(),
            used_bytes: used(&self.shelf.place(name.as_str()).join("volume")),
            rules,
            sandboxes,
        })
    }
}
