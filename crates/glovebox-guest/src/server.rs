//! The guest's HTTP/2 server.

use std::{cell::Cell, io, os::fd::OwnedFd, rc::Rc};

use bytes::Bytes;
use glovebox_proto::{bound, path};
use h2::{RecvStream, server::SendResponse};
use http::{Request, Response, StatusCode};
use tokio::{io::unix::AsyncFd, net::UnixStream, runtime::Runtime, sync::Mutex, task::LocalSet};

use crate::{files, reaper::Reaper, run, sys};

/// What the guest needs from those who made the sandbox.
#[derive(Debug)]
pub struct GuestSockets {
    /// The channel to the host.
    pub channel: OwnedFd,
    /// The socket pair to the zygote.
    pub zygote: OwnedFd,
    /// The zygote's process id inside.
    pub zygote_pid: i32,
}

/// What all requests share.
pub(crate) struct Guest {
    pub(crate) reaper: Reaper,
    pub(crate) zygote: Mutex<AsyncFd<OwnedFd>>,
    pub(crate) zygote_pid: i32,
    /// Runs under way.
    pub(crate) runs: Cell<usize>,
    /// Held while processes are being killed, so that no command starts among them and no run is over before.
    pub(crate) killing: Mutex<()>,
}

/// A guest's server, ready to serve. Making one takes time that a guest has while others prepare its sandbox.
#[derive(Debug)]
pub struct Server {
    runtime: Runtime,
}

impl Server {
    /// Makes the server, before there is anything to serve.
    pub fn new() -> io::Result<Self> {
        Ok(Server { runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()? })
    }

    /// Serves the host until it goes away. The zygote may still be preparing itself: no command is started before `hear`
    /// has read its first word from its socket. That word is passed on with `tell`, after a command that waits already
    /// was asked for.
    pub fn serve<W>(
        self,
        sockets: GuestSockets,
        hear: impl FnMut(&OwnedFd) -> io::Result<W>,
        tell: impl FnOnce(W) -> io::Result<()>,
    ) -> io::Result<()> {
        LocalSet::new().block_on(&self.runtime, serve_connection(sockets, hear, tell))
    }
}

async fn serve_connection<W>(
    sockets: GuestSockets,
    mut hear: impl FnMut(&OwnedFd) -> io::Result<W>,
    tell: impl FnOnce(W) -> io::Result<()>,
) -> io::Result<()> {
    rustix::io::ioctl_fionbio(&sockets.channel, true)?;
    rustix::io::ioctl_fionbio(&sockets.zygote, true)?;
    let channel = UnixStream::from_std(sockets.channel.into())?;
    let guest = Rc::new(Guest {
        reaper: Reaper::default(),
        zygote: Mutex::new(sys::register(sockets.zygote)?),
        zygote_pid: sockets.zygote_pid,
        runs: Cell::new(0),
        killing: Mutex::new(()),
    });
    tokio::task::spawn_local(guest.reaper.clone().serve());
    let first_word = async {
        // Commands wait for this lock, which is taken before the first request is.
        let zygote = guest.zygote.lock().await;
        let word = zygote.async_io(tokio::io::Interest::READABLE, |socket| hear(socket)).await?;
        drop(zygote);
        tokio::task::yield_now().await;
        tell(word)
    };
    let requests = serve_requests(&guest, channel);
    tokio::pin!(first_word, requests);
    tokio::select! {
        biased;
        told = &mut first_word => told?,
        served = &mut requests => return served,
    }
    requests.await
}

async fn serve_requests(guest: &Rc<Guest>, channel: UnixStream) -> io::Result<()> {
    let mut connection = h2::server::Builder::new()
        .initial_window_size(bound::STREAM_WINDOW)
        .initial_connection_window_size(bound::CONNECTION_WINDOW)
        .max_frame_size(bound::FRAME)
        .max_concurrent_streams(bound::STREAMS)
        .max_header_list_size(bound::HEADERS)
        .max_send_buffer_size(2 * bound::STREAM_WINDOW as usize)
        .handshake::<_, Bytes>(channel)
        .await
        .map_err(io::Error::other)?;
    let mut rested = false;
    loop {
        let request = match rested {
            true => connection.accept().await,
            false => match tokio::time::timeout(crate::IDLE, connection.accept()).await {
                Ok(request) => request,
                Err(_) => {
                    rested = true;
                    crate::rest();
                    continue;
                }
            },
        };
        let Some(request) = request else { return Ok(()) };
        rested = false;
        let (request, respond) = request.map_err(io::Error::other)?;
        tokio::task::spawn_local(answer(guest.clone(), request, respond));
    }
}

async fn answer(guest: Rc<Guest>, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let (head, body) = request.into_parts();
    let status = match head.uri.path() {
        path::RUN | path::SIGNAL | path::PUT | path::FETCH => StatusCode::OK,
        _ => StatusCode::NOT_FOUND,
    };
    let response = Response::builder().status(status).body(()).expect("a status is a valid response");
    let Ok(stream) = respond.send_response(response, status != StatusCode::OK) else { return };
    // Whatever goes wrong below ends only this stream, which is how the host learns of it.
    let _ = match head.uri.path() {
        path::RUN => run::serve(guest, body, stream).await,
        path::SIGNAL => run::signal(guest, body, stream).await,
        path::PUT => files::put(body, stream).await,
        path::FETCH => files::fetch(body, stream).await,
        _ => Ok(()),
    };
}
