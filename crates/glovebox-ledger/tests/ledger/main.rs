//! The ledger as its users see it: what is written, what is read again, and what is left after a sudden end.

mod inbox;
mod kills;
mod reading;
mod refusals;
mod unfollowed;

use std::path::{Path, PathBuf};

use glovebox_core::{Outcome, OutputRecord, RunId, RunResult, SandboxId};
use glovebox_ledger::{Filter, Ledger, Summary};
use sqlx::{ConnectOptions, SqliteConnection, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

/// A data folder of its own.
fn data_dir() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// A finished run that wrote these bytes.
fn finished(stdout: &[u8], stderr: &[u8]) -> RunResult {
    let sample = include_str!("../../../../xtask/src/docs/sample_result.json");
    let mut result: RunResult = serde_json::from_str(sample).expect("the sample fits the type");
    (result.run, result.sandbox) = (RunId::new(), SandboxId::new());
    result.started_at = jiff::Timestamp::now();
    result.artifacts.clear();
    result.labels.clear();
    result.stdout = OutputRecord::new(stdout.to_vec(), stdout.len() as u64, false);
    result.stderr = OutputRecord::new(stderr.to_vec(), stderr.len() as u64, false);
    result
}

/// The same run as it is noted before its command starts.
fn begun(result: &RunResult) -> RunResult {
    RunResult {
        outcome: Outcome::Lost,
        stdout: OutputRecord::default(),
        stderr: OutputRecord::default(),
        ..result.clone()
    }
}

async fn record(ledger: &Ledger, result: &mut RunResult) -> glovebox_core::Result<()> {
    ledger.begin(begun(result)).finish(result, Vec::new()).await
}

/// Held while a program is started, which has all locks of this process for a moment, and shared by tests that give one up.
static STARTING: tokio::sync::RwLock<()> = tokio::sync::RwLock::const_new(());

async fn all(ledger: &Ledger) -> Vec<Summary> {
    ledger.list(&Filter { limit: 10_000, ..Filter::default() }).await.expect("a list").runs
}

fn file(folder: &Path) -> PathBuf {
    folder.join("ledger.db")
}

/// SQLite without the ledger before it.
async fn sqlite(folder: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(file(folder)).connect().await.expect("SQLite opens the file")
}
