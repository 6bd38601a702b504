//! How runs end: exit codes, explanations, hints, signals.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Bench, folders_with, is_running};

#[test]
fn the_exit_code_is_the_program_s_own() {
    let bench = Bench::new();
    for code in [0, 1, 42, 255] {
        assert_eq!(bench.call(["run", "--", "sh", "-c", &format!("exit {code}")]).code, code);
    }
}

#[test]
fn a_signal_gives_128_and_its_number_and_is_named() {
    let bench = Bench::new();
    let called = bench.call(["run", "--", "sh", "-c", "kill -SEGV $$"]);
    assert_eq!(called.code, 139);
    assert!(called.stderr.contains("glovebox: ended by signal 11 (SIGSEGV"), "{}", called.stderr);
}

#[test]
fn a_run_that_takes_too_long_ends_with_124_and_says_why() {
    let bench = Bench::new();
    let started = Instant::now();
    let called = bench.call(["run", "--timeout", "300ms", "--grace", "100ms", "--", "sleep", "60"]);
    assert_eq!(called.code, 124);
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(called.stderr.contains("glovebox: timed out after 300ms"), "{}", called.stderr);
    assert!(called.stderr.contains("--timeout"));
}

#[test]
fn a_run_that_eats_memory_ends_with_137_and_says_why() {
    let bench = Bench::new();
    let called =
        bench.call(["run", "--memory", "64m", "--disk", "8m", "-l", "python", "-c", "x = bytearray(400 << 20)"]);
    assert_eq!(called.code, 137, "{}", called.stderr);
    assert!(called.stderr.contains("ran out of memory: limit 64 MiB (python3 was killed)"), "{}", called.stderr);
    assert!(called.stderr.contains("--memory"));
}

#[test]
fn a_full_disk_keeps_the_program_s_exit_code_and_says_why() {
    let bench = Bench::new();
    let called = bench.call(["run", "--disk", "4m", "--", "dd", "if=/dev/zero", "of=big", "bs=1M", "count=50"]);
    assert_eq!(called.code, 1);
    assert!(called.stderr.contains("glovebox: the disk was full: limit 4 MiB"), "{}", called.stderr);
}

#[test]
fn too_much_output_ends_a_run_only_when_asked() {
    let bench = Bench::new();
    let flood = ["--", "sh", "-c", "head -c 3000000 /dev/zero"];
    let called = bench.call(["run", "--output-limit", "1m", "--output-limit-kill"].iter().chain(&flood));
    assert_eq!(called.code, 123);
    assert!(called.stderr.contains("--output-limit"), "{}", called.stderr);
    let called = bench.call(["run", "--output-limit", "1m"].iter().chain(&flood));
    assert_eq!((called.code, called.stdout.len()), (0, 3_000_000));
}

#[test]
fn too_many_processes_are_reported() {
    let bench = Bench::new();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 1 & done; wait";
    let called = bench.call(["run", "--pids", "8", "--", "sh", "-c", script]);
    assert!(called.stderr.contains("the limit of 8 processes was reached (--pids)"), "{}", called.stderr);
}

#[test]
fn a_command_that_is_not_there_gives_127_and_one_that_cannot_run_126() {
    let bench = Bench::new();
    assert_eq!(bench.error(&["--", "no-such-program"]), ("command_not_found".into(), 127));
    bench.write("text", "just text");
    assert_eq!(bench.error(&["--file", "text", "--", "./text"]), ("command_not_executable".into(), 126));
    bench.write("tool", "#!/bin/sh\n");
    let called = bench.call(["run", "--", "./tool"]);
    assert_eq!(called.code, 127);
    assert!(called.stderr.contains("--workspace ."), "{}", called.stderr);
}

#[test]
fn an_interpreter_that_is_not_there_is_named_with_what_to_install() {
    let bench = Bench::new();
    bench.write("tool", "#!/usr/bin/env python9.9\nprint(1)\n");
    let called = bench.call(["run", "tool"]);
    assert_eq!(called.code, 125);
    assert!(
        called.stderr.contains("[toolchain_not_found]") && called.stderr.contains("apt install python3"),
        "{}",
        called.stderr
    );
}

