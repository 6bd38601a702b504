//! Telling what happens to files.
//!
//! Theory of operation. One inotify instance for each request, and for each folder one watch. The kernel keeps what happened
//! in a queue of a fixed length; we read it only as fast as the host takes events, so a slow host makes the kernel's queue
//! overflow and not our memory, and the kernel says so, which becomes the event `lost`.
//!
//! A new folder is watched as soon as its event is read. What was made in it before that is found by looking: first the
//! watch, then the look, so nothing falls between the two, and what is seen both ways is told once. A rename is two events
//! with the same cookie, which the kernel puts side by side; one without the other came from elsewhere or went there.

mod tree;

use std::{collections::HashSet, io, mem::MaybeUninit, os::fd::OwnedFd, time::Duration};

use bytes::Bytes;
use glovebox_proto::{
    Frame, FrameKind,
    file::{EventKind, FileEvent, FileEvents, WatchFiles},
};
use h2::SendStream;
use prost::Message;
use rustix::{
    fs::{
        OFlags,
        inotify::{self, CreateFlags, ReadFlags, Reader},
    },
    io::Errno,
};
use tokio::io::{Interest, unix::AsyncFd};

use super::{At, Trouble, done, open::open};
use crate::{stream, sys};
use tree::Tree;

/// Events are sent when there are so many, or about so many bytes of them.
const MOST_EVENTS: usize = 256;
const FRAME: usize = 32 * 1024;
/// So many paths that were found by looking are remembered.
const MOST_SEEN: usize = 10_000;
/// How long the second half of a rename may take. The kernel writes both at once, so this is far more than needed.
const OTHER_HALF: Duration = Duration::from_millis(20);

/// Tells what happens until the host goes away, or what is watched.
pub(super) async fn watch(request: &WatchFiles, out: &mut SendStream<Bytes>) -> Result<(), Trouble> {
    let path = &request.path;
    // It is not kept open: the kernel tells of the end of a file only when nobody has it open any more.
    let top = rustix::fs::fstat(open(path, OFlags::PATH)?).at(path)?;
    let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).at(path)?;
    let mut tree = Tree::new(queue.try_clone()?, path, &top, request.recursive);
    let mut watcher = Watcher { queue: sys::register(queue)?, told: Told::default(), moved: None };
    tree.watch_top().at(path)?;
    watcher.look(&mut tree, Vec::new(), Tell::Nothing, out).await?;
    // The first frame is empty and says that all that happens from now on is told.
    stream::send(out, Frame::message(FrameKind::Events, &FileEvents::default())).await?;
    watcher.told.send(out).await?;
    loop {
        for event in watcher.next_events(out).await? {
            if watcher.take(&mut tree, event, out).await? == Next::Ended {
                watcher.told.send(out).await?;
                return done(out).await;
            }
        }
        watcher.told.send(out).await?;
    }
}

/// An event as the kernel tells it.
struct Raw {
    watch: i32,
    flags: ReadFlags,
    cookie: u32,
    name: Vec<u8>,
}

/// The first half of a rename.
struct Moved {
    cookie: u32,
    path: Vec<u8>,
    folder: bool,
}

/// What a look tells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tell {
    /// Nothing: what is there was there before.
    Nothing,
    /// What is in folders that are new.
    WhatIsNew,
}

/// Whether there is more to tell.
#[derive(PartialEq, Eq)]
enum Next {
    More,
    Ended,
}

struct Watcher {
    queue: AsyncFd<OwnedFd>,
    told: Told,
    moved: Option<Moved>,
}

