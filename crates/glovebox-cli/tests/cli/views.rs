//! What is told of sandboxes that stay, of their runs and of their changes.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::Stdio,
};

use serde_json::{Value, json};

use crate::{
    Bench, Called,
    living::{Living, until},
    terminal::open_terminal,
};

/// A sandbox with a workspace of two files, in which two runs have worked; the ids of the runs.
fn worked_in<'a>(bench: &'a Bench) -> (Living<'a>, [String; 2]) {
    bench.write("proj/a", "a\n");
    bench.write("proj/gone", "gone\n");
    let living = Living::new(bench, &["--name", "box", "--workspace", "proj"]);
    let run = |line: &str| {
        let result = living.exec(&["--json", "--", "sh", "-c", line]).document();
        result["run"].as_str().expect("a run").to_owned()
    };
    let runs = [run("echo 1 >> a; echo 1 > new"), run("echo 2 >> a; rm gone")];
    (living, runs)
}

fn names(called: &Called) -> [Value; 3] {
    let document = called.document();
    ["added", "modified", "deleted"].map(|key| document[key].clone())
}

fn of(words: [&[&str]; 3]) -> [Value; 3] {
    words.map(|names| names.iter().map(|name| json!(format!("agent_workspace/{name}"))).collect())
}

#[test]
fn changes_take_a_run_and_a_sandbox_by_id_beginning_and_name() {
    let bench = Bench::new();
    let (living, runs) = worked_in(&bench);
    let changes = |id: &str| bench.call(["changes", "--json", id]);
    assert_eq!(names(&changes(&runs[0])), of([&["new"], &["a"], &[]]));
    assert_eq!(names(&changes(&runs[1])), of([&[], &["a"], &["gone"]]));
    assert_eq!(names(&changes(&runs[1][4..])), of([&[], &["a"], &["gone"]]), "without its prefix");
    let all = of([&["new"], &["a"], &["gone"]]);
    for id in [&living.id, &living.id[..24], &living.id[3..26], "box"] {
        let called = changes(id);
        assert_eq!(names(&called), all, "{id}");
        let document = called.document();
        assert_eq!((&document["sandbox"], &document["run"]), (&json!(living.id), &Value::Null));
    }
    assert_eq!(bench.call(["stop", "box"]).code, 0);
    assert_eq!(names(&changes("box")), all, "it is stopped");
    let page = bench.call(["changes", "box"]);
    assert!(page.text().contains("+1\n+2\n"), "{}", page.text());
    let page = bench.call(["changes", &runs[1]]);
    assert!(page.text().contains(" 1\n+2\n"), "what the first run wrote was there: {}", page.text());
    assert!(page.stderr.contains("glovebox changes box"), "{}", page.stderr);
    for (id, code) in [("nobody", "run_not_found"), ("sb_01JC0000000000000000000000", "sandbox_not_found")] {
        let called = changes(id);
        assert_eq!((called.code, &called.document()["error"]["code"]), (125, &json!(code)), "{called:?}");
    }
}

#[test]
fn a_sandbox_is_applied_whole_and_taken_back() {
    let bench = Bench::new();
    let (_living, _) = worked_in(&bench);
    let read = |name: &str| fs::read_to_string(bench.work().join("proj").join(name)).ok();
    let called = bench.call(["apply", "box", "--json"]);
    assert_eq!(called.code, 0, "{called:?}");
    assert_eq!((read("a").as_deref(), read("new").as_deref(), read("gone")), (Some("a\n1\n2\n"), Some("1\n"), None));
    let called = bench.call(["apply", "box", "--reverse"]);
    assert_eq!(called.code, 0, "{called:?}");
    assert_eq!((read("a").as_deref(), read("new"), read("gone").as_deref()), (Some("a\n"), None, Some("gone\n")));
}

