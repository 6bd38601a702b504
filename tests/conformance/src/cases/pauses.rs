//! What a pause does to time, to memory, and to those who are ended meanwhile.

use std::time::{Duration, Instant};

use glovebox_core::{EndReason, ErrorCode, Outcome, SandboxState};
use glovebox_engine::{NewSandbox, Stdin};

use super::living::{create, destroy, living_for, request, run, state, until};
use crate::{World, case::cases, client::Client, finished::Finished, reading::read_until};

cases!["pauses":
    the_time_of_a_run_stands_still_while_its_sandbox_is_paused needs(pause),
    the_time_of_a_run_that_nobody_follows_stands_still_too needs(pause),
    the_grace_of_a_run_stands_still_too needs(pause),
    a_paused_sandbox_is_not_idle_and_is_so_again_when_it_goes_on needs(pause),
    a_paused_sandbox_that_is_too_old_ends needs(pause),
    a_run_of_a_paused_sandbox_is_cancelled_and_nothing_else_moves needs(pause),
    whoever_follows_a_paused_run_can_end_it needs(pause),
    one_that_was_killed_just_before_a_pause_ends needs(pause),
    a_paused_sandbox_is_stopped_and_reset needs(pause),
    one_that_holds_a_sandbox_starts_nothing_in_it_while_it_is_paused needs(pause),
    a_sandbox_starts_commands_again_whose_pause_was_ended_by_half needs(pause),
    a_paused_sandbox_gives_back_the_cache_of_its_files needs(pause),
    to_pause_or_resume_twice_is_to_do_it_once needs(pause),
];

async fn to_pause_or_resume_twice_is_to_do_it_once(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let text = sandbox.id().to_string();
    w.engine().resume(&text).await.expect("it goes on");
    for _ in 0..2 {
        w.engine().pause(&text).await.expect("it is paused");
        assert_eq!(state(&w, sandbox.id()).await, SandboxState::Paused);
    }
    for _ in 0..2 {
        w.engine().resume(&text).await.expect("it goes on");
        assert_eq!(state(&w, sandbox.id()).await, SandboxState::Ready);
    }
    run(&sandbox, "echo yes").await.expect_out("yes\n");
    destroy(&w, sandbox.id()).await;
}

async fn a_paused_sandbox_gives_back_the_cache_of_its_files(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let text = sandbox.id().to_string();
    run(&sandbox, "dd if=/dev/zero of=file bs=1M count=64 conv=fsync status=none").await.expect_exit(0);
    let began = Instant::now();
    let paused = w.engine().pause(&text).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let bytes = paused.reclaimed_bytes.expect("it was soon known");
    assert!(bytes > 48 << 20, "{bytes} bytes of 64 MiB were given back");
    w.engine().resume(&text).await.expect("it goes on");
    run(&sandbox, "stat -c %s file").await.expect_out("67108864\n");
    destroy(&w, sandbox.id()).await;
}

/// What a run has whose sandbox is paused meanwhile; and a pause that is longer than that, and than the guest waits after its
/// host.
const TIME: Duration = Duration::from_secs(5);
const LONGER: Duration = Duration::from_millis(6500);

async fn the_time_of_a_run_stands_still_while_its_sandbox_is_paused(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let text = sandbox.id().to_string();
    let asked = |line| {
        let mut asked = request(line);
        asked.spec.limits.timeout = TIME;
        asked.spec.limits.grace = Duration::from_millis(100);
        asked
    };
    let mut going = sandbox.start(asked("echo up; sleep 1; echo through")).await.expect("it starts");
    let mut endless = sandbox.start(asked("echo up; sleep 100")).await.expect("it starts");
    read_until(&mut going, "up\n").await;
    read_until(&mut endless, "up\n").await;
    w.engine().pause(&text).await.unwrap_or_else(|error| panic!("{error}"));
    let paused = Instant::now();
    tokio::time::sleep(LONGER).await;
    let paused = paused.elapsed();
    w.engine().resume(&text).await.expect("it goes on");
    Finished(going.wait().await.expect("a result")).expect_exit(0).expect_out("up\nthrough\n");
    // The rest of its time is over when it is.
    let limit_ms = TIME.as_millis() as u64;
    let result = Finished(endless.wait().await.expect("a result")).expect_outcome(&Outcome::TimedOut { limit_ms });
    let lasted = Duration::from_secs_f64(result.duration_ms / 1000.0);
    assert!(lasted >= TIME + paused && lasted < TIME + paused + LONGER, "{lasted:?} with a pause of {paused:?}");
    destroy(&w, sandbox.id()).await;
}

