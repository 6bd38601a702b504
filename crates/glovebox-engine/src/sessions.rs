//! Sessions: interpreters that stay in a sandbox, and the runs in them.
//!
//! Theory of operation. A run in a session is a run as all others: it has an id, output, a clock, an end, and a place in the
//! ledger. What differs is that its code goes to an interpreter which was started before, and that it may show something. The
//! guest keeps the interpreters; `drivers` holds what is started there and what it is told. That a session was begun is noted
//! on the host (`notes`), so that it is known, whatever happened meanwhile, when what it held is lost.

pub(crate) mod drivers;
mod notes;
mod shown;

use std::time::{Duration, Instant};

use bytes::Bytes;
use glovebox_core::{
    Error, ErrorCode, Evidence, Language, Result, RunId, SandboxId, SessionName, SessionRecord, Warning,
};
use glovebox_proto::{
    EndReason, Exited, Frame, FrameKind, Places, StartFailed, bound, path,
    session::{SessionInfo, SessionName as NamedSession, SessionRun, SessionStarted},
};
use jiff::Timestamp;

use crate::{
    InSession, RunRequest, Sandbox,
    channel::{Channel, in_time, read, unexpected},
    input::order_done,
    place::Place,
};
use drivers::Driver;
use notes::Note;
pub(crate) use notes::Notes;
pub(crate) use shown::Shown;

/// A run that started within so much time had to wait for no other.
const AT_ONCE: Duration = Duration::from_millis(20);

/// The languages that there are sessions in.
pub fn session_languages() -> impl Iterator<Item = &'static str> {
    drivers::languages()
}

/// The driver of a language, by any of its names.
pub(crate) fn driver_of(language: &str) -> Result<&'static Driver> {
    let known = Language::by_name(language).map_or(language, |language| language.name);
    drivers::driver(known).ok_or_else(|| {
        let there: Vec<&str> = drivers::languages().collect();
        Error::new(ErrorCode::NotSupported, format!("there are no sessions in {language}"))
            .hint(format!("sessions are in: {}", there.join(", ")))
    })
}

/// A session of a sandbox, as its guest tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// Its name.
    pub name: String,
    /// The language of its interpreter.
    pub language: String,
    /// The process id of the interpreter inside.
    pub pid: i32,
    /// When the interpreter started.
    pub started_at: Timestamp,
    /// Runs in it so far.
    pub runs: u64,
    /// The run that is under way in it.
    pub busy: Option<RunId>,
    /// The runs that wait for their turn in it, in their order.
    pub waiting: Vec<RunId>,
    /// How its interpreter ended, if it did. The next run in it starts another.
    pub ended: Option<crate::RunEnd>,
}

/// A session as a run in it begins: what the guest is asked with, and what was counted before.
pub(crate) struct Beginning {
    pub(crate) run: SessionRun,
    driver: &'static Driver,
    /// What it was known by when somebody last used it.
    known: Option<RunId>,
    before: Evidence,
    /// When that was looked at.
    looked_at: Instant,
}

impl Beginning {
    /// Makes a run ready to be sent.
    pub(crate) async fn of(place: &Place, request: &RunRequest) -> Result<Option<Beginning>> {
        let Some(InSession { name, language, code, workdir }) = &request.session else { return Ok(None) };
        let driver = driver_of(language)?;
        let command = &request.command;
        let plain = command.env.iter().map(|(name, value)| (name.as_str().to_owned(), value.clone()));
        let secret = command.secrets.iter().map(|(name, value)| (name.as_str().to_owned(), value.expose().to_owned()));
        let variables: Vec<(String, String)> = plain.chain(secret).collect();
        let places = Places::new(place.created.places.clone());
        let workdir = workdir.as_ref().map(|path| places.real(path.as_str()));
        // Nobody can guess it.
        let token = RunId::new().to_string();
        let input = driver.run(code, &variables, workdir.as_deref(), &token)?;
        if input.len() > bound::SESSION_INPUT {
            let message = format!("the code is longer than {} KiB", bound::SESSION_INPUT / 1024);
            return Err(Error::new(ErrorCode::InvalidValue, message).hint("put it into a file inside, and import it"));
        }
        let known = place.sessions.of(name).and_then(|note| note.key);
        let key = known.unwrap_or_else(RunId::new);
        // Of a session that is not there it is what all the sandbox has used, which is what counts where runs have no groups.
        let before = place.backend.evidence(place.id, Some(key)).await?;
        let run = SessionRun {
            name: name.to_string(),
            language: driver.language.to_owned(),
            // If it has to be started, its group is another one than that of the one before.
            key: known.map_or(key, |_| RunId::new()).to_string(),
            // What is there already is not sent again.
            opening: if known.is_some() { Bytes::new() } else { driver.opening() },
            input,
            token,
        };
        Ok(Some(Beginning { run, driver, known, before, looked_at: Instant::now() }))
    }

