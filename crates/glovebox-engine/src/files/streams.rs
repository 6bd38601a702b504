//! What comes out of a sandbox piece by piece. A guest that says more than it was asked for breaks the rules of the channel.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_core::Stream;
use glovebox_core::{FilePath, Result};
use glovebox_proto::{
    Frame, FrameKind, bound,
    file::{self, ArchiveEnd, EventKind, ListEnd},
};
use jiff::Timestamp;

use super::{
    Cursor, Entry, EntryKind, Range,
    failure::{check_left_out, gone},
    refused,
};
use crate::channel::{Channel, Receiving, read, unexpected, violation};

/// What a guest answers. One that breaks the rules is not spoken with again.
pub(super) struct Frames {
    pub(super) receiving: Receiving,
    pub(super) channel: Channel,
}

impl Frames {
    /// The first frame, if it is of the kind that was hoped for.
    pub(super) async fn first(&mut self, kind: FrameKind, act: &str) -> Result<Frame> {
        let first = match self.receiving.next().await {
            Ok(Some(frame)) if frame.kind == kind => Ok(frame),
            Ok(other) => Err(refused(other, act)),
            Err(error) => Err(error),
        };
        self.channel.judge(first)
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame>>> {
        self.receiving.poll_next(cx)
    }
}

/// The bytes of a file as they come.
pub struct FileStream {
    frames: Frames,
    entry: Entry,
    left: u64,
    ended: bool,
}

impl FileStream {
    pub(super) fn new(frames: Frames, entry: Entry, range: Range) -> Self {
        let left = entry.bytes.saturating_sub(range.offset).min(range.length.unwrap_or(u64::MAX));
        FileStream { frames, entry, left, ended: false }
    }

    /// What is known of the file since it was opened.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// The next bytes; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        poll_fn(|cx| self.poll_judged(cx)).await
    }

    fn poll_judged(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        let next = ready!(self.poll(cx));
        Poll::Ready(self.frames.channel.judge(next))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        if self.ended {
            return Poll::Ready(Ok(None));
        }
        Poll::Ready(match ready!(self.frames.poll_next(cx))? {
            Some(Frame { kind: FrameKind::FileData, payload }) => match self.left.checked_sub(payload.len() as u64) {
                Some(left) => {
                    self.left = left;
                    Ok(Some(payload))
                }
                None => Err(violation("the guest sent more of a file than it was asked for".to_owned())),
            },
            Some(Frame { kind: FrameKind::Done, .. }) => {
                self.ended = true;
                Ok(None)
            }
            other => Err(refused(other, "read")),
        })
    }
}

impl Stream for FileStream {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        self.poll_judged(cx).map(Result::transpose)
    }
}

/// The bytes of a tar archive as they come.
pub struct Archive {
    frames: Frames,
    first: Option<Frame>,
    ended: bool,
}

impl Archive {
    /// Waits for the first bytes, so that a folder that cannot be packed at all is known at once.
    pub(super) async fn begin(mut frames: Frames) -> Result<Self> {
        let first = frames.first(FrameKind::FileData, "pack").await?;
        Ok(Archive { frames, first: Some(first), ended: false })
    }

    /// The next bytes; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        poll_fn(|cx| self.poll_judged(cx)).await
    }

    fn poll_judged(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        let next = ready!(self.poll(cx));
        Poll::Ready(self.frames.channel.judge(next))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Ok(Some(first.payload)));
        }
        if self.ended {
            return Poll::Ready(Ok(None));
        }
        Poll::Ready(match ready!(self.frames.poll_next(cx))? {
            Some(Frame { kind: FrameKind::FileData, payload }) => Ok(Some(payload)),
            Some(frame) if frame.kind == FrameKind::ArchiveEnd => {
                self.ended = true;
                check_left_out(&read::<ArchiveEnd>(&frame)?).map(|()| None)
            }
            other => Err(refused(other, "pack")),
        })
    }
}

impl Stream for Archive {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        self.poll_judged(cx).map(Result::transpose)
    }
}

/// The entries of a folder as they come.
pub struct Entries {
    frames: Frames,
    folder: FilePath,
    waiting: VecDeque<file::Entry>,
    cursor: Option<Cursor>,
    ended: bool,
}

impl Entries {
    /// Waits for the first entries, so that a folder that cannot be listed is known at once.
    pub(super) async fn begin(frames: Frames, folder: FilePath) -> Result<Self> {
        let mut entries = Entries { frames, folder, waiting: VecDeque::new(), cursor: None, ended: false };
        let first = poll_fn(|cx| entries.poll_more(cx)).await;
        entries.frames.channel.judge(first)?;
        Ok(entries)
    }

    /// The next entry; none at the end.
    pub async fn next(&mut self) -> Result<Option<Entry>> {
        poll_fn(|cx| self.poll_judged(cx)).await
    }

    /// Where the next page begins, when all entries of this one were taken and there may be more.
    pub fn cursor(&self) -> Option<Cursor> {
        self.cursor
    }

