//! Sandboxes on a host that gives no namespaces: the tier `landlock`.
//!
//! Theory of operation. Without namespaces there is no root, no network and no process list of one's own. What is left is
//! refusal: Landlock says which files there are, a further seccomp filter refuses the calls that would reach what Landlock
//! does not speak about, resource limits and watches hold the limits. The sandbox's files lie in a folder of the host;
//! guest, channel and engine are the same as elsewhere, and the guest turns paths into real ones.
//!
//! ```text
//! launcher ── fork ── reaper ── fork ── guest (adopts orphans, marked) ── fork ── zygote ── commands
//!    │ folder 0700       │ Landlock: as commands, and /proc       │ Landlock, filters, limits, all inherited
//!    │ watches           │ turns paths into real ones             │
//!    └ ends by mark, removes the folder
//! ```
//!
//! Every process carries a mark that it cannot shed (see `glovebox_guest::marks`), so that all are found again, by this
//! launcher or, after a kill of everything, by the next one: the folder is named by its launcher and its sandbox, and the
//! mark follows from the sandbox's id. See docs/decisions/0013-without-namespaces.md.

mod copy;
mod ending;
mod folder;
mod ids;
mod inside;
mod launcher;
mod layers;
mod reaper;
mod rules;

pub(crate) use folder::{COPIED, Found, find as found};
pub(crate) use launcher::{Passed, is_wanted, serve};

use ids::CommandIds;

/// Removes what a dead launcher left of a sandbox: its processes, then its files. Says whether nothing is left.
pub(crate) fn remove(found: &Found) -> bool {
    // Whether the id is the sandbox's own is told by the folder: a shared one is the launcher's.
    let separate = found.uid != rustix::process::geteuid().as_raw();
    let ids = CommandIds { uid: found.uid, gid: found.uid, separate };
    ending::end_found(ending::mark_of(found.id), ids) && folder::remove(&found.path)
}
