//! Volumes that an image says it has. An engine makes one of its own disk for each, which can be written to and which no limit of a
//! sandbox holds.
//!
//! Where commands write, such a place is covered: what is there is as little to write to as the read-only root. Elsewhere the engine makes
//! its volume, with what the image has in it, which programs may need: Landlock keeps commands from writing there, and no engine has a volume
//! without a name that can only be read. What a link in the image leads elsewhere is found by the guest, which refuses to begin.

use std::collections::{HashMap, HashSet};

use bollard::models::HostConfig;
use glovebox_core::{Error, ErrorCode, HOME_DIR, Result, WORKSPACE_DIR};

/// Folders that commands write to.
const WRITTEN: [&str; 4] = [WORKSPACE_DIR, HOME_DIR, "/tmp", "/dev/shm"];

/// Folders that commands must be able to write to, in the workspace.
const NEEDED: [&str; 3] = ["/workspace/agent_workspace", "/workspace/outputs", "/workspace/project_files"];

/// What covers a place where commands write.
const NOTHING: &str = "ro,noexec,nosuid,nodev,size=4k,mode=0755";

/// What covers a folder in which there are places of ours, which are made in it.
const PLACES: &str = "rw,noexec,nosuid,nodev,size=64k,nr_inodes=128,mode=0755";

/// Says why an image cannot be used, if it cannot.
pub(crate) fn check(volumes: &[String]) -> Result<()> {
    match volumes.iter().map(|volume| cleaned(volume)).find(|volume| NEEDED.contains(&volume.as_str())) {
        Some(volume) => {
            let message = format!("the image has a volume of its own at {volume}, which is a folder of the sandbox's");
            Err(Error::new(ErrorCode::NotSupported, message).hint("use an image without this VOLUME"))
        }
        None => Ok(()),
    }
}

/// Covers the volumes of an image that lie where commands write, or where there are places of ours, in the description of a container that has all else.
pub(crate) fn cover(host: &mut HostConfig, volumes: &[String]) {
    let mounts = host.mounts.iter().flatten();
    let tmpfs = host.tmpfs.get_or_insert_default();
    let of_mounts = mounts.map(|mount| (mount.target.clone().unwrap_or_default(), mount.read_only));
    let ours: HashMap<String, Option<bool>> =
        of_mounts.chain(tmpfs.keys().map(|folder| (folder.clone(), Some(false)))).collect();
    let written = ours.iter().filter(|(_, read_only)| **read_only == Some(false)).map(|(target, _)| target.as_str());
    let written: Vec<&str> = written.chain(WRITTEN).collect();
    let volumes: HashSet<String> = volumes.iter().map(|volume| cleaned(volume)).collect();
    for volume in volumes {
        // What is ours takes the place of what is the image's. No engine has a volume for all of the root.
        if ours.contains_key(&volume) || volume == "/" {
            continue;
        }
        if ours.keys().any(|target| is_below(target, &volume)) {
            tmpfs.insert(volume, PLACES.to_owned());
        } else if written.iter().any(|folder| is_below(&volume, folder)) {
            tmpfs.insert(volume, NOTHING.to_owned());
        }
    }
}

/// Covers all others too, where nothing else would keep commands from writing to them.
pub(crate) fn cover_all(host: &mut HostConfig, volumes: &[String]) {
    let mounts = host.mounts.iter().flatten().filter_map(|mount| mount.target.clone());
    let ours: HashSet<String> = mounts.chain(host.tmpfs.iter().flatten().map(|(folder, _)| folder.clone())).collect();
    let volumes = volumes.iter().map(|volume| cleaned(volume));
    let others = volumes.filter(|volume| volume != "/" && !ours.contains(volume));
    host.tmpfs.get_or_insert_default().extend(others.map(|volume| (volume, NOTHING.to_owned())));
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// A path as engines understand it: from the root, with nothing in it that leads back.
fn cleaned(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use bollard::models::Mount;

    use super::*;

    fn covered(volumes: &[&str]) -> HashMap<String, String> {
        let bind = |target: &str, read_only| Mount {
            target: Some(target.to_owned()),
            read_only: Some(read_only),
            ..Mount::default()
        };
        let folders = ["/workspace", "/home/user", "/tmp", "/dev/shm"];
        let mut host = HostConfig {
            tmpfs: Some(folders.map(|folder| (folder.to_owned(), "rw".to_owned())).into()),
            mounts: Some(vec![bind("/etc/hosts", true), bind("/written", false)]),
            ..HostConfig::default()
        };
        cover(&mut host, &volumes.iter().map(|volume| (*volume).to_owned()).collect::<Vec<_>>());
        let mut tmpfs = host.tmpfs.unwrap();
        assert!(folders.iter().all(|folder| tmpfs.remove(*folder).as_deref() == Some("rw")), "ours stay as they are");
        tmpfs
    }

    #[test]
    fn what_lies_where_commands_write_is_covered_however_it_is_spelled() {
        for (volume, place) in [
            ("/workspace/v", "/workspace/v"),
            ("/data/..//home/./user/v/", "/home/user/v"),
            ("tmp/v", "/tmp/v"),
            ("/../dev/shm/v", "/dev/shm/v"),
            ("/written/v", "/written/v"),
        ] {
            assert_eq!(covered(&[volume]), HashMap::from([(place.to_owned(), NOTHING.to_owned())]), "{volume}");
        }
    }

    #[test]
    fn what_lies_elsewhere_stays_and_what_is_ours_stays_ours() {
        let covered_there = covered(&["/data", "/data/", "/workspaces", "/", "/tmp/", "/etc/hosts"]);
        assert!(covered_there.is_empty(), "{covered_there:?}");
        assert_eq!(covered(&["/home"])["/home"], PLACES);
    }

    #[test]
    fn an_image_with_a_volume_in_place_of_a_folder_of_the_sandbox_is_refused() {
        let check = |volume: &str| check(&["/data".to_owned(), volume.to_owned()]);
        assert_eq!(check("/workspace//agent_workspace/").unwrap_err().code, ErrorCode::NotSupported);
        assert!(check("/workspace/agent_workspace/v").is_ok());
    }
}
