//! How runs are found again.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    io::{Cursor, ErrorKind, Read},
};

use glovebox_core::{
    Error, ErrorCode, Outcome, OutputRecord, Result, ResultRecord, RunId, SandboxId, Usage, WorkspaceMode,
    WorkspaceRecord,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::{query_as, query_scalar};

use crate::{
    Ledger, ParseHashError,
    document::{Object, unreadable},
    ledger::{Ended, result_file},
    store,
    under_way::{self, Noted, Owner},
};

/// So many runs are named when an id stands for several.
const NAMED: usize = 3;

/// What runs under way have in place of a kind of outcome.
const RUNNING: &str = "running";

/// Which runs to list. The default is the newest 50.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Only runs with this kind of outcome, or `running`.
    pub outcome: Option<String>,
    /// Only runs of source in this language, by its first name.
    pub language: Option<String>,
    /// Only runs with all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Only runs in this sandbox.
    pub sandbox: Option<SandboxId>,
    /// Only runs of this project.
    pub project: Option<String>,
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
        let (outcome, language, labels, since) = (None, None, BTreeMap::new(), None);
        let (sandbox, project, workspace, before) = (None, None, None, None);
        Filter { outcome, language, labels, sandbox, project, since, workspace, before, limit: 50 }
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
    /// The host's folder under the working directory, if any.
    #[serde(default)]
    pub workspace: Option<WorkspaceRecord>,
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
    /// The language of the file or code that was given; nothing for a command.
    #[serde(default)]
    pub language: Option<String>,
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
        let under_way = self.settle().await?;
        let mut runs = Vec::new();
        for noted in under_way {
            let mut run: Summary = serde_json::from_str(&noted.if_lost.text()?).map_err(unreadable)?;
            (run.outcome, run.duration_ms) = (None, None);
            if filter.fits(&run) {
                runs.push(run);
            }
        }
        // No run in the database is running, and to look for one would be to look at all.
        if filter.outcome.as_deref() != Some(RUNNING) && self.is_there()? {
            runs.extend(self.ended(filter).await?);
        }
        // One that ended just now may be there twice; the row counts.
        runs.sort_by_key(|run| (Reverse(run.run), run.outcome.is_none()));
        runs.dedup_by_key(|run| run.run);
        let more = runs.len() > filter.limit as usize;
        runs.truncate(filter.limit as usize);
        let next = runs.last().filter(|_| more).map(|last| last.run);
        Ok(Listed { runs, next })
    }

    /// The newest runs that are over and fit, one more than asked for: it tells whether there is another page.
    async fn ended(&self, filter: &Filter) -> Result<Vec<Summary>> {
        let labels = serde_json::to_string(&filter.labels).map_err(unreadable)?;
        let mut connection = self.connection().await?;
        let documents: Vec<String> = query_scalar(
            "SELECT document FROM runs WHERE (?1 IS NULL OR run < ?1) AND (?2 IS NULL OR outcome = ?2) \
             AND (?3 IS NULL OR started_at >= ?3) AND NOT EXISTS (SELECT 1 FROM json_each(?4) AS wanted \
             WHERE NOT EXISTS (SELECT 1 FROM json_each(document, '$.labels') AS has WHERE has.key = wanted.key \
             AND has.value = wanted.value)) AND (?5 IS NULL OR (json_extract(document, '$.workspace.path') = ?5 \
             AND json_extract(document, '$.workspace.mode') = 'overlay')) \
             AND (?6 IS NULL OR json_extract(document, '$.command.language') = ?6) \
             AND (?7 IS NULL OR json_extract(document, '$.sandbox') = ?7) \
             AND (?8 IS NULL OR json_extract(document, '$.project') = ?8) ORDER BY run DESC LIMIT ?9",
        )
        .bind(filter.before.map(|run| run.to_string()))
        .bind(filter.outcome.as_deref())
        .bind(filter.since.map(Timestamp::as_microsecond))
        .bind(labels)
        .bind(filter.workspace.as_deref())
        .bind(filter.language.as_deref())
        .bind(filter.sandbox.map(|sandbox| sandbox.to_string()))
        .bind(filter.project.as_deref())
        .bind(i64::from(filter.limit) + 1)
        .fetch_all(connection.get()?)
        .await
        .map_err(|error| self.failed(error))?;
        let summary = |document: &String| {
            let mut run: Summary = serde_json::from_str(document).map_err(unreadable)?;
            if run.outcome == Some(Outcome::Lost) {
                run.duration_ms = None;
            }
            Ok(run)
        };
        documents.iter().map(summary).collect()
    }

    /// The newest run, under way or over.
    pub async fn last(&self) -> Result<RunId> {
        let listed = self.list(&Filter { limit: 1, ..Filter::default() }).await?;
        let none = || Error::new(ErrorCode::RunNotFound, "no run is recorded yet");
        listed.runs.first().map(|newest| newest.run).ok_or_else(none)
    }

    /// Finds the run whose id is, or begins with, a text; the prefix `run_` may be left out.
    pub async fn find(&self, text: &str) -> Result<RunId> {
        let begins = text.strip_prefix("run_").unwrap_or(text).to_ascii_uppercase();
        if begins.is_empty() || !begins.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(not_found(text));
        }
        let begins = format!("run_{begins}");
        let mut found: BTreeSet<String> = self.settle().await?.iter().map(|noted| noted.run.to_string()).collect();
        found.retain(|run| run.starts_with(&begins));
        if self.is_there()? {
            let mut connection = self.connection().await?;
            let newest = "SELECT run FROM runs WHERE run >= ?1 AND run < ?1 || '~' ORDER BY run DESC LIMIT ?2";
            let rows: Vec<String> = query_scalar(newest)
                .bind(begins)
                .bind(NAMED as i64 + 1)
                .fetch_all(connection.get()?)
                .await
                .map_err(|error| self.failed(error))?;
            found.extend(rows);
        }
        let mut newest = found.into_iter().rev();
        match (newest.next(), newest.next()) {
            (Some(run), None) => run.parse().map_err(|error| {
                Error::new(ErrorCode::LedgerDamaged, "the ledger holds a run with a wrong id").because(error)
            }),
            (None, _) => Err(not_found(text)),
            (Some(first), Some(second)) => {
                let named: Vec<String> = [first, second].into_iter().chain(newest.by_ref().take(NAMED - 2)).collect();
                let more = if newest.next().is_some() { " and others" } else { "" };
                let message = format!("the id {text:?} stands for several runs");
                Err(Error::new(ErrorCode::AmbiguousId, message)
                    .hint(format!("write more of it: {}{more}", named.join(", "))))
            }
        }
    }

    /// The result document of a run, as the run gave it. While the run is under way its outcome is null.
    pub async fn document(&self, run: RunId) -> Result<String> {
        let noted = self.settle().await?.into_iter().find(|noted| noted.run == run);
        let mut connection = self.connection().await?;
        let document: Option<String> = query_scalar("SELECT document FROM runs WHERE run = ?")
            .bind(run.to_string())
            .fetch_optional(connection.get()?)
            .await
            .map_err(|error| self.failed(error))?;
        drop(connection);
        let document = match (document, noted) {
            (Some(document), _) => Object::parse(&document)?,
            (None, Some(mut noted)) => {
                noted.if_lost.set("outcome", &None::<Outcome>)?;
                noted.if_lost
            }
            (None, None) => return Err(not_found(&run.to_string())),
        };
        self.with_output(run, document).await
    }

    /// Puts the bytes of the streams back into a document.
    async fn with_output(&self, run: RunId, mut document: Object) -> Result<String> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            if let Some(record) = document.get::<OutputRecord>(stream.name())? {
                let content = self.output(run, stream).await?;
                document.set(stream.name(), &OutputRecord::new(content, record.bytes, record.truncated))?;
            }
        }
        if let Some(results) = document.get::<Option<Vec<ResultRecord>>>("results")?.flatten() {
            let mut whole = Vec::new();
            for (number, bare) in results.into_iter().enumerate() {
                let content = self.content(run, &result_file(number, &bare)).await?;
                whole.push(ResultRecord::new(bare.mime, bare.value, bare.kind, content));
            }
            document.set("results", &whole)?;
        }
        document.text()
    }

    /// What the ledger kept of a stream, byte for byte.
    pub async fn output(&self, run: RunId, stream: Stream) -> Result<Vec<u8>> {
        self.content(run, stream.name()).await
    }

    /// The bytes of a file of a run; none where there is no such file.
    async fn content(&self, run: RunId, name: &str) -> Result<Vec<u8>> {
        let Some(mut reader) = self.file(run, name).await? else { return Ok(Vec::new()) };
        let mut content = Vec::new();
        reader.read_to_end(&mut content).map_err(|error| {
            Error::new(ErrorCode::LedgerDamaged, format!("the {name} of {run} cannot be read")).because(error)
        })?;
        Ok(content)
    }

    /// A file of a run by its name in an export, such as `artifacts/outputs/a.png`.
    pub async fn file(&self, run: RunId, name: &str) -> Result<Option<Box<dyn Read + Send>>> {
        if self.waits_in_inbox(run) {
            self.take_in().await?;
        }
        let mut connection = self.connection().await?;
        let row: Option<(String, Option<Vec<u8>>)> =
            query_as("SELECT sha256, content FROM files WHERE run = ? AND name = ?")
                .bind(run.to_string())
                .bind(name)
                .fetch_optional(connection.get()?)
                .await
                .map_err(|error| self.failed(error))?;
        match row {
            None => Ok(None),
            Some((_, Some(content))) => Ok(Some(Box::new(Cursor::new(content)))),
            Some((sha256, None)) => {
                let sha256 = sha256.parse().map_err(|error: ParseHashError| {
                    Error::new(ErrorCode::LedgerDamaged, format!("the file {name} of {run} has no hash")).because(error)
                })?;
                Ok(Some(Box::new(self.blobs()?.open_blob(&sha256)?)))
            }
        }
    }

    /// Settles what dead processes left: their runs are lost, and their unfinished blobs are removed. Says how many blobs
    /// that were.
    pub async fn sweep(&self) -> Result<u64> {
        self.settle().await?;
        if self.has_blobs() { self.blobs()?.sweep() } else { Ok(0) }
    }

    /// The runs under way. Those that are over are taken in, and for those that nobody is left to finish the row of a lost run
    /// is written.
    async fn settle(&self) -> Result<Vec<Noted>> {
        let mut living = Vec::new();
        // In this order: a run is in the inbox before it is no longer noted.
        let all = self.noted()?;
        self.take_in().await?;
        for mut noted in all {
            match noted.abandoned.take() {
                Some(owner) if noted.living.is_none() => self.write_lost(&noted, owner).await?,
                // Its sandbox knows more. The lock is let go, for whoever asks there.
                _ => living.push(noted),
            }
        }
        Ok(living)
    }

    pub(crate) fn noted(&self) -> Result<Vec<Noted>> {
        under_way::all(&self.under_way()).map_err(|error| {
            let denied = error.kind() == ErrorKind::PermissionDenied;
            let unavailable = store::unavailable(self.place()).because(error);
            match denied {
                true => unavailable.hint("it is somebody else's; leave out --data-dir, or name a folder of yours"),
                false => unavailable,
            }
        })
    }

    /// Writes the row of a run that nobody is left to finish.
    pub(crate) async fn write_lost(&self, noted: &Noted, owner: Owner) -> Result<()> {
        if self.waits_in_inbox(noted.run) {
            // Its process died between the one and the other.
            self.take_in().await?;
        }
        if let Some(started_at) = noted.if_lost.get::<Timestamp>("started_at")? {
            let (outcome, started_at) = (Outcome::Lost.kind().to_owned(), started_at.as_microsecond());
            let document = noted.if_lost.text()?;
            self.insert_lost(&Ended { run: noted.run, outcome, started_at, document }).await?;
        }
        owner.end();
        Ok(())
    }
}

