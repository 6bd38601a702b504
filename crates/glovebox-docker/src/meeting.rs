//! Where host and guest meet: a folder that is mounted in the container, and the sockets in it.

use std::{
    collections::HashMap,
    fs, io,
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use glovebox_core::{Isolation, LimitsInForce, Pauses, SandboxId};
use glovebox_proto::container::{CHANNEL, GUEST_SOCKET, HOST_SOCKET, LONGEST_REPORT, Report};
use jiff::Timestamp;
use rustix::fs::{FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    net::{UnixListener, UnixStream},
};

use crate::{counted::Groups, mapped::Root, owner};

/// The file that names the engine which a sandbox is of.
const ENGINE: &str = "engine";

/// The file with the labels of its container.
const LABELS: &str = "labels.json";

/// How long a guest with too many visitors is tried again, and how often.
const FULL: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(2);

/// The folder of one sandbox below the runtime folder: what both sides see in `channel`, and beside it what only the host does.
#[derive(Clone, Debug)]
pub(crate) struct Meeting(PathBuf);

/// What was found of a sandbox when its guest was ready.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) isolation: Isolation,
    pub(crate) limits: LimitsInForce,
}

/// Which process of this machine a guest is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Guest {
    pub(crate) pid: i32,
    /// When it started; see [`Stat`](crate::process::Stat).
    pub(crate) start: u64,
    /// The groups of its container.
    pub(crate) groups: Groups,
}

impl Meeting {
    /// That of a sandbox.
    pub(crate) fn of(runtime: &Path, id: SandboxId) -> Self {
        Meeting(all(runtime).join(id.to_string()))
    }

    /// Makes the folder for a sandbox of the engine at this place, whose container has these labels.
    pub(crate) fn make(&self, place: &str, labels: &HashMap<String, String>) -> io::Result<()> {
        let above = self.0.parent().unwrap_or(&self.0);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(above)?;
        above.parent().map_or(Ok(()), must_be_own)?;
        self.remove();
        fs::DirBuilder::new().mode(0o700).create(&self.0)?;
        fs::write(self.0.join(LABELS), serde_json::to_vec(labels)?)?;
        fs::write(self.0.join(ENGINE), place)
    }

    /// The same, and listens in it for the guest, which comes as this root where it is not that of the host.
    pub(crate) fn open(
        &self,
        place: &str,
        labels: &HashMap<String, String>,
        root: Option<Root>,
    ) -> io::Result<UnixListener> {
        self.make(place, labels)?;
        fs::DirBuilder::new().mode(0o700).create(self.folder())?;
        let listener = UnixListener::bind(self.inside(HOST_SOCKET))?;
        fs::set_permissions(self.inside(HOST_SOCKET), fs::Permissions::from_mode(0o600))?;
        if let Some(root) = root {
            for path in [self.inside(HOST_SOCKET), self.folder()] {
                chown(path, Some(root.uid), Some(root.gid))?;
            }
        }
        Ok(listener)
    }

    /// The folder, as it is mounted.
    pub(crate) fn folder(&self) -> PathBuf {
        self.0.join("channel")
    }

