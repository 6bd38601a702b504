//! Folders of this machine in a container: who attaches them, and where.
//!
//! Root's own are attached by a process of ours in the container's mount namespace, once the container runs and before anything hostile
//! does: `glovebox-guest attach`, the guest's program as a process of the host. So the owner of a folder is the user of commands inside,
//! and nothing is left on the host when somebody is killed. An ordinary user may not do so, and a runtime with a kernel of its own has no such
//! namespace: there the engine mounts, and files belong to who they belong to.

use std::{io, path::Path, process::Stdio, time::Duration};

use glovebox_core::{
    Access, Error, ErrorCode, HOME_DIR, Mount, MountKind, Result, SandboxSpec, WORKING_DIR, WORKSPACE_DIR,
    WorkspaceMode,
};
use glovebox_proto::container::{Attached, AttachedMount, Attaching, MountPlace};
use rustix::process::{getegid, geteuid};
use tokio::{io::AsyncWriteExt, process::Command};

use crate::{gvisor::Runtimes, mapped::Root};

/// Folders that commands can write to, beside volumes: what lies in them is made when it is attached.
const OF_COMMANDS: [&str; 4] = [WORKSPACE_DIR, HOME_DIR, "/tmp", "/dev/shm"];

/// How long attaching may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether this process may attach mounts in a container.
pub(crate) fn may_attach() -> bool {
    geteuid().is_root()
}

/// Whether what a volume holds belongs to the user of commands without a shift of owners, in containers with this root.
pub(crate) fn is_user_of_commands(root: Option<Root>) -> bool {
    let user = glovebox_core::User::default();
    root.is_none() && (geteuid().as_raw(), getegid().as_raw()) == (user.uid, user.gid)
}

/// Who mounts what a sandbox is shown of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attacher {
    /// We do, in the container.
    Us,
    /// The engine, as it makes it.
    Engine,
}

impl Attacher {
    /// Who does so for a container of this runtime, or of the usual one.
    pub(crate) fn of(runtimes: &Runtimes, runtime: Option<&str>) -> Self {
        if may_attach() && runtimes.share_the_kernel(runtime) { Attacher::Us } else { Attacher::Engine }
    }
}