    fn poll_judged(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Entry>>> {
        let next = ready!(self.poll(cx));
        Poll::Ready(self.frames.channel.judge(next))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Entry>>> {
        while self.waiting.is_empty() && !self.ended {
            ready!(self.poll_more(cx))?;
        }
        let next = self.waiting.pop_front();
        Poll::Ready(next.map(|told| name_in(&self.folder, &told.name).map(|path| entry(path, told))).transpose())
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(match ready!(self.frames.poll_next(cx))? {
            Some(frame) if frame.kind == FrameKind::Entries => {
                check_size(&frame)?;
                self.waiting = read::<file::Entries>(&frame)?.entries.into();
                Ok(())
            }
            Some(frame) if frame.kind == FrameKind::ListEnd => {
                self.ended = true;
                self.cursor = read::<ListEnd>(&frame)?.cursor.map(Cursor);
                Ok(())
            }
            other => Err(refused(other, "list")),
        })
    }
}

impl Stream for Entries {
    type Item = Result<Entry>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Entry>>> {
        self.poll_judged(cx).map(Result::transpose)
    }
}

/// Something that happened to files.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileEvent {
    /// Something is new.
    Create {
        /// Its path.
        path: FilePath,
        /// Whether it is a folder.
        folder: bool,
    },
    /// A file was written.
    Write {
        /// Its path.
        path: FilePath,
    },
    /// Something is gone, or has gone where nobody watches.
    Remove {
        /// The path that it had.
        path: FilePath,
        /// Whether it was a folder.
        folder: bool,
    },
    /// Something has another path.
    Rename {
        /// The path that it had.
        from: FilePath,
        /// The path that it has.
        to: FilePath,
        /// Whether it is a folder.
        folder: bool,
    },
    /// Something happened, or will happen below a folder, that cannot be told.
    Lost {
        /// Below which folder; the watched one when anything may have been lost.
        path: FilePath,
        /// Why.
        why: String,
    },
}

/// What happens to files as it happens.
pub struct FileEvents {
    frames: Frames,
    top: FilePath,
    waiting: VecDeque<file::FileEvent>,
    ended: bool,
}

impl FileEvents {
    pub(super) fn new(frames: Frames, top: FilePath) -> Self {
        FileEvents { frames, top, waiting: VecDeque::new(), ended: false }
    }

    /// The next event; none when what is watched is gone.
    pub async fn next(&mut self) -> Result<Option<FileEvent>> {
        poll_fn(|cx| self.poll_judged(cx)).await
    }

    fn poll_judged(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<FileEvent>>> {
        let next = ready!(self.poll(cx));
        Poll::Ready(self.frames.channel.judge(next))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<FileEvent>>> {
        while self.waiting.is_empty() && !self.ended {
            match ready!(self.frames.poll_next(cx))? {
                Some(frame) if frame.kind == FrameKind::Events => {
                    check_size(&frame)?;
                    self.waiting = read::<file::FileEvents>(&frame)?.events.into();
                }
                Some(frame) if frame.kind == FrameKind::Done => self.ended = true,
                Some(frame) if frame.kind == FrameKind::Failed => {
                    return Poll::Ready(Err(refused(Some(frame), "watch")));
                }
                Some(frame) => return Poll::Ready(Err(unexpected(&frame))),
                None => return Poll::Ready(Err(gone())),
            }
        }
        let next = self.waiting.pop_front();
        Poll::Ready(next.map(|told| event(&self.top, told)).transpose())
    }
}

impl Stream for FileEvents {
    type Item = Result<FileEvent>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<FileEvent>>> {
        self.poll_judged(cx).map(Result::transpose)
    }
}

fn event(top: &FilePath, told: file::FileEvent) -> Result<FileEvent> {
    let path = path_below(top, &told.path)?;
    let folder = told.folder;
    Ok(match told.kind() {
        EventKind::Create => FileEvent::Create { path, folder },
        EventKind::Write => FileEvent::Write { path },
        EventKind::Remove => FileEvent::Remove { path, folder },
        EventKind::Rename => FileEvent::Rename { from: path_below(top, &told.from)?, to: path, folder },
        EventKind::Lost => FileEvent::Lost { path, why: told.why.chars().take(200).collect() },
    })
}

/// What the guest told of a file, as a value.
pub(super) fn entry(path: FilePath, told: file::Entry) -> Entry {
    let kind = match told.kind() {
        file::EntryKind::File => EntryKind::File,
        file::EntryKind::Directory => EntryKind::Directory,
        file::EntryKind::Symlink => EntryKind::Symlink,
        file::EntryKind::Other => EntryKind::Other,
    };
    // Every number of this size is a time.
    let modified = Timestamp::from_nanosecond(told.modified_ns.into()).unwrap_or(Timestamp::UNIX_EPOCH);
    let target = (kind == EntryKind::Symlink).then_some(told.target);
    Entry { path, kind, bytes: told.bytes, mode: told.mode & 0o7777, modified, target }
}

/// The path of a name that the guest told.
fn name_in(folder: &FilePath, name: &[u8]) -> Result<FilePath> {
    if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') || name.contains(&0) {
        return Err(violation("the guest sent something that is no name".to_owned()));
    }
    folder.join(name)
}

fn path_below(top: &FilePath, path: &[u8]) -> Result<FilePath> {
    if path.starts_with(b"/") || path.contains(&0) || path.split(|byte| *byte == b'/').any(|part| part == b"..") {
        return Err(violation("the guest sent something that is no path".to_owned()));
    }
    top.join(path)
}

/// A message takes more room when it is read than when it travels, so what may come is smaller than other frames.
fn check_size(frame: &Frame) -> Result<()> {
    match frame.payload.len() <= bound::LISTED {
        true => Ok(()),
        false => Err(violation("the guest sent more at once than it may".to_owned())),
    }
}
