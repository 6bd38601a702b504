//! The ledger itself: how runs get into it.
//!
//! Theory of operation. A run is noted as under way before its command starts, in a file that its process keeps locked
//! and that holds the document of a lost run. When the run is over, its row and its files are written in one transaction,
//! and the note is removed. A reader that finds a note without a process writes the row of a lost run, or leaves the note to
//! somebody who can ask the living sandbox that it names. So a process that
//! dies at any moment leaves nothing, a lost run, or a finished one, and never a part of one. Triggers of the database
//! refuse every change of a row.
//!
//! A process that records many runs opens SQLite while the first sandbox is being made. The connection is left open: closing the
//! last one would copy the write-ahead log and wait for the disk, at the end of every run. A process that records one run leaves
//! it in the inbox.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use glovebox_core::{Error, ErrorCode, OutputRecord, Result, ResultRecord, RunId, RunResult, SandboxId};
use sqlx::{Connection, SqliteConnection, query, query_scalar};
use tokio::sync::{Mutex, MutexGuard};

use crate::{
    Blob, Blobs, Sha256Hash, document,
    inbox::{Inbox, MOST_AT_ONCE, Taken},
    store,
    under_way::Owner,
};

/// Content up to this size is stored in the row of its file: a file of its own would cost more than it saves.
const SMALL: u64 = 16 * 1024;

/// The durable record of runs below one data folder. Cheap to clone; any number of processes may use the same folder.
#[derive(Clone)]
pub struct Ledger {
    inner: Arc<Inner>,
}

struct Inner {
    folder: PathBuf,
    file: PathBuf,
    connection: Mutex<Option<SqliteConnection>>,
    /// Where finished runs are left for others to take in.
    inbox: Inbox,
    for_one_run: bool,
}

/// A file of a run that is to be kept with it.
#[derive(Clone, Debug)]
pub struct KeptFile {
    /// Its name in an export of the run, such as `artifacts/outputs/a.png`.
    pub name: String,
    /// Its content.
    pub content: KeptContent,
}

/// Where the content of a kept file is.
#[derive(Clone, Debug)]
pub enum KeptContent {
    /// Here.
    Bytes(Vec<u8>),
    /// In a file of the host.
    Host(PathBuf),
    /// Among the blobs already.
    Stored(Blob),
}

impl Ledger {
    /// The ledger below a data folder. Nothing is read or made before it is used.
    pub fn below(data_dir: impl Into<PathBuf>) -> Ledger {
        Ledger::new(data_dir.into(), false)
    }

    /// The same for a process that records one run and ends. It does not open the database, which would take longer than a
    /// short run, but leaves the run beside it, for whoever reads the ledger next.
    pub fn for_one_run(data_dir: impl Into<PathBuf>) -> Ledger {
        Ledger::new(data_dir.into(), true)
    }

    fn new(folder: PathBuf, for_one_run: bool) -> Ledger {
        let file = folder.join("ledger.db");
        let inbox = Inbox::of(folder.join("finished"), file.clone());
        Ledger { inner: Arc::new(Inner { folder, file, connection: Mutex::new(None), inbox, for_one_run }) }
    }

    /// The blobs of this ledger.
    pub fn blobs(&self) -> Result<Blobs> {
        Blobs::open(self.blobs_folder())
    }

    pub(crate) fn has_blobs(&self) -> bool {
        self.blobs_folder().is_dir()
    }

    fn blobs_folder(&self) -> PathBuf {
        self.inner.folder.join("blobs")
    }

    /// Notes that a run is under way, before its command starts. `if_lost` is the result that the run has when nobody is
    /// left to finish it. Must be called within a tokio runtime.
    ///
    /// A run that cannot be noted is run all the same: [`Recording::finish`] says when it cannot be recorded either.
    pub fn begin(&self, if_lost: RunResult) -> Recording {
        self.begin_in(if_lost, None)
    }

