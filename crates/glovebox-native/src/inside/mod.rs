//! The processes inside, from their first instruction to the moment they serve.
//!
//! Theory of operation. The launcher forks the guest with new user, mount, process, network, IPC and UTS namespaces.
//! The guest at once forks the zygote, which joins the commands' control groups; that is slow on version 1 and so goes
//! on while the launcher prepares the mounts. The launcher moves the guest to its own groups while the guest assembles
//! the root and moves into it; the zygote, which shares its mount namespace, moves along. Only then do both give up what they no longer need, in this order, which
//! cannot change: the root needs CAP_SYS_ADMIN, the Landlock rules need the root, dropping from the bounding set needs
//! CAP_SETPCAP, and the filter refuses most of the calls above. Nothing hostile runs before the last step.
//!
//! ```text
//! launcher          guest (PID 1)                  zygote (PID 2)
//!    | clone3         .
//!    |--------------> | fork ----------------------> .
//!    | write id maps  | wait                         | join groups ….run
//!    | clone mounts   |                              | wait
//!    |--- mounts ---> | become root, keyring, name,  |
//!    | move guest to  | loopback, root, pivot        |
//!    | groups ….guest |                              |
//!    |                |------- go -----------------> | become root, keyring, rlimits, Landlock,
//!    |                | capabilities, filter         | capabilities, filter
//!    |                |<------ report -------------- | serve the guest
//!    |<-- report ---- | serve the host               |
//! ```

mod masks;
mod privileges;
mod root;
mod zygote;

use std::{
    io,
    os::fd::{AsRawFd, IntoRawFd, OwnedFd},
};

use glovebox_guest::GuestSockets;
use libc::sock_filter;

use crate::{
    plan::{Failure, GuestReport, MountOrders, Plan, Report, step},
    sys, wire,
};

/// What the guest is born with.
pub(crate) struct Inside {
    /// To the launcher.
    pub(crate) launcher: OwnedFd,
    /// To the host, once it serves.
    pub(crate) channel: OwnedFd,
    /// Descriptors to join the commands' groups.
    pub(crate) run_doors: Vec<OwnedFd>,
    pub(crate) plan: Plan,
    pub(crate) filter: Vec<sock_filter>,
}

/// The guest's life.
pub(crate) fn main(inside: Inside) -> ! {
    let launcher = inside.launcher.as_raw_fd();
    match set_up(inside) {
        Ok(sockets) => {
            // The connection ends when the host goes away; a sandbox without a host has no reason to live.
            let _ = glovebox_guest::serve(sockets);
            sys::exit_now(0)
        }
        Err(failure) => {
            let _ = wire::send(sys::adopt(launcher), &GuestReport::Failed(failure), &[]);
            sys::exit_now(1)
        }
    }
}

fn set_up(inside: Inside) -> Result<GuestSockets, Failure> {
    let Inside { launcher, channel, run_doors, plan, filter } = inside;
    // From here on descriptors are closed by number, so none of them may be closed a second time by its owner.
    let (launcher_fd, channel_fd) = (launcher.as_raw_fd(), channel.into_raw_fd());
    sys::set_name("glovebox-guest");
    let zygote = step("start the zygote", zygote::start(&plan, &filter, run_doors))?;
    let trees = step("receive the mounts", receive_mounts(&launcher))?;
    step("become root inside", sys::become_user(0, 0))?;
    step("make a keyring", sys::new_session_keyring())?;
    step("set the host name", name_host())?;
    if !plan.host_network {
        step("bring up loopback", sys::loopback_up())?;
    }
    let masked_proc = root::assemble(trees)?;
    zygote.release()?;
    privileges::drop_for_guest(&plan)?;
    step("install the filter", sys::install_filter(&filter))?;
    let inner = zygote.report()?;
    let report = Report { keyring: inner.keyring, masked_proc, ..inner };
    step("report", wire::send(&launcher, &GuestReport::Ready(report), &[]))?;
    let _ = launcher.into_raw_fd();
    let mut keep = [channel_fd, zygote.socket];
    keep.sort_unstable();
    step("close descriptors", sys::close_all_but(&keep))?;
    let _ = launcher_fd;
    Ok(GuestSockets { channel: sys::adopt(channel_fd), zygote: sys::adopt(zygote.socket), zygote_pid: zygote.pid })
}

/// Enters the commands' groups. The descriptors were opened by the host's root, whose rights count.
fn join_groups(doors: Vec<OwnedFd>) -> io::Result<()> {
    for door in doors {
        rustix::io::write(&door, b"0")?;
    }
    Ok(())
}

fn name_host() -> io::Result<()> {
    rustix::system::sethostname(crate::HOST_NAME.as_bytes())?;
    Ok(rustix::system::setdomainname(b"(none)")?)
}

/// Waits for the launcher's mounts. Their coming also says that the id maps are written.
fn receive_mounts(launcher: &OwnedFd) -> io::Result<Vec<(String, OwnedFd)>> {
    let Some((orders, fds)) = wire::receive::<MountOrders>(launcher)? else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    if orders.targets.len() != fds.len() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(orders.targets.into_iter().zip(fds).collect())
}
