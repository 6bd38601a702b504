//! What is written is read again.

use std::{collections::BTreeMap, fs, io::Read, time::Duration};

use glovebox_core::{ErrorCode, Outcome, OutputRecord, RunId};
use glovebox_ledger::{Filter, KeptContent, KeptFile, Ledger, Stream};
use jiff::Timestamp;

use crate::{STARTING, all, begun, data_dir, finished, record};

#[tokio::test]
async fn a_document_is_read_again_exactly_as_it_was_and_output_byte_for_byte() {
    let (folder, large) = (data_dir(), b"0123456789abcdef".repeat(10_000));
    let ledger = Ledger::below(folder.path());
    let not_text = [b"\xff\x00\x1b[2J\r\n".repeat(5_000), b"\xfe".to_vec()];
    for (stdout, stderr) in
        [(&b""[..], &b""[..]), (b"hi\n", "é\u{1f600}".as_bytes()), (&large, &not_text[0]), (&not_text[1], b"x")]
    {
        let mut result = finished(stdout, stderr);
        let given = serde_json::to_string(&result).unwrap();
        record(&ledger, &mut result).await.unwrap();
        assert_eq!(serde_json::to_string(&result).unwrap(), given, "recording changed the result");
        // Another process reads it.
        let reader = Ledger::below(folder.path());
        assert_eq!(reader.document(result.run).await.unwrap(), given);
        assert_eq!(reader.output(result.run, Stream::Stdout).await.unwrap(), stdout);
        assert_eq!(reader.output(result.run, Stream::Stderr).await.unwrap(), stderr);
    }
}

#[tokio::test]
async fn a_stream_that_was_cut_or_only_counted_stays_so() {
    let folder = data_dir();
    let ledger = Ledger::below(folder.path());
    let mut result = finished(b"", b"");
    result.stdout = OutputRecord::new(b"head\n[glovebox: 5 bytes left out]\ntail".to_vec(), 14, true);
    result.stderr = OutputRecord::new(Vec::new(), 7, false);
    record(&ledger, &mut result).await.unwrap();
    assert_eq!(ledger.document(result.run).await.unwrap(), serde_json::to_string(&result).unwrap());
}

#[tokio::test]
async fn kept_files_are_read_again_by_their_name_and_equal_ones_are_stored_once() {
    let folder = data_dir();
    let ledger = Ledger::below(folder.path());
    let large = b"picture".repeat(10_000);
    let host = folder.path().join("host-file");
    fs::write(&host, &large).unwrap();
    let blob = ledger.blobs().unwrap().put(&large[..]).unwrap();
    let file = |name: &str, content| KeptFile { name: name.into(), content };
    for _ in 0..2 {
        let mut result = finished(b"", b"");
        let kept = vec![
            file("artifacts/outputs/a.png", KeptContent::Host(host.clone())),
            file("artifacts/outputs/b.txt", KeptContent::Bytes(b"small".to_vec())),
            file("changes/c.png", KeptContent::Stored(blob)),
        ];
        ledger.begin(begun(&result)).finish(&mut result, kept).await.unwrap();
        for (name, expected) in [
            ("artifacts/outputs/a.png", &large[..]),
            ("artifacts/outputs/b.txt", b"small"),
            ("changes/c.png", &large[..]),
        ] {
            let mut content = Vec::new();
            ledger.file(result.run, name).await.unwrap().unwrap().read_to_end(&mut content).unwrap();
            assert_eq!(content, expected, "{name}");
        }
        assert!(ledger.file(result.run, "artifacts/outputs/other").await.unwrap().is_none());
    }
    let folders = fs::read_dir(folder.path().join("blobs")).unwrap();
    let stored: usize = folders.map(|folder| fs::read_dir(folder.unwrap().path()).unwrap().count()).sum();
    assert_eq!(stored, 1);
}

#[tokio::test]
async fn runs_are_listed_newest_first_page_by_page_and_by_outcome_label_and_time() {
    let folder = data_dir();
    let ledger = Ledger::below(folder.path());
    let mut runs = Vec::new();
    for number in 0..7 {
        let mut result = finished(b"", b"");
        result.labels = BTreeMap::from([("n".to_owned(), (number % 2).to_string()), ("all".to_owned(), "1".into())]);
        if number == 3 {
            result.outcome = Outcome::TimedOut { limit_ms: 5 };
        }
        if number < 2 {
            result.started_at = Timestamp::now() - Duration::from_secs(7200);
        }
        record(&ledger, &mut result).await.unwrap();
        runs.push(result.run);
    }
    runs.reverse();
    let mut filter = Filter { limit: 3, ..Filter::default() };
    let mut pages = Vec::new();
    loop {
        let page = ledger.list(&filter).await.unwrap();
        pages.push(page.runs.iter().map(|run| run.run).collect::<Vec<_>>());
        filter.before = page.next;
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 1]);
    assert_eq!(pages.concat(), runs);
    let labels = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    for (filter, expected) in [
        (Filter { outcome: Some("timed_out".into()), ..Filter::default() }, vec![runs[3]]),
        (Filter { outcome: Some("lost".into()), ..Filter::default() }, vec![]),
        (Filter { labels: labels(&[("n", "1"), ("all", "1")]), ..Filter::default() }, vec![runs[1], runs[3], runs[5]]),
        (Filter { labels: labels(&[("n", "2")]), ..Filter::default() }, vec![]),
        (Filter { since: Some(Timestamp::now() - Duration::from_secs(3600)), ..Filter::default() }, runs[..5].to_vec()),
    ] {
        let listed: Vec<RunId> = ledger.list(&filter).await.unwrap().runs.iter().map(|run| run.run).collect();
        assert_eq!(listed, expected, "{filter:?}");
    }
}

