//! `upload` and `download`: files and folders, between folders of the host that the user opened and the sandbox.

use std::path::Path;

use glovebox_core::{Error, ErrorCode, FilePath, Result};
use glovebox_engine::{Content, EntryKind, FollowLinks, Parents, Range, WriteOptions};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Effect, ToolCall, files::make_parents};
use crate::{
    Settings,
    answer::Answer,
    call::Call,
    conversation::{Conversation, inside, shown},
    roots::HostFile,
    running, text,
};

/// What a model is told when no folder was opened.
const CLOSED: &str = "Off here: the user opened no folder (glovebox mcp --root DIR).";

/// A file or folder to bring in.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upload {
    /// The file or folder of the user's machine.
    source: String,
    /// Where it goes in the sandbox; by default into the working directory, under its own name.
    #[serde(default)]
    path: Option<String>,
}

impl ToolCall for Upload {
    const NAME: &'static str = "upload";
    const TITLE: &'static str = "Bring a file in";
    const ABOUT: &'static str =
        "Copies a file or folder of the user's machine into the sandbox, from folders that the user allowed.";
    const EFFECT: Effect = Effect::Writes;

    fn note(settings: &Settings) -> Option<String> {
        note(settings)
    }

    async fn call(self, talk: &Conversation, call: &Call) -> Result<Answer> {
        tokio::select! {
            copied = self.copy(talk) => copied,
            () = call.cancelled() => Err(running::cancelled()),
        }
    }
}

impl Upload {
    async fn copy(&self, talk: &Conversation) -> Result<Answer> {
        let source = talk.settings.roots.find(&self.source)?;
        let own_name = || source.name().map(|name| inside(".")?.join(name)).transpose();
        let target = match &self.path {
            Some(path) => inside(path)?,
            None => own_name()?.ok_or_else(|| {
                Error::new(ErrorCode::InvalidValue, "path is needed when an allowed folder is copied whole")
                    .hint("path: \"data\" makes it the folder data of the working directory")
            })?,
        };
        let files = talk.files().await?;
        match source.read()? {
            HostFile::File(file) => {
                make_parents(&files, &target).await?;
                let bytes = files.write(&target, WriteOptions::default(), Content::File(file)).await?;
                Ok(Answer::text(format!("{} is now {} ({})", source.shown(), shown(&target), text::size(bytes))))
            }
            HostFile::Folder(folder) => {
                files.make_folder(&target, 0o755, Parents::Make).await?;
                files.push_opened_folder(folder, &source.path(), &target).await?;
                Ok(Answer::text(format!("{} is now {}/", source.shown(), shown(&target))))
            }
        }
    }
}

/// A file or folder to bring out.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Download {
    /// The file or folder in the sandbox, absolute or relative to the working directory.
    path: String,
    /// Where it goes on the user's machine: a path below an allowed folder. By default its own name in the first one.
    #[serde(default)]
    target: Option<String>,
    /// Replace a file that is there.
    #[serde(default)]
    overwrite: bool,
}

impl ToolCall for Download {
    const NAME: &'static str = "download";
    const TITLE: &'static str = "Bring a file out";
    const ABOUT: &'static str =
        "Copies a file or folder of the sandbox to the user's machine, into folders that the user allowed.";
    const EFFECT: Effect = Effect::Acts;

    fn note(settings: &Settings) -> Option<String> {
        note(settings)
    }

    async fn call(self, talk: &Conversation, call: &Call) -> Result<Answer> {
        tokio::select! {
            copied = self.copy(talk) => copied,
            () = call.cancelled() => Err(running::cancelled()),
        }
    }
}

impl Download {
    async fn copy(&self, talk: &Conversation) -> Result<Answer> {
        let path = inside(&self.path)?;
        let target = match &self.target {
            Some(target) => target.clone(),
            None => own_name(&path)?,
        };
        let place = talk.settings.roots.find(&target)?;
        let files = talk.files().await?;
        let entry = files.stat(&path, FollowLinks::Yes).await?;
        if entry.kind == EntryKind::Directory {
            let folder = place.make_folder()?;
            if !self.overwrite && !is_empty(&folder) {
                let message = format!("{} is there already, and not empty", place.shown());
                return Err(Error::new(ErrorCode::FileExists, message).hint("overwrite: true writes into it"));
            }
            files.pull_into_folder(&path, folder, &place.path()).await?;
            return Ok(Answer::text(format!("{}/ is now {}", shown(&path), place.shown())));
        }
        let mut stream = files.read(&path, Range::default()).await?;
        let mut writing = place.write(entry.mode & 0o111 != 0)?;
        while let Some(chunk) = stream.next().await? {
            writing.write(&chunk)?;
        }
        writing.finish(self.overwrite)?;
        Ok(Answer::text(format!("{} is now {} ({})", shown(&path), place.shown(), text::size(entry.bytes))))
    }
}

fn note(settings: &Settings) -> Option<String> {
    Some(match settings.roots.is_empty() {
        true => CLOSED.to_owned(),
        false => format!("Allowed: {}.", settings.roots.names().join(", ")),
    })
}

fn own_name(path: &FilePath) -> Result<String> {
    let name = std::str::from_utf8(path.name()).ok().filter(|name| !name.is_empty());
    name.map(str::to_owned).ok_or_else(|| Error::new(ErrorCode::InvalidValue, "target is needed"))
}

fn is_empty(folder: &std::os::fd::OwnedFd) -> bool {
    use std::os::fd::AsRawFd;
    let names = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).read_dir();
    names.is_ok_and(|mut names| names.next().is_none())
}
