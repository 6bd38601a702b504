//! Volumes, caches and projects, as people use them.

use std::os::unix::fs::symlink;

use crate::{Bench, Called};

fn code_of(called: &Called) -> String {
    called.document()["error"]["code"].as_str().unwrap_or_else(|| panic!("no error: {called:?}")).to_owned()
}

#[test]
fn a_volume_is_made_used_shown_and_removed() {
    let bench = Bench::new();
    bench.call(["volumes", "create", "data", "--size", "64m"]).expect(0, "data\n");
    bench.call(["run", "--volume", "data:/data", "--", "sh", "-c", "echo kept > /data/note"]).expect(0, "");
    bench.call(["run", "--volume", "data:/data:ro", "--", "cat", "/data/note"]).expect(0, "kept\n");
    let shown = bench.call(["volumes", "show", "data", "--json"]).document();
    assert_eq!((&shown["name"], &shown["size_bytes"]), (&"data".into(), &(64 << 20).into()));
    assert!(shown["used_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{shown}");
    let listed = bench.call(["volumes", "list", "--json"]).document();
    assert_eq!(listed["volumes"].as_array().map(Vec::len), Some(1));
    let table = bench.call(["volumes", "list"]);
    assert!(table.text().starts_with("VOLUME") && table.text().contains("64 MiB"), "{table:?}");
    bench.call(["volumes", "remove", "data"]).expect(0, "");
    assert_eq!(code_of(&bench.call(["volumes", "show", "data", "--json"])), "volume_not_found");
    assert_eq!(bench.call(["volumes", "list", "--json"]).document()["volumes"], serde_json::json!([]));
}

#[test]
fn values_that_cannot_be_used_are_named() {
    let bench = Bench::new();
    for (args, code) in [
        (&["volumes", "create", "../x"][..], "invalid_value"),
        (&["volumes", "create", "x", "--size", "0"], "invalid_value"),
        (&["projects", "create", "a/b"], "invalid_value"),
        (&["projects", "create", "a", "--type", "*"], "invalid_value"),
        (&["projects", "show", "none"], "project_not_found"),
        (&["projects", "files", "list", "none"], "project_not_found"),
        (&["run", "--volume", "data", "--", "true"], "invalid_mount"),
        (&["run", "--volume", "../x:/data", "--", "true"], "invalid_mount"),
        (&["run", "--volume", "x:/workspace/project", "--", "true"], "invalid_mount"),
        (&["run", "--mount", ".:/workspace/project_files", "--", "true"], "invalid_mount"),
        (&["run", "--volume", "x:/data", "--volume", "y:/data", "--", "true"], "invalid_mount"),
        (&["run", "--cache", "yarn", "--", "true"], "invalid_value"),
        (&["run", "--project", "none", "--", "true"], "project_not_found"),
        (&["run", "--project", "../none", "--", "true"], "invalid_value"),
    ] {
        let called = bench.call(args.iter().take(1).chain(&["--json"]).chain(&args[1..]));
        assert_eq!(code_of(&called), code, "{args:?}: {called:?}");
        assert!(!called.document()["error"]["message"].as_str().unwrap_or_default().is_empty());
    }
    let taken = || bench.call(["volumes", "create", "twice", "--json"]);
    assert_eq!(taken().code, 0);
    assert_eq!(code_of(&taken()), "name_taken");
}

#[test]
fn a_projects_files_are_added_listed_seen_got_and_removed() {
    let bench = Bench::new();
    bench.call(["projects", "create", "report", "--type", "csv"]).expect(0, "report\n");
    bench.write("sales.csv", "1,2\n");
    bench.write("old/sales.csv", "1,2\n");
    bench.write("notes.txt", "no");
    symlink("sales.csv", bench.work().join("link.csv")).expect("a link");
    bench
        .call(["projects", "files", "add", "report", "sales.csv", "old/sales.csv"])
        .expect(0, "sales.csv\nsales (2).csv\n");
    for refused in ["notes.txt", "link.csv", "old"] {
        let called = bench.call(["--json", "projects", "files", "add", "report", refused]);
        assert_eq!((code_of(&called).as_str(), called.code), ("file_refused", 125), "{refused}");
    }
    let files = bench.call(["projects", "files", "list", "report", "--json"]).document()["files"].clone();
    assert_eq!(files.as_array().map(Vec::len), Some(2));
    assert_eq!((&files[1]["name"], &files[1]["bytes"]), (&"sales.csv".into(), &4.into()));
    assert_eq!(files[0]["sha256"], files[1]["sha256"]);
    let result = bench.result(&[
        "--project",
        "report",
        "--",
        "sh",
        "-c",
        "cat /workspace/project_files/*; echo x > /workspace/project/x",
    ]);
    assert_eq!((&result["stdout"]["text"], &result["project"]), (&"1,2\n1,2\n".into(), &"report".into()));
    assert_eq!(result["changes"]["added"], serde_json::json!([]));
    bench.call(["run", "--project", "report", "--", "cat", "/workspace/project/x"]).expect(0, "x\n");
    bench.call(["projects", "files", "get", "report", "sales (2).csv"]).expect(0, "1,2\n");
    bench.call(["projects", "files", "remove", "report", "sales (2).csv"]).expect(0, "");
    let shown = bench.call(["projects", "show", "report", "--json"]).document();
    assert_eq!((&shown["file_count"], &shown["files"][0]["name"]), (&1.into(), &"sales.csv".into()));
    bench.call(["projects", "remove", "report"]).expect(0, "");
    assert_eq!(bench.call(["projects", "list", "--json"]).document()["projects"], serde_json::json!([]));
}

#[test]
fn a_living_sandbox_tells_what_it_has_and_keeps_it_from_being_removed() {
    let bench = Bench::new();
    bench.call(["projects", "create", "report"]).expect(0, "report\n");
    let created = bench.call([
        "create",
        "--json",
        "--name",
        "box",
        "--project",
        "report",
        "--volume",
        "data:/data",
        "--cache",
        "pip",
    ]);
    assert_eq!(created.document()["project"], "report", "{created:?}");
    bench.write("late.csv", "late\n");
    bench.call(["projects", "files", "add", "report", "late.csv"]).expect(0, "late.csv\n");
    bench.call(["exec", "box", "--", "cat", "/workspace/project_files/late.csv"]).expect(0, "late\n");
    let exec = bench.call(["exec", "--json", "box", "--", "sh", "-c", "echo $PIP_CACHE_DIR"]).document();
    assert_eq!((&exec["project"], &exec["stdout"]["text"]), (&"report".into(), &"/var/cache/pip\n".into()));
    let shown = bench.call(["show", "box", "--json"]).document();
    assert_eq!((&shown["volumes"][0]["name"], &shown["caches"][0]), (&"data".into(), &"pip".into()));
    assert_eq!(bench.call(["list", "--json"]).document()["sandboxes"][0]["project"], "report");
    for (what, name) in [("volumes", "data"), ("projects", "report")] {
        let called = bench.call([what, "remove", name]);
        assert!(
            called.code == 125 && called.stderr.contains("box") && called.stderr.contains("[in_use]"),
            "{called:?}"
        );
    }
    // Its cache is the project's own, so nobody has this one.
    assert_eq!(code_of(&bench.call(["volumes", "remove", "cache-pip", "--json"])), "volume_not_found");
    bench.call(["destroy", "box"]).expect(0, "");
    bench.call(["volumes", "remove", "data"]).expect(0, "");
    bench.call(["projects", "remove", "report"]).expect(0, "");
}

#[test]
fn a_projects_own_configuration_file_cannot_reach_for_storage() {
    let bench = Bench::new();
    for key in ["volume = [\"data:/data\"]", "project = \"other\"", "cache = [\"pip\"]"] {
        bench.write("glovebox.toml", key);
        assert_eq!(bench.error(&["--", "true"]), ("untrusted_config".to_owned(), 125), "{key}");
    }
}
