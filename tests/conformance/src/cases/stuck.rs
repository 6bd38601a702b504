//! Processes that the kernel does not let die: whoever ends them is told, in time, and the rest is removed when they are gone.

use std::time::{Duration, Instant};

use glovebox_core::{
    Access, Command, ErrorCode, InsidePath, Mount, MountKind, Outcome, RunResult, SandboxSpec, SandboxState,
};
use glovebox_engine::{NewSandbox, Run, RunRequest, Sandbox};

use super::living::{create, destroy, expect_nothing, run, until};
use crate::{World, case::cases, finished::Finished, stuck::Stuck};

cases!["stuck":
    a_run_that_cannot_die_is_told_of_in_time_and_harms_no_other_run fuse(),
    a_run_that_cannot_die_is_out_of_time_in_time fuse(),
    a_sandbox_that_cannot_be_stopped_says_why_and_is_stopped_later fuse(),
    a_sandbox_that_cannot_be_destroyed_says_why_and_is_removed_later fuse(),
    whoever_makes_the_next_sandbox_removes_one_that_could_not_be_destroyed fuse(),
    a_sandbox_with_a_process_that_cannot_be_frozen_goes_on fuse(),
    a_sandbox_that_cannot_be_frozen_holds_up_no_other fuse(),
    a_one_shot_run_that_cannot_die_ends_for_its_caller fuse(),
];

const OPENS: &str = "exec cat /stuck/file";
/// A kill, a grace for the guest, and two looks at what is left, on a busy machine.
const IN_TIME: Duration = Duration::from_secs(20);

fn spec(w: &World) -> (Stuck, SandboxSpec) {
    let source = w.folder("stuck");
    let stuck = Stuck::mount(&source);
    let target = InsidePath::absolute("/stuck").expect("a path");
    let mount = Mount { source, target, access: Access::ReadOnly, kind: MountKind::Host };
    (stuck, SandboxSpec { mounts: vec![mount], ..SandboxSpec::default() })
}

/// A living sandbox, and a run in it that waits for the mount.
async fn stuck_run(w: &World) -> (Stuck, Sandbox, Run) {
    let (stuck, spec) = spec(w);
    let sandbox = create(w, NewSandbox { spec, ..NewSandbox::default() }).await;
    let run = sandbox.start(request(OPENS)).await.unwrap_or_else(|error| panic!("{error}"));
    stuck.wait_until_opened();
    (stuck, sandbox, run)
}

fn request(line: &str) -> RunRequest {
    RunRequest::new(Command::argv(["/bin/sh", "-c", line]).expect("the case names a command"))
}

#[track_caller]
fn expect_told(result: &RunResult, outcome: &Outcome, began: Instant) {
    assert_eq!(&result.outcome, outcome);
    assert!(began.elapsed() < IN_TIME, "{:?}", began.elapsed());
    assert!(result.warnings.iter().any(|warning| warning.code == "still_ending"), "{:?}", result.warnings);
}

