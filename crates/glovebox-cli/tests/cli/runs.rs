//! The record of runs: what is written, how it is read, and what is said when it cannot be written.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{Bench, Called, living::Living, spawn_piped};

/// The runs that `runs list --json ARGS` gives.
fn listed(bench: &Bench, args: &[&str]) -> Vec<Value> {
    let called = bench.call(["runs", "list", "--json"].iter().chain(args));
    assert_eq!(called.code, 0, "{}", called.stderr);
    called.document()["runs"].as_array().expect("a list").clone()
}

fn id(result: &Value) -> &str {
    result["run"].as_str().expect("an id")
}

/// Everything below a folder, as bytes.
fn everything_in(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        if entry.path().is_dir() {
            bytes.extend(everything_in(&entry.path()));
        } else {
            bytes.extend(fs::read(entry.path()).expect("a file"));
        }
    }
    bytes
}

/// Does something to the ledger with SQLite itself, and goes on while `act` runs.
fn with_sqlite<T>(bench: &Bench, statements: &str, act: impl FnOnce() -> T) -> T {
    let program = format!(
        "import sqlite3, sys\nc = sqlite3.connect({:?}, isolation_level=None)\n{statements}\nprint('done', flush=True)\n\
         sys.stdin.read()",
        bench.data().join("ledger.db")
    );
    let mut python = spawn_piped(Command::new("/usr/bin/python3").args(["-c", &program]));
    let mut said = String::new();
    BufReader::new(python.stdout.take().expect("a pipe")).read_line(&mut said).expect("a line");
    assert_eq!(said, "done\n");
    let result = act();
    drop(python.stdin.take());
    python.wait().expect("python ends");
    result
}

#[test]
fn runs_show_gives_the_document_exactly_as_the_run_gave_it() {
    let bench = Bench::new();
    for args in [
        &["--", "sh", "-c", "echo out; echo err >&2; exit 3"][..],
        &["--label", "a=b", "--env", "X=é", "--", "printf", "\\377\\000binary"],
        &["--output-limit", "1k", "--", "seq", "100000"],
        &["--", "sh", "-c", "echo kept > /workspace/outputs/a.txt; seq 20000"],
        &["--timeout", "100ms", "--grace", "10ms", "--", "sleep", "60"],
    ] {
        let ran = bench.call(["run", "--json"].iter().chain(args));
        let result = ran.document();
        assert_eq!(result["recorded"], json!(true), "{result}");
        assert_eq!(result["warnings"], json!([]));
        let shown = bench.call(["runs", "show", "--json", id(&result)]);
        assert_eq!(shown.stdout, ran.stdout, "{}", shown.stderr);
        assert_eq!(shown.code, 0);
    }
}

#[test]
fn runs_are_listed_by_sandbox_and_by_project() {
    let bench = Bench::new();
    bench.call(["projects", "create", "app"]).expect(0, "app\n");
    let living = Living::new(&bench, &["--name", "box", "--project", "app"]);
    let other = Living::new(&bench, &[]);
    let [first, second] = ["one", "two"].map(|word| living.exec(&["--json", "--", "echo", word]).document());
    let elsewhere = other.exec(&["--json", "--", "true"]).document();
    let alone = bench.result(&["--project", "app", "--", "true"]);
    let ids = |args: &[&str]| listed(&bench, args).iter().map(|run| id(run).to_owned()).collect::<Vec<_>>();
    let inside = [id(&second), id(&first)];
    assert_eq!(ids(&["--sandbox", "box"]), inside);
    assert_eq!(ids(&["--sandbox", &living.id]), inside);
    assert_eq!(ids(&["--sandbox", &other.id]), [id(&elsewhere)]);
    assert_eq!(ids(&["--project", "app"]), [id(&alone), id(&second), id(&first)]);
    assert_eq!(ids(&["--project", "app", "--sandbox", "box", "--limit", "1"]), [id(&second)]);
    let refused = bench.call(["runs", "list", "--project", "none"]);
    assert!(refused.code == 125 && refused.stderr.contains("project_not_found"), "{refused:?}");
    // A sandbox that is gone is named by its whole id.
    let gone = alone["sandbox"].as_str().expect("an id");
    assert_eq!(ids(&["--sandbox", gone]), [id(&alone)]);
    let refused = bench.call(["runs", "list", "--sandbox", "nobody"]);
    assert!(refused.code == 125 && refused.stderr.contains("sandbox_not_found"), "{refused:?}");
    let refused = bench.call(["runs", "list", "--project", "a b"]);
    assert!(refused.code == 2 && refused.stderr.contains("--project"), "{refused:?}");
}

