//! One run from its start to its result.
//!
//! Theory of operation. A run is driven by one task. It has one step, the program, or two: the compiler before it. For each
//! step the task takes frames from the guest, hands the program's output on as events, and watches the clock, the caller's
//! wish to cancel, and the limits that need a watch; see `following`. A guest that does not report the end within a grace
//! is not waited for: the host ends the whole sandbox.
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
    Backend, ChangeRecord, CompileRecord, Created, Denial, Error, ErrorCode, Evidence, GivenFile, Result, RunId,
    RunResult, SandboxId, Step, Warning,
};
use jiff::Timestamp;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use crate::{
    Event, RunRequest, Stdin, TerminalSize,
    artifacts::{self, Query},
    begin::{self, Begun},
    channel::{Channel, Receiving, Sending},
    compile::{Before, Compiling, Fetched},
    contents,
    engine::{Engine, Guard},
    entry::Entry,
    following::Following,
    input,
    result::{self, Asked, Identity, Seen},
};

/// Events that wait for a slow caller; each is at most one frame.
const EVENTS: usize = 8;
/// How long the collecting of changes and artifacts may take.
const COLLECTING: Duration = Duration::from_secs(60);

/// Where a run happens.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) id: SandboxId,
    pub(crate) channel: Channel,
    pub(crate) created: Arc<Created>,
    pub(crate) disk: u64,
    pub(crate) backend: Arc<dyn Backend>,
}

/// What happens to the sandbox when the run is over.
pub(crate) enum Lifetime {
    EndsWithRun(Arc<Guard>),
    /// The guard is held so that the sandbox outlives its runs.
    Stays(#[allow(dead_code)] Arc<Guard>),
}

/// One run on its way. Dropping it cancels it.
pub struct Run {
    id: RunId,
    sandbox: SandboxId,
    events: mpsc::Receiver<Event>,
    result: oneshot::Receiver<Result<RunResult>>,
    cancel: watch::Sender<bool>,
    sizes: mpsc::UnboundedSender<TerminalSize>,
    _driver: JoinHandle<()>,
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

/// Cancels a run.
#[derive(Clone, Debug)]
pub struct Canceller(watch::Sender<bool>);

impl Canceller {
    /// Ends the run at once. It does not wait; the run's result then says `cancelled`.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }
}

/// Changes the size of a run's terminal.
#[derive(Clone, Debug)]
pub struct TerminalHandle(mpsc::UnboundedSender<TerminalSize>);

impl TerminalHandle {
    /// Tells the terminal's new size.
    pub fn resize(&self, size: TerminalSize) {
        // A run that is over has no terminal; nobody needs to hear of it.
        let _ = self.0.send(size);
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
}

/// Follows a run that began, in a task of its own.
pub(crate) fn follow(engine: Engine, place: Place, beginning: Beginning, lifetime: Lifetime) -> Run {
    let (sizes, new_sizes) = mpsc::unbounded_channel();
    let (events, taken) = mpsc::channel(EVENTS);
    let (finished, result) = oneshot::channel();
    let (cancel, cancelled) = watch::channel(false);
    let sandbox = place.id;
    let Beginning { request, stdin, before, first, begun, entry } = beginning;
    let id = entry.run;
    let deadline = begun.started + request.spec.limits.timeout;
    let step = if first.is_some() { Step::Compile } else { Step::Run };
    let driver = Driver {
        deadline,
        started: begun.started,
        started_at: begun.started_at,
        command: Following::new(step, begun.pid, deadline, first.as_ref().unwrap_or(&request), &place),
        compiled: None,
        kills_before: 0,
        keeping: None,
        asked: Asked::of(&request),
        input: Some((stdin, new_sizes)),
        request,
        engine,
        place,
        given: begun.given,
        entry,
    };
    let wire = (begun.sending, begun.receiving);
    let driving = tokio::spawn(async move {
        let result = driver.drive(before, wire, events, cancelled, lifetime).await;
        let _ = finished.send(result);
    });
    Run { id, sandbox, events: taken, result, cancel, sizes, _driver: driving }
}

struct Driver {
    engine: Engine,
    place: Place,
    entry: Entry,
    given: Vec<GivenFile>,
    request: RunRequest,
    asked: Asked,
    started: Instant,
    started_at: Timestamp,
    /// When the time of all steps together is over.
    deadline: Instant,
    /// What the program reads, until it runs.
    input: Option<(Stdin, mpsc::UnboundedReceiver<TerminalSize>)>,
    /// The command that is on its way: the compiler, then the program.
    command: Following,
    /// The compile step, once it is over.
    compiled: Option<CompileRecord>,
    /// Memory kills that were counted before the program ran.
    kills_before: u64,
    /// Puts the compiled program into the data folder, beside the run.
    keeping: Option<JoinHandle<()>>,
}

impl Driver {
    async fn drive(
        mut self,
        before: Before,
        wire: (Sending, Receiving),
        events: mpsc::Sender<Event>,
        mut cancelled: watch::Receiver<bool>,
        lifetime: Lifetime,
    ) -> Result<RunResult> {
        let followed = self.follow_steps(before, wire, &events, &mut cancelled).await;
        let duration = self.started.elapsed();
        let collected = match followed {
            Ok(()) => Ok(self.collect_in_time(&events, &mut cancelled).await),
            // The program's fate when its sandbox goes away is an outcome; a guest that breaks the rules is an error.
            Err(error) if error.code == ErrorCode::SandboxLost => Ok(Collected::default()),
            Err(error) => Err(error),
        };
        // The end of a sandbox tells what was counted of it; in one that stays, the counters are read as they are.
        let evidence = match lifetime {
            Lifetime::EndsWithRun(guard) => guard.end().await,
            Lifetime::Stays(_) => self.place.backend.evidence(self.place.id).await.map(Some),
        };
        drop(events);
        if let Some(keeping) = self.keeping.take() {
            // It fails only by a panic, which has been printed.
            let _ = keeping.await;
        }
        let evidence = match evidence {
            Err(error) if error.code == ErrorCode::SandboxLost => None,
            other => other?,
        };
        let evidence = evidence.unwrap_or_else(Evidence::unknown);
        let collected = match collected {
            Ok(collected) => collected,
            Err(error) => return Err(self.record_failed_start(duration, evidence, error).await),
        };
        // Where there is no result, the entry has been dropped, and the run is lost.
        let Finished { mut result, changes, entry } = self.finish(duration, evidence, collected);
        entry.finish(&mut result, &changes).await;
        Ok(result)
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
        self.command = Following::new(Step::Run, 0, self.deadline, &self.request, &self.place);
        self.command.ending.code = Some(code);
        let Finished { mut result, changes, entry } = self.finish(duration, evidence, Collected::default());
        result.warnings.push(Warning::from(&error));
        entry.finish(&mut result, &changes).await;
        error
    }

