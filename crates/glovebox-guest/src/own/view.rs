//! What a process sees of itself, and others may not.

use std::{fs, path::PathBuf};

use crate::sys;

/// The namespaces that tell a sandbox from its host.
pub const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// The links of this process's namespaces by their names.
pub fn namespaces() -> Vec<(&'static str, PathBuf)> {
    let link = |name: &'static str| Some((name, fs::read_link(format!("/proc/self/ns/{name}")).ok()?));
    NAMESPACES.into_iter().filter_map(link).collect()
}

/// Whether the memory is wiped in which the kernel finds this process's environment.
pub fn has_clean_environment() -> bool {
    sys::read_small("/proc/self/environ").is_ok_and(|text| text.bytes().all(|b| b == 0))
}
