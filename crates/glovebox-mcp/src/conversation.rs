//! What one client works with: a sandbox that is made when it is first needed, and what runs in it.
//!
//! The sandbox is one of [`Engine::create`]: it ends when this process does, however that happens, because the launcher sees
//! to it. One that the user named is only used, and stays.

use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};

use glovebox_core::{
    Command, Error, ErrorCode, FilePath, InsidePath, Result, SandboxId, Secret, WORKING_DIR, WORKSPACE_DIR,
};
use glovebox_engine::{Engine, Files, RunRequest, Sandbox};
use tokio_util::sync::CancellationToken;

use crate::{Settings, process::Processes, recorded};

/// What is said once after a sandbox was lost.
const NEW_ONE: &str = "This is a new sandbox: files, sessions and processes of the one before are gone.";

/// One client, and all that it has.
pub(crate) struct Conversation {
    pub(crate) settings: Settings,
    pub(crate) engine: Engine,
    pub(crate) processes: Processes,
    /// Ends all that is under way.
    pub(crate) closing: CancellationToken,
    sandbox: tokio::sync::Mutex<Option<Arc<Sandbox>>>,
    /// All sandboxes that this conversation has had.
    had: Mutex<Vec<SandboxId>>,
    /// Why the sandbox before was lost, until it has been said.
    lost: Mutex<Option<String>>,
    /// Whether `bash` is missing inside, so that lines go to `sh`.
    only_sh: AtomicBool,
}

impl Conversation {
    pub(crate) fn new(engine: Engine, settings: Settings) -> Self {
        Conversation {
            engine: recorded(engine, &settings),
            settings,
            processes: Processes::default(),
            closing: CancellationToken::new(),
            sandbox: tokio::sync::Mutex::default(),
            had: Mutex::default(),
            lost: Mutex::default(),
            only_sh: AtomicBool::new(false),
        }
    }

    /// The sandbox; made now, if there is none.
    pub(crate) async fn sandbox(&self) -> Result<Arc<Sandbox>> {
        let mut held = self.sandbox.lock().await;
        if let Some(sandbox) = &*held {
            return Ok(sandbox.clone());
        }
        if self.closing.is_cancelled() {
            return Err(Error::new(ErrorCode::SandboxLost, "the conversation is over"));
        }
        let sandbox = Arc::new(match &self.settings.sandbox {
            Some(named) => self.engine.open(named).await?,
            None => {
                let mut spec = self.settings.spec.clone();
                spec.mounts.extend(self.settings.toolchains.mounts()?);
                self.engine.create(spec).await?
            }
        });
        *held = Some(sandbox.clone());
        self.had().push(sandbox.id());
        Ok(sandbox)
    }