    /// The same as [`Ledger::begin`] for a run in a sandbox that outlives this process, and with it the run. When nobody is
    /// left to finish it, it is not lost but waits to be taken over: [`Ledger::unfollowed`].
    pub fn begin_in_living(&self, if_lost: RunResult) -> Recording {
        let sandbox = if_lost.sandbox;
        self.begin_in(if_lost, Some(sandbox))
    }

    fn begin_in(&self, mut if_lost: RunResult, living: Option<SandboxId>) -> Recording {
        let run = if_lost.run;
        let document = document::without_output(&mut if_lost).ok();
        let owner = document.and_then(|document| Owner::begin(&self.under_way(), run, living, &document).ok());
        if !self.inner.for_one_run {
            // What fails now fails again when the run is over, and is said then.
            let ledger = self.clone();
            tokio::spawn(async move { ledger.connection().await.map(drop) });
        }
        Recording { ledger: self.clone(), run, owner }
    }

    pub(crate) fn under_way(&self) -> PathBuf {
        self.inner.folder.join("running")
    }

    /// Whether there is a database. A folder that may not be looked into is no empty ledger.
    pub(crate) fn is_there(&self) -> Result<bool> {
        let file = &self.inner.file;
        file.try_exists().map_err(|error| store::unavailable(file).because(error))
    }

    /// The file of the database.
    pub(crate) fn place(&self) -> &Path {
        &self.inner.file
    }

    pub(crate) fn failed(&self, error: sqlx::Error) -> Error {
        store::failed(&self.inner.file, error)
    }

    /// The connection, which is opened now when it is not open yet.
    pub(crate) async fn connection(&self) -> Result<Opened<'_>> {
        let mut guard = self.inner.connection.lock().await;
        if guard.is_none() {
            *guard = Some(store::open(&self.inner.file).await?);
        }
        Ok(Opened(guard))
    }
}

/// The connection while it is in use.
pub(crate) struct Opened<'a>(MutexGuard<'a, Option<SqliteConnection>>);

impl Opened<'_> {
    pub(crate) fn get(&mut self) -> Result<&mut SqliteConnection> {
        self.0.as_mut().ok_or_else(|| Error::new(ErrorCode::Internal, "the ledger is not open"))
    }
}

/// The right to record one run. Dropped without a word, the run is lost, or waits to be taken over.
pub struct Recording {
    pub(crate) ledger: Ledger,
    pub(crate) run: RunId,
    pub(crate) owner: Option<Owner>,
}

impl Recording {
    /// Writes the finished run with its output and files, whole or not at all. Its secrets must be masked already.
    pub async fn finish(self, result: &mut RunResult, kept: Vec<KeptFile>) -> Result<()> {
        let written = self.write(result, kept).await;
        // Also after a failure, of which the caller is told: a run that is known to have finished is not a lost one.
        self.forget();
        written
    }

    async fn write(&self, result: &mut RunResult, kept: Vec<KeptFile>) -> Result<()> {
        let document = document::without_output(result)?;
        let stdout = KeptFile { name: "stdout".into(), content: KeptContent::Bytes(content(&result.stdout)?) };
        let stderr = KeptFile { name: "stderr".into(), content: KeptContent::Bytes(content(&result.stderr)?) };
        let shown = result.results.iter().flatten().enumerate().map(|(number, shown)| KeptFile {
            name: result_file(number, shown),
            content: KeptContent::Bytes(shown.to_bytes()),
        });
        let files = [stdout, stderr].into_iter().chain(shown).chain(kept).collect();
        let files = self.ledger.store_all(files).await?;
        let (outcome, started_at) = (result.outcome.kind().to_owned(), result.started_at.as_microsecond());
        let row = Ended { run: self.run, outcome, started_at, document };
        self.ledger.keep(&row, &files).await
    }

    /// There is nothing to record: the command never started.
    pub fn forget(self) {
        if let Some(owner) = self.owner {
            owner.end();
        }
    }
}