#[test]
fn the_runs_of_a_sandbox_are_applied_one_after_the_other() {
    let bench = Bench::new();
    let (_living, runs) = worked_in(&bench);
    let read = || fs::read_to_string(bench.work().join("proj/a")).expect("it is there");
    let early = bench.call(["apply", &runs[1]]);
    assert_eq!(early.code, 1, "it builds on the first: {early:?}");
    assert!(early.stderr.contains("earlier runs"), "{}", early.stderr);
    assert_eq!(bench.call(["apply", &runs[0]]).code, 0);
    assert_eq!(read(), "a\n1\n");
    let called = bench.call(["exec", "box", "--json", "--", "sh", "-c", "echo 3 >> a"]);
    let third = called.document()["run"].as_str().expect("a run").to_owned();
    assert_eq!(names(&called_changes(&called)), of([&[], &["a"], &[]]));
    assert_eq!(bench.call(["apply", &runs[1]]).code, 0);
    assert_eq!(bench.call(["apply", &third]).code, 0);
    assert_eq!(read(), "a\n1\n2\n3\n");
}

/// The changes in the result of a run, as `changes` gives them.
fn called_changes(called: &Called) -> Called {
    let stdout = serde_json::to_vec(&called.document()["changes"]).expect("it is JSON");
    Called { code: called.code, stdout, stderr: called.stderr.clone() }
}

#[test]
fn each_run_tells_and_keeps_its_own_artifacts() {
    let bench = Bench::new();
    let living = Living::new(&bench, &[]);
    let first = living.exec(&["--", "sh", "-c", "echo 1 > ../outputs/a; echo 1 > ../outputs/b"]);
    assert!(first.stderr.contains("kept 2 files"), "{}", first.stderr);
    let second = living.exec(&["--", "true"]);
    assert_eq!(second.stderr, "");
    let third = living.exec(&["--json", "--", "sh", "-c", "echo 2 > ../outputs/b"]).document();
    assert_eq!(third["artifacts"].as_array().map(Vec::len), Some(1), "{third}");
    assert_eq!(third["artifacts"][0]["path"], json!("outputs/b"));
}

#[test]
fn a_moved_workspace_closes_no_sandbox() {
    let bench = Bench::new();
    bench.write("proj/a", "a\n");
    let living = Living::new(&bench, &["--workspace", "proj"]);
    fs::rename(bench.work().join("proj"), bench.work().join("moved")).expect("it can be moved");
    living.exec(&["--", "cat", "a"]).expect(0, "a\n");
    let wrote = living.exec(&["--", "sh", "-c", "echo 2 > a"]);
    assert!(wrote.code == 0 && wrote.stderr.contains("moved or removed"), "{wrote:?}");
    assert_eq!(bench.call(["usage", &living.id]).code, 0);
    bench.call(["cp", &format!("{}:a", living.id), "-"]).expect(0, "2\n");
    let refused = bench.call(["changes", &living.id]);
    assert!(refused.code == 125 && refused.stderr.contains("is gone, so what changed"), "{refused:?}");
    fs::rename(bench.work().join("moved"), bench.work().join("proj")).expect("it can be moved");
    assert_eq!(names(&bench.call(["changes", "--json", &living.id])), of([&[], &["a"], &[]]));
}

#[test]
fn the_end_that_comes_first_is_listed_and_told() {
    let bench = Bench::new();
    let living = Living::new(&bench, &["--idle-timeout", "10m", "--max-age", "5h"]);
    let ends = || {
        let listed = bench.call(["list"]);
        let row = listed.text().lines().nth(1).expect("a row").to_owned();
        row.split("  ").map(str::trim).find(|cell| cell.starts_with("in ")).expect("an end").to_owned()
    };
    assert_eq!(ends(), "in 9m");
    let document = bench.call(["show", "--json", &living.id]).document();
    let time = |key: &str| document[key].as_str().expect("a time").parse::<jiff::Timestamp>().expect("a time");
    assert!(time("ends_at") < time("expires_at"), "{document}");
    let run = living.detach("exec sleep 1000");
    until("what is at work holds the idle time", || ends() == "in 4h");
    assert_eq!(bench.call(["cancel", &run]).code, 0);
    until("and nothing else does", || ends() == "in 9m");
    let kept = bench.call(["run", "--keep", "20m", "--", "true"]);
    assert!(kept.stderr.contains("ends by itself after 20m without use"), "{}", kept.stderr);
    let id = kept.stderr.split_whitespace().find(|word| word.starts_with("sb_")).expect("an id");
    assert_eq!(bench.call(["destroy", id.trim_end_matches(';')]).code, 0);
}

