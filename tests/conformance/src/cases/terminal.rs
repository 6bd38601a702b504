//! A run with a terminal.

use bytes::Bytes;
use glovebox_core::Outcome;
use glovebox_engine::{Run, TerminalSize};
use tokio::sync::mpsc;

use crate::{World, case::cases, finished::Finished, reading::read_until};

cases!["terminal":
    a_terminal_is_a_terminal_of_the_size_asked_for,
    without_a_terminal_there_is_none,
    output_of_a_terminal_is_one_stream,
    a_terminal_that_is_resized_tells_the_program,
    the_interrupt_key_ends_the_program_in_the_foreground,
    keys_are_echoed_and_the_end_of_input_key_ends_input,
    the_terminal_controls_the_jobs_of_a_shell program("bash"),
    a_terminal_that_hangs_up_leaves_nothing ends_in_background(),
];

async fn finish(run: Run) -> Finished {
    Finished(run.wait().await.expect("the run ends"))
}

async fn a_terminal_is_a_terminal_of_the_size_asked_for(w: World) {
    let line = "tty < /dev/stdin; test -t 0 && test -t 1 && test -t 2 && echo all; stty size; tty > /dev/tty";
    let run = w.sandbox().terminal(33, 101).sh(line).await.expect_exit(0);
    assert!(run.out().starts_with("/dev/pts/"), "{}", run.story());
    assert!(run.out().contains("all\r\n33 101\r\n"), "{}", run.story());
}

async fn without_a_terminal_there_is_none(w: World) {
    w.sandbox().sh("test -t 0 || test -t 1 || test -t 2 || echo none").await.expect_exit(0).expect_out("none\n");
}

async fn output_of_a_terminal_is_one_stream(w: World) {
    let run = w.sandbox().terminal(24, 80).sh("echo out; echo err >&2").await.expect_exit(0);
    assert_eq!((run.out().as_str(), run.stderr.bytes), ("out\r\nerr\r\n", 0));
}

async fn a_terminal_that_is_resized_tells_the_program(w: World) {
    let line = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.02; done";
    let mut run = w.sandbox().terminal(24, 80).start(["/bin/sh", "-c", line]).await;
    read_until(&mut run, "ready").await;
    run.terminal().resize(TerminalSize { rows: 55, columns: 155 });
    read_until(&mut run, "55 155").await;
    finish(run).await.expect_exit(0);
}

async fn the_interrupt_key_ends_the_program_in_the_foreground(w: World) {
    let (keys, stream) = mpsc::channel(1);
    let setup = w.sandbox().terminal(24, 80).stdin_stream(stream);
    let mut run = setup.start(["/bin/sh", "-c", "echo ready; exec sleep 60"]).await;
    read_until(&mut run, "ready").await;
    keys.send(Bytes::from_static(&[3])).await.expect("the run takes keys");
    finish(run).await.expect_outcome(&Outcome::Signaled { signal: 2 });
}

async fn keys_are_echoed_and_the_end_of_input_key_ends_input(w: World) {
    let (keys, stream) = mpsc::channel(2);
    let mut run = w.sandbox().terminal(24, 80).stdin_stream(stream).start(["cat"]).await;
    keys.send(Bytes::from_static(b"typed\r")).await.expect("the run takes keys");
    // Once as the echo of the keys, once from the program.
    read_until(&mut run, "typed\r\ntyped\r\n").await;
    keys.send(Bytes::from_static(&[4])).await.expect("the run takes keys");
    finish(run).await.expect_exit(0);
}

async fn the_terminal_controls_the_jobs_of_a_shell(w: World) {
    let (keys, stream) = mpsc::channel(4);
    let setup = w.sandbox().terminal(24, 80).env("PS1", "prompt> ").stdin_stream(stream);
    let mut run = setup.start(["bash", "--norc", "-i"]).await;
    let seen = read_until(&mut run, "prompt> ").await;
    assert!(!seen.contains("no job control"), "{seen:?}");
    // The job is in the foreground once it speaks itself, and one process, which no half-started child keeps from stopping.
    keys.send(Bytes::from_static(b"sh -c 'echo job-$((40+2)); exec sleep 60'\r")).await.expect("the run takes keys");
    read_until(&mut run, "job-42").await;
    keys.send(Bytes::from_static(&[26])).await.expect("the run takes keys");
    read_until(&mut run, "Stopped").await;
    keys.send(Bytes::from_static(b"exit 4\r")).await.expect("the run takes keys");
    read_until(&mut run, "There are stopped jobs.").await;
    keys.send(Bytes::from_static(b"exit 5\r")).await.expect("the run takes keys");
    finish(run).await.expect_exit(5);
}

async fn a_terminal_that_hangs_up_leaves_nothing(w: World) {
    let mut run = w.sandbox().terminal(24, 80).start(["/bin/sh", "-c", "echo up; exec sleep 60"]).await;
    read_until(&mut run, "up").await;
    drop(run);
}
