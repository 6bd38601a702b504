//! `glovebox cp`: files and folders, between this machine and sandboxes.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions},
    io::{self, IsTerminal, Write},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use bytes::Bytes;
use glovebox_core::{Error, ErrorCode, FilePath, Result};
use glovebox_engine::{Content, Engine, EntryKind, Files, FollowLinks, Parents, Range, Sandbox, WriteOptions};
use serde_json::json;
use tokio::sync::mpsc;

use super::{
    files::{goes_on, inside, own_output},
    living, runtime,
};
use crate::{
    args::{CpArgs, Globals},
    files::{cannot_read, open_ordinary},
    flags::Flags,
    report, stdio,
};

/// One end of a copy.
enum Place {
    /// Standard input or output.
    Standard,
    /// A path of this machine.
    Host(PathBuf),
    /// A path in a sandbox; whether it was typed as a folder, and whether what is in it is meant.
    Inside { id: String, path: FilePath, as_folder: bool, contents: bool },
}

pub(crate) fn execute(globals: &Globals, args: &CpArgs, flags: &Flags) -> Result<u8> {
    let (from, to) = (place(&args.source)?, place(&args.target)?);
    let engine = living::engine(globals, flags)?;
    let bytes = runtime()?.block_on(async {
        match (&from, &to) {
            (Place::Inside { id: one, .. }, Place::Inside { id: two, .. }) => {
                let (one, two) = (engine.open(one).await?, engine.open(two).await?);
                across(&one, &from, &two, &to).await
            }
            (Place::Inside { id, .. }, _) => {
                let sandbox = engine.open(id).await?;
                let copied = out(&sandbox.files(), &from, &to).await;
                copied.map_err(|error| engine.explain_lost(sandbox.id(), error))
            }
            (_, Place::Inside { id, .. }) => {
                let sandbox = engine.open(id).await?;
                let copied = into(&sandbox.files(), &from, &to).await;
                copied.map_err(|error| engine.explain_lost(sandbox.id(), error))
            }
            _ => {
                Err(Error::new(ErrorCode::Usage, "neither path is in a sandbox").hint(with_colon(&engine, args).await))
            }
        }
    })?;
    if globals.json && !matches!(to, Place::Standard) {
        let shown = |typed: &OsStr| typed.to_string_lossy().into_owned();
        report::document(&json!({ "from": shown(&args.source), "to": shown(&args.target), "bytes": bytes }))?;
    }
    Ok(0)
}

/// How a path in a sandbox is written, by the example of what was typed where a sandbox has that name.
async fn with_colon(engine: &Engine, args: &CpArgs) -> String {
    let is_sandbox = async |typed: &OsStr| match typed.to_str() {
        Some(text) => engine.status(text).await.is_ok(),
        None => false,
    };
    let (source, target) = (args.source.to_string_lossy(), args.target.to_string_lossy());
    if is_sandbox(&args.target).await {
        return format!("glovebox cp {source} {target}: copies into its working directory");
    }
    if is_sandbox(&args.source).await {
        return format!("glovebox cp {source}:PATH {target} copies out of it");
    }
    "a path in a sandbox is written ID:PATH, as in box:report.pdf".to_owned()
}

/// Reads one end of a copy as it was typed.
fn place(typed: &OsStr) -> Result<Place> {
    let bytes = typed.as_bytes();
    if bytes == b"-" {
        return Ok(Place::Standard);
    }
    let Some(at) = bytes.iter().position(|byte| *byte == b':') else { return Ok(Place::Host(typed.into())) };
    let id = str::from_utf8(&bytes[..at]).ok().filter(|id| !id.is_empty() && !id.contains('/') && !id.starts_with('.'));
    let Some(id) = id else { return Ok(Place::Host(typed.into())) };
    let below = &bytes[at + 1..];
    Ok(Place::Inside {
        id: id.to_owned(),
        path: inside(OsStr::from_bytes(if below.is_empty() { b"." } else { below }))?,
        as_folder: below.ends_with(b"/") || means_contents(below),
        contents: means_contents(below),
    })
}

/// Whether what is in a folder is meant, and not the folder.
fn means_contents(typed: &[u8]) -> bool {
    typed == b"." || typed.ends_with(b"/.")
}

