//! What the ledger refuses, and what it says when it cannot work.

use std::{fs, time::Instant};

use glovebox_core::ErrorCode;
use glovebox_ledger::{Filter, Ledger};
use sqlx::Executor;

use crate::{all, data_dir, file, finished, record, sqlite};

#[tokio::test]
async fn a_finished_run_never_changes_also_not_by_hand() {
    let folder = data_dir();
    let ledger = Ledger::below(folder.path());
    let mut result = finished(b"output", b"");
    record(&ledger, &mut result).await.unwrap();
    let before = ledger.document(result.run).await.unwrap();
    let mut sqlite = sqlite(folder.path()).await;
    for change in [
        "UPDATE runs SET outcome = 'lost'",
        "UPDATE runs SET document = '{}'",
        "INSERT OR REPLACE INTO runs SELECT run, 'lost', started_at, document FROM runs",
        "UPDATE files SET content = x'00'",
        "DELETE FROM files",
        "INSERT INTO files SELECT run, 'other', sha256, bytes, content FROM files",
        "INSERT OR REPLACE INTO files SELECT run, name, sha256, bytes, x'00' FROM files",
    ] {
        let error = sqlite.execute(change).await.unwrap_err().to_string();
        assert!(error.contains("a finished run never changes"), "{change}: {error}");
    }
    assert!(record(&ledger, &mut result).await.is_err(), "a run was recorded twice");
    assert_eq!(ledger.document(result.run).await.unwrap(), before);
    // A prune takes a run whole.
    sqlite.execute("DELETE FROM runs").await.unwrap();
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM files").fetch_one(&mut sqlite).await.unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_ledger_of_a_newer_version_is_refused_in_one_line_and_left_alone() {
    let folder = data_dir();
    record(&Ledger::below(folder.path()), &mut finished(b"", b"")).await.unwrap();
    sqlite(folder.path()).await.execute("PRAGMA user_version = 7").await.unwrap();
    let ledger = Ledger::below(folder.path());
    for error in [
        ledger.list(&Filter::default()).await.unwrap_err(),
        record(&ledger, &mut finished(b"", b"")).await.unwrap_err(),
    ] {
        assert_eq!(error.code, ErrorCode::LedgerTooNew);
        assert!(error.message.contains("newer Glovebox (format 7, this one knows 1)"), "{}", error.message);
        assert!(!error.message.contains('\n') && error.hint.is_some());
    }
    let mut sqlite = sqlite(folder.path()).await;
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM runs").fetch_one(&mut sqlite).await.unwrap();
    assert_eq!(rows, 1);
}

#[tokio::test]
async fn a_ledger_that_somebody_holds_is_waited_for_in_bounds_and_the_failure_is_told() {
    let folder = data_dir();
    let ledger = Ledger::below(folder.path());
    record(&ledger, &mut finished(b"", b"")).await.unwrap();
    let mut holder = sqlite(folder.path()).await;
    holder.execute("BEGIN IMMEDIATE").await.unwrap();
    let started = Instant::now();
    let mut result = finished(b"output", b"");
    let error = record(&ledger, &mut result).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::LedgerUnavailable);
    assert!(error.message.contains("locked") && error.hint.is_some(), "{error:?}");
    assert!(started.elapsed().as_secs() < 10);
    // Readers are not held up, and nothing of the run is there.
    assert_eq!(all(&ledger).await.len(), 1);
    holder.execute("COMMIT").await.unwrap();
    record(&ledger, &mut result).await.unwrap();
    assert_eq!(all(&ledger).await.len(), 2);
}

#[tokio::test]
async fn a_file_that_is_no_ledger_is_told_as_damaged() {
    let folder = data_dir();
    fs::write(file(folder.path()), b"this is not a database, whatever its name says").unwrap();
    let error = Ledger::below(folder.path()).list(&Filter::default()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::LedgerDamaged, "{error:?}");
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_is_told_as_unavailable() {
    let folder = data_dir();
    fs::write(folder.path().join("plain"), b"").unwrap();
    let ledger = Ledger::below(folder.path().join("plain/data"));
    let error = record(&ledger, &mut finished(b"", b"")).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::LedgerUnavailable, "{error:?}");
}

#[tokio::test]
async fn nobody_else_can_read_what_is_recorded() {
    use std::os::unix::fs::PermissionsExt;
    let folder = data_dir();
    let ledger = Ledger::below(folder.path());
    record(&ledger, &mut finished(&b"x".repeat(100_000), b"")).await.unwrap();
    for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm", "blobs", "running"] {
        let mode = fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name} has mode {mode:o}");
    }
}

/// Each with a ledger of its own, as processes have; the first one makes the file.
#[test]
fn many_writers_at_once_lose_nothing() {
    let folder = data_dir();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let ledger = Ledger::below(folder.path());
                for _ in 0..10 {
                    runtime.block_on(record(&ledger, &mut finished(b"output", &b"log\n".repeat(10_000)))).unwrap();
                }
            });
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(all(&Ledger::below(folder.path()))).len(), 80);
}

#[tokio::test]
async fn the_write_ahead_log_stays_short_when_every_run_is_a_process_of_its_own() {
    let folder = data_dir();
    record(&Ledger::below(folder.path()), &mut finished(b"", b"")).await.unwrap();
    // Somebody who keeps the file open keeps SQLite from tidying up when the others close it.
    let mut open = sqlite(folder.path()).await;
    open.execute("SELECT count(*) FROM runs").await.unwrap();
    for _ in 0..200 {
        record(&Ledger::below(folder.path()), &mut finished(&b"x".repeat(10_000), b"")).await.unwrap();
    }
    let log = fs::metadata(folder.path().join("ledger.db-wal")).map_or(0, |log| log.len());
    assert!(log > 0 && log < 1 << 20, "{log} bytes");
}
