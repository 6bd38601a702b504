//! Sees a run through: progress while it lasts, and its end when nobody wants it any more.

use std::{pin::pin, time::Duration};

use glovebox_core::{ErrorCode, Outcome, Result, RunId, RunResult, SessionName};
use glovebox_engine::{Event, Run, RunRequest, Sandbox};

use crate::{
    call::{Call, Progress},
    conversation::Conversation,
    text,
};

/// The most characters of a line of output that progress tells.
const LINE: usize = 200;

/// How long code that was interrupted may take to end.
const INTERRUPTED: Duration = Duration::from_secs(2);

/// Runs a request in the sandbox of the conversation and waits for its end.
pub(crate) async fn run(talk: &Conversation, call: &Call, request: RunRequest) -> Result<RunResult> {
    let progress = call.progress();
    let sandbox = talk.sandbox().await?;
    let session = request.session.as_ref().map(|session| session.name.clone());
    let run = tokio::select! {
        run = sandbox.start(request) => run?,
        // What is about to start is ended by the engine when nobody waits for it.
        () = call.cancelled() => return Err(cancelled()),
    };
    let result = follow(talk, call, run, &progress, &Ending { sandbox: &sandbox, session }).await?;
    if result.outcome == Outcome::Lost {
        let why = result.warnings.first().map_or("it went away under a run", |warning| warning.message.as_str());
        talk.look_after(why).await;
    }
    Ok(result)
}

/// How a run is ended that nobody wants any more.
struct Ending<'a> {
    sandbox: &'a Sandbox,
    session: Option<SessionName>,
}

impl Ending<'_> {
    /// Interrupts a run in a session, so that what the session holds stays. Says whether that was possible.
    async fn interrupt(&self, run: RunId) -> bool {
        let Some(name) = &self.session else { return false };
        let sessions = self.sandbox.sessions().await.unwrap_or_default();
        // While it waits for another run in the same session, that one would be interrupted.
        let is_at_work = sessions.iter().any(|session| session.name == name.as_str() && session.busy == Some(run));
        is_at_work && self.sandbox.interrupt_session(name).await.is_ok()
    }
}

async fn follow(
    talk: &Conversation,
    call: &Call,
    mut run: Run,
    progress: &Progress,
    ending: &Ending<'_>,
) -> Result<RunResult> {
    let (canceller, id) = (run.canceller(), run.id());
    // Output is not masked while it comes, so with secrets only time is told.
    let tells_lines = progress.is_wanted() && talk.secrets().is_empty();
    let mut last = Vec::new();
    let following = async {
        while let Some(event) = run.next_event().await {
            if let (true, Event::Stdout(bytes) | Event::Stderr(bytes)) = (tells_lines, event) {
                keep_last_line(&mut last, &bytes);
                progress.say(text::cut(text::readable(&last).trim(), LINE));
            }
        }
        run.wait().await
    };
    let mut following = pin!(following);
    tokio::select! {
        result = &mut following => result,
        () = call.cancelled() => {
            if !talk.closing.is_cancelled()
                && ending.interrupt(id).await
                && let Ok(result) = tokio::time::timeout(INTERRUPTED, &mut following).await
            {
                return result;
            }
            canceller.cancel();
            // It is recorded, but nobody waits for ever.
            match tokio::time::timeout(Duration::from_secs(10), following).await {
                Ok(result) => result,
                Err(_) => Err(cancelled()),
            }
        }
    }
}

/// Keeps the last line that has something in it.
fn keep_last_line(last: &mut Vec<u8>, bytes: &[u8]) {
    let end = bytes.trim_ascii_end();
    let begin = end.iter().rposition(|byte| *byte == b'\n');
    if begin.is_some() || last.len() > 4 * LINE || bytes.starts_with(b"\n") {
        last.clear();
    }
    let line = &end[begin.map_or(0, |at| at + 1)..];
    last.extend_from_slice(&line[..line.len().min(4 * LINE)]);
    if bytes.len() > end.len() {
        last.push(b'\n');
    }
}

/// The error of a call that nobody waits for. The client never sees it.
pub(crate) fn cancelled() -> glovebox_core::Error {
    glovebox_core::Error::new(ErrorCode::Internal, "the call was cancelled")
}
