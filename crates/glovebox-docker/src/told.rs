//! What an engine on another machine tells of a container, where nobody can read the counters of its kernel.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bollard::{
    models::ContainerStatsResponse,
    query_parameters::{EventsOptionsBuilder, StatsOptionsBuilder},
};
use futures_util::StreamExt;
use glovebox_core::{Evidence, Result, SandboxId, Usage, UsageNow};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    client::{Client, SLOW},
    counted::OWN_PROCESSES,
    owner,
};

/// The threads of a bridge.
pub(crate) const OF_A_BRIDGE: u64 = 2;

/// An engine tells of a kill for memory so long after it at most, where the kernel counted that memory was short.
const LATE: Duration = Duration::from_millis(500);

/// The same where it does not say whether memory was short.
const LATE_UNKNOWN: Duration = Duration::from_millis(50);

/// Hears of kills for memory in one container, from before its start or from when it was found.
#[derive(Debug)]
pub(crate) struct Ear {
    kills: watch::Receiver<u64>,
    /// How often memory had been short when it was looked at last.
    short: Arc<AtomicU64>,
    listening: JoinHandle<()>,
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
        Ear { kills, short: Arc::default(), listening }
    }

    /// How many kills there were, which an engine may tell of a moment after them.
    async fn kills(&self, short: Option<u64>) -> u64 {
        let mut kills = self.kills.clone();
        let known = *kills.borrow_and_update();
        let patience = match short {
            Some(times) if self.short.swap(times, Ordering::Relaxed) < times => LATE,
            Some(_) => return known,
            None => LATE_UNKNOWN,
        };
        let _ = tokio::time::timeout(patience, kills.changed()).await;
        *kills.borrow()
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

    /// What is known of a container's past.
    pub(crate) async fn evidence(&self, container: &str, ear: Option<&Ear>) -> Result<Evidence> {
        let told = self.stats(container).await?.unwrap_or_default();
        let short = told.memory_stats.as_ref().and_then(|memory| memory.failcnt);
        let memory_kills = match ear {
            Some(ear) => ear.kills(short).await,
            None => 0,
        };
        Ok(Evidence { usage: usage(&told), memory_kills, ..Evidence::unknown() })
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

    /// Whether a container has a network of its own with nothing in it, and its memory a limit, as the engine and its kernel say.
    pub(crate) async fn holds(&self, container: &str) -> Result<(bool, bool)> {
        let asked = self.docker.inspect_container(container, None);
        let seen = self.ask("look at a container", SLOW, asked).await?;
        let network = seen.host_config.as_ref().and_then(|host| host.network_mode.as_deref()) == Some("none");
        let asked_for = seen.host_config.and_then(|host| host.memory).and_then(|bytes| u64::try_from(bytes).ok());
        let limit = self.stats(container).await?.and_then(|told| told.memory_stats?.limit);
        Ok((network, limit.is_some() && limit == asked_for))
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
