//! Where living sandboxes are found: a folder for each in the runtime folder.
//!
//! `RUNTIME/sandboxes/ID/` holds `channel`, the guest's socket; `leaves`, another of the guest's, where the keeper hands out
//! groups for runs; `keeper`, the keeper's; `lock`, which the keeper holds
//! while it lives; `live.json`, who the guest is; `pauses`, when it was paused; `used`, whose time of change is when the sandbox was last used. The folder is
//! closed to other users. All of it is made again when a sandbox starts, and none of it survives a reboot.
//!
//! A guest is known by its process id, the moment it started and the boot that it started in, so that no other process is
//! ever taken for it.

use std::{
    fs, io,
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use glovebox_core::{Layer, Pauses, SandboxId};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FlockOperation, Mode, OFlags, fcntl_lock},
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with},
    process::{Pid, PidfdFlags, pidfd_open},
};
use serde::{Deserialize, Serialize};

use crate::{
    owner::{RuntimeFolder, make_private},
    plan::Plan,
    sys,
};

/// The first part of the names of a living sandbox's groups, where those of others have their launcher's id.
pub(crate) const GROUP_OWNER: &str = "living";

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A socket of a living sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// The guest's: a byte stream.
    Channel,
    /// The keeper's: messages.
    Keeper,
    /// The guest's, on which the keeper hands out groups for runs: messages.
    Leaves,
}

impl Door {
    fn name(self) -> &'static str {
        match self {
            Door::Channel => "channel",
            Door::Keeper => "keeper",
            Door::Leaves => "leaves",
        }
    }

    fn kind(self) -> SocketType {
        match self {
            Door::Channel => SocketType::STREAM,
            Door::Keeper | Door::Leaves => SocketType::SEQPACKET,
        }
    }
}

/// The folder of one living sandbox. It may be there or not.
#[derive(Clone, Debug)]
pub(crate) struct LivingFolder {
    path: PathBuf,
    pub(crate) id: SandboxId,
}

/// So often the making of a folder is tried, a millisecond apart.
const ATTEMPTS: usize = 100;

impl LivingFolder {
    /// That of a sandbox.
    pub(crate) fn of(runtime: &RuntimeFolder, id: SandboxId) -> Self {
        LivingFolder { path: runtime.sandboxes().join(id.to_string()), id }
    }

    /// Those of all sandboxes of a user.
    pub(crate) fn all(runtime: &RuntimeFolder) -> Vec<Self> {
        let entries = fs::read_dir(runtime.sandboxes()).into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.map(|id| LivingFolder::of(runtime, id)).collect()
    }

    /// Makes the folder and takes its lock.
    pub(crate) fn make(&self) -> io::Result<OwnedFd> {
        make_private(self.path.parent().expect("it lies in the runtime folder"))?;
        let mut last = io::Error::from(rustix::io::Errno::BUSY);
        // Before it is locked, a collector may take the folder for one that was left, and remove it, at any moment.
        for _ in 0..ATTEMPTS {
            match make_private(&self.path).and_then(|()| self.take_lock()) {
                Ok(Some(lock)) => {
                    self.touch()?;
                    return Ok(lock);
                }
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => last = error,
                Err(error) => return Err(error),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(last)
    }

    /// Takes the lock, unless somebody has it. Never call this in a process that holds it: a lock belongs to the process, and
    /// closing its file a second time would release it.
    pub(crate) fn take_lock(&self) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(self.path.join("lock"), flags, Mode::from_raw_mode(0o600))?;
        // Not later: to close another descriptor of it would release it.
        let file = sys::put_aside(file);
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            // Whoever had it has removed the folder since it was opened here, and the folder may be another's by now.
            Ok(()) if rustix::fs::fstat(&file)?.st_nlink == 0 => Ok(None),
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a keeper holds the lock.
    pub(crate) fn is_kept(&self) -> bool {
        // One that cannot be looked at, for want of a descriptor perhaps, is not taken for free.
        self.path.join("lock").exists() && !matches!(self.take_lock(), Ok(Some(_)))
    }

    /// Listens on a socket of this folder.
    pub(crate) fn listen(&self, door: Door) -> io::Result<OwnedFd> {
        let _ = fs::remove_file(self.path.join(door.name()));
        let socket = socket_with(AddressFamily::UNIX, door.kind(), SocketFlags::CLOEXEC, None)?;
        self.with_address(door, |address| bind(&socket, address))?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    }

    /// Connects to a socket of this folder.
    pub(crate) fn connect(&self, door: Door) -> io::Result<OwnedFd> {
        let socket = socket_with(AddressFamily::UNIX, door.kind(), SocketFlags::CLOEXEC, None)?;
        self.with_address(door, |address| connect(&socket, address))?;
        Ok(socket)
    }

    /// Hands on the address of a socket. It goes by a descriptor of the folder, since addresses are short and folders are not
    /// always.
    fn with_address(&self, door: Door, act: impl Fn(&SocketAddrUnix) -> rustix::io::Result<()>) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&self.path, flags, Mode::empty())?;
        let address = SocketAddrUnix::new(format!("/proc/self/fd/{}/{}", folder.as_raw_fd(), door.name()))?;
        Ok(act(&address)?)
    }

