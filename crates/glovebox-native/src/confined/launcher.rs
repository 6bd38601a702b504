//! The launcher's part of sandboxes without namespaces.
//!
//! It takes over where the launcher could not make itself ready for namespaces, or finds that none can be had. It serves the
//! same orders in the same way, for those whose plan accepts this tier, and answers the others with what the host refused.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use glovebox_core::{Layer, SandboxId, Tier, UsageNow};
use libc::sock_filter;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, pidfd_send_signal},
    thread::CpuSet,
};

use super::{
    ending::{end_below, mark_of},
    folder::Folder,
    ids::CommandIds,
    inside::Inside,
    layers,
    reaper::{self, Started},
};
use crate::{
    cgroup::Cgroups,
    host_facts,
    owner::{Owner, RuntimeFolder},
    plan::{Answer, Counted, Failure, GuestReport, Order, Plan, step},
    sys::{self, KillOnDrop},
    watch::{self, MemoryWatch},
    wire,
};

/// When nothing happens for so long, there is time to look for what others left.
const PAUSE: Duration = Duration::from_millis(3);

/// An order that the other launcher got and did not obey, with its descriptors.
pub(crate) type Passed = (Order, Vec<OwnedFd>);

/// Whether an order is one for this tier: it accepts it, and the host refuses a part of what namespaces need. Asked before
/// the first sandbox is made; one that was made is proof enough.
pub(crate) fn is_wanted(order: &Order) -> Option<Failure> {
    let Order::Create { plan, .. } = order else { return None };
    if plan.isolation != Tier::Landlock {
        return None;
    }
    let obstacle = host_facts::try_user_namespace().err()?;
    Some(Failure::new(obstacle.to_string(), &obstacle.error))
}

struct Confined {
    owner: Owner,
    runtime: RuntimeFolder,
    /// Why there are no namespaces.
    refusal: Failure,
    filter: Vec<sock_filter>,
    cpus: CpuSet,
    /// Whether what dead launchers left is still to be removed.
    garbage: bool,
    sandboxes: Vec<Live>,
}

/// A sandbox that lives, or is being made, or is being ended.
struct Live {
    id: SandboxId,
    mark: u64,
    ids: CommandIds,
    folder: Folder,
    store: OwnedFd,
    pid: Pid,
    guest: OwnedFd,
    /// What all of it descends from, and what ends when all of it has.
    reaper: OwnedFd,
    memory: MemoryWatch,
    _disk_watch: KillOnDrop,
    pending: Option<Pending>,
    exited: bool,
}

/// What is needed until the guest has reported.
struct Pending {
    report: OwnedFd,
    reply: OwnedFd,
    watch: OwnedFd,
}

/// Serves until the caller is gone, and then ends and removes everything.
pub(crate) fn serve(
    control: &OwnedFd,
    refusal: Failure,
    cpus: CpuSet,
    runtime: RuntimeFolder,
    first: Option<Passed>,
) -> io::Result<()> {
    let mut confined = match prepare(refusal.clone(), cpus, runtime) {
        Ok(confined) => confined,
        Err(error) => {
            refuse_all(control, &refusal);
            return Err(error);
        }
    };
    if let Some((order, fds)) = first {
        confined.obey(order, fds);
    }
    let served = confined.serve_orders(control);
    for live in std::mem::take(&mut confined.sandboxes) {
        live.end();
    }
    confined.collect_garbage();
    confined.owner.unregister();
    served
}

fn prepare(refusal: Failure, cpus: CpuSet, runtime: RuntimeFolder) -> io::Result<Confined> {
    rustix::process::chdir("/")?;
    // Orphans of a guest that was killed come here, and the kernel reaps them.
    sys::adopt_orphans()?;
    let owner = Owner::register(runtime.clone())?;
    Ok(Confined {
        owner,
        runtime,
        refusal,
        filter: glovebox_guest::seccomp::compile(),
        cpus,
        garbage: true,
        sandboxes: Vec::new(),
    })
}

