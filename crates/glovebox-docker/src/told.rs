//! What an engine on another machine tells of a container, where nobody can read the counters of its kernel.
//!
//! Engines before 25.0 count once a second and answer then, so they are asked as rarely as can be: what they said at the end of a
//! run in a session is what the next one there begins with.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bollard::{
    models::ContainerStatsResponse,
    query_parameters::{EventsOptionsBuilder, StatsOptionsBuilder},
};
use futures_util::StreamExt;
use glovebox_core::{Evidence, Result, RunId, SandboxId, Usage, UsageNow};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    client::{Client, SLOW},
    counted::OWN_PROCESSES,
    owner,
};

/// The processes of a bridge, which carries all that one process of the host says to a guest.
pub(crate) const OF_A_BRIDGE: u64 = 1;

/// A busy engine tells of a kill for memory so long after it at most, where the kernel counted that memory was short.
const LATE: Duration = Duration::from_secs(2);

/// What was told so long ago is still true of a sandbox in which nothing ran since, or nearly so.
const RECENT: Duration = Duration::from_secs(10);

/// About so many runs and sessions of one sandbox is remembered how often was asked.
const MOST_ASKED: usize = 4096;

/// The same where it does not say whether memory was short.
const LATE_UNKNOWN: Duration = Duration::from_millis(50);

/// Hears of kills for memory in one container, from before its start or from when it was found.
#[derive(Debug)]
pub(crate) struct Ear {
    kills: watch::Receiver<u64>,
    memory: Mutex<Memory>,
    listening: JoinHandle<()>,
}

