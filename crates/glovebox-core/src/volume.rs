//! Storage that outlives sandboxes: volumes, the caches of package managers among them, and projects.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Access, Error, ErrorCode, InsidePath, Result, SandboxName, spec::check_target};

/// How much a volume holds of which nobody said how much.
pub const DEFAULT_VOLUME_BYTES: u64 = 10 << 30;

/// Where the volume of a project appears inside.
pub const PROJECT_DIR: &str = "/workspace/project";
/// Where the files of a project appear inside, read-only.
pub const PROJECT_FILES_DIR: &str = "/workspace/project_files";

macro_rules! name {
    ($(#[doc = $doc:literal])* $name:ident) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks a name.
            pub fn parse(text: &str) -> Result<Self, String> {
                SandboxName::parse(text).map(|name| $name(name.into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;
            fn try_from(text: String) -> Result<Self, String> {
                $name::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }
    };
}

name!(
    /// The name of a volume. The rules are those of a [`SandboxName`].
    VolumeName
);
name!(
    /// The name of a project. The rules are those of a [`SandboxName`].
    ProjectName
);

/// A volume that appears inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMount {
    /// Which volume.
    pub name: VolumeName,
    /// Where it appears.
    pub target: InsidePath,
    /// Whether it can be written.
    pub access: Access,
}

impl VolumeMount {
    /// Parses `NAME:DST[:ro|rw]`. Without an ending the volume can be written, which is what volumes are for.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            Error::new(ErrorCode::InvalidMount, format!("the volume {text:?} cannot be used: {why}"))
                .hint("the form is NAME:DST or NAME:DST:ro or NAME:DST:rw, with DST an absolute path inside")
        };
        let (name, place) = text.split_once(':').ok_or_else(|| wrong("there is no target"))?;
        let (target, access) = match place.rsplit_once(':') {
            Some((target, "ro")) => (target, Access::ReadOnly),
            Some((target, "rw")) => (target, Access::ReadWrite),
            Some((_, other)) => return Err(wrong(&format!("{other:?} follows the target, and only ro or rw can"))),
            None => (place, Access::ReadWrite),
        };
        if name.contains('/') {
            return Err(wrong("a volume has a name, not a path").hint("--mount SRC:DST shows a folder of this machine"));
        }
        let name = VolumeName::parse(name).map_err(|forms| wrong(&format!("its name is not one: {forms}")))?;
        let target = check_target(target).map_err(|why| wrong(&why))?;
        Ok(VolumeMount { name, target, access })
    }
}

/// A package manager whose cache outlives sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "each is the tool of its name; the table below says what is kept of it")]
pub enum Cache {
    Pip,
    Npm,
    Cargo,
    Go,
    Maven,
    Gradle,
    Nuget,
    Gem,
    Composer,
}

impl Cache {
    /// All of them.
    pub const ALL: [Cache; 9] = [
        Cache::Pip,
        Cache::Npm,
        Cache::Cargo,
        Cache::Go,
        Cache::Maven,
        Cache::Gradle,
        Cache::Nuget,
        Cache::Gem,
        Cache::Composer,
    ];

    /// Its name, as in `--cache`; what is kept of it, in words; and the variables by which the tool finds it.
    fn row(self) -> (&'static str, &'static str, &'static [(&'static str, &'static str)]) {
        match self {
            Cache::Pip => ("pip", "downloads, and wheels that were built", &[("PIP_CACHE_DIR", "/var/cache/pip")]),
            Cache::Npm => ("npm", "downloads", &[("npm_config_cache", "/var/cache/npm")]),
            Cache::Cargo => {
                ("cargo", "downloads, installed programs, its configuration", &[("CARGO_HOME", "/var/cache/cargo")])
            }
            Cache::Go => (
                "go",
                "modules, and packages that were built",
                &[("GOMODCACHE", "/var/cache/go/mod"), ("GOCACHE", "/var/cache/go/build")],
            ),
            Cache::Maven => ("maven", "the local repository", &[("MAVEN_OPTS", "-Dmaven.repo.local=/var/cache/maven")]),
            Cache::Gradle => {
                ("gradle", "downloads, what was built, its configuration", &[("GRADLE_USER_HOME", "/var/cache/gradle")])
            }
            Cache::Nuget => (
                "nuget",
                "packages",
                &[("NUGET_PACKAGES", "/var/cache/nuget/packages"), ("NUGET_HTTP_CACHE_PATH", "/var/cache/nuget/http")],
            ),
            Cache::Gem => (
                "gem",
                "installed gems, and downloads of gem and bundler",
                &[
                    ("GEM_HOME", "/var/cache/gem/home"),
                    ("GEM_SPEC_CACHE", "/var/cache/gem/specs"),
                    ("BUNDLE_USER_CACHE", "/var/cache/gem/bundle"),
                ],
            ),
            Cache::Composer => ("composer", "downloads", &[("COMPOSER_CACHE_DIR", "/var/cache/composer")]),
        }
    }

    /// Its name, as in `--cache`.
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    /// What is kept, in words.
    pub fn holds(self) -> &'static str {
        self.row().1
    }

    /// The variables by which the tool finds it.
    pub fn variables(self) -> &'static [(&'static str, &'static str)] {
        self.row().2
    }

    /// Where it appears inside.
    pub fn target(self) -> InsidePath {
        InsidePath::absolute(&format!("/var/cache/{}", self.as_str())).expect("the name of a cache is a plain word")
    }

    /// The volume that it is, for sandboxes without a project.
    pub fn volume(self) -> VolumeName {
        VolumeName::parse(&format!("cache-{}", self.as_str())).expect("the name of a cache is a plain word")
    }

    /// Parses a name, or `all`.
    pub fn parse(text: &str) -> Result<Vec<Self>, String> {
        if text == "all" {
            return Ok(Cache::ALL.to_vec());
        }
        let names = || Cache::ALL.map(Cache::as_str).join(", ");
        let found = Cache::ALL.into_iter().find(|cache| cache.as_str() == text);
        found.map(|cache| vec![cache]).ok_or_else(|| format!("expected one of {}, or all", names()))
    }
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn volumes_parse_and_bad_ones_say_why() {
        let volume = VolumeMount::parse("data:/data").unwrap();
        assert_eq!((volume.name.as_str(), volume.target.as_str()), ("data", "/data"));
        assert_eq!(volume.access, Access::ReadWrite);
        assert_eq!(VolumeMount::parse("data:/data:ro").unwrap().access, Access::ReadOnly);
        for text in [
            "data",
            ":/data",
            "data:",
            "data:data",
            "../x:/data",
            "/srv:/data",
            "..:/data",
            "data:/data:wr",
            "data:/:rw",
            "data:/proc",
            "data:/workspace/project",
            "data:/workspace/project_files/x",
            "data:/workspace/../etc",
            "da\nta:/data",
        ] {
            assert_eq!(VolumeMount::parse(text).unwrap_err().code, ErrorCode::InvalidMount, "{text:?}");
        }
    }

    #[test]
    fn every_cache_is_found_by_its_name_and_its_variables_lie_in_it() {
        for cache in Cache::ALL {
            assert_eq!(Cache::parse(cache.as_str()), Ok(vec![cache]));
            assert_eq!(serde_json::to_value(cache).unwrap(), cache.as_str());
            let target = cache.target();
            assert!(check_target(target.as_str()).is_ok());
            for (name, value) in cache.variables() {
                assert!(value.contains(target.as_str()), "{name}");
            }
        }
        assert_eq!(Cache::parse("all").unwrap().len(), 9);
        assert!(Cache::parse("yarn").unwrap_err().contains("pip, npm"));
    }

    proptest! {
        #[test]
        fn no_name_of_a_volume_or_project_is_more_than_one_plain_part_of_a_path(text in "[a-z./\\\\:~ -]{0,20}") {
            if let Ok(name) = VolumeName::parse(&text) {
                prop_assert!(!name.as_str().contains(['/', '\\', ':', ' ']) && !name.as_str().starts_with('.'));
                prop_assert!(ProjectName::parse(&text).is_ok());
            }
        }
    }
}
