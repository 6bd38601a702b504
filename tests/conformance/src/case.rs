//! A case: a sentence and the function that proves it.

use std::{
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
};

use glovebox_core::Features;

use crate::{World, cases::rust_toolchain};

/// The future of a case.
pub type Proof = Pin<Box<dyn Future<Output = ()>>>;

/// One thing that a backend must do.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The file of cases that it belongs to.
    pub group: &'static str,
    /// The function's name; with its underscores as spaces it is the case's sentence.
    pub function: &'static str,
    /// Without what the case is skipped.
    pub needs: Option<Need>,
    /// Whether the sandbox is ended by a drop, which does not wait: leftovers are then looked for with patience.
    pub ends_in_background: bool,
    /// Proves it; a panic is a failure.
    pub prove: fn(World) -> Proof,
}

impl Case {
    /// A case without a name that needs nothing, waits for its end and proves nothing: what each case starts from.
    pub(crate) const ALWAYS: Case =
        Case { group: "", function: "", needs: None, ends_in_background: false, prove: |_| Box::pin(async {}) };

    /// The sentence.
    pub fn name(&self) -> String {
        self.function.replace('_', " ")
    }
}

/// Something that not every backend or host has.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    /// A feature by the name of its field.
    Feature(&'static str, fn(&Features) -> bool),
    /// That a feature is not there: the case is about what holds without it.
    Without(&'static str, fn(&Features) -> bool),
    /// A program of the host's own toolchains.
    Program(&'static str),
    /// A file or folder of the host, which the image shows.
    File(&'static str),
    /// The Rust toolchain of whoever tests.
    Rust,
    /// A backend with living sandboxes, and the right to mount a disk for them.
    Root,
    /// The same, and a file system of fuse.
    Fuse,
}

impl Need {
    /// What is missing, or nothing when the need is met.
    pub fn missing(&self, features: &Features) -> Option<String> {
        match self {
            Need::Feature(_, has) if has(features) => None,
            Need::Feature(name, _) => Some(format!("the backend does not declare {name}")),
            Need::Without(_, has) if !has(features) => None,
            Need::Without(name, _) => Some(format!("the backend has {name}")),
            // What the host has is of use where its own programs are the image.
            Need::Program(_) | Need::File(_) | Need::Rust if !features.host_image => {
                Some("the backend does not declare host_image".to_owned())
            }
            Need::Program(name) if is_on_host(name) => None,
            Need::Program(name) => Some(format!("the host has no {name}")),
            Need::File(path) if Path::new(path).exists() => None,
            Need::File(path) => Some(format!("the host has no {path}")),
            Need::Rust if rust_toolchain().is_some() => None,
            Need::Rust => Some("rustc with cargo beside it is not in PATH".to_owned()),
            Need::Root | Need::Fuse if !features.mounts => Some("the backend does not declare mounts".to_owned()),
            Need::Root | Need::Fuse if !features.living => Some("the backend does not declare living".to_owned()),
            Need::Root | Need::Fuse if !rustix::process::geteuid().is_root() => Some("mounting needs root".to_owned()),
            Need::Root | Need::Fuse if !root_is_shared() => {
                Some("mounts made now do not reach the launcher".to_owned())
            }
            Need::Fuse if !Path::new("/dev/fuse").exists() => Some("the host has no /dev/fuse".to_owned()),
            Need::Root | Need::Fuse => None,
        }
    }
}

/// Whether what is mounted by this process is seen by those who have a copy of its mounts.
fn root_is_shared() -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().any(|line| line.split(' ').nth(4) == Some("/") && line.contains(" shared:"))
}

/// Whether the folders that the image `host` shows hold a program.
fn is_on_host(program: &str) -> bool {
    ["/usr/local/bin", "/usr/bin", "/bin"].iter().any(|folder| PathBuf::from(folder).join(program).exists())
}

/// Lists the cases of a file: `cases!["limits": one, two needs(cgroup_limits), three program("node"), …]`.
macro_rules! cases {
    ($group:literal: $($function:ident $($condition:ident ($($what:tt)*))?),+ $(,)?) => {
        pub(super) const CASES: &[crate::Case] = &[
            $(crate::Case {
                group: $group,
                function: stringify!($function),
                prove: |world| Box::pin($function(world)),
                ..crate::case::condition!($($condition $($what)*)?)
            }),+
        ];
    };
}

/// The part of a [`Case`] that says when it can run and how it ends.
macro_rules! condition {
    () => {
        crate::Case::ALWAYS
    };
    (needs $feature:ident) => {
        crate::Case {
            needs: Some(crate::Need::Feature(stringify!($feature), |features| features.$feature)),
            ..crate::Case::ALWAYS
        }
    };
    (without $feature:ident) => {
        crate::Case {
            needs: Some(crate::Need::Without(stringify!($feature), |features| features.$feature)),
            ..crate::Case::ALWAYS
        }
    };
    (program $program:literal) => {
        crate::Case { needs: Some(crate::Need::Program($program)), ..crate::Case::ALWAYS }
    };
    (file $path:literal) => {
        crate::Case { needs: Some(crate::Need::File($path)), ..crate::Case::ALWAYS }
    };
    (rust) => {
        crate::Case { needs: Some(crate::Need::Rust), ..crate::Case::ALWAYS }
    };
    (root) => {
        crate::Case { needs: Some(crate::Need::Root), ..crate::Case::ALWAYS }
    };
    (fuse) => {
        crate::Case { needs: Some(crate::Need::Fuse), ..crate::Case::ALWAYS }
    };
    (ends_in_background) => {
        crate::Case { ends_in_background: true, ..crate::Case::ALWAYS }
    };
}

pub(crate) use {cases, condition};
