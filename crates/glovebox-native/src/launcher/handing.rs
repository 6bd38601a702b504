//! Handing descriptors to the processes inside.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use crate::{
    cgroup::{GroupLimits, Groups, Side},
    mounts::Tree,
    plan::{Failure, MountOrders, step},
    wire,
};

/// Gives the processes inside what they wait for: the mounts, and the groups, which are made while the guest attaches
/// the mounts. When a guest went away meanwhile, its own word says why.
pub(super) fn hand_over(
    report: &OwnedFd,
    doors: &OwnedFd,
    trees: &[Tree],
    groups: &Groups,
    limits: &GroupLimits,
    has_leaves: bool,
) -> Result<(), Failure> {
    step("hand over the mounts", send_mounts(report, trees))?;
    step("make the control groups", groups.make(limits))?;
    step("open the groups", groups.doors(Side::Run).and_then(|run| send_doors(doors, &run)))?;
    if has_leaves {
        step("open the zygote's group", groups.make_zygote_leaf().and_then(|leaf| send_doors(doors, &leaf)))?;
    }
    step("open the groups", groups.doors(Side::Guest).and_then(|guest| send_doors(report, &guest)))
}

/// Sends a process the descriptors by which it joins its groups.
fn send_doors(sender: &OwnedFd, doors: &[OwnedFd]) -> io::Result<()> {
    let fds: Vec<_> = doors.iter().map(AsFd::as_fd).collect();
    wire::send(sender, &(), &fds)
}

/// Sends the guest what it attaches.
fn send_mounts(report: &OwnedFd, trees: &[Tree]) -> io::Result<()> {
    let targets = trees.iter().map(|tree| tree.target.clone()).collect();
    let fds: Vec<_> = trees.iter().map(|tree| tree.tree.as_fd()).collect();
    wire::send(report, &MountOrders { targets }, &fds)
}
