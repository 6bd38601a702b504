//! Sandboxes that stay.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Signal, kill_process},
};
use serde_json::Value;

use crate::{Bench, Called};

/// Destroys a sandbox at the end of a test, also of one that fails.
pub(crate) struct Living<'a> {
    bench: &'a Bench,
    pub(crate) id: String,
}

impl<'a> Living<'a> {
    pub(crate) fn new(bench: &'a Bench, flags: &[&str]) -> Self {
        let called = bench.call(["create"].iter().chain(flags));
        assert_eq!(called.code, 0, "{called:?}");
        Living { bench, id: called.text().trim_end().to_owned() }
    }

    pub(crate) fn exec(&self, words: &[&str]) -> Called {
        self.bench.call(["exec", &self.id].iter().chain(words))
    }

    pub(crate) fn detach(&self, line: &str) -> String {
        let called = self.bench.call(["exec", "--detach", &self.id, "--", "sh", "-c", line]);
        assert_eq!(called.code, 0, "{called:?}");
        called.text().trim_end().to_owned()
    }

    pub(crate) fn state(&self) -> String {
        self.bench.call(["show", "--json", &self.id]).document()["state"].as_str().expect("a state").to_owned()
    }

    /// The file of its range of host ids.
    fn ids(&self) -> PathBuf {
        let runtime = glovebox_native::NativeBackend::runtime_folder();
        let record = fs::read(runtime.join("sandboxes").join(&self.id).join("live.json")).expect("it lives");
        let record: Value = serde_json::from_slice(&record).expect("it is JSON");
        runtime.join("ids").join(record["range"].to_string())
    }

    /// Whether its range of host ids is taken.
    fn has_ids(&self) -> bool {
        let file = fs::File::open(self.ids()).expect("the range has a file");
        flock(file, FlockOperation::NonBlockingLockExclusive).is_err()
    }

    /// The process that keeps it: whoever holds its lock.
    pub(crate) fn keeper(&self) -> Option<i32> {
        let lock = glovebox_native::NativeBackend::runtime_folder().join("sandboxes").join(&self.id).join("lock");
        holder(&lock)
    }
}

/// The process that holds the lock of a file.
fn holder(lock: &Path) -> Option<i32> {
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(lock).ok()?);
    let locks = fs::read_to_string("/proc/locks").expect("the locks can be read");
    let held = |line: &&str| line.split_whitespace().nth(5).is_some_and(|file| file.ends_with(&format!(":{inode}")));
    locks.lines().find(held).and_then(|line| line.split_whitespace().nth(4)?.parse().ok())
}

impl Drop for Living<'_> {
    fn drop(&mut self) {
        let called = self.bench.call(["destroy", &self.id]);
        if !std::thread::panicking() {
            let gone = called.code == 0 || called.stderr.contains("sandbox_not_found");
            assert!(gone, "{called:?}");
        }
    }
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).expect("a process id"), Signal::KILL).expect("it can be killed");
}

/// Looks until something is so, which another process brings about.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_sandbox_that_stays_is_made_listed_shown_used_and_destroyed() {
    let bench = Bench::new();
    let living = Living::new(&bench, &["--name", "box", "--label", "team=red", "--env", "A=1", "--max-age", "2h"]);
    assert!(living.id.starts_with("sb_"), "{}", living.id);
    living.exec(&["--", "sh", "-c", "echo $A > note"]).expect(0, "");
    bench.call(["exec", "box", "--", "cat", "note"]).expect(0, "1\n");
    bench.call(["exec", &living.id[..22], "-l", "sh", "-c", "echo $((6 * 7))"]).expect(0, "42\n");
    let listed = bench.call(["list"]);
    let (heading, row) = listed.text().split_once('\n').expect("two lines");
    assert_eq!(
        heading.split_whitespace().collect::<Vec<_>>(),
        ["SANDBOX", "NAME", "STATE", "CREATED", "ENDS", "LABELS"]
    );
    for part in [&living.id, "box", "ready", "in 59m", "team=red"] {
        assert!(row.contains(part), "{row}");
    }
    bench.call(["list", "--ids", "--label", "team=red"]).expect(0, &format!("{}\n", living.id));
    bench.call(["list", "--ids", "--label", "team=blue"]).expect(0, "");
    let page = bench.call(["show", "box"]);
    for part in
        ["state     ready", "name      box", "limits    2 GiB memory, 1 CPU", "variable  A=1", "label     team=red"]
    {
        assert!(page.text().contains(part), "{}", page.text());
    }
    bench.call(["destroy", "box"]).expect(0, "");
    let gone = bench.call(["exec", "box", "--", "true"]);
    assert!(
        gone.code == 125 && gone.stderr.contains("sandbox_not_found") && gone.stderr.contains("glovebox list"),
        "{gone:?}"
    );
}

