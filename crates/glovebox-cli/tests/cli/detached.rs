//! Runs of sandboxes that stay, followed from elsewhere.

use std::{io::Read, process::Stdio};

use serde_json::Value;

use crate::{
    Bench,
    living::{Living, until},
    terminal::open_terminal,
};

#[test]
fn a_detached_run_is_attached_to_waited_for_and_cancelled() {
    let bench = Bench::new();
    let living = Living::new(&bench, &[]);
    let run = living.detach("echo one; while [ ! -e go ]; do sleep 0.01; done; echo two >&2; exit 3");
    let attached =
        bench.glovebox(["attach", &run]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("attach");
    living.exec(&["--", "touch", "go"]).expect(0, "");
    let attached = attached.wait_with_output().expect("an end");
    assert_eq!(
        (attached.status.code(), &attached.stdout[..], &attached.stderr[..]),
        (Some(3), &b"one\n"[..], &b"two\n"[..])
    );
    bench.call(["wait", &run]).expect(3, "");
    let again = bench.call(["attach", &run]);
    assert_eq!((again.code, again.text(), again.stderr.as_str()), (3, "one\n", "two\n"));
    let endless = living.detach("while :; do sleep 1; done");
    bench.call(["cancel", &endless]).expect(0, "");
    assert_eq!(bench.call(["wait", &endless]).code, 130);
    let late = bench.call(["cancel", &endless]);
    assert!(late.code == 0 && late.stderr.contains("over already"), "{late:?}");
    let document = bench.call(["runs", "show", "--json", &endless]).document();
    assert_eq!(document["outcome"]["kind"], "cancelled");
    let missing = bench.call(["exec", "--detach", &living.id, "--", "no-such-program"]);
    assert!(missing.code == 127 && missing.stderr.contains("command_not_found"), "{missing:?}");
    let nowhere = bench.call(["exec", "--detach", "--json", "nobox", "--", "true"]);
    assert_eq!((nowhere.code, &nowhere.document()["error"]["code"]), (125, &"sandbox_not_found".into()), "{nowhere:?}");
}

#[test]
fn what_is_typed_after_a_run_was_detached_is_not_for_it() {
    let bench = Bench::new();
    let living = Living::new(&bench, &[]);
    let (_keyboard, line) = open_terminal(24, 80);
    let mut detach = bench.glovebox(["exec", "--detach", &living.id, "--", "cat"]);
    let detached = detach.stdin(line).output().expect("exec");
    let run = String::from_utf8(detached.stdout).expect("an id");
    // It would read for ever.
    bench.call(["wait", run.trim_end()]).expect(0, "");
}

#[test]
fn attach_tells_what_it_missed() {
    let bench = Bench::new();
    let living = Living::new(&bench, &[]);
    let run = living.detach("seq 1 300000; touch done; while [ ! -e go ]; do sleep 0.01; done");
    until("it has printed", || living.exec(&["--", "test", "-e", "done"]).code == 0);
    let mut attached =
        bench.glovebox(["attach", &run]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("attach");
    // A run that is over is read from its record, where nothing is missing.
    attached.stdout.as_mut().expect("its output").read_exact(&mut [0; 1]).expect("it reads along");
    living.exec(&["--", "touch", "go"]).expect(0, "");
    let attached = attached.wait_with_output().expect("an end");
    let said = String::from_utf8_lossy(&attached.stderr);
    assert!(attached.stdout.ends_with(b"300000\n") && said.contains("bytes of output are missing here"), "{said}");
}

#[test]
fn a_run_whose_follower_was_killed_goes_on_and_is_recorded() {
    let bench = Bench::new();
    let living = Living::new(&bench, &[]);
    let mut follower = bench
        .glovebox([
            "exec",
            &living.id,
            "--",
            "sh",
            "-c",
            "echo in; while [ ! -e go ]; do sleep 0.01; done; echo out; exit 4",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("exec");
    let mut first = [0; 3];
    std::io::Read::read_exact(follower.stdout.as_mut().expect("a pipe"), &mut first).expect("the first line");
    follower.kill().expect("it can be killed");
    follower.wait().expect("it ends");
    let runs = bench.call(["runs", "list", "--json"]).document();
    let run = runs["runs"][0]["run"].as_str().expect("a run").to_owned();
    assert_eq!(runs["runs"][0]["outcome"], Value::Null, "it is still under way: {runs}");
    // Any command that meets the run has somebody follow it.
    bench.call(["list"]);
    living.exec(&["--", "touch", "go"]).expect(0, "");
    assert_eq!(bench.call(["wait", &run]).code, 4);
    until("the run is recorded", || !bench.call(["runs", "show", "--json", &run]).document()["outcome"].is_null());
    bench.call(["runs", "logs", &run]).expect(0, "in\nout\n");
}
