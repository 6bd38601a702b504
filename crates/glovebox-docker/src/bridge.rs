//! The channel of a sandbox whose engine is on another machine: a bridge is started inside, its streams come through the
//! engine, and all connections of this process to that sandbox go over it.

use std::{
    fmt, fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bollard::{
    container::LogOutput,
    errors::Error as DockerError,
    exec::{CreateExecOptions, StartExecOptions, StartExecResults},
};
use bytes::{Buf, Bytes};
use futures_util::Stream;
use glovebox_core::{Error, ErrorCode, Result};
use glovebox_guest::container::Carried;
use glovebox_proto::{
    bound,
    container::{GUEST, Report},
};
use h2::client::{Builder, SendRequest};
use http::{Request, StatusCode};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::{
    client::{Client, SLOW},
    meeting,
};

/// What the key of a living sandbox is kept in, beside what else is known of it.
const KEY: &str = "docker-key";

/// How long it may take until a bridge carries what the guest has to report. The guest may have begun only just now.
const ARRIVAL: Duration = Duration::from_secs(60);

/// How much of the engine's frames is read at once.
const AT_ONCE: usize = 64 * 1024;

/// No complaint of a bridge is passed on in a length that nobody reads.
const LONGEST_COMPLAINT: usize = 500;

/// What a bridge must say to be let in by the guest: 64 hexadecimal digits. The engine knows only its hash, so that nobody who
/// can look at containers but not use them gets in.
#[derive(Clone)]
pub(crate) struct Key(String);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// One that nobody knows.
    pub(crate) fn new() -> io::Result<Self> {
        let mut bytes = [0; 32];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
        }
        Ok(Key(hexadecimal(&bytes)))
    }

    /// Its hash, as the guest wants it.
    pub(crate) fn sha256(&self) -> String {
        hexadecimal(&Sha256::digest(&self.0))
    }

    /// Keeps it for those who use a living sandbox later, and for nobody else.
    pub(crate) fn keep(&self, store: &Path) -> io::Result<()> {
        let new = store.join(format!("{KEY}.new"));
        let _ = fs::remove_file(&new);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(self.0.as_bytes())?;
        fs::rename(new, store.join(KEY))
    }

    /// That of a living sandbox.
    pub(crate) fn kept(store: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(store.join(KEY))?;
        match text.len() == 64 && text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            true => Ok(Key(text)),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A bridge to the guest of a sandbox. It ends with its last user.
#[derive(Clone, Debug)]
pub(crate) struct Bridge {
    streams: SendRequest<Bytes>,
    /// Docker's id of it.
    exec: String,
}

impl PartialEq for Bridge {
    fn eq(&self, other: &Self) -> bool {
        self.exec == other.exec
    }
}

impl Bridge {
    /// Connects to the guest, and hears what it has to report. What follows is the channel.
    pub(crate) async fn connect(&self) -> Result<(Carried, Report)> {
        let arrival = async {
            let mut carried = self.carry().await?;
            let report = meeting::report(&mut carried).await?;
            Ok::<_, io::Error>((carried, report))
        };
        match tokio::time::timeout(ARRIVAL, arrival).await {
            Ok(arrived) => arrived.map_err(|error| match is_full(&error.to_string()) {
                true => too_many().because(error),
                false => {
                    Error::new(ErrorCode::SandboxLost, "the guest cannot be reached through its bridge").because(error)
                }
            }),
            Err(_) => {
                let message = format!("the guest was not reached through its bridge within {} s", ARRIVAL.as_secs());
                Err(Error::new(ErrorCode::SandboxSetup, message).hint("is that machine so busy? try again"))
            }
        }
    }

    /// Has one more connection carried.
    async fn carry(&self) -> io::Result<Carried> {
        let request = Request::post("http://guest/").body(()).map_err(io::Error::other)?;
        let mut streams = self.streams.clone().ready().await.map_err(io::Error::other)?;
        let (response, sending) = streams.send_request(request, false).map_err(io::Error::other)?;
        let response = response.await.map_err(io::Error::other)?;
        match response.status() {
            StatusCode::OK => Ok(Carried::new(sending, response.into_body())),
            _ => Err(io::Error::other("the guest does not listen")),
        }
    }
}

/// The streams of a bridge, as the engine gives them.
struct Streams {
    output: Pin<Box<dyn Stream<Item = Result<LogOutput, DockerError>> + Send>>,
    input: Pin<Box<dyn AsyncWrite + Send>>,
    /// What came and was not asked for yet.
    left: Bytes,
}

impl Client {
    /// Starts a bridge in a container.
    pub(crate) async fn bridge(&self, container: &str, key: &Key) -> Result<Bridge> {
        let options = CreateExecOptions {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            user: Some("0:0".to_owned()),
            working_dir: Some("/".to_owned()),
            cmd: Some(vec![GUEST.to_owned(), "bridge".to_owned()]),
            ..CreateExecOptions::default()
        };
        let what = "reach the guest";
        let ended = |error: Error| match error.message.contains("is not running") {
            true => Error::new(ErrorCode::SandboxLost, "the sandbox has ended").because(error),
            false => error,
        };
        let made = self.ask(what, SLOW, self.docker.create_exec(container, options)).await.map_err(ended)?;
        let options = StartExecOptions { output_capacity: Some(AT_ONCE), ..StartExecOptions::default() };
        let started = self.ask(what, SLOW, self.docker.start_exec(&made.id, Some(options))).await;
        let started =
            started.map_err(|error| if is_full(&error.message) { too_many().because(error) } else { ended(error) })?;
        let StartExecResults::Attached { output, input } = started else {
            return Err(Error::new(
                ErrorCode::SandboxSetup,
                "Docker started a bridge to the guest without its streams",
            ));
        };
        let mut streams = Streams { output, input, left: Bytes::new() };
        let begin = async {
            streams.write_all(format!("{}\n", key.0).as_bytes()).await?;
            let shaken = Builder::new()
                .initial_window_size(bound::CARRIED_WINDOW)
                .initial_connection_window_size(bound::BRIDGE_WINDOW)
                .max_frame_size(bound::FRAME)
                .max_concurrent_streams(0)
                .max_header_list_size(bound::HEADERS)
                .max_send_buffer_size(bound::CARRIED_WINDOW as usize)
                .enable_push(false)
                .handshake(streams)
                .await;
            shaken.map_err(io::Error::other)
        };
        let (streams, connection) = begin.await.map_err(|error| {
            Error::new(ErrorCode::SandboxLost, "the bridge to the guest does not take its key").because(error)
        })?;
        // Whoever has a connection open learns of its end there.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Bridge { streams, exec: made.id })
    }
}

/// Whether it failed because the sandbox has as many processes as it may.
fn is_full(told: &str) -> bool {
    told.to_lowercase().contains("resource temporarily unavailable")
}

fn too_many() -> Error {
    let message = "the sandbox has as many processes as it may, and who uses it from another machine needs one";
    Error::new(ErrorCode::TooMany, message).hint("end something in it, or give it a higher --pids")
}

impl AsyncRead for Streams {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.left.is_empty() {
            match ready!(self.output.as_mut().poll_next(cx)) {
                Some(Ok(LogOutput::StdErr { message })) => {
                    let text: String = String::from_utf8_lossy(&message).chars().take(LONGEST_COMPLAINT).collect();
                    return Poll::Ready(Err(io::Error::other(text.trim().replace(char::is_control, " "))));
                }
                Some(Ok(frame)) => self.left = frame.into_bytes(),
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = self.left.len().min(buffer.remaining());
        buffer.put_slice(&self.left[..length]);
        self.left.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Streams {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.input.as_mut().poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.as_mut().poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_kept_for_its_owner_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (Key::new().unwrap(), Key::new().unwrap());
        assert!(one.0 != other.0 && one.sha256() != other.sha256());
        one.keep(folder.path()).unwrap();
        other.keep(folder.path()).unwrap();
        assert_eq!(Key::kept(folder.path()).unwrap().0, other.0);
        assert_eq!(fs::metadata(folder.path().join(KEY)).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!format!("{other:?}").contains(&other.0));
        fs::write(folder.path().join(KEY), "too short").unwrap();
        assert!(Key::kept(folder.path()).is_err());
    }
}