#[test]
fn the_documents_of_sandboxes_have_what_programs_rely_on() {
    let bench = Bench::new();
    let created = bench.call(["create", "--json", "--idle-timeout", "0", "--max-age", "0"]).document();
    let living = Living { bench: &bench, id: created["sandbox"].as_str().expect("an id").to_owned() };
    assert_eq!((created["state"].as_str(), created["backend"].as_str()), (Some("ready"), Some("native")));
    let listed = bench.call(["list", "--json"]).document();
    let listed = listed["sandboxes"].as_array().expect("a list");
    assert_eq!(listed.len(), 1);
    for field in ["sandbox", "name", "state", "backend", "image", "project", "created_at", "expires_at", "labels"] {
        assert!(listed[0].get(field).is_some(), "{field}: {}", listed[0]);
    }
    assert_eq!(listed[0]["expires_at"], Value::Null);
    let shown = bench.call(["show", "--json", &living.id]).document();
    assert_eq!(shown["limits"]["memory_bytes"], 2u64 << 30);
    assert_eq!((&shown["network"], &shown["mounts"]), (&Value::from("none"), &Value::Array(vec![])));
    let result = living.exec(&["--json", "--", "echo", "hi"]).document();
    assert_eq!((result["sandbox"].as_str(), result["stdout"]["text"].as_str()), (Some(&*living.id), Some("hi\n")));
    let run = bench.call(["runs", "show", "--json", result["run"].as_str().expect("an id")]).document();
    assert_eq!(run["sandbox"], result["sandbox"]);
    let stopped = bench.call(["stop", "--json", &living.id]).document();
    assert_eq!(stopped["state"], "stopped");
}

#[test]
fn a_sandbox_is_shown_with_its_runs_at_work_and_the_last_that_ended() {
    let bench = Bench::new();
    let living = Living::new(&bench, &["--name", "box"]);
    assert_eq!(bench.call(["show", "--json", "box"]).document()["runs"], Value::Array(vec![]));
    let at_work = living.detach("sleep 1000");
    let ended: Vec<String> = (0..12)
        .map(|number| {
            let result = living.exec(&["--json", "--", "sh", "-c", &format!("exit {number}")]).document();
            result["run"].as_str().expect("an id").to_owned()
        })
        .collect();
    let other = bench.result(&["--", "true"]);
    let shown = bench.call(["show", "--json", "box"]).document();
    let runs = shown["runs"].as_array().expect("a list");
    // The newest first: ten that ended, and the one at work, which is the oldest.
    let ids: Vec<&str> = runs.iter().map(|run| run["run"].as_str().expect("an id")).collect();
    let expected: Vec<&str> = ended[2..].iter().rev().chain([&at_work]).map(String::as_str).collect();
    assert_eq!(ids, expected);
    assert_eq!((&runs[0]["outcome"]["code"], &runs[10]["outcome"]), (&Value::from(11), &Value::Null));
    let page = bench.call(["show", "box"]);
    for part in [at_work.as_str(), "running", "sleep 1000", "exit 11", &ended[2]] {
        assert!(page.text().contains(part), "{part}: {}", page.text());
    }
    assert!(!page.text().contains(&ended[1]) && !page.text().contains(other["run"].as_str().expect("an id")));
    assert!(page.stderr.contains("glovebox runs list --sandbox box"), "{}", page.stderr);
    bench.call(["cancel", &at_work]).expect(0, "");
}

#[test]
fn a_sandbox_that_a_run_left_is_shown_with_that_run() {
    let bench = Bench::new();
    let result = bench.result(&["--keep", "--", "true"]);
    let living = Living { bench: &bench, id: result["sandbox"].as_str().expect("an id").to_owned() };
    let shown = bench.call(["show", "--json", &living.id]).document();
    assert_eq!(shown["runs"][0]["run"], result["run"]);
}

