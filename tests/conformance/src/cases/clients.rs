//! Clients of a living sandbox that lose their connection, die and come again.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use glovebox_core::{Command, Outcome, RunId};
use glovebox_engine::{Engine, Event, KnownRun, NewSandbox, Run, RunRequest, Sandbox, Stdin};
use glovebox_ledger::{Ledger, Stream, Unfollowed};
use tokio::sync::mpsc;

use crate::{World, case::cases, client::Client, cutting::Cutting, finished::Finished, reading::read_until};

cases!["clients":
    a_run_survives_the_loss_of_its_connection needs(living),
    output_that_was_under_way_when_the_connection_broke_comes_again needs(living),
    input_that_was_under_way_when_the_connection_broke_is_sent_again needs(living),
    a_client_that_is_killed_does_not_end_its_run needs(living),
    a_run_whose_client_was_killed_is_followed_again_and_recorded needs(living),
    a_run_that_ended_after_its_client_was_killed_is_told_to_the_next needs(living),
    a_run_whose_client_and_sandbox_are_gone_is_lost needs(living),
    a_run_whose_client_was_killed_ends_when_its_time_is_over needs(living),
    an_onlooker_without_the_secrets_of_a_run_keeps_nothing_of_it needs(living),
];

const UNTIL_GO: &str = "while [ ! -e go ]; do sleep 0.01; done";
const LONG: Duration = Duration::from_secs(60);

fn request(line: &str) -> RunRequest {
    RunRequest::new(Command::argv(["/bin/sh", "-c", line]).expect("the case names a command"))
}

async fn create(engine: &Engine) -> Sandbox {
    engine.create_living(NewSandbox::default()).await.unwrap_or_else(|error| panic!("{}: {error}", error.code))
}

async fn wait(run: Run) -> Finished {
    Finished(run.wait().await.unwrap_or_else(|error| panic!("{}: {error}", error.code)))
}

async fn go(sandbox: &Sandbox) {
    Finished(sandbox.run(request("touch go")).await.expect("the run is made")).expect_exit(0);
}