/// Answers every order with the reason why there is no sandbox to be had.
fn refuse_all(control: &OwnedFd, failure: &Failure) {
    while let Ok(Some((order, fds))) = wire::receive::<Order>(control) {
        let answer = match order {
            Order::Destroy { .. } => Answer::Destroyed,
            Order::Tier => Answer::Tier(Tier::Landlock),
            _ => Answer::Failed(failure.clone()),
        };
        if let Some(reply) = fds.first() {
            let _ = wire::send(reply, &answer, &[]);
        }
    }
}

impl Confined {
    fn serve_orders(&mut self, control: &OwnedFd) -> io::Result<()> {
        loop {
            let look = self.look_at_memory();
            let wait = if self.garbage { Some(PAUSE) } else { look };
            let happened = self.wait(control, wait)?;
            if !happened.any() {
                self.collect_garbage();
            }
            for id in happened.reports {
                self.guest_reported(id);
            }
            for id in happened.ends {
                self.guest_ended(id);
            }
            if happened.order {
                match wire::receive::<Order>(control)? {
                    Some((order, fds)) => self.obey(order, fds),
                    None => return Ok(()),
                }
            }
        }
    }

    /// Removes what dead launchers left, once, when nobody waits for it.
    fn collect_garbage(&mut self) {
        if std::mem::take(&mut self.garbage) {
            // What cannot be removed now is found again by the next launcher.
            let _ = self.owner.collect_garbage(&Cgroups::default(), &[]);
        }
    }