#[test]
fn states_follow_the_verbs() {
    let bench = Bench::new();
    let living = Living::new(&bench, &[]);
    living.exec(&["--", "sh", "-c", "echo kept > note"]).expect(0, "");
    bench.call(["stop", &living.id]).expect(0, "");
    assert_eq!(living.state(), "stopped");
    let refused = living.exec(&["--", "true"]);
    assert!(refused.code == 125 && refused.stderr.contains(&format!("glovebox start {}", living.id)), "{refused:?}");
    bench.call(["start", &living.id]).expect(0, "");
    living.exec(&["--", "cat", "note"]).expect(0, "kept\n");
    bench.call(["reset", &living.id]).expect(0, "");
    living.exec(&["--", "ls"]).expect(0, "");
    let paused = bench.call(["pause", &living.id]);
    if paused.code == 0 {
        assert_eq!(living.state(), "paused");
        let refused = living.exec(&["--", "true"]);
        assert!(refused.code == 125 && refused.stderr.contains("glovebox resume"), "{refused:?}");
        bench.call(["resume", &living.id]).expect(0, "");
    } else {
        assert!(paused.stderr.contains("not_supported"), "{paused:?}");
    }
    living.exec(&["--", "echo", "on"]).expect(0, "on\n");
}

#[test]
fn sandboxes_of_every_state_that_is_shown_can_be_asked_for() {
    let bench = Bench::new();
    let living = Living::new(&bench, &[]);
    for state in ["creating", "ready", "paused", "stopping", "stopped", "destroying", "gone"] {
        let expected = if state == "ready" { format!("{}\n", living.id) } else { String::new() };
        bench.call(["list", "--ids", "--state", state]).expect(0, &expected);
    }
    let refused = bench.call(["list", "--state", "tired"]);
    assert!(refused.code == 2 && refused.stderr.contains("expected creating, ready, paused"), "{refused:?}");
}

#[test]
fn a_run_of_a_paused_sandbox_whose_follower_was_killed_is_followed_again() {
    let bench = Bench::new();
    let living = Living::new(&bench, &[]);
    let line = "echo in; exec sleep 1000";
    let mut follower =
        bench.glovebox(["exec", &living.id, "--", "sh", "-c", line]).stdout(Stdio::piped()).spawn().expect("exec");
    let mut first = [0; 3];
    std::io::Read::read_exact(follower.stdout.as_mut().expect("a pipe"), &mut first).expect("the first line");
    let paused = bench.call(["pause", &living.id]);
    follower.kill().expect("it can be killed");
    follower.wait().expect("it ends");
    if paused.code != 0 {
        assert!(paused.stderr.contains("not_supported"), "{paused:?}");
        return;
    }
    let mut notes = fs::read_dir(bench.data().join("running")).expect("the notes of runs");
    let note = notes.next().expect("a note").expect("a note").path();
    let run = note.file_stem().and_then(|name| name.to_str()).expect("an id").to_owned();
    assert_eq!(holder(&note), None, "its follower is dead");
    bench.call(["list"]);
    until("somebody follows it, paused as it is", || holder(&note).is_some());
    bench.call(["cancel", &run]).expect(0, "");
    until("its end is recorded", || !bench.call(["runs", "show", "--json", &run]).document()["outcome"].is_null());
    assert_eq!(living.state(), "paused");
}

#[test]
fn a_stopped_sandbox_whose_time_is_over_is_not_started_and_keeps_its_files() {
    let bench = Bench::new();
    let living = Living::new(&bench, &["--max-age", "1500ms"]);
    living.exec(&["--", "sh", "-c", "echo kept > ~/note"]).expect(0, "");
    bench.call(["stop", &living.id]).expect(0, "");
    until("its time is over", || bench.call(["list"]).text().contains("over "));
    // Nor is it wiped for a start that cannot be.
    let refused = bench.call(["reset", &living.id]);
    assert!(refused.code == 125 && refused.stderr.contains("too old to be started again"), "{refused:?}");
    let refused = bench.call(["start", &living.id]);
    assert!(refused.code == 125 && refused.stderr.contains("too old to be started again"), "{refused:?}");
    let files = bench.data().join("sandboxes").join(&living.id).join("files");
    assert!(refused.stderr.contains(files.to_str().expect("a path")) && files.join("home/user/note").exists());
}

