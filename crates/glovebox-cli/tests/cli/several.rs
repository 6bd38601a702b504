//! Verbs that take several names: all are tried, each failure is told, and the first decides the exit code.

use serde_json::{Value, json};

use crate::{Bench, Called, living::Living};

/// Checks that exactly these were told as failures, in order.
#[track_caller]
fn failures(called: &Called, exit: i32, messages: &[&str]) {
    assert_eq!((called.code, called.text()), (exit, ""), "{called:?}");
    let told: Vec<&str> = called.stderr.lines().filter_map(|line| line.strip_prefix("glovebox: error: ")).collect();
    assert_eq!(told.len(), messages.len(), "{}", called.stderr);
    for (line, message) in told.iter().zip(messages) {
        assert!(line.contains(message), "{message}: {line}");
    }
}

/// Checks the document of a failure: its first error, all names that failed, and what was done.
#[track_caller]
fn failed(called: &Called, exit: i32, code: &str, names: &[&str]) -> Value {
    assert_eq!(called.code, exit, "{called:?}");
    let document = called.document();
    assert_eq!(document["error"]["code"], code, "{document}");
    let failed = document["failed"].as_array().unwrap_or_else(|| panic!("no list: {document}"));
    assert_eq!(failed.iter().map(|one| &one["name"]).collect::<Vec<_>>(), names, "{document}");
    assert!(failed.iter().all(|one| one["code"].is_string() && one["message"].is_string()), "{document}");
    document
}

#[test]
fn states_of_several_sandboxes_are_changed_although_one_is_not_there() {
    let bench = Bench::new();
    let (one, two) = (Living::new(&bench, &["--name", "one"]), Living::new(&bench, &["--name", "two"]));
    for (verb, state) in [("stop", "stopped"), ("start", "ready"), ("pause", "paused"), ("resume", "ready")] {
        let called = bench.call([verb, "none", "one", "nor-this", "two"]);
        failures(&called, 125, &["there is no sandbox none", "there is no sandbox nor-this"]);
        assert_eq!((one.state(), two.state()), (state.to_owned(), state.to_owned()), "{verb}");
    }
    let document = failed(&bench.call(["stop", "--json", "one", "none", "two"]), 125, "sandbox_not_found", &["none"]);
    let states: Vec<_> = document["sandboxes"].as_array().expect("a list").iter().map(|one| &one["state"]).collect();
    assert_eq!(states, ["stopped", "stopped"]);
    let all = bench.call(["start", "--json", "one", "two"]).document();
    assert_eq!((&all["sandboxes"][0]["sandbox"], &all["sandboxes"][1]["state"]), (&json!(one.id), &json!("ready")));
    // The document of one alone is that of the sandbox, and its failure that of any other verb.
    assert_eq!(bench.call(["stop", "--json", "one"]).document()["state"], "stopped");
    let alone = bench.call(["stop", "--json", "none"]).document();
    assert_eq!((&alone["error"]["code"], alone.get("failed")), (&json!("sandbox_not_found"), None));
}

#[test]
fn destroy_goes_on_after_a_failure_and_tells_each() {
    let bench = Bench::new();
    let [_one, _two, _three] = ["one", "two", "three"].map(|name| Living::new(&bench, &["--name", name]));
    failures(
        &bench.call(["destroy", "none", "one", "nor-this"]),
        125,
        &["there is no sandbox none", "there is no sandbox nor-this"],
    );
    let called = bench.call(["destroy", "--json", "two", "none", "three"]);
    let document = failed(&called, 125, "sandbox_not_found", &["none"]);
    assert_eq!(document["destroyed"].as_array().map(Vec::len), Some(2));
    bench.call(["list", "--ids"]).expect(0, "");
}

#[test]
fn the_beginning_of_an_id_means_what_it_meant_before_anything_was_destroyed() {
    let bench = Bench::new();
    let (one, two) = (Living::new(&bench, &[]), Living::new(&bench, &[]));
    let same = one.id.chars().zip(two.id.chars()).take_while(|(a, b)| a == b).count();
    let called = bench.call(["destroy", &one.id, &two.id[..same]]);
    assert!(called.code != 0 && called.stderr.contains("stands for several sandboxes"), "{called:?}");
    bench.call(["list", "--ids"]).expect(0, &format!("{}\n", two.id));
}

