//! `glovebox prove`, against the real kernel.

use std::{
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::Command,
};

use serde_json::Value;

use crate::{Bench, Called, is_running};

fn checks(document: &Value) -> &Vec<Value> {
    document["checks"].as_array().expect("a list of checks")
}

#[test]
fn every_guarantee_holds_on_this_host_and_nothing_is_left() {
    let bench = Bench::new();
    let left = bench.dir.path().join("data/prove/of-one-that-was-killed");
    std::fs::create_dir_all(&left).unwrap();
    // With a word of its own in the environment, so that what this call planted is told from that of another test.
    let token = "5eed0123456789abcdef5eed01234567";
    let output = bench.glovebox(["prove", "--json"]).env("CANARY_OF_GLOVEBOX", token).output().unwrap();
    let called = Called::new(output);
    let document = called.document();
    let groups = ["filesystem", "privileges", "processes", "network", "resources", "information"];
    for check in checks(&document) {
        assert_ne!(check["status"], "missing", "{check}");
        assert!(check["name"].is_string() && check["detail"].is_string() && check.get("fix").is_some(), "{check}");
        assert!(groups.contains(&check["group"].as_str().unwrap()), "{check}");
    }
    let held = checks(&document).iter().filter(|check| check["status"] == "ok").count();
    assert!(held >= 30, "only {held} hold: {document}");
    assert_eq!(called.code, 0);
    assert_eq!(std::fs::read_dir(bench.dir.path().join("data/prove")).unwrap().count(), 0, "canaries are left");
    assert!(!is_running(token), "a planted process is left");
}

#[test]
fn the_table_of_prove_names_the_user_and_the_backend() {
    let bench = Bench::new();
    let called = bench.call(["prove"]);
    assert_eq!(called.code, 0, "{called:?}");
    let last = called.text().lines().last().unwrap();
    assert!(last.contains("guarantees hold for user 0 with the backend native"), "{last}");
    assert!(called.text().contains("  ok        a new user namespace is refused\n"), "{}", called.text());
}

#[test]
fn no_guarantee_is_broken_for_an_ordinary_user() {
    let bench = Bench::new();
    let folder = bench.dir.path();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    // The program lies in a folder that an ordinary user may not enter.
    let program = folder.join("glovebox");
    super::copy_of_the_binary(&program);
    let mut command = Command::new(program);
    command.args(["prove", "--json"]).uid(54322).gid(54322).env_clear().env("HOME", folder).current_dir(folder);
    let called = Called::new(command.output().unwrap());
    let document = called.document();
    for check in checks(&document) {
        assert_ne!(check["status"], "missing", "{check}");
    }
    let root = checks(&document).iter().find(|check| check["name"] == "root inside is nobody outside").unwrap();
    assert_eq!(root["status"], "ok", "{root}");
    assert_eq!(called.code, 0);
}

#[test]
fn the_probe_is_in_the_program_and_hidden() {
    let bench = Bench::new();
    let probe = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_glovebox")).arg("__probe").args(words).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(probe(&["exit", "7"]), (Some(7), String::new()));
    assert_eq!(probe(&["no-such-thing"]).0, Some(99));
    // Seen from outside of a sandbox, a process has more than three answers to give.
    assert!(probe(&["status"]).1.contains("NoNewPrivs 0"));
    assert!(!bench.call(["--help"]).text().contains("__probe"));
}