    /// Follows the compile step, where there is one to do, and the program.
    async fn follow_steps(
        &mut self,
        before: Before,
        wire: (Sending, Receiving),
        events: &mpsc::Sender<Event>,
        cancelled: &mut watch::Receiver<bool>,
    ) -> Result<()> {
        let backend = self.place.backend.clone();
        // One watch for all steps: the backend hands it out once.
        let mut watched = backend.watched_limit(self.place.id);
        let (sending, receiving) = match before {
            Before::Nothing => wire,
            Before::Cached(record) => {
                self.compiled = Some(*record);
                wire
            }
            Before::Compile(compiling) => {
                let followed = self.command.follow(&self.place, wire.1, &mut watched, events, cancelled).await;
                self.end_compile_step(&compiling).await;
                followed?;
                if !self.command.succeeded() {
                    return Ok(());
                }
                match self.start_program(&compiling, events, cancelled).await? {
                    Some(wire) => wire,
                    None => return Ok(()),
                }
            }
        };
        let feeding = self.input.take().map(|(stdin, sizes)| tokio::spawn(input::feed(sending, stdin, sizes)));
        let followed = self.command.follow(&self.place, receiving, &mut watched, events, cancelled).await;
        if let Some(feeding) = feeding {
            feeding.abort();
        }
        followed
    }

    /// Writes down how the compile step went.
    async fn end_compile_step(&mut self, compiling: &Compiling) {
        let duration = self.started.elapsed();
        let evidence = self.place.backend.evidence(self.place.id).await.unwrap_or_else(|_| Evidence::unknown());
        self.kills_before = evidence.memory_kills;
        self.compiled = Some(compiling.record(&mut self.command, duration, &evidence, &self.asked.secrets()));
    }

