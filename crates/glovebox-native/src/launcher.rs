//! The launcher: a small, single-threaded process that makes sandboxes and outlives nothing of them.
//!
//! Theory of operation. The launcher is forked from the caller while that is still single-threaded, before any runtime
//! starts: a fork from a large program with threads would be slow and unsafe, and would hand its memory to the
//! sandbox. It closes all descriptors of the caller, wipes the caller's environment and command line from its memory,
//! and leaves the caller's session, so that Ctrl-C does not reach it. Then it serves orders from one socket:
//!
//! ```text
//! backend --- Order + reply socket ---> launcher --- clone3 ---> guest
//!    ^                                     |  |<-- GuestReport ---'
//!    '---- Answer + descriptors -----------'  '--- watches: process, memory
//! ```
//!
//! When the socket closes, because the caller ended or was killed, the launcher ends every sandbox, removes its
//! groups, takes itself off the register, and ends. When the launcher itself is killed, every guest dies with it by
//! the kernel's parent-death signal; the groups it leaves are found by the next start through its lock file.

mod handing;
mod live;

use std::{
    collections::BTreeMap,
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use glovebox_core::SandboxId;
use glovebox_guest::IDLE;
use libc::sock_filter;
use rustix::{
    event::{Timespec, epoll},
    fs::{Mode, OFlags},
    process::Pid,
    thread::CpuSet,
};

use handing::{send_doors, send_mounts};
use live::{Live, Pending, end, handle_on};

use crate::{
    cgroup::{Cgroups, GroupLimits, Groups, Side},
    checks::{self, HostNamespaces},
    idmap::{self, SandboxIds},
    inside::{self, Inside, Masks},
    mounts::{self, Mapped, Tree},
    network::Networks,
    owner::{Owner, RuntimeFolder},
    plan::{Answer, Failure, GuestReport, Order, Plan, step},
    seccomp,
    skeleton::Skeletons,
    standing::Standing,
    store,
    sys::{self, Forked, KillOnDrop},
    watch::{self, MemoryWatch},
    wire,
};

/// What an event is about; the low two bits of its number, above them the sandbox.
const CONTROL: u64 = 0;
const PROCESS: u64 = 1;
const REPORT: u64 = 2;

/// When nothing happens for so long, there is time to make something ahead.
const PAUSE: Duration = Duration::from_millis(3);

struct Launcher {
    events: OwnedFd,
    owner: Owner,
    standing: Standing,
    cgroups: Cgroups,
    skeletons: Skeletons,
    networks: Networks,
    filter: Vec<sock_filter>,
    proc_masks: Masks,
    /// The CPUs that the caller may use.
    cpus: CpuSet,
    /// The launcher's own namespaces, once they were looked at.
    host: Option<HostNamespaces>,
    /// Whether what dead launchers left is still to be removed.
    garbage: bool,
    sandboxes: BTreeMap<u64, Live>,
    next: u64,
}

/// The launcher's life. Never returns to the caller's code.
pub(crate) fn main(control: OwnedFd, cpus: CpuSet, runtime: RuntimeFolder) -> ! {
    let code = match prepare(&control, cpus, runtime) {
        Ok(mut launcher) => {
            let served = launcher.serve(&control);
            launcher.end_everything();
            launcher.collect_garbage();
            launcher.owner.unregister();
            i32::from(served.is_err())
        }
        Err(failure) => {
            refuse(&control, &failure);
            1
        }
    };
    sys::exit_now(code)
}

/// Answers every order with the reason why there is no sandbox to be had.
fn refuse(control: &OwnedFd, failure: &Failure) {
    while let Ok(Some((order, fds))) = wire::receive::<Order>(control) {
        let answer = match order {
            Order::Create { .. } | Order::Count { .. } => Answer::Failed(failure.clone()),
            Order::Destroy { .. } => Answer::Destroyed(None),
        };
        if let Some(reply) = fds.first() {
            let _ = wire::send(reply, &answer, &[]);
        }
    }
}

fn prepare(control: &OwnedFd, cpus: CpuSet, runtime: RuntimeFolder) -> Result<Launcher, Failure> {
    step("forget the caller", sys::clean_slate("glovebox-launcher"))?;
    sys::ignore_group_signals();
    step("be scheduled as usual", sys::schedule_as_usual())?;
    let _ = rustix::process::setsid();
    rustix::process::umask(rustix::fs::Mode::empty());
    step("leave the caller's folder", rustix::process::chdir("/"))?;
    let scratch = runtime.scratch();
    let owner = step("register the launcher", Owner::register(runtime))?;
    let standing = Standing::take()?;
    step("enter the scratch folder", mounts::enter_scratch(&scratch))?;
    sys::allow_all_cpus(&cpus);
    let mut skeletons = Skeletons::new(standing);
    step("begin the root", skeletons.begin())?;
    let cgroups = step("look at the control groups", Cgroups::detect(standing == Standing::Root))?;
    let events = step("watch for events", epoll::create(epoll::CreateFlags::CLOEXEC))?;
    step("watch for events", watch_for(&events, control, CONTROL))?;
    Ok(Launcher {
        events,
        owner,
        standing,
        cgroups,
        skeletons,
        networks: step("look at the network", Networks::new())?,
        filter: seccomp::compile(),
        proc_masks: Masks::detect(),
        cpus,
        host: None,
        garbage: true,
        sandboxes: BTreeMap::new(),
        next: 1,
    })
}

fn watch_for(events: &OwnedFd, what: impl AsFd, number: u64) -> io::Result<()> {
    Ok(epoll::add(events, what, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?)
}

/// The numbers of what happened, within a time or whenever it comes.
fn wait_for_events(events: &OwnedFd, wait: Option<Duration>) -> rustix::io::Result<Vec<u64>> {
    let mut space = [MaybeUninit::<epoll::Event>::uninit(); 32];
    let timeout = wait.map(|wait| Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() });
    let (happened, _) = epoll::wait(events, &mut space, timeout.as_ref())?;
    Ok(happened.iter().map(|event| event.data.u64()).collect())
}

impl Launcher {
    /// Serves until the caller is gone.
    fn serve(&mut self, control: &OwnedFd) -> io::Result<()> {
        let mut rested = false;
        loop {
            let until_look = self.look_at_memory();
            let wait = match rested {
                _ if self.garbage || self.wants_network() => Some(PAUSE),
                false => Some(until_look.map_or(IDLE, |wait| wait.min(IDLE))),
                true => until_look,
            };
            let numbers = match wait_for_events(&self.events, wait) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            if numbers.is_empty() && wait == Some(PAUSE) {
                self.collect_garbage();
                if self.wants_network() {
                    // Without one ahead the next sandbox makes its own, and says why it cannot.
                    let _ = self.networks.make_spare();
                }
                continue;
            }
            if numbers.is_empty() && !rested && wait == Some(IDLE) {
                glovebox_guest::rest();
            }
            rested = numbers.is_empty() && (rested || wait == Some(IDLE));
            for number in numbers {
                let sandbox = number >> 2;
                match number & 3 {
                    CONTROL => match wire::receive::<Order>(control)? {
                        Some((order, fds)) => self.obey(order, fds),
                        None => return Ok(()),
                    },
                    PROCESS => self.process_ended(sandbox),
                    _ => self.guest_reported(sandbox),
                }
            }
        }
    }

    /// Whether a network is to be made ahead.
    fn wants_network(&self) -> bool {
        self.standing == Standing::Root && self.networks.wants_spare()
    }

    /// Removes what dead launchers left, once, when nobody waits for it.
    fn collect_garbage(&mut self) {
        if std::mem::take(&mut self.garbage) {
            // What cannot be removed now is found again by the next launcher.
            let _ = self.owner.collect_garbage(&self.cgroups);
        }
    }

    fn obey(&mut self, order: Order, fds: Vec<OwnedFd>) {
        let mut fds = fds.into_iter();
        let reply = fds.next();
        match order {
            Order::Create { id, plan } => {
                let (Some(reply), Some(channel)) = (reply, fds.next()) else { return };
                let groups = self.cgroups.named(&self.owner.group(id));
                match self.launch(id, &plan, &groups, channel) {
                    Ok((mut live, report, watch)) => {
                        live.pending = Some(Pending { report, reply, watch });
                        self.register(live);
                    }
                    Err(failure) => {
                        groups.remove_when_empty();
                        let _ = wire::send(reply, &Answer::Failed(failure), &[]);
                    }
                }
            }
            Order::Count { id } => {
                let live = self.sandboxes.values().find(|live| live.id == id);
                let counted = live.map(Live::count).unwrap_or_default();
                let _ = reply.map(|reply| wire::send(reply, &Answer::Counted(counted), &[]));
            }
            Order::Destroy { id } => self.destroy(id, reply),
        }
    }

    /// The steps on the host's side. The guest's are in `inside`. The fork comes first, so that the slow steps of the
    /// processes inside go on beside those here.
    fn launch(
        &mut self,
        id: SandboxId,
        plan: &Plan,
        groups: &Groups,
        channel: OwnedFd,
    ) -> Result<(Live, OwnedFd, Option<OwnedFd>), Failure> {
        let ids = SandboxIds::new(self.standing, id, plan);
        let (report, guest_report) = step("make sockets", wire::message_pair())?;
        let (door_sender, doors) = step("make sockets", wire::message_pair())?;
        let forked = step("fork the guest", self.fork_into_network(plan))?;
        let (pid, process) = match forked {
            Forked::Child => inside::main(Inside {
                launcher: guest_report,
                channel,
                doors,
                plan: plan.clone(),
                filter: std::mem::take(&mut self.filter),
                proc_masks: std::mem::take(&mut self.proc_masks),
                standing: self.standing,
                held: self.cgroups.held(),
                cpus: self.cpus,
            }),
            Forked::Parent { pid, pidfd } => (pid, pidfd),
        };
        // Whatever fails from here on must take the new process along.
        let guard = KillOnDrop::new(process);
        // Where the skeleton is still being assembled, the guest must not take that CPU; this one is free meanwhile.
        if !self.skeletons.is_busy() {
            sys::send_elsewhere(pid);
        }
        drop((guest_report, doors, channel));
        let (users, user_groups) = ids.maps();
        step("write the id maps", idmap::write_maps(pid, &users, &user_groups))?;
        let (trees, mapped, store) = self.make_trees(plan, &ids, pid)?;
        if self.standing != Standing::Root {
            // A change of ids for files has hidden this process, and would hide the next guest from its own launcher.
            step("be seen again", sys::set_dumpable(true))?;
        }
        // What is there before anything can be written counts as before, so the watch starts before the mounts go in.
        let watching =
            plan.writes_to_host().then(|| step("watch the disk", watch::start_disk_watch(plan))).transpose()?;
        let (watch, disk_watch) = watching.unzip();
        sys::send_elsewhere(pid);
        step("hand over the mounts", send_mounts(&report, &trees))?;
        let limits = GroupLimits::new(plan.group_memory(), plan.pids, plan.cpus);
        step("make the control groups", groups.make(&limits))?;
        step("open the groups", send_doors(&door_sender, groups, Side::Run))?;
        step("open the groups", send_doors(&report, groups, Side::Guest))?;
        let live = Live {
            id,
            pid,
            process: guard.keep(),
            groups: groups.clone(),
            store,
            mounts: None,
            memory: match groups.memory_files() {
                Some(files) => MemoryWatch::over_group(files, plan.memory),
                None => MemoryWatch::over_processes(pid, plan.memory),
            },
            _disk_watch: disk_watch,
            mapped,
            host_network: plan.host_network,
            user: plan.uid,
            pending: None,
            exited: false,
            ending: Vec::new(),
            destroy: false,
            counted: None,
            zygote: None,
        };
        Ok((live, report, watch))
    }

    /// Forks the guest in the network that it will have.
    fn fork_into_network(&mut self, plan: &Plan) -> io::Result<Forked> {
        if self.standing != Standing::Root {
            // An ordinary user's launcher could not come back from another network, so the guest makes its own.
            let network = if plan.host_network { 0 } else { libc::CLONE_NEWNET as u64 };
            return sys::fork_with(namespaces() | network);
        }
        if plan.host_network {
            return sys::fork_with(namespaces());
        }
        self.networks.enter()?;
        let forked = sys::fork_with(namespaces());
        match forked {
            Ok(Forked::Child) => {}
            _ => self.networks.leave()?,
        }
        forked
    }

    /// All trees that the guest attaches, the root and the store first; whether their owners could be shifted; and the
    /// store once more, to be kept.
    fn make_trees(
        &mut self,
        plan: &Plan,
        ids: &SandboxIds,
        guest: Pid,
    ) -> Result<(Vec<Tree>, Mapped, OwnedFd), Failure> {
        let (root, over, mut mapped) = self.skeletons.lend(plan, guest)?;
        let store = store::make(plan, ids)?;
        let overlay = plan.workspace.as_ref().filter(|_| plan.workspace_overlay);
        let (store, overlay) = match overlay {
            Some(workspace) => mounts::overlay(workspace, ids, plan, store).map(|(tree, store)| (store, Some(tree)))?,
            None => (store, None),
        };
        let kept = step("keep the store", store.try_clone())?;
        let tree = |target: &str, tree| Tree { target: target.into(), tree };
        let mut trees = vec![tree("/", root), tree(store::PLACE, store)];
        trees.extend(over);
        trees.extend(overlay);
        let direct = plan.workspace.iter().filter(|_| !plan.workspace_overlay);
        for mount in direct.chain(&plan.mounts) {
            let (tree, how) = mounts::planned(mount, ids, plan)?;
            mapped = mapped.and(how);
            trees.push(tree);
        }
        Ok((trees, mapped, kept))
    }

    fn register(&mut self, live: Live) {
        let number = self.next;
        self.next += 1;
        // The descriptors are new and the epoll instance is ours, so adding them fails only for want of memory; the
        // caller, who waits for an answer, then sees the launcher's end of the socket close with the launcher.
        let _ = watch_for(&self.events, &live.process, number << 2 | PROCESS);
        if let Some(pending) = &live.pending {
            let _ = watch_for(&self.events, &pending.report, number << 2 | REPORT);
        }
        self.sandboxes.insert(number, live);
    }

    fn guest_reported(&mut self, number: u64) {
        let Some(live) = self.sandboxes.get_mut(&number) else { return };
        let Some(pending) = live.pending.take() else { return };
        let _ = epoll::delete(&self.events, &pending.report);
        let report = match wire::receive::<GuestReport>(&pending.report) {
            Ok(Some((GuestReport::Ready(report), _))) => report,
            Ok(Some((GuestReport::Failed(failure), _))) => return self.give_up(number, failure, pending.reply),
            Ok(None) | Err(_) => {
                let failure = Failure { step: "hear from the guest".into(), errno: libc::EPIPE };
                return self.give_up(number, failure, pending.reply);
            }
        };
        let host = self.host.get_or_insert_with(HostNamespaces::own);
        let settings = live.settings(self.standing);
        let (present, zygote) = checks::present(live.pid, host, &live.groups, &settings, &report);
        live.zygote = zygote.and_then(|pid| handle_on(pid, live));
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let group = live.groups.name().to_owned();
        let held = self.cgroups.held();
        let answer = Answer::Created { held, guest_pid: live.pid.as_raw_nonzero().get(), group, present };
        live.mounts =
            rustix::fs::open(format!("/proc/{}/ns/mnt", live.pid.as_raw_nonzero()), flags, Mode::empty()).ok();
        let mut fds = vec![live.store.as_fd(), live.process.as_fd()];
        fds.extend(pending.watch.as_ref().map(|watch| watch.as_fd()));
        if wire::send(&pending.reply, &answer, &fds).is_err() {
            // The caller no longer waits; nobody will ever destroy this sandbox but us.
            let id = live.id;
            self.destroy(id, None);
        }
    }

    fn give_up(&mut self, number: u64, failure: Failure, reply: OwnedFd) {
        if let Some(live) = self.sandboxes.get_mut(&number) {
            live.destroy = true;
            end(live);
            let _ = wire::send(reply, &Answer::Failed(failure), &[]);
            self.finish_if_over(number);
        }
    }

    fn destroy(&mut self, id: SandboxId, reply: Option<OwnedFd>) {
        let found = self.sandboxes.iter_mut().find(|(_, live)| live.id == id);
        let Some((&number, live)) = found else {
            if let Some(reply) = reply {
                let _ = wire::send(reply, &Answer::Destroyed(None), &[]);
            }
            return;
        };
        live.destroy = true;
        live.ending.extend(reply);
        end(live);
        // While the kernel ends the processes, there is time to read what it counted.
        live.counted = Some(live.count());
        self.finish_if_over(number);
    }

    fn process_ended(&mut self, number: u64) {
        if let Some(live) = self.sandboxes.get_mut(&number) {
            live.exited = true;
            let _ = epoll::delete(&self.events, &live.process);
            sys::wait_for(&live.process);
            if live.pending.is_some() {
                return self.guest_reported(number);
            }
            self.finish_if_over(number);
        }
    }

    /// Removes what is left of a sandbox that has ended and is no longer wanted.
    fn finish_if_over(&mut self, number: u64) {
        let over = self.sandboxes.get(&number).is_some_and(|live| live.exited && live.destroy);
        if let Some(live) = over.then(|| self.sandboxes.remove(&number)).flatten() {
            live.groups.remove_when_empty();
            // The kernel takes its time to let go of files and mounts that nobody can reach any more.
            for reply in &live.ending {
                let _ = wire::send(reply, &Answer::Destroyed(live.counted), &[]);
            }
        }
    }

    /// Looks at the memory of every sandbox whose time has come. Says how long it is until the next one's.
    fn look_at_memory(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let mut soonest: Option<Instant> = None;
        for live in self.sandboxes.values_mut().filter(|live| !live.exited) {
            let watch = &mut live.memory;
            if watch.next().is_some_and(|next| next <= now) {
                // A group that cannot be read is going away; the hard limit still holds.
                let _ = watch.look(live.store.as_fd());
            }
            soonest = [soonest, watch.next()].into_iter().flatten().min();
        }
        Some(soonest?.saturating_duration_since(now))
    }

    /// Ends every sandbox, because nobody is left who could want one.
    fn end_everything(&mut self) {
        for live in self.sandboxes.values() {
            end(live);
        }
        for live in std::mem::take(&mut self.sandboxes).into_values() {
            sys::wait_for(&live.process);
            live.groups.remove_when_empty();
        }
    }
}

/// New namespaces of a guest, besides its network. The zygote makes the one for control groups.
fn namespaces() -> u64 {
    let all = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    all as u64
}
