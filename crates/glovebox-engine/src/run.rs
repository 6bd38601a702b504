//! One run from its start to its result.
//!
//! Theory of operation. A run is driven by one task. It takes frames from the guest, hands the output on as events, and
//! watches the clock, the caller's wish to cancel, and the limits that need a watch. Whatever asks for the end first is
//! written down as the reason; then signals are sent, and the guest's report of the command's end is awaited as always.
//! A guest that does not report within a grace is not waited for: the host ends the whole sandbox.
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
    Backend, ChangeRecord, Created, Denial, Ending, Error, ErrorCode, Evidence, GivenFile, LimitKind, Result, RunId,
    RunResult, SandboxId,
};
use glovebox_proto::{Exited, Frame, FrameKind};
use jiff::Timestamp;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use crate::{
    Event, RunRequest, Stdin, TerminalSize, artifacts,
    begin::Begun,
    channel::{Channel, Receiving, read, unexpected},
    contents,
    engine::{Engine, Guard},
    entry::Entry,
    input,
    output::Output,
    result::{self, Asked, Identity, Seen},
};

/// Events that wait for a slow caller; each is at most one frame.
const EVENTS: usize = 8;
/// How long the collecting of changes and artifacts may take.
const COLLECTING: Duration = Duration::from_secs(60);
/// How long the guest has to report the end after everything was killed.
const KILL_GRACE: Duration = Duration::from_secs(5);

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

/// Follows a run that began, in a task of its own.
pub(crate) fn follow(
    engine: Engine,
    place: Place,
    request: RunRequest,
    stdin: Stdin,
    begun: Begun,
    lifetime: Lifetime,
    entry: Entry,
) -> Run {
    let id = entry.run;
    let (sizes, new_sizes) = mpsc::unbounded_channel();
    let (events, taken) = mpsc::channel(EVENTS);
    let (finished, result) = oneshot::channel();
    let (cancel, cancelled) = watch::channel(false);
    let feeding = tokio::spawn(input::feed(begun.sending, stdin, new_sizes));
    let sandbox = place.id;
    let driver = Driver {
        deadline: begun.started + request.spec.limits.timeout,
        started: begun.started,
        started_at: begun.started_at,
        stdout: Output::new(request.spec.limits.output, request.capture),
        stderr: Output::new(request.spec.limits.output, request.capture),
        ending: Ending {
            memory_limit: place.created.limits.memory_bytes,
            process: program_name(&request.command.argv[0]),
            ..Ending::default()
        },
        watched: None,
        phase: Phase::Running,
        asked: Asked::of(&request),
        request,
        engine,
        place,
        pid: begun.pid,
        given: begun.given,
        entry,
    };
    let driving = tokio::spawn(async move {
        let result = driver.drive(begun.receiving, events, cancelled, lifetime).await;
        feeding.abort();
        let _ = finished.send(result);
    });
    Run { id, sandbox, events: taken, result, cancel, sizes, _driver: driving }
}

fn program_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// How far the end of a run has come.
enum Phase {
    Running,
    /// SIGTERM was sent; SIGKILL follows.
    Terminating,
    /// SIGKILL was sent; the guest must report.
    Killed,
}

struct Driver {
    engine: Engine,
    place: Place,
    pid: i32,
    given: Vec<GivenFile>,
    request: RunRequest,
    asked: Asked,
    started: Instant,
    started_at: Timestamp,
    deadline: Instant,
    stdout: Output,
    stderr: Output,
    ending: Ending,
    watched: Option<LimitKind>,
    phase: Phase,
    entry: Entry,
}

impl Driver {
    async fn drive(
        mut self,
        receiving: Receiving,
        events: mpsc::Sender<Event>,
        mut cancelled: watch::Receiver<bool>,
        lifetime: Lifetime,
    ) -> Result<RunResult> {
        let followed = self.follow(receiving, &events, &mut cancelled).await;
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
        let evidence = match evidence {
            Err(error) if error.code == ErrorCode::SandboxLost => None,
            other => other?,
        };
        let collected = collected?;
        // Where there is no result, the entry has been dropped, and the run is lost.
        let finished = self.finish(duration, evidence.unwrap_or_else(Evidence::unknown), collected);
        let Finished { mut result, changes, entry } = finished;
        entry.finish(&mut result, &changes).await;
        Ok(result)
    }