impl Watcher {
    /// Waits for the next events.
    async fn next_events(&mut self, out: &mut SendStream<Bytes>) -> Result<Vec<Raw>, Trouble> {
        match read_queue(self.queue.get_ref()) {
            Ok(events) => return Ok(events),
            Err(Errno::AGAIN) => {}
            Err(error) => return Err(error).at(b""),
        }
        // Nothing is under way, so what was seen by looking cannot be told a second time any more.
        self.told.seen.clear();
        let readable = self.queue.async_io(Interest::READABLE, |queue| Ok(read_queue(queue)?));
        if self.moved.is_some() {
            match tokio::time::timeout(OTHER_HALF, readable).await {
                Ok(events) => return Ok(events?),
                // The other half does not come.
                Err(_) => return Ok(Vec::from([NOTHING])),
            }
        }
        tokio::select! {
            events = readable => Ok(events?),
            () = stream::gone(out) => Err(Trouble::Stream(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Tells one event.
    async fn take(&mut self, tree: &mut Tree, event: Raw, out: &mut SendStream<Bytes>) -> Result<Next, Trouble> {
        let folder = event.flags.contains(ReadFlags::ISDIR);
        let second_half = event.flags.contains(ReadFlags::MOVED_TO)
            && self.moved.as_ref().is_some_and(|moved| moved.cookie == event.cookie);
        if !second_half && let Some(moved) = self.moved.take() {
            tree.forget(&moved.path);
            self.told.add(EventKind::Remove, moved.path, moved.folder);
        }
        if event.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.told.lost("more happened at once than could be told");
            // New folders may be among what was lost.
            self.look(tree, Vec::new(), Tell::WhatIsNew, out).await?;
            return Ok(Next::More);
        }
        if event.flags.contains(ReadFlags::IGNORED) {
            tree.ended(event.watch);
            return Ok(Next::More);
        }
        let Some(path) = tree.path(event.watch, &event.name) else { return Ok(Next::More) };
        if event.flags.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::ATTRIB) {
            // What happens to a folder below is told by the one above it. A file that a program has open loses its name
            // first, which only changes its attributes.
            if path.is_empty() && (!event.flags.contains(ReadFlags::ATTRIB) || tree.top_is_gone()) {
                self.told.add(EventKind::Remove, path, tree.is_folder());
                return Ok(Next::Ended);
            }
        } else if let Some(moved) = self.moved.take() {
            tree.rename(&moved.path, &path);
            let known = !folder || tree.knows(&path);
            self.told.renamed(moved.path, path.clone(), folder);
            if !known {
                self.look(tree, path, Tell::WhatIsNew, out).await?;
            }
        } else if event.flags.contains(ReadFlags::MOVED_FROM) {
            self.moved = Some(Moved { cookie: event.cookie, path, folder });
        } else if event.flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            if !self.told.seen.remove(&path) {
                self.told.add(EventKind::Create, path.clone(), folder);
            }
            if folder {
                self.look(tree, path, Tell::WhatIsNew, out).await?;
            }
        } else if event.flags.contains(ReadFlags::MODIFY) {
            self.told.add(EventKind::Write, path, false);
        } else if event.flags.contains(ReadFlags::DELETE) {
            self.told.seen.remove(&path);
            self.told.add(EventKind::Remove, path, folder);
        }
        self.told.send_if_full(out).await?;
        Ok(Next::More)
    }

    /// Watches a folder and all below it, and tells what is in those that were not watched before.
    async fn look(
        &mut self,
        tree: &mut Tree,
        folder: Vec<u8>,
        tell: Tell,
        out: &mut SendStream<Bytes>,
    ) -> Result<(), Trouble> {
        if !tree.is_recursive() {
            return Ok(());
        }
        let mut waiting = vec![folder];
        while let Some(folder) = waiting.pop() {
            let is_new = match tree.watch(&folder) {
                Ok(is_new) => is_new,
                Err(tree::NotWatched::Gone) => continue,
                Err(tree::NotWatched::Full(why)) => {
                    self.told.full(folder, why);
                    continue;
                }
                Err(tree::NotWatched::Refused(errno)) => {
                    self.told.refused(folder, errno);
                    continue;
                }
            };
            let Ok(open) = tree.open(&folder) else { continue };
            while let Ok(found) = tree::entries(&open)
                && !found.is_empty()
            {
                for (name, is_folder) in found {
                    let path = tree::below(&folder, &name);
                    if is_new && tell == Tell::WhatIsNew {
                        self.told.found(path.clone(), is_folder);
                        self.told.send_if_full(out).await?;
                    }
                    match is_folder {
                        true if waiting.len() < tree::MOST => waiting.push(path),
                        true => self.told.full(path, tree::full()),
                        false => {}
                    }
                }
                stream::breathe(out).await?;
            }
        }
        Ok(())
    }
}

/// Stands for the time that has passed.
const NOTHING: Raw = Raw { watch: -1, flags: ReadFlags::empty(), cookie: 0, name: Vec::new() };

/// Reads some events at once.
fn read_queue(queue: &OwnedFd) -> rustix::io::Result<Vec<Raw>> {
    let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
    let mut reader = Reader::new(queue, &mut buffer);
    let mut events = Vec::new();
    loop {
        let event = reader.next()?;
        let name = event.file_name().map(|name| name.to_bytes().to_vec()).unwrap_or_default();
        events.push(Raw { watch: event.wd(), flags: event.events(), cookie: event.cookie(), name });
        if reader.is_buffer_empty() {
            return Ok(events);
        }
    }
}

/// Events on their way to the host.
#[derive(Default)]
struct Told {
    events: Vec<FileEvent>,
    bytes: usize,
    /// Paths that were found by looking, whose own events may still come.
    seen: HashSet<Vec<u8>>,
    /// Files whose writing is among the events already.
    written: HashSet<Vec<u8>>,
    /// Whether it was said that there are not enough watches.
    said_full: bool,
    /// Whether it was said that a folder may not be watched.
    said_refused: bool,
}

impl Told {
    fn add(&mut self, kind: EventKind, path: Vec<u8>, folder: bool) {
        match kind {
            EventKind::Write if !self.written.insert(path.clone()) => return,
            EventKind::Write => {}
            // A file that is written once more after this is told once more.
            _ => drop(self.written.remove(&path)),
        }
        self.push(FileEvent { kind: kind.into(), path: path.into(), folder, ..FileEvent::default() });
    }

