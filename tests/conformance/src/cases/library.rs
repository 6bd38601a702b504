//! The engine as a library: living sandboxes, runs side by side, values that are dropped.

use glovebox_core::{Command, Outcome};
use glovebox_engine::RunRequest;
use tokio::task::JoinSet;

use crate::{World, case::cases, finished::Finished, reading::read_until};

cases!["library":
    a_second_run_in_the_same_sandbox_sees_the_files_of_the_first,
    runs_in_one_sandbox_have_ids_and_results_of_their_own,
    eight_runs_at_once_in_one_sandbox_do_not_mix,
    eight_sandboxes_at_once_do_not_mix,
    a_run_that_fails_leaves_its_sandbox_usable needs(cgroup_limits),
    a_command_that_is_not_found_leaves_its_sandbox_usable,
    one_run_can_be_cancelled_while_another_goes_on,
    the_changes_of_a_living_sandbox_can_be_asked_for,
    the_evidence_of_a_living_sandbox_can_be_asked_for needs(cgroup_limits),
    a_run_that_is_dropped_leaves_nothing ends_in_background(),
    a_run_that_is_dropped_at_its_start_leaves_nothing ends_in_background(),
    a_start_that_is_given_up_at_any_moment_leaves_nothing ends_in_background(),
    a_sandbox_that_is_dropped_leaves_nothing ends_in_background(),
    a_sandbox_that_is_dropped_with_a_run_in_it_leaves_nothing ends_in_background(),
    destroying_a_sandbox_ends_the_run_in_it,
    leftover_checks_see_a_living_sandbox,
    there_is_no_garbage_while_everything_is_in_order,
];

