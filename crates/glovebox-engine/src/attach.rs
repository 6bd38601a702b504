//! Runs of a living sandbox that are under way or over: who they are, signals for them, and following them again.

use std::time::Duration;

use glovebox_core::{
    Command, EnvName, Error, ErrorCode, InsidePath, Label, Result, RunId, RunResult, SandboxState, Secret, SessionName,
    Step, Warning,
};
use glovebox_ledger::{Recording, UnderWay, Unfollowed};
use glovebox_proto::{EndReason, Exited, FrameKind, Role, RunInfo, path};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::{
    Capture, Engine, InSession, Run, RunRequest, Sandbox, Stdin,
    channel::{Channel, in_time, read, unexpected},
    compile::Before,
    entry::Entry,
    following::{Following, SIGKILL},
    input,
    line::{self, Line, Opened},
    place::{Lifetime, Place},
    result::Asked,
    run::{self, Driver, Part},
    screen,
    sessions::{Current, driver_of},
};

/// A guest that lists more runs than this makes them up.
const MOST_RUNS: usize = 16 * 1024;

/// How long an onlooker waits for the end, which is up to others: as good as for ever.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A run that a sandbox knows of, as its guest tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownRun {
    /// The run.
    pub run: RunId,
    /// Whether it waits for its turn in a session.
    pub waiting: bool,
    /// The process id of its command inside; 0 while it waits.
    pub pid: i32,
    /// When it started, or was asked for while it waits.
    pub started_at: Timestamp,
    /// Whether somebody follows it whom its command waits for.
    pub followed: bool,
    /// Whether it has a terminal.
    pub terminal: bool,
    /// How it ended, once it did. Its owner has not heard of it yet.
    pub ended: Option<RunEnd>,
}

/// How the command of a run ended, before anybody decided what that means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// Exit code.
    pub code: Option<i32>,
    /// Signal.
    pub signal: Option<i32>,
}

impl Sandbox {
    /// The runs under way in this sandbox, and those that ended without anybody to hear it.
    pub async fn runs(&self) -> Result<Vec<KnownRun>> {
        let channel = &self.place.channel;
        channel.judge(match in_time(list(channel)).await {
            // The connection may have been lost since it was last used.
            Err(error) if error.code == ErrorCode::SandboxLost => in_time(list(channel)).await,
            other => other,
        })
    }

    /// Attaches to a run of this sandbox: first what is still there of what it wrote, then the rest as it comes, then the
    /// result. Input that is given goes to the command; without, its input stays as it is.
    ///
    /// Where the run has nobody whom its command waits for, that is the caller from now on, who also records it, if it was to
    /// be recorded. Otherwise the caller looks on, and is told what it is too slow for: [`Event::Missed`](crate::Event).
    ///
    /// A run with a terminal takes the keys of all who are attached, and its size is that of the one who last typed or resized.
    /// [`Run::screen`] gives what is on it.
    pub async fn attach(&self, run: RunId, stdin: Stdin) -> Result<Run> {
        let noted = match self.engine.ledger() {
            Some(ledger) => ledger.take_over(run)?,
            None => UnderWay::NotNoted,
        };
        let (role, recording) = match noted {
            UnderWay::Taken(recording, if_lost) => (Role::Owner, Some((recording, *if_lost))),
            UnderWay::Followed => (Role::Watcher, None),
            UnderWay::NotNoted => (Role::OwnerIfFree, None),
        };
        let opened = in_time(line::attach(&self.place.channel, run, [0; 3], role)).await;
        Ok(self.follow_opened(run, self.place.channel.judge(opened)?, stdin, recording))
    }

