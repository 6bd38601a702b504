//! The processes of a sandbox without namespaces, from their first instruction to the moment they serve.
//!
//! The same two as elsewhere, guest and zygote, in the same order: what needs rights comes first, then everything is given
//! up, and nothing hostile runs before the last step.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd},
};

use glovebox_guest::{
    Ground, GuestChannel, GuestSockets, Members, Server, marks,
    own::{self, USUAL_UMASK},
    seccomp::{self, Confinement},
    serve_attributes,
    zygote::{Identity, serve},
};
use libc::sock_filter;
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CapabilitySet, CpuSet},
};

use super::{
    copy::{self, Bounds},
    folder::{self, Folder},
    ids::CommandIds,
    rules::{self, Domain},
};
use crate::{
    checks,
    inside::pass_on,
    plan::{Failure, GuestReport, Plan, Report, step},
    sys::{self, Forked},
    wire,
};

/// Memory that no program of a sandbox may pin, and signals that may wait: both are counted for the caller's user as a
/// whole, who must not be left without.
const PINNED: u64 = 64 * 1024;
const WAITING_SIGNALS: u64 = 256;

/// What the guest is born with.
pub(crate) struct Inside {
    pub(crate) channel: OwnedFd,
    pub(crate) plan: Plan,
    pub(crate) folder: Folder,
    pub(crate) ids: CommandIds,
    pub(crate) mark: u64,
    pub(crate) filter: Vec<sock_filter>,
    pub(crate) cpus: CpuSet,
}

/// The guest's life.
pub(crate) fn main(inside: Inside, launcher: OwnedFd) -> ! {
    // By its number, because it stays open until the last word, whether or not a step fails.
    let launcher = launcher.into_raw_fd();
    let mut written = inside.folder.written();
    written.extend(inside.plan.written_folders().into_iter().map(str::to_owned));
    match set_up(inside, launcher) {
        Ok((server, sockets)) => {
            let launcher = sys::adopt(launcher);
            let _ = server.serve(sockets, hear, move |(report, listener)| {
                if let Some(listener) = listener {
                    serve_attributes(listener, written);
                }
                pass_on(report, launcher, false)
            });
            sys::exit_now(0)
        }
        Err(failure) => {
            let _ = wire::send(sys::adopt(launcher), &GuestReport::Failed(failure), &[]);
            sys::exit_now(1)
        }
    }
}

/// Reads what the zygote has to say of its set-up, and what calls are handed over through where that is so.
fn hear(socket: &OwnedFd) -> io::Result<(GuestReport, Option<OwnedFd>)> {
    Ok(match wire::receive::<GuestReport>(socket)? {
        Some((report, fds)) => (report, fds.into_iter().next()),
        None => (GuestReport::Failed(Failure { step: "hear from the zygote".into(), errno: libc::EPIPE }), None),
    })
}

fn set_up(inside: Inside, launcher: RawFd) -> Result<(Server, GuestSockets), Failure> {
    let mut keep = [launcher, inside.channel.as_raw_fd()];
    keep.sort_unstable();
    step("close the launcher's descriptors", sys::close_all_but(&keep))?;
    step("die with the launcher", sys::die_with_parent())?;
    sys::set_name("glovebox-guest");
    // Orphans of the sandbox become children of the guest, as they would be of a first process.
    step("adopt orphans", sys::adopt_orphans())?;
    step("mark the processes", marks::carry(inside.mark))?;
    sys::allow_all_cpus(&inside.cpus);
    copy_workspace(&inside)?;
    step("restrict the guest", rules::restrict(Domain::Guest, &inside.folder, &inside.plan))?;
    let (zygote_pid, zygote) = step("start the zygote", start_zygote(&inside))?;
    let server = step("make the server", Server::new())?;
    drop_for_guest(inside.ids)?;
    step("install the filter", sys::install_filter(&inside.filter))?;
    let ground = Ground { places: inside.folder.places(), members: Members::Marked(inside.mark), ..Ground::default() };
    let channel = GuestChannel::Connected(inside.channel);
    Ok((server, GuestSockets { channel, zygote, zygote_pid, ground, leaves: None }))
}

/// Copies the workspace in, where an overlay would be mounted over it.
fn copy_workspace(inside: &Inside) -> Result<(), Failure> {
    let Inside { plan, folder, ids, .. } = inside;
    let Some(workspace) = plan.workspace.as_ref().filter(|_| plan.workspace_overlay) else { return Ok(()) };
    let bounds = Bounds { bytes: plan.disk, entries: plan.inodes };
    let copied = copy::copy(&workspace.source, &folder.below("workspace/agent_workspace"), *ids, bounds);
    let name = match &copied {
        Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => format!(
            "mount {}: without namespaces the workspace is copied, and {} does not fit the limits (--disk, --inodes); \
             raise them, or use --workspace-mode read-only",
            workspace.target, workspace.source
        ),
        _ => format!("mount {}: copy {}", workspace.target, workspace.source),
    };
    step(&name, copied)?;
    step("stamp the copy", folder::stamp(folder))
}