    /// Tells what was found by looking.
    fn found(&mut self, path: Vec<u8>, folder: bool) {
        // Of very many, some may be told twice.
        if self.seen.len() < MOST_SEEN {
            self.seen.insert(path.clone());
        }
        self.add(EventKind::Create, path, folder);
    }

    fn renamed(&mut self, from: Vec<u8>, to: Vec<u8>, folder: bool) {
        self.written.clear();
        let kind = EventKind::Rename.into();
        self.push(FileEvent { kind, path: to.into(), from: from.into(), folder, why: String::new() });
    }

    fn lost(&mut self, why: &str) {
        self.push(FileEvent { kind: EventKind::Lost.into(), why: why.to_owned(), ..FileEvent::default() });
    }

    /// Says, once, that there are not enough watches.
    fn full(&mut self, folder: Vec<u8>, why: String) {
        if !std::mem::replace(&mut self.said_full, true) {
            self.lost_below(folder, why);
        }
    }

    /// Says, once, that a folder may not be watched.
    fn refused(&mut self, folder: Vec<u8>, errno: Errno) {
        if !std::mem::replace(&mut self.said_refused, true) {
            let why = format!("{}; what happens here and in other such folders is not told", io::Error::from(errno));
            self.lost_below(folder, why);
        }
    }

    fn lost_below(&mut self, folder: Vec<u8>, why: String) {
        let (kind, path) = (EventKind::Lost.into(), folder.into());
        self.push(FileEvent { kind, path, from: Bytes::new(), folder: true, why });
    }

    fn push(&mut self, event: FileEvent) {
        self.bytes += event.encoded_len();
        self.events.push(event);
    }

    async fn send_if_full(&mut self, out: &mut SendStream<Bytes>) -> Result<(), Trouble> {
        match self.events.len() >= MOST_EVENTS || self.bytes >= FRAME {
            true => self.send(out).await,
            false => Ok(()),
        }
    }

    async fn send(&mut self, out: &mut SendStream<Bytes>) -> Result<(), Trouble> {
        let events = std::mem::take(&mut self.events);
        self.bytes = 0;
        self.written.clear();
        if !events.is_empty() {
            stream::send(out, Frame::message(FrameKind::Events, &FileEvents { events })).await?;
        }
        Ok(())
    }
}