/// What lies under a path inside, links followed; nothing when there is nothing.
async fn kind_inside(files: &Files, path: &FilePath) -> Result<Option<EntryKind>> {
    match files.stat(path, FollowLinks::Yes).await {
        Ok(entry) => Ok(Some(entry.kind)),
        Err(error) if error.code == ErrorCode::FileNotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Where something with a name goes: into a folder that is there, or to the path itself.
async fn target_inside(files: &Files, path: &FilePath, as_folder: bool, name: &[u8]) -> Result<FilePath> {
    let is_folder = kind_inside(files, path).await? == Some(EntryKind::Directory);
    if as_folder && !is_folder {
        files.make_folder(path, 0o755, Parents::Make).await?;
    }
    if is_folder || as_folder { path.join(name) } else { Ok(path.clone()) }
}

/// Copies into a sandbox. Says how many bytes a file had.
async fn into(files: &Files, from: &Place, to: &Place) -> Result<Option<u64>> {
    let Place::Inside { path, as_folder, .. } = to else { return Ok(None) };
    let Place::Host(source) = from else {
        let is_folder = *as_folder || kind_inside(files, path).await? == Some(EntryKind::Directory);
        if !is_folder {
            return files.write(path, WriteOptions::default(), stdio::content()?).await.map(Some);
        }
        files.make_folder(path, 0o755, Parents::Make).await?;
        return files.push_tar(path, stdio::content()?).await.map(|()| None);
    };
    let metadata = fs::metadata(source).map_err(|error| cannot_read(source, error))?;
    if metadata.is_dir() {
        let target = match means_contents(source.as_os_str().as_bytes()) {
            true => path.clone(),
            false => target_inside(files, path, *as_folder, &own_name(source)?).await?,
        };
        files.make_folder(&target, metadata.permissions().mode() & 0o777 | 0o700, Parents::Make).await?;
        return files.push_folder(source, &target).await.map(|()| None);
    }
    let file = open_ordinary(source)?;
    let target = target_inside(files, path, *as_folder, &own_name(source)?).await?;
    let options = WriteOptions { mode: Some(metadata.permissions().mode() & 0o777), sync: false };
    files.write(&target, options, Content::File(file)).await.map(Some)
}

/// The name that a path of this machine has in its folder.
fn own_name(path: &Path) -> Result<Vec<u8>> {
    let absolute = fs::canonicalize(path).map_err(|error| cannot_read(path, error))?;
    let name = path.file_name().or(absolute.file_name()).map(|name| name.as_bytes().to_vec());
    name.ok_or_else(|| Error::new(ErrorCode::InvalidPath, format!("{} has no name", path.display())))
}

/// Copies out of a sandbox. Says how many bytes a file had.
async fn out(files: &Files, from: &Place, to: &Place) -> Result<Option<u64>> {
    let Place::Inside { path, contents, .. } = from else { return Ok(None) };
    let is_folder = files.stat(path, FollowLinks::Yes).await?.kind == EntryKind::Directory;
    match (to, is_folder) {
        (Place::Host(target), true) => {
            let into_it = !contents && target.is_dir();
            let target = if into_it { target.join(OsStr::from_bytes(path.name())) } else { target.clone() };
            if !target.is_dir() {
                fs::create_dir(&target).map_err(|error| cannot_make(&target, error))?;
            }
            files.pull_folder(path, &target).await.map(|()| None)
        }
        (Place::Host(target), false) => {
            let target = if target.is_dir() { target.join(OsStr::from_bytes(path.name())) } else { target.clone() };
            file_out(files, path, &target).await.map(Some)
        }
        (_, true) => {
            if io::stdout().is_terminal() {
                let message = "an archive is not written to a terminal";
                return Err(Error::new(ErrorCode::Usage, message).hint("send it on: glovebox cp ID:PATH - | tar tv"));
            }
            let mut archive = files.pull_tar(path).await?;
            let mut out = own_output()?;
            while let Some(bytes) = archive.next().await? {
                if !goes_on(out.write_all(&bytes))? {
                    break;
                }
            }
            Ok(None)
        }
        (_, false) => {
            let mut stream = files.read(path, Range::default()).await?;
            let mut out = own_output()?;
            while let Some(bytes) = stream.next().await? {
                if !goes_on(out.write_all(&bytes))? {
                    break;
                }
            }
            Ok(None)
        }
    }
}

/// Copies a file to this machine: all of it, or nothing.
async fn file_out(files: &Files, path: &FilePath, target: &Path) -> Result<u64> {
    let mut stream = files.read(path, Range::default()).await?;
    let mode = stream.entry().mode & 0o777;
    // What is there and no ordinary file, as /dev/null or a pipe, is written to and not replaced.
    let special = fs::metadata(target).is_ok_and(|found| !found.is_file());
    let mut unfinished = if special { Unfinished::existing(target)? } else { Unfinished::beside(target)? };
    let mut written = 0;
    while let Some(bytes) = stream.next().await? {
        unfinished.file.write_all(&bytes).map_err(|error| cannot_make(target, error))?;
        written += bytes.len() as u64;
    }
    unfinished.finish(target, mode)?;
    Ok(written)
}

/// A file of this machine that is not complete. Dropped, it is gone.
struct Unfinished {
    file: File,
    name: Option<PathBuf>,
}

impl Unfinished {
    fn existing(target: &Path) -> Result<Self> {
        let file = OpenOptions::new().write(true).open(target).map_err(|error| cannot_make(target, error))?;
        Ok(Unfinished { file, name: None })
    }

    fn beside(target: &Path) -> Result<Self> {
        let mut name = OsString::from(".");
        name.push(format!("glovebox-{}-{}.part", std::process::id(), jiff::Timestamp::now().as_nanosecond()));
        let name = target.with_file_name(name);
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&name);
        let file = opened.map_err(|error| cannot_make(target, error))?;
        Ok(Unfinished { file, name: Some(name) })
    }

    fn finish(mut self, target: &Path, mode: u32) -> Result<()> {
        let Some(name) = &self.name else { return Ok(()) };
        let finished = self.file.set_permissions(fs::Permissions::from_mode(mode));
        finished.and_then(|()| fs::rename(name, target)).map_err(|error| cannot_make(target, error))?;
        self.name = None;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // A file that somebody else removed meanwhile is gone, too.
            let _ = fs::remove_file(name);
        }
    }
}