/// The name in an export of something that a run showed.
pub(crate) fn result_file(number: usize, shown: &ResultRecord) -> String {
    format!("results/{number}.{}", shown.ending())
}

/// A run that is over, on its way into a row.
pub(crate) struct Ended {
    pub(crate) run: RunId,
    pub(crate) outcome: String,
    /// Microseconds since 1970.
    pub(crate) started_at: i64,
    pub(crate) document: String,
}

impl Ledger {
    /// Keeps a run that is over: in the inbox where that spares opening the database, else in its row.
    async fn keep(&self, row: &Ended, files: &[Stored]) -> Result<()> {
        let spares = self.inner.for_one_run && self.inner.connection.lock().await.is_none();
        if !spares || !self.inner.inbox.put(row, files).unwrap_or(false) {
            return self.insert(row, files).await;
        }
        if Inbox::is_emptied_after(row.run) {
            // This run is recorded; what is wrong with the database is said by whoever reads.
            let _ = self.take_in().await;
        }
        Ok(())
    }

    /// Whether a run is over and waits in the inbox.
    pub(crate) fn waits_in_inbox(&self, run: RunId) -> bool {
        self.inner.inbox.has(run)
    }

    /// Takes the runs of the inbox into the database.
    pub(crate) async fn take_in(&self) -> Result<()> {
        while self.take_in_some().await? {}
        Ok(())
    }

    /// Takes some of them. Says whether there may be more.
    async fn take_in_some(&self) -> Result<bool> {
        let taken = self.inner.inbox.read().map_err(|error| store::unavailable(self.place()).because(error))?;
        if taken.is_empty() {
            return Ok(false);
        }
        let mut connection = self.connection().await?;
        let connection = connection.get()?;
        let written = async {
            let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
            for Taken { row, files, .. } in &taken {
                // Another reader may have been faster, or have died before it could remove the file.
                let is_there: Option<i64> = query_scalar("SELECT 1 FROM runs WHERE run = ?")
                    .bind(row.run.to_string())
                    .fetch_optional(&mut *transaction)
                    .await?;
                if is_there.is_none() {
                    insert_all(&mut transaction, row, files).await?;
                }
            }
            transaction.commit().await
        };
        written.await.map_err(|error| self.failed(error))?;
        let more = taken.len() == MOST_AT_ONCE;
        let removed = taken.into_iter().map(Taken::remove).filter(|removed| *removed).count();
        // One that cannot be removed would be met again and again.
        Ok(more && removed > 0)
    }

    async fn insert(&self, row: &Ended, files: &[Stored]) -> Result<()> {
        let mut connection = self.connection().await?;
        let connection = connection.get()?;
        let written = async {
            if files.is_empty() {
                return insert_row(connection, row).await;
            }
            let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
            insert_all(&mut transaction, row, files).await?;
            transaction.commit().await
        };
        written.await.map_err(|error| self.failed(error))
    }

    /// Writes the row of a run that nobody is left to finish, unless it was finished just before its process died.
    pub(crate) async fn insert_lost(&self, row: &Ended) -> Result<()> {
        let mut connection = self.connection().await?;
        query(
            "INSERT INTO runs (run, outcome, started_at, document) SELECT ?1, ?2, ?3, ?4 \
             WHERE NOT EXISTS (SELECT 1 FROM runs WHERE run = ?1)",
        )
        .bind(row.run.to_string())
        .bind(&row.outcome)
        .bind(row.started_at)
        .bind(&row.document)
        .execute(connection.get()?)
        .await
        .map_err(|error| self.failed(error))?;
        Ok(())
    }
}

/// The files of a run, then its row.
async fn insert_all(connection: &mut SqliteConnection, row: &Ended, files: &[Stored]) -> sqlx::Result<()> {
    for file in files {
        insert_file(connection, row.run, file).await?;
    }
    insert_row(connection, row).await
}

