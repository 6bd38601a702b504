//! What the host saw of a sandbox, from what was counted and what is looked at.

use std::{io, os::fd::AsFd};

use glovebox_core::{Evidence, StoreUse, Tier, Usage};

use super::Made;
use crate::{cgroup::storage_bytes, plan::Counted, store};

/// What is seen of a sandbox besides its groups.
pub(super) struct Look {
    store: StoreUse,
    read_bytes: u64,
    written_bytes: u64,
}

impl Made {
    /// Looks while the guest lives.
    pub(super) fn look(&self) -> io::Result<Look> {
        let (read_bytes, written_bytes) = storage_bytes(self.guest_pid);
        let store = match self.tier {
            Tier::Namespaces => store::fullness(self.store.as_fd())?,
            // The folder has no end of its own; a watch tells when it is full.
            Tier::Landlock => Evidence::unknown().store,
        };
        Ok(Look { store, read_bytes, written_bytes })
    }
}

pub(super) fn evidence(counted: Counted, seen: Look) -> Evidence {
    Evidence {
        usage: Usage {
            cpu_ms: counted.cpu_ms,
            memory_peak_bytes: counted.memory_peak,
            processes_peak: counted.processes_peak,
            read_bytes: counted.storage.map_or(seen.read_bytes, |(read, _)| read),
            written_bytes: counted.storage.map_or(seen.written_bytes, |(_, written)| written),
        },
        memory_kills: counted.memory_kills + counted.watcher_kills,
        watched_memory: counted.watcher_kills > 0,
        pids_refused: counted.pids_refused,
        store: seen.store,
        of_run: counted.storage.is_some(),
    }
}
