//! One run from its start to its result.
//!
//! Theory of operation. A run is driven by one task. It has one step, the program, or two: the compiler before it. For each
//! step the task takes frames from the guest, hands the program's output on as events, and watches the clock, the caller's
//! wish to cancel, and the limits that need a watch; see `following`. A guest that does not report the end within a grace
//! is not waited for: the host ends the whole sandbox.
//!
//! In a one-shot sandbox a run ends with whoever wants it. In a living one it belongs to the guest: when nobody holds the
//! [`Run`] any more the task goes on to the end, so that the run is recorded, and when this process dies another one can
//! attach to it.
//!
//! A caller that is slow in taking events stops the task from taking frames, which closes the stream's window, which
//! stops the guest from reading the pipe, which stops the program: backpressure all the way, but never for the clock.

use std::{
    future::pending,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use glovebox_core::{
    ChangeRecord, CompileRecord, Error, ErrorCode, Evidence, GivenFile, Result, RunId, RunResult, SandboxId, Step,
    Warning,
};
use glovebox_proto::EndReason;
use jiff::Timestamp;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use crate::{
    Event, RunRequest, Stdin, TerminalSize,
    attach::{self, EndUnheard},
    begin::{self, Begun, Known},
    caller::{Caller, Orders},
    channel::Channel,
    collecting::{Collected, unless_lost},
    compile::{Before, Compiling, Fetched},
    contents,
    engine::{Engine, Guard},
    entry::Entry,
    following::Following,
    handles::{Canceller, TerminalHandle},
    limits::Slot,
    line::Line,
    place::{Lifetime, Place},
    result::{self, Asked, Identity, Seen},
    screen,
    sessions::{self, Current},
};

/// Events that wait for a slow caller; each is at most one frame.
const EVENTS: usize = 8;

/// One run on its way. Dropping that of a fresh sandbox cancels it. Dropping that of a living sandbox detaches from it: it
/// goes on, and [`Sandbox::attach`](crate::Sandbox::attach) finds it again.
pub struct Run {
    id: RunId,
    sandbox: SandboxId,
    channel: Channel,
    events: mpsc::Receiver<Event>,
    result: oneshot::Receiver<Result<RunResult>>,
    cancel: watch::Sender<bool>,
    sizes: mpsc::UnboundedSender<TerminalSize>,
    /// Its terminal as it was when it was attached to.
    pub(crate) before: Option<screen::Before>,
    /// Held so that a living sandbox lasts as long as this.
    _guard: Option<Arc<Guard>>,
}

impl Run {
    /// Its id.
    pub fn id(&self) -> RunId {
        self.id
    }

    /// The sandbox that it runs in.
    pub fn sandbox(&self) -> SandboxId {
        self.sandbox
    }

    /// The next event; nothing once the command has ended.
    pub async fn next_event(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Ends the run at once. It does not wait; the result then says `cancelled`, unless the command had ended before.
    pub fn cancel(&self) {
        self.cancel.send_replace(true);
    }

    /// Sends a signal to the processes of the run, and waits until it is sent. A run that is over is an error,
    /// `run_not_found`.
    pub async fn signal(&self, number: i32) -> Result<()> {
        attach::signal(&self.channel, self.id, number, EndReason::None).await
    }

    /// A handle that cancels the run from elsewhere.
    pub fn canceller(&self) -> Canceller {
        Canceller(self.cancel.clone())
    }

    /// A handle on the run's terminal.
    pub fn terminal(&self) -> TerminalHandle {
        TerminalHandle(self.sizes.clone())
    }

    /// Waits for the end. Events that were not taken are dropped.
    pub async fn wait(mut self) -> Result<RunResult> {
        while self.events.recv().await.is_some() {}
        match (&mut self.result).await {
            Ok(result) => result,
            Err(_) => Err(Error::new(ErrorCode::Internal, "the run ended without a result")),
        }
    }
}

impl futures_core::Stream for Run {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.events.poll_recv(cx)
    }
}

/// What a run begins with.
pub(crate) struct Beginning {
    pub(crate) request: RunRequest,
    pub(crate) stdin: Stdin,
    /// What comes before the program, and the request that does it.
    pub(crate) before: Before,
    pub(crate) first: Option<RunRequest>,
    /// The first command, started.
    pub(crate) begun: Begun,
    pub(crate) entry: Entry,
    pub(crate) slot: Slot,
    /// The session that it is in.
    pub(crate) session: Option<Current>,
    /// What was counted of the sandbox before, where its runs are not counted one by one.
    pub(crate) counted_before: Option<Evidence>,
}

/// Follows a run that began, in a task of its own.
pub(crate) fn follow(engine: Engine, place: Place, beginning: Beginning, lifetime: Lifetime) -> Run {
    let Beginning { request, stdin, before, first, begun, entry, slot, session, counted_before } = beginning;
    let deadline = begun.started + request.spec.limits.timeout;
    let step = if first.is_some() { Step::Compile } else { Step::Run };
    let line = Line::started(place.channel.clone(), entry.run, begun.sending, begun.receiving);
    let driver = Driver {
        deadline,
        started: begun.started,
        started_at: begun.started_at,
        asked_at: begun.asked_at,
        command: Following::new(step, entry.run, deadline, first.as_ref().unwrap_or(&request), &place),
        compiled: None,
        kills_before: 0,
        keeping: None,
        session,
        counted_before,
        asked: Asked::of(&request),
        input: None,
        request,
        engine,
        place,
        given: begun.given,
        entry,
        part: Part::Whole,
        _slot: slot,
    };
    drive(driver, before, line, stdin, lifetime)
}

/// Drives a run in a task of its own.
pub(crate) fn drive(mut driver: Driver, before: Before, line: Line, stdin: Stdin, lifetime: Lifetime) -> Run {
    let (sizes, new_sizes) = mpsc::unbounded_channel();
    let (events, taken) = mpsc::channel(EVENTS);
    let (finished, result) = oneshot::channel();
    let (cancel, cancelled) = watch::channel(false);
    let (sandbox, id, channel) = (driver.place.id, driver.entry.run, driver.place.channel.clone());
    let judge = channel.clone();
    driver.input = Some((stdin, new_sizes));
    let (ends, guard) = match lifetime {
        Lifetime::EndsWithRun(guard) => (Some(guard), None),
        Lifetime::Stays(guard) => (None, Some(guard)),
    };
    let caller = Caller { events, orders: Orders { cancelled, detaches: ends.is_none() } };
    // A living sandbox is not ended by the end of its users, but what is held of it is needed until the run is recorded.
    let held = guard.clone().filter(|guard| guard.is_living());
    tokio::spawn(async move {
        let _held = held;
        let result = driver.drive(before, line, caller, ends).await;
        let _ = finished.send(judge.judge(result));
    });
    Run { id, sandbox, channel, events: taken, result, cancel, sizes, before: None, _guard: guard }
}

/// How much of a run its driver has seen, and has to do with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it.
    Whole,
    /// What came after another process had followed it.
    Rest {
        /// The secrets of the run are not known here, so nothing may be kept that could hold them.
        secretive: bool,
    },
    /// It only looks on; somebody else sees to all that is to be kept.
    Onlooker {
        /// As above.
        secretive: bool,
        /// Whether that somebody records the run.
        recorded: bool,
    },
}