/// Everything of this machine that a sandbox is shown, what lies in another behind it.
pub(crate) fn mounts(spec: &SandboxSpec) -> Vec<AttachedMount> {
    let workspace = spec.workspace.iter().filter(|workspace| workspace.mode != WorkspaceMode::Overlay);
    let workspace = workspace.map(|workspace| AttachedMount {
        source: text(&workspace.source),
        target: WORKING_DIR.to_owned(),
        read_only: workspace.mode == WorkspaceMode::ReadOnly,
        is_volume: false,
        place: MountPlace::OfCommands,
    });
    let mounts = spec.mounts.iter().map(|mount| AttachedMount {
        source: text(&mount.source),
        target: mount.target.as_str().to_owned(),
        read_only: mount.access == Access::ReadOnly,
        is_volume: mount.kind != MountKind::Host,
        place: MountPlace::Made,
    });
    let mut all: Vec<AttachedMount> = workspace.chain(mounts).collect();
    all.sort_by_key(|mount| mount.target.matches('/').count());
    for at in 0..all.len() {
        let target = &all[at].target;
        let above = (0..at).rev().find(|above| is_below(target, &all[*above].target));
        all[at].place = match above {
            Some(above) => MountPlace::Below(above),
            None if OF_COMMANDS.iter().any(|folder| target == folder || is_below(target, folder)) => {
                MountPlace::OfCommands
            }
            None => MountPlace::Made,
        };
    }
    all
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Says why a mount cannot be had, if one cannot.
pub(crate) fn check(spec: &SandboxSpec, attacher: Attacher, root: Option<Root>) -> Result<()> {
    spec.mounts.iter().try_for_each(|mount| check_one(spec, mount, attacher, root))
}

fn check_one(spec: &SandboxSpec, mount: &Mount, attacher: Attacher, root: Option<Root>) -> Result<()> {
    if mount.source.to_str().is_none() {
        let message = format!("the path {} is no text, so Docker cannot be told of it", mount.source.display());
        return Err(Error::new(ErrorCode::NotSupported, message).hint("rename the folder, or use --backend native"));
    }
    let is_ours = matches!(mount.kind, MountKind::Volume { .. });
    if !is_ours || attacher == Attacher::Us || is_user_of_commands(root) {
        return Ok(());
    }
    let message = match may_attach() {
        true => format!(
            "volumes, caches and projects cannot be attached in a container of {}, which has a kernel of its own",
            spec.runtime.as_ref().map_or("the engine's usual runtime".to_owned(), |runtime| format!("the runtime {runtime}"))
        ),
        false if root.is_some() => "the containers of this engine have ids of their own, so volumes, caches and projects need root: what is in them \
              must belong to the user of commands"
            .to_owned(),
        false => "with the backend docker, volumes, caches and projects need root, or the user and group 1000: what is in them \
              must belong to the user of commands"
            .to_owned(),
    };
    Err(Error::new(ErrorCode::NotSupported, message).hint("use --backend native for them"))
}

/// Has mounts attached in the container of a guest that waits for them.
pub(crate) async fn attach(program: &Path, orders: &Attaching) -> Result<()> {
    let failed = |error: io::Error| {
        let message = format!("the folders of the sandbox could not be attached by {}", program.display());
        Error::new(ErrorCode::SandboxSetup, message).because(error)
    };
    let asked = tokio::time::timeout(PATIENCE, ask(program, orders)).await;
    let said = match asked {
        Ok(said) => said.map_err(failed)?,
        Err(_) => return Err(failed(io::ErrorKind::TimedOut.into())),
    };
    match said {
        Attached::All => Ok(()),
        Attached::Failed { step, errno } => {
            let message = format!("the sandbox could not be set up: {step}");
            Err(Error::new(ErrorCode::SandboxSetup, message).because(io::Error::from_raw_os_error(errno)))
        }
    }
}

async fn ask(program: &Path, orders: &Attaching) -> io::Result<Attached> {
    let mut command = Command::new(program);
    command.arg("attach").env_clear().current_dir("/").kill_on_drop(true);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut stdin = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    stdin.write_all(&serde_json::to_vec(orders)?).await?;
    drop(stdin);
    let output = child.wait_with_output().await?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(mounts: &[&str]) -> SandboxSpec {
        let mounts = mounts.iter().map(|text| Mount::parse(text).unwrap()).collect();
        SandboxSpec { mounts, ..SandboxSpec::default() }
    }

    fn places(spec: &SandboxSpec) -> Vec<(String, MountPlace)> {
        mounts(spec).into_iter().map(|mount| (mount.target, mount.place)).collect()
    }

    #[test]
    fn what_lies_in_another_mount_is_attached_behind_it() {
        let spec = spec(&["/a:/data/deep/er:rw", "/b:/data", "/c:/database", "/d:/data/deep"]);
        let found = places(&spec);
        assert_eq!(
            found,
            [
                ("/data".to_owned(), MountPlace::Made),
                ("/database".to_owned(), MountPlace::Made),
                ("/data/deep".to_owned(), MountPlace::Below(0)),
                ("/data/deep/er".to_owned(), MountPlace::Below(2)),
            ]
        );
    }

    #[test]
    fn what_lies_where_commands_write_needs_no_place_made_by_the_engine() {
        let mut spec =
            spec(&["/a:/home/user/.cache/x:rw", "/b:/tmp/x", "/c:/homes/x", "/d:/workspace/agent_workspace/in"]);
        let of = |target: &str, spec: &SandboxSpec| places(spec).into_iter().find(|(at, _)| at == target).unwrap().1;
        for target in ["/home/user/.cache/x", "/tmp/x", "/workspace/agent_workspace/in"] {
            assert_eq!(of(target, &spec), MountPlace::OfCommands);
        }
        assert_eq!(of("/homes/x", &spec), MountPlace::Made);
        let workspace = glovebox_core::Workspace { source: "/w".into(), mode: WorkspaceMode::ReadWrite };
        spec.workspace = Some(workspace);
        assert_eq!(of("/workspace/agent_workspace", &spec), MountPlace::OfCommands);
        assert!(matches!(of("/workspace/agent_workspace/in", &spec), MountPlace::Below(_)));
    }
}