    /// Whether the guest has to be asked again, because the session is not there any more. Then it is made ready for that.
    pub(crate) fn needs_opening(&mut self, failed: &StartFailed) -> bool {
        let needed = failed.step == "opening" && self.run.opening.is_empty();
        if needed {
            self.run.opening = self.driver.opening();
        }
        needed
    }

    /// The session, now that a run in it has started.
    pub(crate) async fn started(self, place: &Place, name: &SessionName, told: SessionStarted) -> Current {
        let key = told.key.parse().unwrap_or_else(|_| RunId::new());
        let lost = told.new && (self.known.is_some() || told.before.is_some());
        if told.new {
            place.sessions.note(name, Note { key: Some(key), language: self.run.language.clone() });
        }
        // A guest that gives another key than the one that is known mixes up only its own sessions.
        let same = self.known == Some(key) && !told.new;
        let before = match self.before {
            before if before.of_run && !same => Evidence { of_run: true, ..Evidence::default() },
            // Others may have had their turns meanwhile.
            before if self.looked_at.elapsed() > AT_ONCE && !told.new => {
                place.backend.evidence(place.id, Some(key)).await.unwrap_or(before)
            }
            before => before,
        };
        Current { key: Some(key), before, lost, ended_before: told.before, new: told.new, number: told.runs }
    }
}

/// The session of a run under way.
#[derive(Clone)]
pub(crate) struct Current {
    /// What its group is known by; not known to one who did not start the run.
    key: Option<RunId>,
    /// What was counted of it before the run.
    before: Evidence,
    new: bool,
    /// Whether there was one before whose state is lost.
    lost: bool,
    ended_before: Option<Exited>,
    number: u64,
}

impl Current {
    /// What is known of it to one who attaches to a run.
    pub(crate) fn of_another(record: &SessionRecord) -> Self {
        let (new, lost, number) = (record.new, false, record.number);
        Current { key: None, before: Evidence::default(), new, lost, ended_before: None, number }
    }

    /// Which run's group is to be looked at, if any.
    pub(crate) fn key(&self) -> Option<RunId> {
        self.key
    }

    /// What was seen since the run began.
    pub(crate) fn since(&self, evidence: Evidence) -> Evidence {
        evidence.since(&self.before)
    }

    /// The record of it.
    pub(crate) fn record(&self, asked: &InSession, alive: bool) -> SessionRecord {
        SessionRecord {
            name: asked.name.to_string(),
            language: asked.language.to_owned(),
            new: self.new,
            state_lost: self.lost,
            alive,
            number: self.number,
        }
    }

    /// What its users must know: that state was lost, before this run or with it.
    pub(crate) fn warnings(&self, asked: &InSession, exited: &Exited) -> Vec<Warning> {
        let (name, in_shell) = (&asked.name, asked.language == "bash");
        let mut warnings = Vec::new();
        let lost = |message: String, hint: &str| Warning {
            code: ErrorCode::SessionLost.as_str().into(),
            message,
            hint: Some(hint.into()),
        };
        if self.lost {
            let how = self.ended_before.as_ref().map(|ended| format!(" ({})", how_it_ended(ended)));
            let message = format!(
                "the session {name} was started anew, because its interpreter had ended{}; what it held is lost",
                how.unwrap_or_default()
            );
            warnings.push(lost(message, "define again what the code needs"));
        }
        if exited.session_over {
            let message =
                format!("the interpreter of the session {name} ended ({}); what it held is lost", how_it_ended(exited));
            let ends_shell = "; exit and exec end a shell, and so does hiding builtin, eval or printf from it";
            let hint = format!("the next run in it starts a new one{}", if in_shell { ends_shell } else { "" });
            warnings.push(lost(message, &hint));
        }
        let (what, hint) = match exited.reason() {
            EndReason::BrokenSession => {
                ("the code wrote to its control socket", "leave descriptors alone that the code did not open")
            }
            EndReason::LeftSession if in_shell => {
                ("exec put another program in the place of its shell", "run the program without exec")
            }
            EndReason::LeftSession => (
                "the code closed its control socket, or put another program in the place of the interpreter",
                "leave descriptors alone that the code did not open, and start programs beside the interpreter",
            ),
            _ => return warnings,
        };
        warnings.push(lost(format!("the session {name} was ended: {what}"), hint));
        warnings
    }
}

/// Says that not all that was shown is in the result.
pub(crate) fn some_missed() -> Warning {
    Warning {
        code: ErrorCode::SessionLost.as_str().into(),
        message: "some of what the run showed came before anybody followed it, and is not in its result".into(),
        hint: None,
    }
}

