//! Following one command from its start to the guest's report of its end.
//!
//! Whatever ends a command early (its time, its output, the caller, the disk watch) is written down as the reason; then
//! signals are sent, and the guest's report of the command's end is awaited as always. A guest that does not report within
//! a grace is not waited for.

use std::{pin::Pin, time::Duration};

use glovebox_core::{Ending, Error, ErrorCode, LimitKind, Limits, Result, Step};
use glovebox_proto::{Exited, Frame, FrameKind};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use crate::{
    Capture, Event, RunRequest,
    channel::{Receiving, read, unexpected},
    input,
    output::Output,
    run::{Place, cancel_wanted},
};

/// How long the guest has to report the end after everything was killed.
const KILL_GRACE: Duration = Duration::from_secs(5);

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// Tells when a limit that only a watch holds is passed.
pub(crate) type Watched<'a> = Pin<Box<dyn Future<Output = LimitKind> + Send + 'a>>;

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
    pid: i32,
    limits: Limits,
    deadline: Instant,
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
    /// Both streams of a compiler as they came.
    pub(crate) said: Output,
    pub(crate) ending: Ending,
    /// The limit for whose sake a watch ended it.
    pub(crate) watched: Option<LimitKind>,
    phase: Phase,
}

impl Following {
    /// A command that has started under a process id inside.
    pub(crate) fn new(step: Step, pid: i32, deadline: Instant, request: &RunRequest, place: &Place) -> Self {
        let limits = request.spec.limits.clone();
        let output = |capture| Output::new(limits.output, capture);
        let said = match step {
            Step::Compile => Capture::Keep,
            Step::Run => Capture::Count,
        };
        Following {
            step,
            pid,
            deadline,
            stdout: output(request.capture),
            stderr: output(request.capture),
            said: output(said),
            ending: Ending {
                memory_limit: place.created.limits.memory_bytes,
                process: program_name(&request.command.argv[0]),
                ..Ending::default()
            },
            watched: None,
            phase: Phase::Running,
            limits,
        }
    }

    /// Follows the command until the guest reports its end, or cannot.
    pub(crate) async fn follow(
        &mut self,
        place: &Place,
        mut receiving: Receiving,
        watched: &mut Watched<'_>,
        events: &mpsc::Sender<Event>,
        cancelled: &mut watch::Receiver<bool>,
    ) -> Result<()> {
        // One that was seen must not be polled again.
        let mut watching = true;
        if self.step == Step::Run {
            let _ = events.send(Event::Started).await;
        }
        let mut waiting: Option<Event> = None;
        loop {
            tokio::select! {
                biased;
                () = cancel_wanted(cancelled, events), if !matches!(self.phase, Phase::Killed) => {
                    // Whoever asked first is the reason; a run that is over its time stays so.
                    self.ending.cancelled = matches!(self.phase, Phase::Running);
                    self.kill(place);
                }
                () = sleep_until(self.deadline) => self.deadline_passed(place)?,
                kind = &mut *watched, if watching => {
                    watching = false;
                    self.watched = Some(kind);
                    self.kill(place);
                }
                permit = events.reserve(), if waiting.is_some() => {
                    // Without a permit the caller has dropped the run, which the cancel branch sees too.
                    if let (Ok(permit), Some(event)) = (permit, waiting.take()) {
                        permit.send(event);
                    }
                }
                frame = receiving.next(), if waiting.is_none() => match frame? {
                    Some(frame) => match frame.kind {
                        FrameKind::Stdout => waiting = self.output(place, frame, Event::Stdout),
                        FrameKind::Stderr => waiting = self.output(place, frame, Event::Stderr),
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
            self.kill(place);
        }
        (self.step == Step::Run).then(|| event(frame.payload))
    }

    fn deadline_passed(&mut self, place: &Place) -> Result<()> {
        match self.phase {
            Phase::Running => {
                self.ending.timed_out = Some(self.limits.timeout.as_millis() as u64);
                self.phase = Phase::Terminating;
                self.deadline = Instant::now() + self.limits.grace;
                self.signal(place, SIGTERM);
            }
            Phase::Terminating => self.kill(place),
            Phase::Killed => {
                return Err(Error::new(ErrorCode::SandboxLost, "the guest did not report the end in time"));
            }
        }
        Ok(())
    }

    /// Ends everything of the run at once.
    fn kill(&mut self, place: &Place) {
        self.phase = Phase::Killed;
        self.deadline = Instant::now() + KILL_GRACE;
        self.signal(place, SIGKILL);
    }

    /// Sends a signal to the run. The guest's answer is not awaited: it may be the one that hangs, and the clock must not.
    fn signal(&self, place: &Place, number: i32) {
        let (channel, pid) = (place.channel.clone(), self.pid);
        tokio::spawn(async move { input::signal(&channel, pid, number).await });
    }
}

fn program_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}
