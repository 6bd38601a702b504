//! Handing descriptors to the processes inside.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    cgroup::{GroupLimits, Groups, Side},
    mounts::Tree,
    plan::{Failure, GuestReport, MountOrders, step},
    wire,
};

/// Gives the processes inside what they wait for: the mounts, and the groups, which are made while the guest attaches
/// the mounts. When a guest went away meanwhile, the failure is the one that it told of.
pub(super) fn hand_over(
    report: &OwnedFd,
    doors: &OwnedFd,
    trees: &[Tree],
    groups: &Groups,
    limits: &GroupLimits,
    has_leaves: bool,
) -> Result<(), Failure> {
    let hand = || {
        step("hand over the mounts", send_mounts(report, trees))?;
        step("make the control groups", groups.make(limits))?;
        step("open the groups", groups.doors(Side::Run).and_then(|run| send_doors(doors, &run)))?;
        if has_leaves {
            step("open the zygote's group", groups.make_zygote_leaf().and_then(|leaf| send_doors(doors, &leaf)))?;
        }
        step("open the groups", groups.doors(Side::Guest).and_then(|guest| send_doors(report, &guest)))
    };
    hand().map_err(|failure| match failure.errno {
        libc::EPIPE => last_words(report).unwrap_or(failure),
        _ => failure,
    })
}

/// Why a guest gave up, if it did. Does not wait for one that lives.
fn last_words(report: &OwnedFd) -> Option<Failure> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let spoke = poll(&mut [PollFd::new(report, PollFlags::IN)], Some(&now)) == Ok(1);
    match spoke.then(|| wire::receive::<GuestReport>(report)) {
        Some(Ok(Some((GuestReport::Failed(failure), _)))) => Some(failure),
        _ => None,
    }
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