impl Filter {
    /// Whether a run under way is to be listed. For the others the database knows.
    fn fits(&self, run: &Summary) -> bool {
        self.outcome.as_deref().is_none_or(|kind| kind == RUNNING)
            && self.labels.iter().all(|(key, value)| run.labels.get(key) == Some(value))
            && self.language.as_ref().is_none_or(|language| run.command.language.as_ref() == Some(language))
            && self.sandbox.is_none_or(|sandbox| run.sandbox == sandbox)
            && self.project.as_ref().is_none_or(|project| run.project.as_ref() == Some(project))
            && self.since.is_none_or(|since| run.started_at >= since)
            && self.before.is_none_or(|before| run.run < before)
            && self.workspace.as_ref().is_none_or(|path| {
                let overlay = |at: &WorkspaceRecord| at.path == *path && at.mode == WorkspaceMode::Overlay;
                run.workspace.as_ref().is_some_and(overlay)
            })
    }
}

fn not_found(text: &str) -> Error {
    if text.starts_with("sb_") {
        let message = format!("{text} is the id of a sandbox, and a run is needed");
        return Error::new(ErrorCode::RunNotFound, message)
            .hint(format!("glovebox runs list --sandbox {text} shows its runs"));
    }
    let message = format!("there is no run {text:?} in the ledger");
    Error::new(ErrorCode::RunNotFound, message).hint("glovebox runs list shows the runs that are there")
}
