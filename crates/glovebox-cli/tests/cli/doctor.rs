//! `glovebox doctor`.

use std::os::unix::{fs::PermissionsExt, process::CommandExt};

use serde_json::Value;

use crate::{Bench, Called};

fn check<'a>(document: &'a Value, name: &str) -> &'a Value {
    let checks = document["checks"].as_array().expect("a list of checks");
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no check {name}: {document}"))
}

#[test]
fn the_doctor_finds_this_host_well_and_changes_nothing() {
    let bench = Bench::new();
    let called = bench.call(["doctor", "--json"]);
    let document = called.document();
    assert_eq!(called.code, 0, "{document}");
    for name in ["kernel", "namespaces", "control groups", "seccomp", "data folder", "python", "leftovers"] {
        let found = check(&document, name);
        assert!(["ok", "degraded"].contains(&found["status"].as_str().unwrap()), "{found}");
        assert!(found["detail"].is_string() && found.get("fix").is_some(), "{found}");
    }
    assert!(document.get("fixed").is_none());
    assert!(!bench.dir.path().join("data").exists(), "looking made the data folder");
}

#[test]
fn what_is_missing_comes_with_a_command() {
    let bench = Bench::new();
    let document = bench.call(["doctor", "--json"]).document();
    for check in document["checks"].as_array().unwrap().iter().filter(|check| check["status"] == "missing") {
        assert!(check["fix"].as_str().is_some_and(|fix| !fix.is_empty()), "{check}");
    }
}

#[test]
fn fix_makes_the_data_folder_closes_it_to_others_and_says_so() {
    let bench = Bench::new();
    let data = bench.dir.path().join("data");
    let called = bench.call(["doctor", "--fix"]);
    assert!(called.text().starts_with(&format!("fixed: made {}\n", data.display())), "{}", called.text());
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o777)).unwrap();
    let open = bench.call(["doctor", "--json"]);
    assert_eq!(check(&open.document(), "data folder")["status"], "missing");
    assert_eq!(open.code, 1);
    let document = bench.call(["doctor", "--fix", "--json"]).document();
    assert_eq!(document["fixed"][0], format!("closed {} to others", data.display()));
    assert_eq!(std::fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o755);
}

#[test]
fn a_user_must_be_typed_and_only_with_fix() {
    let bench = Bench::new();
    assert_eq!(bench.call(["doctor", "--user", "nobody"]).code, 2);
    assert_eq!(bench.call(["doctor", "--fix", "--user", "nobody-of-that-name"]).code, 2);
    // The variable is that of runs, and gives nobody sub-ids.
    let output = bench.glovebox(["doctor", "--fix", "--json"]).env("GLOVEBOX_USER", "nobody").output().unwrap();
    let document = Called::new(output).document();
    assert!(!document["fixed"].to_string().contains("nobody"), "{document}");
}

#[test]
fn an_ordinary_user_is_told_how_sandboxes_work_for_them() {
    let bench = Bench::new();
    let folder = bench.dir.path();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    // The program lies in a folder that an ordinary user may not enter.
    let program = folder.join("glovebox");
    super::copy_of_the_binary(&program);
    let mut command = std::process::Command::new(program);
    command.args(["doctor", "--json"]).uid(54321).gid(54321).env_clear().env("HOME", folder).current_dir(folder);
    let document = Called::new(command.output().unwrap()).document();
    let found = check(&document, "sandboxes of this user");
    assert_eq!(found["status"], "degraded", "{document}");
    assert!(found["fix"].as_str().unwrap().contains("doctor --fix --user 54321"), "{found}");
    assert_eq!(check(&document, "sub-ids")["status"], "missing");
}
