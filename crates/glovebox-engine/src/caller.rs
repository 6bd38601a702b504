//! Whoever wants a run, as its driver sees them.

use std::future::pending;

use tokio::sync::{mpsc, watch};

use crate::Event;

/// Whoever wants a run.
pub(crate) struct Caller {
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) orders: Orders,
}

/// How the caller ends a run.
pub(crate) struct Orders {
    pub(crate) cancelled: watch::Receiver<bool>,
    /// The run goes on when nobody holds it any more.
    pub(crate) detaches: bool,
}

impl Orders {
    /// Waits until the run is to end: because the caller says so or, where runs do not go on alone, drops it.
    pub(crate) async fn end_wanted(&mut self, events: &mpsc::Sender<Event>) {
        let detaches = self.detaches;
        tokio::select! {
            () = asked_to_cancel(&mut self.cancelled) => {}
            () = events.closed(), if !detaches => {}
        }
    }
}

async fn asked_to_cancel(cancelled: &mut watch::Receiver<bool>) {
    let nobody_left = cancelled.wait_for(|asked| *asked).await.is_err();
    if nobody_left {
        pending().await
    }
}
