//! Speaks with one client over standard input and output, until it goes.

use std::{io, os::fd::AsFd, sync::Arc, time::Duration};

use glovebox_core::{Error, ErrorCode, Result};
use glovebox_engine::Engine;
use rmcp::{
    RoleServer,
    service::{ServerInitializeError, ServiceExt},
    transport::{async_rw::AsyncRwTransport, stdio_pipes},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use tokio::sync::oneshot;

use crate::{Settings, conversation::Conversation, server::Server};

/// The largest message of a client; a longer one is dropped.
const LARGEST_MESSAGE: usize = 64 << 20;
/// How long what is under way may go on once the client has closed its end: answers that it still waits for come within this.
const UNDER_WAY: Duration = Duration::from_secs(3);
/// How long the last answers may take once the conversation is to end.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// How long the sandbox may take to end. What is left of it then is ended by the launcher, when this process is gone.
const CLOSING: Duration = Duration::from_secs(10);

/// Serves one client over standard input and output. Returns soon after it closes its end, whether or not it reads what it is
/// sent, or when `end` comes; nothing of the conversation is left then. Must be called within a tokio runtime.
pub async fn serve(engine: Engine, settings: Settings, end: impl Future<Output = ()>) -> Result<()> {
    let talk = Arc::new(Conversation::new(engine, settings));
    let spoken = speak(talk.clone(), end).await;
    let closed = tokio::time::timeout(CLOSING, talk.close()).await;
    spoken.and(closed.unwrap_or_else(|_| Err(Error::new(ErrorCode::Internal, "the sandbox did not end in time"))))
}

async fn speak(talk: Arc<Conversation>, end: impl Future<Output = ()>) -> Result<()> {
    let (input, output) = stdio_pipes();
    let transport = AsyncRwTransport::<RoleServer, _, _>::new(input, output).with_max_line_length(LARGEST_MESSAGE);
    let ending = async {
        tokio::select! {
            () = end => {}
            () = hung_up("reader", io::stdout(), PollFlags::empty()) => {}
            // The client may still wait for answers, but a server that nobody can end must end by itself.
            () = hung_up("writer", io::stdin(), PollFlags::RDHUP) => tokio::time::sleep(UNDER_WAY).await,
        }
    };
    let mut ending = std::pin::pin!(ending);
    let service = tokio::select! {
        service = Server::new(talk.clone()).serve(transport) => match service {
            Ok(service) => service,
            // It went before it said who it is, as whoever only tries the command does.
            Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            Err(error) => {
                return Err(Error::new(ErrorCode::Usage, "the client does not speak the Model Context Protocol").because(error));
            }
        },
        () = &mut ending => return Ok(()),
    };
    let token = service.cancellation_token();
    let mut waiting = std::pin::pin!(service.waiting());
    tokio::select! {
        _ = &mut waiting => {}
        () = &mut ending => {
            token.cancel();
            // Whatever runs is ended, so that the last answers come; in a sandbox that stays it would go on.
            talk.closing.cancel();
            let _ = tokio::time::timeout(LAST_ANSWERS, &mut waiting).await;
        }
    }
    Ok(())
}

/// Waits until nobody is left at the other end, be it a pipe or, as programs written with Node have it, a socket. What was sent
/// before and not read yet does not matter, so it is also seen by a server that waits for its last answer to be read.
async fn hung_up(name: &str, stream: impl AsFd + Send + 'static, also: PollFlags) {
    let (gone, heard) = oneshot::channel();
    // A thread of its own: what tokio can watch must not block, and that would be set for all who share the description. It
    // ends with the process.
    let watching = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let mut watched = [PollFd::new(&stream, also)];
        while poll(&mut watched, None) == Err(Errno::INTR) {}
        // Whoever waited may be gone.
        let _ = gone.send(());
    });
    match watching {
        Ok(_) => drop(heard.await),
        Err(_) => std::future::pending().await,
    }
}
