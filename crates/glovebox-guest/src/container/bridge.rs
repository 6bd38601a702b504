//! The bridge: joins its standard streams to the guest, for a host that shares no folder with it.

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::{
        fd::AsFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixStream},
    },
    time::{Duration, Instant},
};

use glovebox_proto::container::INNER_SOCKET;
use zeroize::Zeroizing;

use super::door::KEY_LENGTH;

/// How long a guest may take until it listens, and how long it is until that is tried again.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// Says the key that comes first on standard input, and then copies both ways until the guest ends the connection.
pub(super) fn bridge() -> io::Result<()> {
    let mut key = Zeroizing::new([0; KEY_LENGTH]);
    io::stdin().lock().read_exact(&mut *key)?;
    let guest = connect()?;
    (&guest).write_all(&*key)?;
    let to_guest = guest.try_clone()?;
    std::thread::Builder::new().spawn(move || {
        let _ = copy(io::stdin(), &to_guest);
        // The guest ends a connection that nobody speaks on any more, and this program ends with it.
        let _ = to_guest.shutdown(Shutdown::Write);
    })?;
    copy(&guest, io::stdout())
}

/// Connects to the guest, which may have begun only just now.
fn connect() -> io::Result<UnixStream> {
    let address = SocketAddr::from_abstract_name(INNER_SOCKET)?;
    let start = Instant::now();
    loop {
        match UnixStream::connect_addr(&address) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && start.elapsed() < PATIENCE => {
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
}

/// Copies as it comes. The standard library's own streams would hold bytes back until a line is whole.
fn copy(from: impl AsFd, to: impl AsFd) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = match rustix::io::read(&from, &mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            match rustix::io::write(&to, rest) {
                Ok(written) => rest = &rest[written..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
