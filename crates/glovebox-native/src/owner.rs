//! Who owns what is on the host: lock files that live as long as their launcher.
//!
//! Before a launcher makes anything, it creates a file named by its own id and locks it. The kernel releases the
//! lock when the launcher dies, however it dies; it is a lock of the process, not of the open file, so that the guests
//! it forked do not hold it for a moment longer. Everything a launcher leaves outside its own process carries its id
//! in its name, so whoever can take the lock may remove all of it, and nobody is taken for dead who is not.

use std::{
    fs, io,
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, MetadataExt},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, Mode, OFlags, fcntl_lock},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use glovebox_core::{Error, ErrorCode, Result, SandboxId};

use crate::{
    NativeBackend,
    cgroup::{Cgroups, Side},
    confined,
    living::{GROUP_OWNER, LivingFolder},
    ranges,
};

/// The folder in which the launchers of one user keep what does not outlive the host.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeFolder {
    path: PathBuf,
    /// The user, as the host knows them.
    uid: u32,
}

impl RuntimeFolder {
    /// That of the calling user: root's, or the one that the session gives, or one in /tmp that nobody else may enter.
    pub(crate) fn of_caller() -> Self {
        let uid = rustix::process::geteuid();
        if uid.is_root() {
            return RuntimeFolder { path: "/run/glovebox".into(), uid: 0 };
        }
        let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
        let owned = |folder: &PathBuf| fs::metadata(folder).is_ok_and(|found| found.uid() == uid.as_raw());
        let session = session.filter(owned).map(|folder| folder.join("glovebox"));
        let path = session.unwrap_or_else(|| format!("/tmp/glovebox-{}", uid.as_raw()).into());
        RuntimeFolder { path, uid: uid.as_raw() }
    }

    /// That of the calling user, unless somebody else was there first: in /tmp anybody can make a folder of this name.
    pub(crate) fn of_caller_alone() -> Result<Self> {
        let folder = Self::of_caller();
        match fs::symlink_metadata(&folder.path) {
            Ok(found) => folder.must_be_own(&found).map(|()| folder),
            // Where it is not there, it is made, with what that takes.
            Err(_) => Ok(folder),
        }
    }

    fn must_be_own(&self, found: &fs::Metadata) -> Result<()> {
        let wrong = match () {
            () if !found.is_dir() => "is not a folder",
            () if found.uid() != self.uid => "belongs to another user",
            () if found.mode() & 0o022 != 0 => "can be written by others",
            () => return Ok(()),
        };
        let message = format!("{}, where Glovebox keeps what runs, {wrong}", self.path.display());
        let hint = "have it removed, or set XDG_RUNTIME_DIR to a folder of your own that nobody else can enter";
        Err(Error::new(ErrorCode::BackendUnavailable, message).hint(hint))
    }

    /// Whose it is, as the host knows them.
    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }

    /// Where it is.
    pub(crate) fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Where living sandboxes are found.
    pub(crate) fn sandboxes(&self) -> PathBuf {
        self.path.join("sandboxes")
    }

    /// Where the ranges of host ids are taken.
    pub(crate) fn ids(&self) -> PathBuf {
        self.path.join("ids")
    }

    fn launchers(&self) -> PathBuf {
        self.path.join("launchers")
    }

    /// An empty folder that a launcher covers, in its own mount namespace, to attach things.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.path.join("scratch")
    }

    fn lock(&self, name: &str) -> PathBuf {
        self.launchers().join(format!("{name}{ENDING}"))
    }
}

impl NativeBackend {
    /// The folder in which launchers of this user keep their locks, and below which each has its scratch folder.
    pub fn runtime_folder() -> PathBuf {
        RuntimeFolder::of_caller().path()
    }

    /// The same, unless somebody else was there first.
    pub fn own_runtime_folder() -> Result<PathBuf> {
        RuntimeFolder::of_caller_alone().map(|folder| folder.path())
    }
}

