//! Engines whose containers have ids of their own: those of an ordinary user, and those with `userns-remap`.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use bollard::models::SystemInfo;
use glovebox_core::{Error, ErrorCode, Result};
use rustix::process::geteuid;

/// Root in the containers of an engine, as the host knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Root {
    /// Who it is, where it is not the root of the host.
    pub(crate) fn of(info: &SystemInfo) -> Option<Self> {
        let has = |option: &str| info.security_options.iter().flatten().any(|known| known == option);
        let folder = Path::new(info.docker_root_dir.as_deref()?);
        if has("name=userns") {
            // The engine keeps what it has for each range of ids in a folder with their name.
            let (uid, gid) = folder.file_name()?.to_str()?.split_once('.')?;
            return Some(Root { uid: uid.parse().ok()?, gid: gid.parse().ok()? });
        }
        // Whoever the engine runs as is root in its containers, and owns what it keeps. Not every version of Podman says that it is no root.
        let owner = fs::metadata(folder).ok().filter(|found| found.uid() != 0)?;
        Some(Root { uid: owner.uid(), gid: owner.gid() })
    }

    /// Whether this process can have a folder that belongs to it.
    pub(crate) fn check(self) -> Result<()> {
        if geteuid().is_root() || geteuid().as_raw() == self.uid {
            return Ok(());
        }
        let message = "the containers of this engine have ids of their own (userns-remap, or an engine of another user), and only \
                       root can share a folder with them";
        Err(Error::new(ErrorCode::NotSupported, message)
            .hint("use an engine of your own, such as Podman without root, or --backend native"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(options: &[&str], folder: &Path) -> SystemInfo {
        SystemInfo {
            security_options: Some(options.iter().map(|option| (*option).to_owned()).collect()),
            docker_root_dir: Some(folder.to_string_lossy().into_owned()),
            ..SystemInfo::default()
        }
    }

    #[test]
    fn an_engine_tells_who_is_root_in_its_containers() {
        let folder = Path::new("/var/lib/docker/100000.200000");
        assert_eq!(Root::of(&info(&["name=seccomp,profile=default"], folder)), None);
        assert_eq!(Root::of(&info(&["name=userns"], folder)), Some(Root { uid: 100_000, gid: 200_000 }));
        let own = tempfile::tempdir().unwrap();
        if geteuid().is_root() {
            assert_eq!(Root::of(&info(&[], own.path())), None);
            std::os::unix::fs::chown(own.path(), Some(1234), Some(1235)).unwrap();
        }
        let found = fs::metadata(own.path()).unwrap();
        let owner = Root { uid: found.uid(), gid: found.gid() };
        assert_eq!(Root::of(&info(&[], own.path())), Some(owner));
        assert_eq!(owner.check().map_err(|error| error.code), Ok(()));
    }
}
