//! `run_code` and `control_session`: interpreters that remember.

use std::sync::Arc;

use glovebox_core::{Error, ErrorCode, Language, Result, SessionName};
use glovebox_engine::{RunRequest, SessionStatus};
use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, ToolCall, time_limit};
use crate::{
    answer::{Answer, schema},
    call::Call,
    conversation::Conversation,
    report::{self, RunReport},
    running,
};

/// The session when nobody names one: one for each language, so that a call in another one does not fail.
const MAIN: &str = "main";

/// Code to run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunCode {
    /// The code. The value of its last expression is shown, as in a notebook.
    code: String,
    /// The language of the code: python, javascript or bash.
    #[serde(default = "python")]
    language: String,
    /// The session to run it in: each name is an interpreter of its own. By default main for Python, and one for each other
    /// language.
    #[serde(default)]
    session: Option<String>,
    /// Ends the code after this many seconds; by default and at most the time limit of a call.
    #[serde(default)]
    timeout_seconds: Option<f64>,
}

fn python() -> String {
    "python".to_owned()
}

impl ToolCall for RunCode {
    const NAME: &'static str = "run_code";
    const TITLE: &'static str = "Run code";
    const ABOUT: &'static str = "Runs code in an interpreter that stays up: variables, imports and functions are there in the next \
        call. Shows stdout, the value of the last expression, and figures (matplotlib) as images.";
    const EFFECT: Effect = Effect::Acts;

    fn output() -> Option<Arc<JsonObject>> {
        schema::<RunReport>()
    }

    async fn call(self, talk: &Conversation, call: &Call) -> Result<Answer> {
        let limit = time_limit(&talk.settings, self.timeout_seconds)?;
        let named = self.language.trim().to_ascii_lowercase();
        // By whatever name a language is called, it is one session.
        let language = Language::by_name(&named).map_or(named, |language| language.name.to_owned());
        let name = match (&self.session, language.as_str()) {
            (Some(name), _) => parse(name)?,
            (None, "python") => parse(MAIN)?,
            (None, other) => parse(&format!("{MAIN}-{other}"))?,
        };
        let mut request = talk.filled(RunRequest::in_session(name, &language, self.code)?);
        request.spec.limits.timeout = limit;
        let result = running::run(talk, call, request).await.map_err(explain)?;
        Ok(report::answer(&result))
    }
}

/// A session to look after.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ControlSession {
    /// list: which there are; interrupt: stop what runs in it, as Ctrl-C would, and keep its state; restart: throw its state away.
    action: Action,
    /// The session, for interrupt and restart.
    #[serde(default = "main")]
    session: String,
}

fn main() -> String {
    MAIN.to_owned()
}

/// What to do with a session.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Action {
    List,
    Interrupt,
    Restart,
}

/// The sessions after that.
#[derive(Debug, Serialize, JsonSchema)]
struct SessionList {
    /// The sessions that there are.
    sessions: Vec<ListedSession>,
}

/// A session in the list.
#[derive(Debug, Serialize, JsonSchema)]
struct ListedSession {
    /// Its name.
    session: String,
    /// The language of its interpreter.
    language: String,
    /// idle, busy, or ended: the next call starts a new interpreter.
    state: String,
    /// Runs in it so far.
    runs: u64,
}

impl ToolCall for ControlSession {
    const NAME: &'static str = "control_session";
    const TITLE: &'static str = "Control a session";
    const ABOUT: &'static str = "Lists the sessions of run_code, interrupts what runs in one, or restarts one.";
    const EFFECT: Effect = Effect::Acts;

    fn output() -> Option<Arc<JsonObject>> {
        schema::<SessionList>()
    }

    async fn call(self, talk: &Conversation, _call: &Call) -> Result<Answer> {
        let sandbox = talk.sandbox().await?;
        let name = parse(&self.session)?;
        let done = match self.action {
            Action::List => None,
            Action::Interrupt => {
                let sessions = sandbox.sessions().await?;
                let idle = sessions.iter().any(|one| one.name == name.as_str() && one.busy.is_none());
                sandbox.interrupt_session(&name).await.map_err(explain)?;
                Some(if idle { format!("nothing was running in {name}") } else { format!("interrupted {name}") })
            }
            Action::Restart => {
                sandbox.restart_session(&name).await.map_err(explain)?;
                Some(format!("{name} begins anew with the next call"))
            }
        };
        let sessions: Vec<ListedSession> = sandbox.sessions().await?.iter().map(listed).collect();
        let line = |one: &ListedSession| format!("{}  {}  {}, {} runs", one.session, one.language, one.state, one.runs);
        let mut lines: Vec<String> = done.into_iter().chain(sessions.iter().map(line)).collect();
        if lines.is_empty() {
            lines.push("[no session was started]".to_owned());
        }
        Ok(Answer::text(lines.join("\n")).with_document(&SessionList { sessions }))
    }
}

fn listed(status: &SessionStatus) -> ListedSession {
    let state = match (&status.ended, &status.busy) {
        (Some(_), _) => "ended",
        (None, Some(_)) => "busy",
        (None, None) => "idle",
    };
    let SessionStatus { name, language, runs, .. } = status.clone();
    ListedSession { session: name, language, state: state.to_owned(), runs }
}

fn parse(name: &str) -> Result<SessionName> {
    SessionName::parse(name).map_err(|forms| {
        let shown = crate::text::cut(name, 80);
        Error::new(ErrorCode::InvalidValue, format!("the session {shown:?} cannot be: {forms}"))
    })
}

/// An error with a hint for a model, and not for somebody at a command line.
fn explain(error: Error) -> Error {
    match error.code {
        ErrorCode::SessionBusy => {
            error.hint("wait for the call that runs in it, interrupt it with control_session, or name another session")
        }
        ErrorCode::SessionNotFound => error.hint("control_session with action list names those there are"),
        ErrorCode::TooMany => error.hint("use a session that is there; control_session lists and restarts them"),
        ErrorCode::WrongState => error.hint("name another session for another language"),
        ErrorCode::CommandNotFound => error.hint("the interpreter is not on this machine; use another language"),
        _ => error,
    }
}
