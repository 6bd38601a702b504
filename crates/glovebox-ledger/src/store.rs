//! The SQLite file: opened when it is first needed, made when it is not there, refused when it is newer than this code.

use std::{
    fs::{DirBuilder, OpenOptions},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use glovebox_core::{Error, ErrorCode, Result};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, SqliteConnection, query, query_scalar,
    sqlite::{SqliteConnectOptions, SqliteSynchronous},
};
use tokio::time::{Instant, sleep};

/// What brings an empty file to each version of the format. A released entry never changes; a new one is added.
const STEPS: [&str; 1] = [include_str!("schema.sql")];
/// How long another writer is waited for. One takes much less than a millisecond.
const BUSY: Duration = Duration::from_secs(2);
/// How long the write-ahead log may be when the file is opened, else it is emptied then. Whoever opens the file alone
/// reads the whole log, which for runs one after the other is everybody; each run adds about 10 KiB to it.
const LOG_BYTES: u64 = 200 * 1024;
const SQLITE_BUSY: i32 = 5;
/// What to do about a full disk.
const MAKE_ROOM: &str = "make room on its disk, or use another --data-dir";

/// Opens the file, and makes it first when it is not there.
pub(crate) async fn open(file: &Path) -> Result<SqliteConnection> {
    make_private(file).map_err(|error| because(unavailable(file), error))?;
    let options = SqliteConnectOptions::new()
        .filename(file)
        .busy_timeout(BUSY)
        .synchronous(SqliteSynchronous::Normal)
        .disable_statement_logging();
    let mut connection = options.connect().await.map_err(|error| failed(file, error))?;
    let version = version(&mut connection).await.map_err(|error| failed(file, error))?;
    let newest = STEPS.len() as i64;
    if version > newest {
        let message = format!(
            "the ledger {} was written by a newer Glovebox (format {version}, this one knows {newest})",
            file.display()
        );
        return Err(Error::new(ErrorCode::LedgerTooNew, message)
            .hint("use the newer version, another --data-dir, or --no-record"));
    }
    if version < newest {
        bring_up_to_date(&mut connection).await.map_err(|error| failed(file, error))?;
    }
    if log_of(file).metadata().is_ok_and(|log| log.len() > LOG_BYTES) {
        empty_log(&mut connection).await.map_err(|error| failed(file, error))?;
    }
    Ok(connection)
}

/// Whether a file looks like a ledger that this code can write, from its first bytes: 16 of them name the format, and at 60 there is
/// the version. The newest version may still be in the log, so an older one is fine.
pub(crate) fn looks_sound(file: &Path) -> bool {
    let mut header = [0; 64];
    let read = std::fs::File::open(file).and_then(|mut file| file.read_exact(&mut header));
    let version = u32::from_be_bytes([header[60], header[61], header[62], header[63]]);
    read.is_ok() && header.starts_with(b"SQLite format 3\0") && version as usize <= STEPS.len()
}

fn log_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// Copies the write-ahead log into the file and empties it, unless somebody uses it right now. SQLite itself does this
/// only for a process that writes again afterwards.
async fn empty_log(connection: &mut SqliteConnection) -> sqlx::Result<()> {
    let wait = BUSY.as_millis();
    let statements = format!("PRAGMA busy_timeout = 0; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA busy_timeout = {wait}");
    connection.execute(AssertSqlSafe(statements)).await.map(drop)
}

/// Output of programs is nobody else's business. The files that SQLite makes beside this one take its permissions.
fn make_private(file: &Path) -> io::Result<()> {
    if file.exists() {
        return Ok(());
    }
    if let Some(folder) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(file).map(drop)
}

async fn version(connection: &mut SqliteConnection) -> sqlx::Result<i64> {
    query_scalar("PRAGMA user_version").fetch_one(connection).await
}

async fn bring_up_to_date(connection: &mut SqliteConnection) -> sqlx::Result<()> {
    use_write_ahead_log(connection).await?;
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    // Another process may have been faster.
    let done = version(&mut transaction).await? as usize;
    for step in STEPS.iter().skip(done) {
        transaction.execute(*step).await?;
    }
    // Part of the transaction, as every step is: there is no version in between.
    const { assert!(STEPS.len() == 1, "the next line names the version") };
    transaction.execute("PRAGMA user_version = 1").await?;
    transaction.commit().await
}

/// Lasts as long as the file. SQLite does not wait for others here, so we do.
async fn use_write_ahead_log(connection: &mut SqliteConnection) -> sqlx::Result<()> {
    let give_up = Instant::now() + BUSY;
    loop {
        match query("PRAGMA journal_mode = WAL").execute(&mut *connection).await {
            Err(error) if primary_code(&error) == Some(SQLITE_BUSY) && Instant::now() < give_up => {
                sleep(Duration::from_millis(5)).await;
            }
            other => return other.map(drop),
        }
    }
}

/// The error for something that SQLite could not do.
pub(crate) fn failed(file: &Path, error: sqlx::Error) -> Error {
    const CORRUPT: i32 = 11;
    const FULL: i32 = 13;
    const NOT_A_DATABASE: i32 = 26;
    let said = match &error {
        sqlx::Error::Database(error) => error.message().to_owned(),
        other => other.to_string(),
    };
    let because = |error: Error| error.because(said.clone());
    match primary_code(&error) {
        Some(CORRUPT | NOT_A_DATABASE) => {
            let damaged = Error::new(ErrorCode::LedgerDamaged, format!("the ledger {} is damaged", file.display()));
            because(damaged).hint("move it away, and a new one is made")
        }
        Some(SQLITE_BUSY) => because(unavailable(file)).hint("another program holds it; end that program, or wait"),
        Some(FULL) => because(unavailable(file)).hint(MAKE_ROOM),
        _ => because(unavailable(file)),
    }
}

/// An error with its cause, and what to do where that is a full disk.
pub(crate) fn because(error: Error, cause: io::Error) -> Error {
    let full = matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let error = error.because(cause);
    if full { error.hint(MAKE_ROOM) } else { error }
}

pub(crate) fn unavailable(file: &Path) -> Error {
    Error::new(ErrorCode::LedgerUnavailable, format!("the ledger {} cannot be used", file.display()))
}

/// The error code of SQLite without its details.
fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}
