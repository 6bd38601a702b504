//! The launcher: a small, single-threaded process that makes sandboxes and outlives nothing of them.
//!
//! Theory of operation. The launcher is forked from the caller while that is still single-threaded, before any runtime
//! starts: a fork from a large program with threads would be slow and unsafe, and would hand its memory to the
//! sandbox. It closes all descriptors of the caller, wipes the caller's environment and command line from its memory,
//! and leaves the caller's session, so that Ctrl-C does not reach it. Then it serves orders from one socket:
//!
//! ```text
//! backend --- Order + reply socket ---> launcher --- clone ----> guest
//!    ^                                     |  |<-- GuestReport ---'
//!    '---- Answer + descriptors -----------'  '--- watches: process, memory
//! ```
//!
//! When the socket closes, because the caller ended or was killed, the launcher ends every sandbox, removes its
//! groups, takes itself off the register, and ends. When the launcher itself is killed, every guest dies with it by
//! the kernel's parent-death signal; the groups it leaves are found by the next start through its lock file.

mod blame;
mod disk;
mod events;
mod handing;
mod keeping;
mod leaves;
mod live;
mod looking;
mod making;

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use glovebox_core::{SandboxId, Tier};
use glovebox_guest::{GuestChannel, IDLE};
use libc::sock_filter;
use rustix::{
    event::epoll,
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::CpuSet,
};

use events::{wait_for_events, watch_for};
use keeping::Client;
use live::{Live, Pending, end};

use crate::{
    cgroup::Cgroups,
    checks::{self, HostNamespaces},
    confined::{self, Passed},
    inside::Masks,
    mounts,
    network::Networks,
    owner::{Owner, RuntimeFolder},
    plan::{Answer, Failure, GuestReport, Order, step},
    ranges::{Range, Ranges},
    skeleton::Skeletons,
    standing::Standing,
    sys, wire,
};

/// What an event is about; the low three bits of its number, above them the sandbox or the client.
const CONTROL: u64 = 0;
const PROCESS: u64 = 1;
const REPORT: u64 = 2;
const DOOR: u64 = 3;
const CLIENT: u64 = 4;
const DISK: u64 = 5;
const CHORE: u64 = 6;
const LEAVES: u64 = 7;
const KIND_BITS: u64 = 3;
const KIND: u64 = (1 << KIND_BITS) - 1;

/// When nothing happens for so long, there is time to make something ahead.
const PAUSE: Duration = Duration::from_millis(3);

/// So many open files are enough for ten thousand runs that start at one time, or ten thousand sandboxes.
const DESCRIPTORS: u64 = 65_536;

struct Launcher {
    events: OwnedFd,
    owner: Owner,
    standing: Standing,
    cgroups: Cgroups,
    skeletons: Skeletons,
    networks: Networks,
    /// Ranges of host ids, which only root gives.
    ranges: Option<Ranges>,
    filter: Vec<sock_filter>,
    proc_masks: Masks,
    /// The CPUs that the caller may use.
    cpus: CpuSet,
    /// The launcher's own namespaces, once they were looked at.
    host: Option<HostNamespaces>,
    /// Whether what dead launchers left is still to be removed.
    garbage: bool,
    sandboxes: BTreeMap<u64, Live>,
    /// Who speaks with this launcher as the keeper of living sandboxes.
    clients: BTreeMap<u64, Client>,
    /// Children that do what takes time, and who waits for them.
    chores: BTreeMap<u64, (OwnedFd, OwnedFd)>,
    /// Before this moment no sandbox needs a look. Nothing when that is to be found out.
    next_look: Option<Instant>,
    /// A descriptor that is given up to turn somebody away.
    reserve: Option<OwnedFd>,
    next: u64,
    /// Whether the caller is gone, and only living sandboxes are left to keep.
    only_keeps: bool,
    /// The order with which everything is passed on to the tier without namespaces, and what the host refused.
    passed: Option<(Failure, Passed)>,
}