#[test]
fn runs_logs_writes_the_bytes_of_each_stream() {
    let bench = Bench::new();
    let code = "printf '\\377\\000out\\n'; printf 'no line end' >&2; seq 30000";
    let expected = bench.call(["run", "--", "sh", "-c", code]);
    let runs = listed(&bench, &[]);
    let run = id(&runs[0]);
    let both = bench.call(["runs", "logs", run]);
    assert_eq!((both.code, &both.stdout, both.stderr.as_str()), (0, &expected.stdout, "no line end"));
    let stdout = bench.call(["runs", "logs", "--stdout", run]);
    assert_eq!((&stdout.stdout, stdout.stderr.as_str()), (&expected.stdout, ""));
    let stderr = bench.call(["runs", "logs", run, "--stderr"]);
    assert_eq!((stderr.text(), stderr.stderr.as_str()), ("no line end", ""));
    assert_eq!(bench.call(["runs", "logs", "--json", run]).document()["stderr"]["text"], json!("no line end"));
    assert_eq!(bench.call(["runs", "logs", run, "--stderr", "--stdout"]).code, 2);
}

#[test]
fn runs_are_listed_filtered_and_paged() {
    let bench = Bench::new();
    assert_eq!(listed(&bench, &[]), Vec::<Value>::new());
    bench.call(["run", "--label", "team=red", "--", "true"]);
    bench.call(["run", "--label", "team=blue", "--", "sh", "-c", "exit 7"]);
    bench.call(["run", "--timeout", "50ms", "--grace", "10ms", "--", "sleep", "60"]);
    let runs = listed(&bench, &[]);
    let outcomes: Vec<&str> = runs.iter().map(|run| run["outcome"]["kind"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["timed_out", "exited", "exited"]);
    assert_eq!(listed(&bench, &["--label", "team=red"]), runs[2..]);
    assert_eq!(listed(&bench, &["--outcome", "timed_out"]), runs[..1]);
    assert_eq!(listed(&bench, &["--since", "1h", "--limit", "2"]), runs[..2]);
    assert_eq!(listed(&bench, &["--before", id(&runs[1])]), runs[2..]);
    let page = bench.call(["runs", "list", "--json", "--limit", "2"]).document();
    assert_eq!(page["next"], runs[1]["run"]);
    let table = bench.call(["runs", "list"]);
    let lines: Vec<&str> = table.text().lines().collect();
    assert!(lines[0].starts_with("RUN ") && lines.len() == 4, "{}", table.text());
    assert!(lines[1].contains("timed out") && lines[1].ends_with("sleep 60"), "{}", table.text());
    assert!(lines[2].contains("exit 7") && lines[2].ends_with("sh -c 'exit 7'"), "{}", table.text());
    // A label for runs in the environment is no filter for lists; the filter has a variable of its own.
    let count = |name: &str, value: &str| {
        let output = bench.glovebox(["runs", "list", "--json"]).env(name, value).output().unwrap();
        Called::new(output).document()["runs"].as_array().unwrap().len()
    };
    assert_eq!((count("GLOVEBOX_LABEL", "team=red"), count("GLOVEBOX_RUNS_LABEL", "team=red")), (3, 1));
}

#[test]
fn a_project_s_file_neither_hides_runs_nor_moves_the_ledger() {
    let bench = Bench::new();
    bench.call(["run", "--", "true"]);
    for text in ["runs-outcome = 'lost'", "data-dir = 'elsewhere'"] {
        bench.write("glovebox.toml", text);
        let called = bench.glovebox(["runs", "list", "--json"]).env_remove("GLOVEBOX_DATA_DIR").output().unwrap();
        assert_eq!(Called::new(called).document()["error"]["code"], json!("untrusted_config"), "{text}");
    }
    bench.write("glovebox.toml", "runs-outcome = 'lost'");
    assert!(listed(&bench, &["--trust-project"]).is_empty());
    assert_eq!(listed(&bench, &["--outcome", "exited"]).len(), 1);
    bench.write("glovebox.toml", "no-record = true");
    assert_eq!(bench.error(&["--", "true"]).0, "untrusted_config");
}

#[test]
fn wrong_filters_and_ids_are_errors_with_codes() {
    let bench = Bench::new();
    bench.call(["run", "--", "true"]);
    bench.call(["run", "--", "true"]);
    for (args, code, exit) in [
        (&["list", "--outcome", "fine"][..], "invalid_value", 2),
        (&["list", "--limit", "0"], "invalid_value", 2),
        (&["list", "--since", "soon"], "invalid_value", 2),
        (&["list", "--label", "novalue"], "invalid_value", 2),
        (&["list", "--before", "run_nothing"], "run_not_found", 125),
        (&["show", "run_nothing"], "run_not_found", 125),
        (&["logs", "run_0"], "ambiguous_id", 125),
        (&[], "usage", 2),
    ] {
        let called = bench.call(["runs", "--json"].iter().chain(args));
        assert_eq!(called.document()["error"]["code"], json!(code), "{args:?}: {called:?}");
        assert_eq!(called.code, exit, "{args:?}");
    }
}

#[test]
fn the_page_of_a_run_says_what_there_is_to_say() {
    let bench = Bench::new();
    let code = "echo x > new; echo y > /workspace/outputs/a.txt; printf '\\033[31m'; exit 4";
    bench.call(["run", "--label", "team=red", "--env", "MODE=\u{1b}[2J", "--", "sh", "-c", code]);
    let shown = bench.call(["runs", "show", id(&listed(&bench, &[])[0])]);
    for part in [
        "exited with code 4",
        "label     team=red",
        "variable  MODE=\\u{1b}[2J",
        "added     agent_workspace/new",
        "artifact  outputs/a.txt (2 bytes)",
        "2 GiB memory",
        "stdout    5 bytes",
    ] {
        assert!(shown.text().contains(part), "{part} is not in {}", shown.text());
    }
    assert!(!shown.text().contains('\u{1b}'));
}

#[test]
fn no_record_leaves_nothing_and_a_command_that_never_started_leaves_no_run() {
    let bench = Bench::new();
    let result = bench.result(&["--no-record", "--", "true"]);
    assert_eq!(result["recorded"], json!(false));
    assert_eq!(result["warnings"], json!([]));
    assert!(!bench.data().exists());
    assert_eq!(bench.error(&["--", "no-such-program"]).0, "command_not_found");
    assert!(listed(&bench, &[]).is_empty());
}

#[test]
fn a_secret_is_nowhere_in_what_is_stored() {
    let bench = Bench::new();
    let code = "echo $TOKEN; echo $TOKEN > \"$TOKEN\"; echo $TOKEN > /workspace/outputs/x; sleep 0.01; seq 20000 >&2";
    let mut command =
        bench.glovebox(["run", "--secret", "TOKEN", "--label", "v=hunter2hunter2", "--", "sh", "-c", code]);
    let output = command.env("TOKEN", "hunter2hunter2").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let run = listed(&bench, &["--label", "v=[redacted]"]);
    assert_eq!(bench.call(["runs", "logs", "--stdout", id(&run[0])]).text(), "[redacted]\n");
    let stored = everything_in(&bench.data());
    assert!(stored.len() > 1000 && !stored.windows(14).any(|part| part == b"hunter2hunter2"));
}

#[test]
fn a_killed_run_is_lost_and_a_living_one_is_running() {
    let bench = Bench::new();
    let mut child =
        bench.glovebox(["run", "--", "sh", "-c", "echo up; exec sleep 60"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut up = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut up).unwrap();
    let runs = listed(&bench, &["--outcome", "running"]);
    assert_eq!((runs.len(), &runs[0]["outcome"]), (1, &Value::Null));
    assert!(bench.call(["runs", "show", id(&runs[0])]).text().contains("still running"));
    child.kill().unwrap();
    child.wait().unwrap();
    let lost = listed(&bench, &[]);
    assert_eq!((id(&lost[0]), &lost[0]["outcome"]), (id(&runs[0]), &json!({"kind": "lost"})));
    let document = bench.call(["runs", "show", "--json", id(&lost[0])]).document();
    assert_eq!(document["command"]["argv"][2], json!("echo up; exec sleep 60"));
    assert!(bench.call(["runs", "show", id(&lost[0])]).text().contains("lost"));
}

/// The run went well, the result says that it is not recorded, and so does standard error.
#[track_caller]
fn expect_unrecorded(bench: &Bench, code: &str) {
    let called = bench.call(["run", "--json", "--", "sh", "-c", "echo fine; exit 5"]);
    assert_eq!(called.code, 5, "{}", called.stderr);
    let result = called.document();
    assert_eq!((&result["recorded"], &result["stdout"]["text"]), (&json!(false), &json!("fine\n")));
    assert_eq!(result["warnings"][0]["code"], json!(code));
    let said = format!("[{code}]");
    assert!(
        called.stderr.contains("warning: this run is not recorded: ") && called.stderr.contains(&said),
        "{called:?}"
    );
    let plain = bench.call(["run", "--", "sh", "-c", "echo fine; exit 5"]);
    plain.expect(5, "fine\n");
    assert!(plain.stderr.contains(&said), "{}", plain.stderr);
}

#[test]
fn a_ledger_that_is_locked_loses_no_run() {
    let bench = Bench::new();
    bench.call(["run", "--", "true"]);
    with_sqlite(&bench, "c.execute('BEGIN IMMEDIATE')", || {
        // Nobody need wait for whoever holds the database.
        let result = bench.call(["run", "--json", "--", "true"]).document();
        assert_eq!((result["recorded"].as_bool(), result["warnings"].as_array().unwrap().len()), (Some(true), 0));
        let called = bench.call(["runs", "list"]);
        assert_eq!(called.code, 125);
        assert!(called.stderr.contains("another program holds it"), "{}", called.stderr);
    });
    assert_eq!(listed(&bench, &[]).len(), 2);
    bench.call(["run", "--", "true"]);
    assert_eq!(listed(&bench, &[]).len(), 3);
}

#[test]
fn a_ledger_of_a_newer_version_is_refused_in_one_clear_line() {
    let bench = Bench::new();
    bench.call(["run", "--", "true"]);
    with_sqlite(&bench, "c.execute('PRAGMA user_version = 99')", || {});
    expect_unrecorded(&bench, "ledger_too_new");
    let called = bench.call(["runs", "list"]);
    assert_eq!(called.code, 125);
    assert!(
        called.stderr.contains("was written by a newer Glovebox (format 99, this one knows 1)"),
        "{}",
        called.stderr
    );
}

/// A folder on a file system of its own, gone with the value.
struct SmallDisk<'a>(&'a Path);

impl SmallDisk<'_> {
    fn mount(folder: &Path) -> SmallDisk<'_> {
        fs::create_dir_all(folder).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "small"]).arg(folder).status();
        assert!(mount.expect("mount is there").success());
        SmallDisk(folder)
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_disk_that_is_full_loses_no_run_silently() {
    let bench = Bench::new();
    let data = bench.data();
    let _disk = SmallDisk::mount(&data);
    bench.call(["run", "--", "true"]);
    assert_eq!(listed(&bench, &[]).len(), 1);
    let full = Command::new("dd").args(["if=/dev/zero", "bs=4k"]).arg(format!("of={}/filler", data.display())).output();
    assert!(!full.expect("dd is there").status.success(), "the disk is not full");
    expect_unrecorded(&bench, "ledger_unavailable");
    fs::remove_file(data.join("filler")).unwrap();
    bench.call(["run", "--", "true"]);
    assert_eq!(listed(&bench, &[]).len(), 2, "only what was told is missing");
}

