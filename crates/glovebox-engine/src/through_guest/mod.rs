//! The files of sandboxes that no folder of the host holds: the workspace is copied in through the guest, and what changed is
//! found out by asking it.
//!
//! Theory of operation. When a sandbox is ready, a workspace whose writes stay inside is packed on the host and unpacked by the
//! guest ([`Inside::bring_in`]); then the guest tells all that is there ([`survey`]), which is kept: in memory, or with a living
//! sandbox beside its record. A look takes another survey, compares the two ([`look`]), and reads what differs ([`contents`]).
//! Everything else is as in a backend that looks by itself, so whoever asks cannot tell the difference.

mod ahead;
mod contents;
mod host;
mod look;
mod survey;

use std::{
    borrow::Cow,
    collections::BTreeSet,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use glovebox_core::{
    Backend, ContentKeeper, Error, ErrorCode, FilePath, GivenFile, LookFor, Result, SandboxId, SandboxSpec,
    WORKING_DIR, WORKSPACE_DIR, Warning, Workspace, WorkspaceLook, WorkspaceMode,
};
use glovebox_proto::file::Met;
use jiff::Timestamp;
use prost::Message;
use rustix::fs::{Mode, OFlags};
use tokio::runtime::Handle;

use self::{
    contents::Contents,
    look::{Found, Walk},
    survey::Survey,
};
use crate::{channel::Channel, files::Files, registry::Registry};

const OUTPUTS: &str = "outputs";
const WORKING: &str = "agent_workspace";
/// More than the largest survey takes.
const LONGEST_NOTE: u64 = 128 << 20;

/// The files inside a sandbox, where they are reached through the guest.
pub(crate) struct Inside {
    working: Working,
    /// Where something is mounted while the sandbox runs, below `/workspace`, if it does not.
    mounted_otherwise: Vec<Vec<u8>>,
}

/// How the working directory began.
enum Working {
    /// Empty.
    Fresh,
    /// As a copy of a folder of the host. With a living sandbox it is noted what it was: that may be long, and is read when
    /// somebody looks.
    Copied { source: PathBuf, noted: Option<(Registry, SandboxId)>, copied: OnceLock<Copied> },
    /// As a folder of the host itself: nothing stays inside.
    Direct,
}

/// A workspace that was copied in.
struct Copied {
    /// When, in nanoseconds since 1970.
    at_ns: i128,
    /// What could not be copied, for people.
    left_out: Option<String>,
    /// All that was there then.
    survey: Survey,
    /// Where it came from, if that is still there.
    folder: Option<OwnedFd>,
}

/// The same, as it is kept.
#[derive(Clone, PartialEq, Message)]
struct CopiedNote {
    #[prost(int64, tag = "1")]
    at_ns: i64,
    #[prost(string, optional, tag = "2")]
    left_out: Option<String>,
    #[prost(message, repeated, tag = "3")]
    met: Vec<Met>,
}

/// The workspace that is copied in where a backend cannot show it.
fn copied_workspace<'a>(backend: &dyn Backend, spec: &'a SandboxSpec) -> Option<&'a Workspace> {
    let workspace = spec.workspace.as_ref().filter(|_| backend.files_through_guest());
    workspace.filter(|workspace| workspace.mode == WorkspaceMode::Overlay)
}

/// Whether a workspace is copied in, so that no command may start before.
pub(crate) fn copies_workspace(backend: &dyn Backend, spec: &SandboxSpec) -> bool {
    copied_workspace(backend, spec).is_some()
}

/// What a backend is told of a sandbox: not of a workspace that is copied in.
pub(crate) fn spec_for<'a>(backend: &dyn Backend, spec: &'a SandboxSpec) -> Cow<'a, SandboxSpec> {
    match copied_workspace(backend, spec) {
        Some(_) => Cow::Owned(SandboxSpec { workspace: None, ..spec.clone() }),
        None => Cow::Borrowed(spec),
    }
}

impl Inside {
    /// Copies the workspace into a sandbox that is ready, where the backend cannot show it. Nothing where the backend looks at
    /// files by itself.
    pub(crate) async fn bring_in(
        backend: &Arc<dyn Backend>,
        channel: &Channel,
        spec: &SandboxSpec,
    ) -> Result<Option<Arc<Self>>> {
        if !backend.files_through_guest() {
            return Ok(None);
        }
        let working = match (copied_workspace(&**backend, spec), &spec.workspace) {
            (Some(workspace), _) => {
                let watched = channel.sandbox().filter(|_| spec.living.is_some()).map(|id| (backend.clone(), id));
                let files = Files::new(channel.clone(), watched);
                let copied = copy_in(channel, &files, workspace, spec).await?.into();
                Working::Copied { source: workspace.source.clone(), noted: None, copied }
            }
            (None, Some(_)) => Working::Direct,
            (None, None) => Working::Fresh,
        };
        Ok(Some(Arc::new(Inside { working, mounted_otherwise: Vec::new() })))
    }