#[test]
fn all_sandboxes_are_destroyed_when_that_is_typed() {
    let bench = Bench::new();
    let none = bench.call(["destroy", "--all"]);
    none.expect(0, "");
    assert!(none.stderr.contains("there is no sandbox"), "{none:?}");
    assert_eq!(bench.call(["destroy", "--all", "--json"]).document(), json!({ "destroyed": [] }));
    let red = Living::new(&bench, &["--name", "red", "--label", "team=red"]);
    let blue = Living::new(&bench, &["--name", "blue"]);
    for words in [&["destroy", "--all", "blue"][..], &["destroy", "--label", "team=red", "blue"]] {
        let refused = bench.call(words);
        assert!(refused.code == 2 && refused.stderr.contains("leave out either"), "{refused:?}");
    }
    // Neither a variable destroys what nobody named, nor do the labels of what is made choose what is destroyed.
    let with = |name: &str, value: &str, words: &[&str]| {
        Called::new(bench.glovebox(words).env(name, value).output().expect("it runs"))
    };
    for name in ["GLOVEBOX_ALL", "GLOVEBOX_DESTROY_ALL"] {
        let refused = with(name, "1", &["destroy"]);
        assert!(refused.code == 2 && refused.stderr.contains("no sandbox is named"), "{refused:?}");
    }
    with("GLOVEBOX_DESTROY_LABEL", "team=green", &["destroy", "--all"]).expect(0, "");
    assert_eq!(bench.call(["list", "--ids"]).text().lines().count(), 2);
    bench.call(["destroy", "--all", "--label", "team=red"]).expect(0, "");
    bench.call(["list", "--ids"]).expect(0, &format!("{}\n", blue.id));
    let all = with("GLOVEBOX_LABEL", "team=red", &["destroy", "--all", "--json", "--yes"]);
    assert_eq!(all.document(), json!({ "destroyed": [blue.id] }));
    drop(red);
}

#[test]
fn several_volumes_projects_and_files_are_removed_although_one_is_not_there() {
    let bench = Bench::new();
    for what in ["volumes", "projects"] {
        let names = ["one", "two", "three"];
        names.iter().for_each(|name| bench.call([what, "create", name]).expect(0, &format!("{name}\n")));
        // A name that cannot be is the first failure, and decides.
        let called = bench.call([what, "remove", "no/name", "one", "none"]);
        failures(&called, 2, &["\"no/name\"", "none"]);
        let called = bench.call([what, "remove", "--json", "two", "none", "three"]);
        let code = if what == "volumes" { "volume_not_found" } else { "project_not_found" };
        assert_eq!(failed(&called, 125, code, &["none"])["removed"], json!(["two", "three"]));
        assert_eq!(bench.call([what, "list", "--json"]).document()[what], json!([]));
    }
    bench.call(["projects", "create", "report"]).expect(0, "report\n");
    bench.write("a.csv", "a");
    bench.write("b.csv", "b");
    let added = bench.call(["projects", "files", "add", "report", "a.csv", "none.csv", "b.csv"]);
    assert_eq!((added.code, added.text()), (125, "a.csv\nb.csv\n"), "{added:?}");
    let called = bench.call(["projects", "files", "remove", "--json", "report", "a.csv", "none.csv", "b.csv"]);
    let document = failed(&called, 125, "file_not_found", &["none.csv"]);
    assert_eq!(document["removed"], json!(["a.csv", "b.csv"]));
}

#[test]
fn several_files_of_a_sandbox_are_removed_although_one_is_not_there() {
    let bench = Bench::new();
    let living = Living::new(&bench, &["--name", "box"]);
    living.exec(&["--", "touch", "a", "b", "c", "d"]).expect(0, "");
    failures(&bench.call(["files", "remove", "box", "none", "a", "b"]), 125, &["none inside: it is not there"]);
    let called = bench.call(["files", "remove", "--json", "box", "c", "none"]);
    let document = failed(&called, 125, "file_not_found", &["none"]);
    assert_eq!(document["removed"], json!(["/workspace/agent_workspace/c"]));
    living.exec(&["--", "ls"]).expect(0, "d\n");
}
