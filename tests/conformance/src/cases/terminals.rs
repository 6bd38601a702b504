//! Terminals in sandboxes that stay: left, found again, shared.

use std::time::Duration;

use bytes::Bytes;
use glovebox_core::{Command, Outcome};
use glovebox_engine::{Event, Run, RunRequest, Sandbox, Stdin, TerminalSize};
use tokio::sync::mpsc;

use crate::{World, case::cases, finished::Finished, reading::read_until};

cases!["terminals":
    a_terminal_that_was_left_is_found_again_with_its_screen,
    the_second_screen_is_found_again_although_its_beginning_is_gone,
    the_screen_of_a_terminal_that_never_ends_its_title_is_shown,
    all_who_are_at_a_terminal_see_the_same_and_may_type,
    the_size_is_that_of_the_one_who_typed_last,
    one_who_stands_still_at_a_terminal_does_not_stop_it,
    an_onlooker_at_a_terminal_misses_nothing,
    several_terminals_in_one_sandbox_are_apart,
    keys_that_end_do_not_end_the_terminal,
    a_program_may_close_its_terminal_and_open_it_again,
    interrupt_stop_and_quit_keys_reach_the_job_in_front program("bash"),
    what_a_job_in_the_background_writes_after_the_end_is_refused,
    a_large_paste_arrives_whole_and_one_that_nobody_reads_stops_nobody,
    the_first_size_is_there_before_the_program program("stty"),
];

const SIZE: TerminalSize = TerminalSize { rows: 24, columns: 80 };

fn request(line: &str) -> RunRequest {
    let command = Command::argv(["/bin/sh", "-c", line]).expect("the case names a command");
    RunRequest { terminal: Some(SIZE), ..RunRequest::new(command) }
}

/// A run with a terminal, and its keys.
async fn start(sandbox: &Sandbox, line: &str) -> (Run, mpsc::Sender<Bytes>) {
    let (keys, stream) = mpsc::channel(16);
    let request = RunRequest { stdin: Stdin::Stream(stream), ..request(line) };
    (sandbox.start(request).await.unwrap_or_else(|error| panic!("{}: {error}", error.code)), keys)
}

/// The same run once more, with other keys.
async fn attach(sandbox: &Sandbox, run: &Run) -> (Run, mpsc::Sender<Bytes>) {
    let (keys, stream) = mpsc::channel(16);
    let run = sandbox.attach(run.id(), Stdin::Stream(stream)).await;
    (run.unwrap_or_else(|error| panic!("{}: {error}", error.code)), keys)
}

async fn press(keys: &mpsc::Sender<Bytes>, typed: &'static str) {
    keys.send(Bytes::from_static(typed.as_bytes())).await.expect("the run takes keys");
}

async fn finish(run: Run) -> Finished {
    Finished(run.wait().await.unwrap_or_else(|error| panic!("{}: {error}", error.code)))
}

