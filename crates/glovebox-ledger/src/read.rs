//! How runs are found again.

use std::{collections::BTreeMap, io::Read};

use glovebox_core::{Error, ErrorCode, Outcome, OutputRecord, Result, RunId, SandboxId, Usage};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::{Row, SqliteConnection, query, query_scalar, sqlite::SqliteRow};

use crate::{
    Ledger, Sha256Hash,
    document::{Object, unreadable},
    owner,
};

/// Which runs to list. The default is the newest 50.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Only runs with this kind of outcome, or `running`.
    pub outcome: Option<String>,
    /// Only runs with all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Only runs that started at this time or later.
    pub since: Option<Timestamp>,
    /// Only runs with this folder of the host under their working directory, writes staying inside.
    pub workspace: Option<String>,
    /// Only runs before this one, for the next page.
    pub before: Option<RunId>,
    /// At most so many.
    pub limit: u32,
}

impl Default for Filter {
    fn default() -> Self {
        Filter { outcome: None, labels: BTreeMap::new(), since: None, workspace: None, before: None, limit: 50 }
    }
}

/// A run in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The run.
    pub run: RunId,
    /// The sandbox that it ran in.
    pub sandbox: SandboxId,
    /// The backend that made the sandbox.
    pub backend: String,
    /// The image.
    pub image: String,
    /// The project, if any.
    pub project: Option<String>,
    /// The caller's labels.
    pub labels: BTreeMap<String, String>,
    /// What ran.
    pub command: ListedCommand,
    /// How it ended; nothing while it is under way.
    pub outcome: Option<Outcome>,
    /// When it started.
    pub started_at: Timestamp,
    /// Wall time, milliseconds; nothing while it is under way or when it is lost.
    pub duration_ms: Option<f64>,
    /// What it used.
    pub usage: Usage,
}

/// The command of a run in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedCommand {
    /// The program and its arguments.
    pub argv: Vec<String>,
}

/// A page of a list, newest first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listed {
    /// The runs.
    pub runs: Vec<Summary>,
    /// Where the next page begins, if there is one: [`Filter::before`].
    pub next: Option<RunId>,
}

/// One of the streams of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

impl Ledger {
    /// Lists runs.
    pub async fn list(&self, filter: &Filter) -> Result<Listed> {
        if !self.is_there() {
            return Ok(Listed { runs: Vec::new(), next: None });
        }
        let labels = serde_json::to_string(&filter.labels).map_err(unreadable)?;
        let mut connection = self.connection().await?;
        self.mark_lost(connection.get()?).await?;
        let rows = query(
            "SELECT outcome, document FROM runs WHERE (?1 IS NULL OR run < ?1) AND (?2 IS NULL OR outcome = ?2) \
             AND (?3 IS NULL OR started_at >= ?3) AND NOT EXISTS (SELECT 1 FROM json_each(?4) AS wanted \
             WHERE NOT EXISTS (SELECT 1 FROM json_each(document, '$.labels') AS has WHERE has.key = wanted.key \
             AND has.value = wanted.value)) AND (?5 IS NULL OR (json_extract(document, '$.workspace.path') = ?5 \
             AND json_extract(document, '$.workspace.mode') = 'overlay')) ORDER BY run DESC LIMIT ?6",
        )
        .bind(filter.before.map(|run| run.to_string()))
        .bind(filter.outcome.as_deref())
        .bind(filter.since.map(Timestamp::as_microsecond))
        .bind(labels)
        .bind(filter.workspace.as_deref())
        // One more than asked for tells whether there is another page.
        .bind(i64::from(filter.limit) + 1)
        .fetch_all(connection.get()?)
        .await
        .map_err(|error| self.failed(error))?;
        let mut runs = rows.iter().map(|row| self.summary(row)).collect::<Result<Vec<_>>>()?;
        let more = runs.len() > filter.limit as usize;
        runs.truncate(filter.limit as usize);
        let next = runs.last().filter(|_| more).map(|last| last.run);
        Ok(Listed { runs, next })
    }

    fn summary(&self, row: &SqliteRow) -> Result<Summary> {
        let get = |column| row.try_get::<&str, _>(column).map_err(|error| self.failed(error));
        let mut summary: Summary = serde_json::from_str(get("document")?).map_err(unreadable)?;
        match get("outcome")? {
            "running" => (summary.outcome, summary.duration_ms) = (None, None),
            "lost" => summary.duration_ms = None,
            _ => {}
        }
        Ok(summary)
    }

