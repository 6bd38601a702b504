//! Volumes of callers on an engine of another machine: where they can be in a sandbox.
//!
//! The engine mounts them, and follows links that it finds on the way. What is in a volume was written by programs of earlier sandboxes,
//! and so was what is in the folders of one that is started again. So nothing is mounted below a volume, and no volume below such a
//! folder: a link in there could lead a mount over the guest's own program.

use std::path::Path;

use glovebox_core::{Error, ErrorCode, HOME_DIR, Result, SandboxSpec, User, WORKING_DIR, WORKSPACE_DIR};
use glovebox_proto::container::FOLDER;

use crate::describe::is_elsewhere;

/// What every container has mounted, by us or by the engine.
const MOUNTED: [&str; 11] = [
    WORKSPACE_DIR,
    HOME_DIR,
    FOLDER,
    "/tmp",
    "/dev/shm",
    "/proc",
    "/sys",
    "/etc/passwd",
    "/etc/group",
    "/etc/hosts",
    "/etc/resolv.conf",
];

/// Says why a volume of the engine at this place cannot be had in a sandbox, if one cannot.
pub(crate) fn check(spec: &SandboxSpec, place: &str) -> Result<()> {
    let refused = |message: String, hint: &str| Err(Error::new(ErrorCode::NotSupported, message).hint(hint));
    let taken: Vec<&str> = MOUNTED.into_iter().chain(spec.workspace.iter().map(|_| WORKING_DIR)).collect();
    for volume in spec.mounts.iter().filter(|mount| is_elsewhere(mount)) {
        if spec.user != User::default() {
            let message = format!("volumes of the engine at {place} belong to the user of commands alone");
            return refused(message, "leave out --user");
        }
        let target = volume.target.as_str();
        let is_below = |path: &str, folder: &str| Path::new(path).starts_with(folder);
        let others = spec.mounts.iter().map(|mount| mount.target.as_str()).filter(|other| *other != target);
        if let Some(other) = taken.iter().copied().chain(others).find(|other| is_below(other, target)) {
            let message = format!("no volume of the engine at {place} can be at {target}, as {other} is mounted there");
            return refused(message, "give the volume a place of its own, such as /data");
        }
        if spec.living.is_some() && [WORKSPACE_DIR, HOME_DIR].iter().any(|folder| is_below(target, folder)) {
            let message = format!("in a sandbox that stays no volume of the engine at {place} can be at {target}");
            return refused(message, "programs can write all around it: give it a place of its own, such as /data");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use glovebox_core::{Access, InsidePath, Lifetime, Living, Mount, MountKind, Workspace, WorkspaceMode};
    use jiff::Timestamp;

    use super::*;

    fn spec(targets: &[&str]) -> SandboxSpec {
        let mount = |target: &&str| Mount {
            source: "glovebox-volume-x".into(),
            target: InsidePath::absolute(target).unwrap(),
            access: Access::ReadWrite,
            kind: MountKind::VolumeElsewhere { bytes: 1 },
        };
        SandboxSpec { mounts: targets.iter().map(mount).collect(), ..SandboxSpec::default() }
    }

    fn is_taken(spec: &SandboxSpec) -> bool {
        check(spec, "tcp://h:1").is_ok()
    }

    #[test]
    fn nothing_is_mounted_below_a_volume() {
        assert!(is_taken(&spec(&["/data", "/database", "/workspace/agent_workspace/deps"])));
        for above in ["/home", "/home/user", "/etc", "/dev", "/.glovebox"] {
            assert!(!is_taken(&spec(&[above])), "{above}");
        }
        assert!(!is_taken(&spec(&["/data", "/data/deep/er"])));
        let mut given = spec(&["/data"]);
        given.mounts.push(Mount::parse("/x:/data/x").unwrap());
        assert!(!is_taken(&given));
        let mut given = spec(&["/workspace/agent_workspace"]);
        assert!(is_taken(&given));
        given.workspace = Some(Workspace { source: "/x".into(), mode: WorkspaceMode::Overlay });
        assert!(!is_taken(&given), "the copy of the caller's folder is there");
    }

    #[test]
    fn a_sandbox_that_stays_has_volumes_only_where_its_programs_cannot_write_around_them() {
        let living = Living { store: "/s".into(), created_at: Timestamp::now(), lifetime: Lifetime::default() };
        let stays = |target: &str| SandboxSpec { living: Some(living.clone()), ..spec(&[target]) };
        assert!(is_taken(&stays("/data")));
        for inside in ["/home/user/x", "/workspace/agent_workspace/x", "/workspace/x"] {
            assert!(!is_taken(&stays(inside)), "{inside}");
        }
    }

    #[test]
    fn volumes_are_for_the_usual_user() {
        let root = User { uid: 0, gid: 0 };
        assert!(!is_taken(&SandboxSpec { user: root, ..spec(&["/data"]) }));
        assert!(is_taken(&SandboxSpec { user: root, ..spec(&[]) }));
    }
}