async fn destroy(sandbox: Sandbox) {
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

async fn a_terminal_that_was_left_is_found_again_with_its_screen(w: World) {
    let sandbox = w.sandbox().create().await;
    let (mut first, keys) = start(&sandbox, r"printf 'one\n\033[1mtwo\033[m\n> '; read x; echo got $x; exit 3").await;
    read_until(&mut first, "> ").await;
    let (mut again, new_keys) = attach(&sandbox, &first).await;
    drop((first, keys));
    assert_eq!(again.terminal_size(), Some(SIZE));
    let (screen, missed) = again.screen().await.expect("it has a terminal");
    assert_eq!((screen.text().as_str(), missed), ("one\ntwo\n> ", false));
    assert!(again.screen().await.is_none(), "it is shown once");
    press(&new_keys, "x\r").await;
    read_until(&mut again, "got x").await;
    finish(again).await.expect_exit(3);
    destroy(sandbox).await;
}

async fn the_second_screen_is_found_again_although_its_beginning_is_gone(w: World) {
    let sandbox = w.sandbox().create().await;
    let line = r"printf '\033[?1049h\033[?2004h\033]2;name\007'; head -c 900000 /dev/zero | tr '\0' x; printf '\033[H\033[2Jdrawn'; read x";
    let (mut first, _keys) = start(&sandbox, line).await;
    read_until(&mut first, "drawn").await;
    let (mut again, new_keys) = attach(&sandbox, &first).await;
    let (mut screen, missed) = again.screen().await.expect("it has a terminal");
    assert!(missed);
    let painted = String::from_utf8(screen.paint(24, 80)).expect("text");
    for part in ["\x1b[?1049h", "\x1b[?2004h", "\x1b]2;name", "drawn"] {
        assert!(painted.contains(part), "{part:?}: {painted:?}");
    }
    press(&new_keys, "\r").await;
    drop(first);
    finish(again).await.expect_exit(0);
    destroy(sandbox).await;
}

async fn the_screen_of_a_terminal_that_never_ends_its_title_is_shown(w: World) {
    let sandbox = w.sandbox().create().await;
    let line = r"printf 'seen\033]2;'; head -c 900000 /dev/zero | tr '\0' x; printf END; read x";
    let (mut first, _keys) = start(&sandbox, line).await;
    read_until(&mut first, "END").await;
    let (mut again, new_keys) = attach(&sandbox, &first).await;
    let (_, missed) = again.screen().await.expect("it has a terminal");
    assert!(missed);
    press(&new_keys, "\r").await;
    drop(first);
    finish(again).await.expect_exit(0);
    destroy(sandbox).await;
}

async fn all_who_are_at_a_terminal_see_the_same_and_may_type(w: World) {
    let sandbox = w.sandbox().create().await;
    let (mut first, keys) = start(&sandbox, "stty -echo; echo up; read a; echo 1:$a; read b; echo 2:$b").await;
    read_until(&mut first, "up").await;
    let (mut second, more_keys) = attach(&sandbox, &first).await;
    press(&keys, "x\r").await;
    read_until(&mut first, "1:x").await;
    read_until(&mut second, "1:x").await;
    press(&more_keys, "y\r").await;
    read_until(&mut first, "2:y").await;
    read_until(&mut second, "2:y").await;
    let (first, second) = tokio::join!(finish(first), finish(second));
    assert_eq!(first.expect_exit(0).out(), second.expect_exit(0).out());
    destroy(sandbox).await;
}

async fn the_size_is_that_of_the_one_who_typed_last(w: World) {
    let sandbox = w.sandbox().create().await;
    let (mut first, keys) = start(&sandbox, "stty -echo; echo up; while read x; do stty size; done").await;
    first.terminal().resize(TerminalSize { rows: 30, columns: 100 });
    read_until(&mut first, "up").await;
    let (second, more_keys) = attach(&sandbox, &first).await;
    second.terminal().resize(TerminalSize { rows: 20, columns: 60 });
    press(&more_keys, "\r").await;
    read_until(&mut first, "20 60").await;
    press(&keys, "\r").await;
    read_until(&mut first, "30 100").await;
    press(&more_keys, "\r").await;
    read_until(&mut first, "20 60").await;
    press(&keys, "\x04").await;
    drop(second);
    finish(first).await.expect_exit(0);
    destroy(sandbox).await;
}

async fn one_who_stands_still_at_a_terminal_does_not_stop_it(w: World) {
    let sandbox = w.sandbox().create().await;
    let (first, _keys) = start(&sandbox, "read x; head -c 4000000 /dev/zero | tr '\\0' x; echo end").await;
    let (mut second, more_keys) = attach(&sandbox, &first).await;
    press(&more_keys, "\r").await;
    // The second one takes nothing until the first one has all.
    let first = finish(first).await.expect_exit(0);
    assert!(first.stdout.bytes > 4_000_000, "{}", first.story());
    let mut missed = 0;
    while let Some(event) = second.next_event().await {
        if let Event::Missed { stdout, .. } = event {
            missed += stdout;
        }
    }
    assert!(missed > 0, "the one who stood still was waited for");
    finish(second).await.expect_exit(0);
    destroy(sandbox).await;
}

async fn an_onlooker_at_a_terminal_misses_nothing(w: World) {
    let sandbox = w.sandbox().create().await;
    let (first, _keys) = start(&sandbox, "read x; head -c 20000000 /dev/zero | tr '\\0' x; echo end").await;
    let (mut second, more_keys) = attach(&sandbox, &first).await;
    press(&more_keys, "\r").await;
    let looking = async {
        let mut got = 0;
        while let Some(event) = second.next_event().await {
            match event {
                Event::Stdout(bytes) => got += bytes.len() as u64,
                Event::Missed { stdout, .. } => panic!("{stdout} bytes were missed after {got}"),
                _ => {}
            }
        }
        got
    };
    let (got, first) = tokio::join!(looking, finish(first));
    assert_eq!(got, first.expect_exit(0).stdout.bytes);
    finish(second).await.expect_exit(0);
    destroy(sandbox).await;
}

async fn several_terminals_in_one_sandbox_are_apart(w: World) {
    let sandbox = w.sandbox().create().await;
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(start(&sandbox, "tty; read x; echo got $x").await);
    }
    let mut names = Vec::new();
    for (number, (run, keys)) in runs.iter_mut().enumerate() {
        names.push(read_until(run, "\n").await.trim().to_owned());
        keys.send(Bytes::from(format!("{number}\r"))).await.expect("the run takes keys");
        read_until(run, &format!("got {number}")).await;
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 5, "{names:?}");
    let known = sandbox.runs().await.expect("the guest tells its runs");
    assert!(known.iter().all(|run| run.terminal), "{known:?}");
    for (run, _) in runs {
        finish(run).await.expect_exit(0);
    }
    destroy(sandbox).await;
}

