//! Runs in living sandboxes whose process died: they go on, and wait for somebody who follows them again.

use glovebox_core::{Result, RunId, RunResult, SandboxId};

use crate::{
    Ledger, Recording,
    document::unreadable,
    under_way::{Noted, Owner},
};

/// A run that nobody follows, though it may go on in its sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfollowed {
    /// The run.
    pub run: RunId,
    /// The sandbox that knows what became of it.
    pub sandbox: SandboxId,
}

/// What the ledger knows of a run before its end.
pub enum UnderWay {
    /// Nobody followed it; from now on whoever holds this does. With the result that the run has when it is lost.
    Taken(Recording, Box<RunResult>),
    /// Somebody else follows it and will record it.
    Followed,
    /// It is not under way, or is not to be recorded.
    NotNoted,
}

impl Ledger {
    /// The runs that nobody follows. Their sandboxes must be asked what became of them.
    pub fn unfollowed(&self) -> Result<Vec<Unfollowed>> {
        let noted = self.noted()?;
        let unfollowed = noted.iter().filter(|noted| noted.abandoned.is_some() && !self.waits_in_inbox(noted.run));
        Ok(unfollowed.filter_map(|noted| Some(Unfollowed { run: noted.run, sandbox: noted.living? })).collect())
    }

    /// Takes over the recording of a run in a living sandbox that nobody follows.
    pub fn take_over(&self, run: RunId) -> Result<UnderWay> {
        match self.find_noted(run)? {
            Some((_, Some(owner))) if self.waits_in_inbox(run) => {
                owner.end();
                Ok(UnderWay::NotNoted)
            }
            Some((noted, Some(owner))) if noted.living.is_some() => {
                let if_lost: RunResult = serde_json::from_str(&noted.if_lost.text()?).map_err(unreadable)?;
                let recording = Recording { ledger: self.clone(), run, owner: Some(owner) };
                Ok(UnderWay::Taken(recording, Box::new(if_lost)))
            }
            Some(_) => Ok(UnderWay::Followed),
            None => Ok(UnderWay::NotNoted),
        }
    }

    /// Records a run as lost that nobody follows and that its sandbox does not know any more. Says whether it was there to be
    /// recorded.
    pub async fn give_up(&self, run: RunId) -> Result<bool> {
        match self.find_noted(run)? {
            Some((noted, Some(owner))) => self.write_lost(&noted, owner).await.map(|()| true),
            _ => Ok(false),
        }
    }

    fn find_noted(&self, run: RunId) -> Result<Option<(Noted, Option<Owner>)>> {
        let found = self.noted()?.into_iter().find(|noted| noted.run == run);
        Ok(found.map(|mut noted| {
            let owner = noted.abandoned.take();
            (noted, owner)
        }))
    }
}
