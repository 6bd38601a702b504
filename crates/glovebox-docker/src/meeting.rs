//! Where host and guest meet: a folder that is mounted in the container, and the sockets in it.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use glovebox_core::SandboxId;
use glovebox_proto::container::{CHANNEL, GUEST_SOCKET, HOST_SOCKET, LONGEST_REPORT, Report};
use tokio::{
    io::AsyncReadExt,
    net::{UnixListener, UnixStream},
};

/// The folder of one sandbox below the runtime folder.
#[derive(Clone, Debug)]
pub(crate) struct Meeting(PathBuf);

impl Meeting {
    /// That of a sandbox.
    pub(crate) fn of(runtime: &Path, id: SandboxId) -> Self {
        Meeting(all(runtime).join(id.to_string()))
    }

    /// Makes the folder and listens in it for the guest.
    pub(crate) fn open(&self) -> io::Result<UnixListener> {
        let _ = fs::remove_dir_all(&self.0);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        let listener = UnixListener::bind(self.inside(HOST_SOCKET))?;
        fs::set_permissions(self.inside(HOST_SOCKET), fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    }

    /// The folder, as it is mounted.
    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    /// Connects to the guest of a living sandbox.
    pub(crate) async fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(self.inside(GUEST_SOCKET)).await
    }

    /// Removes the folder.
    pub(crate) fn remove(&self) {
        let _ = fs::remove_dir_all(&self.0);
    }

    /// Where a socket is on the host.
    fn inside(&self, socket: &str) -> PathBuf {
        self.0.join(Path::new(socket).strip_prefix(CHANNEL).unwrap_or(Path::new("host")))
    }
}

/// The folder of all sandboxes.
pub(crate) fn all(runtime: &Path) -> PathBuf {
    runtime.join("docker")
}

/// Reads what the guest says first.
pub(crate) async fn report(stream: &mut UnixStream) -> io::Result<Report> {
    let length = stream.read_u32_le().await? as usize;
    if length > LONGEST_REPORT {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text).await?;
    Ok(serde_json::from_slice(&text)?)
}
