//! Secrets: given to the program, masked in the result, never on the command line.

use crate::Bench;

const SHOW: [&str; 4] = ["--", "sh", "-c", "echo \"[$TOKEN]\""];

#[test]
fn a_secret_comes_from_a_variable_a_file_or_a_command() {
    let bench = Bench::new();
    bench.write("token", "hunter2\n");
    for source in ["TOKEN", "TOKEN=env:OTHER", "TOKEN=file:token", "TOKEN=command:echo hunter2"] {
        let mut command = bench.glovebox(["run", "--secret", source].iter().chain(&SHOW));
        let output = command.env("TOKEN", "hunter2").env("OTHER", "hunter2").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "[hunter2]\n", "{source}: {output:?}");
    }
}

#[test]
fn the_exact_value_is_masked_in_the_result() {
    let bench = Bench::new();
    let mut command = bench.glovebox(["run", "--json", "--secret", "TOKEN"].iter().chain(&SHOW));
    let output = command.env("TOKEN", "hunter2").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("hunter2"), "{text}");
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(result["stdout"]["text"], "[[redacted]]\n");
    assert_eq!(result["command"]["env"]["TOKEN"], "[redacted]");
}

#[test]
fn a_value_on_the_command_line_is_refused_without_repeating_it() {
    let bench = Bench::new();
    for text in ["TOKEN=hunter2", "hunter2-value", "=hunter2", "TOKEN=keyring:hunter2", "TOKEN=env:hunter2 x"] {
        for json in [&["run"][..], &["run", "--json"]] {
            let called = bench.call(json.iter().chain(&["--secret", text, "--", "true"]));
            assert!([2, 125].contains(&called.code), "{text}");
            let said = format!("{}{}", called.text(), called.stderr);
            assert!(!said.contains("hunter2") && said.contains("secret"), "{said}");
        }
    }
}

#[test]
fn a_source_that_gives_nothing_is_an_error() {
    let bench = Bench::new();
    bench.write("empty", "");
    for source in [
        "TOKEN",
        "TOKEN=env:NOT_SET",
        "TOKEN=file:missing",
        "TOKEN=file:empty",
        "TOKEN=command:false",
        "TOKEN=command:yes",
        "TOKEN=keyring:x",
    ] {
        assert_eq!(bench.error(&["--secret", source, "--", "true"]), ("secret_unavailable".into(), 125), "{source}");
    }
}
