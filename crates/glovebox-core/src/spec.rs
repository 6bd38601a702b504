//! The checked description of a sandbox to make.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    Cache, Error, ErrorCode, Image, InsidePath, Layer, Limits, Living, ProjectName, Result, SandboxId, Tier,
    VolumeMount, volume,
};

/// The workspace inside.
pub const WORKSPACE_DIR: &str = "/workspace";
/// The working directory inside, part of the workspace.
pub const WORKING_DIR: &str = "/workspace/agent_workspace";
/// Where programs leave what is to be kept.
pub const OUTPUTS_DIR: &str = "/workspace/outputs";
/// The home directory inside; never part of a change set.
pub const HOME_DIR: &str = "/home/user";
/// Where a compile step leaves what it makes.
pub const PROGRAM_DIR: &str = "/home/user/.program";

/// Folders that no mount may cover or lie in: what makes the sandbox work, and what isolates it.
const RESERVED: [&str; 8] =
    ["/proc", "/dev", "/sys", "/etc", "/.glovebox", OUTPUTS_DIR, volume::PROJECT_DIR, volume::PROJECT_FILES_DIR];

/// Folders that no mount may cover, though it may lie in them.
const KEPT: [&str; 3] = [WORKSPACE_DIR, WORKING_DIR, HOME_DIR];

/// Everything a backend needs to know to make a sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// What it starts from.
    #[serde(default)]
    pub image: Image,
    /// The runtime of a container engine that is to make it, where that is not the usual one.
    #[serde(default)]
    pub runtime: Option<String>,
    /// How much.
    pub limits: Limits,
    /// Whether the sandbox has a network.
    pub network: Network,
    /// The host directory under the working directory, if any.
    pub workspace: Option<Workspace>,
    /// Further host files and folders.
    pub mounts: Vec<Mount>,
    /// Volumes, which the engine turns into mounts.
    #[serde(default)]
    pub volumes: Vec<VolumeMount>,
    /// Caches of package managers, which the engine turns into mounts and variables.
    #[serde(default)]
    pub caches: Vec<Cache>,
    /// The project that it belongs to. The engine turns its files and its volume into mounts.
    #[serde(default)]
    pub project: Option<ProjectName>,
    /// Who commands run as.
    pub user: User,
    /// Layers without which the sandbox must not be made.
    pub required_layers: Vec<Layer>,
    /// What makes it a living one; one without it ends with those who made it.
    #[serde(default)]
    pub living: Option<Living>,
    /// The living sandbox, which does not run, whose files are in its `/workspace`, to be read. The engine makes such a one to look at them,
    /// where a backend reaches files through the guest alone; no other backend is asked for it.
    #[serde(skip)]
    pub files_of: Option<FilesOf>,
    /// The weakest tier that the caller accepts. A better one is taken wherever the host gives it.
    #[serde(default)]
    pub isolation: Tier,
}

impl Default for SandboxSpec {
    fn default() -> Self {
        SandboxSpec {
            image: Image::default(),
            runtime: None,
            limits: Limits::default(),
            network: Network::None,
            workspace: None,
            mounts: Vec::new(),
            volumes: Vec::new(),
            caches: Vec::new(),
            project: None,
            user: User::default(),
            required_layers: Vec::new(),
            living: None,
            files_of: None,
            isolation: Tier::default(),
        }
    }
}

/// The files of a living sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesOf {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// The folder that knows of its files, or holds them.
    pub store: PathBuf,
}

/// What a sandbox can reach over the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Nothing but its own loopback.
    #[default]
    None,
    /// Everything that the host reaches.
    Full,
}

/// A host directory that is the working directory inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    /// The directory on the host.
    pub source: PathBuf,
    /// What happens to writes.
    pub mode: WorkspaceMode,
}

/// What happens to writes into the workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceMode {
    /// They stay in the sandbox and come back as a change set.
    #[default]
    Overlay,
    /// They fail.
    ReadOnly,
    /// They reach the host's directory at once.
    ReadWrite,
}

/// Whether something can be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Reading only.
    #[default]
    ReadOnly,
    /// Reading and writing.
    ReadWrite,
}

/// A host file or folder that appears inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The host's file or folder.
    pub source: PathBuf,
    /// Where it appears.
    pub target: InsidePath,
    /// Whether it can be written.
    pub access: Access,
    /// Whose it is.
    #[serde(default)]
    pub kind: MountKind,
}

/// Whose a mount is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountKind {
    /// The caller's. What is written there counts to the sandbox's disk limit.
    #[default]
    Host,
    /// Glovebox's own storage, which several sandboxes may share and which has a size of its own.
    Volume {
        /// How much it may hold.
        bytes: u64,
    },
    /// The same on another machine: the source is the name that it has there.
    VolumeElsewhere {
        /// How much it may hold.
        bytes: u64,
    },
}

impl Mount {
    /// Parses `SRC:DST[:ro|rw]`. Without an ending the mount is read-only.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            Error::new(ErrorCode::InvalidMount, format!("the mount {text:?} cannot be used: {why}"))
                .hint("the form is SRC:DST or SRC:DST:ro or SRC:DST:rw, with DST an absolute path inside")
        };
        let (pair, access) = match text.rsplit_once(':') {
            Some((pair, "ro")) => (pair, Access::ReadOnly),
            Some((pair, "rw")) => (pair, Access::ReadWrite),
            _ => (text, Access::ReadOnly),
        };
        let (source, target) = pair.rsplit_once(':').ok_or_else(|| wrong("there is no target"))?;
        if !target.starts_with('/') && source.contains(":/") {
            return Err(wrong(&format!("its last part is {target:?}, and only ro or rw can follow the target")));
        }
        if source.is_empty() {
            return Err(wrong("there is no source"));
        }
        if text.chars().any(char::is_control) {
            return Err(wrong("it holds a control character"));
        }
        let target = check_target(target).map_err(|why| wrong(&why))?;
        Ok(Mount { source: source.into(), target, access, kind: MountKind::Host })
    }
}