const ENDING: &str = ".lock";

/// How long the processes of a dead launcher may take to end.
const LONGEST_END: Duration = Duration::from_secs(1);

/// The lock of a living launcher.
#[derive(Debug)]
pub(crate) struct Owner {
    folder: RuntimeFolder,
    name: String,
    _lock: OwnedFd,
}

impl Owner {
    /// Registers a new launcher.
    pub(crate) fn register(folder: RuntimeFolder) -> io::Result<Self> {
        make_private(&folder.path)?;
        make_private(&folder.launchers())?;
        make_private(&folder.scratch())?;
        let mut bytes = [0u8; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("{:016x}", u64::from_le_bytes(bytes));
        // The file gets its name only once it is locked, so that no collector ever sees it unlocked while we live.
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let lock = rustix::fs::open(folder.launchers(), flags, Mode::from_raw_mode(0o600))?;
        fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&lock));
        rustix::fs::linkat(
            rustix::fs::CWD,
            own,
            rustix::fs::CWD,
            folder.lock(&name),
            rustix::fs::AtFlags::SYMLINK_FOLLOW,
        )?;
        Ok(Owner { folder, name, _lock: lock })
    }

    /// The folder that it is registered in.
    pub(crate) fn folder(&self) -> &RuntimeFolder {
        &self.folder
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The name of a sandbox's groups.
    pub(crate) fn group(&self, id: glovebox_core::SandboxId) -> String {
        format!("{}.{id}", self.name)
    }

    /// Removes what dead launchers left. It never looks at its own file: closing it again would release its lock.
    pub(crate) fn collect_garbage(&self, cgroups: &Cgroups, kept: &[SandboxId]) -> io::Result<Vec<String>> {
        collect_garbage(&self.folder, cgroups, Own { name: Some(&self.name), kept })
    }

    /// Takes the launcher off the register. Nothing of it may be left.
    pub(crate) fn unregister(self) {
        let _ = fs::remove_file(self.folder.lock(&self.name));
    }
}

/// Makes a folder that only its owner can enter, and what is missing on the way to it. One that somebody else made, or
/// that others can write, is not trusted.
pub(crate) fn make_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} belongs to another user, or can be written by others", folder.display()),
        ));
    }
    Ok(())
}

/// A sandbox's groups as found on the host.
pub(crate) struct FoundGroup {
    pub(crate) name: String,
    pub(crate) id: glovebox_core::SandboxId,
    pub(crate) owned: bool,
}

/// Whether a living sandbox is one: somebody keeps it, or its guest lives and waits for a keeper.
pub(crate) fn is_alive(folder: &LivingFolder) -> bool {
    folder.is_kept() || !folder.has_no_guest()
}

/// What a launcher has that looks at the groups of all: its own name, and the living sandboxes that it keeps. It must not
/// look at its own locks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Own<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) kept: &'a [SandboxId],
}

/// The sandboxes that have no namespaces, with whether their launcher lives.
pub(crate) fn found_folders(folder: &RuntimeFolder) -> Vec<(SandboxId, bool)> {
    confined::found(folder).into_iter().map(|found| (found.id, lives(folder, &found.owner))).collect()
}

/// All groups on this host, with whether their launcher lives.
pub(crate) fn found_groups(folder: &RuntimeFolder, cgroups: &Cgroups, own: Own<'_>) -> Vec<FoundGroup> {
    let Own { name: own, kept } = own;
    cgroups
        .names()
        .into_iter()
        .filter_map(|name| {
            let (owner, id) = name.split_once('.')?;
            let id = id.parse().ok()?;
            let owned = match owner {
                GROUP_OWNER => kept.contains(&id) || is_alive(&LivingFolder::of(folder, id)),
                _ => own == Some(owner) || lives(folder, owner),
            };
            Some(FoundGroup { name, id, owned })
        })
        .collect()
}

