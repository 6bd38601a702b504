//! The guest's HTTP/2 server.
//!
//! Theory of operation. The guest of a one-shot sandbox is born with its one connection, and ends with it. That of a living
//! sandbox is born with a listening socket: any host process connects, asks, and goes away, and nothing ends with it.
//! Every connection and every request is a task; what they share is the [`Guest`].

use std::{
    cell::Cell,
    io,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    time::Instant,
};

use bytes::Bytes;
use glovebox_proto::{bound, path};
use h2::{
    RecvStream,
    server::{Connection, SendResponse},
};
use http::{Request, Response, StatusCode};
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::{UnixListener, UnixStream},
    runtime::Runtime,
    sync::{Mutex, MutexGuard, Notify, watch},
    task::LocalSet,
};

use crate::{
    Ground, files,
    leaves::{self, Leaves},
    reaper::Reaper,
    run,
    runs::{self, Runs},
    sessions::{self, Sessions},
    sys, zygote,
};

/// What the guest needs from those who made the sandbox.
#[derive(Debug)]
pub struct GuestSockets {
    /// The channel to the host.
    pub channel: GuestChannel,
    /// The socket pair to the zygote.
    pub zygote: OwnedFd,
    /// The zygote's process id inside.
    pub zygote_pid: i32,
    /// What the guest stands on.
    pub ground: Ground,
    /// Where the keeper connects to hand out groups for runs.
    pub leaves: Option<OwnedFd>,
}

/// How the host reaches the guest.
#[derive(Debug)]
pub enum GuestChannel {
    /// One connected stream. The guest ends when it does.
    Connected(OwnedFd),
    /// A listening unix socket. Connections come and go, and none of them ends the guest.
    Listening(OwnedFd),
}

/// What all requests share.
pub(crate) struct Guest {
    pub(crate) reaper: Reaper,
    zygote: Mutex<AsyncFd<OwnedFd>>,
    /// Whether the zygote was asked by somebody who no longer waits for its answer.
    pub(crate) zygote_owes: Cell<bool>,
    pub(crate) zygote_pid: i32,
    /// Whether its sandbox outlives those who use it.
    pub(crate) stays: bool,
    pub(crate) ground: Ground,
    pub(crate) runs: Runs,
    pub(crate) sessions: Sessions,
    pub(crate) leaves: Leaves,
    /// Whether the host says that all commands are frozen.
    pub(crate) paused: watch::Sender<bool>,
    /// Held while processes are being killed, so that no command starts among them and no run is over before.
    pub(crate) killing: Mutex<()>,
    /// Requests so far, and the news of each: tells when there was nothing to do for a while.
    requests: Cell<u64>,
    requested: Notify,
    /// Connections that are open, and when the last one closed.
    connections: Cell<usize>,
    left: Cell<Instant>,
}

impl Guest {
    /// A guest, with the tasks that it always has. The zygote may still be preparing itself.
    pub(crate) fn new(zygote: OwnedFd, zygote_pid: i32, stays: bool, ground: Ground) -> io::Result<Rc<Self>> {
        rustix::io::ioctl_fionbio(&zygote, true)?;
        let guest = Rc::new(Guest {
            reaper: Reaper::default(),
            zygote: Mutex::new(sys::register(zygote)?),
            zygote_owes: Cell::new(false),
            zygote_pid,
            stays,
            ground,
            runs: Runs::default(),
            sessions: Sessions::default(),
            leaves: Leaves::default(),
            paused: watch::Sender::new(false),
            killing: Mutex::new(()),
            requests: Cell::new(0),
            requested: Notify::new(),
            connections: Cell::new(0),
            left: Cell::new(Instant::now()),
        });
        tokio::task::spawn_local(guest.reaper.clone().serve());
        tokio::task::spawn_local(rest_when_idle(guest.clone()));
        Ok(guest)
    }

    /// How many connections are open.
    pub(crate) fn connections(&self) -> usize {
        self.connections.get()
    }

    /// When the last connection closed.
    pub(crate) fn left(&self) -> Instant {
        self.left.get()
    }

    /// The zygote, once it has answered all that it was asked.
    pub(crate) async fn zygote(&self) -> io::Result<MutexGuard<'_, AsyncFd<OwnedFd>>> {
        let zygote = self.zygote.lock().await;
        if self.zygote_owes.get() {
            zygote.async_io(Interest::READABLE, |socket| zygote::answer(socket.as_fd())).await?.ok();
            self.zygote_owes.set(false);
        }
        Ok(zygote)
    }

    /// Whether there is but one run, and nothing that tells its processes from those of others.
    pub(crate) fn is_alone(&self) -> bool {
        self.runs.count() <= 1 && !self.leaves.are_there() && self.sessions.are_none()
    }
}

/// A connection, counted as long as it is open.
pub(crate) struct Open(Rc<Guest>);