    /// All sandboxes that this conversation has had; their runs are its own.
    pub(crate) fn had(&self) -> MutexGuard<'_, Vec<SandboxId>> {
        self.had.lock().unwrap_or_else(|lock| lock.into_inner())
    }

    /// The sandbox, if there is one already.
    pub(crate) async fn made(&self) -> Option<Arc<Sandbox>> {
        self.sandbox.lock().await.clone()
    }

    /// The files of the sandbox.
    pub(crate) async fn files(&self) -> Result<Files> {
        Ok(self.sandbox().await?.files())
    }

    /// Looks whether the sandbox is still there after something went wrong, and lets go of it when it is not.
    pub(crate) async fn look_after(&self, why: &str) {
        let mut held = self.sandbox.lock().await;
        let Some(sandbox) = &*held else { return };
        if sandbox.runs().await.is_ok() {
            return;
        }
        let why = match &self.settings.sandbox {
            Some(_) => {
                let error = Error::new(ErrorCode::SandboxLost, why);
                self.engine.explain_lost(sandbox.id(), error).message
            }
            None => why.to_owned(),
        };
        *held = None;
        self.processes.forget();
        *self.lost.lock().unwrap_or_else(|lock| lock.into_inner()) = Some(why);
    }

    /// What is to be said of a sandbox that was lost, once there is another one.
    pub(crate) async fn take_loss(&self) -> Option<String> {
        self.made().await?;
        let why = self.lost.lock().unwrap_or_else(|lock| lock.into_inner()).take()?;
        Some(format!("The sandbox before this one was lost ({why}). {NEW_ONE}"))
    }

    /// Ends the sandbox; the next call makes another one.
    pub(crate) async fn reset(&self) -> Result<Option<SandboxId>> {
        if let Some(named) = &self.settings.sandbox {
            let message = "this sandbox was made by the user and is not reset from here";
            return Err(Error::new(ErrorCode::NotSupported, message)
                .hint(format!("remove the files that are in the way; the user can type: glovebox reset {named}")));
        }
        let ended = self.sandbox.lock().await.take();
        self.processes.forget();
        match ended {
            Some(sandbox) => {
                let id = sandbox.id();
                sandbox.destroy().await.map(|()| Some(id))
            }
            None => Ok(None),
        }
    }

    /// Ends all that the client has. A sandbox that the user named stays; what was started in it from here is ended.
    pub(crate) async fn close(&self) -> Result<()> {
        self.closing.cancel();
        let ended = self.sandbox.lock().await.take();
        let Some(sandbox) = ended else { return Ok(()) };
        match self.settings.sandbox {
            Some(_) => {
                for run in self.processes.running() {
                    // One that has ended meanwhile is what was wanted.
                    let _ = sandbox.cancel(run).await;
                }
                Ok(())
            }
            None => sandbox.destroy().await,
        }
    }

    /// A request with the user's variables, secrets, labels and limits.
    pub(crate) fn filled(&self, mut request: RunRequest) -> RunRequest {
        let Command { env, secrets, .. } = &self.settings.variables;
        for (name, value) in env {
            request.command.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
        request.command.env.retain(|name, _| !secrets.contains_key(name));
        request.command.secrets = secrets.clone();
        request.spec = self.settings.spec.clone();
        request.labels = self.settings.labels.clone();
        request.toolchains = self.settings.toolchains.clone();
        request
    }

    /// The words that run a line of shell.
    pub(crate) fn shell(&self, line: &str) -> [String; 3] {
        let shell = if self.only_sh.load(Ordering::Relaxed) { "sh" } else { "bash" };
        [shell.to_owned(), "-c".to_owned(), line.to_owned()]
    }

    /// Notes that there is no bash inside. Says whether that is new.
    pub(crate) fn has_no_bash(&self) -> bool {
        !self.only_sh.swap(true, Ordering::Relaxed)
    }

    /// The secrets of the conversation.
    pub(crate) fn secrets(&self) -> Vec<&Secret> {
        self.settings.variables.secrets.values().collect()
    }
}

/// The working directory inside.
pub(crate) fn working_dir() -> InsidePath {
    InsidePath::absolute(WORKING_DIR).expect("the working directory is a checked path")
}

/// A path inside as a model writes it: absolute, or relative to the working directory.
pub(crate) fn inside(path: &str) -> Result<FilePath> {
    FilePath::relative_to(&working_dir(), path)
        .map_err(|error| error.hint("paths are absolute, or relative to /workspace/agent_workspace"))
}

/// A path below `/workspace` as it is shown and can be given back: relative where it is below the working directory.
pub(crate) fn shown_change(path: &str) -> String {
    match path.strip_prefix(glovebox_changes::WORKING) {
        Some(below) => glovebox_core::printable(below),
        None => glovebox_core::printable(&format!("{WORKSPACE_DIR}/{path}")),
    }
}

/// A path inside as it is shown: relative where it is below the working directory.
pub(crate) fn shown(path: &FilePath) -> String {
    let text = path.to_string();
    match text.strip_prefix(WORKING_DIR).and_then(|below| below.strip_prefix('/')) {
        Some(below) => below.to_owned(),
        None => text,
    }
}
