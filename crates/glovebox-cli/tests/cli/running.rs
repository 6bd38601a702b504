//! Files, code and commands; input and output.

use std::{
    io::{BufRead, BufReader, Read},
    process::Stdio,
};

use crate::{Bench, spawn_piped};

#[test]
fn a_python_file_runs() {
    let bench = Bench::new();
    bench.write("hello.py", "import sys\nprint('hello', *sys.argv[1:])\n");
    bench.call(["run", "hello.py"]).expect(0, "hello\n");
}

#[test]
fn a_shell_file_runs() {
    let bench = Bench::new();
    bench.write("hello.sh", "echo hello $1\n");
    bench.call(["run", "hello.sh", "you"]).expect(0, "hello you\n");
}

#[test]
fn a_javascript_file_runs() {
    let bench = Bench::new();
    bench.write("hello.js", "console.log('hello', process.argv[2])\n");
    bench.call(["run", "hello.js", "you"]).expect(0, "hello you\n");
}

#[test]
fn a_shell_file_that_asks_for_bash_gets_bash() {
    let bench = Bench::new();
    bench.write("a.sh", "#!/bin/bash\necho ${BASH_VERSION:+bash}\n");
    bench.write("b.bash", "echo ${BASH_VERSION:+bash}\n");
    bench.call(["run", "a.sh"]).expect(0, "bash\n");
    bench.call(["run", "b.bash"]).expect(0, "bash\n");
}

#[test]
fn a_file_without_a_known_ending_runs_by_its_first_line() {
    let bench = Bench::new();
    bench.write("tool", "#!/usr/bin/env python3\nprint('tool')\n");
    bench.write("other", "#!/usr/bin/perl -w\nprint \"perl $ARGV[0]\\n\";\n");
    bench.call(["run", "tool"]).expect(0, "tool\n");
    bench.call(["run", "other", "x"]).expect(0, "perl x\n");
}

#[test]
fn the_language_flag_overrides_the_ending() {
    let bench = Bench::new();
    bench.write("code.txt", "print(6 * 7)");
    bench.call(["run", "-l", "python", "code.txt"]).expect(0, "42\n");
}

#[test]
fn code_runs_in_every_language() {
    let bench = Bench::new();
    bench.call(["run", "-l", "python", "-c", "import sys; print(sys.argv[1])", "--", "--x"]).expect(0, "--x\n");
    bench.call(["run", "-l", "javascript", "-c", "console.log(process.argv[1])", "--", "--x"]).expect(0, "--x\n");
    bench.call(["run", "-l", "shell", "-c", "echo $1", "--", "--x"]).expect(0, "--x\n");
    bench.call(["run", "-l", "bash", "-c", "echo ${BASH_VERSION:+bash}"]).expect(0, "bash\n");
}

#[test]
fn code_that_is_too_long_for_a_command_line_runs_too() {
    let bench = Bench::new();
    let code = format!("#{}\nprint('long')", "x".repeat(100_100));
    bench.call(["run", "-l", "python", "-c", &code]).expect(0, "long\n");
}

#[test]
fn a_command_runs_and_all_that_follows_the_dashes_is_its_own() {
    let bench = Bench::new();
    bench.call(["run", "--", "echo", "--json", "--", "-v"]).expect(0, "--json -- -v\n");
}

#[test]
fn flags_after_the_file_belong_to_the_program() {
    let bench = Bench::new();
    bench.write("args.py", "import sys\nprint(sys.argv[1:])\n");
    bench
        .call(["run", "args.py", "--json", "--memory", "0", "--", "-x"])
        .expect(0, "['--json', '--memory', '0', '--', '-x']\n");
}

#[test]
fn a_file_with_a_name_like_a_flag_runs() {
    let bench = Bench::new();
    bench.write("-x.py", "print('dash')");
    bench.call(["run", "./-x.py"]).expect(0, "dash\n");
}

#[test]
fn a_mebibyte_of_input_comes_back_byte_for_byte() {
    let bench = Bench::new();
    let input: Vec<u8> = (0..1 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let called = bench.call_with_input(["run", "--", "cat"], &input);
    assert_eq!(called.code, 0, "{}", called.stderr);
    assert!(called.stdout == input, "{} bytes came back of {}", called.stdout.len(), input.len());
}

#[test]
fn input_that_the_program_does_not_read_does_no_harm() {
    let bench = Bench::new();
    bench.call_with_input(["run", "--", "true"], &vec![b'x'; 1 << 20]).expect(0, "");
}

#[test]
fn the_end_of_the_input_reaches_the_program() {
    let bench = Bench::new();
    bench.call_with_input(["run", "--", "wc", "-c"], b"12345").expect(0, "5\n");
    bench.call(["run", "--", "wc", "-c"]).expect(0, "0\n");
}

#[test]
fn binary_output_on_both_streams_is_not_altered() {
    let bench = Bench::new();
    let code = "import os; b = bytes(range(256)) * 300; os.write(1, b); os.write(2, b[::-1])";
    let output = bench.glovebox(["run", "-l", "python", "-c", code]).output().unwrap();
    let bytes: Vec<u8> = (0..=255).cycle().take(256 * 300).collect();
    assert!(output.stdout == bytes);
    assert!(output.stderr.starts_with(&bytes.iter().rev().copied().collect::<Vec<_>>()));
}

#[test]
fn output_appears_before_the_program_ends() {
    let bench = Bench::new();
    let mut child = spawn_piped(&mut bench.glovebox(["run", "--", "sh", "-c", "echo first; read line; echo $line"]));
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "first\n");
    // Only now does the program get what lets it end: an output that was held back would never have come.
    drop(std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"second\n"));
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "second\n");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_reader_that_goes_away_ends_the_run_quietly() {
    let bench = Bench::new();
    let mut command = bench.glovebox(["run", "--", "yes"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut beginning = [0; 4];
    stdout.read_exact(&mut beginning).unwrap();
    assert_eq!(&beginning, b"y\ny\n");
    drop(stdout);
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!stderr.contains("panic") && !stderr.contains("error"), "{stderr}");
}

#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let bench = Bench::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = bench.glovebox(["run", "--", "echo", "hello"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("host_io"));
}

#[test]
fn a_quiet_program_leaves_standard_error_to_itself() {
    let bench = Bench::new();
    let called = bench.call(["run", "--", "sh", "-c", "echo out; echo err >&2"]);
    called.expect(0, "out\n");
    let own: Vec<&str> = called.stderr.lines().filter(|line| *line != "err").collect();
    assert!(own.iter().all(|line| line.starts_with("glovebox: these layers of isolation are not given")), "{own:?}");
}
