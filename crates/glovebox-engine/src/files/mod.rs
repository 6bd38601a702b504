//! The files of a sandbox, through its guest.
//!
//! The guest reads and writes with the rights of the user inside, never with others. Paths are resolved inside: links on the
//! way are followed within the sandbox's own root, and whatever lies in `/proc`, `/sys` or `/dev` is refused, however it was
//! reached. Everything is a stream with bounded buffers on both sides; dropping one ends the work inside.

mod copy;
mod failure;
mod streams;

use std::{io, sync::Arc};

use bytes::Bytes;
use futures_core::Stream;
use glovebox_core::{Backend, Error, ErrorCode, FilePath, Outgrown, Result, SandboxId};
use glovebox_proto::{
    Frame, FrameKind, bound,
    file::{
        ArchiveEnd, Change, ChangeFiles, FolderArchive, ListFolder, MakeFolder, ReadFile, ReadFiles, Remove, Rename,
        SetMode, SmallFile, StatFile, WatchFiles, WriteFile,
    },
    path,
};
use jiff::Timestamp;
use prost::Message;

use crate::channel::{Channel, Opening, Sending, in_time, read, unexpected};
pub use copy::Content;
use failure::{check_left_out, failed, gone};
use streams::Frames;
pub use streams::{Archive, Entries, FileEvent, FileEvents, FileStream};

/// The files of a sandbox. Cheap to clone.
#[derive(Clone)]
pub struct Files {
    channel: Channel,
    /// Who tells when the disk limit is passed, where the file system inside does not hold it by itself.
    watched: Option<(Arc<dyn Backend>, SandboxId)>,
}

/// What lies under a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The path.
    pub path: FilePath,
    /// What it is.
    pub kind: EntryKind,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its permission bits.
    pub mode: u32,
    /// When it was last modified.
    pub modified: Timestamp,
    /// Where a symbolic link points, as it is written in the link.
    pub target: Option<Bytes>,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// An ordinary file.
    File,
    /// A folder.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A pipe, a socket or a device.
    Other,
}

impl EntryKind {
    /// Its name, as it stands in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            EntryKind::File => "file",
            EntryKind::Directory => "directory",
            EntryKind::Symlink => "symlink",
            EntryKind::Other => "other",
        }
    }
}

/// Which bytes of a file; by default all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The first byte.
    pub offset: u64,
    /// How many; none for all that follow.
    pub length: Option<u64>,
}

/// How a file is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Its permission bits; by default those of the file that it replaces, or 0644.
    pub mode: Option<u32>,
    /// Whether it is safe on the disk, and not only in memory, when the call returns.
    pub sync: bool,
}

/// A place in a folder, for the next page. It keeps its meaning while the sandbox lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(pub u64);

/// Which entries of a folder; by default all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Behind this place; from the beginning without one.
    pub after: Option<Cursor>,
    /// At most so many; none for all.
    pub most: Option<u64>,
}

/// Whether a link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowLinks {
    /// What it leads to is meant.
    Yes,
    /// The link itself is meant.
    No,
}

/// Whether folders on the way are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parents {
    /// They are made, and a folder that is there already is fine.
    Make,
    /// They must be there.
    Require,
}

/// Whether something that is there is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// It is: a file by a file, an empty folder by a folder.
    Yes,
    /// It is an error.
    No,
}

/// Whether folders below count, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recursion {
    /// All that is below, at any depth.
    All,
    /// Only what was named.
    None,
}

/// Permission bits that can be set: read, write, execute, and the sticky bit.
const SETTABLE: u32 = 0o1777;

impl Files {
    pub(crate) fn new(channel: Channel, watched: Option<(Arc<dyn Backend>, SandboxId)>) -> Self {
        Files { channel, watched }
    }

    /// Reads a file, or a part of it. A file that grows meanwhile ends where it ended when it was opened.
    pub async fn read(&self, path: &FilePath, range: Range) -> Result<FileStream> {
        self.read_by(path, range, FollowLinks::Yes).await
    }

    /// The same as [`Files::read`], with links anywhere in the path followed or refused.
    pub(crate) async fn read_by(&self, path: &FilePath, range: Range, links: FollowLinks) -> Result<FileStream> {
        let (path_bytes, refuse_links) = (bytes_of(path), links == FollowLinks::No);
        let request = ReadFile { path: path_bytes, offset: range.offset, length: range.length, refuse_links };
        let mut frames = self.ask(path::READ, &request).await?;
        let entry = frames.first(FrameKind::Entry, "read").await.and_then(|frame| read(&frame));
        let entry = streams::entry(path.clone(), self.channel.judge(entry)?);
        Ok(FileStream::new(frames, entry, range))
    }