fn how_it_ended(exited: &Exited) -> String {
    match (exited.code, exited.signal) {
        (Some(code), _) => format!("it exited with code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "it is not known how".to_owned(),
    }
}

/// The error for a run that a session did not take.
pub(crate) fn refused(failed: &StartFailed, session: &InSession) -> Option<Error> {
    let InSession { name, language, .. } = session;
    match failed.step.as_str() {
        "language" => Some(
            Error::new(ErrorCode::WrongState, format!("the session {name} is not one in {language}"))
                .hint("another name is another session; glovebox sessions list ID shows which there are"),
        ),
        "sessions" => Some(
            Error::new(ErrorCode::TooMany, format!("there are {} sessions in this sandbox already", bound::SESSIONS))
                .hint("close one: glovebox sessions close ID NAME"),
        ),
        _ => None,
    }
}

/// The error for a session that did not get to a run within its time.
pub(crate) fn busy(name: &SessionName) -> Error {
    Error::new(ErrorCode::SessionBusy, format!("the session {name} did not get to the run within its time"))
        .hint("another run may be under way: wait for it, glovebox sessions interrupt ID NAME, or use another session")
}

impl Sandbox {
    /// The sessions of this sandbox.
    pub async fn sessions(&self) -> Result<Vec<SessionStatus>> {
        let channel = &self.place.channel;
        channel.judge(match in_time(list(channel)).await {
            // The connection may have been lost since it was last used.
            Err(error) if error.code == ErrorCode::SandboxLost => in_time(list(channel)).await,
            other => other,
        })
    }

    /// Interrupts what runs in a session, as Ctrl-C would. What it holds stays. Where nothing runs there is nothing to do.
    pub async fn interrupt_session(&self, name: &SessionName) -> Result<()> {
        self.tell_session(path::INTERRUPT, name).await
    }

    /// Ends a session: its interpreter and all that it started. The next run of that name starts a new one.
    pub async fn close_session(&self, name: &SessionName) -> Result<()> {
        self.place.sessions.forget(name);
        self.tell_session(path::END_SESSION, name).await
    }

    /// Has a session begin anew with its next run: ends its interpreter, and all that it started.
    pub async fn restart_session(&self, name: &SessionName) -> Result<()> {
        let language = self.session_language(name).await?.ok_or_else(|| not_found(self.place.id, name))?;
        match self.close_session(name).await {
            Err(error) if error.code != ErrorCode::SessionNotFound => return Err(error),
            _ => {}
        }
        self.place.sessions.note(name, Note { key: None, language });
        Ok(())
    }

    /// The language of a session, be its interpreter there or not.
    pub async fn session_language(&self, name: &SessionName) -> Result<Option<String>> {
        let there = self.sessions().await?.into_iter().find(|session| session.name == name.as_str());
        let noted = || self.place.sessions.of(name).map(|note| note.language);
        Ok(there.map(|session| session.language).or_else(noted))
    }

    async fn tell_session(&self, path: &str, name: &SessionName) -> Result<()> {
        let channel = &self.place.channel;
        let order = Frame::message(FrameKind::Query, &NamedSession { name: name.to_string() });
        match channel.judge(in_time(order_done(channel, path, order)).await)? {
            true => Ok(()),
            false => Err(not_found(self.place.id, name)),
        }
    }
}

fn not_found(sandbox: SandboxId, name: &SessionName) -> Error {
    Error::new(ErrorCode::SessionNotFound, format!("the sandbox {sandbox} has no session {name}"))
        .hint(format!("glovebox sessions list {sandbox} shows which there are"))
}

async fn list(channel: &Channel) -> Result<Vec<SessionStatus>> {
    let (sending, opening) = channel.request(path::SESSIONS).await?;
    sending.end()?;
    let mut receiving = opening.answer().await?;
    let mut sessions = Vec::new();
    loop {
        match receiving.next().await? {
            Some(frame) if frame.kind == FrameKind::SessionInfo && sessions.len() < bound::SESSIONS => {
                sessions.push(status(read(&frame)?).ok_or_else(|| unexpected(&frame))?);
            }
            Some(frame) if frame.kind == FrameKind::Done => return Ok(sessions),
            Some(frame) => return Err(unexpected(&frame)),
            None => return Err(Error::new(ErrorCode::SandboxLost, "the sandbox went away")),
        }
    }
}

fn status(info: SessionInfo) -> Option<SessionStatus> {
    Some(SessionStatus {
        name: SessionName::parse(&info.name).ok()?.to_string(),
        language: drivers::driver(&info.language)?.language.to_owned(),
        pid: info.pid,
        started_at: Timestamp::from_nanosecond(info.started_ns.into()).ok()?,
        runs: info.runs,
        busy: info.busy.map(|run| run.parse()).transpose().ok()?,
        waiting: info.waiting.iter().map(|run| run.parse()).collect::<Result<_, _>>().ok()?,
        ended: info.ended.map(|Exited { code, signal, .. }| crate::RunEnd { code, signal }),
    })
}