fn cannot_make(target: &Path, error: io::Error) -> Error {
    let shown = String::from_utf8_lossy(&target.as_os_str().to_owned().into_vec()).into_owned();
    Error::new(ErrorCode::HostIo, format!("cannot write {shown}")).because(error)
}

/// Copies from one sandbox to another, or within one.
async fn across(one: &Sandbox, from: &Place, two: &Sandbox, to: &Place) -> Result<Option<u64>> {
    let (Place::Inside { path: source, contents, .. }, Place::Inside { path, as_folder, .. }) = (from, to) else {
        return Ok(None);
    };
    let (one, two) = (one.files(), two.files());
    let entry = one.stat(source, FollowLinks::Yes).await?;
    let (sender, receiver) = mpsc::channel(8);
    if entry.kind == EntryKind::Directory {
        let target = match contents {
            true => path.clone(),
            false => target_inside(&two, path, *as_folder, source.name()).await?,
        };
        let mut archive = one.pull_tar(source).await?;
        two.make_folder(&target, entry.mode & 0o777 | 0o700, Parents::Make).await?;
        let reading = pass_on(async || archive.next().await, sender);
        let (read, written) = tokio::join!(reading, two.push_tar(&target, Content::Channel(receiver)));
        return read.and(written).map(|()| None);
    }
    let target = target_inside(&two, path, *as_folder, source.name()).await?;
    let mut stream = one.read(source, Range::default()).await?;
    let options = WriteOptions { mode: Some(entry.mode & 0o777), sync: false };
    let reading = pass_on(async || stream.next().await, sender);
    let (read, written) = tokio::join!(reading, two.write(&target, options, Content::Channel(receiver)));
    read.and(written).map(Some)
}

/// Passes bytes on until their end. When they cannot be read, the other side writes nothing.
async fn pass_on(
    mut next: impl AsyncFnMut() -> Result<Option<Bytes>>,
    sender: mpsc::Sender<io::Result<Bytes>>,
) -> Result<()> {
    loop {
        match next().await {
            Ok(Some(bytes)) => {
                if sender.send(Ok(bytes)).await.is_err() {
                    return Ok(());
                }
            }
            Ok(None) => return Ok(()),
            // An archive that is complete but for some files is written all the same.
            Err(error) if error.code == ErrorCode::FileUnreadable => return Err(error),
            Err(error) => {
                let _ = sender.send(Err(io::ErrorKind::Other.into())).await;
                return Err(error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_behind_a_name_means_a_sandbox_and_a_path_does_not() {
        let inside = |text: &str| match place(OsStr::new(text)).unwrap() {
            Place::Inside { id, path, as_folder, contents } => Some((id, path.to_string(), as_folder, contents)),
            _ => None,
        };
        let found =
            |id: &str, path: &str, as_folder, contents| Some((id.to_owned(), path.to_owned(), as_folder, contents));
        assert_eq!(inside("box:"), found("box", "/workspace/agent_workspace", false, false));
        assert_eq!(inside("box:a/"), found("box", "/workspace/agent_workspace/a", true, false));
        assert_eq!(inside("box:/tmp/."), found("box", "/tmp", true, true));
        assert_eq!(inside("sb_1:/a:b"), found("sb_1", "/a:b", false, false));
        for host in ["./a:b", "/a:b", "a/b:c", "../x:y", ":x", "plain", "-"] {
            assert_eq!(inside(host), None, "{host}");
        }
        assert!(place(OsStr::new("box:../x")).is_err());
    }
}
