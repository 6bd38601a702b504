//! Where host and guest meet: a folder that is mounted in the container, and the sockets in it.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use glovebox_core::{Pauses, SandboxId};
use glovebox_proto::container::{CHANNEL, GUEST_SOCKET, HOST_SOCKET, LONGEST_REPORT, Report};
use jiff::Timestamp;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    net::{UnixListener, UnixStream},
};

/// The file that names the engine which a sandbox is of.
const ENGINE: &str = "engine";

/// The folder of one sandbox below the runtime folder: what both sides see in `channel`, and beside it what only the host does.
#[derive(Clone, Debug)]
pub(crate) struct Meeting(PathBuf);

impl Meeting {
    /// That of a sandbox.
    pub(crate) fn of(runtime: &Path, id: SandboxId) -> Self {
        Meeting(all(runtime).join(id.to_string()))
    }

    /// Makes the folder for a sandbox of the engine at this place.
    pub(crate) fn make(&self, place: &str) -> io::Result<()> {
        let _ = fs::remove_dir_all(&self.0);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        fs::write(self.0.join(ENGINE), place)
    }

    /// The same, and listens in it for the guest.
    pub(crate) fn open(&self, place: &str) -> io::Result<UnixListener> {
        self.make(place)?;
        fs::DirBuilder::new().mode(0o700).create(self.folder())?;
        let listener = UnixListener::bind(self.inside(HOST_SOCKET))?;
        fs::set_permissions(self.inside(HOST_SOCKET), fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    }

    /// The folder, as it is mounted.
    pub(crate) fn folder(&self) -> PathBuf {
        self.0.join("channel")
    }

    /// Connects to the guest of a living sandbox.
    pub(crate) async fn connect(&self) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(self.inside(GUEST_SOCKET)).await?;
        self.note_use()?;
        Ok(stream)
    }

    /// Notes that somebody connected. A sandbox on another machine outlives this folder, which a start of this one clears.
    pub(crate) fn note_use(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        fs::write(self.used(), "")
    }

    /// For how long nobody connected.
    pub(crate) fn unused_for(&self) -> Option<Duration> {
        let used = fs::metadata(self.used()).or_else(|_| fs::metadata(&self.0)).and_then(|found| found.modified());
        used.ok().and_then(|at| at.elapsed().ok())
    }

    /// Notes that a pause is about to begin, or to end.
    pub(crate) fn note_pause(&self, begins: bool) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        let mut pauses = self.pauses();
        let (now, is_frozen) = (now_ms(), pauses.is_open());
        if begins {
            pauses.begin(now, is_frozen)
        } else {
            pauses.end(now, is_frozen)
        }
        let new = self.0.join("pauses.new");
        fs::write(&new, serde_json::to_vec(&pauses)?)?;
        fs::rename(new, self.0.join("pauses"))
    }

    /// How long the sandbox was paused since a moment.
    pub(crate) fn paused_since(&self, since: Timestamp) -> Duration {
        let pauses = self.pauses();
        let paused = pauses.since(since.as_millisecond(), now_ms(), pauses.is_open());
        Duration::from_millis(paused.max(0) as u64)
    }

    fn pauses(&self) -> Pauses {
        fs::read(self.0.join("pauses")).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// The file whose time says when somebody connected last.
    fn used(&self) -> PathBuf {
        self.0.join("used")
    }

    /// Removes the folder.
    pub(crate) fn remove(&self) {
        let _ = fs::remove_dir_all(&self.0);
    }

    /// Where a socket is on the host.
    fn inside(&self, socket: &str) -> PathBuf {
        self.folder().join(Path::new(socket).strip_prefix(CHANNEL).unwrap_or(Path::new("host")))
    }
}

fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// The folder of all sandboxes.
pub(crate) fn all(runtime: &Path) -> PathBuf {
    runtime.join("docker")
}

/// Whether the folder of a sandbox is of one that another engine has.
pub(crate) fn is_of_another(folder: &Path, place: &str) -> bool {
    fs::read_to_string(folder.join(ENGINE)).is_ok_and(|engine| engine != place)
}

/// Reads what the guest says first.
pub(crate) async fn report(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Report> {
    let length = stream.read_u32_le().await? as usize;
    if length > LONGEST_REPORT {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text).await?;
    Ok(serde_json::from_slice(&text)?)
}
