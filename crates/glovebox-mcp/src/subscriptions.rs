//! Tells a client that a file of the workspace was changed, for as long as it wants to know.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use glovebox_core::{Error, ErrorCode, FilePath, Result};
use glovebox_engine::{FileEvent, FileEvents, Recursion};
use tokio_util::sync::CancellationToken;

use crate::{conversation::Conversation, resources::path_of};

/// So many files a client can ask about at one time.
pub(crate) const MOST: usize = 64;
/// A file is told of at most so often, however often it is written.
const PAUSE: Duration = Duration::from_millis(200);

/// What a client asked to be told of, by its address.
#[derive(Clone, Default)]
pub(crate) struct Subscriptions(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    begun: u64,
    by_uri: HashMap<String, (u64, CancellationToken)>,
}

/// A client is told of one resource for as long as this lives.
pub(crate) struct Subscription {
    all: Subscriptions,
    uri: String,
    number: u64,
    ended: CancellationToken,
}

impl Subscriptions {
    /// Notes one. Ends with `closing`, when it is taken back, or when the same is asked for again.
    pub(crate) fn begin(&self, uri: &str, closing: &CancellationToken) -> Result<Subscription> {
        let mut table = self.table();
        if table.by_uri.len() >= MOST && !table.by_uri.contains_key(uri) {
            return Err(Error::new(
                ErrorCode::TooMany,
                format!("a client can be told of {MOST} resources at one time"),
            ));
        }
        table.begun += 1;
        let (number, ended) = (table.begun, closing.child_token());
        if let Some((_, before)) = table.by_uri.insert(uri.to_owned(), (number, ended.clone())) {
            before.cancel();
        }
        Ok(Subscription { all: self.clone(), uri: uri.to_owned(), number, ended })
    }

    /// Takes one back.
    pub(crate) fn end(&self, uri: &str) {
        if let Some((_, ended)) = self.table().by_uri.remove(uri) {
            ended.cancel();
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(|lock| lock.into_inner())
    }
}

impl Subscription {
    /// Waits until nobody wants to be told any more.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut table = self.all.table();
        // Another one may have taken its place.
        if table.by_uri.get(&self.uri).is_some_and(|(number, _)| *number == self.number) {
            table.by_uri.remove(&self.uri);
        }
    }
}

/// A file that is watched.
pub(crate) struct Watched {
    path: FilePath,
    events: FileEvents,
}

impl Watched {
    /// Begins to watch the file of an address. Its folder is watched, since whoever writes a file may replace it.
    pub(crate) async fn begin(talk: &Conversation, uri: &str) -> Result<Watched> {
        let path = path_of(uri)?;
        let bytes = path.as_bytes();
        let end = bytes.iter().rposition(|byte| *byte == b'/').filter(|at| *at > 0).unwrap_or(1);
        let folder = FilePath::absolute(&bytes[..end])?;
        let events = talk.files().await?.watch(&folder, Recursion::None).await?;
        Ok(Watched { path, events })
    }

    /// Waits until the file was changed, or cannot be watched any more. Says whether it can.
    pub(crate) async fn changed(&mut self) -> bool {
        loop {
            let is_it = |path: &FilePath| *path == self.path;
            match self.events.next().await {
                Ok(Some(
                    FileEvent::Create { path, .. } | FileEvent::Write { path } | FileEvent::Remove { path, .. },
                )) if is_it(&path) => {}
                Ok(Some(FileEvent::Rename { from, to, .. })) if is_it(&from) || is_it(&to) => {}
                // What was lost may have been of this file.
                Ok(Some(FileEvent::Lost { .. })) => {}
                Ok(Some(_)) => continue,
                Ok(None) | Err(_) => return false,
            }
            tokio::time::sleep(PAUSE).await;
            return true;
        }
    }
}