async fn keys_that_end_do_not_end_the_terminal(w: World) {
    let sandbox = w.sandbox().create().await;
    let (mut first, keys) = start(&sandbox, "echo up; read x; echo got $x").await;
    read_until(&mut first, "up").await;
    drop(keys);
    let (mut second, more_keys) = attach(&sandbox, &first).await;
    drop(first);
    press(&more_keys, "x\r").await;
    read_until(&mut second, "got x").await;
    finish(second).await.expect_exit(0);
    destroy(sandbox).await;
}

async fn a_program_may_close_its_terminal_and_open_it_again(w: World) {
    let line = "exec 3>go 0<&- 1>&- 2>&-; sleep 0.2; echo again > /dev/tty";
    let run = w.sandbox().terminal(24, 80).sh(line).await.expect_exit(0);
    assert_eq!(run.out(), "again\r\n");
}

async fn interrupt_stop_and_quit_keys_reach_the_job_in_front(w: World) {
    let sandbox = w.sandbox().create().await;
    let (mut run, keys) = start(&sandbox, "PS1='prompt> ' exec bash --norc -i").await;
    read_until(&mut run, "prompt> ").await;
    for (key, told) in [("\x03", "code 130"), ("\x1c", "code 131")] {
        press(&keys, "sh -c 'echo job-$((40+2)); exec sleep 60'; echo code $?\r").await;
        read_until(&mut run, "job-42").await;
        press(&keys, key).await;
        if key == "\x03" {
            // An interrupt ends the whole line of a shell.
            read_until(&mut run, "prompt> ").await;
            press(&keys, "echo code $?\r").await;
        }
        read_until(&mut run, told).await;
    }
    press(&keys, "sh -c 'echo job-$((40+2)); exec sleep 60'\r").await;
    read_until(&mut run, "job-42").await;
    press(&keys, "\x1a").await;
    read_until(&mut run, "Stopped").await;
    press(&keys, "kill %1; exit 5\r").await;
    press(&keys, "exit 5\r").await;
    finish(run).await.expect_exit(5);
    destroy(sandbox).await;
}

async fn what_a_job_in_the_background_writes_after_the_end_is_refused(w: World) {
    let sandbox = w.sandbox().create().await;
    let line = "trap '' HUP; (sleep 0.2; echo late || echo refused > refused) & echo end";
    let (run, _keys) = start(&sandbox, line).await;
    let run = finish(run).await.expect_exit(0);
    assert_eq!(run.out(), "end\r\n");
    let waiting = w.sandbox().inside(&sandbox).sh("while [ ! -s refused ]; do sleep 0.01; done; cat refused");
    waiting.await.expect_exit(0).expect_out("refused\n");
    destroy(sandbox).await;
}

async fn a_large_paste_arrives_whole_and_one_that_nobody_reads_stops_nobody(w: World) {
    let sandbox = w.sandbox().create().await;
    let (mut run, keys) = start(&sandbox, "stty raw -echo; echo up; head -c 1000000 | wc -c; sleep 60").await;
    read_until(&mut run, "up").await;
    for _ in 0..100 {
        keys.send(Bytes::from(vec![b'x'; 10_000])).await.expect("the run takes keys");
    }
    read_until(&mut run, "1000000").await;
    // Nobody reads from now on: the keys wait, and the run can be ended all the same.
    let paste = async {
        for _ in 0..100 {
            let _ = keys.send(Bytes::from(vec![b'x'; 10_000])).await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_millis(300), paste).await;
    run.terminal().resize(TerminalSize { rows: 10, columns: 20 });
    run.cancel();
    finish(run).await.expect_outcome(&Outcome::Cancelled);
    destroy(sandbox).await;
}

async fn the_first_size_is_there_before_the_program(w: World) {
    for _ in 0..10 {
        w.sandbox().terminal(41, 123).run(["stty", "size"]).await.expect_exit(0).expect_out("41 123\r\n");
    }
}
