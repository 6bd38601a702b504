//! Sudden ends in the middle of recording. `cargo xtask soak` does the same to whole runs, a hundred times.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use glovebox_core::{Outcome, RunResult};
use glovebox_ledger::Ledger;
use sqlx::query_scalar;

use crate::{STARTING, all, begun, data_dir, finished, record, sqlite};

const CHILD: &str = "GLOVEBOX_TEST_RECORDS_INTO";
const ONE_RUN: &str = "GLOVEBOX_TEST_RECORDS_ONE_RUN";
const DEATHS: u64 = 10;

#[tokio::test]
async fn a_process_that_is_killed_while_it_records_leaves_only_whole_runs() {
    if let Some(folder) = env::var_os(CHILD) {
        return record_until_killed(Path::new(&folder)).await;
    }
    for for_one_run in [false, true] {
        let folder = data_dir();
        let mut told = Vec::new();
        for death in 0..DEATHS {
            told.extend(start_and_kill(folder.path(), Duration::from_micros(death * 700), for_one_run).await);
            check(folder.path(), &told).await;
        }
        assert!(told.len() >= DEATHS as usize, "only {} runs were recorded", told.len());
    }
}

/// What the child does: begins and finishes runs, some large and some small, and tells of each that it recorded.
async fn record_until_killed(folder: &Path) {
    let many = Ledger::below(folder);
    for number in 0u32.. {
        // As many processes that record one run each.
        let ledger = if env::var_os(ONE_RUN).is_some() { Ledger::for_one_run(folder) } else { many.clone() };
        let mut result = finished(&number.to_le_bytes().repeat(1 + (number as usize % 3) * 20_000), b"stderr");
        record(&ledger, &mut result).await.unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "recorded {}", result.run).and_then(|()| out.flush()).unwrap();
    }
}

/// Starts this program again as the child, kills it a while after its first run, and gives what it told.
async fn start_and_kill(folder: &Path, later: Duration, for_one_run: bool) -> Vec<String> {
    let this_test = "kills::a_process_that_is_killed_while_it_records_leaves_only_whole_runs";
    let starting = STARTING.write().await;
    let mut child = Command::new(env::current_exe().unwrap())
        .args([this_test, "--exact", "--nocapture"])
        .env(CHILD, folder)
        .envs(for_one_run.then_some((ONE_RUN, "1")))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(starting);
    let mut told = Vec::new();
    let recorded = |line: String| line.split("recorded ").nth(1).map(str::to_owned);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).filter_map(recorded);
    told.extend(lines.next());
    // The moment is the point of this test: each death comes a little later than the one before it.
    std::thread::sleep(later);
    child.kill().unwrap();
    child.wait().unwrap();
    told.extend(lines);
    told
}

/// Every run that was told of is there, every row is whole, and nothing else is left.
async fn check(folder: &Path, told: &[String]) {
    let ledger = Ledger::below(folder);
    let listed = all(&ledger).await;
    for run in told {
        let found = listed.iter().find(|listed| listed.run.to_string() == *run);
        assert!(found.is_some_and(|found| found.outcome == Some(Outcome::Exited { code: 0 })), "{run}: {found:?}");
    }
    for summary in &listed {
        let document = ledger.document(summary.run).await.unwrap();
        let result: RunResult = serde_json::from_str(&document).unwrap();
        match result.outcome {
            Outcome::Exited { .. } => {
                assert_eq!(result.stderr.text.as_deref(), Some("stderr"));
                let stdout = ledger.output(summary.run, glovebox_ledger::Stream::Stdout).await.unwrap();
                assert_eq!(stdout.len() as u64, result.stdout.bytes);
            }
            other => assert_eq!(other, Outcome::Lost),
        }
    }
    assert_eq!(std::fs::read_dir(folder.join("running")).unwrap().count(), 0);
    let mut sqlite = sqlite(folder).await;
    let sound: String = query_scalar("PRAGMA integrity_check").fetch_one(&mut sqlite).await.unwrap();
    assert_eq!(sound, "ok");
    ledger.sweep().await.unwrap();
    // The folder is not there when the first death came before the first blob.
    let blobs = std::fs::read_dir(folder.join("blobs")).into_iter().flatten();
    assert!(blobs.map(|entry| entry.unwrap().path()).all(|path| path.is_dir()));
    // The ledger still works.
    let mut next = finished(b"", b"stderr");
    ledger.begin(begun(&next)).finish(&mut next, Vec::new()).await.unwrap();
}
