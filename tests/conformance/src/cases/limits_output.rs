//! Output: head and tail are kept, memory stays bounded, the program is killed only when asked.

use std::fs;

use glovebox_core::{LimitKind, Outcome};

use crate::{World, case::cases};

const MIB: u64 = 1 << 20;

cases!["limits":
    output_past_its_limit_keeps_its_head_and_its_tail,
    output_up_to_its_limit_is_kept_whole,
    each_stream_has_its_own_output_limit,
    a_run_is_ended_for_its_output_only_when_asked,
    much_output_does_not_grow_the_memory_of_glovebox,
];

async fn output_past_its_limit_keeps_its_head_and_its_tail(w: World) {
    let run = w.sandbox().output("16k").probe("print-bytes 1048576").await.expect_exit(0);
    assert!(run.stdout.truncated && run.stdout.bytes == MIB, "{}", run.story());
    let text = run.out();
    assert!(text.len() <= (16 << 10) + 256, "{} bytes were kept", text.len());
    assert!(text.starts_with(&format!("{:063}\n{:063}\n", 0, 1)), "{}", run.story());
    assert!(text.ends_with(&format!("{:063}\n{:063}\n", 1022, 1023)), "the tail is {:?}", &text[text.len() - 130..]);
    let left_out = (MIB - (16 << 10)).to_string();
    assert!(text.lines().any(|line| line.contains(&left_out)), "no line says that {left_out} bytes were left out");
    run.expect_limit_hit(LimitKind::Output, true);
}

async fn output_up_to_its_limit_is_kept_whole(w: World) {
    let run = w.sandbox().output("64k").probe("print-bytes 65536").await.expect_exit(0);
    assert!(!run.stdout.truncated && run.out().len() == 65536, "{}", run.story());
    run.expect_limit_hit(LimitKind::Output, false);
}

async fn each_stream_has_its_own_output_limit(w: World) {
    let run = w.sandbox().output("8k").sh_with_probe("$P print-bytes 100000; echo fine >&2").await.expect_exit(0);
    assert!(run.stdout.truncated && !run.stderr.truncated && run.err() == "fine\n", "{}", run.story());
}

async fn a_run_is_ended_for_its_output_only_when_asked(w: World) {
    let run = w.sandbox().output("64k").output_kill().timeout("20s").sh("yes; sleep 60").await;
    run.expect_outcome(&Outcome::OutputExceeded { limit_bytes: 64 << 10 });
}

async fn much_output_does_not_grow_the_memory_of_glovebox(w: World) {
    let before = peak_memory();
    let run = w.sandbox().output("1m").probe("print-bytes 134217728").await.expect_exit(0);
    assert_eq!(run.stdout.bytes, 128 * MIB);
    let grown = peak_memory() - before;
    assert!(grown < 32 * MIB, "the peak of memory grew by {} MiB", grown / MIB);
}

/// The highest resident memory of this process so far.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the kernel tells the peak");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("the peak is a number") << 10
}