impl Part {
    pub(crate) fn is_secretive(self) -> bool {
        matches!(self, Part::Rest { secretive: true } | Part::Onlooker { secretive: true, .. })
    }
}

pub(crate) struct Driver {
    pub(crate) engine: Engine,
    pub(crate) place: Place,
    pub(crate) entry: Entry,
    pub(crate) given: Vec<GivenFile>,
    pub(crate) request: RunRequest,
    pub(crate) asked: Asked,
    pub(crate) started: Instant,
    pub(crate) started_at: Timestamp,
    /// Before the first command was asked for.
    pub(crate) asked_at: Timestamp,
    /// When the time of all steps together is over.
    pub(crate) deadline: Instant,
    /// What the program reads, until it runs.
    pub(crate) input: Option<(Stdin, mpsc::UnboundedReceiver<TerminalSize>)>,
    /// The command that is on its way: the compiler, then the program.
    pub(crate) command: Following,
    /// The compile step, once it is over.
    pub(crate) compiled: Option<CompileRecord>,
    /// Memory kills that were counted before the program ran.
    pub(crate) kills_before: u64,
    /// Puts the compiled program into the data folder, beside the run.
    pub(crate) keeping: Option<JoinHandle<()>>,
    pub(crate) part: Part,
    /// The session that it is in.
    pub(crate) session: Option<Current>,
    /// What was counted of the sandbox before, where its runs are not counted one by one.
    pub(crate) counted_before: Option<Evidence>,
    /// Its place among the runs of the engine.
    pub(crate) _slot: Slot,
}

