//! What backend and launcher say to each other.

use std::{io, path::PathBuf};

use glovebox_core::{Error, ErrorCode, Layer, Outgrown, RunId, SandboxId, Tier, UsageNow};
use serde::{Deserialize, Serialize};

use crate::{cgroup::HeldByGroups, host_facts, standing::NEW_NAMESPACE};

/// Everything about a sandbox that the launcher needs, as plain values.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// What the programs themselves may use.
    pub(crate) memory: u64,
    pub(crate) pids: u64,
    pub(crate) cpus: f64,
    pub(crate) disk: u64,
    pub(crate) inodes: u64,
    pub(crate) open_files: u64,
    pub(crate) host_network: bool,
    pub(crate) workspace: Option<PlannedMount>,
    pub(crate) workspace_overlay: bool,
    pub(crate) mounts: Vec<PlannedMount>,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Whether commands have the caller's own id outside, so that what they are shown of the caller's folders is theirs.
    pub(crate) as_caller: bool,
    /// What makes it a living sandbox.
    pub(crate) living: Option<PlannedLife>,
    /// The weakest tier that the caller accepts.
    pub(crate) isolation: Tier,
}

/// What a keeper needs to know of a living sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlannedLife {
    /// The folder of the host that holds what is written inside.
    pub(crate) store: PathBuf,
    pub(crate) idle_ms: Option<u64>,
    /// When it ends at the latest, milliseconds since 1970.
    pub(crate) expires_ms: Option<i64>,
}

impl Plan {
    /// The kernel's hard limit on the commands' group. What is written inside lives in memory, so it counts too; a
    /// watch holds the programs' own share to `memory` (see `watch`). A living sandbox writes to disk.
    pub(crate) fn group_memory(&self) -> u64 {
        self.memory.saturating_add(self.store_memory()).min(i64::MAX as u64)
    }

    /// How much memory the store may take.
    pub(crate) fn store_memory(&self) -> u64 {
        if self.living.is_some() { 0 } else { self.disk }
    }

    /// Whether what programs write themselves lies on a file system that has no size limit of its own.
    pub(crate) fn writes_to_host(&self) -> bool {
        self.living.is_some() || !self.written_folders().is_empty()
    }

    /// Files and folders of the host that programs can write in place, and in which what is written counts as the sandbox's.
    pub(crate) fn written_folders(&self) -> Vec<&str> {
        let workspace = self.workspace.as_ref().filter(|_| !self.workspace_overlay);
        let written = self.mounts.iter().chain(workspace).filter(|mount| !mount.read_only && mount.volume.is_none());
        written.map(|mount| mount.source.as_str()).collect()
    }

    /// Volumes that programs can write, and how much each may hold.
    pub(crate) fn written_volumes(&self) -> impl Iterator<Item = (&PlannedMount, u64)> {
        self.mounts.iter().filter(|mount| !mount.read_only).filter_map(|mount| Some((mount, mount.volume?)))
    }
}

/// A host file or folder to mount.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PlannedMount {
    /// Absolute path on the host.
    pub(crate) source: String,
    /// Absolute path inside.
    pub(crate) target: String,
    pub(crate) read_only: bool,
    /// How much it may hold, if it is a volume; otherwise what is written there counts as the sandbox's.
    #[serde(default)]
    pub(crate) volume: Option<u64>,
}

/// What a backend asks of its launcher. A socket for the answer comes along; with `Create`, the guest's end of the
/// channel too.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    Create {
        id: SandboxId,
        plan: Box<Plan>,
    },
    /// Asks what was counted so far, of a run alone where that is known.
    Count {
        id: SandboxId,
        run: Option<RunId>,
    },
    /// Asks what a sandbox uses now.
    Usage {
        id: SandboxId,
    },
    Destroy {
        id: SandboxId,
    },
    /// Asks a keeper for what it holds of a living sandbox, as after its making.
    Open {
        id: SandboxId,
    },
    /// Has this launcher keep a living sandbox whose keeper is gone.
    Adopt {
        id: SandboxId,
    },
    /// Asks to be told when a living sandbox has outgrown its disk limit.
    WatchDisk {
        id: SandboxId,
        /// The run that whoever asks follows.
        run: Option<RunId>,
    },
    /// Freezes the commands of a living sandbox, or lets them go on.
    Freeze {
        id: SandboxId,
        frozen: bool,
    },
    /// Lets those processes of a frozen sandbox end that were killed.
    LetDie {
        id: SandboxId,
    },
    /// Removes the files of a living sandbox that has ended.
    RemoveStore {
        store: PathBuf,
    },
    /// Asks for the tier of the sandboxes that can be had here.
    Tier,
}