impl Open {
    pub(crate) fn new(guest: Rc<Guest>) -> Self {
        guest.connections.set(guest.connections.get() + 1);
        Open(guest)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.set(self.0.connections.get() - 1);
        self.0.left.set(Instant::now());
    }
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

    /// Serves the host: until its one connection ends, or for ever on a listening socket. The zygote may still be preparing
    /// itself: no command is started before `hear` has read its first word from its socket. That word is passed on with
    /// `tell`, after a command that waits already was asked for.
    pub fn serve<W>(
        self,
        sockets: GuestSockets,
        hear: impl FnMut(&OwnedFd) -> io::Result<W>,
        tell: impl FnOnce(W) -> io::Result<()>,
    ) -> io::Result<()> {
        self.see_through(serve(sockets, hear, tell))
    }

    /// Does some work to its end.
    pub(crate) fn see_through<F: Future>(self, work: F) -> F::Output {
        LocalSet::new().block_on(&self.runtime, work)
    }
}

async fn serve<W>(
    sockets: GuestSockets,
    mut hear: impl FnMut(&OwnedFd) -> io::Result<W>,
    tell: impl FnOnce(W) -> io::Result<()>,
) -> io::Result<()> {
    let stays = matches!(sockets.channel, GuestChannel::Listening(_));
    let guest = Guest::new(sockets.zygote, sockets.zygote_pid, stays, sockets.ground)?;
    if let Some(listening) = sockets.leaves {
        tokio::task::spawn_local(leaves::serve(guest.clone(), listening));
    }
    let first_word = async {
        // Commands wait for this lock, which is taken before the first request is.
        let zygote = guest.zygote.lock().await;
        let word = zygote.async_io(tokio::io::Interest::READABLE, |socket| hear(socket)).await?;
        drop(zygote);
        tokio::task::yield_now().await;
        tell(word)
    };
    let serving = serve_channel(guest.clone(), sockets.channel);
    tokio::pin!(first_word, serving);
    tokio::select! {
        biased;
        told = &mut first_word => told?,
        served = &mut serving => return served,
    }
    serving.await
}

pub(crate) async fn serve_channel(guest: Rc<Guest>, channel: GuestChannel) -> io::Result<()> {
    match channel {
        GuestChannel::Connected(stream) => {
            rustix::io::ioctl_fionbio(&stream, true)?;
            serve_connection(Open::new(guest), UnixStream::from_std(stream.into())?).await
        }
        GuestChannel::Listening(socket) => {
            rustix::io::ioctl_fionbio(&socket, true)?;
            accept_all(guest, UnixListener::from_std(socket.into())?).await
        }
    }
}

/// Serves everybody who connects.
async fn accept_all(guest: Rc<Guest>, socket: UnixListener) -> io::Result<()> {
    loop {
        let stream = match socket.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                // Without a free descriptor nobody can be let in until somebody goes; the host waits meanwhile.
                tokio::time::sleep(crate::IDLE).await;
                continue;
            }
        };
        if !guest.ground.unknown_peers && !is_from_outside(&stream) {
            continue;
        }
        serve_beside(&guest, stream);
    }
}

/// Serves a connection beside others, if there are not too many. One that breaks the rules ends; the others know nothing of it.
pub(crate) fn serve_beside(guest: &Rc<Guest>, stream: UnixStream) {
    if guest.connections() >= bound::CONNECTIONS {
        tokio::task::spawn_local(turn_away(stream));
    } else {
        tokio::task::spawn_local(serve_connection(Open::new(guest.clone()), stream));
    }
}

/// Whether a connection comes from the host. The kernel gives a process of another process namespace no number in ours, so
/// where the guest is the first process of its own, whoever has a number is inside.
fn is_from_outside(stream: &UnixStream) -> bool {
    let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
    std::process::id() != 1 || peer == Some(0)
}

/// Tells a connection beyond the bound that there are too many.
async fn turn_away(stream: UnixStream) {
    if let Ok(mut connection) = greet(stream).await {
        connection.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM);
        let _ = tokio::time::timeout(crate::IDLE, connection.accept()).await;
        // Whoever is just asking something would lose the word if the stream were closed on it.
        tokio::time::sleep(crate::IDLE).await;
    }
}

async fn greet(stream: UnixStream) -> io::Result<Connection<UnixStream, Bytes>> {
    h2::server::Builder::new()
        .initial_window_size(bound::STREAM_WINDOW)
        .initial_connection_window_size(bound::CONNECTION_WINDOW)
        .max_frame_size(bound::FRAME)
        .max_concurrent_streams(bound::STREAMS)
        .max_header_list_size(bound::HEADERS)
        .max_send_buffer_size(2 * bound::STREAM_WINDOW as usize)
        .handshake(stream)
        .await
        .map_err(io::Error::other)
}