#[tokio::test]
async fn runs_are_listed_by_sandbox_and_by_project_also_those_under_way() {
    let folder = data_dir();
    let ledger = Ledger::below(folder.path());
    let (mut first, mut second, mut third) = (finished(b"", b""), finished(b"", b""), finished(b"", b""));
    (first.project, third.project) = (Some("red".into()), Some("red".into()));
    second.sandbox = first.sandbox;
    record(&ledger, &mut first).await.unwrap();
    record(&ledger, &mut second).await.unwrap();
    let _recording = ledger.begin(begun(&third));
    let (sandbox, project) = (Some(first.sandbox), Some("red".to_owned()));
    let running = Some("running".to_owned());
    for (filter, expected) in [
        (Filter { sandbox, ..Filter::default() }, vec![second.run, first.run]),
        (Filter { sandbox: Some(third.sandbox), ..Filter::default() }, vec![third.run]),
        (Filter { sandbox, limit: 1, ..Filter::default() }, vec![second.run]),
        (Filter { project: project.clone(), ..Filter::default() }, vec![third.run, first.run]),
        (Filter { sandbox, project, ..Filter::default() }, vec![first.run]),
        (Filter { sandbox, outcome: running.clone(), ..Filter::default() }, vec![]),
        (Filter { outcome: running, ..Filter::default() }, vec![third.run]),
        (Filter { project: Some("blue".into()), ..Filter::default() }, vec![]),
    ] {
        let listed: Vec<RunId> = ledger.list(&filter).await.unwrap().runs.iter().map(|run| run.run).collect();
        assert_eq!(listed, expected, "{filter:?}");
    }
}

#[tokio::test]
async fn an_id_may_be_shortened_while_it_is_unique() {
    let folder = data_dir();
    let ledger = Ledger::below(folder.path());
    assert_eq!(ledger.find("run_01").await.unwrap_err().code, ErrorCode::RunNotFound);
    let (mut first, mut second) = (finished(b"", b""), finished(b"", b""));
    record(&ledger, &mut first).await.unwrap();
    let id = first.run.to_string();
    for text in [&id[..], &id[..10], &id[4..], "0", "run_0", &id.to_lowercase()[4..]] {
        assert_eq!(ledger.find(text).await.unwrap(), first.run, "{text}");
    }
    record(&ledger, &mut second).await.unwrap();
    assert_eq!(ledger.find(&id).await.unwrap(), first.run);
    assert_eq!(ledger.find("run_0").await.unwrap_err().code, ErrorCode::AmbiguousId);
    for text in ["", "run_", "%", "run_%", "run_Z", "../..", "run_0'"] {
        assert_eq!(ledger.find(text).await.unwrap_err().code, ErrorCode::RunNotFound, "{text}");
    }
}

#[tokio::test]
async fn a_run_under_way_is_listed_as_running_and_a_forgotten_one_never_was() {
    let folder = data_dir();
    let (ledger, reader) = (Ledger::below(folder.path()), Ledger::below(folder.path()));
    let mut result = finished(b"out", b"");
    result.labels.insert("team".into(), "red".into());
    let recording = ledger.begin(begun(&result));
    let listed = all(&reader).await;
    assert_eq!((listed.len(), listed[0].run, &listed[0].outcome), (1, result.run, &None));
    let red = Filter { outcome: Some("running".into()), labels: result.labels.clone(), ..Filter::default() };
    assert_eq!(reader.list(&red).await.unwrap().runs.len(), 1);
    let lost = Filter { outcome: Some("lost".into()), ..Filter::default() };
    assert!(reader.list(&lost).await.unwrap().runs.is_empty());
    assert_eq!(reader.find(&result.run.to_string()).await.unwrap(), result.run);
    assert!(reader.document(result.run).await.unwrap().contains("\"outcome\":null"));
    recording.finish(&mut result, Vec::new()).await.unwrap();
    assert_eq!(all(&reader).await[0].outcome, Some(Outcome::Exited { code: 0 }));

    let never = finished(b"", b"");
    ledger.begin(begun(&never)).forget();
    assert_eq!(all(&reader).await.len(), 1);
}

#[tokio::test]
async fn a_run_that_nobody_finishes_is_lost_and_stays_so() {
    let _nobody_starts = STARTING.read().await;
    let folder = data_dir();
    let (ledger, reader) = (Ledger::below(folder.path()), Ledger::below(folder.path()));
    let result = finished(b"", b"");
    drop(ledger.begin(begun(&result)));
    for _ in 0..2 {
        let listed = all(&reader).await;
        assert_eq!((listed.len(), &listed[0].outcome), (1, &Some(Outcome::Lost)));
        assert_eq!(listed[0].duration_ms, None);
    }
    assert!(reader.document(result.run).await.unwrap().contains(r#""outcome":{"kind":"lost"}"#));
    assert_eq!(fs::read_dir(folder.path().join("running")).unwrap().count(), 0);
}

#[tokio::test]
async fn half_a_note_is_a_run_that_never_began() {
    let folder = data_dir();
    let (running, run) = (folder.path().join("running"), RunId::new());
    fs::create_dir(&running).unwrap();
    fs::write(running.join(run.to_string()), r#"{"run":"run_"#).unwrap();
    assert!(all(&Ledger::below(folder.path())).await.is_empty());
    assert!(!running.join(run.to_string()).exists());
}