impl Driver {
    async fn drive(
        mut self,
        before: Before,
        line: Line,
        mut caller: Caller,
        ends: Option<Arc<Guard>>,
    ) -> Result<RunResult> {
        let followed = self.follow_steps(before, line, &mut caller).await;
        let duration = match self.part {
            Part::Whole => self.started.elapsed(),
            // It may have been over for long before it was followed again.
            _ if self.command.lasted > Duration::ZERO => self.command.lasted.min(self.started.elapsed()),
            _ => self.started.elapsed(),
        };
        // What ended the run is known although its processes did not end with it.
        let unended = followed.as_ref().err().filter(|error| error.code == ErrorCode::StillEnding).map(Warning::from);
        let is_lost = followed.as_ref().is_err_and(|error| error.code == ErrorCode::SandboxLost);
        let gone_by = if is_lost { self.place.backend.why_gone(self.place.id).await } else { None };
        // What changed, and what was used, while it waited for its turn is not its own.
        let never_began = self.command.exited.never_began;
        let (place, counted) = (self.place.clone(), counted_as(self.session.as_ref(), self.entry.run));
        let collecting = async {
            match followed {
                Ok(()) if matches!(self.part, Part::Onlooker { .. }) || self.part.is_secretive() || never_began => {
                    Ok(Collected::default())
                }
                Ok(()) => Ok(self.collect_in_time(&mut caller).await),
                // The program's fate when its sandbox goes away is an outcome; a guest that breaks the rules is an error.
                Err(error) if [ErrorCode::SandboxLost, ErrorCode::StillEnding].contains(&error.code) => {
                    Ok(Collected::default())
                }
                Err(error) => Err(error),
            }
        };
        // The end of a sandbox tells what was counted of it; in one that stays, the counters are read as they are.
        let (evidence, collected) = match &ends {
            Some(guard) => {
                let collected = collecting.await;
                (guard.begin_end().await, collected)
            }
            None => {
                let evidence = async {
                    match counted {
                        Some(run) if !never_began => {
                            // The guest is asked first, and looks for what it is asked while the counters are read.
                            tokio::task::yield_now().await;
                            place.backend.evidence(place.id, Some(run)).await.map(Some)
                        }
                        _ => Ok(None),
                    }
                };
                tokio::join!(evidence, collecting)
            }
        };
        drop(caller);
        if let Some(keeping) = self.keeping.take() {
            // It fails only by a panic, which has been printed.
            let _ = keeping.await;
        }
        // The run is recorded while the kernel takes the sandbox apart.
        let recorded = async {
            let evidence = self.own(unless_lost(evidence)?.flatten().unwrap_or_else(Evidence::unknown));
            let collected = match collected {
                Ok(collected) => collected,
                Err(error) => return Err(self.record_failed_start(duration, evidence, error).await),
            };
            let ended_by = if is_lost && self.place.is_living() { self.engine.why_lost(self.place.id) } else { None };
            // Where there is no result, the entry has been dropped, and the run is lost.
            let Finished { mut result, changes, entry } = self.finish(duration, evidence, collected);
            result.warnings.extend(ended_by.or(gone_by).as_ref().map(Warning::from).into_iter().chain(unended));
            entry.finish(&mut result, &changes).await;
            Ok(result)
        };
        let gone = async {
            match &ends {
                Some(guard) => unless_lost(guard.end().await).map(drop),
                None => Ok(()),
            }
        };
        let (mut result, gone) = tokio::join!(recorded, gone);
        match (gone, &mut result) {
            // How the program ended is known, and that is what was asked for.
            (Err(e), Ok(result)) if e.code == ErrorCode::StillEnding => result.warnings.push(Warning::from(&e)),
            (gone, _) => gone?,
        }
        result
    }

    /// A program that does not start is an error, and no run. But when it was compiled before, something has run: the ledger
    /// keeps it as a run that ended with what a shell would say, and with the error as its warning.
    async fn record_failed_start(mut self, duration: Duration, evidence: Evidence, error: Error) -> Error {
        let code = match error.code {
            ErrorCode::CommandNotFound => 127,
            ErrorCode::CommandNotExecutable => 126,
            ErrorCode::WorkdirUnusable | ErrorCode::SandboxSetup => 125,
            _ => return error,
        };
        self.command = Following::new(Step::Run, self.entry.run, self.deadline, &self.request, &self.place);
        self.command.ending.code = Some(code);
        let Finished { mut result, changes, entry } = self.finish(duration, evidence, Collected::default());
        result.warnings.push(Warning::from(&error));
        entry.finish(&mut result, &changes).await;
        error
    }

    /// Follows the compile step, where there is one to do, and the program.
    async fn follow_steps(&mut self, before: Before, mut line: Line, caller: &mut Caller) -> Result<()> {
        let backend = self.place.backend.clone();
        // One watch for all steps: the backend hands it out once.
        let mut watched = match self.part {
            Part::Onlooker { .. } => Box::pin(pending()),
            _ => backend.watched_limit(self.place.id, counted_as(self.session.as_ref(), self.entry.run)),
        };
        match before {
            Before::Nothing => {}
            Before::Cached(record) => self.compiled = Some(*record),
            Before::Compile(compiling) => {
                let followed = self.command.follow(&self.place, &mut line, &mut watched, caller).await;
                self.end_compile_step(&compiling).await;
                followed?;
                if !self.command.succeeded() {
                    return Ok(());
                }
                line = match self.start_program(&compiling, caller).await? {
                    Some(line) => line,
                    None => return Ok(()),
                };
            }
        }
        if let Some((stdin, sizes)) = self.input.take() {
            line.feed(stdin, sizes);
        }
        let followed = self.command.follow(&self.place, &mut line, &mut watched, caller).await;
        line.close().await;
        followed
    }

