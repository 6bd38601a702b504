//! Handles by which a run is steered from elsewhere.

use tokio::sync::{mpsc, watch};

use crate::TerminalSize;

/// Cancels a run.
#[derive(Clone, Debug)]
pub struct Canceller(pub(crate) watch::Sender<bool>);

impl Canceller {
    /// Ends the run at once. It does not wait; the run's result then says `cancelled`.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }
}

/// Changes the size of a run's terminal.
#[derive(Clone, Debug)]
pub struct TerminalHandle(pub(crate) mpsc::UnboundedSender<TerminalSize>);

impl TerminalHandle {
    /// Tells the terminal's new size.
    pub fn resize(&self, size: TerminalSize) {
        // A run that is over has no terminal; nobody needs to hear of it.
        let _ = self.0.send(size);
    }
}
