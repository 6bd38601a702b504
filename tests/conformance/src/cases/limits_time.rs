//! Wall time, and what it takes to end a run for good.

use std::time::Duration;

use glovebox_core::Outcome;

use crate::{World, case::cases, finished::Finished};

cases!["limits":
    a_run_ends_when_its_time_is_over,
    a_program_may_tidy_up_after_the_first_signal,
    a_program_that_ignores_the_first_signal_is_killed_after_the_grace,
    a_daemon_that_double_forks_does_not_outlive_its_run,
    a_daemon_that_holds_the_output_open_does_not_hold_up_the_end_of_its_run,
    children_in_sessions_of_their_own_are_ended_with_their_run,
    a_stopped_program_is_ended_when_its_time_is_over,
    nothing_of_a_run_that_timed_out_is_left_in_a_living_sandbox,
    a_daemon_of_a_run_that_timed_out_is_ended_beside_another_run needs(run_groups),
];

/// Counts the probes that run as a daemon or ignore signals; grep exits with 1 when there are none.
const COUNT_PROBES: &str = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'probe/bin [di]'";

#[track_caller]
fn took(run: &Finished, from: u64, to: u64) {
    let range = Duration::from_millis(from)..Duration::from_millis(to);
    assert!(range.contains(&Duration::from_secs_f64(run.duration_ms / 1000.0)), "expected {range:?}\n{}", run.story());
}

async fn a_run_ends_when_its_time_is_over(w: World) {
    let run = w.sandbox().timeout("300ms").run(["sleep", "60"]).await;
    took(&run.expect_outcome(&Outcome::TimedOut { limit_ms: 300 }), 300, 1500);
}

async fn a_program_may_tidy_up_after_the_first_signal(w: World) {
    let line = "trap 'echo tidied; exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    let run = w.sandbox().timeout("300ms").sh(line).await;
    let run = run.expect_outcome(&Outcome::TimedOut { limit_ms: 300 }).expect_out("ready\ntidied\n");
    took(&run, 300, 1500);
}

async fn a_program_that_ignores_the_first_signal_is_killed_after_the_grace(w: World) {
    let run = w.sandbox().timeout("200ms").grace("300ms").probe("ignore-term").await;
    let run = run.expect_outcome(&Outcome::TimedOut { limit_ms: 200 }).expect_out("ready\n");
    took(&run, 500, 2000);
}

async fn a_daemon_that_double_forks_does_not_outlive_its_run(w: World) {
    let line = "$P daemon; exec sleep 60";
    let run = w.sandbox().timeout("300ms").grace("200ms").sh_with_probe(line).await;
    let run = run.expect_outcome(&Outcome::TimedOut { limit_ms: 300 });
    assert!(run.number("daemon") > 1, "{}", run.story());
    took(&run, 300, 2500);
}

async fn a_daemon_that_holds_the_output_open_does_not_hold_up_the_end_of_its_run(w: World) {
    let run = w.sandbox().timeout("20s").probe("daemon").await.expect_exit(0);
    assert!(run.number("daemon") > 1, "{}", run.story());
    took(&run, 0, 3000);
}

async fn children_in_sessions_of_their_own_are_ended_with_their_run(w: World) {
    let line = "setsid $P ignore-term & setsid $P ignore-term & $P ignore-term";
    let run = w.sandbox().timeout("300ms").grace("200ms").sh_with_probe(line).await;
    took(&run.expect_outcome(&Outcome::TimedOut { limit_ms: 300 }), 300, 2500);
}

async fn a_stopped_program_is_ended_when_its_time_is_over(w: World) {
    let run = w.sandbox().timeout("300ms").grace("200ms").sh("kill -STOP $$; echo went on").await;
    took(&run.expect_outcome(&Outcome::TimedOut { limit_ms: 300 }), 300, 2500);
}

async fn nothing_of_a_run_that_timed_out_is_left_in_a_living_sandbox(w: World) {
    let sandbox = w.sandbox().create().await;
    let line = "/probe/bin daemon; setsid /probe/bin ignore-term & exec /probe/bin ignore-term";
    let run = w.sandbox().inside(&sandbox).timeout("300ms").grace("100ms").sh(line).await;
    run.expect_outcome(&Outcome::TimedOut { limit_ms: 300 });
    w.sandbox().inside(&sandbox).sh(COUNT_PROBES).await.expect_exit(1).expect_out("0\n");
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

async fn a_daemon_of_a_run_that_timed_out_is_ended_beside_another_run(w: World) {
    let sandbox = w.sandbox().create_living().await;
    let other = w.sandbox().inside(&sandbox).start(["sleep", "60"]).await;
    let setup = w.sandbox().inside(&sandbox).timeout("300ms").grace("100ms");
    let run = setup.sh("/probe/bin daemon; exec sleep 60").await;
    run.expect_outcome(&Outcome::TimedOut { limit_ms: 300 });
    w.sandbox().inside(&sandbox).sh(COUNT_PROBES).await.expect_exit(1).expect_out("0\n");
    other.canceller().cancel();
    Finished(other.wait().await.expect("the run ends")).expect_outcome(&Outcome::Cancelled);
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}