    /// Says that the sandbox is being used now.
    pub(crate) fn touch(&self) -> io::Result<()> {
        fs::write(self.path.join("used"), b"")
    }

    /// How long ago the sandbox was used.
    pub(crate) fn unused_for(&self) -> io::Result<Duration> {
        let used = fs::metadata(self.path.join("used"))?.modified()?;
        Ok(used.elapsed().unwrap_or_default())
    }

    /// Writes down who the guest is. Readers see the old text or the new one.
    pub(crate) fn write(&self, record: &LiveRecord) -> io::Result<()> {
        let new = self.path.join("live.json.new");
        fs::write(&new, serde_json::to_vec(record)?)?;
        fs::rename(new, self.path.join("live.json"))
    }

    /// Who the guest is, if it was written down.
    fn read(&self) -> io::Result<Option<LiveRecord>> {
        match fs::read(self.path.join("live.json")) {
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
            Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The guest of this boot that still lives, and what is known of it. An error, for want of a descriptor perhaps, is no
    /// word on whether it lives.
    pub(crate) fn guest(&self) -> io::Result<Option<(OwnedFd, LiveRecord)>> {
        let Some(record) = self.read()? else { return Ok(None) };
        Ok(record.guest.open()?.map(|guest| (guest, record)))
    }

    /// Whether it is known that no guest lives.
    pub(crate) fn has_no_guest(&self) -> bool {
        matches!(self.guest(), Ok(None))
    }

    /// Removes the folder. The lock goes last, so that nobody makes it anew while something is left.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let files =
            ["live.json.new", "live.json", "pauses.new", "pauses", "channel", "keeper", "leaves", "used", "lock"];
        for name in files {
            match fs::remove_file(self.path.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        match fs::remove_dir(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl LivingFolder {
    /// Notes that a pause is about to begin. Says by which moment it is known.
    pub(crate) fn pause_begins(&self, is_frozen: bool) -> io::Result<i64> {
        let mut pauses = self.pauses();
        pauses.begin(now_ms(), is_frozen);
        self.write_pauses(&pauses)?;
        Ok(pauses.last_begun().unwrap_or_default())
    }

    /// Notes that the pause is about to be over, if there is one.
    pub(crate) fn pause_ends(&self, is_frozen: bool) -> io::Result<()> {
        let mut pauses = self.pauses();
        pauses.end(now_ms(), is_frozen);
        self.write_pauses(&pauses)
    }

    /// Whether the pause that is known by a moment has neither ended nor given way to another.
    pub(crate) fn is_last_pause(&self, begun: i64) -> bool {
        self.pauses().is_open_since(begun)
    }

    /// How long the sandbox was paused since a moment.
    pub(crate) fn paused_since(&self, since_ms: i64, is_frozen: bool) -> Duration {
        Duration::from_millis(self.pauses().since(since_ms, now_ms(), is_frozen) as u64)
    }

    fn pauses(&self) -> Pauses {
        fs::read(self.path.join("pauses")).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    fn write_pauses(&self, pauses: &Pauses) -> io::Result<()> {
        let new = self.path.join("pauses.new");
        fs::write(&new, serde_json::to_vec(pauses)?)?;
        fs::rename(new, self.path.join("pauses"))
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// A process that cannot be mistaken for another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    pub(crate) pid: i32,
    /// When it started, in the kernel's ticks since the boot.
    started: u64,
    boot: String,
}

impl Known {
    /// A process that lives.
    pub(crate) fn of(pid: Pid) -> io::Result<Self> {
        let pid = pid.as_raw_nonzero().get();
        let started = started(pid)?.ok_or_else(|| io::Error::from(rustix::io::Errno::SRCH))?;
        Ok(Known { pid, started, boot: boot_id()? })
    }

    /// Opens the process, if it still lives.
    pub(crate) fn open(&self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => return Ok(None),
            other => other?,
        };
        // While the descriptor is open the id can mean nothing else, so what is looked at now is what was opened.
        let same = started(self.pid)? == Some(self.started) && boot_id()? == self.boot;
        Ok((same && !has_ended(&process)).then_some(process))
    }
}

impl Known {
    /// Whether the process, which has not ended, was killed: the kernel has begun to take it apart. A guest's end waits for
    /// that of all processes of its sandbox.
    pub(crate) fn is_ending(&self) -> bool {
        const EXITING: u64 = 0x4;
        let stat = sys::read_small(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect()).unwrap_or_default();
        let flags = fields.get(6).and_then(|flags| flags.parse::<u64>().ok()).unwrap_or(0);
        flags & EXITING != 0 || fields.first() == Some(&"Z")
    }
}

/// Whether a process has ended, though somebody may still have to wait for it.
fn has_ended(process: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)) != Ok(0)
}

fn boot_id() -> io::Result<String> {
    Ok(sys::read_small("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Field 22 of proc(5); the field after the name is the third.
fn started(pid: i32) -> io::Result<Option<u64>> {
    match sys::read_small(format!("/proc/{pid}/stat")) {
        Ok(stat) => Ok(stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(19)?.parse().ok())),
        // It ended just now.
        Err(error) if [Some(libc::ENOENT), Some(libc::ESRCH)].contains(&error.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Who the guest of a living sandbox is, and all that another keeper needs to take over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LiveRecord {
    pub(crate) guest: Known,
    pub(crate) group: String,
    pub(crate) plan: Plan,
    /// Whether its runs have groups of their own.
    #[serde(default)]
    pub(crate) leaves: bool,
    /// The range of host ids of a sandbox of root.
    #[serde(default)]
    pub(crate) range: Option<u32>,
    /// The layers that were found in place, once they were looked at.
    pub(crate) present: Option<Vec<Layer>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_again_and_no_other_is_taken_for_it() {
        let own = Known::of(rustix::process::getpid()).unwrap();
        assert!(own.open().unwrap().is_some());
        let other = Known { started: own.started + 1, ..own.clone() };
        assert!(other.open().unwrap().is_none());
        let before_the_boot = Known { boot: "another".into(), ..own };
        assert!(before_the_boot.open().unwrap().is_none());
    }

    #[test]
    fn a_process_that_ended_is_not_opened() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let known = Known::of(Pid::from_raw(child.id() as i32).unwrap());
        child.wait().unwrap();
        assert!(known.is_err() || known.unwrap().open().unwrap().is_none());
    }

    #[test]
    fn a_folder_is_made_while_others_remove_it_for_being_left() {
        let at = tempfile::tempdir().unwrap();
        let id = SandboxId::new();
        let folder = LivingFolder { path: at.path().join(id.to_string()), id };
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    // The last thing that a collector does, and the only one that locks do not keep apart.
                    let _ = fs::remove_dir(&folder.path);
                    std::thread::sleep(Duration::from_micros(20));
                }
            });
            for round in 0..2000 {
                let made = folder.make().map(drop).and_then(|()| folder.remove());
                is_over.store(made.is_err() || round == 1999, std::sync::atomic::Ordering::Relaxed);
                made.unwrap();
            }
        });
    }
}
