//! What people type wrong, or out of habit from other tools: the hint names what to type.

use crate::{Bench, Called, living::Living};

/// Checks the exit code, that the error has this code, and that its hint names these.
#[track_caller]
fn told(called: &Called, exit: i32, code: &str, parts: &[&str]) {
    assert_eq!(called.code, exit, "{called:?}");
    assert!(called.stdout.is_empty(), "{called:?}");
    assert!(called.stderr.contains(&format!("[{code}]")), "{}", called.stderr);
    let hint = called.stderr.lines().find_map(|line| line.strip_prefix("glovebox: hint: "));
    let hint = hint.unwrap_or_else(|| panic!("no hint: {}", called.stderr));
    for part in parts {
        assert!(hint.contains(part), "the hint does not name {part:?}: {}", called.stderr);
    }
}

#[test]
fn a_verb_of_another_tool_is_told_the_verb_here() {
    let bench = Bench::new();
    for (words, hint) in [
        (&["delete", "box"][..], "glovebox destroy ID"),
        (&["rm", "box"], "glovebox destroy ID"),
        (&["remove", "box"], "glovebox destroy ID"),
        (&["kill", "box"], "glovebox cancel RUN"),
        (&["ps", "-a"], "glovebox list"),
        (&["ls"], "glovebox list"),
        (&["logs", "box"], "glovebox runs logs RUN"),
        (&["restart", "box"], "glovebox stop ID, then glovebox start ID"),
        (&["inspect", "box"], "glovebox show ID"),
        (&["status", "box"], "glovebox show ID"),
        (&["stats", "box"], "glovebox usage ID"),
        (&["history"], "glovebox runs list"),
        (&["prune"], "glovebox gc"),
        (&["unpause", "box"], "glovebox resume ID"),
        (&["ssh", "box"], "glovebox exec -t ID -- bash"),
        (&["cat", "box", "x"], "glovebox files read ID PATH"),
        (&["upload", "box", "x"], "glovebox cp FILE ID:PATH"),
        (&["new"], "glovebox create"),
        (&["version"], "glovebox --version"),
        (&["volume", "list"], "glovebox volumes"),
        (&["project", "list"], "glovebox projects"),
        (&["destory", "box"], "glovebox destroy"),
        (&["enxirotex"], "see glovebox --help"),
        (&["files", "ls", "box"], "glovebox files list ID"),
        (&["files", "cat", "box", "x"], "glovebox files read ID PATH"),
        (&["files", "rm", "box", "x"], "glovebox files remove ID PATH"),
        (&["files", "mv", "box", "x", "y"], "glovebox files move ID PATH TO"),
        (&["files", "delete", "box", "x"], "glovebox files remove ID PATH"),
        (&["files", "cp", "box", "x"], "glovebox cp FILE ID:PATH"),
        (&["files"], "see glovebox files --help"),
        (&["volumes", "rm", "x"], "glovebox volumes remove NAME"),
        (&["projects", "delete", "x"], "glovebox projects remove NAME"),
        (&["projects", "add", "x", "a.py"], "glovebox projects files add NAME FILE"),
        (&["projects", "files", "cat", "x", "y"], "glovebox projects files get NAME FILE"),
        (&["runs", "ls"], "glovebox runs list"),
        (&["runs", "rm", "x"], "--no-record"),
        (&["runs", "stop", "x"], "glovebox cancel RUN"),
    ] {
        let called = bench.call(words);
        told(&called, 2, "usage", &[hint]);
        assert!(!called.stderr.contains("similar"), "{}", called.stderr);
    }
}

#[test]
fn a_flag_that_belongs_elsewhere_is_told_where() {
    let bench = Bench::new();
    bench.write("a.py", "");
    for (words, hint) in [
        (&["create", "--timeout", "5"][..], "glovebox exec --timeout"),
        (&["create", "--secret", "X"], "glovebox exec"),
        (&["create", "-d"], "leave it out"),
        (&["exec", "box", "--memory", "1g", "--", "true"], "glovebox create"),
        (&["exec", "box", "-it", "bash"], "-t alone"),
        (&["exec", "-it", "box", "bash"], "-t alone"),
        (&["run", "-it", "--", "bash"], "-t alone"),
        (&["run", "-d", "a.py"], "glovebox exec --detach"),
        (&["run", "--detach", "a.py"], "glovebox exec --detach"),
        (&["run", "--name", "x", "a.py"], "glovebox create --name"),
        (&["run", "--rm", "a.py"], "leave it out"),
        (&["run", "-e", "A=1", "a.py"], "--env K=V"),
        (&["run", "--idle-timeout", "5m", "a.py"], "--keep"),
        (&["run", "--memmory", "1g", "a.py"], "did you mean --memory?"),
        (&["list", "-a"], "--ended"),
        (&["list", "-q"], "--ids"),
        (&["stop", "--all"], "$(glovebox list --ids)"),
        (&["destroy", "-f", "box"], "leave it out"),
        (&["files", "write", "-p", "box", "a/b"], "glovebox files mkdir -p ID PATH"),
        (&["files", "remove", "-rf", "box", "a"], "leave it out"),
        (&["files", "list", "box", "--recursive"], "find"),
        (&["gc", "--follow"], "glovebox usage"),
        (&["gc", "--xyzzy"], "see glovebox gc --help"),
    ] {
        told(&bench.call(words), 2, "usage", &[hint]);
    }
}