#[test]
fn a_lifetime_of_nothing_in_any_unit_is_none() {
    let bench = Bench::new();
    for zero in ["0", "0s", "0m", "0h", "0ms"] {
        let living = Living::new(&bench, &["--idle-timeout", zero, "--max-age", zero]);
        let document = bench.call(["show", "--json", &living.id]).document();
        assert_eq!((&document["expires_at"], &document["idle_timeout_ms"]), (&Value::Null, &Value::Null), "{zero}");
    }
}

#[test]
fn a_run_that_is_at_work_has_no_output_yet_and_says_how_to_follow_it() {
    let bench = Bench::new();
    let living = Living::new(&bench, &[]);
    let run = living.detach("echo up; exec sleep 1000");
    for verb in ["logs", "show"] {
        let called = bench.call(["runs", verb, &run]);
        assert_eq!(called.code, 0, "{called:?}");
        assert!(called.stderr.contains(&format!("still at work; glovebox attach {run}")), "{}", called.stderr);
    }
    assert_eq!(bench.call(["runs", "logs", "--json", &run]).document()["outcome"], Value::Null);
    assert_eq!(bench.call(["cancel", &run]).code, 0);
    assert_eq!(bench.call(["wait", &run]).code, 130);
    bench.call(["runs", "logs", &run]).expect(0, "up\n");
}

#[test]
fn runs_of_what_never_was_are_an_error_and_of_what_is_gone_are_listed() {
    let bench = Bench::new();
    let code = |args: &[&str]| {
        let called = bench.call(["runs", "list", "--json"].iter().chain(args));
        (called.code, called.document()["error"]["code"].as_str().map(str::to_owned))
    };
    let error = |code: &str| (125, Some(code.to_owned()));
    assert_eq!(code(&["--project", "nope"]), error("project_not_found"));
    assert_eq!(code(&["--sandbox", "nope"]), error("sandbox_not_found"));
    assert_eq!(code(&["--sandbox", "sb_01JC0000000000000000000000"]), error("sandbox_not_found"));
    assert_eq!(bench.call(["projects", "create", "p"]).code, 0);
    assert_eq!(code(&["--project", "p"]), (0, None), "it is there and has no run");
    let living = Living::new(&bench, &["--project", "p"]);
    assert_eq!(code(&["--sandbox", &living.id]), (0, None), "it is there and has no run");
    living.exec(&["--", "true"]).expect(0, "");
    let id = living.id.clone();
    drop(living);
    assert_eq!(bench.call(["projects", "remove", "p"]).code, 0);
    for flags in [["--project", "p"], ["--sandbox", &id]] {
        let listed = bench.call(["runs", "list", "--json"].iter().chain(&flags)).document();
        assert_eq!(listed["runs"].as_array().map(Vec::len), Some(1), "{flags:?}");
    }
    assert_eq!(code(&["--sandbox", &id, "--outcome", "timed_out"]), (0, None), "none of its runs fits");
}

