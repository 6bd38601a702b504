//! Files and signals on their way into a sandbox.

use std::{
    fs,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::Path,
    time::SystemTime,
};

use glovebox_core::{Error, ErrorCode, GivenFile, Result, RunId};
use glovebox_proto::{EndReason, FileEntry, FileKind, Frame, FrameKind, Signal, StartFailed, bound, path};

use crate::{
    FileContent, InputFile,
    channel::{Channel, Sending, ask, read, unexpected},
};

/// Copies files into a sandbox. Says which regular files below `/workspace` it was given.
pub(crate) async fn put_files(channel: &Channel, files: &[InputFile]) -> Result<Vec<GivenFile>> {
    let mut given = Vec::new();
    if files.is_empty() {
        return Ok(given);
    }
    let (mut sending, opening) = channel.request(path::PUT).await?;
    for file in files {
        let target = file.target.as_str().to_owned();
        // The guest ends the stream early when a file cannot be written; its answer below says why.
        let sent = match &file.content {
            FileContent::Bytes(bytes) => put_bytes(&mut sending, target, file.mode, bytes, &mut given).await,
            FileContent::Folder => put_folder(&mut sending, target, file.mode).await,
            FileContent::Host(source) => put_host(&mut sending, target, source, &mut given).await,
        };
        match sent {
            Err(error) if error.code == ErrorCode::SandboxLost => break,
            other => other?,
        }
    }
    let _ = sending.end();
    let mut answer = opening.answer().await?;
    match answer.next().await? {
        Some(frame) if frame.kind == FrameKind::Done => Ok(given),
        Some(frame) if frame.kind == FrameKind::StartFailed => {
            let failed: StartFailed = read(&frame)?;
            let message = format!("a file could not be copied into the sandbox ({})", failed.step);
            Err(Error::new(ErrorCode::InvalidPath, message).because(io::Error::from_raw_os_error(failed.errno)))
        }
        Some(frame) => Err(unexpected(&frame)),
        None => Err(Error::new(ErrorCode::SandboxLost, "the sandbox went away while files were copied in")),
    }
}

async fn put_bytes(
    sending: &mut Sending,
    path: String,
    mode: u32,
    bytes: &[u8],
    given: &mut Vec<GivenFile>,
) -> Result<()> {
    let modified_ns = nanoseconds(SystemTime::now());
    note_given(&path, bytes.len() as u64, modified_ns, given);
    let entry = FileEntry { path, mode, kind: FileKind::Regular.into(), link: String::new(), modified_ns };
    sending.send(Frame::message(FrameKind::File, &entry)).await?;
    for chunk in bytes.chunks(bound::CHUNK) {
        sending.send(Frame::data(FrameKind::FileData, chunk)).await?;
    }
    sending.send(Frame::data(FrameKind::FileEnd, &[])).await
}

async fn put_folder(sending: &mut Sending, path: String, mode: u32) -> Result<()> {
    let entry = FileEntry { path, mode, kind: FileKind::Directory.into(), link: String::new(), modified_ns: 0 };
    sending.send(Frame::message(FrameKind::File, &entry)).await
}

