//! How the host reaches the guest, opened while the guest may still do so.

use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener as Listener, UnixStream as Stream},
    },
    rc::Rc,
    time::Duration,
};

use glovebox_proto::container::{self, CHANNEL, GUEST_SOCKET, HOST_SOCKET, INNER_SOCKET, LONGEST_REPORT, Plan, Report};
use rustix::{
    fs::Mode,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt},
    process::umask,
};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    task::JoinSet,
};
use zeroize::Zeroizing;

use crate::{
    GuestChannel,
    server::{Guest, Open, Server, serve_beside, serve_channel, serve_connection},
    sys,
};

/// A key is 64 hexadecimal digits and a line break.
pub(super) const KEY_LENGTH: usize = DIGITS + 1;
const DIGITS: usize = 64;

/// How long the guest waits for its host.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it waits for its mounts. The host gives up earlier, and says why.
const MOUNTING: Duration = Duration::from_secs(90);
/// How long somebody who connected may take to say the key, and how many may be about to.
const KEY_PATIENCE: Duration = Duration::from_secs(5);
const MOST_TRYING: usize = 16;

/// A door that is open.
pub(super) enum Door {
    /// The connection to the host, which is the channel of a one-shot sandbox; and where that of a living one listens.
    Folder { host: Stream, listening: Option<Listener> },
    /// Where bridges connect, and the SHA-256 of the key that they must say.
    Bridge { listening: Listener, key: [u8; 32], living: bool },
}

impl Door {
    /// Opens the door that a plan wants.
    pub(super) fn open(plan: &Plan) -> io::Result<Self> {
        match &plan.door {
            container::Door::Folder => in_folder_of_host(|| {
                let listening = if plan.living { Some(listen(GUEST_SOCKET)?) } else { None };
                Ok(Door::Folder { host: connect_to_host()?, listening })
            }),
            container::Door::Bridge { key_sha256 } => {
                let key = from_hex(key_sha256).ok_or(io::ErrorKind::InvalidInput)?;
                let listening = Listener::bind_addr(&SocketAddr::from_abstract_name(INNER_SOCKET)?)?;
                listening.set_nonblocking(true)?;
                Ok(Door::Bridge { listening, key, living: plan.living })
            }
        }
    }

    /// Says that there are folders to attach mounts in, and waits until the host has done so.
    pub(super) fn await_mounts(&mut self) -> io::Result<()> {
        let Door::Folder { host, .. } = self else { return Err(io::ErrorKind::Unsupported.into()) };
        let mount_namespace = std::fs::read_link("/proc/self/ns/mnt")?.to_string_lossy().into_owned();
        host.write_all(&to_bytes(&Report::Waiting { mount_namespace })?)?;
        host.set_read_timeout(Some(MOUNTING))?;
        host.read_exact(&mut [0])?;
        host.set_read_timeout(None)
    }

    /// Says that there will be no sandbox.
    pub(super) fn refuse(self, report: &Report) -> io::Result<()> {
        let report = to_bytes(report)?;
        match self {
            Door::Folder { mut host, .. } => host.write_all(&report),
            Door::Bridge { listening, key, .. } => Server::new()?.see_through(async {
                let mut bridges = Bridges::new(listening, key)?;
                let mut stream = tokio::time::timeout(PATIENCE, bridges.next()).await?;
                stream.write_all(&report).await?;
                // The bridge reads all of it before it sees the end.
                stream.shutdown().await
            }),
        }
    }

    /// Says that the sandbox is set up, and serves: to the end of the one connection of a one-shot sandbox, and for ever in a
    /// living one.
    pub(super) async fn serve(self, guest: Rc<Guest>, report: &Report) -> io::Result<()> {
        let report = to_bytes(report)?;
        match self {
            Door::Folder { mut host, listening } => {
                host.write_all(&report)?;
                let channel = match listening {
                    None => GuestChannel::Connected(host.into()),
                    Some(listening) => {
                        drop(host);
                        GuestChannel::Listening(listening.into())
                    }
                };
                // However the connection ends, the sandbox has done its work.
                let _ = serve_channel(guest, channel).await;
                Ok(())
            }
            Door::Bridge { listening, key, living: false } => {
                let mut bridges = Bridges::new(listening, key)?;
                let mut stream = tokio::time::timeout(PATIENCE, bridges.next()).await?;
                drop(bridges);
                stream.write_all(&report).await?;
                let _ = serve_connection(Open::new(guest), stream).await;
                Ok(())
            }
            Door::Bridge { listening, key, living: true } => {
                let mut bridges = Bridges::new(listening, key)?;
                loop {
                    let mut stream = bridges.next().await;
                    if stream.write_all(&report).await.is_ok() {
                        serve_beside(&guest, stream);
                    }
                }
            }
        }
    }
}

