//! The bridge: carries connections to the guest through its standard streams, for a host that shares no folder with it.
//!
//! It is one process with one thread, however many connections it carries, as it is one of the processes that the sandbox may have. It speaks
//! HTTP/2: each stream is a connection, and who stands still on one holds up no other.

use std::{
    io,
    os::fd::AsFd,
    rc::Rc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use glovebox_proto::{bound, container::INNER_SOCKET};
use h2::{
    RecvStream,
    server::{Builder, SendResponse},
};
use http::{Response, StatusCode};
use rustix::thread::CapabilitySet;
use tokio::{
    io::AsyncWriteExt,
    net::{
        UnixStream,
        unix::pipe::{Receiver, Sender},
    },
};
use zeroize::Zeroizing;

use super::{Carried, door::KEY_LENGTH, init::take_descriptors};
use crate::{Server, own};

/// How long a guest may take until it listens, and how long it is until that is tried again.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

type Key = Rc<Zeroizing<[u8; KEY_LENGTH]>>;

/// Reads the key that comes first on standard input, and carries connections then, until the host has no more of them.
pub(super) fn bridge() -> io::Result<()> {
    // Who is root inside is not to find the key in it.
    own::drop_capabilities(CapabilitySet::empty()).map_err(|failed| failed.error)?;
    take_descriptors()?;
    let key = read_key()?;
    Server::new()?.see_through(serve(key))
}

/// Reads no byte more: what follows is the host's first word on the connections.
fn read_key() -> io::Result<Key> {
    let mut key = Zeroizing::new([0; KEY_LENGTH]);
    let mut filled = 0;
    while filled < key.len() {
        match rustix::io::read(io::stdin(), &mut key[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => filled += length,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Rc::new(key))
}

async fn serve(key: Key) -> io::Result<()> {
    let (input, output) = (io::stdin().as_fd().try_clone_to_owned()?, io::stdout().as_fd().try_clone_to_owned()?);
    rustix::io::ioctl_fionbio(&input, true)?;
    rustix::io::ioctl_fionbio(&output, true)?;
    // An engine may give sockets in place of pipes, which are read and written in the same way.
    let streams = tokio::io::join(Receiver::from_owned_fd_unchecked(input)?, Sender::from_owned_fd_unchecked(output)?);
    let mut connection = Builder::new()
        .initial_window_size(bound::CARRIED_WINDOW)
        .initial_connection_window_size(bound::BRIDGE_WINDOW)
        .max_frame_size(bound::FRAME)
        .max_concurrent_streams(bound::STREAMS)
        .max_header_list_size(bound::HEADERS)
        .max_send_buffer_size(bound::CARRIED_WINDOW as usize)
        .handshake(streams)
        .await
        .map_err(io::Error::other)?;
    while let Some(request) = connection.accept().await {
        let (request, respond) = request.map_err(io::Error::other)?;
        tokio::task::spawn_local(carry(key.clone(), request.into_body(), respond));
    }
    Ok(())
}

/// Carries one connection to its end.
async fn carry(key: Key, receiving: RecvStream, mut respond: SendResponse<Bytes>) {
    let met = meet(&key).await;
    let status = if met.is_ok() { StatusCode::OK } else { StatusCode::BAD_GATEWAY };
    let response = Response::builder().status(status).body(()).expect("a status is a valid response");
    let (Ok(sending), Ok(mut guest)) = (respond.send_response(response, met.is_err()), met) else { return };
    let mut host = Carried::new(sending, receiving);
    // However it ends, both sides see the end of it.
    let _ = tokio::io::copy_bidirectional_with_sizes(&mut host, &mut guest, bound::CHUNK, bound::CHUNK).await;
}

/// Connects to the guest, which may have begun only just now, and says the key.
async fn meet(key: &Key) -> io::Result<UnixStream> {
    use io::ErrorKind::{ConnectionRefused, WouldBlock};
    let address = format!("\0{INNER_SOCKET}");
    let start = Instant::now();
    loop {
        match UnixStream::connect(&address).await {
            // Nobody listens yet, or many wait there already.
            Err(error) if [ConnectionRefused, WouldBlock].contains(&error.kind()) && start.elapsed() < PATIENCE => {
                tokio::time::sleep(PAUSE).await;
            }
            connected => {
                let mut guest = connected?;
                guest.write_all(&***key).await?;
                return Ok(guest);
            }
        }
    }
}