#[test]
fn what_a_later_version_brings_to_living_sandboxes_is_said_plainly() {
    let bench = Bench::new();
    for (words, what) in [
        (&["reset", "box", "--to", "x"][..], "--to"),
        (&["runs", "diff", "a", "b"], "glovebox runs diff"),
        (&["runs", "prune"], "glovebox runs prune"),
    ] {
        let called = bench.call(words);
        told(&called, 2, "usage", &[]);
        let line = format!("glovebox: error: {what} comes with a later version [usage]\n");
        assert!(called.stderr.starts_with(&line), "{}", called.stderr);
    }
}

#[test]
fn a_word_too_many_or_too_few_is_told_where_it_belongs() {
    let bench = Bench::new();
    for (words, parts) in [
        (&["create", "box"][..], &["--name box", "glovebox exec"][..]),
        (&["top", "box"], &["glovebox usage --follow box"]),
        (&["list", "box"], &["glovebox show box"]),
        (&["runs", "list", "box"], &["--sandbox box"]),
        (&["cp", "-r", "a", "box:"], &["without -r"]),
        (&["exec"], &["glovebox exec ID -- COMMAND", "glovebox list"]),
        (&["exec", "--", "ls"], &["glovebox exec ID -- COMMAND", "glovebox list"]),
        (&["exec", "box"], &["glovebox exec box -- COMMAND"]),
        (&["show"], &["glovebox show ID", "glovebox list"]),
        (&["stop"], &["glovebox stop ID...", "glovebox list"]),
        (&["attach"], &["glovebox attach RUN", "glovebox runs list"]),
        (&["files", "read", "box:x"], &["glovebox files read ID PATH"]),
        (&["files", "remove", "box"], &["glovebox files remove ID PATH..."]),
        (&["cp", "a.py"], &["glovebox cp FILE ID:PATH"]),
        (&["cp", "a.py", "b.py"], &["ID:PATH"]),
        (&["destroy"], &["glovebox destroy --all"]),
    ] {
        let _living = (words == ["exec", "box"]).then(|| Living::new(&bench, &["--name", "box"]));
        told(&bench.call(words), 2, "usage", parts);
    }
}

#[test]
fn a_command_without_dashes_is_told_the_dashes() {
    let bench = Bench::new();
    let _living = Living::new(&bench, &["--name", "box"]);
    told(&bench.call(["exec", "box", "ls", "-l"]), 125, "file_not_found", &["glovebox exec box -- ls -l"]);
    told(&bench.call(["exec", "--detach", "box", "ls"]), 125, "file_not_found", &["glovebox exec box -- ls"]);
    told(&bench.call(["run", "ls", "-l"]), 125, "file_not_found", &["glovebox run -- ls -l"]);
    told(&bench.call(["run", "box", "ls"]), 125, "file_not_found", &["glovebox exec box -- ls"]);
    told(&bench.call(["run", "-v", ".:/src", "ls"]), 125, "file_not_found", &["--mount .:/src"]);
    told(&bench.call(["exec", "box", "-l", "sh"]), 2, "usage", &["glovebox exec box -- COMMAND"]);
    told(&bench.call(["exec", "-l", "box", "ls"]), 125, "unknown_language", &["languages: "]);
    told(&bench.call(["exec", "box", "--", "ls -l"]), 127, "command_not_found", &["leave out the quotes"]);
    told(
        &bench.call(["exec", "box", "--", "cd", "/tmp"]),
        127,
        "command_not_found",
        &["sh -c \"cd /tmp\"", "--workdir"],
    );
    told(&bench.call(["exec", "box", "--", "A=1", "env"]), 127, "command_not_found", &["--env A=1"]);
    told(&bench.call(["exec", "box", "-"]), 125, "file_not_found", &["glovebox exec box -- python3 -"]);
    bench.write("tool", "");
    told(&bench.call(["exec", "box", "--", "./tool"]), 127, "command_not_found", &["glovebox cp ./tool box:"]);
    bench.call(["cp", "tool", "box:"]).expect(0, "");
    told(&bench.call(["exec", "box", "--", "./tool"]), 126, "command_not_executable", &["chmod +x"]);
    // One that is inside is no file of this machine.
    bench.call(["exec", "box", "--", "touch", "main.py"]).expect(0, "");
    told(&bench.call(["exec", "box", "main.py"]), 125, "file_not_found", &["glovebox exec box -- PROGRAM main.py"]);
}

