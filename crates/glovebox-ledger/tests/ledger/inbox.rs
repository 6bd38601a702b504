//! Runs of processes that record one run and end: they are left beside the database, and are taken in by whoever reads.

use std::fs;

use glovebox_core::{ErrorCode, Outcome, RunResult};
use glovebox_ledger::{KeptContent, KeptFile, Ledger, Stream};

use crate::{all, begun, data_dir, file, finished, record, sqlite};

/// A data folder whose database is there.
async fn used() -> tempfile::TempDir {
    let folder = data_dir();
    record(&Ledger::below(folder.path()), &mut finished(b"", b"")).await.unwrap();
    folder
}

fn waiting(folder: &tempfile::TempDir) -> usize {
    fs::read_dir(folder.path().join("finished")).into_iter().flatten().count()
}

#[tokio::test]
async fn a_run_that_was_left_in_the_inbox_is_read_as_every_other() {
    let folder = used().await;
    let mut results: Vec<RunResult> = (0..5u8).map(|n| finished(&[n, 0xff, n], &b"log\n".repeat(9000))).collect();
    for result in &mut results {
        let kept = KeptFile { name: "artifacts/outputs/a".into(), content: KeptContent::Bytes(b"kept".to_vec()) };
        Ledger::for_one_run(folder.path()).begin(begun(result)).finish(result, vec![kept]).await.unwrap();
    }
    // One in some dozens opens the database and takes in what is there.
    let mut more = 0;
    while waiting(&folder) == 0 {
        record(&Ledger::for_one_run(folder.path()), &mut finished(b"", b"")).await.unwrap();
        more += 1;
    }
    assert_eq!(fs::read_dir(folder.path().join("running")).unwrap().count(), 0);
    let reader = Ledger::below(folder.path());
    // Who knows the id need not list first.
    assert_eq!(reader.output(results[4].run, Stream::Stderr).await.unwrap(), b"log\n".repeat(9000));
    assert_eq!(all(&reader).await.len(), 6 + more);
    assert_eq!(waiting(&folder), 0);
    for result in &results {
        let read: RunResult = serde_json::from_str(&reader.document(result.run).await.unwrap()).unwrap();
        assert_eq!(read.stdout, result.stdout);
        assert_eq!(reader.output(result.run, Stream::Stderr).await.unwrap(), b"log\n".repeat(9000));
        assert!(reader.file(result.run, "artifacts/outputs/a").await.unwrap().is_some());
    }
}

#[tokio::test]
async fn what_is_wrong_with_the_database_is_told_to_whoever_runs_something() {
    let folder = data_dir();
    fs::write(file(folder.path()), "this is no database, and it is longer than the header of one would be, by some")
        .unwrap();
    let error = record(&Ledger::for_one_run(folder.path()), &mut finished(b"", b"")).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::LedgerDamaged);
    let folder = used().await;
    let mut open = sqlite(folder.path()).await;
    sqlx::Executor::execute(&mut open, "PRAGMA user_version = 7").await.unwrap();
    sqlx::Executor::execute(&mut open, "PRAGMA wal_checkpoint(TRUNCATE)").await.unwrap();
    let error = record(&Ledger::for_one_run(folder.path()), &mut finished(b"", b"")).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::LedgerTooNew);
}

#[tokio::test]
async fn a_process_that_died_between_the_inbox_and_the_end_of_its_note_has_finished_its_run() {
    let folder = used().await;
    let mut result = finished(b"out", b"");
    // Both are there: the note of another moment, and the run in the inbox.
    loop {
        record(&Ledger::for_one_run(folder.path()), &mut result).await.unwrap();
        if waiting(&folder) > 0 {
            break;
        }
        result = finished(b"out", b"");
    }
    drop(Ledger::below(folder.path()).begin_in_living(begun(&result)));
    let ledger = Ledger::below(folder.path());
    assert_eq!(ledger.unfollowed().unwrap(), []);
    assert!(ledger.give_up(result.run).await.unwrap());
    let read: RunResult = serde_json::from_str(&ledger.document(result.run).await.unwrap()).unwrap();
    assert_eq!(read.outcome, Outcome::Exited { code: 0 });
    let listed = all(&ledger).await;
    assert_eq!(listed.iter().filter(|run| run.run == result.run).count(), 1);
}

#[tokio::test]
async fn a_letter_that_was_taken_in_before_its_reader_died_is_not_taken_in_twice() {
    let folder = used().await;
    let mut result = finished(b"out", b"");
    record(&Ledger::below(folder.path()), &mut result).await.unwrap();
    record(&Ledger::for_one_run(folder.path()), &mut result).await.unwrap();
    assert_eq!(all(&Ledger::below(folder.path())).await.len(), 2);
    assert_eq!(waiting(&folder), 0);
}

#[tokio::test]
async fn nobody_else_can_read_the_inbox_and_what_is_no_run_in_it_is_set_aside() {
    use std::os::unix::fs::PermissionsExt;
    let folder = used().await;
    while waiting(&folder) == 0 {
        record(&Ledger::for_one_run(folder.path()), &mut finished(b"out", b"")).await.unwrap();
    }
    let inbox = folder.path().join("finished");
    assert_eq!(fs::metadata(&inbox).unwrap().permissions().mode() & 0o777, 0o700);
    for entry in fs::read_dir(&inbox).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    fs::write(inbox.join("note.txt"), "mine").unwrap();
    // As a power cut may leave it.
    let run = glovebox_core::RunId::new();
    fs::write(inbox.join(run.to_string()), "").unwrap();
    all(&Ledger::below(folder.path())).await;
    assert!(inbox.join("note.txt").exists() && inbox.join(format!("{run}.damaged")).exists());
    assert_eq!(waiting(&folder), 2);
}
