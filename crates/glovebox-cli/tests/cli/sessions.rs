//! Sessions, as people type them.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::{Bench, Called, living::Living};

#[test]
fn code_in_a_session_knows_what_was_defined_before_and_shows_its_value() {
    let bench = Bench::new();
    let _living = Living::new(&bench, &["--name", "box"]);
    bench.call(["exec", "box", "-l", "python", "--session", "main", "-c", "x = 1"]).expect(0, "");
    // Its language is known from now on.
    bench.call(["exec", "box", "--session", "main", "-c", "print('out'); x + 1"]).expect(0, "out\n2\n");
    bench.call_with_input(["exec", "box", "--session", "main", "-"], b"y = 3\nx + y").expect(0, "4\n");
    bench.write("cell.py", "print(x * 10)");
    bench.call(["exec", "box", "--session", "main", "cell.py"]).expect(0, "10\n");
    let document = bench.call(["exec", "--json", "box", "--session", "main", "-c", "x + y"]).document();
    assert_eq!(
        document["results"],
        json!([{"mime": "text/plain", "text": "4", "value": 0, "kind": "value", "bytes": 1}])
    );
    let session =
        json!({"name": "main", "language": "python", "new": false, "state_lost": false, "alive": true, "number": 5});
    assert_eq!(document["session"], session);
    // The record has all of it.
    let run = document["run"].as_str().expect("an id");
    let recorded = bench.call(["runs", "show", "--json", run]).document();
    assert_eq!((&recorded["results"], &recorded["session"]), (&document["results"], &document["session"]));
}

#[test]
fn an_exception_is_told_as_a_program_would_and_in_the_document() {
    let bench = Bench::new();
    let _living = Living::new(&bench, &["--name", "box"]);
    let called = bench.call(["exec", "box", "-l", "python", "--session", "main", "-c", "1 / 0"]);
    assert_eq!((called.code, called.text()), (1, ""), "{called:?}");
    assert!(called.stderr.contains("ZeroDivisionError: division by zero"), "{called:?}");
    let called = bench.call(["exec", "--json", "box", "--session", "main", "-c", "1 / 0"]);
    let document = called.document();
    assert_eq!(called.code, 1);
    assert_eq!(document["exception"]["name"], "ZeroDivisionError", "{document}");
    assert_eq!(document["exception"]["message"], "division by zero");
    assert!(document["exception"]["traceback"].as_str().is_some_and(|text| text.contains("1 / 0")), "{document}");
}

#[test]
fn what_is_shown_can_be_written_to_files() {
    let bench = Bench::new();
    let _living = Living::new(&bench, &["--name", "box"]);
    let code = "class P:\n    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\nx'\n    def __repr__(self): return 'a picture'\ndisplay(P())\n'text'";
    let called = bench.call(["exec", "box", "-l", "python", "--session", "main", "--results", "shown", "-c", code]);
    called.expect(0, "a picture\n'text'\n");
    assert_eq!(std::fs::read(bench.work().join("shown/0.png")).expect("it is there"), b"\x89PNG\r\n\x1a\nx");
    assert_eq!(std::fs::read_to_string(bench.work().join("shown/1.txt")).expect("it is there"), "'text'");
    let called = bench.call(["exec", "box", "--session", "main", "-c", "P()"]);
    assert!(called.stderr.contains("image/png; --results DIR"), "{called:?}");
    // The numbers go on, and nothing is written over: not what another run wrote, nor what else lies there.
    bench.write("shown/7.txt", "mine");
    let called =
        bench.call(["exec", "box", "--session", "main", "--results", "shown", "--json", "-c", "display(1); 'new'"]);
    let document = called.document();
    let files: Vec<_> = document["results"].as_array().expect("a list").iter().map(|shown| &shown["file"]).collect();
    assert_eq!(files, ["shown/8.txt", "shown/9.txt"], "{document}");
    for (file, text) in
        [("0.txt", "a picture"), ("1.txt", "'text'"), ("7.txt", "mine"), ("8.txt", "1"), ("9.txt", "'new'")]
    {
        assert_eq!(
            std::fs::read_to_string(bench.work().join("shown").join(file)).expect("it is there"),
            text,
            "{file}"
        );
    }
}