    /// Reads several small files by one request, links refused. Nothing of those that cannot be read.
    pub(crate) async fn read_small(&self, files: Vec<SmallFile>) -> Result<Vec<Option<Bytes>>> {
        let request = ReadFiles { files };
        let mut frames = self.ask(path::READ_SMALL, &request).await?;
        let mut contents = Vec::new();
        for file in &request.files {
            contents.push(self.channel.judge(match frames.receiving.next().await {
                Ok(Some(frame)) if frame.kind == FrameKind::Failed => Ok(None),
                Ok(Some(Frame { kind: FrameKind::FileData, payload })) if payload.len() <= file.length as usize => {
                    Ok(Some(payload))
                }
                Ok(other) => Err(refused(other, "read")),
                Err(error) => Err(error),
            })?);
        }
        Ok(contents)
    }

    /// Writes a file, whole or not at all: it appears under its name when all bytes are there, and replaces what was there.
    /// Returns how many bytes it has. A link of that name is replaced, and not what it leads to.
    pub async fn write(
        &self,
        path: &FilePath,
        options: WriteOptions,
        content: impl Stream<Item = io::Result<Bytes>>,
    ) -> Result<u64> {
        let mode = options.mode.map(check_mode).transpose()?;
        let request = WriteFile { path: bytes_of(path), mode, sync: options.sync };
        let (bytes, frame) = self.send(path::WRITE, &request, content).await?;
        match frame {
            Some(frame) if frame.kind == FrameKind::Done => Ok(bytes),
            other => self.channel.judge(Err(refused(other, "write"))),
        }
    }

    /// Lists a folder, in its own order, as a stream. What is made or removed meanwhile may or may not be in it.
    pub async fn list(&self, path: &FilePath, page: Page) -> Result<Entries> {
        let after = page.after.map(|cursor| cursor.0);
        let request = ListFolder { path: bytes_of(path), after, most: page.most.unwrap_or(u64::MAX) };
        Entries::begin(self.ask(path::LIST, &request).await?, path.clone()).await
    }

    /// What lies under a path.
    pub async fn stat(&self, path: &FilePath, links: FollowLinks) -> Result<Entry> {
        let request = StatFile { path: bytes_of(path), follow: links == FollowLinks::Yes };
        let asked = async { self.ask(path::STAT, &request).await?.first(FrameKind::Entry, "look at").await };
        let told = in_time(asked).await.and_then(|frame| read(&frame));
        Ok(streams::entry(path.clone(), self.channel.judge(told)?))
    }

    /// Makes a folder.
    pub async fn make_folder(&self, path: &FilePath, mode: u32, parents: Parents) -> Result<()> {
        let mode = check_mode(mode)?;
        let request = MakeFolder { path: bytes_of(path), mode, parents: parents == Parents::Make };
        in_time(self.change(Change::MakeFolder(request), "make the folder")).await
    }

    /// Gives something another path in the same mount, at once.
    pub async fn rename(&self, from: &FilePath, to: &FilePath, replace: Replace) -> Result<()> {
        let request = Rename { from: bytes_of(from), to: bytes_of(to), replace: replace == Replace::Yes };
        in_time(self.change(Change::Rename(request), "rename")).await
    }

    /// Removes a file, a link or an empty folder; with [`Recursion::All`] a folder with all that is in it.
    pub async fn remove(&self, path: &FilePath, recursion: Recursion) -> Result<()> {
        let request = Remove { path: bytes_of(path), recursive: recursion == Recursion::All };
        self.change(Change::Remove(request), "remove").await
    }

    /// Sets permission bits. What gives a program the rights of others, as set-user-id does, is refused.
    pub async fn set_mode(&self, path: &FilePath, mode: u32) -> Result<()> {
        let request = SetMode { path: bytes_of(path), mode: check_mode(mode)? };
        in_time(self.change(Change::SetMode(request), "set the mode of")).await
    }

    /// What is in a folder, as a tar archive whose names count from that folder. Pipes, sockets and devices are not in it.
    /// When something could not be packed, the archive is complete but for that, and an error after its last byte says so.
    pub async fn pull_tar(&self, path: &FilePath) -> Result<Archive> {
        Archive::begin(self.ask(path::PULL, &FolderArchive { path: bytes_of(path) }).await?).await
    }