    /// Finds the run whose id is, or begins with, a text; the prefix `run_` may be left out.
    pub async fn find(&self, text: &str) -> Result<RunId> {
        let not_found = || {
            let message = format!("there is no run {text:?} in the ledger");
            Error::new(ErrorCode::RunNotFound, message).hint("glovebox runs list shows the runs that are there")
        };
        let begins = text.strip_prefix("run_").unwrap_or(text).to_ascii_uppercase();
        if begins.is_empty() || !begins.bytes().all(|byte| byte.is_ascii_alphanumeric()) || !self.is_there() {
            return Err(not_found());
        }
        let mut connection = self.connection().await?;
        let found: Vec<String> = query_scalar("SELECT run FROM runs WHERE run >= ?1 AND run < ?1 || '~' LIMIT 2")
            .bind(format!("run_{begins}"))
            .fetch_all(connection.get()?)
            .await
            .map_err(|error| self.failed(error))?;
        match &found[..] {
            [run] => run.parse().map_err(|error| {
                Error::new(ErrorCode::LedgerDamaged, "the ledger holds a run with a wrong id").because(error)
            }),
            [] => Err(not_found()),
            _ => {
                let message = format!("the id {text:?} stands for several runs");
                Err(Error::new(ErrorCode::AmbiguousId, message).hint("write more of its characters"))
            }
        }
    }

    /// The result document of a run, as the run gave it. While the run is under way its outcome is null.
    pub async fn document(&self, run: RunId) -> Result<String> {
        let mut connection = self.connection().await?;
        self.mark_lost(connection.get()?).await?;
        let row = query("SELECT outcome, document FROM runs WHERE run = ?")
            .bind(run.to_string())
            .fetch_optional(connection.get()?)
            .await
            .map_err(|error| self.failed(error))?
            .ok_or_else(|| Error::new(ErrorCode::RunNotFound, format!("there is no run {run} in the ledger")))?;
        drop(connection);
        let get = |column| row.try_get::<&str, _>(column).map_err(|error| self.failed(error));
        let mut document = Object::parse(get("document")?)?;
        if get("outcome")? == "running" {
            document.set("outcome", &None::<Outcome>)?;
        }
        for stream in [Stream::Stdout, Stream::Stderr] {
            if let Some(record) = document.get::<OutputRecord>(stream.name())? {
                let content = self.output(run, stream).await?;
                document.set(stream.name(), &OutputRecord::new(content, record.bytes, record.truncated))?;
            }
        }
        document.text()
    }

    /// What the ledger kept of a stream, byte for byte.
    pub async fn output(&self, run: RunId, stream: Stream) -> Result<Vec<u8>> {
        let Some(mut reader) = self.file(run, stream.name()).await? else { return Ok(Vec::new()) };
        let mut content = Vec::new();
        reader.read_to_end(&mut content).map_err(|error| {
            Error::new(ErrorCode::LedgerDamaged, format!("the {} of {run} cannot be read", stream.name()))
                .because(error)
        })?;
        Ok(content)
    }

    /// A file of a run by its name in an export, such as `artifacts/outputs/a.png`.
    pub async fn file(&self, run: RunId, name: &str) -> Result<Option<Box<dyn Read + Send>>> {
        let mut connection = self.connection().await?;
        let row = query("SELECT sha256, content FROM files WHERE run = ? AND name = ?")
            .bind(run.to_string())
            .bind(name)
            .fetch_optional(connection.get()?)
            .await
            .map_err(|error| self.failed(error))?;
        let Some(row) = row else { return Ok(None) };
        let content: Option<Vec<u8>> = row.try_get("content").map_err(|error| self.failed(error))?;
        if let Some(content) = content {
            return Ok(Some(Box::new(std::io::Cursor::new(content))));
        }
        let sha256: &str = row.try_get("sha256").map_err(|error| self.failed(error))?;
        let sha256: Sha256Hash = sha256.parse().map_err(|error| {
            Error::new(ErrorCode::LedgerDamaged, format!("the file {name} of {run} has no hash")).because(error)
        })?;
        Ok(Some(Box::new(self.blobs()?.open_blob(&sha256)?)))
    }

    /// Marks the runs under way that nobody is left to finish.
    async fn mark_lost(&self, connection: &mut SqliteConnection) -> Result<()> {
        let under_way: Vec<String> = query_scalar("SELECT run FROM runs WHERE outcome = 'running'")
            .fetch_all(&mut *connection)
            .await
            .map_err(|error| self.failed(error))?;
        for run in under_way {
            let gone = owner::is_gone(&self.running(), &run).map_err(|error| {
                Error::new(ErrorCode::LedgerUnavailable, format!("cannot tell whether {run} is under way"))
                    .because(error)
            })?;
            if gone {
                // The owner may have finished it since it was listed; then there is nothing to mark.
                query("UPDATE runs SET outcome = 'lost' WHERE run = ? AND outcome = 'running'")
                    .bind(&run)
                    .execute(&mut *connection)
                    .await
                    .map_err(|error| self.failed(error))?;
            }
        }
        Ok(())
    }
}