async fn the_time_of_a_run_that_nobody_follows_stands_still_too(w: World) {
    let folder = w.folder("recorded");
    let engine = w.engine().clone().with_data_dir(&folder);
    let sandbox = engine.create_living(NewSandbox::default()).await.unwrap_or_else(|error| panic!("{error}"));
    let text = sandbox.id().to_string();
    let mut client = Client::start(&folder, sandbox.id(), TIME, "echo up; sleep 1; exit 6");
    assert_eq!(client.line(), "up\n");
    let id = client.run;
    client.kill();
    engine.pause(&text).await.expect("it can be paused");
    tokio::time::sleep(LONGER).await;
    engine.resume(&text).await.expect("it goes on");
    let again = sandbox.attach(id, Stdin::Empty).await.expect("the run is there");
    Finished(again.wait().await.expect("a result")).expect_exit(6);
    sandbox.destroy().await.expect("it can be destroyed");
}

async fn the_grace_of_a_run_stands_still_too(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let text = sandbox.id().to_string();
    let mut asked = request("trap 'echo told; sleep 1; echo clean; exit 3' TERM; echo up; while :; do sleep 0.1; done");
    asked.spec.limits.timeout = Duration::from_secs(1);
    asked.spec.limits.grace = TIME;
    let mut going = sandbox.start(asked).await.expect("it starts");
    read_until(&mut going, "told\n").await;
    w.engine().pause(&text).await.expect("it can be paused");
    tokio::time::sleep(LONGER).await;
    w.engine().resume(&text).await.expect("it goes on");
    let ended = Finished(going.wait().await.expect("a result"));
    ended.expect_out("up\ntold\nclean\n").expect_outcome(&Outcome::TimedOut { limit_ms: 1000 });
    destroy(&w, sandbox.id()).await;
}

async fn a_paused_sandbox_is_not_idle_and_is_so_again_when_it_goes_on(w: World) {
    let sandbox = create(&w, living_for(Some(Duration::from_millis(400)), None)).await;
    let (id, text) = (sandbox.id(), sandbox.id().to_string());
    drop(sandbox);
    w.engine().pause(&text).await.expect("it can be paused");
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(state(&w, id).await, SandboxState::Paused);
    w.engine().resume(&text).await.expect("it goes on");
    assert_eq!(state(&w, id).await, SandboxState::Ready);
    until(&w, id, SandboxState::Gone).await;
    let ended = w.engine().status(&text).await.expect("its end is known").ended;
    assert_eq!(ended.expect("a reason").reason, EndReason::IdleTimeout);
    destroy(&w, id).await;
}

async fn a_paused_sandbox_that_is_too_old_ends(w: World) {
    let sandbox = create(&w, living_for(None, Some(Duration::from_millis(800)))).await;
    let (id, text) = (sandbox.id(), sandbox.id().to_string());
    drop(sandbox.start(request("while :; do :; done")).await.expect("it starts"));
    drop(sandbox);
    w.engine().pause(&text).await.expect("it can be paused");
    until(&w, id, SandboxState::Gone).await;
    let ended = w.engine().status(&text).await.expect("its end is known").ended;
    assert_eq!(ended.expect("a reason").reason, EndReason::MaxAge);
    destroy(&w, id).await;
}

const COUNTS: &str = "i=0; while :; do i=$((i+1)); echo $i > count; done";

async fn a_run_of_a_paused_sandbox_is_cancelled_and_nothing_else_moves(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let text = sandbox.id().to_string();
    let victim = sandbox.start(request("(setsid sleep 100 &); sleep 100")).await.expect("it starts");
    let counting = sandbox.start(request(COUNTS)).await.expect("it starts");
    let place = super::living::place(&w, sandbox.id());
    let count = || std::fs::read_to_string(place.join("files/workspace/agent_workspace/count")).unwrap_or_default();
    while count().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    w.engine().pause(&text).await.expect("it can be paused");
    let before = count();
    let paused = w.engine().open_paused(&text).await.expect("its runs can be ended");
    paused.cancel(victim.id()).await.unwrap_or_else(|error| panic!("{error}"));
    Finished(victim.wait().await.expect("a result")).expect_outcome(&Outcome::Cancelled);
    assert_eq!(state(&w, sandbox.id()).await, SandboxState::Paused);
    assert_eq!(count(), before, "what is paused has moved");
    w.engine().resume(&text).await.expect("it goes on");
    run(&sandbox, "pgrep sleep || echo none").await.expect_out("none\n");
    counting.cancel();
    Finished(counting.wait().await.expect("a result")).expect_outcome(&Outcome::Cancelled);
    destroy(&w, sandbox.id()).await;
}

