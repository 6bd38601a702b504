//! Signals that end a run, and the one that says that the terminal has another size.

use glovebox_core::{Error, ErrorCode, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C, a polite request to end, and a terminal that went away.
#[derive(Debug)]
pub(crate) struct EndSignals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl EndSignals {
    /// From now on these signals no longer end the process by themselves.
    pub(crate) fn listen() -> Result<Self> {
        Ok(EndSignals {
            interrupt: listen_to(SignalKind::interrupt())?,
            terminate: listen_to(SignalKind::terminate())?,
            hang_up: listen_to(SignalKind::hangup())?,
        })
    }

    /// Waits for the next of them.
    pub(crate) async fn next(&mut self) -> EndSignal {
        tokio::select! {
            _ = self.interrupt.recv() => EndSignal::Asked,
            _ = self.terminate.recv() => EndSignal::Asked,
            _ = self.hang_up.recv() => EndSignal::HungUp,
        }
    }
}

/// Which of them it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndSignal {
    /// Somebody wants an end.
    Asked,
    /// The terminal went away.
    HungUp,
}

/// Takes Ctrl-C from this process, for another one that has the terminal.
pub(crate) fn take_interrupt() -> Result<Signal> {
    let runtime = crate::verbs::runtime()?;
    let _within = runtime.enter();
    listen_to(SignalKind::interrupt())
}

/// The signal that the terminal has another size.
pub(crate) fn window_changes() -> Result<Signal> {
    listen_to(SignalKind::window_change())
}

fn listen_to(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(|error| Error::new(ErrorCode::HostIo, "cannot listen to signals").because(error))
}
