//! Files in and out, under the id of the commands: the guest's file system id is theirs for good.
//!
//! Two kinds of requests. A run's own input files ([`put`]) and artifacts ([`fetch`]) are opened beneath the root without
//! following any symbolic link. All others name a path as a program inside would, and links on the way are followed as they
//! would be for a program: the guest is inside, with the rights of the commands, so they lead nowhere else. What lies in a
//! file system of the kernel's own is refused, however it was reached; pipes, sockets and devices are never waited for.
//!
//! The guest has one thread, so long work is done in pieces, and others get their turn in between.

mod archive;
mod change;
mod fetch;
mod list;
mod open;
mod put;
mod read;
mod remove;
mod survey;
mod watch;
mod write;

use std::io;

use bytes::Bytes;
use glovebox_proto::{
    Frame, FrameKind,
    file::{FileFailed, Obstacle},
    path,
};
use h2::{RecvStream, SendStream};
use rustix::io::Errno;

pub(crate) use fetch::fetch;
pub(crate) use put::put;

use crate::{
    Ground,
    stream::{self, Frames},
};

/// Why a request was not done.
enum Trouble {
    /// The stream to the host is broken, and there is nobody to tell.
    Stream(io::Error),
    /// The host is told.
    File(FileFailed),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Stream(error)
    }
}

impl Trouble {
    fn new(obstacle: Obstacle, path: &[u8]) -> Self {
        Trouble::File(FileFailed { obstacle: obstacle.into(), errno: 0, path: path.to_vec(), detail: String::new() })
    }

    fn errno(errno: Errno, path: &[u8]) -> Self {
        let failed = FileFailed { errno: errno.raw_os_error(), path: path.to_vec(), ..FileFailed::default() };
        Trouble::File(failed)
    }
}

/// Names the path that a failure was about.
trait At<T> {
    fn at(self, path: &[u8]) -> Result<T, Trouble>;
}

impl<T> At<T> for rustix::io::Result<T> {
    fn at(self, path: &[u8]) -> Result<T, Trouble> {
        self.map_err(|errno| Trouble::errno(errno, path))
    }
}

/// Whether this is the path of a request about files.
pub(crate) fn serves(path: &str) -> bool {
    let reading = [path::READ, path::READ_SMALL, path::LIST, path::STAT, path::SURVEY, path::PULL, path::WATCH];
    reading.contains(&path) || [path::WRITE, path::CHANGE, path::PUSH].contains(&path)
}

/// Serves a request about files.
pub(crate) async fn serve(ground: &Ground, path: &str, body: RecvStream, mut out: SendStream<Bytes>) -> io::Result<()> {
    let mut frames = Frames::new(body);
    let Some(first) = frames.next().await? else { return Ok(()) };
    frames.release(first.payload.len())?;
    // Without a root of its own the guest would follow links to files of the host, so these requests are not served there.
    let answered = match ground.places.is_empty() {
        true => answer(path, &first, &mut frames, &mut out).await,
        false => Err(Trouble::errno(Errno::OPNOTSUPP, b"")),
    };
    match answered {
        Ok(()) => {}
        Err(Trouble::File(failed)) => stream::send(&mut out, Frame::message(FrameKind::Failed, &failed)).await?,
        Err(Trouble::Stream(error)) => return Err(error),
    }
    stream::end(&mut out)
}

async fn answer(path: &str, first: &Frame, frames: &mut Frames, out: &mut SendStream<Bytes>) -> Result<(), Trouble> {
    match path {
        path::READ => read::read(&message(first)?, out).await,
        path::READ_SMALL => read::read_small(&message(first)?, out).await,
        path::WRITE => write::write(&message(first)?, frames, out).await,
        path::LIST => list::list(&message(first)?, out).await,
        path::SURVEY => survey::survey(&message(first)?, out).await,
        path::STAT => list::stat(&message(first)?, out).await,
        path::CHANGE => change::change(message(first)?, out).await,
        path::PULL => archive::pull(&message(first)?, out).await,
        path::PUSH => archive::push(&message(first)?, frames, out).await,
        path::WATCH => watch::watch(&message(first)?, out).await,
        _ => Err(Trouble::Stream(io::ErrorKind::InvalidInput.into())),
    }
}

fn message<M: prost::Message + Default>(frame: &Frame) -> io::Result<M> {
    frame.read().map_err(io::Error::other)
}

/// The last word of a request that was done.
async fn done(out: &mut SendStream<Bytes>) -> Result<(), Trouble> {
    Ok(stream::send(out, Frame::data(FrameKind::Done, &[])).await?)
}