fn lives(folder: &RuntimeFolder, owner: &str) -> bool {
    let file = match rustix::fs::open(folder.lock(owner), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => file,
        // Only one that is not there is dead for sure; another may not be looked at for want of a descriptor.
        Err(error) => return error != rustix::io::Errno::NOENT,
    };
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
}

/// What dead launchers left.
pub(crate) fn find_garbage(folder: &RuntimeFolder, cgroups: &Cgroups) -> Vec<String> {
    let groups = found_groups(folder, cgroups, Own::default()).into_iter().filter(|group| !group.owned);
    let groups = groups.map(|group| format!("groups of {}", group.id));
    let folders = found_folders(folder).into_iter().filter(|(_, owned)| !owned);
    let folders = folders.map(|(id, _)| format!("files of {id}"));
    let ids = folder.ids();
    let ranges = ranges::left_behind(&ids, cgroups).map(|(_, what)| what);
    groups.chain(folders).chain(ranges).collect()
}

/// Removes what dead launchers left, and says what it was.
pub(crate) fn collect_garbage(folder: &RuntimeFolder, cgroups: &Cgroups, own: Own<'_>) -> io::Result<Vec<String>> {
    let mut removed = Vec::new();
    for found in found_groups(folder, cgroups, own).into_iter().filter(|found| !found.owned) {
        let groups = cgroups.named_living(&found.name);
        // Where a process cannot die, the next one who collects finds it again.
        if end_processes(&groups) && groups.remove_when_empty() {
            removed.push(format!("groups of {}", found.id));
        }
    }
    for found in confined::found(folder).into_iter().filter(|found| own.name != Some(&found.owner)) {
        if !lives(folder, &found.owner) && confined::remove(&found) {
            removed.push(format!("files of {}", found.id));
        }
    }
    for entry in fs::read_dir(folder.launchers()).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        if let Some(owner) = name.strip_suffix(ENDING)
            && own.name != Some(owner)
            && !lives(folder, owner)
            && fs::remove_file(entry.path()).is_ok()
        {
            removed.push(format!("lock of launcher {owner}"));
        }
    }
    for dead in LivingFolder::all(folder).into_iter().filter(|found| !own.kept.contains(&found.id)) {
        // One that is being made has its keeper, and the lock is taken here so that nobody begins meanwhile.
        if dead.has_no_guest()
            && let Ok(Some(_lock)) = dead.take_lock()
            && dead.has_no_guest()
            && dead.remove().is_ok()
        {
            removed.push(format!("the folder of {}", dead.id));
        }
    }
    removed.extend(ranges::collect(&folder.ids(), cgroups));
    Ok(removed)
}

/// Ends every process of a dead launcher's groups. A process is signalled only through a descriptor that was opened
/// while the process was seen in the group both before and after, so that no recycled id is ever hit. Says whether all ended
/// in time: one that the kernel does not let die is not waited for.
fn end_processes(groups: &crate::cgroup::Groups) -> bool {
    let deadline = Instant::now() + LONGEST_END;
    // Nobody who is frozen dies.
    groups.thaw();
    loop {
        let mut left = Vec::new();
        for side in [Side::Guest, Side::Run] {
            for pid in groups.processes(side) {
                let Some(process) = Pid::from_raw(pid) else { continue };
                let Ok(descriptor) = pidfd_open(process, PidfdFlags::empty()) else { continue };
                if groups.processes(side).contains(&pid) {
                    let _ = pidfd_send_signal(&descriptor, Signal::KILL);
                    left.push(descriptor);
                }
            }
        }
        let Some(one) = left.first() else { return true };
        let patience = deadline.saturating_duration_since(Instant::now());
        if patience.is_zero() {
            return false;
        }
        wait_for_end(one, patience);
    }
}

/// Waits until a process is over, but not longer than so.
fn wait_for_end(descriptor: &OwnedFd, patience: Duration) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let limit = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
    let _ = poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&limit));
}
