//! One call of a tool: who asked, whether they still want it, and how they are told that it goes on.

use std::time::Duration;

use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
    service::RequestContext,
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval_at},
};
use tokio_util::sync::CancellationToken;

/// How often a client that wants to know is told that a call goes on.
const TICK: Duration = Duration::from_millis(500);

/// One call of a tool.
pub(crate) struct Call {
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    cancelled: CancellationToken,
}

impl Call {
    /// The call of a request. It also ends when the conversation does.
    pub(crate) fn new(context: &RequestContext<RoleServer>, closing: &CancellationToken) -> Self {
        let cancelled = closing.child_token();
        let (ended, asked) = (cancelled.clone(), context.ct.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = asked.cancelled() => ended.cancel(),
                () = ended.cancelled() => {}
            }
        });
        Call { peer: context.peer.clone(), token: context.meta.get_progress_token(), cancelled }
    }

    /// Waits until nobody wants the answer any more.
    pub(crate) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// Begins to tell the client that the call goes on, if it wants to know.
    pub(crate) fn progress(&self) -> Progress {
        let (said, saying) = watch::channel(String::new());
        let task = self.token.clone().map(|token| tokio::spawn(tell(self.peer.clone(), token, saying)));
        Progress { said, task }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // The task that waits for a cancellation ends with the call.
        self.cancelled.cancel();
    }
}

/// Tells a client that a call goes on, for as long as this lives.
pub(crate) struct Progress {
    said: watch::Sender<String>,
    task: Option<JoinHandle<()>>,
}

impl Progress {
    /// What is said with the next notification.
    pub(crate) fn say(&self, message: String) {
        self.said.send_replace(message);
    }

    /// Whether anybody listens.
    pub(crate) fn is_wanted(&self) -> bool {
        self.task.is_some()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// One notification at a time: a client that does not read is not sent more.
async fn tell(peer: Peer<RoleServer>, token: ProgressToken, mut saying: watch::Receiver<String>) {
    let began = Instant::now();
    let mut ticks = interval_at(began + TICK, TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let message = match saying.borrow_and_update().clone() {
            said if said.is_empty() => format!("{} s", began.elapsed().as_secs()),
            said => said,
        };
        let progress = began.elapsed().as_secs_f64();
        let told = ProgressNotificationParam::new(token.clone(), progress).with_message(message);
        if peer.notify_progress(told).await.is_err() {
            return;
        }
    }
}
