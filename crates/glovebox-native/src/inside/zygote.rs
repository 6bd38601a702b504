//! The zygote's own set-up. Whatever it puts on itself, every command inherits.

use std::{
    io,
    os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd},
};

use glovebox_guest::{
    own::{self, FileRules, Restricted, USUAL_UMASK},
    seccomp,
    zygote::{Identity, serve},
};
use libc::sock_filter;
use rustix::{
    process::{Pid, Resource, Rlimit, getrlimit, setrlimit},
    thread::CpuSet,
};

use super::{join_groups, privileges, receive_doors};
use crate::{
    cgroup::HeldByGroups,
    checks,
    plan::{Failure, GuestReport, Plan, Report, step},
    standing::Standing,
    sys::{self, Forked},
    wire,
};

/// What the zygote is to put on itself.
pub(super) struct Terms<'a> {
    pub(super) plan: &'a Plan,
    pub(super) filter: &'a [sock_filter],
    pub(super) standing: Standing,
    pub(super) held: HeldByGroups,
    pub(super) cpus: &'a CpuSet,
    /// Whether it has a leaf of its own below the commands' group.
    pub(super) has_leaf: bool,
}

/// The guest's handle on the zygote.
pub(super) struct Zygote {
    pub(super) pid: i32,
    pub(super) socket: OwnedFd,
}

/// Forks the zygote. It joins its groups and then waits.
pub(super) fn start(terms: &Terms<'_>, doors: OwnedFd) -> io::Result<Zygote> {
    let (guest, zygote) = wire::message_pair()?;
    match sys::fork_with(0)? {
        Forked::Child => {
            let socket = zygote.into_raw_fd();
            match set_up(socket, terms, doors) {
                Ok(()) => serve(sys::adopt(socket), identity(terms)),
                Err(failure) => drop(wire::send(sys::adopt(socket), &GuestReport::Failed(failure), &[])),
            }
            sys::exit_now(1)
        }
        Forked::Parent { pid, .. } => Ok(Zygote { pid: pid.as_raw_nonzero().get(), socket: guest }),
    }
}

impl Zygote {
    /// Has the zygote, which waits now, go on beside the guest and not behind it.
    pub(super) fn set_aside(&self) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            sys::send_elsewhere(pid);
        }
    }

    /// Lets the zygote go on, now that the root is in place.
    pub(super) fn release(&self) -> Result<(), Failure> {
        step("release the zygote", wire::send(&self.socket, &(), &[]))
    }
}

/// Reads what the zygote has to say of its set-up.
pub(super) fn hear(socket: &OwnedFd) -> io::Result<GuestReport> {
    Ok(match wire::receive::<GuestReport>(socket)? {
        Some((report, _)) => report,
        None => GuestReport::Failed(Failure { step: "hear from the zygote".into(), errno: libc::EPIPE }),
    })
}

/// Who commands run as. Where there is but one id, groups can neither be set nor need to be.
fn identity(terms: &Terms<'_>) -> Identity {
    Identity { uid: terms.plan.uid, gid: terms.plan.gid, has_groups: terms.standing != Standing::OneId, alone: true }
}

fn set_up(socket: RawFd, terms: &Terms<'_>, doors: OwnedFd) -> Result<(), Failure> {
    let Terms { plan, filter, standing, held, cpus, has_leaf } = *terms;
    let owned = std::mem::ManuallyDrop::new(sys::adopt(socket));
    sys::set_name("glovebox-zygote");
    let mut keep = [socket, doors.as_raw_fd()];
    keep.sort_unstable();
    step("close the guest's descriptors", sys::close_all_but(&keep))?;
    step("empty the bounding set", own::empty_bounding_set())?;
    // The groups are made after the id maps are written.
    let groups = step("wait for the groups", receive_doors(&doors))?;
    step("join the commands' groups", join_groups(groups))?;
    step("hide the groups' paths", sys::unshare(libc::CLONE_NEWCGROUP))?;
    if has_leaf {
        step("join the zygote's group", receive_doors(&doors).and_then(join_groups))?;
    }
    drop(doors);
    // A process that has changed its id may no longer look at all of itself.
    let own = (standing != Standing::Root).then(checks::own_view);
    step("become root inside", privileges::become_root(standing))?;
    step("make a keyring", sys::new_session_keyring())?;
    step("set resource limits", set_limits(plan, standing, held))?;
    rustix::process::umask(USUAL_UMASK);
    step("wait for the root", wire::receive::<()>(&*owned))?;
    sys::allow_all_cpus(cpus);
    let landlock = step("restrict where can be written", restrict_files(plan))?;
    privileges::drop_for_zygote()?;
    if plan.writes_to_host() {
        step("install the filter of modes", sys::install_filter(&seccomp::compile_no_setid()))?;
    }
    step("install the filter", sys::install_filter(filter))?;
    step("close descriptors", sys::close_all_but(&[socket]))?;
    // The masks were set before the zygote was let go on; one that could not be would have ended the set-up.
    let report = Report { keyring: true, masked_proc: true, landlock, rlimits: true, own };
    step("report", wire::send(&*owned, &GuestReport::Ready(report), &[]))
}

/// Limits of each process. The hard ones cannot be raised again inside.
fn set_limits(plan: &Plan, standing: Standing, held: HeldByGroups) -> io::Result<()> {
    let both = |n: u64| Rlimit { current: Some(n), maximum: Some(n) };
    setrlimit(Resource::Nofile, both(plan.open_files))?;
    setrlimit(Resource::Core, both(0))?;
    own::bound()?;
    if plan.writes_to_host() {
        setrlimit(Resource::Fsize, both(plan.disk))?;
    }
    if !held.memory {
        setrlimit(Resource::Data, both(plan.memory))?;
    }
    if !held.pids {
        // Where guest and zygote share the id of the commands, they count too.
        setrlimit(Resource::Nproc, both(plan.pids + if standing == Standing::OneId { 2 } else { 0 }))?;
    }
    let kept = getrlimit(Resource::Nofile).maximum == Some(plan.open_files);
    if kept { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Reading everywhere, writing only where something is meant to be written. The host's abstract sockets are reachable through
/// its network namespace, and must not be.
fn restrict_files(plan: &Plan) -> io::Result<bool> {
    let written = plan.mounts.iter().filter(|mount| !mount.read_only).map(|mount| mount.target.as_str()).collect();
    Ok(FileRules { written, hidden: None, own_sockets: plan.host_network }.restrict()? == Restricted::All)
}
