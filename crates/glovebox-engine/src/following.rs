//! Following one command from its start to the guest's report of its end.
//!
//! Whatever ends a command early (its time, its output, the caller, the disk watch) is written down as the reason; then
//! signals are sent, and the guest's report of the command's end is awaited as always. A guest that does not report within
//! a grace is not waited for.

use std::{pin::Pin, time::Duration};

use glovebox_core::{Ending, Error, ErrorCode, LimitKind, Limits, Outgrown, Result, RunId, Step};
use glovebox_proto::{EndReason, Exited, Frame, FrameKind, Gap};
use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, sleep_until};

use crate::{
    Capture, Event, RunRequest,
    caller::Caller,
    channel::{read, unexpected},
    input,
    line::Line,
    output::Output,
    place::Place,
    sessions::Shown,
};

/// How long the guest has to report the end after everything was killed.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// How often it is looked whether a run goes on whose time would be over if it were not paused.
const PAUSE_LOOK: Duration = Duration::from_millis(100);

pub(crate) const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// Tells when a limit that only a watch holds is passed.
pub(crate) type Watched<'a> = Pin<Box<dyn Future<Output = Outgrown> + Send + 'a>>;

/// How far the end of a command has come.
enum Phase {
    Running,
    /// SIGTERM was sent; SIGKILL follows.
    Terminating,
    /// SIGKILL was sent; the guest must report.
    Killed,
}

/// A command on its way.
pub(crate) struct Following {
    pub(crate) step: Step,
    run: RunId,
    limits: Limits,
    deadline: Instant,
    /// When the time, and after SIGTERM the grace, is over if the run is never paused, and since when pauses count.
    deadline_unpaused: Instant,
    since: Timestamp,
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
    /// Both streams of a compiler as they came.
    pub(crate) said: Output,
    pub(crate) ending: Ending,
    /// The limit for whose sake a watch ended it.
    pub(crate) watched: Option<LimitKind>,
    /// What it was that the watch saw, where it was this host's.
    pub(crate) outgrown: Option<Outgrown>,
    /// How long it ran, as the guest says.
    pub(crate) lasted: Duration,
    /// What it shows, in a session.
    pub(crate) shown: Shown,
    /// The guest's report of its end.
    pub(crate) exited: Exited,
    phase: Phase,
}

impl Following {
    /// A command that has started.
    pub(crate) fn new(step: Step, run: RunId, deadline: Instant, request: &RunRequest, place: &Place) -> Self {
        let limits = request.spec.limits.clone();
        let output = |capture| Output::new(limits.output, capture);
        // It may have been started by somebody else, long ago.
        let ago = deadline.checked_sub(limits.timeout).map_or(Duration::ZERO, |started| started.elapsed());
        let since = SignedDuration::try_from(ago).ok().and_then(|ago| Timestamp::now().checked_sub(ago).ok());
        let since = since.unwrap_or_default();
        let said = match step {
            Step::Compile => Capture::Keep,
            Step::Run => Capture::Count,
        };
        Following {
            step,
            run,
            deadline,
            deadline_unpaused: deadline,
            since,
            stdout: output(request.capture),
            stderr: output(request.capture),
            said: output(said),
            ending: Ending {
                memory_limit: place.created.limits.memory_bytes,
                process: program_name(&request.command.argv[0]),
                ..Ending::default()
            },
            watched: None,
            outgrown: None,
            lasted: Duration::ZERO,
            shown: Shown::default(),
            exited: Exited::default(),
            phase: Phase::Running,
            limits,
        }
    }

    /// Follows the command until the guest reports its end, or cannot.
    pub(crate) async fn follow(
        &mut self,
        place: &Place,
        line: &mut Line,
        watched: &mut Watched<'_>,
        caller: &mut Caller,
    ) -> Result<()> {
        // One that was seen must not be polled again.
        let mut watching = true;
        if self.step == Step::Run {
            let _ = caller.events.send(Event::Started).await;
        }
        let mut waiting: Option<Event> = None;
        loop {
            let Caller { events, orders, .. } = &mut *caller;
            tokio::select! {
                biased;
                () = orders.end_wanted(events), if !matches!(self.phase, Phase::Killed) => {
                    // Whoever asked first is the reason; a run that is over its time stays so.
                    self.ending.cancelled = matches!(self.phase, Phase::Running);
                    self.kill(place, EndReason::Cancelled);
                }
                () = sleep_until(self.deadline) => self.deadline_passed(place)?,
                outgrown = &mut *watched, if watching => {
                    watching = false;
                    self.watched = Some(outgrown.limit());
                    self.kill(place, match &outgrown {
                        Outgrown::Bytes => EndReason::DiskFull,
                        Outgrown::Files => EndReason::InodesFull,
                        Outgrown::Volume { .. } => EndReason::VolumeFull,
                    });
                    self.outgrown = Some(outgrown);
                }
                permit = events.reserve(), if waiting.is_some() => {
                    // Without a permit the caller has dropped the run, and nobody wants events.
                    if let (Ok(permit), Some(event)) = (permit, waiting.take()) {
                        permit.send(event);
                    }
                }
                frame = line.next(), if waiting.is_none() => {
                    let frame = frame?;
                    match frame.kind {
                        FrameKind::Stdout => waiting = self.output(place, frame, Event::Stdout),
                        FrameKind::Stderr => waiting = self.output(place, frame, Event::Stderr),
                        FrameKind::Result => waiting = self.shown.begin(&frame)?,
                        FrameKind::ResultData => waiting = self.shown.data(&frame)?,
                        FrameKind::Exception => waiting = self.shown.fail(&frame.payload)?,
                        FrameKind::Gap => waiting = self.missed(read(&frame)?),
                        FrameKind::Exited => {
                            self.ended(read(&frame)?, place);
                            return Ok(());
                        }
                        _ => return Err(unexpected(&frame)),
                    }
                }
            }
        }
    }

