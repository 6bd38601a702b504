//! Looking at what a sandbox wrote, beside other work.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use glovebox_core::{ContentKeeper, GivenFile, LookFor, Outgrown, Result, WorkspaceLook};

use super::host_io;
use crate::{
    changes::{self, Layers, Written},
    sys, watch,
};

/// Looks at the files of a sandbox. How long that takes is up to what ran inside, so it must not hold up other sandboxes.
pub(super) async fn look_for_changes(
    store: OwnedFd,
    layers: Arc<Layers>,
    how: (Written, LookFor),
    given: &[GivenFile],
    keeper: Option<Arc<dyn ContentKeeper>>,
) -> Result<WorkspaceLook> {
    if let Some(untouched) = changes::untouched(store.as_fd(), &layers, how) {
        return Ok(untouched);
    }
    let (given, stop) = (given.to_vec(), StopOnDrop::default());
    let stopped = stop.0.clone();
    let walk = move || changes::collect(store.as_fd(), &layers, how, &given, keeper.as_deref(), &stopped);
    let collected = tokio::task::spawn_blocking(walk).await;
    collected.map_err(|error| host_io(io::Error::other(error)))?.map_err(host_io)
}

/// Waits until the watch over the disk of a one-shot sandbox says that it has outgrown its limit.
pub(super) async fn said_by_watch(watch: Option<OwnedFd>) -> Outgrown {
    let mut said = vec![0; watch::LONGEST_WORD];
    if let Some(watch) = watch.and_then(|watch| sys::register(watch).ok())
        && watch.readable().await.is_ok()
        // The end of the watch makes its pipe readable too, but empty.
        && let Ok(length) = rustix::io::read(watch.get_ref(), &mut said[..])
        && let Ok(outgrown) = serde_json::from_slice(&said[..length])
    {
        return outgrown;
    }
    std::future::pending().await
}

/// Tells a walk that nobody waits for it any more.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
