//! Memory: what counts, what does not, and what happens at the limit.

use glovebox_core::{LimitKind, Outcome};

use crate::{World, case::cases};

const MIB: u64 = 1 << 20;

cases!["limits":
    memory_within_the_limit_is_given needs(cgroup_limits),
    anonymous_memory_beyond_the_limit_ends_the_run_as_out_of_memory needs(cgroup_limits),
    a_large_disk_limit_does_not_loosen_the_memory_limit needs(cgroup_limits),
    shared_memory_counts_as_memory needs(cgroup_limits),
    a_memory_file_counts_as_memory needs(cgroup_limits),
    many_small_processes_share_one_memory_limit needs(cgroup_limits),
    files_do_not_count_as_memory needs(cgroup_limits),
    the_peak_of_memory_is_measured needs(cgroup_limits),
    a_limit_above_what_the_host_has_is_lowered_and_said_so needs(cgroup_limits),
    the_limits_of_a_result_are_those_that_were_asked_for,
];

async fn memory_within_the_limit_is_given(w: World) {
    let run = w.sandbox().memory("128m").probe("eat-memory 80").await.expect_exit(0);
    run.expect_limit_hit(LimitKind::Memory, false);
}

async fn anonymous_memory_beyond_the_limit_ends_the_run_as_out_of_memory(w: World) {
    w.sandbox().memory("64m").disk("16m").probe("eat-memory 512").await.expect_out_of_memory(64 * MIB);
}

async fn a_large_disk_limit_does_not_loosen_the_memory_limit(w: World) {
    let run = w.sandbox().memory("64m").disk("4g").probe("eat-memory 1024").await.expect_out_of_memory(64 * MIB);
    let peak = run.usage.memory_peak_bytes;
    assert!(peak < 512 * MIB, "{} MiB were in use at a limit of 64", peak / MIB);
}

async fn shared_memory_counts_as_memory(w: World) {
    w.sandbox().memory("64m").disk("1g").probe("shared-memory 600").await.expect_out_of_memory(64 * MIB);
}

async fn a_memory_file_counts_as_memory(w: World) {
    w.sandbox().memory("64m").disk("1g").probe("memfd 600").await.expect_out_of_memory(64 * MIB);
}

async fn many_small_processes_share_one_memory_limit(w: World) {
    let run = w.sandbox().memory("64m").disk("16m").probe("eat-memory-many 12 16").await;
    match &run.outcome {
        Outcome::OutOfMemory { .. } => {}
        Outcome::Exited { code: 0 } => {
            assert!(run.number("killed") > 0, "{}", run.story());
            run.expect_limit_hit(LimitKind::Memory, true);
        }
        other => panic!("{other:?}\n{}", run.story()),
    }
}

async fn files_do_not_count_as_memory(w: World) {
    let run = w.sandbox().memory("64m").disk("300m").probe("write-file /tmp/large 200").await.expect_exit(0);
    run.expect_limit_hit(LimitKind::Memory, false);
}

async fn the_peak_of_memory_is_measured(w: World) {
    let run = w.sandbox().probe("eat-memory 100").await.expect_exit(0);
    let peak = run.usage.memory_peak_bytes;
    assert!((100 * MIB..150 * MIB).contains(&peak), "the peak is {peak} bytes");
}

async fn a_limit_above_what_the_host_has_is_lowered_and_said_so(w: World) {
    let run = w.sandbox().memory("1000t").run(["true"]).await.expect_exit(0);
    assert!(run.limits.memory_bytes < 1000 << 40, "{:?}", run.limits);
    assert!(run.limits.lowered.contains(&LimitKind::Memory), "{:?}", run.limits);
}

async fn the_limits_of_a_result_are_those_that_were_asked_for(w: World) {
    let asked = w.sandbox().memory("96m").disk("48m").cpus("0.5").pids(33).inodes(444).open_files(55).output("7k");
    let limits = asked.timeout("9s").run(["true"]).await.expect_exit(0).limits.clone();
    assert_eq!((limits.memory_bytes, limits.disk_bytes), (96 * MIB, 48 * MIB));
    assert_eq!((limits.cpus, limits.pids, limits.inodes), (0.5, 33, 444));
    assert_eq!((limits.open_files, limits.output_bytes, limits.timeout_ms), (55, 7 << 10, 9000));
    assert!(limits.lowered.is_empty() && !limits.enforcement.is_empty(), "{limits:?}");
}