    /// The same for a living sandbox, whose workspace is copied in once and stays.
    pub(crate) async fn bring_in_once(
        backend: &Arc<dyn Backend>,
        channel: &Channel,
        spec: &SandboxSpec,
        (registry, id): (&Registry, SandboxId),
    ) -> Result<Option<Arc<Self>>> {
        if registry.has_copied(id) {
            return Ok(Self::known(&**backend, spec, (registry, id)));
        }
        let inside = Self::bring_in(backend, channel, spec).await?;
        if let Some(Working::Copied { copied, .. }) = inside.as_deref().map(|inside| &inside.working)
            && let Some(copied) = copied.get()
        {
            registry.note_copied(id, &copied.to_note())?;
        }
        Ok(inside)
    }

    /// The files of a living sandbox that was made before. Nothing where the backend looks at files by itself.
    pub(crate) fn known(
        backend: &dyn Backend,
        spec: &SandboxSpec,
        (registry, id): (&Registry, SandboxId),
    ) -> Option<Arc<Self>> {
        backend
            .files_through_guest()
            .then(|| Arc::new(Inside { working: Working::noted(spec, (registry, id)), mounted_otherwise: Vec::new() }))
    }

    /// The same for a living sandbox that does not run, seen in another one that has none of its mounts.
    pub(crate) fn aside(spec: &SandboxSpec, noted: (&Registry, SandboxId)) -> Arc<Self> {
        let targets = spec.mounts.iter().map(|mount| &mount.target);
        let targets = targets.chain(spec.volumes.iter().map(|volume| &volume.target));
        let below = targets.filter_map(|target| target.as_str().strip_prefix(WORKSPACE_DIR)?.strip_prefix('/'));
        let mounted_otherwise = below.map(|path| path.as_bytes().to_vec()).collect();
        Arc::new(Inside { working: Working::noted(spec, noted), mounted_otherwise })
    }

    /// What could not be copied in, where something could not; known since the first look.
    pub(crate) fn left_out(&self) -> Option<Warning> {
        let Working::Copied { copied, .. } = &self.working else { return None };
        let message = copied.get()?.left_out.as_ref()?;
        let (code, hint) = (ErrorCode::FileUnreadable.as_str().into(), None);
        Some(Warning { code, message: format!("of the workspace, {message}"), hint })
    }

    /// What the sandbox did to its workspace so far; see [`Backend::changes`].
    pub(crate) async fn look(
        self: &Arc<Self>,
        channel: &Channel,
        look_for: LookFor,
        given: &[GivenFile],
        keeper: Option<Arc<dyn ContentKeeper>>,
    ) -> Result<WorkspaceLook> {
        let roots: &[&str] = if matches!(self.working, Working::Direct) { &[OUTPUTS] } else { &[OUTPUTS, WORKING] };
        let mut survey = Survey::of(channel, roots).await?;
        self.mounted_otherwise.iter().for_each(|path| survey.take_for_mounted(path));
        let (inside, given, stop) = (self.clone(), given.to_vec(), StopOnDrop::default());
        let (stopped, runtime, files) = (stop.0.clone(), Handle::current(), Files::new(channel.clone(), None));
        // How long this takes is up to what ran inside, so it must not hold up other sandboxes.
        let compare = move || {
            let contents = Contents::new(keeper.as_deref(), files, runtime);
            let stop = &*stopped;
            inside.compare(
                &survey,
                Walk {
                    look_for,
                    given: &given,
                    contents,
                    stop,
                    truncated: survey.truncated,
                    copied_at: 0,
                    found: Found::default(),
                },
            )
        };
        let compared = tokio::task::spawn_blocking(compare).await;
        channel.judge(
            compared.map_err(|error| Error::new(ErrorCode::Internal, "the changes cannot be told").because(error))?,
        )
    }