#[test]
fn runs_are_found_by_their_language_under_any_of_its_names() {
    let bench = Bench::new();
    bench.write("a.py", "print(1)");
    bench.call(["run", "a.py"]).expect(0, "1\n");
    bench.call(["run", "-l", "sh", "-c", "echo 2"]).expect(0, "2\n");
    bench.call(["run", "--", "true"]).expect(0, "");
    let listed = |name: &str| bench.call(["runs", "list", "--json", "--language", name]).document()["runs"].clone();
    for (name, known) in [("python", "python"), ("py", "python"), ("shell", "shell")] {
        let runs = listed(name);
        assert_eq!(runs.as_array().map(Vec::len), Some(1), "{runs}");
        assert_eq!(runs[0]["command"]["language"], known, "{runs}");
    }
    assert_eq!(listed("ruby").as_array().map(Vec::len), Some(0));
    assert_eq!(bench.call(["runs", "list"]).text().lines().count(), 4);
    let wrong = bench.call(["runs", "list", "-l", "cobol"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("expected one of python, "), "{}", wrong.stderr);
}

#[test]
fn without_a_run_the_last_one_is_meant_and_an_id_that_fits_several_names_them() {
    let bench = Bench::new();
    let called = bench.call(["runs", "show"]);
    assert!(called.code == 125 && called.stderr.contains("no run is recorded yet"), "{called:?}");
    assert!(bench.call(["runs", "list"]).stderr.contains("no run is recorded yet"));
    for word in ["one", "two", "three", "four"] {
        bench.call(["run", "--", "echo", word]).expect(0, &format!("{word}\n"));
    }
    bench.call(["runs", "logs"]).expect(0, "four\n");
    assert!(bench.call(["runs", "show"]).text().contains("echo four"));
    let called = bench.call(["runs", "show", "run_0"]);
    let newest = bench.call(["runs", "list", "--json"]).document()["runs"][0]["run"].as_str().unwrap().to_owned();
    assert!(called.stderr.contains(&format!("write more of it: {newest}, ")), "{called:?}");
    assert!(called.stderr.contains(" and others"), "{called:?}");
    assert!(bench.call(["runs", "list", "--outcome", "lost"]).stderr.contains("no run is recorded that fits"));
}

#[test]
fn the_variables_of_these_flags_are_known() {
    let bench = Bench::new();
    bench.call(["run", "--", "true"]).expect(0, "");
    let output = bench.glovebox(["runs", "list"]).env("GLOVEBOX_RUNS_LIMIT", "1").output().unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_program_that_takes_its_sandbox_down_is_in_the_record() {
    let bench = Bench::new();
    for _ in 0..10 {
        // Root inside shares its id with the process that starts programs, and may be faster than the word that it has started.
        bench.call(["run", "--user", "root", "--", "sh", "-c", "kill -9 2"]);
    }
    assert_eq!(listed(&bench, &[]).len(), 10);
}

#[test]
fn the_page_of_a_run_does_not_drown_in_what_it_changed() {
    let bench = Bench::new();
    bench.call(["run", "--", "sh", "-c", "for n in $(seq 30); do touch $n; done"]).expect(0, "");
    let called = bench.call(["runs", "show"]);
    assert_eq!(called.text().matches("added     agent_workspace/").count(), 10, "{called:?}");
    assert!(called.text().contains("added     … and 20 more, see glovebox changes --all"), "{called:?}");
}