    /// Makes files from a tar archive in a folder that is there. What has the same name is replaced. Nothing is made through
    /// a link; devices and pipes are left out, which is an error after everything else was made.
    pub async fn push_tar(&self, path: &FilePath, archive: impl Stream<Item = io::Result<Bytes>>) -> Result<()> {
        let request = FolderArchive { path: bytes_of(path) };
        match self.send(path::PUSH, &request, archive).await?.1 {
            Some(frame) if frame.kind == FrameKind::ArchiveEnd => check_left_out(&read::<ArchiveEnd>(&frame)?),
            other => self.channel.judge(Err(refused(other, "unpack into"))),
        }
    }

    /// Tells what happens to a file, or in a folder, from the moment this returns. What was lost is told as
    /// [`FileEvent::Lost`]. The stream ends when what is watched is removed or renamed.
    pub async fn watch(&self, path: &FilePath, recursion: Recursion) -> Result<FileEvents> {
        let request = WatchFiles { path: bytes_of(path), recursive: recursion == Recursion::All };
        let mut frames = self.ask(path::WATCH, &request).await?;
        frames.first(FrameKind::Events, "watch").await?;
        Ok(FileEvents::new(frames, path.clone()))
    }

    /// Sends a request that is one message.
    async fn ask(&self, path: &str, request: &impl Message) -> Result<Frames> {
        let asked = async {
            let (sending, opening) = self.channel.request(path).await?;
            sending.send_last(Frame::message(FrameKind::Query, request)).await?;
            opening.answer().await
        };
        let receiving = self.channel.judge(in_time(asked).await)?;
        Ok(Frames { receiving, channel: self.channel.clone() })
    }

    async fn change(&self, change: Change, act: &str) -> Result<()> {
        let mut frames = self.ask(path::CHANGE, &ChangeFiles { change: Some(change) }).await?;
        frames.first(FrameKind::Done, act).await.map(drop)
    }

    /// Waits until a limit is passed that only a watch holds.
    async fn outgrown(&self) -> Outgrown {
        match &self.watched {
            Some((backend, id)) => backend.watched_limit(*id, None).await,
            None => std::future::pending().await,
        }
    }

    /// Sends a request with content behind it. Returns how many bytes it had, and the answer, which may come before the end
    /// of the content when that is refused.
    async fn send(
        &self,
        path: &str,
        request: &impl Message,
        content: impl Stream<Item = io::Result<Bytes>>,
    ) -> Result<(u64, Option<Frame>)> {
        let (mut sending, opening) = self.channel.request(path).await?;
        sending.send(Frame::message(FrameKind::Query, request)).await?;
        let mut sent = 0;
        let mut answer = std::pin::pin!(first_answer(opening));
        tokio::select! {
            biased;
            frame = &mut answer => return Ok((sent, self.channel.judge(frame)?)),
            outgrown = self.outgrown() => return Err(failure::outgrown(&outgrown)),
            finished = send_content(sending, content, &mut sent) => match finished {
                // A guest that refuses the rest has said why.
                Err(error) if error.code == ErrorCode::SandboxLost => {}
                other => other?,
            },
        }
        Ok((sent, self.channel.judge(answer.await)?))
    }
}

async fn first_answer(opening: Opening) -> Result<Option<Frame>> {
    opening.answer().await?.next().await
}

async fn send_content(
    mut sending: Sending,
    content: impl Stream<Item = io::Result<Bytes>>,
    sent: &mut u64,
) -> Result<()> {
    let mut content = std::pin::pin!(content);
    while let Some(chunk) = std::future::poll_fn(|cx| content.as_mut().poll_next(cx)).await {
        let chunk = chunk.map_err(|error| {
            Error::new(ErrorCode::FileUnreadable, "what should be copied in cannot be read").because(error)
        })?;
        for part in chunk.chunks(bound::CHUNK) {
            sending.send(Frame::data(FrameKind::FileData, part)).await?;
            *sent += part.len() as u64;
        }
    }
    sending.send(Frame::data(FrameKind::FileEnd, &[])).await?;
    sending.end()
}

/// The error for an answer that is not the one that was hoped for.
pub(crate) fn refused(frame: Option<Frame>, act: &str) -> Error {
    match frame {
        Some(frame) if frame.kind == FrameKind::Failed => match read(&frame) {
            Ok(told) => failed(&told, act),
            Err(error) => error,
        },
        Some(frame) => unexpected(&frame),
        None => gone(),
    }
}

fn check_mode(mode: u32) -> Result<u32> {
    if mode & !SETTABLE == 0 {
        return Ok(mode);
    }
    let message = format!("the mode {mode:o} cannot be set: only permissions and the sticky bit can, 0 to 1777");
    Err(Error::new(ErrorCode::InvalidValue, message))
}

fn bytes_of(path: &FilePath) -> Vec<u8> {
    path.as_bytes().to_vec()
}
