//! How much one engine does at one time.

use std::sync::Arc;

use glovebox_core::{Error, ErrorCode, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many sandboxes and runs of an engine there may be at one time. The default is any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineLimits {
    /// Sandboxes, those of one-shot runs included.
    pub sandboxes: Option<usize>,
    /// Runs, in all sandboxes together.
    pub runs: Option<usize>,
    /// What happens to one more.
    pub when_full: WhenFull,
}

/// What happens when there are as many as there may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// One more waits until another ends; whoever came first is first.
    #[default]
    Wait,
    /// One more is refused with [`ErrorCode::TooMany`].
    Refuse,
}

/// A place among those that there are. Given back when it is dropped.
pub(crate) type Slot = Option<OwnedSemaphorePermit>;

/// The places of an engine.
#[derive(Clone, Default)]
pub(crate) struct Slots {
    sandboxes: Option<Places>,
    runs: Option<Places>,
}

#[derive(Clone)]
struct Places {
    free: Arc<Semaphore>,
    most: usize,
    when_full: WhenFull,
}

impl Slots {
    pub(crate) fn new(limits: EngineLimits) -> Self {
        let places = |most: usize| Places {
            free: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            most,
            when_full: limits.when_full,
        };
        Slots { sandboxes: limits.sandboxes.map(places), runs: limits.runs.map(places) }
    }

    /// A place for a sandbox.
    pub(crate) async fn sandbox(&self) -> Result<Slot> {
        take(self.sandboxes.as_ref(), "sandboxes").await
    }

    /// A place for a run.
    pub(crate) async fn run(&self) -> Result<Slot> {
        take(self.runs.as_ref(), "runs").await
    }
}

async fn take(places: Option<&Places>, what: &str) -> Result<Slot> {
    let Some(Places { free, most, when_full }) = places else { return Ok(None) };
    let free = free.clone();
    let taken = match when_full {
        WhenFull::Wait => free.acquire_owned().await.ok(),
        WhenFull::Refuse => free.try_acquire_owned().ok(),
    };
    taken.map(Some).ok_or_else(|| {
        let message = format!("there are {most} {what} already, as many as this engine may have at one time");
        Error::new(ErrorCode::TooMany, message).hint(format!("wait for one of the {what} to end, or raise the limit"))
    })
}