/// Whether the modes of files keep commands from the door of a sandbox that stays: they are neither root nor whoever the folder belongs to.
pub(super) fn is_closed_to_commands(plan: &Plan) -> io::Result<bool> {
    Ok(match plan.door {
        _ if !plan.living => true,
        container::Door::Folder => plan.uid != 0 && plan.uid != rustix::fs::lstat(CHANNEL)?.st_uid,
        container::Door::Bridge { .. } => plan.uid != 0,
    })
}

/// Says to a host, if one listens, that there will be no sandbox although there is no door yet.
pub(super) fn refuse_without_door(report: &Report) -> io::Result<()> {
    in_folder_of_host(connect_to_host)?.write_all(&to_bytes(report)?)
}

/// Does something in the folder that is shared with the host, as whoever it belongs to there: it is closed to all others, and root inside has no right to
/// pass over that. What is made in it belongs to them.
fn in_folder_of_host<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let folder = rustix::fs::lstat(CHANNEL)?;
    sys::set_file_ids(folder.st_uid, folder.st_gid)?;
    let done = work();
    sys::set_file_ids(0, 0)?;
    done
}

/// Connects to the host, which listens before it starts the container.
fn connect_to_host() -> io::Result<Stream> {
    let socket: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // It also bounds how long the report may take to be written.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))?;
    connect(socket.as_fd(), &SocketAddrUnix::new(HOST_SOCKET)?)?;
    Ok(socket.into())
}

/// Listens on a socket of the file system that nobody but its owner may connect to.
fn listen(path: &str) -> io::Result<Listener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        // A sandbox that was stopped has left it.
        _ => {}
    }
    let before = umask(Mode::RWXG | Mode::RWXO | Mode::XUSR);
    let listening = Listener::bind(path);
    umask(before);
    listening
}

/// A report as it is sent: its length, and JSON.
fn to_bytes(report: &Report) -> io::Result<Vec<u8>> {
    let text = serde_json::to_vec(report)?;
    if text.len() > LONGEST_REPORT {
        return Err(rustix::io::Errno::TOOBIG.into());
    }
    Ok([&(text.len() as u32).to_le_bytes()[..], &text].concat())
}

/// Those who connect to be the channel.
struct Bridges {
    listening: UnixListener,
    key: [u8; 32],
    trying: JoinSet<Option<UnixStream>>,
}

impl Bridges {
    fn new(listening: Listener, key: [u8; 32]) -> io::Result<Self> {
        Ok(Bridges { listening: UnixListener::from_std(listening)?, key, trying: JoinSet::new() })
    }

    /// The next one that knows the key. Those who say nothing keep nobody else out.
    async fn next(&mut self) -> UnixStream {
        loop {
            tokio::select! {
                accepted = self.listening.accept(), if self.trying.len() < MOST_TRYING => match accepted {
                    Ok((stream, _)) => drop(self.trying.spawn_local(admit(stream, self.key))),
                    Err(_) => tokio::time::sleep(crate::IDLE).await,
                },
                Some(Ok(Some(stream))) = self.trying.join_next(), if !self.trying.is_empty() => return stream,
            }
        }
    }
}

/// Lets somebody in who is root and says the key.
async fn admit(mut stream: UnixStream, key: [u8; 32]) -> Option<UnixStream> {
    if stream.peer_cred().ok()?.uid() != 0 {
        return None;
    }
    let mut said = Zeroizing::new([0; KEY_LENGTH]);
    tokio::time::timeout(KEY_PATIENCE, stream.read_exact(&mut *said)).await.ok()?.ok()?;
    let fits = said[DIGITS] == b'\n' && is_same(&Sha256::digest(&said[..DIGITS]).into(), &key);
    fits.then_some(stream)
}

/// Compares in the same time whatever differs.
fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

fn from_hex(digits: &str) -> Option<[u8; 32]> {
    let digits = digits.as_bytes();
    let mut bytes = [0; 32];
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = [pair[0], pair[1]].map(|digit| (digit as char).to_digit(16));
        *byte = (high? << 4 | low?) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_read_from_its_digits_and_from_nothing_else() {
        let digits: String = (0..32).map(|n| format!("{n:02x}")).collect();
        assert_eq!(from_hex(&digits).map(|bytes| (bytes[0], bytes[31])), Some((0, 31)));
        for wrong in ["", &digits[1..], &digits.replace('0', "g"), &format!("{digits}0")] {
            assert_eq!(from_hex(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn hashes_are_the_same_only_if_all_of_them_is() {
        let one = [7; 32];
        assert!(is_same(&one, &one));
        for at in 0..32 {
            let mut other = one;
            other[at] ^= 0x80;
            assert!(!is_same(&one, &other));
        }
    }
}
