//! The layers between a program and the host.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! layers {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal;)*) => {
        /// One layer of isolation. A result lists those that were checked and found in place.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Layer { $($(#[doc = $doc])* #[serde(rename = $text)] $name,)* }

        impl Layer {
            /// Every layer, outermost first.
            pub const ALL: &'static [Layer] = &[$(Layer::$name,)*];

            /// The layer's name, as it stands in a result.
            pub fn as_str(self) -> &'static str {
                match self { $(Layer::$name => $text,)* }
            }

            /// What the layer does, for the reference docs.
            pub fn meaning(self) -> &'static str {
                match self { $(Layer::$name => concat!($($doc),*).trim_ascii(),)* }
            }
        }
    };
}

layers! {
    /// Control groups hold memory, CPU and processes to their limits.
    Cgroup = "cgroup";
    /// A user namespace with an unprivileged id range: root inside is nobody outside.
    UserNs = "user_ns";
    /// Host files appear with shifted owners, so that ids inside and outside never meet.
    IdmappedMounts = "idmapped_mounts";
    /// A mount namespace with a root of its own; the host's root is not reachable.
    MountNs = "mount_ns";
    /// A process namespace: no process outside can be seen or signalled.
    PidNs = "pid_ns";
    /// A network namespace with nothing but loopback.
    NetworkNs = "network_ns";
    /// Namespaces for System V IPC and POSIX message queues.
    IpcNs = "ipc_ns";
    /// A host name of its own.
    UtsNs = "uts_ns";
    /// Control group paths of the host are hidden.
    CgroupNs = "cgroup_ns";
    /// A /dev with only harmless devices.
    PrivateDev = "private_dev";
    /// A /proc of its own, with the host's knobs masked or read-only, and none of the host's /sys.
    MaskedProc = "masked_proc";
    /// A session keyring of its own; the caller's keys are not reachable.
    Keyring = "keyring";
    /// Commands hold no Linux capability and can gain none.
    NoCapabilities = "no_capabilities";
    /// Programs gain no privileges by executing setuid files.
    NoNewPrivs = "no_new_privs";
    /// An allow list of system calls.
    Seccomp = "seccomp";
    /// Landlock rules over the file system.
    Landlock = "landlock";
    /// Resource limits of each process.
    Rlimits = "rlimits";
    /// Descriptors and environment of the caller are closed and cleared.
    CleanStart = "clean_start";
    /// The guest runs under another id than the commands, so that they can neither signal it nor look into it.
    SeparateGuest = "separate_guest";
    /// Commands run under an id that is not root, even inside.
    UnprivilegedUser = "unprivileged_user";
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a sandbox is made of, in the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// No namespaces: Landlock, seccomp and resource limits alone keep the program from the host.
    Landlock,
    /// Namespaces, with a root of its own, and everything else on top of them.
    #[default]
    Namespaces,
}

impl Tier {
    /// Parses a tier's name.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "namespaces" => Ok(Tier::Namespaces),
            "landlock" => Ok(Tier::Landlock),
            _ => Err("expected namespaces or landlock".to_owned()),
        }
    }
}

/// Which layers were checked and found, and which are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    /// What the sandbox is made of.
    #[serde(default)]
    pub tier: Tier,
    /// Layers in place.
    pub present: Vec<Layer>,
    /// Layers that are not there, by request (`--network full`) or because the host cannot give them.
    pub missing: Vec<Layer>,
}

impl Isolation {
    /// Sorts all layers by what a check says of each.
    pub fn from_checks(tier: Tier, mut holds: impl FnMut(Layer) -> bool) -> Self {
        let (present, missing) = Layer::ALL.iter().partition(|layer| holds(**layer));
        Isolation { tier, present, missing }
    }

    /// Whether a layer is in place.
    pub fn has(&self, layer: Layer) -> bool {
        self.present.contains(&layer)
    }
}