async fn destroy(sandbox: Sandbox) {
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

/// An engine whose connections can be cut.
fn cuttable(w: &World) -> (Arc<Cutting>, Engine) {
    let backend = Arc::new(Cutting::new(w.backend()));
    (backend.clone(), Engine::new(backend).with_data_dir(w.data_dir()))
}

/// The data folder of clients, who record what they run.
fn folder(w: &World) -> PathBuf {
    w.folder("recorded")
}

/// An engine that records, as the clients do.
fn recording(w: &World) -> (Ledger, Engine) {
    let ledger = Ledger::below(folder(w));
    (ledger.clone(), w.engine().clone().with_data_dir(folder(w)).with_ledger(ledger))
}

/// What a sandbox knows of a run, as soon as it fits.
async fn until(sandbox: &Sandbox, run: RunId, fits: impl Fn(&KnownRun) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let runs = sandbox.runs().await.expect("a list");
        if runs.iter().any(|known| known.run == run && fits(known)) {
            return;
        }
        assert!(Instant::now() < deadline, "{run} among {runs:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn a_run_survives_the_loss_of_its_connection(w: World) {
    let (backend, engine) = cuttable(&w);
    let sandbox = create(&engine).await;
    let mut run = sandbox.start(request(&format!("echo one; {UNTIL_GO}; echo two; exit 3"))).await.expect("a run");
    read_until(&mut run, "one\n").await;
    let before = backend.cut();
    go(&sandbox).await;
    wait(run).await.expect_exit(3).expect_out("one\ntwo\n");
    assert!(backend.cut() > before, "nothing was connected again");
    destroy(sandbox).await;
}

async fn output_that_was_under_way_when_the_connection_broke_comes_again(w: World) {
    let (backend, engine) = cuttable(&w);
    let sandbox = create(&engine).await;
    let mut asked = request("seq 2000000");
    asked.spec.limits.output = 64 << 20;
    let mut run = sandbox.start(asked).await.expect("a run");
    let mut got = Vec::new();
    let mut next_cut = 1 << 20;
    while let Some(event) = run.next_event().await {
        match event {
            Event::Stdout(bytes) => got.extend_from_slice(&bytes),
            Event::Missed { stdout, .. } => panic!("the owner missed {stdout} bytes after {}", got.len()),
            _ => {}
        }
        if got.len() > next_cut {
            backend.cut();
            next_cut += 3 << 20;
        }
    }
    let expected: String = (1..=2_000_000).map(|n| format!("{n}\n")).collect();
    assert!(got == expected.as_bytes(), "{} bytes came, or others than {}", got.len(), expected.len());
    assert!(backend.cut() >= 5, "nothing was connected again");
    assert_eq!(wait(run).await.expect_exit(0).stdout.bytes, expected.len() as u64);
    destroy(sandbox).await;
}

async fn input_that_was_under_way_when_the_connection_broke_is_sent_again(w: World) {
    let (backend, engine) = cuttable(&w);
    let sandbox = create(&engine).await;
    let bytes: Vec<u8> = (0..8u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (keys, stream) = mpsc::channel(1);
    let mut asked = request("cat");
    asked.stdin = Stdin::Stream(stream);
    asked.spec.limits.output = 16 << 20;
    let run = sandbox.start(asked).await.expect("a run");
    let feed = async {
        for (number, chunk) in bytes.chunks(100_000).enumerate() {
            keys.send(Bytes::copy_from_slice(chunk)).await.expect("the run takes input");
            if number % 20 == 10 {
                backend.cut();
            }
        }
        drop(keys);
    };
    let (run, ()) = tokio::join!(wait(run), feed);
    let run = run.expect_exit(0);
    assert!(run.out_bytes() == bytes, "{} bytes came back, or others", run.stdout.bytes);
    destroy(sandbox).await;
}

async fn a_client_that_is_killed_does_not_end_its_run(w: World) {
    let sandbox = create(&w.engine().clone().with_data_dir(folder(&w))).await;
    let line = format!("echo up; seq 1000; {UNTIL_GO}; echo down; exit 7");
    let mut client = Client::start(&folder(&w), sandbox.id(), LONG, &line);
    assert_eq!(client.line(), "up\n");
    let run = client.run;
    client.kill();
    until(&sandbox, run, |known| !known.followed && known.ended.is_none()).await;
    let again = sandbox.attach(run, Stdin::Empty).await.expect("the run is there");
    go(&sandbox).await;
    let all: String = (1..=1000).map(|n| format!("{n}\n")).collect();
    wait(again).await.expect_exit(7).expect_out(&format!("up\n{all}down\n"));
    destroy(sandbox).await;
}

async fn a_run_whose_client_was_killed_is_followed_again_and_recorded(w: World) {
    let (ledger, engine) = recording(&w);
    let sandbox = create(&engine).await;
    let mut client = Client::start(&folder(&w), sandbox.id(), LONG, &format!("echo up; {UNTIL_GO}; echo down; exit 7"));
    assert_eq!(client.line(), "up\n");
    let run = client.run;
    assert!(sandbox.follow_again(run).await.expect("an answer").is_none(), "somebody follows it");
    client.kill();
    assert_eq!(engine.unfollowed().expect("a list"), [Unfollowed { run, sandbox: sandbox.id() }]);
    let again = sandbox.follow_again(run).await.expect("an answer").expect("nobody follows it");
    assert_eq!(engine.unfollowed().expect("a list"), []);
    go(&sandbox).await;
    let result = wait(again).await.expect_exit(7).expect_out("up\ndown\n");
    assert!(result.recorded && result.warnings.is_empty(), "{result:?}");
    assert_eq!(ledger.output(run, Stream::Stdout).await.expect("it is recorded"), b"up\ndown\n");
    destroy(sandbox).await;
}

async fn a_run_that_ended_after_its_client_was_killed_is_told_to_the_next(w: World) {
    let (ledger, engine) = recording(&w);
    let sandbox = create(&engine).await;
    let client = Client::start(&folder(&w), sandbox.id(), LONG, &format!("{UNTIL_GO}; echo alone; exit 8"));
    let run = client.run;
    client.kill();
    go(&sandbox).await;
    until(&sandbox, run, |known| known.ended.is_some_and(|end| end.code == Some(8))).await;
    let again = sandbox.follow_again(run).await.expect("an answer").expect("nobody follows it");
    wait(again).await.expect_exit(8).expect_out("alone\n");
    assert_eq!(ledger.output(run, Stream::Stdout).await.expect("it is recorded"), b"alone\n");
    // An owner has heard of it, so it is forgotten.
    let runs = sandbox.runs().await.expect("a list");
    assert!(runs.iter().all(|known| known.run != run), "{runs:?}");
    assert!(sandbox.follow_again(run).await.expect("an answer").is_none());
    destroy(sandbox).await;
}

async fn a_run_whose_client_and_sandbox_are_gone_is_lost(w: World) {
    let (ledger, engine) = recording(&w);
    let sandbox = create(&engine).await;
    let client = Client::start(&folder(&w), sandbox.id(), LONG, "sleep 60");
    let run = client.run;
    client.kill();
    destroy(sandbox).await;
    assert_eq!(engine.unfollowed().expect("a list").len(), 1);
    assert!(engine.give_up(run).await.expect("it can be recorded"));
    let document = ledger.document(run).await.expect("it is recorded");
    assert!(document.contains(r#""outcome":{"kind":"lost"}"#), "{document}");
}

async fn a_run_whose_client_was_killed_ends_when_its_time_is_over(w: World) {
    let (_, engine) = recording(&w);
    let sandbox = create(&engine).await;
    let client = Client::start(&folder(&w), sandbox.id(), Duration::from_millis(300), "sleep 60");
    let run = client.run;
    client.kill();
    until(&sandbox, run, |known| known.ended.is_some()).await;
    let again = sandbox.follow_again(run).await.expect("an answer").expect("nobody follows it");
    let again = wait(again).await.expect_outcome(&Outcome::TimedOut { limit_ms: 300 });
    assert!((300.0..5000.0).contains(&again.duration_ms), "{}", again.story());
    destroy(sandbox).await;
}

async fn an_onlooker_without_the_secrets_of_a_run_keeps_nothing_of_it(w: World) {
    let (_, engine) = recording(&w);
    let sandbox = create(&engine).await;
    let mut asked = request(&format!("{UNTIL_GO}; echo $TOKEN; echo $TOKEN > /workspace/outputs/token"));
    asked.command = asked.command.secret("TOKEN", glovebox_core::Secret::new("hunter2hunter2")).expect("a secret");
    let first = sandbox.start(asked).await.expect("a run");
    // The process that knows the secret looks on; another one attaches.
    let other = engine.open(&sandbox.id().to_string()).await.expect("it is there");
    let onlooker = other.attach(first.id(), Stdin::Empty).await.expect("the run is there");
    go(&sandbox).await;
    let (first, onlooker) = tokio::join!(wait(first), wait(onlooker));
    assert_eq!(first.expect_exit(0).out(), "[redacted]\n");
    let onlooker = onlooker.expect_exit(0);
    assert_eq!((onlooker.out().as_str(), onlooker.stdout.bytes, onlooker.warnings.len()), ("", 15, 1), "{onlooker:?}");
    destroy(sandbox).await;
}
