//! The ledger itself: how runs get into it.
//!
//! Theory of operation. A row is begun before the command starts and says what a lost run would say. It is finished, with
//! all its files, in one transaction. Between the two an [`Owner`] shows that somebody will finish it; a reader that
//! finds a row without an owner marks it as lost. So a process that dies at any moment leaves no row, a row that becomes
//! a lost run, or a finished row, and never a part of one. SQL triggers refuse every change of a finished row.
//!
//! SQLite is opened when it is first needed, which for a run is while its sandbox is being made. The connection is left
//! open: closing the last one would copy the write-ahead log and wait for the disk, at the end of every run.

use std::{
    fs::{self, File},
    path::PathBuf,
    sync::Arc,
};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use glovebox_core::{Error, ErrorCode, OutputRecord, Result, RunId, RunResult};
use sqlx::{Connection, SqliteConnection, query};
use tokio::sync::{Mutex, MutexGuard};

use crate::{Blob, Blobs, Sha256Hash, document, owner::Owner, store};

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
        let folder = data_dir.into();
        let file = folder.join("ledger.db");
        Ledger { inner: Arc::new(Inner { folder, file, connection: Mutex::new(None) }) }
    }

    /// The blobs of this ledger.
    pub fn blobs(&self) -> Result<Blobs> {
        Blobs::open(self.inner.folder.join("blobs"))
    }

    /// Begins the row of a run, before its command starts. `if_lost` is the result that the run has when nobody is left
    /// to finish it.
    ///
    /// A row that cannot be begun is no reason not to run: [`Recording::finish`] tries again and says why it failed.
    pub async fn begin(&self, mut if_lost: RunResult) -> Recording {
        let run = if_lost.run;
        let owner = Owner::take(&self.running(), run).ok();
        if owner.is_some() {
            // Without an owner the row would be taken for a lost one.
            let _ = self.insert_begun(&mut if_lost).await;
        }
        Recording { ledger: self.clone(), run, _owner: owner }
    }

    async fn insert_begun(&self, if_lost: &mut RunResult) -> Result<()> {
        let document = document::without_output(if_lost)?;
        let mut connection = self.connection().await?;
        query("INSERT INTO runs (run, outcome, started_at, document) VALUES (?, 'running', ?, ?)")
            .bind(if_lost.run.to_string())
            .bind(if_lost.started_at.as_microsecond())
            .bind(document)
            .execute(connection.get()?)
            .await
            .map_err(|error| self.failed(error))?;
        Ok(())
    }

    pub(crate) fn running(&self) -> PathBuf {
        self.inner.folder.join("running")
    }

    pub(crate) fn is_there(&self) -> bool {
        self.inner.file.exists()
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

/// The right to finish the row of one run. Dropped unfinished, the run is lost.
pub struct Recording {
    ledger: Ledger,
    run: RunId,
    _owner: Option<Owner>,
}

impl Recording {
    /// Writes the finished run with its output and files, whole or not at all. Its secrets must be masked already.
    pub async fn finish(self, result: &mut RunResult, kept: Vec<KeptFile>) -> Result<()> {
        let document = document::without_output(result)?;
        let stdout = KeptFile { name: "stdout".into(), content: KeptContent::Bytes(content(&result.stdout)?) };
        let stderr = KeptFile { name: "stderr".into(), content: KeptContent::Bytes(content(&result.stderr)?) };
        let files = self.ledger.store_all([stdout, stderr].into_iter().chain(kept).collect()).await?;
        let mut connection = self.ledger.connection().await?;
        let written = self.write(connection.get()?, result, document, files).await;
        written.map_err(|error| self.ledger.failed(error))
    }

    async fn write(
        &self,
        connection: &mut SqliteConnection,
        result: &RunResult,
        document: String,
        files: Vec<Stored>,
    ) -> sqlx::Result<()> {
        let run = self.run.to_string();
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        for file in files {
            query("INSERT INTO files (run, name, sha256, bytes, content) VALUES (?, ?, ?, ?, ?)")
                .bind(&run)
                .bind(file.name)
                .bind(file.sha256.to_string())
                .bind(file.bytes as i64)
                .bind(file.content)
                .execute(&mut *transaction)
                .await?;
        }
        // The row is new where it could not be begun.
        query(
            "INSERT INTO runs (run, outcome, started_at, document) VALUES (?, ?, ?, ?) ON CONFLICT (run) DO UPDATE \
             SET outcome = excluded.outcome, started_at = excluded.started_at, document = excluded.document",
        )
        .bind(&run)
        .bind(result.outcome.kind())
        .bind(result.started_at.as_microsecond())
        .bind(document)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await
    }

    /// Removes the row of a run whose command never started: there was no run.
    pub async fn forget(self) -> Result<()> {
        let mut connection = self.ledger.connection().await?;
        query("DELETE FROM runs WHERE run = ? AND outcome = 'running'")
            .bind(self.run.to_string())
            .execute(connection.get()?)
            .await
            .map_err(|error| self.ledger.failed(error))?;
        Ok(())
    }
}

/// A file on its way into a row.
struct Stored {
    name: String,
    sha256: Sha256Hash,
    bytes: u64,
    content: Option<Vec<u8>>,
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
        if kept.is_empty() {
            return Ok(Vec::new());
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
