//! Looks at all sandboxes from time to time, on a thread of its own.
//!
//! Every sandbox is asked in a task of its own, and not again before it has answered: one that does not answer keeps nobody
//! waiting, and gathers no questions. Whether it took too long is for whoever hears the news to say.

use std::{
    collections::HashSet,
    thread,
    time::{Duration, Instant},
};

use glovebox_core::{Error, ErrorCode, Result, SandboxId};
use glovebox_engine::{Engine, SandboxStatus};
use glovebox_ledger::{Filter, Ledger, Summary};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Interval, MissedTickBehavior, interval},
};

use super::state::{Act, News};
use crate::verbs::runtime;

/// So many runs at work are listed, of all sandboxes together.
const MOST_RUNS: u32 = 1000;
/// Of so many runs of one sandbox it is asked what each uses: more than a screen shows.
const MOST_ASKED: usize = 50;

/// What the looker looks with.
pub(crate) struct Looker {
    pub(crate) engine: Engine,
    pub(crate) ledger: Ledger,
    pub(crate) interval: Duration,
    pub(crate) news: mpsc::Sender<News>,
    /// What is to be done.
    pub(crate) orders: mpsc::Receiver<(Act, SandboxId)>,
    /// The sandbox whose runs are looked at one by one.
    pub(crate) subject: watch::Receiver<Option<SandboxId>>,
}

impl Looker {
    /// Begins to look, until nobody hears the news any more.
    pub(crate) fn start(self) -> Result<()> {
        let cannot = |error| Error::new(ErrorCode::Internal, "cannot start a thread").because(error);
        let look = || match runtime() {
            Ok(runtime) => runtime.block_on(self.look()),
            Err(error) => drop(self.news.blocking_send(News::Sandboxes(Err(error)))),
        };
        thread::Builder::new().name("glovebox-looker".to_owned()).spawn(look).map(drop).map_err(cannot)
    }

    async fn look(mut self) {
        // Without groups of their own what runs use cannot be told apart.
        let apart = self.engine.features().await.is_ok_and(|features| features.run_groups);
        let mut ticks = interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut tasks = JoinSet::new();
        let mut asked = HashSet::new();
        let mut runs_asked = false;
        loop {
            let news = tokio::select! {
                _ = ticks.tick() => {
                    let listed = self.list().await;
                    if let Ok((all, runs)) = &listed {
                        self.ask(all, &mut asked, &mut tasks);
                        if apart && !runs_asked {
                            runs_asked = self.ask_runs(runs.as_deref().unwrap_or_default(), &mut tasks);
                        }
                    }
                    News::Sandboxes(listed)
                }
                Some((act, id)) = self.orders.recv() => {
                    tasks.spawn(do_it(self.engine.clone(), act, id));
                    continue;
                }
                Some(done) = tasks.join_next() => match done {
                    Ok(news) => news,
                    // A fault of ours ends this thread, and with it the program, loudly.
                    Err(fault) => match fault.try_into_panic() {
                        Ok(panic) => std::panic::resume_unwind(panic),
                        Err(_) => continue,
                    },
                },
            };
            match &news {
                News::Usage(id, ..) => drop(asked.remove(id)),
                News::Runs(..) => runs_asked = false,
                News::Acted(..) => look_soon(&mut ticks),
                News::Sandboxes(_) => {}
            }
            if self.news.send(news).await.is_err() {
                return;
            }
        }
    }

    async fn list(&self) -> Result<(Vec<SandboxStatus>, Option<Vec<Summary>>)> {
        let all = self.engine.sandboxes().await?;
        let filter = Filter { outcome: Some("running".to_owned()), limit: MOST_RUNS, ..Filter::default() };
        // A record that cannot be read keeps nobody from seeing the sandboxes; `runs list` says what is wrong with it.
        let runs = self.ledger.list(&filter).await.ok().map(|listed| listed.runs);
        Ok((all, runs))
    }

    fn ask(&self, all: &[SandboxStatus], asked: &mut HashSet<SandboxId>, tasks: &mut JoinSet<News>) {
        for status in all.iter().filter(|status| status.state.has_processes()) {
            let (id, engine) = (status.sandbox, self.engine.clone());
            if asked.insert(id) {
                tasks.spawn(async move {
                    let answer = engine.usage(&id.to_string()).await;
                    News::Usage(id, Instant::now(), answer)
                });
            }
        }
    }

    /// Asks what each run of the sandbox uses whose details are shown. Says whether there was one to ask.
    fn ask_runs(&self, runs: &[Summary], tasks: &mut JoinSet<News>) -> bool {
        let Some(id) = *self.subject.borrow() else { return false };
        let own = runs.iter().filter(|run| run.sandbox == id).take(MOST_ASKED);
        let (own, engine): (Vec<_>, _) = (own.map(|run| run.run).collect(), self.engine.clone());
        tasks.spawn(async move {
            let mut all = Vec::new();
            for run in own {
                // A run that is over by now is gone from the next list.
                if let Ok(usage) = engine.run_usage(&id.to_string(), run).await {
                    all.push((run, usage));
                }
            }
            News::Runs(id, Instant::now(), all)
        });
        true
    }
}

fn look_soon(ticks: &mut Interval) {
    ticks.reset_immediately();
}

async fn do_it(engine: Engine, act: Act, id: SandboxId) -> News {
    let text = id.to_string();
    let done = match act {
        Act::Pause => engine.pause(&text).await.map(drop),
        Act::Resume => engine.resume(&text).await.map(drop),
        Act::Destroy => engine.destroy(&text).await.map(drop),
    };
    News::Acted(act, id, done)
}