/// Checks where something may be mounted that the caller names; says why not.
pub(crate) fn check_target(text: &str) -> Result<InsidePath, String> {
    let target = InsidePath::absolute(text).map_err(|error| error.message)?;
    if target.as_str() == "/" {
        return Err("the target is the root".to_owned());
    }
    let reserved = RESERVED.iter().find(|folder| target.is_under(folder));
    let kept = KEPT.iter().find(|folder| target.as_str() == **folder);
    match reserved.or(kept) {
        Some(folder) => Err(format!("{folder} is Glovebox's own")),
        None => Ok(target),
    }
}

/// Who commands run as, inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// User id inside.
    pub uid: u32,
    /// Group id inside.
    pub gid: u32,
}

impl Default for User {
    fn default() -> Self {
        User { uid: 1000, gid: 1000 }
    }
}

impl User {
    /// The accounts that there are inside, as `/etc/passwd` says it.
    pub fn passwd(self) -> String {
        let User { uid, gid } = self;
        let user = match uid {
            0 | 65534 => String::new(),
            _ => format!("user:x:{uid}:{gid}:user:/home/user:/bin/sh\n"),
        };
        format!("root:x:0:0:root:/root:/bin/sh\n{user}nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n")
    }

    /// The groups that there are inside, as `/etc/group` says it.
    pub fn group(self) -> String {
        let user = match self.gid {
            0 | 65534 => String::new(),
            gid => format!("user:x:{gid}:\n"),
        };
        format!("root:x:0:\ntty:x:5:\n{user}nogroup:x:65534:\n")
    }

    /// Parses `user`, `root`, `nobody`, `UID` or `UID:GID`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let forms = || "expected user, root, nobody, UID or UID:GID with ids from 0 to 65534".to_owned();
        let id = |text: &str| match text.parse::<u32>() {
            Ok(id) if id < 65535 && text.bytes().all(|b| b.is_ascii_digit()) => Ok(id),
            _ => Err(forms()),
        };
        match text {
            "user" => Ok(User::default()),
            "root" => Ok(User { uid: 0, gid: 0 }),
            "nobody" => Ok(User { uid: 65534, gid: 65534 }),
            _ => match text.split_once(':') {
                Some((uid, gid)) => Ok(User { uid: id(uid)?, gid: id(gid)? }),
                None => id(text).map(|uid| User { uid, gid: uid }),
            },
        }
    }
}

/// A name and a value that the caller puts on a run, for finding it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The name.
    pub key: String,
    /// The value.
    pub value: String,
}

impl Label {
    /// Parses `K=V`. Keys are letters, digits, `.`, `_`, `-` and `/`, at most 63 characters.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or("expected K=V")?;
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        if key.is_empty() || key.len() > 63 || !key.chars().all(fits) {
            return Err("a label's name is 1 to 63 letters, digits, '.', '_', '-' or '/'".into());
        }
        if value.len() > 1024 || value.chars().any(char::is_control) {
            return Err("a label's value is at most 1024 bytes without control characters".into());
        }
        Ok(Label { key: key.into(), value: value.into() })
    }

    /// The labels as a map; of two with the same name the last one stays.
    pub fn collect(labels: &[Label]) -> BTreeMap<String, String> {
        labels.iter().map(|label| (label.key.clone(), label.value.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mounts_parse_and_bad_ones_say_why() {
        let mount = Mount::parse("/srv/a:b:/data").unwrap();
        assert_eq!(mount.source, PathBuf::from("/srv/a:b"));
        assert_eq!(mount.access, Access::ReadOnly);
        assert_eq!(Mount::parse("x:/data:rw").unwrap().access, Access::ReadWrite);
        assert!(Mount::parse("x:/data:wr").unwrap_err().message.contains("only ro or rw"));
        for text in [
            "/a",
            ":/b",
            "/a:b",
            "/a:/b/../c",
            "/a:/",
            "/a:/proc/x",
            "/a:/etc",
            "/a:/workspace",
            "/a:/workspace/project",
            "/a:/workspace/project_files/x",
            "/a:/.glovebox/x",
            "/a\n:/b",
            "",
            "rw",
            "a:rw",
        ] {
            let error = Mount::parse(text).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidMount, "{text:?}");
        }
    }

    #[test]
    fn a_mount_may_lie_inside_the_working_directory_but_not_cover_it() {
        assert!(Mount::parse("/a:/workspace/agent_workspace/data").is_ok());
        assert!(Mount::parse("/a:/workspace/agent_workspace").is_err());
    }

    #[test]
    fn users_parse_by_name_and_number() {
        assert_eq!(User::parse("root"), Ok(User { uid: 0, gid: 0 }));
        assert_eq!(User::parse("5:6"), Ok(User { uid: 5, gid: 6 }));
        for text in ["", "-1", "65535", "a", "1:", ":1", "1:2:3", "+1"] {
            assert!(User::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_accepted_mount_target_climbs_or_covers_what_isolates(text in "[a-z/.:]{0,30}") {
            if let Ok(mount) = Mount::parse(&text) {
                prop_assert!(!mount.target.as_str().split('/').any(|part| part == ".."));
                prop_assert!(!mount.target.is_under("/proc") && !mount.target.is_under("/dev"));
            }
        }
    }
}
