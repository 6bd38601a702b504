//! Speaks with one client over standard input and output, until it goes.

use std::{io, sync::Arc, time::Duration};

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
/// How long the last answers may take once the conversation is to end.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Serves one client over standard input and output. Returns when it closes its end, or when `end` comes; nothing of the
/// conversation is left then. Must be called within a tokio runtime.
pub async fn serve(engine: Engine, settings: Settings, end: impl Future<Output = ()>) -> Result<()> {
    let talk = Arc::new(Conversation::new(engine, settings));
    let spoken = speak(talk.clone(), end).await;
    let closed = talk.close().await;
    spoken.and(closed)
}

async fn speak(talk: Arc<Conversation>, end: impl Future<Output = ()>) -> Result<()> {
    let (input, output) = stdio_pipes();
    let transport = AsyncRwTransport::<RoleServer, _, _>::new(input, output).with_max_line_length(LARGEST_MESSAGE);
    let mut end = std::pin::pin!(end);
    let reader_gone = reader_gone();
    let mut reader_gone = std::pin::pin!(reader_gone);
    let service = tokio::select! {
        service = Server::new(talk.clone()).serve(transport) => match service {
            Ok(service) => service,
            // It went before it said who it is, as whoever only tries the command does.
            Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            Err(error) => {
                return Err(Error::new(ErrorCode::Usage, "the client does not speak the Model Context Protocol").because(error));
            }
        },
        () = &mut end => return Ok(()),
        () = &mut reader_gone => return Ok(()),
    };
    let token = service.cancellation_token();
    let mut waiting = std::pin::pin!(service.waiting());
    tokio::select! {
        _ = &mut waiting => {}
        () = &mut end => {
            token.cancel();
            // Whatever runs is ended, so that the last answers come.
            talk.closing.cancel();
            let _ = tokio::time::timeout(LAST_ANSWERS, &mut waiting).await;
        }
        () = &mut reader_gone => {
            // In a sandbox that stays, what runs for this client would go on.
            token.cancel();
            talk.closing.cancel();
            let _ = tokio::time::timeout(LAST_ANSWERS, &mut waiting).await;
        }
    }
    Ok(())
}

/// Waits until nobody can read standard output any more: be it a pipe or, as programs written with Node have it, a socket.
async fn reader_gone() {
    let (gone, heard) = oneshot::channel();
    // A thread of its own: what tokio can watch must not block, and that would be set for all who share the description. It
    // ends with the process.
    let watching = std::thread::Builder::new().name("reader".to_owned()).spawn(move || {
        let output = io::stdout();
        let mut watched = [PollFd::new(&output, PollFlags::empty())];
        while poll(&mut watched, None) == Err(Errno::INTR) {}
        // Whoever waited may be gone.
        let _ = gone.send(());
    });
    match watching {
        Ok(_) => drop(heard.await),
        Err(_) => std::future::pending().await,
    }
}
