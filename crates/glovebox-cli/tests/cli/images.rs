//! Images and Docker, as far as no Docker is needed to try it: where there is none, or one that says nothing.

use std::{
    os::unix::net::UnixListener,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{Bench, Called};

/// The binary with Docker at a place.
fn with_docker_at(bench: &Bench, place: &str, args: &[&str]) -> Called {
    let mut command: Command = bench.glovebox(args);
    Called::new(command.env("DOCKER_HOST", place).output().expect("the binary runs"))
}

/// A socket that takes connections and never answers, as that of a Docker which hangs.
fn silent(bench: &Bench) -> (UnixListener, String) {
    let path = bench.dir.path().join("silent.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    (listener, format!("unix://{}", path.display()))
}

fn docker_check(document: &Value) -> &Value {
    let checks = document["checks"].as_array().expect("a list of checks");
    checks.iter().find(|check| check["name"] == "docker").expect("a check of Docker")
}

#[test]
fn the_native_backend_has_the_image_host_and_no_other() {
    let bench = Bench::new();
    let document = bench.call(["images", "list", "--json"]).document();
    assert_eq!(document["images"].as_array().unwrap().len(), 1);
    assert_eq!(document["images"][0]["image"], "host");
    for verb in [["images", "pull", "python:3.12-slim"], ["images", "remove", "python:3.12-slim"]] {
        let called = bench.call(verb);
        assert_eq!(called.code, 125, "{called:?}");
        assert!(called.stderr.contains("`host`") && called.stderr.contains("--backend docker"), "{}", called.stderr);
    }
}

#[test]
fn what_a_later_version_does_with_images_is_said_to_come() {
    let bench = Bench::new();
    for verb in ["import", "build"] {
        let called = bench.call(["images", verb, "x"]);
        assert_eq!(called.code, 2);
        assert!(called.stderr.contains(&format!("images {verb} comes with a later version")), "{}", called.stderr);
    }
}

#[test]
fn a_docker_that_is_not_there_is_named_with_its_place() {
    let bench = Bench::new();
    let called = with_docker_at(&bench, "unix:///nowhere.sock", &["images", "list", "--backend", "docker", "--json"]);
    assert_eq!(called.code, 125);
    let error = &called.document()["error"];
    assert_eq!(error["code"], "backend_unavailable");
    assert!(error["message"].as_str().unwrap().contains("/nowhere.sock"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("glovebox doctor"), "{error}");
}

#[test]
fn nobody_needs_docker_who_did_not_ask_for_it() {
    let bench = Bench::new();
    let nowhere = "unix:///nowhere.sock";
    let called = with_docker_at(&bench, nowhere, &["doctor", "--json"]);
    let document = called.document();
    let check = docker_check(&document);
    assert_eq!((called.code, &check["status"], &check["needed"]), (0, &"missing".into(), &false.into()), "{check}");
    assert!(!check["fix"].as_str().unwrap().is_empty());
    let called = with_docker_at(&bench, nowhere, &["doctor", "--backend", "docker", "--json"]);
    assert_eq!((called.code, &docker_check(&called.document())["needed"]), (1, &true.into()));
}

#[test]
fn the_doctor_does_not_wait_for_a_docker_that_hangs() {
    let bench = Bench::new();
    let (_listener, place) = silent(&bench);
    let started = Instant::now();
    let called = with_docker_at(&bench, &place, &["doctor", "--json"]);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let document = called.document();
    assert_eq!((called.code, &docker_check(&document)["status"]), (0, &"missing".into()));
    assert!(docker_check(&document)["detail"].as_str().unwrap().contains("did not answer"), "{document}");
}

#[test]
fn sandboxes_of_a_docker_that_is_down_are_listed_and_their_state_is_unknown() {
    let bench = Bench::new();
    let id = |name: &str| {
        let called = bench.call(["create", "--json", "--name", name]);
        called.document()["sandbox"].as_str().expect("an id").to_owned()
    };
    let (native, others) = (id("native"), [id("one"), id("two")]);
    for other in &others {
        assert_eq!(bench.call(["stop", other.as_str()]).code, 0);
        let path = bench.data().join("sandboxes").join(other).join("sandbox.json");
        let mut record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        record["backend"] = "docker".into();
        std::fs::write(&path, record.to_string()).unwrap();
    }
    let (_listener, silent) = silent(&bench);
    for place in ["unix:///nowhere.sock", silent.as_str()] {
        let started = Instant::now();
        let called = with_docker_at(&bench, place, &["list", "--json"]);
        // It is waited for once, and not for each sandbox.
        assert!(started.elapsed() < Duration::from_secs(9), "{:?}", started.elapsed());
        let document = called.document();
        let states: Vec<(&str, &str)> = document["sandboxes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|status| (status["sandbox"].as_str().unwrap(), status["state"].as_str().unwrap()))
            .collect();
        assert_eq!(states, [(native.as_str(), "ready"), (&others[0], "unknown"), (&others[1], "unknown")]);
        assert!(document["sandboxes"][1]["trouble"].is_string(), "{document}");
        assert_eq!(called.stderr.matches("states are not known").count(), 1, "{}", called.stderr);
    }
    let called = with_docker_at(&bench, "unix:///nowhere.sock", &["exec", "one", "--", "true"]);
    assert!(called.stderr.contains("[backend_unavailable]"), "{}", called.stderr);
    let called = bench.call(["exec", "--backend", "native", "one", "--", "true"]);
    assert!(called.stderr.contains("add --backend docker"), "{}", called.stderr);
    let typed = bench.call(["list", "--backend", "native", "--ids"]);
    typed.expect(0, &format!("{native}\n"));
    assert_eq!(bench.call(["destroy", "--backend", "native", "--all", "--yes"]).code, 0);
    assert_eq!(bench.call(["list", "--backend", "native", "--ids"]).text(), "");
}
