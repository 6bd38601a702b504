//! The processes inside, from their first instruction to the moment they serve.
//!
//! Theory of operation. The launcher forks the guest into its network, with new user, mount, process, IPC and UTS
//! namespaces. The guest at once forks the zygote, which joins the commands' control groups. The launcher makes these
//! groups while the guest assembles the root and moves into it; the zygote, which shares its mount namespace, moves along. Only then do both give up what they no longer need, in this
//! order, which cannot change: the root needs CAP_SYS_ADMIN, the Landlock rules need the root, dropping from the bounding
//! set needs CAP_SETPCAP, and the filter refuses most of the calls above. Nothing hostile runs before the last step.
//!
//! ```text
//! launcher            guest (PID 1)                  zygote (PID 2)
//!    | clone            .
//!    |----------------> | fork ----------------------> .
//!    | write id maps    | wait                         | wait
//!    | lend skeleton    |                              |
//!    | make store       |                              |
//!    |--- mounts -----> | become root, keyring, name,  |
//!    | make groups      | root, pivot                  |
//!    |--- doors ---------------------------------------> join groups ….run, become root,
//!    |                  |                              | keyring, rlimits
//!    |                  |------- go -----------------> | Landlock, capabilities, filter
//!    |--- doors ------> | join groups ….guest          |
//!    |                  | capabilities, filter         |
//!    |                  | serve the host               |
//!    |                  |<------ report -------------- | serve the guest
//!    |<-- report ------ | commands may start
//! ```

mod masks;
mod privileges;
mod quotas;
mod root;
mod zygote;

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

pub(crate) use masks::Masks;

use glovebox_guest::{Ground, GuestChannel, GuestSockets, Server, own};
use libc::sock_filter;
use rustix::thread::CpuSet;

use zygote::Terms;

use crate::{
    cgroup::HeldByGroups,
    plan::{Failure, GuestReport, MountOrders, Plan, step},
    standing::Standing,
    sys, wire,
};

/// What the guest is born with.
pub(crate) struct Inside {
    /// To the launcher.
    pub(crate) launcher: OwnedFd,
    /// To the host, once it serves.
    pub(crate) channel: GuestChannel,
    /// Where the keeper connects to hand out groups for runs.
    pub(crate) leaves: Option<OwnedFd>,
    /// Brings the zygote the descriptors by which it joins the commands' groups.
    pub(crate) doors: OwnedFd,
    /// The lock of its range of host ids, to be held as long as it lives.
    pub(crate) range: Option<RawFd>,
    pub(crate) plan: Plan,
    pub(crate) filter: Vec<sock_filter>,
    pub(crate) proc_masks: Masks,
    pub(crate) standing: Standing,
    /// Limits that groups hold; the others are held by what each process is bound by.
    pub(crate) held: HeldByGroups,
    /// The CPUs that commands may use.
    pub(crate) cpus: CpuSet,
}

/// The guest's life.
pub(crate) fn main(inside: Inside) -> ! {
    let launcher = inside.launcher.as_raw_fd();
    let living = inside.plan.living.is_some();
    match set_up(inside) {
        Ok((server, sockets)) => {
            let launcher = sys::adopt(launcher);
            // The connection ends when the host goes away; a sandbox without a host has no reason to live.
            let _ = server.serve(sockets, zygote::hear, move |report| pass_on(report, launcher, living));
            sys::exit_now(0)
        }
        Err(failure) => {
            let _ = wire::send(sys::adopt(launcher), &GuestReport::Failed(failure), &[]);
            sys::exit_now(1)
        }
    }
}

fn set_up(inside: Inside) -> Result<(Server, GuestSockets), Failure> {
    let Inside { launcher, channel, leaves, doors, range, plan, filter, proc_masks, standing, held, cpus } = inside;
    // Nothing of the launcher's is kept open, so that each side sees when the other is gone; and a launcher that dies
    // takes the guest along from the first moment.
    let mut keep = vec![launcher.as_raw_fd(), raw(&channel), doors.as_raw_fd()];
    keep.extend(leaves.as_ref().map(AsRawFd::as_raw_fd).into_iter().chain(range));
    keep.sort_unstable();
    if sys::close_all_but(&keep).is_err() {
        // They are still the launcher's too, so nothing may be closed on the way out.
        sys::exit_now(1);
    }
    step("die with the launcher", sys::die_with_parent())?;
    // The launcher hears the last word on this socket, whether or not a step fails, so its owner must not close it.
    let launcher = std::mem::ManuallyDrop::new(launcher);
    sys::set_name("glovebox-guest");
    let zygote = step(
        "start the zygote",
        zygote::start(
            &Terms { plan: &plan, filter: &filter, standing, held, cpus: &cpus, has_leaf: leaves.is_some() },
            doors,
        ),
    )?;
    let trees = step("receive the mounts", receive_mounts(&launcher))?;
    sys::allow_all_cpus(&cpus);
    zygote.set_aside();
    if standing != Standing::Root && !plan.host_network {
        step("bring loopback up", sys::loopback_up())?;
    }
    if standing != Standing::Root {
        // The kernel lets an ordinary user's launcher move only processes that are still of that user.
        step("join the guest's groups", receive_doors(&launcher).and_then(join_groups))?;
    }
    step("become root inside", privileges::become_root(standing))?;
    step("make a keyring", sys::new_session_keyring())?;
    step("set the host name", name_host())?;
    root::assemble(trees, &proc_masks, standing)?;
    zygote.release()?;
    step("empty the bounding set", own::empty_bounding_set())?;
    let server = step("make the server", Server::new())?;
    if standing == Standing::Root {
        step("join the guest's groups", receive_doors(&launcher).and_then(join_groups))?;
    }
    privileges::drop_for_guest(&plan)?;
    step("install the filter", sys::install_filter(&filter))?;
    let zygote_pid = zygote.pid;
    Ok((server, GuestSockets { channel, zygote: zygote.socket, zygote_pid, ground: Ground::default(), leaves }))
}

pub(crate) fn raw(channel: &GuestChannel) -> RawFd {
    match channel {
        GuestChannel::Connected(socket) | GuestChannel::Listening(socket) => socket.as_raw_fd(),
    }
}

/// Tells the launcher how the zygote's set-up ended.
pub(crate) fn pass_on(report: GuestReport, launcher: OwnedFd, living: bool) -> io::Result<()> {
    if living {
        // From here on the launcher, or another one, finds the guest by what is written down of it.
        sys::outlive_parent()?;
    }
    match report {
        GuestReport::Ready(_) => wire::send(&launcher, &report, &[]),
        GuestReport::Failed(_) => wire::send(&launcher, &report, &[]).and(Err(io::ErrorKind::Other.into())),
    }
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

/// Waits for the descriptors by which a process joins its groups.
fn receive_doors(socket: &OwnedFd) -> io::Result<Vec<OwnedFd>> {
    match wire::receive::<()>(socket)? {
        Some(((), doors)) => Ok(doors),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Enters groups. The descriptors were opened by the host's root, whose rights count.
fn join_groups(doors: Vec<OwnedFd>) -> io::Result<()> {
    for door in doors {
        rustix::io::write(&door, b"0")?;
    }
    Ok(())
}