    fn wait(&self, control: &OwnedFd, wait: Option<Duration>) -> io::Result<Happened> {
        let mut fds = vec![PollFd::new(control, PollFlags::IN)];
        let mut whose = Vec::new();
        for live in &self.sandboxes {
            if let Some(pending) = &live.pending {
                fds.push(PollFd::new(&pending.report, PollFlags::IN));
                whose.push((live.id, true));
            }
            if !live.exited {
                fds.push(PollFd::new(&live.guest, PollFlags::IN));
                whose.push((live.id, false));
            }
        }
        let timeout = wait.map(|wait| Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Happened::default()),
            Err(error) => return Err(error.into()),
        }
        let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let mut happened = Happened { order: ready(&fds[0]), ..Happened::default() };
        for ((id, is_report), fd) in whose.into_iter().zip(&fds[1..]) {
            match is_report {
                _ if !ready(fd) => {}
                true => happened.reports.push(id),
                false => happened.ends.push(id),
            }
        }
        Ok(happened)
    }

    fn obey(&mut self, order: Order, fds: Vec<OwnedFd>) {
        let mut fds = fds.into_iter();
        let (Some(reply), channel) = (fds.next(), fds.next()) else {
            // Whoever sends no address wants no answer.
            if let Order::Destroy { id } = order {
                self.destroy(id);
            }
            return;
        };
        let answer = match order {
            Order::Create { id, plan } => {
                let Some(channel) = channel else {
                    let step = "without namespaces no sandbox can stay; glovebox run works".into();
                    let failure = Failure { step, errno: libc::ENOSYS };
                    return drop(wire::send(reply, &Answer::Failed(failure), &[]));
                };
                match self.launch(id, &plan, channel, reply) {
                    Ok(()) => return,
                    Err((failure, reply)) => return drop(wire::send(reply, &Answer::Failed(failure), &[])),
                }
            }
            Order::Count { id, .. } => Answer::Counted(self.live(id).map(|live| live.count()).unwrap_or_default()),
            Order::Destroy { id } => {
                if let Some(counted) = self.destroy(id) {
                    let _ = wire::send(&reply, &Answer::Counted(counted), &[]);
                }
                Answer::Destroyed
            }
            Order::Usage { id } => match self.live(id) {
                Some(live) => Answer::Usage(live.usage()),
                None => Answer::Failed(self.refusal.clone()),
            },
            Order::Tier => Answer::Tier(Tier::Landlock),
            // Everything of living sandboxes, of which there are none.
            _ => Answer::Failed(self.refusal.clone()),
        };
        let _ = wire::send(reply, &answer, &[]);
    }

    fn live(&mut self, id: SandboxId) -> Option<&mut Live> {
        self.sandboxes.iter_mut().find(|live| live.id == id)
    }

    /// The steps on the host's side. The answer comes when the guest has reported.
    fn launch(
        &mut self,
        id: SandboxId,
        plan: &Plan,
        channel: OwnedFd,
        reply: OwnedFd,
    ) -> Result<(), (Failure, OwnedFd)> {
        match self.make(id, plan, channel) {
            Ok((mut live, report, watch)) => {
                live.pending = Some(Pending { report, reply, watch });
                self.sandboxes.push(live);
                Ok(())
            }
            Err(failure) => Err((failure, reply)),
        }
    }

    fn make(&mut self, id: SandboxId, plan: &Plan, channel: OwnedFd) -> Result<(Live, OwnedFd, OwnedFd), Failure> {
        let ids = CommandIds::choose(id, &self.runtime);
        self.refuse(plan, ids)?;
        let mark = mark_of(id);
        let folder = step("make the folder", Folder::make(&self.owner.group(id), &self.runtime, plan, ids))?;
        let made = self.start(plan, &folder, ids, mark, channel);
        let (Started { reaper, pid, guest }, report, store, (watch, disk_watch)) = match made {
            Ok(made) => made,
            Err(failure) => {
                folder.remove();
                return Err(failure);
            }
        };
        let memory = MemoryWatch::over_processes(pid, plan.memory);
        let live = Live {
            id,
            mark,
            ids,
            folder,
            store,
            pid,
            guest,
            reaper,
            memory,
            _disk_watch: disk_watch,
            pending: None,
            exited: false,
        };
        Ok((live, report, watch))
    }

    #[allow(clippy::type_complexity)]
    fn start(
        &mut self,
        plan: &Plan,
        folder: &Folder,
        ids: CommandIds,
        mark: u64,
        channel: OwnedFd,
    ) -> Result<(Started, OwnedFd, OwnedFd, (OwnedFd, KillOnDrop)), Failure> {
        let store = step("open the folder", folder.open())?;
        let mut watched = step("open what is written", watch::open_written(plan))?;
        watched.push(step("open the folder", folder.open())?);
        // What is there before anything can be written counts as before, so the watch starts first.
        let watching = step("watch the disk", watch::start_disk_watch_over(watched, plan, None))?;
        let (report, guest_report) = step("make sockets", wire::message_pair())?;
        let inside = Inside {
            channel,
            plan: plan.clone(),
            folder: folder.clone(),
            ids,
            mark,
            filter: self.filter.clone(),
            cpus: self.cpus,
        };
        let started = reaper::start(inside, guest_report);
        Ok((step("start the guest", started)?, report, store, watching))
    }

    /// Refuses what this tier cannot do. Nothing else is ever done instead.
    fn refuse(&self, plan: &Plan, ids: CommandIds) -> Result<(), Failure> {
        if plan.isolation != Tier::Landlock {
            return Err(self.refusal.clone());
        }
        let refused = |step: String, errno| Err(Failure { step, errno });
        if sys::landlock_version() == 0 {
            return refused(
                "this kernel has no Landlock, without which nothing is left to isolate with".into(),
                libc::ENOSYS,
            );
        }
        let user = glovebox_core::User::default();
        if (plan.uid, plan.gid) != (user.uid, user.gid) {
            return refused("without namespaces there is no other user inside; leave out --user".into(), libc::EINVAL);
        }
        if plan.mounts.iter().any(|mount| mount.volume.is_some()) {
            let step = "mount a volume: volumes, caches and projects need namespaces; leave out --volume, --cache and --project";
            return refused(step.into(), libc::EINVAL);
        }
        for mount in &plan.mounts {
            let same = std::fs::canonicalize(&mount.target).is_ok_and(|path| path.as_os_str() == mount.source.as_str());
            if !same {
                let why = "without namespaces a mount can only appear at its own path";
                let step =
                    format!("mount {}: {why}; use --mount {1}:{1}, or --file for a copy", mount.target, mount.source);
                return refused(step, libc::EINVAL);
            }
        }
        if ids.separate && plan.writes_to_host() {
            let step = "mount for writing: without namespaces commands run under an id of their own, which may not write to \
                        folders of the host; use --workspace-mode overlay, which copies, and glovebox apply";
            return refused(step.into(), libc::EACCES);
        }
        Ok(())
    }

    fn guest_reported(&mut self, id: SandboxId) {
        let Some(live) = self.live(id) else { return };
        let Some(pending) = live.pending.take() else { return };
        let report = match wire::receive::<GuestReport>(&pending.report) {
            Ok(Some((GuestReport::Ready(report), _))) => Ok(report),
            Ok(Some((GuestReport::Failed(failure), _))) => Err(failure),
            Ok(None) | Err(_) => Err(Failure { step: "hear from the guest".into(), errno: libc::EPIPE }),
        };
        let sent = match report {
            Ok(report) => live.tell(&pending, layers::present(live.mark, live.ids, &report)),
            Err(failure) => {
                self.destroy(id);
                return drop(wire::send(&pending.reply, &Answer::Failed(failure), &[]));
            }
        };
        if sent.is_err() {
            // The caller no longer waits; nobody will ever destroy this sandbox but us.
            self.destroy(id);
        }
    }

    fn guest_ended(&mut self, id: SandboxId) {
        if let Some(live) = self.live(id) {
            live.exited = true;
            sys::wait_for(&live.guest);
            // A sandbox whose guest is gone has no reason to go on; its files stay until it is destroyed.
            end_below(&live.reaper, live.mark, live.ids);
            if live.pending.is_some() {
                self.guest_reported(id);
            }
        }
    }

    fn destroy(&mut self, id: SandboxId) -> Option<Counted> {
        let at = self.sandboxes.iter().position(|live| live.id == id)?;
        Some(self.sandboxes.swap_remove(at).end())
    }

    /// Looks at the memory of every sandbox whose time has come. Says how long it is until the next one's.
    fn look_at_memory(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let mut soonest: Option<Instant> = None;
        for live in self.sandboxes.iter_mut().filter(|live| !live.exited) {
            if live.memory.next().is_some_and(|next| next <= now) {
                let _ = live.memory.look(live.store.as_fd());
            }
            soonest = [soonest, live.memory.next()].into_iter().flatten().min();
        }
        Some(soonest?.saturating_duration_since(now))
    }
}