/// What the launcher answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Descriptors come along in this order: store, guest, disk watch if any.
    Created {
        held: HeldByGroups,
        guest_pid: i32,
        group: String,
        present: Vec<Layer>,
    },
    /// A sandbox without namespaces was made. Descriptors come along in this order: folder, guest, disk watch.
    Confined {
        guest_pid: i32,
        present: Vec<Layer>,
        /// Where its folders are on the host, by their paths inside.
        places: Vec<(String, String)>,
    },
    /// The tier of the sandboxes that can be had.
    Tier(Tier),
    /// What was counted so far. Comes before `Destroyed` where there is something to destroy.
    Counted(Counted),
    /// Nothing is left.
    Destroyed,
    /// It was done.
    Done,
    /// So many bytes of memory were given back. Comes after `Done` where processes were frozen.
    Reclaimed(u64),
    /// What a sandbox uses now.
    Usage(UsageNow),
    /// A limit that is watched was passed.
    Outgrown(Outgrown),
    Failed(Failure),
}

/// What the kernel counted of a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counted {
    pub(crate) cpu_ms: f64,
    pub(crate) memory_peak: u64,
    pub(crate) processes_peak: u64,
    pub(crate) memory_kills: u64,
    /// Processes that a watch ended for memory, where no group holds it.
    pub(crate) watcher_kills: u64,
    pub(crate) pids_refused: u64,
    /// Bytes that were read from storage and written to it, where that is known of one run.
    pub(crate) storage: Option<(u64, u64)>,
}

impl Counted {
    /// Takes each number that is higher in a later count of the same.
    pub(crate) fn raise_to(&mut self, later: &Counted) {
        self.cpu_ms = self.cpu_ms.max(later.cpu_ms);
        self.memory_peak = self.memory_peak.max(later.memory_peak);
        self.processes_peak = self.processes_peak.max(later.processes_peak);
        self.memory_kills = self.memory_kills.max(later.memory_kills);
        self.pids_refused = self.pids_refused.max(later.pids_refused);
    }

    /// Adds what was counted after it.
    pub(crate) fn add(&mut self, next: &Counted) {
        self.cpu_ms += next.cpu_ms;
        self.memory_peak = self.memory_peak.max(next.memory_peak);
        self.processes_peak = self.processes_peak.max(next.processes_peak);
        self.memory_kills += next.memory_kills;
        self.pids_refused += next.pids_refused;
    }
}

/// A step that failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// What was being done.
    pub(crate) step: String,
    /// The kernel's error number, or 0.
    pub(crate) errno: i32,
}

/// The step of one that is asked for a sandbox which it does not keep, or no longer.
pub(crate) const NOT_KEPT: &str = "find the sandbox";

/// Steps that fail for want of room in the data folder. Others fail for want of something else with the same number: the
/// kernel has no room for another namespace, perhaps.
pub(crate) const OPEN_STORE: &str = "open the store";
pub(crate) const FILL_STORE: &str = "fill the store";
pub(crate) const GIVE_OWNERS: &str = "give the folders their owners";
pub(crate) const REMOVE_FILES: &str = "remove the files";
const FILLS_DISK: [&str; 4] = [OPEN_STORE, FILL_STORE, GIVE_OWNERS, REMOVE_FILES];

/// What cannot be had when a sandbox is made.
const NOT_MADE: &str = "the sandbox could not be made";

impl Failure {
    pub(crate) fn new(step: impl Into<String>, error: &io::Error) -> Self {
        let step = step.into();
        match error.raw_os_error() {
            Some(errno) => Failure { step, errno },
            // One that is not the kernel's says itself what it is.
            None => Failure { step: format!("{step}: {error}"), errno: 0 },
        }
    }

    /// The error that a caller sees whose sandbox could not be made.
    pub(crate) fn into_error(self) -> Error {
        if self.step == NEW_NAMESPACE {
            return Error::new(
                ErrorCode::BackendUnavailable,
                "this host does not let an ordinary user make namespaces",
            )
            .because(self.reason())
            .hint(host_facts::hint_with_tier());
        }
        let code = if self.step.starts_with("mount ") { ErrorCode::InvalidMount } else { ErrorCode::SandboxSetup };
        let error = self.error_of(NOT_MADE, code);
        if code == ErrorCode::InvalidMount && [libc::ENOTDIR, libc::ELOOP].contains(&self.errno) {
            // A program that could write the folder around it may have put it there.
            return error.hint(
                "a file or a link is in its way, in another mount or in the workspace: remove it there, or mount \
                 elsewhere; glovebox reset also takes away what programs made of an overlay workspace",
            );
        }
        // What a host refuses is the host's doing, unless it is one of the caller's own folders. A chroot refuses with EINVAL,
        // and a host that allows no further namespace with ENOSPC.
        let refused = [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::EINVAL, libc::ENOSPC].contains(&self.errno);
        match refused && error.code == ErrorCode::SandboxSetup {
            true => error.hint(host_facts::hint_with_tier()),
            false => error,
        }
    }