#[test]
fn a_run_that_waits_for_its_turn_is_listed_and_cancelled() {
    let bench = Bench::new();
    let _living = Living::new(&bench, &["--name", "box"]);
    let busy = ["exec", "--detach", "box", "-l", "python", "--session", "main", "-c", "x = 5\nwhile True: pass"];
    let busy = bench.call(busy).text().trim().to_owned();
    let waiting = ["exec", "--json", "box", "--session", "main", "-c", "x = 6"];
    let waiting = crate::spawn_piped(&mut bench.glovebox(waiting));
    let listed = || bench.call(["sessions", "list", "--json", "box"]).document()["sessions"][0].clone();
    let began = Instant::now();
    let run = loop {
        let session = listed();
        if let Some(run) = session["waiting"][0].as_str() {
            assert_eq!(session["run"], json!(busy));
            break run.to_owned();
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{session}");
    };
    assert!(bench.call(["sessions", "list", "box"]).text().contains(&format!("busy with {busy}, 1 waiting")));
    let called = bench.call(["cancel", "--json", &run]);
    assert_eq!((called.code, called.document()), (0, json!({"run": run, "cancelled": true})));
    let waited = Called::new(waiting.wait_with_output().expect("it ends"));
    assert_eq!((waited.code, &waited.document()["outcome"]["kind"]), (130, &json!("cancelled")), "{waited:?}");
    assert_eq!(bench.call(["runs", "show", "--json", &run]).document()["outcome"]["kind"], "cancelled");
    assert_eq!(listed()["waiting"], json!([]));
    bench.call(["cancel", &busy]).expect(0, "");
    bench.call(["wait", &busy]);
    bench.call(["exec", "box", "--session", "main", "-c", "x"]).expect(0, "5\n");
}

#[test]
fn lost_state_is_told_once() {
    let bench = Bench::new();
    let _living = Living::new(&bench, &["--name", "box"]);
    bench.call(["exec", "box", "-l", "python", "--session", "main", "-c", "x = 1"]).expect(0, "");
    let died = bench.call(["exec", "box", "--session", "main", "-c", "import os; os._exit(4)"]);
    assert!(died.code == 4 && died.stderr.contains("the interpreter of the session main ended"), "{died:?}");
    let next = bench.call(["exec", "box", "--session", "main", "-c", "'x' in globals()"]);
    assert!(next.text() == "False\n" && next.stderr.contains("was started anew"), "{next:?}");
    let after = bench.call(["exec", "box", "--session", "main", "-c", "1"]);
    assert_eq!((after.text(), after.stderr.as_str()), ("1\n", ""));
    bench.call(["stop", "box"]);
    bench.call(["start", "box"]);
    let next = bench.call(["exec", "box", "--session", "main", "-c", "1"]);
    assert!(next.stderr.contains("was started anew"), "{next:?}");
}

#[test]
fn sessions_are_listed_interrupted_restarted_and_closed() {
    let bench = Bench::new();
    let _living = Living::new(&bench, &["--name", "box"]);
    let none = bench.call(["sessions", "list", "box"]);
    assert!(none.text().is_empty() && none.stderr.contains("--session main"), "{none:?}");
    bench.call(["exec", "box", "-l", "python", "--session", "one", "-c", "x = 1"]).expect(0, "");
    bench.call(["exec", "box", "-l", "bash", "--session", "two", "-c", "x=1"]).expect(0, "");
    let listed = bench.call(["sessions", "list", "--json", "box"]).document();
    let names: Vec<_> =
        listed["sessions"].as_array().expect("a list").iter().map(|one| (&one["name"], &one["state"])).collect();
    assert_eq!(names, [(&json!("one"), &json!("ready")), (&json!("two"), &json!("ready"))]);
    assert!(bench.call(["sessions", "list", "box"]).text().contains("python"));
    bench.call(["sessions", "interrupt", "box", "one"]).expect(0, "one\n");
    bench.call(["exec", "box", "--session", "one", "-c", "x"]).expect(0, "1\n");
    bench.call(["sessions", "restart", "box", "one"]).expect(0, "one\n");
    let anew = bench.call(["exec", "box", "--session", "one", "-c", "'x' in globals()"]);
    assert_eq!((anew.text(), anew.stderr.as_str()), ("False\n", ""), "what was asked for needs no warning");
    let called = bench.call(["sessions", "close", "--json", "box", "one", "none", "two"]);
    assert_eq!((called.code, &called.document()["error"]["code"]), (125, &json!("session_not_found")));
    assert_eq!(bench.call(["sessions", "list", "--json", "box"]).document()["sessions"], json!([]));
}

#[test]
fn what_does_not_go_with_a_session_is_refused_with_what_does() {
    let bench = Bench::new();
    let _living = Living::new(&bench, &["--name", "box"]);
    for (args, message) in [
        (&["--session", "main"][..], "there is no code to run"),
        (&["--session", "main", "-c", "1"], "its first run needs --language"),
        (&["--session", "a b", "-l", "python", "-c", "1"], "--session"),
        (&["--session", "main", "--", "ls"], "a session runs code"),
        (&["--session", "main", "-l", "python", "-c", "1", "arg"], "does not belong to code in a session"),
        (&["--results", "x", "--", "ls"], "--results needs --session"),
        (
            &["--session", "main", "--stdin", "/dev/null", "-l", "python", "-c", "1"],
            "neither a terminal nor standard input",
        ),
    ] {
        let called = bench.call(["exec", "box"].iter().chain(args));
        assert!(called.code == 2 && called.stderr.contains(message), "{args:?}: {called:?}");
    }
    let called = bench.call(["exec", "box", "--session", "main", "-l", "sql", "-c", "select 1"]);
    assert!(called.code == 125 && called.stderr.contains("sessions are in: python"), "{called:?}");
}

#[test]
fn a_detached_run_in_a_session_is_waited_for() {
    let bench = Bench::new();
    let _living = Living::new(&bench, &["--name", "box"]);
    let called = bench.call(["exec", "--detach", "box", "-l", "python", "--session", "main", "-c", "x = 5\nx"]);
    let run = called.text().trim().to_owned();
    assert!(run.starts_with("run_"), "{called:?}");
    bench.call(["wait", &run]).expect(0, "");
    bench.call(["exec", "box", "--session", "main", "-c", "print(x)"]).expect(0, "5\n");
    assert_eq!(bench.call(["runs", "show", "--json", &run]).document()["results"][0]["text"], "5");
}