    /// Keeps what was compiled and starts it. Something hostile has been in the sandbox by now, so neither the clock nor
    /// the caller waits for the guest's answers. `None`: one of them was first, which is written down.
    async fn start_program(
        &mut self,
        compiling: &Compiling,
        events: &mpsc::Sender<Event>,
        cancelled: &mut watch::Receiver<bool>,
    ) -> Result<Option<(Sending, Receiving)>> {
        let (stdin, sizes) = self.input.take().unwrap_or_else(|| (Stdin::Empty, mpsc::unbounded_channel().1));
        let starting = async {
            let fetched = compiling.fetch(&self.engine, &self.place.channel, &self.asked.secrets()).await?;
            let begun = begin::begin(&self.place.channel, self.engine.environment(), &self.request, &stdin).await?;
            Ok::<_, Error>((begun, fetched))
        };
        let (begun, fetched) = tokio::select! {
            begun = starting => begun?,
            () = cancel_wanted(cancelled, events) => {
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
        self.command = Following::new(Step::Run, begun.pid, self.deadline, &self.request, &self.place);
        Ok(Some((begun.sending, begun.receiving)))
    }

    /// Collects changes and artifacts, as long as the caller wants them and within bounds. How a program ended is never
    /// lost because of what it left behind: what cannot be collected is said in the result.
    async fn collect_in_time(
        &mut self,
        events: &mpsc::Sender<Event>,
        cancelled: &mut watch::Receiver<bool>,
    ) -> Collected {
        let already_cancelled = self.command.ending.cancelled;
        let mut collected = Collected::default();
        let why = tokio::select! {
            failed = self.collect(&mut collected) => failed.err().map(|error| error.message),
            () = cancel_wanted(cancelled, events), if !already_cancelled => Some("it was cancelled".to_owned()),
            () = tokio::time::sleep(COLLECTING) => Some(format!("it took longer than {} s", COLLECTING.as_secs())),
        };
        if let Some(why) = why {
            collected.changes.truncated = true;
            let hint = format!("not all changes and artifacts could be collected: {why}");
            collected.kept.denials.push(Denial { kind: "artifact".into(), target: "outputs/**".into(), hint });
        }
        collected
    }

    /// Collects changes and artifacts of a run that ended while its guest lives.
    async fn collect(&self, collected: &mut Collected) -> Result<()> {
        let keeper = self.entry.keeper(&self.asked.secrets());
        collected.changes = self.place.backend.changes(self.place.id, &self.given, keeper).await?;
        let changes = &collected.changes.changes;
        let has_outputs = changes.iter().any(|change| change.path.starts_with("outputs/") && change.after.is_some());
        if !has_outputs && self.request.artifacts.is_empty() {
            return Ok(());
        }
        let folder = self.engine.artifact_dir(self.entry.run);
        let query = Query::artifacts(&self.request.artifacts, self.place.disk);
        artifacts::collect(&self.place.channel, query, &folder, &self.asked.secrets(), &mut collected.kept).await?;
        collected.kept.note_left_out(&collected.changes.names().added);
        Ok(())
    }

    fn finish(self, duration: Duration, evidence: Evidence, mut collected: Collected) -> Finished {
        contents::mask_names(&mut collected.changes, &self.asked.secrets());
        let identity = Identity {
            run: self.entry.run,
            sandbox: self.place.id,
            backend: self.place.backend.name(),
            created: self.place.created,
        };
        let Following { step, stdout, mut stderr, said, ending, watched, .. } = self.command;
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
        };
        Finished { result: result::make(&identity, &self.asked, seen), changes: collected.changes, entry: self.entry }
    }
}

/// What is collected from a sandbox before it ends.
#[derive(Default)]
struct Collected {
    changes: ChangeRecord,
    kept: artifacts::Kept,
}

/// A run that is over, before it is recorded.
struct Finished {
    result: RunResult,
    changes: ChangeRecord,
    entry: Entry,
}

/// Waits until the caller cancels, or drops the run.
pub(crate) async fn cancel_wanted(cancelled: &mut watch::Receiver<bool>, events: &mpsc::Sender<Event>) {
    tokio::select! {
        () = asked_to_cancel(cancelled) => {}
        () = events.closed() => {}
    }
}

async fn asked_to_cancel(cancelled: &mut watch::Receiver<bool>) {
    let nobody_left = cancelled.wait_for(|asked| *asked).await.is_err();
    if nobody_left {
        pending().await
    }
}