#[test]
fn a_lone_file_that_misses_its_neighbours_is_told_about_the_workspace() {
    let bench = Bench::new();
    bench.write("lib.py", "");
    bench.write("main.py", "import lib");
    bench.write("main.js", "require('./lib')");
    bench.write("main.sh", "cat lib.py");
    for file in ["main.py", "main.js", "main.sh"] {
        let called = bench.call(["run", file]);
        assert_eq!(called.code, 1, "{}", called.stderr);
        assert!(
            called.stderr.contains("glovebox: hint:") && called.stderr.contains("--workspace ."),
            "{}",
            called.stderr
        );
    }
}

#[test]
fn the_workspace_hint_is_silent_where_it_would_not_help() {
    let bench = Bench::new();
    bench.write("alone/main.py", "import lib");
    bench.write("two/fails.py", "raise SystemExit(3)");
    bench.write("two/other.py", "");
    for args in
        [&["run", "alone/main.py"][..], &["run", "two/fails.py"], &["run", "--workspace", "alone", "alone/main.py"]]
    {
        let called = bench.call(args);
        assert_ne!(called.code, 0);
        assert!(!called.stderr.contains("hint"), "{args:?}: {}", called.stderr);
    }
}

/// Starts a run that ignores signals and has a daemon, sends a signal once it is up, and returns exit code, output and
/// the time it took. `word` marks its processes.
fn interrupt(bench: &Bench, signal: Signal, json: bool, word: &str) -> (Option<i32>, String, Duration) {
    let script = format!("trap '' INT TERM HUP; (setsid sleep {word} &); echo up; sleep {word}; sleep {word}");
    let mut command = bench.glovebox(["run"]);
    if json {
        command.arg("--json");
    }
    let mut child = command.args(["--", "sh", "-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut output = String::new();
    if json {
        // The output comes only with the document, so the marked process itself has to be looked for.
        let deadline = Instant::now() + Duration::from_secs(20);
        while !is_running(word) {
            assert!(Instant::now() < deadline, "the program did not come up");
        }
    } else {
        reader.read_line(&mut output).unwrap();
    }
    let started = Instant::now();
    kill_process(Pid::from_child(&child), signal).unwrap();
    reader.read_to_string(&mut output).unwrap();
    let code = child.wait().unwrap().code();
    (code, output, started.elapsed())
}

#[test]
fn ctrl_c_and_its_kin_end_the_run_at_once_and_leave_nothing() {
    let bench = Bench::new();
    for (signal, word) in [(Signal::INT, "98761"), (Signal::TERM, "98762"), (Signal::HUP, "98763")] {
        let (code, output, took) = interrupt(&bench, signal, false, word);
        assert_eq!((code, output.as_str()), (Some(130), "up\n"), "{signal:?}");
        assert!(took < Duration::from_secs(2), "{signal:?} took {took:?}");
        assert!(!is_running(word), "{signal:?} left a process");
    }
}

#[test]
fn an_interrupted_run_still_gives_its_document_and_leaves_no_group() {
    let bench = Bench::new();
    let (code, output, _) = interrupt(&bench, Signal::INT, true, "98764");
    assert_eq!(code, Some(130));
    let document: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!(document["outcome"]["kind"], "cancelled");
    let sandbox = document["sandbox"].as_str().unwrap();
    assert_eq!(folders_with(Path::new("/sys/fs/cgroup"), sandbox), Vec::<std::path::PathBuf>::new());
    assert!(!is_running("98764"));
}

#[test]
fn a_guest_that_hangs_does_not_stop_the_clock() {
    let bench = Bench::new();
    let mut child = bench
        .glovebox(["run", "--timeout", "500ms", "--grace", "100ms", "--", "sh", "-c", "echo up; exec sleep 60"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    let children = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let launcher = children(&child.id().to_string());
    let guest = children(launcher.trim());
    let stopped = std::process::Command::new("kill").args(["-STOP", guest.trim()]).status().unwrap();
    assert!(stopped.success());
    assert_eq!(child.wait().unwrap().code(), Some(124));
}