    /// Takes the guest's report of the end.
    fn ended(&mut self, exited: Exited, place: &Place) {
        (self.ending.code, self.ending.signal) = (exited.code, exited.signal);
        self.exited = exited;
        self.lasted = Duration::from_nanos(exited.lasted_ns);
        if !place.channel.outlives_connections() {
            return;
        }
        // Others may have ended a run of a sandbox that stays, and all who follow it must say the same of it. What this
        // host itself held the run to is not up to the guest.
        let reason = exited.reason();
        self.ending.cancelled = reason == EndReason::Cancelled;
        match reason {
            EndReason::TimedOut => self.out_of_time(),
            EndReason::OutputExceeded => self.ending.output_exceeded = Some(self.limits.output),
            EndReason::DiskFull => self.watched = self.watched.or(Some(LimitKind::Disk)),
            EndReason::InodesFull => self.watched = self.watched.or(Some(LimitKind::Inodes)),
            EndReason::VolumeFull => self.watched = self.watched.or(Some(LimitKind::Volume)),
            EndReason::None | EndReason::Cancelled | EndReason::BrokenSession | EndReason::LeftSession => {}
        }
    }

    /// Notes output that never came. The program's own is an event.
    fn missed(&mut self, gap: Gap) -> Option<Event> {
        self.stdout.skip(gap.stdout);
        self.stderr.skip(gap.stderr);
        self.shown.skip(gap.results);
        (self.step == Step::Run).then_some(Event::Missed { stdout: gap.stdout, stderr: gap.stderr })
    }

    /// Whether the command ended by itself and was content.
    pub(crate) fn succeeded(&self) -> bool {
        self.ending.code == Some(0) && !self.ended_early()
    }

    fn ended_early(&self) -> bool {
        let Ending { cancelled, timed_out, output_exceeded, .. } = &self.ending;
        *cancelled || timed_out.is_some() || output_exceeded.is_some() || self.watched.is_some()
    }

    /// The streams, which are empty from now on.
    pub(crate) fn take_output(&mut self) -> (Output, Output) {
        let empty = || Output::new(self.limits.output, Capture::Keep);
        (std::mem::replace(&mut self.stdout, empty()), std::mem::replace(&mut self.stderr, empty()))
    }

    /// Takes a piece of output. Only the program's own is an event.
    fn output(&mut self, place: &Place, frame: Frame, event: fn(bytes::Bytes) -> Event) -> Option<Event> {
        let output = if frame.kind == FrameKind::Stdout { &mut self.stdout } else { &mut self.stderr };
        output.push(&frame.payload);
        self.said.push(&frame.payload);
        if self.limits.output_kill && output.exceeded() && matches!(self.phase, Phase::Running) {
            self.ending.output_exceeded = Some(self.limits.output);
            self.kill(place, EndReason::OutputExceeded);
        }
        (self.step == Step::Run).then(|| event(frame.payload))
    }

    fn deadline_passed(&mut self, place: &Place) -> Result<()> {
        if !matches!(self.phase, Phase::Killed)
            && let Some(later) = self.later_for_pauses(place)
        {
            self.deadline = later;
            return Ok(());
        }
        match self.phase {
            Phase::Running => {
                self.out_of_time();
                self.phase = Phase::Terminating;
                self.deadline = Instant::now() + self.limits.grace;
                (self.deadline_unpaused, self.since) = (self.deadline, Timestamp::now());
                self.signal(place, SIGTERM, EndReason::TimedOut);
            }
            Phase::Terminating => self.kill(place, EndReason::TimedOut),
            Phase::Killed => {
                let message = format!("the run was killed, but did not end within {} s", KILL_GRACE.as_secs());
                return Err(Error::new(ErrorCode::StillEnding, message)
                    .hint("a process of it waits in the kernel, for a mount that does not answer perhaps"));
            }
        }
        Ok(())
    }

    /// When the time or the grace is over of a run that was paused: paused time does not count. `None` if it is over now.
    fn later_for_pauses(&self, place: &Place) -> Option<Instant> {
        if !place.channel.outlives_connections() {
            return None;
        }
        let over = self.deadline_unpaused + place.backend.paused_since(place.id, self.since);
        (over > Instant::now()).then(|| over.max(Instant::now() + PAUSE_LOOK))
    }

    fn out_of_time(&mut self) {
        self.ending.timed_out = Some(self.limits.timeout.as_millis() as u64);
    }

    /// Ends everything of the run at once.
    fn kill(&mut self, place: &Place, reason: EndReason) {
        self.phase = Phase::Killed;
        self.deadline = Instant::now() + KILL_GRACE;
        self.signal(place, SIGKILL, reason);
    }

    /// Sends a signal to the run. The guest's answer is not awaited: it may be the one that hangs, and the clock must not.
    fn signal(&self, place: &Place, number: i32, reason: EndReason) {
        let (place, run) = (place.clone(), self.run);
        tokio::spawn(async move {
            let sent = input::signal(&place.channel, run, number, reason).await;
            if number == SIGKILL {
                place.let_die().await?;
            }
            sent
        });
    }
}

fn program_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}