/// What was told before.
#[derive(Debug, Default)]
struct Memory {
    /// How often memory had been short.
    short: u64,
    /// How many kills there had been.
    kills: u64,
    /// What the last answer was.
    last: Option<(Instant, Evidence)>,
    /// How often was asked about each run, or each session.
    asked: HashMap<RunId, u64>,
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Ear {
    /// Begins to listen.
    pub(crate) fn new(client: &Client, id: SandboxId) -> Self {
        let (client, (tell, kills)) = (client.clone(), watch::channel(0));
        let filters = HashMap::from([
            ("type".to_owned(), vec!["container".to_owned()]),
            ("event".to_owned(), vec!["oom".to_owned()]),
            ("label".to_owned(), vec![format!("{}={id}", owner::SANDBOX)]),
        ]);
        let listening = tokio::spawn(async move {
            let options = EventsOptionsBuilder::new().filters(&filters).build();
            let mut events = std::pin::pin!(client.docker.events(Some(options)));
            while let Some(Ok(_)) = events.next().await {
                tell.send_modify(|kills| *kills += 1);
            }
        });
        Ear { kills, memory: Mutex::default(), listening }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known already for the beginning of a run in a session, whose last one has just ended. A session is asked about at the beginning
    /// and at the end of each of its runs; another run is at its end alone, or once more before it.
    fn known(&self, run: RunId) -> Option<Evidence> {
        let mut memory = self.memory();
        if memory.asked.len() >= MOST_ASKED {
            memory.asked.clear();
        }
        let times = memory.asked.entry(run).or_default();
        *times += 1;
        if *times < 3 || times.is_multiple_of(2) {
            return None;
        }
        memory.last.as_ref().filter(|(at, _)| at.elapsed() < RECENT).map(|(_, evidence)| evidence.clone())
    }

    /// How many kills there were, which an engine may tell of a moment after them.
    async fn kills(&self, short: Option<u64>) -> u64 {
        let mut kills = self.kills.clone();
        let known = *kills.borrow_and_update();
        let (is_short, is_told) = {
            let mut memory = self.memory();
            let is_short = short.map(|times| std::mem::replace(&mut memory.short, times) < times);
            (is_short, memory.kills < known)
        };
        let patience = match is_short {
            _ if is_told => Duration::ZERO,
            Some(true) => LATE,
            Some(false) => Duration::ZERO,
            None => LATE_UNKNOWN,
        };
        if !patience.is_zero() {
            let _ = tokio::time::timeout(patience, kills.changed()).await;
        }
        let kills = *kills.borrow();
        self.memory().kills = kills;
        kills
    }
}

impl Client {
    /// What an engine counted of a container, if it is there.
    async fn stats(&self, container: &str) -> Result<Option<ContainerStatsResponse>> {
        let options = StatsOptionsBuilder::new().stream(false).one_shot(true).build();
        let mut stats = std::pin::pin!(self.docker.stats(container, Some(options)));
        let asked = async {
            match stats.next().await {
                Some(answer) => answer.map(Some),
                None => Ok(None),
            }
        };
        Ok(self.ask_if_there("say what a container uses", SLOW, asked).await?.flatten())
    }

    /// What is known of a container's past, as a run in it begins or ends.
    pub(crate) async fn evidence(&self, container: &str, ear: Option<&Ear>, run: Option<RunId>) -> Result<Evidence> {
        if let Some(known) = ear.zip(run).and_then(|(ear, run)| ear.known(run)) {
            return Ok(known);
        }
        let told = self.stats(container).await?.unwrap_or_default();
        let short = told.memory_stats.as_ref().and_then(|memory| memory.failcnt);
        let mut evidence = Evidence { usage: usage(&told), ..Evidence::unknown() };
        if let Some(ear) = ear {
            evidence.memory_kills = ear.kills(short).await;
            ear.memory().last = Some((Instant::now(), evidence.clone()));
        }
        Ok(evidence)
    }

    /// What a container uses now.
    pub(crate) async fn usage(&self, container: &str) -> Result<UsageNow> {
        let asked = self.docker.inspect_container(container, None);
        let bridges = self.ask("look at a container", SLOW, asked).await?.exec_ids.map_or(0, |ids| ids.len() as u64);
        let told = self.stats(container).await?.unwrap_or_default();
        let memory = told.memory_stats.as_ref();
        let counted = |names: [&str; 2]| {
            let stats = memory.and_then(|memory| memory.stats.as_ref());
            names.iter().find_map(|name| stats.and_then(|stats| stats.get(*name))).copied().unwrap_or(0)
        };
        let cache = counted(["total_cache", "file"]).saturating_sub(counted(["total_shmem", "shmem"]));
        let tasks = told.pids_stats.as_ref().and_then(|pids| pids.current).unwrap_or(0);
        let Usage { cpu_ms, memory_peak_bytes, read_bytes, written_bytes, .. } = usage(&told);
        Ok(UsageNow {
            cpu_ms,
            memory_bytes: memory.and_then(|memory| memory.usage).unwrap_or(0).saturating_sub(cache),
            memory_peak_bytes,
            processes: tasks.saturating_sub(OWN_PROCESSES + OF_A_BRIDGE * bridges),
            read_bytes,
            written_bytes,
            disk_bytes: None,
        })
    }

    /// Whether a container has a network of its own with nothing in it, and its memory a limit, as the engine says of what it made. It takes a
    /// limit out of the description that its kernel cannot hold.
    pub(crate) async fn holds(&self, container: &str) -> Result<(bool, bool)> {
        let asked = self.docker.inspect_container(container, None);
        let seen = self.ask("look at a container", SLOW, asked).await?;
        let network = seen.host_config.as_ref().and_then(|host| host.network_mode.as_deref()) == Some("none");
        Ok((network, seen.host_config.and_then(|host| host.memory).is_some_and(|bytes| bytes > 0)))
    }
}

/// What was used until now. The most processes at a time are not told.
fn usage(told: &ContainerStatsResponse) -> Usage {
    let cpu = told.cpu_stats.as_ref().and_then(|cpu| cpu.cpu_usage.as_ref()).and_then(|cpu| cpu.total_usage);
    let memory = told.memory_stats.as_ref();
    let moved = told.blkio_stats.as_ref().and_then(|stats| stats.io_service_bytes_recursive.as_ref());
    let sum = |word: &str| {
        let of_word = moved
            .into_iter()
            .flatten()
            .filter(|entry| entry.op.as_deref().is_some_and(|op| op.eq_ignore_ascii_case(word)));
        of_word.filter_map(|entry| entry.value).sum()
    };
    Usage {
        cpu_ms: cpu.unwrap_or(0) as f64 / 1e6,
        memory_peak_bytes: memory.and_then(|memory| memory.max_usage.or(memory.usage)).unwrap_or(0),
        processes_peak: 0,
        read_bytes: sum("read"),
        written_bytes: sum("write"),
    }
}
