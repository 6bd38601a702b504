//! Short ways to the files of a living sandbox.

use std::time::Duration;

use bytes::Bytes;
use glovebox_core::{ErrorCode, FilePath, Result};
use glovebox_engine::{Content, Entry, FileEvent, FileEvents, Files, Page, Range, Sandbox, WriteOptions};

/// Nothing that is asked of files takes so long, however hostile they are.
const LONGEST: Duration = Duration::from_secs(20);

/// A path below the working directory, or an absolute one.
pub(crate) fn path(bytes: impl AsRef<[u8]>) -> FilePath {
    let base = glovebox_core::InsidePath::absolute(glovebox_core::WORKING_DIR).expect("it is a path");
    FilePath::relative_to(&base, bytes).expect("the case names a path")
}

/// Waits, but not for ever: a request that hangs is a failure of the case.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONGEST, future).await.expect("a request about files hangs")
}

/// All bytes of a file, or of a part of it.
pub(crate) async fn read_range(files: &Files, name: impl AsRef<[u8]>, range: Range) -> Result<Vec<u8>> {
    soon(async {
        let mut stream = files.read(&path(name), range).await?;
        let mut all = Vec::new();
        while let Some(bytes) = stream.next().await? {
            all.extend_from_slice(&bytes);
        }
        Ok(all)
    })
    .await
}

/// All bytes of a file.
pub(crate) async fn read(files: &Files, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
    read_range(files, name, Range::default()).await
}

/// Writes a file.
pub(crate) async fn write(files: &Files, name: impl AsRef<[u8]>, bytes: impl Into<Bytes>) -> Result<u64> {
    soon(files.write(&path(name), WriteOptions::default(), Content::Bytes(bytes.into()))).await
}

/// All entries of a folder, by name.
pub(crate) async fn list(files: &Files, name: impl AsRef<[u8]>) -> Vec<Entry> {
    soon(async {
        let mut entries = files.list(&path(name), Page::default()).await.expect("the folder can be listed");
        let mut all = Vec::new();
        while let Some(entry) = entries.next().await.expect("the listing goes on") {
            all.push(entry);
        }
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    })
    .await
}

/// The names of a folder.
pub(crate) async fn names(files: &Files, name: impl AsRef<[u8]>) -> Vec<String> {
    list(files, name).await.iter().map(|entry| glovebox_core::shown(entry.path.name())).collect()
}

/// Asserts that something is refused with a code.
#[track_caller]
pub(crate) fn expect_refused<T>(result: Result<T>, code: ErrorCode) {
    match result {
        Ok(_) => panic!("it was done, and {code} was expected"),
        Err(error) => assert_eq!(error.code, code, "{error}"),
    }
}

/// The next event of a watch.
pub(crate) async fn next_event(events: &mut FileEvents) -> FileEvent {
    soon(events.next()).await.expect("the watch goes on").expect("what is watched is still there")
}

/// Ends a sandbox and waits for it.
pub(crate) async fn destroy(sandbox: Sandbox) {
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}