/// The launcher's life. Never returns to the caller's code.
pub(crate) fn main(control: OwnedFd, cpus: CpuSet, runtime: RuntimeFolder) -> ! {
    let served = match prepare(&control, cpus, runtime.clone()) {
        Ok(mut launcher) => {
            let served = launcher.serve(&control);
            // Whoever waits for the caller waits for its last moments, which may want this CPU.
            sys::let_others_go_first();
            launcher.end_everything();
            launcher.collect_garbage();
            launcher.ranges.iter_mut().for_each(Ranges::clear);
            launcher.owner.unregister();
            match (served, launcher.passed) {
                (Ok(()), Some((refusal, passed))) => confined::serve(&control, refusal, cpus, runtime, Some(passed)),
                (served, _) => served,
            }
        }
        Err(refusal) => confined::serve(&control, refusal, cpus, runtime, None),
    };
    sys::exit_now(i32::from(served.is_err()))
}

fn prepare(control: &OwnedFd, cpus: CpuSet, runtime: RuntimeFolder) -> Result<Launcher, Failure> {
    step("forget the caller", sys::clean_slate("glovebox-launcher"))?;
    sys::ignore_group_signals();
    step("be scheduled as usual", sys::schedule_as_usual())?;
    allow_many_descriptors();
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
    let mut networks = step("look at the network", Networks::new())?;
    let ranges = (standing == Standing::Root).then(|| Ranges::of(owner.folder(), owner.name()));
    let mut ranges = step("look at the ranges of ids", ranges.transpose())?;
    let (filter, proc_masks) = (glovebox_guest::seccomp::compile(), Masks::detect());
    if standing == Standing::Root && wait_for_events(&events, Some(Duration::ZERO)) == Ok(Vec::new()) {
        // The caller still reads its command line. Without these ahead the first sandbox makes its own, and says why it cannot.
        let _ = ranges.as_mut().map(|ranges| ranges.make_spare(&cgroups));
        let _ = networks.make_spare();
    }
    Ok(Launcher {
        events,
        owner,
        standing,
        cgroups,
        skeletons,
        networks,
        ranges,
        filter,
        proc_masks,
        cpus,
        host: None,
        garbage: true,
        sandboxes: BTreeMap::new(),
        clients: BTreeMap::new(),
        chores: BTreeMap::new(),
        next_look: None,
        reserve: None,
        next: 1,
        only_keeps: false,
        passed: None,
    })
}

/// Lets this process and the guests have more open files than a login shell's programs: a guest holds six for each run that
/// starts, a keeper five for each sandbox and up to twenty more while runs are at work. What cannot be raised stays; the zygote gives commands their own limit.
fn allow_many_descriptors() {
    let now = getrlimit(Resource::Nofile);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= DESCRIPTORS);
    if !enough(now.current) {
        let maximum = if enough(now.maximum) { now.maximum } else { Some(DESCRIPTORS) };
        // Only root may raise the hard limit.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), maximum })
            .or_else(|_| setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum }));
    }
}