#[test]
fn the_id_of_something_else_is_recognised() {
    let bench = Bench::new();
    let living = Living::new(&bench, &["--name", "box"]);
    let other = Living::new(&bench, &[]);
    let run = living.exec(&["--json", "--", "true"]).document()["run"].as_str().expect("an id").to_owned();
    let shows_run = format!("glovebox runs show {run}");
    for words in [&["show", &run][..], &["usage", &run], &["destroy", &run], &["exec", &run, "--", "true"]] {
        told(&bench.call(words), 125, "sandbox_not_found", &[&shows_run]);
    }
    for verb in ["attach", "wait", "cancel"] {
        told(&bench.call([verb, "box"]), 125, "run_not_found", &["glovebox runs list --sandbox box"]);
    }
    let lists = format!("glovebox runs list --sandbox {}", living.id);
    for words in [&["wait"][..], &["attach"], &["cancel"], &["runs", "show"], &["runs", "logs"]] {
        told(&bench.call(words.iter().chain(&[&*living.id])), 125, "run_not_found", &[&lists]);
    }
    told(&bench.call(["show", "sb_0"]), 125, "ambiguous_id", &[&living.id, &other.id]);
    told(&bench.call(["show", "BOX"]), 125, "sandbox_not_found", &["did you mean box?"]);
    told(&bench.call(["show", "nosuch"]), 125, "sandbox_not_found", &["glovebox list"]);
    told(&bench.call(["files", "list", "box:x"]), 125, "sandbox_not_found", &["ID and PATH stand apart"]);
    bench.write("a.py", "");
    told(&bench.call(["cp", "a.py", "box"]), 2, "usage", &["glovebox cp a.py box:"]);
}

#[test]
fn a_state_that_is_in_the_way_is_told_with_the_verb_and_the_name_that_was_typed() {
    let bench = Bench::new();
    let _living = Living::new(&bench, &["--name", "box"]);
    bench.call(["stop", "box"]).expect(0, "");
    for words in [
        &["pause", "box"][..],
        &["resume", "box"],
        &["usage", "box"],
        &["exec", "box", "--", "true"],
        &["files", "list", "box"],
    ] {
        told(&bench.call(words), 125, "wrong_state", &["glovebox start box"]);
    }
    bench.call(["start", "box"]).expect(0, "");
    bench.call(["start", "box"]).expect(0, "");
}

#[test]
fn names_times_and_folders_that_cannot_be_are_told_one_that_can() {
    let bench = Bench::new();
    bench.write("a.py", "");
    told(&bench.call(["create", "--name", "my box"]), 2, "invalid_value", &["--name my-box"]);
    told(&bench.call(["create", "--name", "sb_x"]), 2, "invalid_value", &["--name sb-x"]);
    for words in [&["run", "--keep=bad", "a.py"][..], &["run", "--keep", "5", "a.py"]] {
        let called = bench.call(words);
        assert_eq!(called.code, 2, "{called:?}");
        assert!(called.stderr.contains("--keep") && called.stderr.contains("30s"), "{}", called.stderr);
    }
    let none = bench.call(["exec", "box", "--timeout", "--", "true"]);
    told(&none, 2, "invalid_value", &["write --timeout DURATION"]);
    let _living = Living::new(&bench, &["--name", "box"]);
    told(&bench.call(["files", "write", "box", "a/b/c"]), 125, "file_not_found", &["glovebox files mkdir -p box a/b"]);
    told(&bench.call(["files", "mkdir", "box", "a/b"]), 125, "file_not_found", &["-p"]);
    bench.call(["files", "mkdir", "-p", "box", "a/b"]).expect(0, "");
    told(&bench.call(["files", "mkdir", "box", "a/b"]), 125, "file_exists", &["-p"]);
}

#[test]
fn what_a_run_in_a_living_sandbox_lacked_is_told_as_a_flag_of_create() {
    let bench = Bench::new();
    bench.write("main.py", "import beside");
    bench.write("beside.py", "");
    let living = Living::new(&bench, &["--name", "box", "--pids", "8"]);
    let alone = bench.call(["exec", "box", "main.py"]);
    assert!(alone.code == 1 && alone.stderr.contains("glovebox cp ./. box:"), "{alone:?}");
    let line = "raise OSError('Temporary failure in name resolution')";
    let offline = living.exec(&["-l", "python", "-c", line]);
    assert!(offline.code == 1 && offline.stderr.contains("glovebox create --network full"), "{offline:?}");
    let crowded = living.exec(&["--", "sh", "-c", "for i in $(seq 20); do sleep 5 & done; exit 3"]);
    assert!(crowded.stderr.contains("(glovebox create --pids)"), "{crowded:?}");
}

#[test]
fn a_variable_that_names_a_language_does_not_keep_exec_from_commands() {
    let bench = Bench::new();
    let _living = Living::new(&bench, &["--name", "box"]);
    let mut command = bench.glovebox(["exec", "box", "--", "echo", "ran"]);
    Called::new(command.env("GLOVEBOX_LANGUAGE", "python").output().expect("it runs")).expect(0, "ran\n");
}
