//! The process that all of a sandbox descends from.
//!
//! It stands between launcher and guest, and does nothing but wait: the kernel hands it every orphan once the guest is gone,
//! and it ends when none of them is left. Its end is therefore the one sign of the end of everything that no program can
//! forge or outrun.

use std::{io, os::fd::OwnedFd};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::inside::{self, Inside};
use crate::{
    sys::{self, Forked},
    wire,
};

/// A guest that was started, and the reaper above it.
pub(crate) struct Started {
    pub(crate) reaper: OwnedFd,
    pub(crate) pid: Pid,
    pub(crate) guest: OwnedFd,
}

/// Starts a guest below a reaper. It tells on `report` when it is ready.
pub(crate) fn start(inside: Inside, report: OwnedFd) -> io::Result<Started> {
    let (here, there) = wire::message_pair()?;
    match sys::fork_with(0)? {
        Forked::Child => watch_over(inside, report, there),
        Forked::Parent { pidfd: reaper, .. } => {
            drop(there);
            let told = wire::receive::<i32>(&here)?;
            let (pid, guest) = told.and_then(|(pid, fds)| Some((Pid::from_raw(pid)?, fds.into_iter().next()?))).unzip();
            match (pid, guest) {
                (Some(pid), Some(guest)) => Ok(Started { reaper, pid, guest }),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }
}

/// The reaper's life.
fn watch_over(inside: Inside, report: OwnedFd, launcher: OwnedFd) -> ! {
    sys::set_name("glovebox-reaper");
    if sys::die_with_parent().and_then(|()| sys::adopt_orphans()).is_err() {
        sys::exit_now(1);
    }
    match sys::fork_with(0) {
        Ok(Forked::Child) => inside::main(inside, report),
        Ok(Forked::Parent { pid, pidfd }) => {
            let told = wire::send(&launcher, &pid.as_raw_nonzero().get(), &[std::os::fd::AsFd::as_fd(&pidfd)]);
            // Nothing is kept open that others wait for the end of.
            if told.is_err() || sys::close_all_but(&[]).is_err() {
                sys::exit_now(1);
            }
            // The kernel reaps by itself, since the launcher ignores the ends of its children; then waiting returns only when
            // there is no child any more.
            while !matches!(waitid(WaitId::All, WaitIdOptions::EXITED), Err(rustix::io::Errno::CHILD)) {}
            sys::exit_now(0)
        }
        Err(_) => sys::exit_now(1),
    }
}
