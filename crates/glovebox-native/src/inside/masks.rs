//! Masks over the parts of /proc that speak of the host or change it.
//!
//! The owners of these files are not mapped inside, so most could not be read or written anyway; the masks hold even
//! where a kernel is too generous with modes.

use std::{io, os::fd::AsFd};

use rustix::{
    fs::{Mode, OFlags},
    mount::mount_bind,
};

use crate::{
    skeleton::EMPTY_FOLDER,
    sys::{self, Sealed},
};

/// Folders that become empty.
const EMPTY: [&str; 6] = ["acpi", "asound", "bus", "fs", "irq", "scsi"];

/// Files that become /dev/null.
const NULL: [&str; 10] = [
    "cmdline",
    "kcore",
    "keys",
    "key-users",
    "kmsg",
    "latency_stats",
    "sched_debug",
    "sysrq-trigger",
    "timer_list",
    "timer_stats",
];

/// Folders that stay but cannot be written.
const READ_ONLY: [&str; 1] = ["sys"];

/// The parts that this kernel's /proc has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Masks {
    empty: Vec<&'static str>,
    null: Vec<&'static str>,
    read_only: Vec<&'static str>,
}

impl Masks {
    /// Looks at the host's /proc, which has what that of a sandbox has.
    pub(crate) fn detect() -> Self {
        let there = |name: &&&str| std::fs::symlink_metadata(format!("/proc/{name}")).is_ok();
        let found = |names: &[&'static str]| names.iter().filter(there).copied().collect();
        Masks { empty: found(&EMPTY), null: found(&NULL), read_only: found(&READ_ONLY) }
    }

    /// Applies all masks. The new root is the current directory, and nothing in it is hostile yet.
    pub(super) fn apply(&self) -> io::Result<()> {
        // What is mounted from the skeleton is read-only as the skeleton is.
        for name in &self.empty {
            mount_bind(EMPTY_FOLDER, format!("proc/{name}"))?;
        }
        for name in &self.null {
            mount_bind("dev/null", format!("proc/{name}"))?;
        }
        for name in &self.read_only {
            let path = format!("proc/{name}");
            mount_bind(&path, &path)?;
            let covered = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            sys::seal_tree(covered.as_fd(), Sealed::ReadOnly, None)?;
        }
        Ok(())
    }
}
