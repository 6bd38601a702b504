//! Bytes in and out, as they appear.

use std::{fs, time::Duration};

use bytes::Bytes;
use glovebox_engine::Event;
use tokio::sync::mpsc;

use crate::{World, case::cases, finished::Finished, reading::read_until};

cases!["io":
    without_input_a_program_reads_the_end_at_once,
    the_bytes_of_stdin_arrive,
    a_stream_of_stdin_arrives_as_it_is_sent,
    eight_mebibytes_come_back_from_an_echo_unchanged,
    a_program_that_does_not_read_its_input_ends_all_the_same,
    binary_output_comes_back_byte_for_byte,
    stdout_and_stderr_are_kept_apart,
    output_arrives_while_the_program_still_runs,
    the_first_event_is_the_start,
    a_slow_reader_slows_the_program_down_and_loses_nothing,
    output_that_is_only_counted_is_not_kept,
    output_of_children_after_the_end_of_the_main_process_is_not_waited_for,
];

async fn without_input_a_program_reads_the_end_at_once(w: World) {
    w.sandbox().timeout("5s").run(["cat"]).await.expect_exit(0).expect_out("");
}

async fn the_bytes_of_stdin_arrive(w: World) {
    w.sandbox().stdin("one\ntwo\n").run(["wc", "-l"]).await.expect_exit(0).expect_out("2\n");
}

async fn a_stream_of_stdin_arrives_as_it_is_sent(w: World) {
    let (keys, stream) = mpsc::channel(4);
    let mut run = w.sandbox().stdin_stream(stream).start(["/bin/sh", "-c", "while read l; do echo got $l; done"]).await;
    for word in ["one", "two"] {
        keys.send(Bytes::from(format!("{word}\n"))).await.expect("the run takes input");
        read_until(&mut run, &format!("got {word}\n")).await;
    }
    drop(keys);
    Finished(run.wait().await.expect("the run ends")).expect_exit(0).expect_out("got one\ngot two\n");
}

async fn eight_mebibytes_come_back_from_an_echo_unchanged(w: World) {
    let bytes: Vec<u8> = (0..8u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let run = w.sandbox().output("16m").stdin(bytes.clone()).run(["cat"]).await.expect_exit(0);
    assert!(run.out_bytes() == bytes, "{} bytes came back, or others", run.stdout.bytes);
}

async fn a_program_that_does_not_read_its_input_ends_all_the_same(w: World) {
    w.sandbox().timeout("10s").stdin(vec![b'x'; 4 << 20]).run(["true"]).await.expect_exit(0);
}

async fn binary_output_comes_back_byte_for_byte(w: World) {
    let all: Vec<u8> = (0..=255).cycle().take(4096).collect();
    let run = w.sandbox().stdin(all.clone()).run(["cat"]).await.expect_exit(0);
    assert!(run.stdout.text.is_none() && run.stdout.base64.is_some());
    assert_eq!((run.out_bytes(), run.stdout.bytes), (all, 4096));
}

async fn stdout_and_stderr_are_kept_apart(w: World) {
    let run = w.sandbox().sh("echo out; echo err >&2; echo out2").await.expect_exit(0);
    assert_eq!((run.out().as_str(), run.err().as_str()), ("out\nout2\n", "err\n"));
    assert_eq!((run.stdout.bytes, run.stderr.bytes), (9, 4));
}

async fn output_arrives_while_the_program_still_runs(w: World) {
    let (keys, stream) = mpsc::channel(1);
    let line = "printf first; read answer; printf second";
    let mut run = w.sandbox().stdin_stream(stream).start(["/bin/sh", "-c", line]).await;
    // The program cannot go on before it is answered, and it is answered only once its first word is here.
    assert_eq!(read_until(&mut run, "first").await, "first");
    keys.send(Bytes::from_static(b"go\n")).await.expect("the run takes input");
    Finished(run.wait().await.expect("the run ends")).expect_exit(0).expect_out("firstsecond");
}

async fn the_first_event_is_the_start(w: World) {
    let mut run = w.sandbox().start(["echo", "hi"]).await;
    assert!(matches!(run.next_event().await, Some(Event::Started)));
    assert!(matches!(run.next_event().await, Some(Event::Stdout(bytes)) if &bytes[..] == b"hi\n"));
    assert!(run.next_event().await.is_none());
    Finished(run.wait().await.expect("the run ends")).expect_exit(0);
}

async fn a_slow_reader_slows_the_program_down_and_loses_nothing(w: World) {
    const BYTES: u64 = 96 << 20;
    let setup = w.sandbox().with_probe().count_only();
    let mut run = setup.start(["/probe/bin", "print-bytes", "100663296"]).await;
    let mut seen = 0;
    while seen == 0 {
        seen += stdout_len(run.next_event().await);
    }
    let before = resident_memory();
    // Nothing is read for a while, which is many times what the program needs to print it all.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let grown = resident_memory().saturating_sub(before);
    assert!(grown < 16 << 20, "{} MiB were taken in that nobody asked for", grown >> 20);
    while seen < BYTES {
        seen += stdout_len(Some(run.next_event().await.expect("all of it comes")));
    }
    let result = Finished(run.wait().await.expect("the run ends")).expect_exit(0);
    assert_eq!((seen, result.stdout.bytes), (BYTES, BYTES));
}

fn stdout_len(event: Option<Event>) -> u64 {
    match event {
        Some(Event::Stdout(bytes)) => bytes.len() as u64,
        Some(_) => 0,
        None => panic!("the output ended too early"),
    }
}

fn resident_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel tells the memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("it is a number") << 10
}

async fn output_that_is_only_counted_is_not_kept(w: World) {
    let run = w.sandbox().count_only().sh("echo hello").await.expect_exit(0);
    assert_eq!((run.out().as_str(), run.stdout.bytes), ("", 6));
}

async fn output_of_children_after_the_end_of_the_main_process_is_not_waited_for(w: World) {
    let run = w.sandbox().timeout("20s").sh("(sleep 15; echo late) & echo early").await.expect_exit(0);
    assert!(run.out().starts_with("early\n") && !run.out().contains("late"), "{}", run.story());
    assert!(run.duration_ms < 5000.0, "{}", run.story());
}