async fn a_run_that_cannot_die_is_told_of_in_time_and_harms_no_other_run(w: World) {
    let (mut stuck, sandbox, stuck_run) = stuck_run(&w).await;
    let (began, id) = (Instant::now(), stuck_run.id());
    stuck_run.cancel();
    let (result, other) = tokio::join!(stuck_run.wait(), run(&sandbox, "echo beside"));
    other.expect_out("beside\n");
    expect_told(&result.expect("a result"), &Outcome::Cancelled, began);
    let is_under_way = || async {
        let runs = sandbox.runs().await.expect("a list");
        runs.iter().any(|known| known.run == id && known.ended.is_none())
    };
    assert!(is_under_way().await, "it waits in the kernel");
    stuck.let_go();
    while is_under_way().await {
        assert!(began.elapsed() < 2 * IN_TIME, "it does not end");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    run(&sandbox, "echo after").await.expect_out("after\n");
    destroy(&w, sandbox.id()).await;
}

async fn a_run_that_cannot_die_is_out_of_time_in_time(w: World) {
    let (mut stuck, spec) = spec(&w);
    let sandbox = create(&w, NewSandbox { spec, ..NewSandbox::default() }).await;
    let mut asked = request(OPENS);
    asked.spec.limits.timeout = Duration::from_millis(300);
    asked.spec.limits.grace = Duration::from_millis(100);
    let began = Instant::now();
    let result = sandbox.run(asked).await.expect("a result");
    expect_told(&result, &Outcome::TimedOut { limit_ms: 300 }, began);
    stuck.let_go();
    destroy(&w, sandbox.id()).await;
}

async fn a_sandbox_that_cannot_be_stopped_says_why_and_is_stopped_later(w: World) {
    let (mut stuck, sandbox, stuck_run) = stuck_run(&w).await;
    let (began, id) = (Instant::now(), sandbox.id());
    drop((sandbox, stuck_run));
    let text = id.to_string();
    let error = w.engine().stop(&text).await.expect_err("a process of it cannot die");
    assert!(began.elapsed() < IN_TIME, "{:?}", began.elapsed());
    assert_eq!(error.code, ErrorCode::StillEnding, "{error}");
    assert!(error.message.contains("cat (process ") && error.hint.is_some(), "{error:?}");
    assert_eq!(w.engine().status(&text).await.expect("it is there").state, SandboxState::Stopping);
    assert_eq!(w.engine().open(&text).await.err().expect("it is stopping").code, ErrorCode::WrongState);
    assert_eq!(w.engine().restart(&text).await.err().expect("it is stopping").code, ErrorCode::StillEnding);
    stuck.let_go();
    until(&w, id, SandboxState::Stopped).await;
    let again = w.engine().restart(&text).await.unwrap_or_else(|error| panic!("{error}"));
    run(&again, "echo again").await.expect_out("again\n");
    destroy(&w, id).await;
}

async fn a_sandbox_that_cannot_be_destroyed_says_why_and_is_removed_later(w: World) {
    let (mut stuck, sandbox, stuck_run) = stuck_run(&w).await;
    let (began, id) = (Instant::now(), sandbox.id());
    drop((sandbox, stuck_run));
    let text = id.to_string();
    let error = w.engine().destroy(&text).await.expect_err("a process of it cannot die");
    assert!(began.elapsed() < IN_TIME, "{:?}", began.elapsed());
    assert_eq!(error.code, ErrorCode::StillEnding, "{error}");
    assert_eq!(w.engine().status(&text).await.expect("it is there").state, SandboxState::Destroying);
    assert_eq!(w.engine().restart(&text).await.err().expect("it is doomed").code, ErrorCode::WrongState);
    let collecting = Instant::now();
    assert_eq!(w.engine().collect_sandboxes().await, Vec::<String>::new());
    w.engine().collect_garbage().await.expect("others can be collected");
    assert!(collecting.elapsed() < Duration::from_secs(5), "{:?}", collecting.elapsed());
    stuck.let_go();
    let deadline = Instant::now() + IN_TIME;
    while w.engine().collect_sandboxes().await.is_empty() {
        assert!(Instant::now() < deadline, "it is not removed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    expect_nothing(&w, id);
    let gone = w.engine().status(&text).await.expect_err("it is gone");
    assert_eq!(gone.code, ErrorCode::SandboxNotFound);
}

async fn whoever_makes_the_next_sandbox_removes_one_that_could_not_be_destroyed(w: World) {
    let (mut stuck, sandbox, stuck_run) = stuck_run(&w).await;
    let id = sandbox.id();
    drop((sandbox, stuck_run));
    let error = w.engine().destroy(&id.to_string()).await.expect_err("a process of it cannot die");
    assert_eq!(error.code, ErrorCode::StillEnding, "{error}");
    let make_another = || async {
        let other = create(&w, NewSandbox::default()).await;
        destroy(&w, other.id()).await;
    };
    make_another().await;
    assert_eq!(w.engine().status(&id.to_string()).await.expect("it is there").state, SandboxState::Destroying);
    stuck.let_go();
    let deadline = Instant::now() + IN_TIME;
    while w.engine().status(&id.to_string()).await.is_ok() {
        assert!(Instant::now() < deadline, "it is not removed");
        make_another().await;
    }
    expect_nothing(&w, id);
}

async fn a_sandbox_with_a_process_that_cannot_be_frozen_goes_on(w: World) {
    let (mut stuck, sandbox, stuck_run) = stuck_run(&w).await;
    let text = sandbox.id().to_string();
    let began = Instant::now();
    match w.engine().pause(&text).await {
        // Version 2 freezes what returns to the program, and takes the rest for frozen.
        Ok(_) => drop(w.engine().resume(&text).await.expect("it goes on")),
        Err(error) => assert_eq!(error.code, ErrorCode::WrongState, "{error}"),
    }
    assert!(began.elapsed() < IN_TIME, "{:?}", began.elapsed());
    assert_eq!(w.engine().status(&text).await.expect("it is there").state, SandboxState::Ready);
    run(&sandbox, "echo on").await.expect_out("on\n");
    stuck.let_go();
    Finished(stuck_run.wait().await.expect("a result")).expect_exit(1);
    destroy(&w, sandbox.id()).await;
}

async fn a_sandbox_that_cannot_be_frozen_holds_up_no_other(w: World) {
    let (mut stuck, sandbox, stuck_run) = stuck_run(&w).await;
    // One launcher keeps both.
    let other = create(&w, NewSandbox::default()).await;
    let (text, began) = (sandbox.id().to_string(), Instant::now());
    let pause = w.engine().pause(&text);
    tokio::pin!(pause);
    let mut longest = Duration::ZERO;
    let paused = loop {
        let asked = Instant::now();
        let paused = tokio::select! {
            paused = &mut pause => Some(paused),
            usage = other.usage() => usage.map(|_| None).expect("it can be looked at"),
        };
        longest = longest.max(asked.elapsed());
        if let Some(paused) = paused {
            break paused;
        }
    };
    // Version 2 freezes at once.
    if paused.is_err() {
        assert!(2 * longest < began.elapsed(), "{longest:?} of {:?}", began.elapsed());
    }
    stuck.let_go();
    drop(stuck_run);
    destroy(&w, other.id()).await;
    destroy(&w, sandbox.id()).await;
}

async fn a_one_shot_run_that_cannot_die_ends_for_its_caller(w: World) {
    let (mut stuck, spec) = spec(&w);
    let mut asked = request(OPENS);
    asked.spec = spec;
    asked.spec.limits.timeout = Duration::from_millis(300);
    asked.spec.limits.grace = Duration::from_millis(100);
    let began = Instant::now();
    let result = w.engine().run(asked).await.unwrap_or_else(|error| panic!("{error}"));
    expect_told(&result, &Outcome::TimedOut { limit_ms: 300 }, began);
    assert!(result.warnings.iter().any(|warning| warning.message.contains("cat (process ")), "{:?}", result.warnings);
    let sandbox = result.sandbox;
    stuck.let_go();
    let name = sandbox.to_string();
    let deadline = Instant::now() + IN_TIME;
    while w.traces().things.iter().any(|thing| thing.contains(&name)) {
        assert!(Instant::now() < deadline, "it is not removed: {:?}", w.traces().things);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
