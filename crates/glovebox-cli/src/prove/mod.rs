//! `glovebox prove`: tries from inside real sandboxes what hostile code would try, and says which guarantees hold.
//!
//! Theory of operation. [`canaries`] plants things on the host that must not be reachable: files, a listener, a process, a
//! key, a word in the environment. Then a few sandboxes are made as any caller would, this very program is copied into
//! each as the probe, and each row of [`table`] runs it there once. What the row's judge believes is what a witness on the
//! host saw, wherever there can be one; else what the kernel told our own program inside. A row that could not be tried is
//! never said to hold.

mod canaries;
mod judge;
mod resources;
mod table;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    path::PathBuf,
    time::Duration,
};

use bytes::Bytes;
use glovebox_core::{
    Command, Enforcement, ErrorCode, InsidePath, Limits, Outcome, PROGRAM_DIR, Result, SandboxId, SandboxSpec, User,
    WORKING_DIR, Workspace, WorkspaceMode,
};
use glovebox_engine::{Engine, Event, FileContent, InputFile, RunRequest, Sandbox, Stdin};

pub(crate) use canaries::{Canaries, VARIABLE, new_token};
use judge::{About, Seen, Verdict};
use table::{GUARANTEES, Guarantee};

use crate::check::{Check, Status};

/// Knows the guest of a sandbox by its process id on the host.
pub(crate) type Guests = Box<dyn Fn(SandboxId) -> Option<i32>>;

/// What the sandboxes stand on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// This host's own kernel.
    Native,
    /// A Docker engine, and the kernel of its machine.
    Docker,
    /// A kernel of their own between them and that one, as gVisor's.
    OwnKernel,
}

/// What is tried.
pub(crate) struct Tried {
    pub(crate) engine: Engine,
    pub(crate) guest: Guests,
    /// What every sandbox is like.
    pub(crate) spec: SandboxSpec,
    pub(crate) ground: Ground,
    /// Whether all that is written has one limit and is no memory of the programs.
    pub(crate) one_store: bool,
}

/// How long a probe may take unless its row says otherwise.
const PROBE_TIME: Duration = Duration::from_secs(10);

/// How often something is tried that ended its sandbox, where nobody says why.
const TRIES: usize = 3;

/// The kinds of sandboxes that rows run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// As `glovebox run` makes them.
    Plain,
    /// With the commands as root inside.
    AsRoot,
    /// With a folder of the host as its workspace.
    InWorkspace,
    /// With tight limits.
    Tight,
}

/// Tries everything, and says what holds.
pub(crate) async fn all(tried: &Tried, canaries: &mut Canaries) -> Result<Vec<Check>> {
    let program = std::env::current_exe().map_err(crate::verbs::prove::no_program)?;
    // A host on which no sandbox can be made has nothing to prove, so this failure ends everything.
    let plain = Inside::make(tried, Place::Plain, &program, canaries).await?;
    let tier = plain.sandbox.created().isolation.tier;
    let missing: Vec<&str> = plain.sandbox.created().isolation.missing.iter().map(|layer| layer.as_str()).collect();
    let mut places = BTreeMap::from([(Place::Plain, Ok(plain))]);
    let mut checks = vec![layers(&missing, tried.ground)];
    for row in GUARANTEES {
        let mut tries = 0;
        let (verdict, no_root) = loop {
            tries += 1;
            if let Entry::Vacant(free) = places.entry(row.place) {
                let made = Inside::make(tried, row.place, &program, canaries).await;
                free.insert(made.map_err(|error| error.message));
            }
            // Where no root can be made inside, there is nobody stronger than the ordinary user to try it.
            let no_root = row.place == Place::AsRoot && places[&row.place].is_err();
            let place = if no_root { Place::Plain } else { row.place };
            let verdict = match places.get_mut(&place) {
                Some(Ok(inside)) => inside.judge(row, canaries).await,
                Some(Err(why)) => Verdict::Unknown(why.clone()),
                None => Verdict::Unknown("its sandbox was not made".into()),
            };
            // What was tried may have ended the sandbox; the next is tried in another one.
            let is_lost = places.get(&place).is_some_and(|inside| inside.as_ref().is_ok_and(|inside| inside.is_lost));
            if is_lost && let Some(Ok(lost)) = places.remove(&place) {
                // There is nothing left to end.
                let _ = lost.sandbox.destroy().await;
            }
            // An engine may miss why a sandbox ended, and tell it the next time.
            if !is_lost || tries == TRIES || !matches!(verdict, Verdict::Unknown(_)) {
                break (verdict, no_root);
            }
        };
        let verdict = match row.not_promised(tier, tried.ground) {
            Some(where_not) => verdict.not_promised(where_not),
            None => verdict,
        };
        checks.push(verdict.tried_without_root(no_root).into_check(row.group, row.name));
    }
    let mut left = None;
    for (place, inside) in places {
        let Ok(inside) = inside else { continue };
        match place {
            Place::Plain => left = Some(inside),
            _ => inside.sandbox.destroy().await?,
        }
    }
    if let Some(inside) = left {
        checks.push(inside.end(canaries).await.into_check(table::PROCESSES, "nothing of a sandbox outlives it"));
    }
    // What belongs together is printed together, whenever it was tried.
    checks.sort_by_key(|check| table::GROUPS.iter().position(|group| *group == check.group));
    Ok(checks)
}

