//! Waiting for the end of a sandbox that was killed.
//!
//! A process dies of SIGKILL as soon as it is not in the middle of something that the kernel must finish first: a read from a
//! disk that does not answer, a request to a file system whose server hangs. Nothing and nobody can end it before, so it is
//! looked for and told of, and not waited for. Whoever was asked to end the sandbox goes on with it when the process is gone.

use std::time::{Duration, Instant};

use glovebox_core::{Error, ErrorCode, Result, SandboxId, waiting_in_kernel};

use super::NativeBackend;
use crate::{answers::Answers, cgroup::Side, plan::Answer};

/// How often it is looked what keeps a sandbox from ending. A process that waits both times is not about to end.
const LOOK: Duration = Duration::from_secs(2);
/// So long a sandbox is waited for in which no process waits; a machine that is very busy takes its time.
const LONGEST: Duration = Duration::from_secs(60);

impl NativeBackend {
    /// Waits until the launcher tells of the end of a sandbox, or it is known that it will not for long.
    pub(super) async fn hear_of_end(&self, id: SandboxId, answers: &Answers, group: Option<&str>) -> Result<Answer> {
        let (began, mut before) = (Instant::now(), None);
        loop {
            if let Ok(answer) = tokio::time::timeout(LOOK, answers.next()).await {
                return Ok(answer?.0);
            }
            let waiting = group.and_then(|group| self.waiting_process(group));
            if waiting.is_some() && waiting == before || began.elapsed() > LONGEST {
                return Err(still_ending(id, waiting));
            }
            before = waiting;
        }
    }

    /// A process of a sandbox that waits in the kernel, where it cannot be killed.
    fn waiting_process(&self, group: &str) -> Option<String> {
        let groups = self.cgroups().ok()?.named_living(group);
        groups.processes(Side::Run).iter().find_map(|pid| waiting_in_kernel(*pid))
    }
}

/// The error for a sandbox that was killed and does not end.
fn still_ending(id: SandboxId, waiting: Option<String>) -> Error {
    match waiting {
        Some(waiting) => Error::still_ending(id, &waiting),
        None => {
            let message = format!("the sandbox {id} was killed, but did not end within {} s", LONGEST.as_secs());
            Error::new(ErrorCode::StillEnding, message)
                .hint("the machine may have too much to do; the rest is removed when it has ended")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_said_to_wait_in_the_kernel_who_was_not_seen_there() {
        let id = SandboxId::new();
        let seen = still_ending(id, Some("cat (process 7)".to_owned()));
        assert!(seen.message.contains("cat (process 7) waits in the kernel"), "{seen}");
        let unseen = still_ending(id, None);
        assert_eq!((unseen.code, unseen.message.contains("kernel")), (ErrorCode::StillEnding, false), "{unseen}");
    }
}