    /// Follows a run of this sandbox again whose process died, to its end and into the ledger. Nothing is followed when
    /// somebody else does, or when the sandbox does not know the run: then it is recorded as lost.
    pub async fn follow_again(&self, run: RunId) -> Result<Option<Run>> {
        let Some(ledger) = self.engine.ledger() else { return Ok(None) };
        let UnderWay::Taken(recording, if_lost) = ledger.take_over(run)? else { return Ok(None) };
        let opened = in_time(line::attach(&self.place.channel, run, [0; 3], Role::Owner)).await;
        match self.place.channel.judge(opened) {
            Ok(opened) => Ok(Some(self.follow_opened(run, opened, Stdin::Empty, Some((recording, *if_lost))))),
            Err(error) if error.code == ErrorCode::RunNotFound => {
                drop(recording);
                ledger.give_up(run).await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends a signal to the processes of a run, and waits until it is sent.
    pub async fn signal(&self, run: RunId, number: i32) -> Result<()> {
        signal(&self.place.channel, run, number, EndReason::None).await
    }

    /// Ends a run, whoever follows it. Its result then says `cancelled`, unless its command had ended before. One that waits for
    /// its turn in a session ends at once, and nothing of it runs.
    pub async fn cancel(&self, run: RunId) -> Result<()> {
        signal(&self.place.channel, run, SIGKILL, EndReason::Cancelled).await?;
        self.place.let_die().await
    }

    /// Tells the guest that all commands are about to be frozen, or go on.
    pub(crate) async fn tell_paused(&self, path: &str) -> Result<()> {
        let channel = &self.place.channel;
        channel.judge(in_time(input::tell(channel, path)).await)
    }

    /// Lets commands start again where the guest takes a sandbox for paused that is not: whoever paused it or let it go on died
    /// halfway. Says whether it was so.
    pub(crate) async fn end_half_a_pause(&self) -> Result<bool> {
        let Place { id, backend, .. } = &self.place;
        // Whoever pauses it right now holds the lock until it is so.
        let _hold = self.engine.hold(*id).await?;
        if backend.state(*id).await? != SandboxState::Ready {
            return Ok(false);
        }
        // The keeper may still be freezing it for one who is gone.
        backend.resume(*id).await?;
        self.tell_paused(path::RESUME).await?;
        Ok(true)
    }

    fn follow_opened(
        &self,
        run: RunId,
        opened: Opened,
        stdin: Stdin,
        recording: Option<(Recording, RunResult)>,
    ) -> Run {
        let owner = opened.attached.owner;
        // What a ledger of the host says of the run counts more than what its guest was given to keep.
        let (recording, known) = match recording {
            Some((recording, if_lost)) => (Some(recording), Some(if_lost)),
            None => (None, serde_json::from_slice(&opened.attached.note).ok()),
        };
        let secretive = known.as_ref().is_none_or(|known| known.command.env.values().any(|v| v.contains(Secret::MASK)));
        let part = match owner {
            true => Part::Rest { secretive },
            false => Part::Onlooker { secretive, recorded: known.as_ref().is_some_and(|known| known.recorded) },
        };
        let session = known.as_ref().and_then(|known| known.session.as_ref()).map(Current::of_another);
        let (mut request, mut asked, started_at) = asked_before(known);
        if secretive {
            request.capture = Capture::Count;
        }
        asked.timeout = request.spec.limits.timeout;
        let ago = Duration::try_from(Timestamp::now().duration_since(started_at)).unwrap_or_default();
        let started = Instant::now().checked_sub(ago).unwrap_or_else(Instant::now);
        let deadline = if owner { started + request.spec.limits.timeout } else { started + FOR_EVER };
        let driver = Driver {
            engine: self.engine.clone(),
            place: self.place.clone(),
            entry: Entry::of_another(run, self.engine.ledger(), recording),
            given: Vec::new(),
            command: Following::new(Step::Run, run, deadline, &request, &self.place),
            request,
            asked,
            started,
            started_at,
            asked_at: started_at,
            deadline,
            input: None,
            compiled: None,
            kills_before: 0,
            keeping: None,
            session,
            counted_before: None,
            part,
            _slot: None,
        };
        let before = screen::Before::of(&opened.attached);
        let line = Line::attached(self.place.channel.clone(), run, opened);
        let mut run = run::drive(driver, Before::Nothing, line, stdin, Lifetime::Stays(self.guard.clone()));
        run.before = before;
        run
    }
}

impl Engine {
    /// The runs in living sandboxes that nobody follows any more, because their processes died. For those whose sandbox is
    /// still there, [`Sandbox::follow_again`]; for the others, [`Engine::give_up`].
    pub fn unfollowed(&self) -> Result<Vec<Unfollowed>> {
        self.ledger().map_or(Ok(Vec::new()), |ledger| ledger.unfollowed())
    }

    /// Records a run as lost whose sandbox is gone and that nobody follows. Says whether there was one.
    pub async fn give_up(&self, run: RunId) -> Result<bool> {
        match self.ledger() {
            Some(ledger) => ledger.give_up(run).await,
            None => Ok(false),
        }
    }
}

/// What was asked for when a run began, as far as its record tells.
fn asked_before(known: Option<RunResult>) -> (RunRequest, Asked, Timestamp) {
    let Some(known) = known else {
        let request = RunRequest::new(Command::argv(["?"]).expect("a command"));
        let asked = Asked::of(&request);
        return (request, asked, Timestamp::now());
    };
    let had_terminal = known.command.terminal;
    let argv = if known.command.argv.is_empty() { vec!["?".to_owned()] } else { known.command.argv };
    let mut command = Command::argv(argv).unwrap_or_else(|_| Command::argv(["?"]).expect("a command"));
    let variables = known.command.env.into_iter();
    command.env = variables.filter_map(|(name, value)| Some((EnvName::parse(&name).ok()?, value))).collect();
    if let Ok(cwd) = InsidePath::absolute(&known.command.cwd) {
        command.cwd = cwd;
    }
    let mut request = RunRequest::new(command);
    request.labels = known.labels.into_iter().map(|(key, value)| Label { key, value }).collect();
    request.spec.limits.timeout = Duration::from_millis(known.limits.timeout_ms);
    request.spec.limits.output = known.limits.output_bytes;
    request.session = known.session.and_then(|session| {
        let language = driver_of(&session.language).ok()?.language;
        let name = SessionName::parse(&session.name).ok()?;
        Some(InSession { name, language, code: String::new(), workdir: None })
    });
    let mut asked = Asked::of(&request);
    (asked.workspace, asked.terminal) = (known.workspace, had_terminal);
    (request, asked, known.started_at)
}

/// Says that output and files are not in a result.
pub(crate) fn not_kept() -> Warning {
    Warning {
        code: ErrorCode::SecretUnavailable.as_str().into(),
        message: "output and files of the run were not kept, because its secrets cannot be masked any more".into(),
        hint: Some("only the process that starts a run knows its secrets; let it follow the run to its end".into()),
    }
}

async fn list(channel: &Channel) -> Result<Vec<KnownRun>> {
    let (sending, opening) = channel.request(path::RUNS).await?;
    sending.end()?;
    let mut receiving = opening.answer().await?;
    let mut runs = Vec::new();
    loop {
        match receiving.next().await? {
            Some(frame) if frame.kind == FrameKind::RunInfo && runs.len() < MOST_RUNS => {
                runs.push(known_run(read(&frame)?).ok_or_else(|| unexpected(&frame))?);
            }
            Some(frame) if frame.kind == FrameKind::Done => return Ok(runs),
            Some(frame) => return Err(unexpected(&frame)),
            None => return Err(Error::new(ErrorCode::SandboxLost, "the sandbox went away")),
        }
    }
}

fn known_run(info: RunInfo) -> Option<KnownRun> {
    Some(KnownRun {
        run: info.run.parse().ok()?,
        waiting: info.waiting,
        pid: info.pid,
        started_at: Timestamp::from_nanosecond(info.started_ns.into()).ok()?,
        followed: info.owned,
        terminal: info.terminal,
        ended: info.ended.map(|Exited { code, signal, .. }| RunEnd { code, signal }),
    })
}

/// Sends a signal to a run that must be there.
pub(crate) async fn signal(channel: &Channel, run: RunId, number: i32, reason: EndReason) -> Result<()> {
    match channel.judge(in_time(input::signal(channel, run, number, reason)).await)? {
        true => Ok(()),
        false => Err(line::not_known(run)),
    }
}

/// Ends a run whose start nobody waits for any more: whoever asked for it would never learn its id.
pub(crate) struct EndUnheard<'a> {
    channel: &'a Channel,
    run: RunId,
    heard: bool,
}

impl<'a> EndUnheard<'a> {
    /// A run that is about to start.
    pub(crate) fn new(channel: &'a Channel, run: RunId) -> Self {
        EndUnheard { channel, run, heard: false }
    }

    /// The start was waited for.
    pub(crate) fn heard(mut self) {
        self.heard = true;
    }
}

impl Drop for EndUnheard<'_> {
    fn drop(&mut self) {
        if let (false, Ok(runtime)) = (self.heard, tokio::runtime::Handle::try_current()) {
            let (channel, run) = (self.channel.clone(), self.run);
            // Where the run never began there is nothing to end.
            runtime.spawn(async move { input::signal(&channel, run, SIGKILL, EndReason::Cancelled).await });
        }
    }
}