fn layers(missing: &[&str], ground: Ground) -> Check {
    let (giver, fix) = match ground {
        Ground::Native => ("this host", "glovebox doctor says what this host lacks"),
        Ground::Docker | Ground::OwnKernel => {
            ("this Docker engine", "docs/guides/docker.md says what an engine does not give")
        }
    };
    let verdict = match missing {
        [] => Verdict::Holds(format!("{} of {0}", glovebox_core::Layer::ALL.len())),
        _ => Verdict::Unknown(format!("{giver} does not give {}", missing.join(", "))),
    };
    verdict.into_check(table::PRIVILEGES, "every layer of isolation is in place").fix(fix)
}

/// A sandbox with the probe in it.
struct Inside {
    sandbox: Sandbox,
    probe: String,
    about: About,
    /// What was tried already, by its words.
    seen: BTreeMap<Vec<String>, Seen>,
    /// Whether it ended while something was tried.
    is_lost: bool,
}

impl Inside {
    async fn make(tried: &Tried, place: Place, program: &PathBuf, canaries: &Canaries) -> Result<Self> {
        let size = std::fs::metadata(program).map_err(crate::verbs::prove::no_program)?.len();
        let spec = spec(tried, place, size, canaries);
        // The probe takes a part of what all folders share, or lies in another folder than it writes to.
        let room = if tried.one_store { resources::DISK } else { spec.limits.disk };
        let sandbox = tried.engine.create(spec).await?;
        let probe = format!("{PROGRAM_DIR}/{}", canaries.tag);
        let mut request = request(&probe, &["exit".into(), "0".into()])?;
        let content = FileContent::Host(program.clone());
        request.files.push(InputFile { target: InsidePath::absolute(&probe)?, content, mode: 0o755 });
        sandbox.run(request).await?;
        // A process inside sees its map as its parent does, which for an ordinary user is not the host.
        let guest = (tried.guest)(sandbox.id());
        let map = guest.map(|guest| std::fs::read_to_string(format!("/proc/{guest}/uid_map")));
        let ids = map.and_then(|map| map.ok()).unwrap_or_default();
        let about = About { ground: tried.ground, guest, ids, room };
        Ok(Inside { sandbox, probe, about, seen: BTreeMap::new(), is_lost: false })
    }

    async fn judge(&mut self, row: &Guarantee, canaries: &mut Canaries) -> Verdict {
        // Who tried it all the same would only wear the sandbox out.
        let held = |limit| self.sandbox.created().limits.enforcement.get(limit).copied().unwrap_or(Enforcement::None);
        if row.limit.is_some_and(|limit| held(limit) == Enforcement::None) {
            return Verdict::Unknown("nothing on this host holds it".into());
        }
        let words = match canaries.fill(row.probe) {
            Ok(words) => words,
            Err(why) => return Verdict::Unknown(why),
        };
        if !self.seen.contains_key(&words) {
            match self.run(&words, row.timeout, canaries).await {
                Ok(seen) => {
                    self.is_lost = seen.outcome == Outcome::Lost;
                    self.seen.insert(words.clone(), seen);
                }
                Err(error) => {
                    self.is_lost = error.code == ErrorCode::SandboxLost;
                    return Verdict::Unknown(format!("the probe could not run: {}", error.message));
                }
            }
        }
        (row.judge)(&self.seen[&words], canaries)
    }