    /// The error that a caller sees who wanted something else: what it was that could not be done.
    pub(crate) fn into_error_of(self, what: &str) -> Error {
        self.error_of(what, ErrorCode::HostIo)
    }

    fn error_of(&self, what: &str, code: ErrorCode) -> Error {
        if self.step == NOT_KEPT {
            return Error::new(ErrorCode::SandboxLost, "the sandbox went away");
        }
        let because = |code, message| Error::new(code, message).because(self.reason());
        match self.errno {
            0 => Error::new(code, format!("{what}: {}", self.step)),
            libc::ENOSPC | libc::EDQUOT if FILLS_DISK.contains(&self.step.as_str()) => {
                because(ErrorCode::HostIo, format!("{what}: {}", self.step))
                    .hint("make room on the disk of the data folder, or use another --data-dir")
            }
            libc::EMFILE | libc::ENFILE => {
                because(ErrorCode::TooMany, format!("the launcher has as many files open as it may: {}", self.step))
                    .hint("ulimit -n tells how many that are, and raises it; or have fewer sandboxes at one time")
            }
            _ => because(code, format!("{what}: {}", self.step)),
        }
    }

    fn reason(&self) -> io::Error {
        io::Error::from_raw_os_error(self.errno)
    }
}

impl From<glovebox_guest::own::Failed> for Failure {
    fn from(failed: glovebox_guest::own::Failed) -> Self {
        Failure::new(failed.step, &failed.error)
    }
}

/// Names a step for errors.
pub(crate) fn step<T>(name: &str, result: Result<T, impl Into<io::Error>>) -> Result<T, Failure> {
    result.map_err(|error| Failure::new(name, &error.into()))
}

/// The mounts that the guest attaches. The descriptor of each comes along.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MountOrders {
    /// Where each goes; the first is the root itself, the second the store.
    pub(crate) targets: Vec<String>,
}

/// What the guest says when its part is done.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum GuestReport {
    Ready(Report),
    Failed(Failure),
}

/// What only the processes inside can know of their isolation; the host checks the rest itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) keyring: bool,
    pub(crate) masked_proc: bool,
    pub(crate) landlock: bool,
    pub(crate) rlimits: bool,
    /// What only the process itself may look at where the launcher is an ordinary user.
    pub(crate) own: Option<OwnView>,
}

/// What a process sees of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnView {
    /// Its namespaces, by name.
    pub(crate) namespaces: Vec<(String, String)>,
    /// Whether the memory in which the kernel finds its environment is wiped.
    pub(crate) clean_environment: bool,
    /// Its process id, in its own namespace.
    pub(crate) pid: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(step: &str, errno: i32) -> Failure {
        Failure { step: step.into(), errno }
    }

    #[test]
    fn a_full_disk_is_called_so_whatever_was_wanted_of_it() {
        let made = failure(FILL_STORE, libc::ENOSPC).into_error();
        let removed = failure(REMOVE_FILES, libc::EDQUOT).into_error_of("not all could be removed");
        for (error, what) in [(made, NOT_MADE), (removed, "not all could be removed")] {
            assert_eq!(error.code, ErrorCode::HostIo);
            assert!(error.message.starts_with(what), "{error}");
            assert!(error.hint.is_some_and(|hint| hint.contains("make room on the disk")));
        }
    }

    #[test]
    fn a_kernel_without_room_for_a_namespace_is_no_full_disk() {
        let error = failure("fork the guest", libc::ENOSPC).into_error();
        assert_eq!(error.code, ErrorCode::SandboxSetup);
        assert!(!error.hint.is_some_and(|hint| hint.contains("make room")));
    }

    #[test]
    fn a_failure_that_is_not_the_kernels_keeps_its_words() {
        let error = io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user");
        let error = Failure::new("register the launcher", &error).into_error();
        assert_eq!(
            error.to_string(),
            "the sandbox could not be made: register the launcher: it belongs to another user"
        );
    }

    #[test]
    fn what_is_in_the_way_of_a_mount_is_said_with_what_to_do() {
        let error = failure("mount /data/inner", libc::ENOTDIR).into_error();
        assert_eq!(error.code, ErrorCode::InvalidMount);
        assert!(error.hint.is_some_and(|hint| hint.contains("in its way")));
    }

    #[test]
    fn only_a_sandbox_that_was_to_be_made_could_not_be_made() {
        let error = failure(REMOVE_FILES, libc::EACCES).into_error_of("not all could be removed");
        assert!(error.message.starts_with("not all could be removed: remove the files"), "{error}");
    }
}