pub(crate) async fn serve_connection(open: Open, stream: UnixStream) -> io::Result<()> {
    let guest = &open.0;
    let mut connection = greet(stream).await?;
    while let Some(request) = connection.accept().await {
        let (request, respond) = request.map_err(io::Error::other)?;
        guest.requests.set(guest.requests.get() + 1);
        guest.requested.notify_one();
        tokio::task::spawn_local(answer(guest.clone(), request, respond));
    }
    Ok(())
}

/// Gives memory back whenever nothing was asked for a while.
async fn rest_when_idle(guest: Rc<Guest>) {
    loop {
        let before = guest.requests.get();
        tokio::time::sleep(crate::IDLE).await;
        if guest.requests.get() == before {
            crate::rest();
            guest.requested.notified().await;
        }
    }
}

async fn answer(guest: Rc<Guest>, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let (head, body) = request.into_parts();
    let status = match head.uri.path() {
        path::RUN | path::ATTACH | path::RUNS | path::SIGNAL | path::PUT | path::FETCH => StatusCode::OK,
        path::PAUSE | path::RESUME => StatusCode::OK,
        path::SESSIONS | path::INTERRUPT | path::END_SESSION => StatusCode::OK,
        path if files::serves(path) => StatusCode::OK,
        _ => StatusCode::NOT_FOUND,
    };
    let response = Response::builder().status(status).body(()).expect("a status is a valid response");
    let Ok(stream) = respond.send_response(response, status != StatusCode::OK) else { return };
    // Whatever goes wrong below ends only this stream, which is how the host learns of it.
    let _ = match head.uri.path() {
        path::RUN => run::serve(guest, body, stream).await,
        path::ATTACH => runs::attach(guest, body, stream).await,
        path::RUNS => runs::list(guest, stream).await,
        path::SIGNAL => runs::signal(guest, body, stream).await,
        path::PAUSE => runs::pause(&guest, true, stream).await,
        path::RESUME => runs::pause(&guest, false, stream).await,
        path::SESSIONS => sessions::list(&guest, stream).await,
        path::INTERRUPT => sessions::interrupt(&guest, body, stream).await,
        path::END_SESSION => sessions::end(&guest, body, stream).await,
        path::PUT => files::put(&guest.ground, body, stream).await,
        path::FETCH => files::fetch(&guest.ground, body, stream).await,
        path if files::serves(path) => files::serve(&guest.ground, path, body, stream).await,
        _ => Ok(()),
    };
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener as Listener;

    use super::*;

    /// Asks for something on a new connection; the status, or why there was none.
    async fn ask(socket: &std::path::Path) -> Result<u16, h2::Error> {
        let stream = UnixStream::connect(socket).await.expect("the guest listens");
        let (client, connection) = h2::client::handshake(stream).await?;
        let driving = tokio::task::spawn_local(connection);
        let request = Request::post("http://guest/nothing").body(()).expect("a request can be made");
        let answer = async { Ok(client.ready().await?.send_request(request, true)?.0.await?.status().as_u16()) };
        let status = answer.await;
        driving.abort();
        status
    }

    /// Has a guest listen while something is done.
    fn while_listening<F: Future<Output = ()>>(work: impl FnOnce(std::path::PathBuf) -> F) {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("channel");
        let socket = Listener::bind(&path).expect("a socket can be made");
        let (zygote, _other) = std::os::unix::net::UnixStream::pair().expect("a pair can be made");
        let sockets = GuestSockets {
            channel: GuestChannel::Listening(socket.into()),
            zygote: zygote.into(),
            zygote_pid: 2,
            leaves: None,
            ground: Ground::default(),
        };
        let server = Server::new().expect("a server can be made");
        LocalSet::new().block_on(&server.runtime, async {
            tokio::task::spawn_local(serve(sockets, |_| Ok(()), |()| Ok(())));
            work(path).await;
        });
    }

    #[test]
    fn connections_come_and_go_and_none_of_them_ends_the_guest() {
        while_listening(|path| async move {
            for _ in 0..3 {
                assert_eq!(ask(&path).await.expect("the guest answers"), 404);
                // Somebody who speaks no HTTP/2.
                let mut stream = UnixStream::connect(&path).await.expect("the guest listens");
                tokio::io::AsyncWriteExt::write_all(&mut stream, b"GET / HTTP/1.0\r\n\r\n").await.expect("it is taken");
            }
        });
    }

    #[test]
    fn a_connection_beyond_the_bound_is_told_so_and_one_that_goes_makes_room() {
        while_listening(|path| async move {
            let mut open = Vec::new();
            for _ in 0..bound::CONNECTIONS {
                open.push(UnixStream::connect(&path).await.expect("the guest listens"));
            }
            let refused = ask(&path).await.expect_err("there are too many");
            assert_eq!(refused.reason(), Some(h2::Reason::ENHANCE_YOUR_CALM));
            open.clear();
            while ask(&path).await.is_err() {
                tokio::task::yield_now().await;
            }
        });
    }
}