/// Copies a file, or a folder with all that is in it. Links inside a folder stay links.
async fn put_host(sending: &mut Sending, target: String, source: &Path, given: &mut Vec<GivenFile>) -> Result<()> {
    let mut waiting = vec![(target, source.to_owned(), true)];
    while let Some((target, source, follow)) = waiting.pop() {
        let unreadable = |error: io::Error| {
            let code = if error.kind() == io::ErrorKind::NotFound {
                ErrorCode::FileNotFound
            } else {
                ErrorCode::FileUnreadable
            };
            Error::new(code, format!("{} cannot be copied into the sandbox", source.display())).because(error)
        };
        let metadata =
            if follow { fs::metadata(&source) } else { fs::symlink_metadata(&source) }.map_err(unreadable)?;
        let mode = metadata.permissions().mode() & 0o777;
        let mut entry = FileEntry {
            path: target.clone(),
            mode,
            kind: FileKind::Regular.into(),
            link: String::new(),
            modified_ns: 0,
        };
        if metadata.is_dir() {
            entry.kind = FileKind::Directory.into();
            // The user inside must be able to work in it, whoever owned it here.
            entry.mode |= 0o700;
            sending.send(Frame::message(FrameKind::File, &entry)).await?;
            for inner in fs::read_dir(&source).map_err(unreadable)? {
                let inner = inner.map_err(unreadable)?;
                let name = inner.file_name();
                let name = name.to_str().ok_or_else(|| unreadable(io::ErrorKind::InvalidFilename.into()))?;
                waiting.push((format!("{target}/{name}"), inner.path(), false));
            }
        } else if metadata.is_symlink() {
            entry.kind = FileKind::Symlink.into();
            entry.link = fs::read_link(&source).map_err(unreadable)?.to_string_lossy().into_owned();
            sending.send(Frame::message(FrameKind::File, &entry)).await?;
        } else if metadata.is_file() {
            let mut file = fs::File::open(&source).map_err(unreadable)?;
            entry.modified_ns = metadata.modified().map_or(0, nanoseconds);
            sending.send(Frame::message(FrameKind::File, &entry)).await?;
            let mut buffer = vec![0; bound::CHUNK];
            let mut bytes = 0;
            loop {
                match file.read(&mut buffer).map_err(unreadable)? {
                    0 => break,
                    length => {
                        bytes += length as u64;
                        sending.send(Frame::data(FrameKind::FileData, &buffer[..length])).await?;
                    }
                }
            }
            note_given(&target, bytes, entry.modified_ns, given);
            sending.send(Frame::data(FrameKind::FileEnd, &[])).await?;
        } else {
            return Err(unreadable(io::ErrorKind::Unsupported.into()));
        }
    }
    Ok(())
}

/// Remembers a file that was copied in below `/workspace`.
fn note_given(target: &str, bytes: u64, modified_ns: i64, given: &mut Vec<GivenFile>) {
    if let Some(path) = target.strip_prefix("/workspace/") {
        given.push(GivenFile { path: path.to_owned(), bytes, modified_ns });
    }
}

fn nanoseconds(time: SystemTime) -> i64 {
    let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).ok();
    since(time).and_then(|span| i64::try_from(span.as_nanos()).ok()).unwrap_or(0)
}

/// Sends a signal to a run and waits until the guest has done so. Says whether the guest knows the run.
pub(crate) async fn signal(channel: &Channel, run: RunId, number: i32, reason: EndReason) -> Result<bool> {
    let order = Signal { number, run: run.to_string(), reason: reason.into() };
    order_done(channel, path::SIGNAL, Frame::message(FrameKind::Signal, &order)).await
}

/// Has the guest do something to a run or a session, and waits until it is done. Says whether there is such a one.
pub(crate) async fn order_done(channel: &Channel, path: &str, order: bytes::Bytes) -> Result<bool> {
    let (mut sending, opening) = channel.request(path).await?;
    let mut receiving = ask(&mut sending, opening, order).await?;
    match receiving.next().await? {
        Some(frame) if frame.kind == FrameKind::Done => Ok(true),
        Some(frame) if frame.kind == FrameKind::NoRun => Ok(false),
        Some(frame) => Err(unexpected(&frame)),
        None => Err(Error::new(ErrorCode::SandboxLost, "the sandbox went away")),
    }
}

/// Tells the guest something that needs no words but the path, and waits until it has heard it.
pub(crate) async fn tell(channel: &Channel, path: &str) -> Result<()> {
    let (sending, opening) = channel.request(path).await?;
    sending.end()?;
    match opening.answer().await?.next().await? {
        Some(frame) if frame.kind == FrameKind::Done => Ok(()),
        Some(frame) => Err(unexpected(&frame)),
        None => Err(Error::new(ErrorCode::SandboxLost, "the sandbox went away")),
    }
}