#[test]
fn whoever_stops_or_destroys_a_sandbox_is_named_as_the_reason_for_the_end_of_its_runs() {
    let bench = Bench::new();
    for (verb, word) in [("stop", "was stopped"), ("reset", "was reset"), ("destroy", "was destroyed")] {
        let living = Living::new(&bench, &[]);
        let following = |args: &[&str]| {
            let mut command = bench.glovebox(args.iter());
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
        };
        let run = following(&["exec", &living.id, "--", "sh", "-c", "touch up; exec sleep 1000"]);
        until("the run is up", || bench.call(["files", "stat", &living.id, "up"]).code == 0);
        let mut watched = following(&["files", "watch", "--json", &living.id, "."]);
        let mut told = BufReader::new(watched.stdout.take().expect("a pipe"));
        let mut ready = String::new();
        told.read_line(&mut ready).expect("it tells that it watches");
        assert_eq!(bench.call([verb, &living.id]).code, 0);
        let run = Called::new(run.wait_with_output().expect("it ends"));
        assert!(run.code == 125 && run.stderr.contains(&format!("{word} while the run was at work")), "{run:?}");
        assert!(!run.stderr.contains("went away"), "{}", run.stderr);
        let mut rest = String::new();
        told.read_to_string(&mut rest).expect("it ends");
        let watched = Called::new(watched.wait_with_output().expect("it ends"));
        assert!(watched.code == 125 && rest.contains(word) && rest.contains("sandbox_lost"), "{rest} {watched:?}");
        let listed = bench.call(["runs", "list", "--json", "--sandbox", &living.id]).document();
        let id = listed["runs"][0]["run"].as_str().expect("a run").to_owned();
        let page = bench.call(["runs", "show", &id]);
        assert!(page.text().contains(word), "{}", page.text());
    }
}

#[test]
fn a_variable_for_the_labels_of_new_sandboxes_leaves_out_none_from_the_list() {
    let bench = Bench::new();
    let living = Living::new(&bench, &["--label", "team=red"]);
    let ids = |name: &str| {
        let called = bench.glovebox(["list", "--ids"]).env(name, "team=blue").output().expect("it runs");
        String::from_utf8_lossy(&called.stdout).into_owned()
    };
    assert_eq!(ids("GLOVEBOX_LABEL"), format!("{}\n", living.id));
    assert_eq!(ids("GLOVEBOX_LIST_LABEL"), "");
}

#[test]
fn the_list_tells_the_project() {
    let bench = Bench::new();
    assert_eq!(bench.call(["projects", "create", "p"]).code, 0);
    let _living = Living::new(&bench, &["--project", "p"]);
    let listed = bench.call(["list"]);
    let heading: Vec<&str> = listed.text().lines().next().expect("a heading").split_whitespace().collect();
    assert_eq!(heading, ["SANDBOX", "NAME", "STATE", "CREATED", "ENDS", "PROJECT", "LABELS"]);
    assert!(listed.text().lines().nth(1).is_some_and(|row| row.trim_end().ends_with("  p")), "{}", listed.text());
}

#[test]
fn a_narrow_terminal_shows_names_states_and_ends() {
    let bench = Bench::new();
    let first = Living::new(&bench, &["--name", "box", "--label", "team=red"]);
    let second = Living::new(&bench, &[]);
    let (mut screen, line) = open_terminal(10, 40);
    let mut child = bench.glovebox(["list"]).stdout(line).spawn().expect("it starts");
    assert!(child.wait().expect("it ends").success());
    let mut shown = String::new();
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = screen.read(&mut buffer) {
        shown.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    let rows: Vec<Vec<&str>> = shown.lines().map(|row| row.split_whitespace().collect()).collect();
    assert!(shown.lines().all(|row| row.chars().count() <= 40), "{shown}");
    assert_eq!(rows[1], ["box", "ready", "in", "59m", "team=red"], "{shown} {}", first.id);
    assert!(second.id.starts_with(rows[2][0]) && rows[2][1..] == ["ready", "in", "59m"], "{shown}");
    assert_eq!(bench.call(["exec", rows[2][0], "--", "true"]).code, 0, "what is shown is enough");
}
