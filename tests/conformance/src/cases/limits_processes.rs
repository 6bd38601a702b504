//! CPU time, processes, threads, open files.

use glovebox_core::{LimitKind, Outcome};

use crate::{World, case::cases};

cases!["limits":
    half_a_cpu_takes_twice_as_long needs(cgroup_limits),
    processes_of_one_run_share_its_cpu_limit needs(cgroup_limits),
    cpu_time_is_measured needs(cgroup_limits),
    a_fork_bomb_meets_its_limit needs(cgroup_limits),
    a_fork_bomb_is_told_of needs(cgroup_limits),
    threads_count_as_processes needs(cgroup_limits),
    refused_threads_are_told_of needs(cgroup_limits),
    a_fork_bomb_that_never_stops_is_ended_by_the_wall_time needs(cgroup_limits),
    processes_within_the_limit_are_given needs(cgroup_limits),
    open_files_are_limited,
];

async fn half_a_cpu_takes_twice_as_long(w: World) {
    let run = w.sandbox().cpus("0.5").probe("burn-cpu 400").await.expect_exit(0);
    assert!(run.number("wall_ms") >= 600, "{}", run.story());
}

async fn processes_of_one_run_share_its_cpu_limit(w: World) {
    let run = w.sandbox().cpus("0.5").sh_with_probe("$P burn-cpu 200 & $P burn-cpu 200 & wait").await.expect_exit(0);
    assert!(run.duration_ms >= 600.0, "{}", run.story());
}

async fn cpu_time_is_measured(w: World) {
    let run = w.sandbox().probe("burn-cpu 200").await.expect_exit(0);
    assert!((195.0..400.0).contains(&run.usage.cpu_ms), "{} ms\n{}", run.usage.cpu_ms, run.story());
}

async fn a_fork_bomb_meets_its_limit(w: World) {
    let run = w.sandbox().pids(20).probe("fork-bomb 100").await.expect_exit(0);
    assert_eq!(run.fact("stopped"), "EAGAIN");
    let forked = run.number("forked");
    assert!((10..20).contains(&forked), "{forked} processes were forked at a limit of 20");
}

async fn a_fork_bomb_is_told_of(w: World) {
    let run = w.sandbox().pids(20).probe("fork-bomb 100").await.expect_exit(0);
    assert!((10..=20).contains(&run.usage.processes_peak), "{} at most", run.usage.processes_peak);
    run.expect_limit_hit(LimitKind::Pids, true);
}

async fn threads_count_as_processes(w: World) {
    let run = w.sandbox().pids(20).probe("threads 100").await.expect_exit(0);
    assert_eq!(run.fact("stopped"), "EAGAIN");
    assert!(run.number("started") < 20, "{}", run.story());
}

async fn refused_threads_are_told_of(w: World) {
    let run = w.sandbox().pids(20).probe("threads 100").await.expect_exit(0);
    run.expect_limit_hit(LimitKind::Pids, true);
}

async fn a_fork_bomb_that_never_stops_is_ended_by_the_wall_time(w: World) {
    let run = w.sandbox().pids(40).timeout("500ms").grace("100ms").probe("fork-for-ever").await;
    run.expect_outcome(&Outcome::TimedOut { limit_ms: 500 });
}

async fn processes_within_the_limit_are_given(w: World) {
    let run = w.sandbox().pids(60).probe("fork-bomb 50").await.expect_exit(0);
    assert_eq!((run.number("forked"), run.fact("stopped").as_str()), (50, "none"));
    run.expect_limit_hit(LimitKind::Pids, false);
}

async fn open_files_are_limited(w: World) {
    let run = w.sandbox().open_files(64).probe("open-files 200").await.expect_exit(1);
    assert_eq!(run.fact("stopped"), "EMFILE");
    assert_eq!(run.number("opened"), 61, "{}", run.story());
}
