//! Handing descriptors to the processes inside.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use crate::{
    cgroup::{Groups, Side},
    mounts::Tree,
    plan::MountOrders,
    wire,
};

/// Sends a process the descriptors by which it joins its groups.
pub(super) fn send_doors(sender: &OwnedFd, groups: &Groups, side: Side) -> io::Result<()> {
    let doors = groups.doors(side)?;
    let fds: Vec<_> = doors.iter().map(AsFd::as_fd).collect();
    wire::send(sender, &(), &fds)
}

/// Sends the guest what it attaches.
pub(super) fn send_mounts(report: &OwnedFd, trees: &[Tree]) -> io::Result<()> {
    let targets = trees.iter().map(|tree| tree.target.clone()).collect();
    let fds: Vec<_> = trees.iter().map(|tree| tree.tree.as_fd()).collect();
    wire::send(report, &MountOrders { targets }, &fds)
}