#[test]
fn a_sandbox_whose_keeper_was_killed_goes_on_with_another() {
    let bench = Bench::new();
    let living = Living::new(&bench, &[]);
    let run = living.detach("while [ ! -e go ]; do sleep 0.01; done; echo through");
    let first = living.keeper().expect("somebody keeps it");
    kill(first);
    until("the lock is free", || living.keeper() != Some(first));
    assert_eq!(living.state(), "ready");
    assert!(living.has_ids(), "nobody else may have its ids while it lives");
    living.exec(&["--", "touch", "go"]).expect(0, "");
    bench.call(["attach", &run]).expect(0, "through\n");
    let second = living.keeper().expect("somebody else keeps it");
    assert_ne!(first, second);
    // Runs have groups of their own again.
    let large = living.exec(&["--json", "--", "python3", "-c", "x = 'a' * (80 << 20)"]).document();
    let small = living.exec(&["--json", "--", "true"]).document();
    let peak = |document: &Value| document["usage"]["memory_peak_bytes"].as_u64().expect("a number");
    assert!(peak(&large) > 80 << 20, "{large}");
    assert!(peak(&small) < 20 << 20, "{small}");
    let ids = living.ids();
    bench.call(["destroy", &living.id]).expect(0, "");
    assert!(!ids.exists());
}