async fn whoever_follows_a_paused_run_can_end_it(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let text = sandbox.id().to_string();
    let going = sandbox.start(request("sleep 100")).await.expect("it starts");
    w.engine().pause(&text).await.expect("it can be paused");
    going.cancel();
    let result = Finished(going.wait().await.expect("a result")).expect_outcome(&Outcome::Cancelled);
    assert!(result.warnings.is_empty(), "{:?}", result.warnings);
    assert_eq!(state(&w, sandbox.id()).await, SandboxState::Paused);
    destroy(&w, sandbox.id()).await;
}

async fn one_that_was_killed_just_before_a_pause_ends(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let text = sandbox.id().to_string();
    let victim = sandbox.start(request("sleep 100")).await.expect("it starts");
    w.engine().pause(&text).await.expect("it can be paused");
    // It cannot die of this by itself where groups are of version 1, as one that was killed before it was frozen.
    sandbox.signal(victim.id(), 9).await.expect("it can be sent");
    w.engine().pause(&text).await.expect("it can be paused");
    let ended = tokio::time::timeout(Duration::from_secs(20), victim.wait()).await.expect("it has ended");
    Finished(ended.expect("a result")).expect_outcome(&Outcome::Signaled { signal: 9 });
    assert_eq!(state(&w, sandbox.id()).await, SandboxState::Paused);
    destroy(&w, sandbox.id()).await;
}

async fn a_paused_sandbox_is_stopped_and_reset(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let (id, text) = (sandbox.id(), sandbox.id().to_string());
    run(&sandbox, "echo kept > file; (while :; do :; done) &").await.expect_exit(0);
    drop(sandbox);
    w.engine().pause(&text).await.expect("it can be paused");
    assert_eq!(w.engine().restart(&text).await.err().expect("it is paused").code, ErrorCode::WrongState);
    w.engine().stop(&text).await.expect("it can be stopped");
    assert_eq!(w.engine().pause(&text).await.expect_err("it is stopped").code, ErrorCode::WrongState);
    let again = w.engine().restart(&text).await.expect("it starts again");
    run(&again, "cat file").await.expect_out("kept\n");
    drop(again);
    w.engine().pause(&text).await.expect("it can be paused");
    let new = w.engine().reset(&text).await.expect("it can be reset");
    run(&new, "ls").await.expect_out("");
    destroy(&w, id).await;
}

async fn one_that_holds_a_sandbox_starts_nothing_in_it_while_it_is_paused(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let text = sandbox.id().to_string();
    w.engine().pause(&text).await.expect("it can be paused");
    let began = Instant::now();
    let error = sandbox.run(request("echo no")).await.expect_err("it is paused");
    assert_eq!(error.code, ErrorCode::WrongState, "{error}");
    assert!(error.hint.is_some() && began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    w.engine().resume(&text).await.expect("it goes on");
    run(&sandbox, "echo yes").await.expect_out("yes\n");
    destroy(&w, sandbox.id()).await;
}

async fn a_sandbox_starts_commands_again_whose_pause_was_ended_by_half(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let text = sandbox.id().to_string();
    w.engine().pause(&text).await.expect("it can be paused");
    let error = sandbox.run(request("echo no")).await.expect_err("it is paused");
    assert!(error.hint.as_ref().is_some_and(|hint| hint.contains(&format!("glovebox resume {text}"))), "{error:?}");
    // As one who dies before the guest is told.
    w.backend().resume(sandbox.id()).await.expect("it goes on");
    assert_eq!(state(&w, sandbox.id()).await, SandboxState::Ready);
    run(&sandbox, "echo yes").await.expect_out("yes\n");
    destroy(&w, sandbox.id()).await;
}
