//! Reaping: PID 1 is the parent of every orphan, and of every command.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use glovebox_proto::Exited;
use rustix::process::{Pid, WaitOptions, WaitStatus};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

#[derive(Default)]
struct State {
    waiting: HashMap<i32, oneshot::Sender<Exited>>,
    /// Ends of processes that nobody waits for yet. Kept only while a command is being started, because its end can
    /// come before the answer that tells its process id.
    early: HashMap<i32, Exited>,
    starting: usize,
}

/// Knows who waits for which process.
#[derive(Clone, Default)]
pub(crate) struct Reaper(Rc<RefCell<State>>);

impl Reaper {
    /// Reaps for as long as the guest lives.
    pub(crate) async fn serve(self) -> std::io::Result<()> {
        let mut children = signal(SignalKind::child())?;
        loop {
            self.reap();
            children.recv().await;
        }
    }

    /// Reaps all that are dead.
    pub(crate) fn reap(&self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let mut state = self.0.borrow_mut();
            let pid = Pid::as_raw(Some(pid));
            match state.waiting.remove(&pid) {
                // The run may be gone already; then nobody wants to know.
                Some(sender) => drop(sender.send(exited(status))),
                None if state.starting > 0 => drop(state.early.insert(pid, exited(status))),
                None => {}
            }
        }
    }

    /// Whether a process that was started has not been waited for, so that its id is nobody else's.
    pub(crate) fn has(&self, pid: i32) -> bool {
        self.0.borrow().waiting.contains_key(&pid)
    }

    /// Announces that a command is being started.
    pub(crate) fn starting(&self) {
        self.0.borrow_mut().starting += 1;
    }

    /// Tells the process id of the command that was being started, if it started, and waits for its end.
    pub(crate) fn started(&self, pid: Option<i32>) -> oneshot::Receiver<Exited> {
        let mut state = self.0.borrow_mut();
        let (sender, receiver) = oneshot::channel();
        if let Some(pid) = pid {
            match state.early.remove(&pid) {
                Some(end) => drop(sender.send(end)),
                None => drop(state.waiting.insert(pid, sender)),
            }
        }
        state.starting -= 1;
        if state.starting == 0 {
            state.early.clear();
        }
        receiver
    }
}

fn exited(status: WaitStatus) -> Exited {
    Exited { code: status.exit_status(), signal: status.terminating_signal(), ..Exited::default() }
}