impl Launcher {
    /// Serves until the caller and all living sandboxes are gone.
    fn serve(&mut self, control: &OwnedFd) -> io::Result<()> {
        let mut rested = false;
        while !(self.only_keeps && self.sandboxes.is_empty()) && self.passed.is_none() {
            let until_look = self.look();
            let wait = match rested {
                _ if self.garbage || self.wants_network() => Some(PAUSE),
                false => Some(until_look.map_or(IDLE, |wait| wait.min(IDLE))),
                true => until_look,
            };
            let mut numbers = match wait_for_events(&self.events, wait) {
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
            // To make a leaf takes longer than to answer, and nobody waits for it.
            numbers.sort_by_key(|number| number & KIND == LEAVES);
            for number in numbers {
                self.serve_event(number, control)?;
            }
        }
        Ok(())
    }

    fn serve_event(&mut self, number: u64, control: &OwnedFd) -> io::Result<()> {
        let which = number >> KIND_BITS;
        if !matches!(number & KIND, PROCESS | REPORT | DOOR | LEAVES) {
            // What is asked of this process, and what a look has found, may bring the next look forward.
            self.next_look = None;
        }
        match number & KIND {
            CONTROL => match wire::receive::<Order>(control) {
                Ok(Some((order, fds))) => match self.passes_on(&order) {
                    Some(refusal) => self.passed = Some((refusal, (order, fds))),
                    None => self.obey(order, fds),
                },
                Ok(None) => self.only_keep(control),
                // There was no descriptor left for what came along. Whoever sent it hears that nobody answers; all others go on.
                Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {}
                Err(error) => return Err(error),
            },
            PROCESS => self.process_ended(which),
            REPORT => self.guest_reported(which),
            DOOR => self.let_in(which),
            DISK => self.disk_was_looked_at(which),
            CHORE => self.chore_ended(which),
            LEAVES => self.hear_leaves(which),
            _ => self.hear_client(which),
        }
        Ok(())
    }

    /// What the host refuses, when an order is for the tier without namespaces. A sandbox that was made is proof enough.
    fn passes_on(&self, order: &Order) -> Option<Failure> {
        if self.next == 1 { confined::is_wanted(order) } else { None }
    }

    /// Whether a network is to be made ahead.
    fn wants_network(&self) -> bool {
        self.standing == Standing::Root && !self.only_keeps && self.networks.wants_spare()
    }

    /// Removes what dead launchers left, once, when nobody waits for it.
    fn collect_garbage(&mut self) {
        if std::mem::take(&mut self.garbage) {
            // What cannot be removed now is found again by the next launcher.
            let kept: Vec<SandboxId> =
                self.sandboxes.values().filter(|live| live.living.is_some()).map(|live| live.id).collect();
            let _ = self.owner.collect_garbage(&self.cgroups, &kept);
        }
    }

    fn obey(&mut self, order: Order, fds: Vec<OwnedFd>) {
        let mut fds = fds.into_iter();
        let reply = fds.next();
        match order {
            Order::Create { id, plan } if plan.living.is_some() => {
                let Some(reply) = reply else { return };
                self.create_living(id, &plan, reply);
            }
            Order::Create { id, plan } => {
                let (Some(reply), Some(channel)) = (reply, fds.next()) else { return };
                let groups = self.cgroups.named(&self.owner.group(id));
                let mut range = None;
                let launched = self.take_range(id, &plan, &groups).and_then(|taken| {
                    range = taken;
                    self.launch(id, &plan, &groups, GuestChannel::Connected(channel), None, range.as_ref())
                });
                match launched {
                    Ok((mut live, reporting, watch)) => {
                        live.range = range;
                        live.pending = Some(Pending { reporting, reply, watch, range: None });
                        self.register(live);
                    }
                    Err(failure) => {
                        let is_empty = groups.remove_when_empty();
                        self.give_back(range, is_empty);
                        let _ = wire::send(reply, &Answer::Failed(failure), &[]);
                    }
                }
            }
            Order::Count { id, run } => {
                let mut live = self.sandboxes.values_mut().find(|live| live.id == id);
                let counted = live.as_mut().map(|live| live.count_of(run)).unwrap_or_default();
                let _ = reply.map(|reply| wire::send(reply, &Answer::Counted(counted), &[]));
                // What takes time and nobody waits for.
                live.into_iter().for_each(|live| live.run_was_counted(run));
            }
            Order::Usage { id } => self.tell_usage(id, reply),
            Order::Destroy { id } => self.destroy(id, reply),
            Order::Tier => drop(reply.map(|reply| wire::send(reply, &Answer::Tier(Tier::Namespaces), &[]))),
            Order::RemoveStore { store } => {
                let Some(reply) = reply else { return };
                self.remove_store(&store, reply);
            }
            Order::Open { .. }
            | Order::Adopt { .. }
            | Order::WatchDisk { .. }
            | Order::Freeze { .. }
            | Order::LetDie { .. } => {
                self.obey_for_living(order, reply);
            }
        }
    }

    fn register(&mut self, mut live: Live) {
        if live.living.is_some() {
            (live.process, live.store) = (sys::put_aside(live.process), sys::put_aside(live.store));
        }
        let number = self.next;
        self.next += 1;
        // The descriptors are new and the epoll instance is ours, so adding them fails only for want of memory; the
        // caller, who waits for an answer, then sees the launcher's end of the socket close with the launcher.
        let _ = watch_for(&self.events, &live.process, number << KIND_BITS | PROCESS);
        if let Some(pending) = &live.pending {
            let _ = watch_for(&self.events, &pending.reporting.report, number << KIND_BITS | REPORT);
        }
        if let Some(kept) = &live.living {
            let _ = watch_for(&self.events, kept.door(), number << KIND_BITS | DOOR);
        }
        self.sandboxes.insert(number, live);
    }

    fn guest_reported(&mut self, number: u64) {
        let Some(live) = self.sandboxes.get_mut(&number) else { return };
        let Some(pending) = live.pending.take() else { return };
        let _ = epoll::delete(&self.events, &pending.reporting.report);
        let report = pending.reporting.hear();
        drop(pending.range);
        let report = match report {
            Ok(Some(GuestReport::Ready(report))) => report,
            Ok(Some(GuestReport::Failed(failure))) => return self.give_up(number, failure, pending.reply),
            Ok(None) | Err(_) => {
                let failure = Failure { step: "hear from the guest".into(), errno: libc::EPIPE };
                return self.give_up(number, failure, pending.reply);
            }
        };
        // The zygote, which may be about to start a command, may want this CPU; the checks can wait for that.
        sys::let_others_go_first();
        let host = self.host.get_or_insert_with(HostNamespaces::own);
        let settings = live.settings(self.standing);
        let (present, zygote) = checks::present(live.pid, host, &live.groups, &settings, &report);
        let group = live.groups.name().to_owned();
        let held = self.cgroups.held();
        if let Some(kept) = &mut live.living {
            // Without the note another keeper could not take over; the sandbox itself works.
            let _ = kept.note_layers(&present);
        }
        let answer = Answer::Created { held, guest_pid: live.pid.as_raw_nonzero().get(), group, present };
        // A keeper may have thousands, of which each fork copies all descriptors.
        if live.living.is_none() {
            live.take_hold(zygote);
        }
        let mut fds = vec![live.store.as_fd(), live.process.as_fd()];
        fds.extend(pending.watch.as_ref().map(|watch| watch.as_fd()));
        if wire::send(&pending.reply, &answer, &fds).is_err() {
            // The caller no longer waits; nobody will ever destroy this sandbox but us.
            let id = live.id;
            return self.destroy(id, None);
        }
        self.begin_leaves(number);
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
                let _ = wire::send(reply, &Answer::Destroyed, &[]);
            }
            return;
        };
        live.destroy = true;
        if live.living.is_some() {
            live.take_hold(checks::zygote_of(live.pid));
        }
        end(live);
        // While the kernel ends the processes, there is time to read what it counted, and for the caller to use it.
        if let Some(reply) = reply {
            let _ = wire::send(&reply, &Answer::Counted(live.count_all()), &[]);
            live.ending.push(reply);
        }
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
        let over =
            self.sandboxes.get(&number).is_some_and(|live| live.exited && (live.destroy || live.living.is_some()));
        if let Some(live) = over.then(|| self.sandboxes.remove(&number)).flatten() {
            let is_empty = live.groups.remove_when_empty();
            self.give_back(live.range, is_empty);
            drop(live.disk_watch);
            if let Some(kept) = live.living {
                kept.end(self.ranges.as_ref().filter(|_| is_empty));
                self.reserve =
                    self.reserve.take().filter(|_| self.sandboxes.values().any(|live| live.living.is_some()));
            }
            // The kernel takes its time to let go of files and mounts that nobody can reach any more.
            for reply in &live.ending {
                let _ = wire::send(reply, &Answer::Destroyed, &[]);
            }
        }
    }

    /// Takes back the range of ids of a sandbox, unless something may still run with them: then it is the collection's.
    fn give_back(&mut self, range: Option<Range>, is_empty: bool) {
        if let (Some(ranges), Some(range)) = (&mut self.ranges, range.filter(|_| is_empty)) {
            ranges.give_back(range);
        }
    }

    /// Ends every sandbox, because nobody is left who could want one.
    fn end_everything(&mut self) {
        for live in self.sandboxes.values() {
            end(live);
        }
        for live in std::mem::take(&mut self.sandboxes).into_values() {
            sys::wait_for(&live.process);
            drop(live.pending);
            let is_empty = live.groups.remove_when_empty();
            self.give_back(live.range, is_empty);
            if let Some(kept) = live.living {
                kept.end(self.ranges.as_ref().filter(|_| is_empty));
            }
        }
    }
}