    /// Connects to the guest of a living sandbox. The folder is seen from inside as well: nothing in it is followed, and where the first
    /// process of the container is known, nobody else is listened to.
    pub(crate) async fn connect(&self, first: Option<i32>) -> io::Result<UnixStream> {
        self.open_folder();
        let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(self.folder(), look | OFlags::DIRECTORY, Mode::empty())?;
        let name = Path::new(GUEST_SOCKET).file_name().unwrap_or_default();
        let socket = rustix::fs::openat(&folder, name, look, Mode::empty())?;
        if FileType::from_raw_mode(rustix::fs::fstat(&socket)?.st_mode) != FileType::Socket {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the guest's socket is none"));
        }
        let place = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let deadline = Instant::now() + FULL;
        let stream = loop {
            match UnixStream::connect(&place).await {
                // As many wait as can wait. They are taken one after the other, or hung up on.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                    tokio::time::sleep(AGAIN).await;
                }
                connected => break connected?,
            }
        };
        if first.is_some() && stream.peer_cred()?.pid() != first {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "another process listens in place of the guest",
            ));
        }
        self.note_use()?;
        Ok(stream)
    }

    /// Another address of the engine, by which the sandbox was started: guest and host meet in another way there.
    pub(crate) fn other_way(&self, place: &str) -> Option<String> {
        fs::read_to_string(self.0.join(ENGINE)).ok().filter(|engine| engine != place)
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

    /// Notes that the guest said that it is ready, and what it found: from then on it stays without whoever made it.
    pub(crate) fn note_ready(&self, found: &Found) -> io::Result<()> {
        let new = self.0.join("ready.new");
        fs::write(&new, serde_json::to_vec(found)?)?;
        fs::rename(new, self.0.join("ready"))
    }

    /// What it found, where that was noted.
    pub(crate) fn found(&self) -> Option<Found> {
        serde_json::from_slice(&fs::read(self.0.join("ready")).ok()?).ok()
    }

    /// Whether the guest of a container with this owner has not said so: the folder is that in which its maker waits, or waited for it. Elsewhere nothing
    /// is known of that, as for callers with another runtime folder.
    pub(crate) fn is_unheard(&self, owner: &str) -> bool {
        labels(&self.0).is_some_and(|labels| owner::label(&labels, owner::OWNER) == Some(owner))
            && !self.0.join("ready").exists()
    }

    /// Notes which process the guest is.
    pub(crate) fn note_guest(&self, guest: &Guest) -> io::Result<()> {
        fs::write(self.0.join("guest"), serde_json::to_vec(guest)?)
    }

    /// Which process the guest is, if that was noted.
    pub(crate) fn guest(&self) -> Option<Guest> {
        serde_json::from_slice(&fs::read(self.0.join("guest")).ok()?).ok()
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

    /// Makes the folder that is mounted the host's again. Commands that have the caller's own id may have closed it.
    fn open_folder(&self) {
        let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::DIRECTORY;
        let Ok(folder) = rustix::fs::open(self.folder(), look, Mode::empty()) else { return };
        if rustix::fs::fstat(&folder).is_ok_and(|found| found.st_mode & 0o7777 != 0o700) {
            let _ =
                fs::set_permissions(format!("/proc/self/fd/{}", folder.as_raw_fd()), fs::Permissions::from_mode(0o700));
        }
    }

    /// Removes the folder. What is left all the same is found by its name.
    pub(crate) fn remove(&self) {
        let _ = self.try_remove();
    }

    /// Removes the folder, if it is there. Whoever is inside may put something into it meanwhile.
    pub(crate) fn try_remove(&self) -> io::Result<()> {
        const TIMES: usize = 10;
        self.open_folder();
        let mut removed = Ok(());
        for _ in 0..TIMES {
            removed = match fs::remove_dir_all(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed,
            };
            if removed.is_ok() {
                break;
            }
        }
        removed
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

/// An error unless the runtime folder and that of all sandboxes in it are the caller's alone. Whoever had one of them could put other folders in its
/// place, to be removed or to be listened in; in /tmp anybody may have made it.
pub(crate) fn must_be_own(runtime: &Path) -> io::Result<()> {
    for folder in [runtime, &all(runtime)] {
        let found = fs::symlink_metadata(folder)?;
        let is_own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0;
        if !is_own {
            let message = format!("{} is not a folder of the caller's alone", folder.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
    }
    Ok(())
}

/// Whether the folder of a sandbox is of one that another engine has, and that may be needed: who made it lives, or it stays.
pub(crate) fn is_of_another(folder: &Path, place: &str) -> bool {
    fs::read_to_string(folder.join(ENGINE)).is_ok_and(|engine| engine != place) && !is_over(folder)
}

/// Whether the folder of a sandbox is of one whose maker is dead, and which went with it.
pub(crate) fn is_over(folder: &Path) -> bool {
    labels(folder).is_some_and(|labels| owner::is_over(&labels))
}

/// The labels of the container that the folder of a sandbox is for.
fn labels(folder: &Path) -> Option<HashMap<String, String>> {
    serde_json::from_slice(&fs::read(folder.join(LABELS)).ok()?).ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn opened() -> (tempfile::TempDir, Meeting) {
        let runtime = tempfile::tempdir().unwrap();
        let meeting = Meeting(runtime.path().join("docker/one"));
        fs::create_dir_all(meeting.folder()).unwrap();
        (runtime, meeting)
    }

    #[tokio::test]
    async fn a_guest_is_reached_and_nobody_in_its_place() {
        let (_runtime, meeting) = opened();
        let _guest = UnixListener::bind(meeting.inside(GUEST_SOCKET)).unwrap();
        let own = std::process::id() as i32;
        assert!(meeting.connect(None).await.is_ok());
        assert!(meeting.connect(Some(own)).await.is_ok());
        let error = meeting.connect(Some(own + 1)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn only_in_the_folder_of_its_maker_is_a_guest_known_not_to_have_been_heard() {
        let (_runtime, meeting) = opened();
        assert!(!meeting.is_unheard("maker"), "nothing is known of it here");
        let labels = HashMap::from([(owner::OWNER, "maker")]);
        fs::write(meeting.0.join(LABELS), serde_json::to_vec(&labels).unwrap()).unwrap();
        assert!(meeting.is_unheard("maker") && !meeting.is_unheard("another"));
        let found = Found { isolation: Isolation::default(), limits: LimitsInForce::default() };
        meeting.note_ready(&found).unwrap();
        assert!(!meeting.is_unheard("maker") && meeting.found() == Some(found));
    }

    #[tokio::test]
    async fn a_folder_that_was_closed_from_inside_is_opened_and_removed() {
        let (_runtime, meeting) = opened();
        let _guest = UnixListener::bind(meeting.inside(GUEST_SOCKET)).unwrap();
        for work in ["reach", "remove"] {
            fs::set_permissions(meeting.folder(), fs::Permissions::from_mode(0o000)).unwrap();
            match work {
                "reach" => assert!(meeting.connect(None).await.is_ok()),
                _ => meeting.remove(),
            }
            assert!(
                fs::metadata(meeting.folder()).is_ok_and(|found| found.mode() & 0o777 == 0o700) == (work == "reach")
            );
        }
        assert!(!meeting.0.exists());
    }

    #[tokio::test]
    async fn no_link_that_was_put_in_the_folder_is_followed() {
        let (runtime, meeting) = opened();
        let elsewhere = runtime.path().join("elsewhere");
        let _other = UnixListener::bind(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, meeting.inside(GUEST_SOCKET)).unwrap();
        assert!(meeting.connect(None).await.is_err());
        fs::remove_dir_all(meeting.folder()).unwrap();
        fs::create_dir(runtime.path().join("folder")).unwrap();
        fs::rename(&elsewhere, runtime.path().join("folder/guest")).unwrap();
        std::os::unix::fs::symlink(runtime.path().join("folder"), meeting.folder()).unwrap();
        assert!(meeting.connect(None).await.is_err());
    }
}
