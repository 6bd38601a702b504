//! The processes inside, from their first instruction to the moment they serve.
//!
//! Theory of operation. The launcher forks the guest with new user, mount, process, IPC and UTS namespaces. The guest at
//! once forks the zygote, which makes the network namespace and joins the commands' control groups. Both are slow, so
//! they go on while the launcher prepares the groups, the store and the mounts, and while the guest assembles the root
//! and moves into it; the zygote, which shares its mount namespace, moves along. Only then do both give up what they no
//! longer need, in this order, which cannot change: the root needs CAP_SYS_ADMIN, the Landlock rules need the root,
//! dropping from the bounding set needs CAP_SETPCAP, and the filter refuses most of the calls above. Nothing hostile
//! runs before the last step.
//!
//! ```text
//! launcher            guest (PID 1)                  zygote (PID 2)
//!    | clone3           .
//!    |----------------> | fork ----------------------> .
//!    | write id maps    | wait                         | make the network, loopback up
//!    | make groups      |                              | wait
//!    |--- doors ---------------------------------------> join groups ….run
//!    | make store       |                              | wait
//!    | clone mounts     |                              |
//!    |--- mounts -----> | join groups ….guest, become  |
//!    |                  | root, keyring, name, root,   |
//!    |                  | pivot                        |
//!    |                  |------- go -----------------> | become root, keyring, rlimits, Landlock,
//!    |                  |<------ in its network ------ | capabilities, filter
//!    |                  | join network, capabilities,  |
//!    |                  | filter                       |
//!    |                  |<------ report -------------- | serve the guest
//!    |<-- report ------ | serve the host
//! ```

mod masks;
mod privileges;
mod root;
mod zygote;

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use glovebox_guest::{GuestSockets, Server};
use libc::sock_filter;
use rustix::thread::CpuSet;

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
    /// Brings the zygote the descriptors by which it joins the commands' groups.
    pub(crate) doors: OwnedFd,
    pub(crate) plan: Plan,
    pub(crate) filter: Vec<sock_filter>,
    /// The CPUs that commands may use.
    pub(crate) cpus: CpuSet,
}

/// The guest's life.
pub(crate) fn main(inside: Inside) -> ! {
    let launcher = inside.launcher.as_raw_fd();
    match set_up(inside) {
        Ok((server, sockets)) => {
            // The connection ends when the host goes away; a sandbox without a host has no reason to live.
            let _ = server.serve(sockets);
            sys::exit_now(0)
        }
        Err(failure) => {
            let _ = wire::send(sys::adopt(launcher), &GuestReport::Failed(failure), &[]);
            sys::exit_now(1)
        }
    }
}

fn set_up(inside: Inside) -> Result<(Server, GuestSockets), Failure> {
    let Inside { launcher, channel, doors, plan, filter, cpus } = inside;
    // Nothing of the launcher's is kept open, so that each side sees when the other is gone; and a launcher that dies
    // takes the guest along from the first moment.
    let mut keep = [launcher.as_raw_fd(), channel.as_raw_fd(), doors.as_raw_fd()];
    keep.sort_unstable();
    step("close the launcher's descriptors", sys::close_all_but(&keep))?;
    step("die with the launcher", sys::die_with_parent())?;
    // When a step fails, the launcher still hears the last word on this socket, so its owner must not close it.
    let launcher = std::mem::ManuallyDrop::new(launcher);
    sys::set_name("glovebox-guest");
    let zygote = step("start the zygote", zygote::start(&plan, &filter, doors, &cpus))?;
    let server = step("make the server", Server::new())?;
    let (trees, doors) = step("receive the mounts", receive_mounts(&launcher))?;
    step("join the guest's groups", join_groups(doors))?;
    step("become root inside", sys::become_root())?;
    step("make a keyring", sys::new_session_keyring())?;
    step("set the host name", name_host())?;
    root::assemble(trees)?;
    sys::allow_all_cpus(&cpus);
    zygote.release()?;
    privileges::drop_for_guest(&plan)?;
    step("install the filter", sys::install_filter(&filter))?;
    let inner = zygote.report()?;
    // A mask that could not be set would have ended the set-up.
    let report = Report { masked_proc: true, ..inner };
    step("report", wire::send(&*launcher, &GuestReport::Ready(report), &[]))?;
    drop(std::mem::ManuallyDrop::into_inner(launcher));
    Ok((server, GuestSockets { channel, zygote: zygote.socket, zygote_pid: zygote.pid }))
}

fn name_host() -> io::Result<()> {
    rustix::system::sethostname(crate::HOST_NAME.as_bytes())?;
    Ok(rustix::system::setdomainname(b"(none)")?)
}

/// Mounts to attach, and descriptors to join groups.
type MountsAndDoors = (Vec<(String, OwnedFd)>, Vec<OwnedFd>);

/// Waits for the launcher's mounts. Their coming also says that the id maps are written.
fn receive_mounts(launcher: &OwnedFd) -> io::Result<MountsAndDoors> {
    let Some((orders, mut fds)) = wire::receive::<MountOrders>(launcher)? else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    if orders.targets.len() > fds.len() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let doors = fds.split_off(orders.targets.len());
    Ok((orders.targets.into_iter().zip(fds).collect(), doors))
}

/// Enters groups. The descriptors were opened by the host's root, whose rights count.
fn join_groups(doors: Vec<OwnedFd>) -> io::Result<()> {
    for door in doors {
        rustix::io::write(&door, b"0")?;
    }
    Ok(())
}
