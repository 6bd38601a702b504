//! What a backend tells the guest that is the first process of a container, and what that says back.
//!
//! The guest is a program of its own there, `/.glovebox/guest init`, and finds its [`Plan`] in the variable [`PLAN`]. When it is
//! set up it connects to [`HOST_SOCKET`], where the backend listens, and says one [`Report`]: four bytes of length, the least
//! first, and JSON. With a one-shot sandbox that connection is the channel, and the sandbox ends with it. With a living one
//! it is closed, and the guest listens on [`GUEST_SOCKET`] by then.
//!
//! Folders of the host are attached from outside by `glovebox-guest attach`, a process of the host's root, where the plan says so: it reads
//! [`Attaching`] from its standard input, enters the mount namespace of the guest, which has said [`Report::Waiting`] and waits for a byte, and
//! answers with [`Attached`].
//!
//! Where the backend is not on the same machine there is no folder that both see. Then `/.glovebox/guest bridge`, started by
//! the backend inside, reads the sandbox's key from its standard input (64 hexadecimal digits and a line break) and speaks HTTP/2 on its
//! standard streams: each request is a connection to [`INNER_SOCKET`], which the guest serves in place of the others, and its two bodies
//! are the bytes of that. Every connection begins with the report, and is the channel then.

use serde::{Deserialize, Serialize};

/// The folder that holds what is Glovebox's own in a container.
pub const FOLDER: &str = "/.glovebox";
/// The guest's program, mounted read-only.
pub const GUEST: &str = "/.glovebox/guest";
/// The folder that host and guest share, mounted where both are on one machine. Nobody but root inside can look into it.
pub const CHANNEL: &str = "/.glovebox/channel";
/// Where the backend listens for a guest that is set up.
pub const HOST_SOCKET: &str = "/.glovebox/channel/host";
/// Where the guest of a living sandbox listens.
pub const GUEST_SOCKET: &str = "/.glovebox/channel/guest";
/// Where a guest listens that only a bridge reaches: an abstract name, as nothing needs to be mounted for it.
pub const INNER_SOCKET: &str = "glovebox-guest";
/// The variable that holds the plan.
pub const PLAN: &str = "GLOVEBOX_PLAN";
/// No report is longer.
pub const LONGEST_REPORT: usize = 64 * 1024;

/// The code with which the guest of a living sandbox ends that nobody used for as long as its idle timeout.
pub const ENDED_IDLE: u8 = 10;
/// The code with which the guest of a living sandbox ends that reached its maximum age.
pub const ENDED_OLD: u8 = 11;

/// What the guest is to set up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Who commands run as.
    pub uid: u32,
    /// Their group.
    pub gid: u32,
    /// Files that a process may have open.
    pub open_files: u64,
    /// How large one file may become, where no file system limits it.
    pub largest_file: Option<u64>,
    /// Whether it is a living sandbox, which outlives its connections.
    pub living: bool,
    /// Whether it has a network, so that abstract sockets of others may be reachable.
    pub network: bool,
    /// Folders that commands may write to beside `/workspace`, `/home/user`, `/tmp` and `/dev/shm`.
    pub written: Vec<String>,
    /// Folders that belong to commands, each the top of a volume that may be new.
    #[serde(default)]
    pub own_volumes: Vec<String>,
    /// Whether what commands write can be met by others of the host as what it is, so that no program of theirs may take its owner's rights.
    pub writes_to_host: bool,
    /// Whether mounts are attached from outside as soon as there are folders for them.
    pub awaits_mounts: bool,
    /// A living sandbox without use ends after so many milliseconds.
    pub idle_ms: Option<u64>,
    /// A living sandbox ends at this time, milliseconds since 1970.
    pub expires_ms: Option<i64>,
    /// Whether the container is in a kernel of its own, such as gVisor's, which does not tell a connection of the host from one of the sandbox's own.
    #[serde(default)]
    pub own_kernel: bool,
    /// How the host reaches the guest.
    pub door: Door,
}

/// How the host reaches the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Door {
    /// Through the folder [`CHANNEL`].
    Folder,
    /// Through a bridge that knows the key: 64 hexadecimal digits.
    Bridge {
        /// The SHA-256 of the key's 64 digits, hexadecimal; the key itself is never where a container's description shows it.
        key_sha256: String,
    },
}

/// What the guest says when it is set up, or why it is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// Its folders are there, and it waits for its mounts. Another report follows.
    Waiting {
        /// The link of its mount namespace, as `/proc/self/ns` shows it.
        mount_namespace: String,
    },
    /// It is.
    Ready(Ready),
    /// A step failed.
    Failed {
        /// Which one.
        step: String,
        /// The kernel's error number.
        errno: i32,
    },
}

/// What is in place inside, as guest and zygote found it when they had set it up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The version of the protocol, [`VERSION`](crate::VERSION).
    pub version: u32,
    /// The links of the zygote's namespaces by their names, as `/proc/self/ns` shows them.
    pub namespaces: Vec<(String, String)>,
    /// The zygote has a keyring of its own.
    pub keyring: bool,
    /// Landlock holds the commands.
    pub landlock: bool,
    /// Resource limits are set.
    pub rlimits: bool,
    /// The zygote's bounding set is empty.
    pub no_capabilities: bool,
    /// The zygote and its children cannot gain rights.
    pub no_new_privs: bool,
    /// Our own filter holds the commands, beside that of the container.
    pub seccomp: bool,
    /// Paths of `/proc` that tell of the host are covered.
    pub masked_proc: bool,
    /// How many files and folders `/workspace` can hold; none is said where nothing limits them.
    pub inodes: u64,
    /// The variables of the container's description, which those of its image are among; without the plan.
    pub environment: Vec<(String, String)>,
}

/// Mounts for a container whose guest waits for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attaching {
    /// The guest, as the host knows it.
    pub guest: i32,
    /// The link of its mount namespace, which tells it from whoever has its id after it.
    pub mount_namespace: String,
    /// Who commands run as, inside.
    pub uid: u32,
    /// Their group.
    pub gid: u32,
    /// What to attach, one after the other.
    pub mounts: Vec<AttachedMount>,
}

/// A file or folder of the host to attach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedMount {
    /// The host's, with no link in its path.
    pub source: String,
    /// Where it appears.
    pub target: String,
    /// Whether it can only be read.
    pub read_only: bool,
    /// Whether it is storage of Glovebox's own.
    pub is_volume: bool,
    /// What is there before it.
    pub place: MountPlace,
}

/// What is where a mount is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountPlace {
    /// Something empty that the container's maker put there.
    Made,
    /// A folder that commands can write to, in which they may have put anything. What is in the way gets another name.
    OfCommands,
    /// An earlier one of the mounts, by its number.
    Below(usize),
}

/// How attaching went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attached {
    /// All is there.
    All,
    /// A step failed.
    Failed {
        /// Which one.
        step: String,
        /// The kernel's error number.
        errno: i32,
    },
}
