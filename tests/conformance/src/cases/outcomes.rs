//! Every outcome of the contract, decided from evidence.

use std::time::Duration;

use glovebox_core::{LimitKind, Outcome};

use crate::{World, case::cases, finished::Finished, reading::read_until};

cases!["outcomes":
    a_program_that_exits_gives_its_own_code,
    a_program_that_a_signal_ends_gives_the_signal,
    a_program_that_crashes_gives_the_signal_of_the_crash,
    a_shell_that_reports_a_signal_is_told_from_a_signal,
    memory_that_kills_only_a_child_is_a_limit_that_was_hit needs(cgroup_limits),
    a_kill_by_the_program_itself_is_no_memory_kill,
    a_full_disk_decides_only_when_the_program_fails needs(disk_limit),
    a_full_disk_that_kills_by_signal_gives_its_code needs(disk_limit),
    a_run_that_is_cancelled_at_any_moment_has_that_one_outcome,
    cancelling_twice_is_cancelling_once,
    cancelling_after_the_end_changes_nothing,
    a_sandbox_that_goes_away_under_its_run_is_lost,
    the_result_names_its_run_its_backend_and_its_command,
];

async fn a_program_that_exits_gives_its_own_code(w: World) {
    for code in [0, 1, 42, 255] {
        w.sandbox().probe(&format!("exit {code}")).await.expect_exit(code);
    }
}

async fn a_program_that_a_signal_ends_gives_the_signal(w: World) {
    for signal in [9, 15, 2, 6, 31] {
        w.sandbox().probe(&format!("kill-self {signal}")).await.expect_outcome(&Outcome::Signaled { signal });
    }
}

async fn a_program_that_crashes_gives_the_signal_of_the_crash(w: World) {
    let run = w.sandbox().probe("kill-self 11").await.expect_outcome(&Outcome::Signaled { signal: 11 });
    assert_eq!(run.outcome.exit_code(), 139);
}

async fn a_shell_that_reports_a_signal_is_told_from_a_signal(w: World) {
    w.sandbox().sh("sh -c 'kill -9 $$'; exit $?").await.expect_exit(137);
}

async fn memory_that_kills_only_a_child_is_a_limit_that_was_hit(w: World) {
    let run = w.sandbox().memory("64m").disk("16m").probe("eat-memory-child 512").await.expect_exit(0);
    assert_eq!(run.fact("child"), "signaled 9");
    run.expect_limit_hit(LimitKind::Memory, true);
}

async fn a_kill_by_the_program_itself_is_no_memory_kill(w: World) {
    let run = w.sandbox().memory("64m").probe("kill-self 9").await.expect_outcome(&Outcome::Signaled { signal: 9 });
    run.expect_limit_hit(LimitKind::Memory, false);
}

async fn a_full_disk_decides_only_when_the_program_fails(w: World) {
    let fill = |end: &str| format!("$P fill-disk file > /dev/null; exit {end}");
    let failed = w.sandbox().disk("8m").sh_with_probe(&fill("7")).await;
    failed.expect_outcome(&Outcome::DiskFull { code: 7, limit: LimitKind::Disk });
    w.sandbox().disk("8m").sh_with_probe(&fill("0")).await.expect_exit(0);
}

async fn a_full_disk_that_kills_by_signal_gives_its_code(w: World) {
    let run = w.sandbox().disk("8m").sh_with_probe("$P fill-disk file > /dev/null; kill -ABRT $$").await;
    run.expect_outcome(&Outcome::DiskFull { code: 134, limit: LimitKind::Disk });
}

async fn a_run_that_is_cancelled_at_any_moment_has_that_one_outcome(w: World) {
    for ms in [0, 1, 5, 20, 100] {
        let run = w.sandbox().grace("200ms").start(["sleep", "60"]).await;
        let canceller = run.canceller();
        let cancel = async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            canceller.cancel();
        };
        let (result, ()) = tokio::join!(run.wait(), cancel);
        let run = Finished(result.unwrap_or_else(|error| panic!("at {ms} ms: {}: {error}", error.code)));
        let run = run.expect_outcome(&Outcome::Cancelled);
        assert!(run.duration_ms < 3000.0, "{}", run.story());
    }
}

async fn cancelling_twice_is_cancelling_once(w: World) {
    let mut run = w.sandbox().grace("200ms").with_probe().start(["/probe/bin", "ignore-term"]).await;
    read_until(&mut run, "\n").await;
    let canceller = run.canceller();
    canceller.cancel();
    canceller.clone().cancel();
    Finished(run.wait().await.expect("the run ends")).expect_outcome(&Outcome::Cancelled);
}

async fn cancelling_after_the_end_changes_nothing(w: World) {
    let mut run = w.sandbox().start(["true"]).await;
    let canceller = run.canceller();
    while run.next_event().await.is_some() {}
    let result = run.wait().await.expect("the run ends");
    canceller.cancel();
    assert_eq!(result.outcome, Outcome::Exited { code: 0 });
}

async fn a_sandbox_that_goes_away_under_its_run_is_lost(w: World) {
    let mut run = w.sandbox().start(["/bin/sh", "-c", "echo up; sleep 60"]).await;
    read_until(&mut run, "\n").await;
    w.kill_guest(run.sandbox());
    let result = run.wait().await.expect("the loss of a sandbox is an outcome");
    Finished(result).expect_outcome(&Outcome::Lost);
}

async fn the_result_names_its_run_its_backend_and_its_command(w: World) {
    let run = w.sandbox().env("GIVEN", "value").cwd("/tmp").sh("pwd; echo $GIVEN").await.expect_exit(0);
    assert_eq!(run.command.argv, ["/bin/sh", "-c", "pwd; echo $GIVEN"]);
    assert_eq!((run.command.cwd.as_str(), run.command.env["GIVEN"].as_str()), ("/tmp", "value"));
    assert_eq!(run.image == "host", w.features().host_image, "{}", run.image);
    assert_eq!(run.image_digest.is_some(), !w.features().host_image, "{:?}", run.image_digest);
    assert!(run.run.to_string().starts_with("run_") && run.sandbox.to_string().starts_with("sb_"));
    assert!(run.duration_ms > 0.0);
    run.expect_out("/tmp\nvalue\n");
}