/// What happened.
#[derive(Default)]
struct Happened {
    order: bool,
    reports: Vec<SandboxId>,
    ends: Vec<SandboxId>,
}

impl Happened {
    fn any(&self) -> bool {
        self.order || !self.reports.is_empty() || !self.ends.is_empty()
    }
}

impl Live {
    fn tell(&self, pending: &Pending, present: Vec<Layer>) -> io::Result<()> {
        let guest_pid = self.pid.as_raw_nonzero().get();
        let answer = Answer::Confined { guest_pid, present, places: self.folder.pairs() };
        wire::send(&pending.reply, &answer, &[self.store.as_fd(), self.guest.as_fd(), pending.watch.as_fd()])
    }

    /// What was counted so far.
    fn count(&self) -> Counted {
        let mut counted = Counted::default();
        self.memory.complete(&mut counted);
        counted
    }

    /// What is used now.
    fn usage(&self) -> UsageNow {
        let counted = self.count();
        let files = self.store.try_clone().ok().and_then(|store| watch::total(&[store]));
        let mut now = UsageNow {
            cpu_ms: counted.cpu_ms,
            memory_peak_bytes: counted.memory_peak,
            disk_bytes: files.map(|files| files.bytes),
            ..UsageNow::default()
        };
        self.memory.complete_now(&mut now);
        now
    }

    /// Ends every process, and removes the files.
    fn end(self) -> Counted {
        let counted = self.count();
        let _ = pidfd_send_signal(&self.guest, Signal::KILL);
        if !self.exited {
            sys::wait_for(&self.guest);
        }
        if end_below(&self.reaper, self.mark, self.ids) {
            self.folder.remove();
        }
        counted
    }
}
