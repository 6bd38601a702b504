//! What the launcher answers, as the backend waits for it.

use std::{io, os::fd::OwnedFd};

use glovebox_core::{Error, ErrorCode, Result};
use tokio::io::{Interest, unix::AsyncFd};

use crate::{plan::Answer, sys, wire};

/// Where the launcher answers an order.
#[derive(Debug)]
pub(crate) struct Answers(AsyncFd<OwnedFd>);

impl Answers {
    /// Those that come on a socket. Must be called within a tokio runtime.
    pub(crate) fn on(socket: OwnedFd) -> Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true).map_err(|e| no_launcher(e.into()))?;
        Ok(Answers(sys::register(socket).map_err(no_launcher)?))
    }

    /// Waits for the next answer.
    pub(crate) async fn next(&self) -> Result<(Answer, Vec<OwnedFd>)> {
        let answer = self.0.async_io(Interest::READABLE, |socket| wire::receive::<Answer>(socket)).await;
        answer.map_err(no_launcher)?.ok_or_else(|| no_launcher(io::ErrorKind::UnexpectedEof.into()))
    }
}

/// Waits for the only answer to an order.
pub(crate) async fn answer(socket: OwnedFd) -> Result<(Answer, Vec<OwnedFd>)> {
    Answers::on(socket)?.next().await
}

/// The error for an answer that does not belong to its order.
pub(crate) fn another_question() -> Error {
    Error::new(ErrorCode::Internal, "the launcher answered another question")
}

/// The error for a launcher that is gone.
pub(crate) fn no_launcher(error: io::Error) -> Error {
    Error::new(ErrorCode::SandboxLost, "the launcher does not answer").or_too_many(error)
}
