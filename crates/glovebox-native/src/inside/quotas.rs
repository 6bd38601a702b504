//! What the kernel gives to each user so much of, and takes into account at every user namespace up to the host's.
//!
//! A sandbox of root is charged to an account of its own (see `idmap`). That of an ordinary user is charged to the caller,
//! who must not be left with nothing.

use std::{fs, io};

use crate::sys;

/// Limits of a user namespace, and the host's own setting for a user.
const COUNTED: [(&str, &str); 2] = [
    ("user/max_inotify_instances", "fs/inotify/max_user_instances"),
    ("user/max_inotify_watches", "fs/inotify/max_user_watches"),
];

/// Lets this user namespace have half of what the caller has. `settings` is the folder of the kernel's settings.
pub(super) fn leave_half(settings: &str) -> io::Result<()> {
    for (ours, callers) in COUNTED {
        // A kernel without the setting does not count it here.
        let Ok(most) = sys::read_small(format!("{settings}/{callers}")) else { continue };
        let most: u64 = most.trim().parse().map_err(io::Error::other)?;
        fs::write(format!("{settings}/{ours}"), (most / 2).to_string())?;
    }
    Ok(())
}