async fn a_second_run_in_the_same_sandbox_sees_the_files_of_the_first(w: World) {
    let sandbox = w.sandbox().create().await;
    w.sandbox().inside(&sandbox).sh("echo first > note; echo x > /tmp/t").await.expect_exit(0);
    w.sandbox().inside(&sandbox).sh("cat note /tmp/t").await.expect_exit(0).expect_out("first\nx\n");
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

async fn runs_in_one_sandbox_have_ids_and_results_of_their_own(w: World) {
    let sandbox = w.sandbox().create().await;
    let one = w.sandbox().inside(&sandbox).sh("exit 3").await.expect_exit(3);
    let two = w.sandbox().inside(&sandbox).sh("echo two").await.expect_exit(0).expect_out("two\n");
    assert_ne!(one.run, two.run);
    assert_eq!((one.sandbox, two.sandbox), (sandbox.id(), sandbox.id()));
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

async fn eight_runs_at_once_in_one_sandbox_do_not_mix(w: World) {
    let sandbox = std::rc::Rc::new(w.sandbox().create().await);
    let mut runs = JoinSet::new();
    for number in 0..8 {
        let sandbox = std::rc::Rc::clone(&sandbox);
        runs.spawn_local(async move {
            let line = format!("for i in 1 2 3 4 5; do echo run-{number}; sleep 0.01; done; exit {number}");
            let result = sandbox.run(request(&line)).await.expect("the run is made");
            (number, Finished(result))
        });
    }
    while let Some(ended) = runs.join_next().await {
        let (number, run) = ended.expect("no run panics");
        run.expect_exit(number).expect_out(&format!("run-{number}\n").repeat(5));
    }
    let sandbox = std::rc::Rc::into_inner(sandbox).expect("all runs are over");
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

fn request(line: &str) -> RunRequest {
    RunRequest::new(Command::argv(["/bin/sh", "-c", line]).expect("the case names a command"))
}

async fn eight_sandboxes_at_once_do_not_mix(w: World) {
    let mut runs = JoinSet::new();
    for number in 0..8 {
        let engine = w.engine().clone();
        runs.spawn_local(async move {
            let line = format!("echo {number} > file; sleep 0.05; cat file; ls");
            (number, Finished(engine.run(request(&line)).await.expect("the run is made")))
        });
    }
    while let Some(ended) = runs.join_next().await {
        let (number, run) = ended.expect("no run panics");
        run.expect_exit(0).expect_out(&format!("{number}\nfile\n"));
    }
}

async fn a_run_that_fails_leaves_its_sandbox_usable(w: World) {
    let sandbox = w.sandbox().memory("64m").disk("16m").create().await;
    w.sandbox().inside(&sandbox).probe("kill-self 9").await.expect_outcome(&Outcome::Signaled { signal: 9 });
    w.sandbox().inside(&sandbox).probe("eat-memory 512").await.expect_out_of_memory(64 << 20);
    let timed = w.sandbox().inside(&sandbox).timeout("100ms").grace("100ms").sh("sleep 60").await;
    timed.expect_outcome(&Outcome::TimedOut { limit_ms: 100 });
    w.sandbox().inside(&sandbox).sh("echo usable").await.expect_exit(0).expect_out("usable\n");
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

async fn a_command_that_is_not_found_leaves_its_sandbox_usable(w: World) {
    let sandbox = w.sandbox().create().await;
    assert!(w.sandbox().inside(&sandbox).try_run(["no-such-program"]).await.is_err());
    w.sandbox().inside(&sandbox).sh("echo usable").await.expect_exit(0).expect_out("usable\n");
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

async fn one_run_can_be_cancelled_while_another_goes_on(w: World) {
    let sandbox = w.sandbox().create().await;
    let mut doomed = w.sandbox().inside(&sandbox).grace("100ms").start(["/bin/sh", "-c", "echo up; sleep 60"]).await;
    read_until(&mut doomed, "\n").await;
    let other = w.sandbox().inside(&sandbox).start(["/bin/sh", "-c", "sleep 0.4; echo survived"]).await;
    doomed.canceller().cancel();
    Finished(doomed.wait().await.expect("the run ends")).expect_outcome(&Outcome::Cancelled);
    Finished(other.wait().await.expect("the run ends")).expect_exit(0).expect_out("survived\n");
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

async fn the_changes_of_a_living_sandbox_can_be_asked_for(w: World) {
    let sandbox = w.sandbox().create().await;
    w.sandbox().inside(&sandbox).sh("echo x > new").await.expect_exit(0);
    let changes = sandbox.changes().await.expect("the changes are told");
    assert_eq!(changes.added, ["agent_workspace/new"]);
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

async fn the_evidence_of_a_living_sandbox_can_be_asked_for(w: World) {
    let sandbox = w.sandbox().create().await;
    w.sandbox().inside(&sandbox).probe("burn-cpu 50").await.expect_exit(0);
    let evidence = sandbox.evidence().await.expect("the evidence is told");
    assert!(evidence.usage.cpu_ms >= 45.0, "{evidence:?}");
    assert_eq!(evidence.memory_kills, 0);
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

async fn a_run_that_is_dropped_leaves_nothing(w: World) {
    let mut run = w.sandbox().with_probe().start(["/bin/sh", "-c", "/probe/bin daemon; sleep 60"]).await;
    read_until(&mut run, "\n").await;
    drop(run);
}

async fn a_run_that_is_dropped_at_its_start_leaves_nothing(w: World) {
    drop(w.sandbox().start(["sleep", "60"]).await);
    // The future of a start that is dropped half-way has made part of a sandbox.
    let start = w.engine().start(request("sleep 60"));
    let _ = tokio::time::timeout(std::time::Duration::from_micros(500), start).await;
}

async fn a_start_that_is_given_up_at_any_moment_leaves_nothing(w: World) {
    // A sandbox takes between some milliseconds and half a second, so each backend is met at most of its steps.
    for moment in [1, 2, 3, 5, 8, 12, 20, 35, 50, 80, 120, 160, 200, 250, 300, 400] {
        let moment = std::time::Duration::from_millis(moment);
        drop(tokio::time::timeout(moment, w.engine().start(request("sleep 60"))).await);
        drop(tokio::time::timeout(moment, w.sandbox().create()).await);
        // So does one whose end nobody waits for.
        let sandbox = w.sandbox().create().await;
        drop(tokio::time::timeout(moment / 4, sandbox.destroy()).await);
    }
}

async fn a_sandbox_that_is_dropped_leaves_nothing(w: World) {
    let sandbox = w.sandbox().create().await;
    w.sandbox().inside(&sandbox).sh("echo x > file").await.expect_exit(0);
    drop(sandbox);
}

async fn a_sandbox_that_is_dropped_with_a_run_in_it_leaves_nothing(w: World) {
    let sandbox = w.sandbox().create().await;
    let run = w.sandbox().inside(&sandbox).start(["sleep", "60"]).await;
    drop(sandbox);
    drop(run);
}

async fn destroying_a_sandbox_ends_the_run_in_it(w: World) {
    let sandbox = w.sandbox().create().await;
    let mut run = w.sandbox().inside(&sandbox).start(["/bin/sh", "-c", "echo up; sleep 60"]).await;
    read_until(&mut run, "\n").await;
    sandbox.destroy().await.expect("the sandbox can be destroyed");
    let result = run.wait().await.expect("the end of a sandbox is an outcome of its runs");
    assert!(matches!(result.outcome, Outcome::Lost | Outcome::Cancelled), "{:?}", result.outcome);
}

async fn leftover_checks_see_a_living_sandbox(w: World) {
    let before = w.traces();
    let sandbox = w.sandbox().create().await;
    let left = w.traces().things_since(&before).0;
    assert!(left.iter().any(|thing| thing.starts_with("process ")), "no process is seen: {left:?}");
    if w.features().cgroup_limits {
        assert!(left.iter().any(|thing| thing.starts_with("control group ")), "no group is seen: {left:?}");
    }
    if w.features().files_through_guest {
        let id = sandbox.id().to_string();
        let is_seen = |kind: &str| left.iter().any(|thing| thing.starts_with(kind) && thing.contains(&id));
        assert!(["container of ", "folder "].iter().all(|kind| is_seen(kind)), "not all is seen: {left:?}");
    }
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

async fn there_is_no_garbage_while_everything_is_in_order(w: World) {
    let sandbox = w.sandbox().create().await;
    let _ = w.engine().collect_garbage().await.expect("garbage can be collected");
    w.sandbox().inside(&sandbox).sh("echo alive").await.expect_exit(0).expect_out("alive\n");
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}