/// The guest keeps the right to signal commands of another id, and opens files as they would.
fn drop_for_guest(ids: CommandIds) -> Result<(), Failure> {
    let keep = if ids.separate { CapabilitySet::KILL } else { CapabilitySet::empty() };
    if ids.separate {
        step("empty the bounding set", own::empty_bounding_set())?;
        step("give up groups", sys::give_up_groups())?;
        step("take the commands' id for files", sys::set_file_ids(ids.uid, ids.gid))?;
    }
    own::drop_capabilities(keep)?;
    // Changes of ids have cleared this, so it is set once more.
    step("die with the launcher", sys::die_with_parent())
}

fn start_zygote(inside: &Inside) -> io::Result<(i32, OwnedFd)> {
    let (guest, zygote) = wire::message_pair()?;
    match sys::fork_with(0)? {
        Forked::Child => {
            let socket = zygote.into_raw_fd();
            match set_up_zygote(socket, inside) {
                Ok(()) => {
                    let CommandIds { uid, gid, separate } = inside.ids;
                    serve(sys::adopt(socket), Identity { uid, gid, has_groups: separate, alone: false });
                }
                Err(failure) => drop(wire::send(sys::adopt(socket), &GuestReport::Failed(failure), &[])),
            }
            sys::exit_now(1)
        }
        Forked::Parent { pid, .. } => Ok((pid.as_raw_nonzero().get(), guest)),
    }
}

fn set_up_zygote(socket: RawFd, inside: &Inside) -> Result<(), Failure> {
    let Inside { plan, folder, ids, filter, .. } = inside;
    let owned = std::mem::ManuallyDrop::new(sys::adopt(socket));
    sys::set_name("glovebox-zygote");
    step("close the guest's descriptors", sys::close_all_but(&[socket]))?;
    step("die with the guest", sys::die_with_parent())?;
    // What a container refuses here, commands could not do either: the filter knows no keys.
    let keyring = sys::new_session_keyring().is_ok();
    step("set resource limits", set_limits(plan, *ids))?;
    rustix::process::umask(USUAL_UMASK);
    let own = Some(checks::own_view());
    let mut keep = CapabilitySet::empty();
    if ids.separate {
        step("empty the bounding set", own::empty_bounding_set())?;
        keep = CapabilitySet::SETUID | CapabilitySet::SETGID;
    }
    step("restrict the commands", rules::restrict(Domain::Commands, folder, plan))?;
    own::drop_capabilities(keep)?;
    step("install the filter of modes", sys::install_filter(&seccomp::compile_no_setid()))?;
    let terms = Confinement { network: plan.host_network, shared_id: !ids.separate, landlock: sys::landlock_version() };
    let further = seccomp::compile_confined(terms);
    let listener = match terms.shared_id {
        true => Some(step("install the further filter", sys::install_filter_with_listener(&further))?),
        false => step("install the further filter", sys::install_filter(&further)).map(|()| None)?,
    };
    step("install the filter", sys::install_filter(filter))?;
    let report = Report { keyring, masked_proc: false, landlock: true, rlimits: true, own };
    let listener: Vec<_> = listener.iter().map(|listener| listener.as_fd()).collect();
    step("report", wire::send(&*owned, &GuestReport::Ready(report), &listener))
}

/// Limits of each process. The hard ones cannot be raised again inside.
fn set_limits(plan: &Plan, ids: CommandIds) -> io::Result<()> {
    let set = |resource, wanted: u64| {
        let most = getrlimit(resource).maximum.map_or(wanted, |most| most.min(wanted));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
    };
    set(Resource::Nofile, plan.open_files)?;
    set(Resource::Core, 0)?;
    set(Resource::Fsize, plan.disk)?;
    set(Resource::Data, plan.memory)?;
    set(Resource::Memlock, PINNED)?;
    set(Resource::Sigpending, WAITING_SIGNALS)?;
    // The kernel counts by user. Where that user has other processes too, they come on top.
    let others = if ids.separate { 0 } else { processes_of(ids.uid) };
    set(Resource::Nproc, plan.pids + others)?;
    Ok(())
}

/// Processes and threads that a user has just now.
fn processes_of(uid: u32) -> u64 {
    let folder = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = folder.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let threads = pids.filter_map(|pid| {
        let status = sys::read_small(format!("/proc/{pid}/status")).ok()?;
        let user = sys::status_field(&status, "Uid")?.split_ascii_whitespace().next()?.parse::<u32>().ok()?;
        if user == uid { sys::status_field(&status, "Threads")?.parse::<u64>().ok() } else { None }
    });
    threads.sum()
}