    /// Writes down how the compile step went.
    async fn end_compile_step(&mut self, compiling: &Compiling) {
        let duration = self.started.elapsed();
        let evidence = self.place.backend.evidence(self.place.id, Some(self.entry.run)).await;
        let evidence = self.own(evidence.unwrap_or_else(|_| Evidence::unknown()));
        self.kills_before = evidence.memory_kills;
        self.compiled = Some(compiling.record(&mut self.command, duration, &evidence, &self.asked.secrets()));
    }

    /// Keeps what was compiled and starts it. Something hostile has been in the sandbox by now, so neither the clock nor
    /// the caller waits for the guest's answers. `None`: one of them was first, which is written down.
    async fn start_program(&mut self, compiling: &Compiling, caller: &mut Caller) -> Result<Option<Line>> {
        let (stdin, sizes) = self.input.take().unwrap_or_else(|| (Stdin::Empty, mpsc::unbounded_channel().1));
        let starting = async {
            let fetched = compiling.fetch(&self.engine, &self.place.channel, &self.asked.secrets()).await?;
            let unheard = EndUnheard::new(&self.place.channel, self.entry.run);
            let known = Known { run: self.entry.run, note: self.entry.if_lost.as_ref() };
            let environment = self.engine.environment();
            let begun = begin::begin(&self.place.channel, environment, &self.request, &stdin, (known, None)).await;
            unheard.heard();
            Ok::<_, Error>((begun?, fetched))
        };
        let (begun, fetched) = tokio::select! {
            begun = starting => begun?,
            () = caller.orders.end_wanted(&caller.events) => {
                self.command.ending.cancelled = true;
                return Ok(None);
            }
            () = sleep_until(self.deadline) => {
                self.command.ending.timed_out = Some(self.request.spec.limits.timeout.as_millis() as u64);
                return Ok(None);
            }
        };
        self.keeping = fetched.map(Fetched::keep);
        self.input = Some((stdin, sizes));
        self.command = Following::new(Step::Run, self.entry.run, self.deadline, &self.request, &self.place);
        Ok(Some(Line::started(self.place.channel.clone(), self.entry.run, begun.sending, begun.receiving)))
    }

    fn finish(self, duration: Duration, evidence: Evidence, mut collected: Collected) -> Finished {
        contents::mask_names(&mut collected.changes, &self.asked.secrets());
        let identity = Identity {
            run: self.entry.run,
            sandbox: self.place.id,
            backend: self.place.backend.name(),
            created: self.place.created,
        };
        let Following { step, stdout, mut stderr, said, ending, watched, outgrown, shown, exited, .. } = self.command;
        let missed = shown.missed;
        let (session, lost) = match (&self.session, &self.request.session) {
            (Some(current), Some(asked)) => {
                (Some(current.record(asked, !exited.session_over)), current.warnings(asked, &exited))
            }
            _ => (None, Vec::new()),
        };
        if step == Step::Compile {
            // The program never ran. What its caller reads is what the compiler said.
            stderr = said;
        }
        let seen = Seen {
            started_at: self.started_at,
            duration,
            step,
            compiled: self.compiled,
            stdout,
            stderr,
            ending,
            kills_before: if step == Step::Run { self.kills_before } else { 0 },
            evidence,
            changes: collected.changes.names(),
            kept: collected.kept,
            artifacts_dir: self.engine.artifact_dir(self.entry.run),
            watched,
            shown,
            session,
        };
        let (part, mut result) = (self.part, result::make(&identity, &self.asked, seen));
        result.warnings.extend(collected.warnings);
        result.warnings.extend(lost);
        if missed {
            result.warnings.push(sessions::some_missed());
        }
        if let Part::Onlooker { recorded, .. } = part {
            result.recorded = recorded;
        }
        if part.is_secretive() {
            result.warnings.push(attach::not_kept());
        }
        result.warnings.extend(outgrown.as_ref().and_then(result::full_volume));
        Finished { result, changes: collected.changes, entry: self.entry }
    }
}

/// What the group of a run is known by: in a session it is the session's. Nothing where that is not known.
fn counted_as(session: Option<&Current>, run: RunId) -> Option<RunId> {
    session.map_or(Some(run), Current::key)
}

/// A run that is over, before it is recorded.
struct Finished {
    result: RunResult,
    changes: ChangeRecord,
    entry: Entry,
}