    fn compare(&self, now: &Survey, mut walk: Walk<'_>) -> Result<WorkspaceLook> {
        for (name, root) in &now.roots {
            walk.see_root(name, root);
        }
        if let Some(outputs) = now.roots.get(OUTPUTS.as_bytes()) {
            walk.contents.ahead.expect(outputs, None, OUTPUTS.as_bytes());
            walk.added_below(outputs, OUTPUTS.as_bytes())?;
        }
        let Some(working) = now.roots.get(WORKING.as_bytes()) else { return Ok(walk.finish()) };
        match &self.working {
            Working::Direct => {}
            Working::Fresh => {
                walk.contents.ahead.expect(working, None, WORKING.as_bytes());
                walk.added_below(working, WORKING.as_bytes())?;
            }
            Working::Copied { source, noted, copied } => {
                let copied = match copied.get() {
                    Some(copied) => copied,
                    None => {
                        let read = Copied::noted(noted.as_ref(), source)?;
                        copied.get_or_init(|| read)
                    }
                };
                let before = copied.survey.roots.get(WORKING.as_bytes());
                match &copied.folder {
                    Some(folder) => {
                        walk.copied_at = copied.at_ns;
                        walk.contents.ahead.expect(working, before, WORKING.as_bytes());
                        walk.compare(working, before, Some(folder), WORKING.as_bytes())?;
                    }
                    None if before.is_some_and(|before| working.holds_the_same(before)) => {}
                    None => {
                        let mut look = walk.finish();
                        (look.changes.truncated, look.workspace_gone) = (true, true);
                        return Ok(look);
                    }
                }
            }
        }
        Ok(walk.finish())
    }
}

impl Working {
    /// How that of a living sandbox began, whose files are reached through a guest.
    fn noted(spec: &SandboxSpec, (registry, id): (&Registry, SandboxId)) -> Self {
        match &spec.workspace {
            None => Working::Fresh,
            Some(workspace) if workspace.mode == WorkspaceMode::Overlay => {
                let noted = Some((registry.clone(), id));
                Working::Copied { source: workspace.source.clone(), noted, copied: OnceLock::new() }
            }
            Some(_) => Working::Direct,
        }
    }
}

impl Copied {
    fn to_note(&self) -> Vec<u8> {
        let at_ns = i64::try_from(self.at_ns).unwrap_or(i64::MAX);
        CopiedNote { at_ns, left_out: self.left_out.clone(), met: self.survey.to_met() }.encode_to_vec()
    }

    /// What was noted when the workspace had been copied.
    fn noted(noted: Option<&(Registry, SandboxId)>, source: &Path) -> Result<Self> {
        let wrong = || Error::new(ErrorCode::HostIo, "what is noted of the workspace of the sandbox cannot be read");
        let bytes = noted.map(|(registry, id)| registry.copied(*id, LONGEST_NOTE)).transpose()?.ok_or_else(wrong)?;
        let note = CopiedNote::decode(&bytes[..]).map_err(|error| wrong().because(error))?;
        let survey = Survey::again(note.met, &[WORKING]).map_err(|error| wrong().because(error))?;
        let folder = open_folder(source).ok();
        Ok(Copied { at_ns: note.at_ns.into(), left_out: note.left_out, survey, folder })
    }
}

/// Copies a workspace into an empty working directory.
async fn copy_in(channel: &Channel, files: &Files, workspace: &Workspace, spec: &SandboxSpec) -> Result<Copied> {
    let at_ns = Timestamp::now().as_nanosecond();
    let source = &workspace.source;
    let cannot = |error: std::io::Error| {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorCode::FileNotFound,
            std::io::ErrorKind::NotADirectory => ErrorCode::NotADirectory,
            _ => ErrorCode::FileUnreadable,
        };
        Error::new(code, format!("the workspace {} cannot be used", source.display())).because(error)
    };
    let folder = open_folder(source).map_err(cannot)?;
    let packed = folder.try_clone().map_err(cannot)?;
    // What is mounted inside hides what is copied there, and must not be written to.
    let targets = spec.mounts.iter().map(|mount| mount.target.as_str());
    let below = targets.filter_map(|target| target.strip_prefix(WORKING_DIR)?.strip_prefix('/'));
    let without: BTreeSet<Vec<u8>> = below.map(|path| path.as_bytes().to_vec()).collect();
    let target = FilePath::absolute(WORKING_DIR)?;
    let left_out =
        files.push_workspace(packed, source, (&target, without)).await.map_err(|error| match error.code {
            ErrorCode::DiskFull => does_not_fit(source),
            ErrorCode::TooLarge => error.hint("--workspace-mode read-only shows the folder and copies nothing"),
            _ => error,
        })?;
    let survey = Survey::of(channel, &[WORKING]).await?;
    if survey.truncated {
        let message = format!("the workspace {} has more files than can be looked at for changes", source.display());
        return Err(Error::new(ErrorCode::TooLarge, message)
            .hint("use a smaller folder, or --workspace-mode read-only, which copies nothing"));
    }
    Ok(Copied { at_ns, left_out: left_out.map(|error| error.message), survey, folder: Some(folder) })
}

fn does_not_fit(source: &Path) -> Error {
    let message = format!("the workspace {} does not fit into the sandbox", source.display());
    Error::new(ErrorCode::DiskFull, message)
        .hint("--disk and --inodes give it more room; --workspace-mode read-only shows the folder and copies nothing")
}

fn open_folder(path: &Path) -> std::io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Tells a look that nobody waits for it any more.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