    async fn run(&self, words: &[String], timeout: Option<Duration>, canaries: &Canaries) -> Result<Seen> {
        let mut request = request(&self.probe, words)?;
        request.spec.limits.timeout = timeout.unwrap_or(PROBE_TIME);
        request.spec.limits.grace = Duration::from_millis(50);
        request.spec.limits.output = resources::OUTPUT;
        request.stdin = Stdin::Bytes(Bytes::from(format!("{}\n", canaries.token)));
        Ok(Seen::new(self.sandbox.run(request).await?, self.sandbox.id(), self.about.clone()))
    }

    /// Ends the sandbox while something runs in it that no signal but one ends, and looks for it on the host.
    async fn end(self, canaries: &Canaries) -> Verdict {
        let unknown = |error: glovebox_core::Error| Verdict::Unknown(error.message);
        let started = match request(&self.probe, &["ignore-term".into()]) {
            Ok(request) => self.sandbox.start(request).await,
            Err(error) => Err(error),
        };
        let mut run = match started {
            Ok(run) => run,
            Err(error) => return unknown(error),
        };
        while let Some(event) = run.next_event().await {
            if matches!(event, Event::Stdout(_)) {
                break;
            }
        }
        // Where it has a kernel of its own, that is a process of the host, and the groups of that one are all that is seen of it.
        let groups = canaries::groups_of(self.about.guest.filter(|_| self.about.ground == Ground::OwnKernel));
        let look = || match &groups {
            Some(groups) => canaries::processes_in(groups),
            None => canaries::processes_with(&canaries.tag),
        };
        let before = look();
        if let Err(error) = self.sandbox.destroy().await {
            return unknown(error);
        }
        let ended = run.wait().await;
        let after = look();
        match (before, after) {
            (_, 1..) => Verdict::Broken(format!("{after} processes are still on the host")),
            (0, _) => Verdict::Unknown("the host does not show processes of sandboxes to you".into()),
            (1.., 0) if matches!(ended.map(|result| result.outcome), Ok(Outcome::Exited { .. })) => {
                Verdict::Unknown("the program ended by itself".into())
            }
            (1.., 0) => Verdict::Holds(format!("{before} seen before its end, none after")),
        }
    }
}

fn request(probe: &str, words: &[String]) -> Result<RunRequest> {
    let argv = [probe, crate::verbs::prove::PROBE].into_iter().map(str::to_owned).chain(words.iter().cloned());
    Ok(RunRequest::new(Command::argv(argv)?))
}

/// What a sandbox is like. The probe itself lies in it, so there must be room for that.
fn spec(tried: &Tried, place: Place, program: u64, canaries: &Canaries) -> SandboxSpec {
    let plain = tried.spec.clone();
    match place {
        Place::Plain => plain,
        Place::AsRoot => SandboxSpec { user: User { uid: 0, gid: 0 }, ..plain },
        Place::InWorkspace => {
            let workspace = Workspace { source: canaries.workspace(), mode: WorkspaceMode::Overlay };
            SandboxSpec { workspace: Some(workspace), ..plain }
        }
        Place::Tight => {
            let disk = program.next_multiple_of(4096) + resources::DISK;
            // Where files lie in memory, there is the probe, and what it writes.
            let files = if tried.one_store { 0 } else { 2 * disk };
            let limits = Limits {
                memory: resources::MEMORY + files,
                cpus: resources::CPUS,
                pids: resources::PIDS,
                inodes: resources::INODES,
                open_files: resources::OPEN_FILES,
                disk,
                ..Limits::default()
            };
            SandboxSpec { limits, ..plain }
        }
    }
}

/// How many of the checks ended in which way, for the last line.
pub(crate) fn summary(checks: &[Check], backend: &str) -> String {
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let (ok, broken, unknown) = (count(Status::Ok), count(Status::Missing), count(Status::Degraded));
    let user = rustix::process::geteuid().as_raw();
    let mut text = format!("{ok} of {} guarantees hold for user {user} with the backend {backend}", checks.len());
    if broken > 0 {
        text += &format!("; {broken} broken");
    }
    if unknown > 0 {
        text += &format!("; {unknown} weaker or not judged");
    }
    text
}

/// The working directory inside, for rows that write there.
const WORK: &str = WORKING_DIR;