async fn insert_row(connection: &mut SqliteConnection, row: &Ended) -> sqlx::Result<()> {
    query("INSERT INTO runs (run, outcome, started_at, document) VALUES (?, ?, ?, ?)")
        .bind(row.run.to_string())
        .bind(&row.outcome)
        .bind(row.started_at)
        .bind(&row.document)
        .execute(connection)
        .await
        .map(drop)
}

async fn insert_file(connection: &mut SqliteConnection, run: RunId, file: &Stored) -> sqlx::Result<()> {
    query("INSERT INTO files (run, name, sha256, bytes, content) VALUES (?, ?, ?, ?, ?)")
        .bind(run.to_string())
        .bind(&file.name)
        .bind(file.sha256.to_string())
        .bind(file.bytes as i64)
        .bind(file.content.as_deref())
        .execute(connection)
        .await
        .map(drop)
}

/// A file on its way into a row.
pub(crate) struct Stored {
    pub(crate) name: String,
    pub(crate) sha256: Sha256Hash,
    pub(crate) bytes: u64,
    pub(crate) content: Option<Vec<u8>>,
}

impl Stored {
    fn blob(name: String, blob: Blob) -> Self {
        Stored { name, sha256: blob.sha256, bytes: blob.bytes, content: None }
    }

    fn small(name: String, content: Vec<u8>) -> Self {
        Stored { name, sha256: Sha256Hash::of(&content), bytes: content.len() as u64, content: Some(content) }
    }
}

impl Ledger {
    /// Stores what is large among the blobs, away from the thread that serves other runs. An empty stream is no file.
    async fn store_all(&self, mut kept: Vec<KeptFile>) -> Result<Vec<Stored>> {
        kept.retain(|file| !matches!(&file.content, KeptContent::Bytes(bytes) if bytes.is_empty()));
        let small = |file: &KeptFile| matches!(&file.content, KeptContent::Bytes(bytes) if bytes.len() as u64 <= SMALL);
        if kept.iter().all(small) {
            return kept.into_iter().map(|file| self.store(file)).collect();
        }
        let ledger = self.clone();
        let storing = tokio::task::spawn_blocking(move || kept.into_iter().map(|file| ledger.store(file)).collect());
        storing.await.map_err(|error| Error::new(ErrorCode::Internal, "storing files was cut short").because(error))?
    }

    fn store(&self, KeptFile { name, content }: KeptFile) -> Result<Stored> {
        let (source, bytes) = match content {
            KeptContent::Stored(blob) => return Ok(Stored::blob(name, blob)),
            KeptContent::Bytes(content) if content.len() as u64 <= SMALL => return Ok(Stored::small(name, content)),
            KeptContent::Bytes(content) => return Ok(Stored::blob(name, self.blobs()?.put(&content[..])?)),
            KeptContent::Host(source) => {
                let bytes = source.metadata().map(|metadata| metadata.len());
                (source, bytes)
            }
        };
        let unreadable = |error| {
            let message = format!("{} cannot be kept in the ledger", source.display());
            Error::new(ErrorCode::LedgerUnavailable, message).because(error)
        };
        if bytes.map_err(unreadable)? <= SMALL {
            return Ok(Stored::small(name, fs::read(&source).map_err(unreadable)?));
        }
        Ok(Stored::blob(name, self.blobs()?.put(File::open(&source).map_err(unreadable)?)?))
    }
}

/// The bytes that a stream's record holds.
fn content(stream: &OutputRecord) -> Result<Vec<u8>> {
    match (&stream.text, &stream.base64) {
        (Some(text), _) => Ok(text.clone().into_bytes()),
        (None, Some(base64)) => BASE64_STANDARD
            .decode(base64)
            .map_err(|error| Error::new(ErrorCode::Internal, "a stream's base64 cannot be read").because(error)),
        (None, None) => Ok(Vec::new()),
    }
}
