//! Secrets: given to the program, masked in the result, never on the command line.

use std::{io::Read, os::unix::fs::FileExt};

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

#[test]
fn the_process_that_starts_commands_keeps_no_secret() {
    let bench = Bench::new();
    let value = "hunter2-which-is-long-enough-to-be-found";
    let mut command = bench.glovebox(["run", "--secret", "TOKEN", "--", "sh", "-c", "echo ready; read line"]);
    let mut child = crate::spawn_piped(command.env("TOKEN", value));
    // Output is carried only once the start is reported, and by then the value must be gone.
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let inside = descendants(child.id());
    let named =
        |name: &str| inside.iter().copied().find(|pid| comm(*pid) == name).unwrap_or_else(|| panic!("no {name}"));
    assert!(memory_holds(named("sh"), value), "the scan finds nothing where the value is");
    assert!(!memory_holds(named("glovebox-zygote"), value));
    assert!(!memory_holds(named("glovebox-launch"), value));
    assert!(crate::feed(child, b"\n").status.success());
}

/// The processes below one, from the host's view.
fn descendants(root: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parent = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let parents: Vec<(u32, u32)> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![root];
    let mut at = 0;
    while let Some(above) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, parent)| *parent == above).map(|(pid, _)| *pid));
        at += 1;
    }
    found
}

fn comm(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// Whether the memory of a process holds a text. Root may look.
fn memory_holds(pid: u32, text: &str) -> bool {
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let writable =
        maps.lines().filter(|line| line.split_whitespace().nth(1).is_some_and(|bits| bits.starts_with("rw")));
    writable.filter_map(|line| line.split_whitespace().next()?.split_once('-')).any(|(start, end)| {
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let mut bytes = vec![0; (number(end) - number(start)) as usize];
        let whole = memory.read_exact_at(&mut bytes, number(start)).is_ok();
        whole && bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}