#[test]
fn a_creation_that_was_killed_leaves_nothing_that_the_next_does_not_remove() {
    let bench = Bench::new();
    for delay in [0, 1, 2, 4, 8, 16] {
        let mut child = bench
            .glovebox(["create", "--name", "box"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("create");
        std::thread::sleep(Duration::from_millis(delay));
        let _ = child.kill();
        let _ = child.wait();
        // It was made in time, or it was not; both are whole.
        let listed = bench.call(["list", "--ids"]);
        if listed.text().is_empty() {
            let living = Living::new(&bench, &["--name", "box"]);
            living.exec(&["--", "echo", "whole"]).expect(0, "whole\n");
        } else {
            bench.call(["exec", "box", "--", "echo", "whole"]).expect(0, "whole\n");
            bench.call(["destroy", "box"]).expect(0, "");
        }
        let left: Vec<_> = fs::read_dir(bench.data().join("sandboxes"))
            .expect("the folder")
            .flatten()
            .map(|e| e.file_name())
            .collect();
        assert_eq!(left, ["names"], "after {delay} ms");
        let runtime = glovebox_native::NativeBackend::runtime_folder().join("sandboxes");
        let records = fs::read_dir(runtime).into_iter().flatten().flatten();
        let mut records = records.filter_map(|entry| fs::read_to_string(entry.path().join("live.json")).ok());
        let data = bench.data().to_string_lossy().into_owned();
        assert!(!records.any(|record| record.contains(&data)), "a guest is left after {delay} ms");
    }
}

#[test]
fn two_data_folders_do_not_see_each_other() {
    let (one, other) = (Bench::new(), Bench::new());
    let living = Living::new(&one, &["--name", "box"]);
    other.call(["list", "--ids"]).expect(0, "");
    other.call(["gc"]);
    other.call(["run", "--", "true"]).expect(0, "");
    let own = Living::new(&other, &["--name", "box"]);
    assert_ne!(own.id, living.id);
    living.exec(&["--", "echo", "still here"]).expect(0, "still here\n");
}

#[test]
fn what_ends_by_itself_says_why() {
    let bench = Bench::new();
    let living = Living::new(&bench, &["--name", "box", "--idle-timeout", "200ms", "--max-age", "0"]);
    until("it ends", || bench.call(["list", "--ids"]).text().is_empty());
    let ended = bench.call(["list", "--ended", "--json"]).document();
    assert_eq!(
        (&ended["sandboxes"][0]["state"], &ended["sandboxes"][0]["ended"]["reason"]),
        (&"gone".into(), &"idle_timeout".into())
    );
    let refused = living.exec(&["--", "true"]);
    assert!(refused.code == 125 && refused.stderr.contains("was not used for 200ms"), "{refused:?}");
    // Its name is free.
    let next = Living::new(&bench, &["--name", "box"]);
    bench.call(["exec", "box", "--", "echo", "next"]).expect(0, "next\n");
    assert_ne!(next.id, living.id);
    let none = bench.call(["list", "--label", "a=b"]);
    assert!(none.code == 0 && none.stderr.contains("no sandbox fits"), "{none:?}");
}

#[test]
fn names_and_times_that_cannot_be_used_are_refused() {
    let bench = Bench::new();
    for (flag, value) in [("--name", "a b"), ("--name", "sb_x"), ("--idle-timeout", "soon"), ("--max-age", "-1")] {
        let refused = bench.call(["create", flag, value]);
        assert!(refused.code == 2 && refused.stderr.contains(flag), "{refused:?}");
    }
    let _living = Living::new(&bench, &["--name", "box"]);
    let refused = bench.call(["create", "--name", "box"]);
    assert!(refused.code == 125 && refused.stderr.contains("name_taken"), "{refused:?}");
}

#[test]
fn a_one_shot_run_can_leave_its_sandbox() {
    let bench = Bench::new();
    bench.write("main.sh", "echo made > note; echo said");
    let called = bench.call(["run", "--keep", "main.sh"]);
    assert_eq!((called.code, called.text()), (0, "said\n"), "{called:?}");
    let id = bench.call(["list", "--ids"]).text().trim_end().to_owned();
    assert!(called.stderr.contains(&id), "{called:?}");
    let living = Living { bench: &bench, id };
    living.exec(&["--", "cat", "note"]).expect(0, "made\n");
    let result = bench.call(["run", "--json", "--keep", "30m", "--", "true"]).document();
    let second = Living { bench: &bench, id: result["sandbox"].as_str().expect("an id").to_owned() };
    let shown = bench.call(["show", "--json", &second.id]).document();
    assert_eq!(shown["idle_timeout_ms"], 1_800_000);
    second.exec(&["--", "true"]).expect(0, "");
}

#[test]
fn gc_removes_what_is_left_of_a_sandbox_that_was_being_made() {
    let bench = Bench::new();
    let half = bench.data().join("sandboxes/sb_01M7FE576ZEJG8DCHBPZN0JTGH");
    fs::create_dir_all(half.join("files/workspace/deep/er")).expect("folders");
    fs::write(half.join("files/workspace/deep/file"), "x").expect("a file");
    fs::write(half.join("lock"), "").expect("a lock");
    let _living = Living::new(&bench, &["--name", "other"]);
    assert!(!half.exists(), "the next creation removes it");
    fs::create_dir_all(half.join("files")).expect("folders");
    let called = bench.call(["gc"]);
    assert!(called.text().contains("what was left of sb_01M7FE576ZEJG8DCHBPZN0JTGH"), "{called:?}");
    assert!(!half.exists());
}

#[test]
fn the_doctor_tells_of_ids_that_nobody_has() {
    let bench = Bench::new();
    let _living = Living::new(&bench, &[]);
    let ids = glovebox_native::NativeBackend::runtime_folder().join("ids");
    // No range has this number, so nobody takes it. Whoever makes a sandbox meanwhile collects it, and it is left once more.
    until("the doctor tells of it", || {
        fs::write(ids.join("99999"), "living.of_nobody").expect("the folder is there");
        bench.call(["doctor", "--json"]).text().contains("ids of living.of_nobody")
    });
    bench.call(["gc"]);
    assert!(!ids.join("99999").exists());
}

#[test]
fn what_a_sandbox_uses_is_told_once_or_line_by_line_until_it_ends() {
    let bench = Bench::new();
    let living = Living::new(&bench, &[]);
    living
        .exec(&["--", "dd", "if=/dev/zero", "of=file", "bs=1M", "count=4", "conv=fsync", "status=none"])
        .expect(0, "");
    let plain = bench.call(["usage", &living.id]);
    assert_eq!(plain.code, 0, "{plain:?}");
    assert!(plain.text().starts_with("CPU "), "{plain:?}");
    assert_eq!(plain.text().lines().count(), 2, "{plain:?}");
    let usage = bench.call(["usage", "--json", &living.id]).document();
    let names: Vec<&String> = usage.as_object().expect("an object").keys().collect();
    for name in
        ["cpu_ms", "memory_bytes", "memory_peak_bytes", "processes", "read_bytes", "written_bytes", "disk_bytes"]
    {
        assert!(usage[name].is_number(), "{name}: {usage}");
    }
    assert_eq!(names.len(), 7, "{usage}");
    assert!(usage["disk_bytes"].as_u64() >= Some(4 << 20), "{usage}");
    assert_eq!(usage["processes"], 0, "{usage}");
    let follow = bench.glovebox(["usage", "--follow", "--json", &living.id]).stdout(Stdio::piped()).spawn();
    let mut follow = follow.expect("it starts");
    let mut lines = BufReader::new(follow.stdout.take().expect("its output")).lines();
    for _ in 0..2 {
        let line = lines.next().expect("a line").expect("it can be read");
        let usage: Value = serde_json::from_str(&line).expect("each line is an object");
        assert!(usage["memory_bytes"].is_number(), "{usage}");
    }
    bench.call(["stop", &living.id]).expect(0, "");
    assert!(follow.wait().expect("it ends").success());
    let stopped = bench.call(["usage", &living.id]);
    assert_eq!(stopped.code, 125, "{stopped:?}");
    assert!(stopped.stderr.contains("is stopped"), "{stopped:?}");
}
