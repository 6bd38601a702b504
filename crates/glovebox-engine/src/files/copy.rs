//! Files and folders of the host, copied in and out.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
    path::Path,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_core::Stream;
use glovebox_archive::{ArchiveError, LeftOut, LinkRule, Pack, Unpack};
use glovebox_core::{Error, ErrorCode, FilePath, Result, shown};
use glovebox_proto::bound;
use rustix::fs::{Mode, OFlags};
use tokio::sync::mpsc;

use super::{Files, failure::left_out};

/// What goes into a sandbox, as a stream of bytes.
#[derive(Debug)]
pub enum Content {
    /// These bytes.
    Bytes(Bytes),
    /// A file of the host from where it stands. It is read where it is polled, so it should be an ordinary one.
    File(File),
    /// What comes through a channel; its end is the end, and an error means that nothing is written.
    Channel(mpsc::Receiver<io::Result<Bytes>>),
}

impl Stream for Content {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        match &mut *self {
            Content::Bytes(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Bytes(bytes) => Poll::Ready(Some(Ok(bytes.split_to(bytes.len().min(bound::CHUNK))))),
            Content::Channel(chunks) => chunks.poll_recv(cx),
            Content::File(file) => {
                let mut buffer = vec![0; bound::CHUNK];
                let read = file.read(&mut buffer);
                Poll::Ready(
                    read.map(|length| buffer.truncate(length))
                        .map_or_else(|error| Some(Err(error)), |()| (!buffer.is_empty()).then(|| Ok(buffer.into()))),
                )
            }
        }
    }
}

impl Files {
    /// Copies what is in a folder of the host into a folder inside. Links stay links. When something could not be copied,
    /// an error says so after everything else was.
    pub async fn push_folder(&self, source: &Path, path: &FilePath) -> Result<()> {
        let folder = open_folder(source).map_err(|error| unreadable(source, error))?;
        self.push_opened_folder(folder, source, path).await
    }

    /// The same as [`Files::push_folder`] for a folder that is open. `source` is how it is called in errors.
    pub async fn push_opened_folder(&self, folder: OwnedFd, source: &Path, path: &FilePath) -> Result<()> {
        let pack = Pack::folder(folder).map_err(|error| unreadable(source, error))?;
        let mut packing = Packing { pack, failed: None };
        let pushed = self.push_tar(path, &mut packing).await;
        match packing.failed {
            Some(error) => Err(error),
            None => pushed.and_then(|()| complete(packing.pack.left_out())),
        }
    }

    /// Copies a whole workspace in, but for what lies at some paths of it. Says what could not be copied, if there was any.
    pub(crate) async fn push_workspace(
        &self,
        folder: OwnedFd,
        source: &Path,
        (path, without): (&FilePath, BTreeSet<Vec<u8>>),
    ) -> Result<Option<Error>> {
        let pack = Pack::folder(folder).map_err(|error| unreadable(source, error))?.without(without);
        let mut packing = Packing { pack, failed: None };
        let pushed = self.push_tar(path, &mut packing).await;
        if let Some(error) = packing.failed {
            return Err(error);
        }
        match pushed {
            Ok(()) => Ok(complete(packing.pack.left_out()).and_then(|()| complete(packing.pack.specials())).err()),
            // The guest could not make some of it, and has made the rest.
            Err(error) if error.code == ErrorCode::FileUnreadable => Ok(Some(error)),
            Err(error) => Err(error),
        }
    }

    /// Copies what is in a folder inside into a folder of the host. Nothing is made outside that folder, nothing through a
    /// link; links that would lead out of it, hard links and devices are not made, and modes lose what gives a program the
    /// rights of others. When something was left out, an error says so after everything else was copied.
    pub async fn pull_folder(&self, path: &FilePath, target: &Path) -> Result<()> {
        let folder = open_folder(target).map_err(|error| {
            let message = format!("cannot write into the folder {}", target.display());
            Error::new(ErrorCode::HostIo, message).because(error)
        })?;
        self.pull_into_folder(path, folder, target).await
    }

    /// The same as [`Files::pull_folder`] for a folder that is open. `target` is how it is called in errors.
    pub async fn pull_into_folder(&self, path: &FilePath, folder: OwnedFd, target: &Path) -> Result<()> {
        let mut archive = self.pull_tar(path).await?;
        let mut unpack = Unpack::into_folder(folder, LinkRule::Inward);
        let missing = loop {
            match archive.next().await {
                Ok(Some(bytes)) => {
                    self.channel.judge(unpack.push(&bytes).map_err(|error| unpack_failed(error, target)))?
                }
                Ok(None) => break Ok(()),
                // The archive itself is whole, and only then is this said.
                Err(error) if error.code == ErrorCode::FileUnreadable => break Err(error),
                Err(error) => return Err(error),
            }
        };
        let left_out = self.channel.judge(unpack.finish().map_err(|error| unpack_failed(error, target)))?;
        missing.and_then(|()| complete(&left_out))
    }
}

fn unreadable(source: &Path, error: io::Error) -> Error {
    let message = format!("the folder {} cannot be copied", source.display());
    Error::new(ErrorCode::FileUnreadable, message).because(error)
}

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// A folder of the host as a stream of archive bytes.
struct Packing {
    pack: Pack,
    failed: Option<Error>,
}

impl Stream for Packing {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let mut buffer = Vec::with_capacity(bound::CHUNK + 2048);
        match self.pack.fill(&mut buffer, bound::CHUNK) {
            Ok(_) if !buffer.is_empty() => Poll::Ready(Some(Ok(buffer.into()))),
            Ok(false) => Poll::Ready(None),
            Ok(true) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Err(error) => {
                let (path, code) = match &error {
                    ArchiveError::TooLarge(path) => (path.clone(), ErrorCode::TooLarge),
                    ArchiveError::Io(path, _) => (path.clone(), ErrorCode::FileUnreadable),
                    ArchiveError::Malformed(_) => (Vec::new(), ErrorCode::Internal),
                };
                self.failed = Some(Error::new(code, format!("cannot copy {}: {error}", shown(&path))));
                Poll::Ready(Some(Err(io::ErrorKind::Other.into())))
            }
        }
    }
}

fn complete(missing: &LeftOut) -> Result<()> {
    let Some((path, why)) = &missing.first else { return Ok(()) };
    Err(left_out(missing.count, &shown(path), &why.to_string()))
}

fn unpack_failed(error: ArchiveError, target: &Path) -> Error {
    match error {
        ArchiveError::Io(path, error) => {
            let message = format!("cannot make {}/{}", target.display(), shown(&path));
            Error::new(ErrorCode::HostIo, message).because(error)
        }
        other => Error::new(ErrorCode::ChannelViolation, format!("the guest sent what is no archive: {other}")),
    }
}