    /// Follows the run until the guest reports its end, or cannot.
    async fn follow(
        &mut self,
        mut receiving: Receiving,
        events: &mpsc::Sender<Event>,
        cancelled: &mut watch::Receiver<bool>,
    ) -> Result<()> {
        let backend = self.place.backend.clone();
        let mut watched = backend.watched_limit(self.place.id);
        // One that was seen must not be polled again.
        let mut watching = true;
        let _ = events.send(Event::Started).await;
        let mut waiting: Option<Event> = None;
        loop {
            tokio::select! {
                biased;
                () = cancel_wanted(cancelled, events), if !matches!(self.phase, Phase::Killed) => {
                    // Whoever asked first is the reason; a run that is over its time stays so.
                    self.ending.cancelled = matches!(self.phase, Phase::Running);
                    self.kill();
                }
                () = sleep_until(self.deadline) => self.deadline_passed()?,
                kind = &mut watched, if watching => {
                    watching = false;
                    self.watched = Some(kind);
                    self.kill();
                }
                permit = events.reserve(), if waiting.is_some() => {
                    // Without a permit the caller has dropped the run, which the cancel branch sees too.
                    if let (Ok(permit), Some(event)) = (permit, waiting.take()) {
                        permit.send(event);
                    }
                }
                frame = receiving.next(), if waiting.is_none() => match frame? {
                    Some(frame) => match frame.kind {
                        FrameKind::Stdout => waiting = Some(self.output(frame, Event::Stdout)),
                        FrameKind::Stderr => waiting = Some(self.output(frame, Event::Stderr)),
                        FrameKind::Exited => {
                            let exited: Exited = read(&frame)?;
                            (self.ending.code, self.ending.signal) = (exited.code, exited.signal);
                            return Ok(());
                        }
                        _ => return Err(unexpected(&frame)),
                    },
                    None => return Err(Error::new(ErrorCode::SandboxLost, "the sandbox went away under the run")),
                },
            }
        }
    }

    fn output(&mut self, frame: Frame, event: fn(bytes::Bytes) -> Event) -> Event {
        let output = if frame.kind == FrameKind::Stdout { &mut self.stdout } else { &mut self.stderr };
        output.push(&frame.payload);
        let limits = &self.request.spec.limits;
        if limits.output_kill && output.exceeded() && matches!(self.phase, Phase::Running) {
            self.ending.output_exceeded = Some(limits.output);
            self.kill();
        }
        event(frame.payload)
    }

    fn deadline_passed(&mut self) -> Result<()> {
        match self.phase {
            Phase::Running => {
                self.ending.timed_out = Some(self.request.spec.limits.timeout.as_millis() as u64);
                self.phase = Phase::Terminating;
                self.deadline = Instant::now() + self.request.spec.limits.grace;
                self.signal(SIGTERM);
            }
            Phase::Terminating => self.kill(),
            Phase::Killed => {
                return Err(Error::new(ErrorCode::SandboxLost, "the guest did not report the end in time"));
            }
        }
        Ok(())
    }

    /// Ends everything of the run at once.
    fn kill(&mut self) {
        self.phase = Phase::Killed;
        self.deadline = Instant::now() + KILL_GRACE;
        self.signal(SIGKILL);
    }

    /// Sends a signal to the run. The guest's answer is not awaited: it may be the one that hangs, and the clock must not.
    fn signal(&self, number: i32) {
        let (channel, pid) = (self.place.channel.clone(), self.pid);
        tokio::spawn(async move { input::signal(&channel, pid, number).await });
    }

    /// Collects changes and artifacts, as long as the caller wants them and within bounds. How a program ended is never
    /// lost because of what it left behind: what cannot be collected is said in the result.
    async fn collect_in_time(
        &mut self,
        events: &mpsc::Sender<Event>,
        cancelled: &mut watch::Receiver<bool>,
    ) -> Collected {
        let already_cancelled = self.ending.cancelled;
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
        let (globs, secrets) = (&self.request.artifacts, self.asked.secrets());
        artifacts::collect(&self.place.channel, globs, self.place.disk, &folder, &secrets, &mut collected.kept).await?;
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
        let seen = Seen {
            started_at: self.started_at,
            duration,
            stdout: self.stdout,
            stderr: self.stderr,
            ending: self.ending,
            evidence,
            changes: collected.changes.names(),
            kept: collected.kept,
            artifacts_dir: self.engine.artifact_dir(self.entry.run),
            watched: self.watched,
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

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// Waits until the caller cancels, or drops the run.
async fn cancel_wanted(cancelled: &mut watch::Receiver<bool>, events: &mpsc::Sender<Event>) {
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
