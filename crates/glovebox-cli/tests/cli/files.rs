//! `glovebox cp` and `glovebox files`.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{Bench, Called};

/// A sandbox that stays, until the test is over.
struct Stays {
    bench: Bench,
    id: String,
}

impl Stays {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(flags: &[&str]) -> Self {
        let bench = Bench::new();
        let created = bench.call(["create", "--json", "--name", "box"].iter().chain(flags));
        assert_eq!(created.code, 0, "{}", created.stderr);
        let id = created.document()["sandbox"].as_str().expect("an id").to_owned();
        Stays { bench, id }
    }

    /// `glovebox files ARGS` with the sandbox's name in the second place.
    fn files(&self, verb: &str, args: &[&str]) -> Called {
        self.bench.call(["files", verb, "box"].iter().chain(args))
    }

    fn cp(&self, from: &str, to: &str) -> Called {
        self.bench.call(["cp", from, to])
    }

    fn inside(&self, line: &str) -> Called {
        self.bench.call(["exec", "box", "--", "sh", "-c", line])
    }

    #[track_caller]
    fn code(&self, called: &Called, code: &str) {
        assert_eq!(called.code, 125, "{called:?}");
        assert!(called.stderr.contains(&format!("[{code}]")), "{}", called.stderr);
    }
}

impl Drop for Stays {
    fn drop(&mut self) {
        let _ = self.bench.call(["destroy", &self.id]);
    }
}

#[test]
fn a_file_is_written_read_listed_and_removed() {
    let stays = Stays::new();
    let written = stays.bench.call_with_input(["files", "write", "--json", "box", "note.txt"], b"hello\n");
    assert_eq!(written.document()["bytes"], 6);
    stays.files("read", &["note.txt"]).expect(0, "hello\n");
    stays.files("read", &["note.txt", "--offset", "1", "--length", "3"]).expect(0, "ell");
    let list = stays.files("list", &[".", "--json"]).document();
    let entry = &list["entries"][0];
    assert_eq!(entry["path"], "/workspace/agent_workspace/note.txt");
    assert_eq!((&entry["kind"], &entry["bytes"], &entry["mode"]), (&json!("file"), &json!(6), &json!(0o644)));
    assert!(entry["modified_at"].as_str().is_some_and(|time| time.ends_with('Z') && time.starts_with("20")), "{entry}");
    assert_eq!(list["next"], Value::Null);
    assert_eq!(*entry, stays.files("stat", &["note.txt", "--json"]).document());
    assert!(stays.files("list", &[]).text().ends_with("  note.txt\n"));
    stays.files("remove", &["note.txt"]).expect(0, "");
    stays.code(&stays.files("read", &["note.txt"]), "file_not_found");
}

#[test]
fn folders_are_made_moved_and_removed_and_modes_are_set() {
    let stays = Stays::new();
    stays.code(&stays.files("mkdir", &["a/b"]), "file_not_found");
    stays.files("mkdir", &["-p", "a/b"]).expect(0, "");
    stays.files("chmod", &["a/b", "700"]).expect(0, "");
    stays.files("move", &["a/b", "c"]).expect(0, "");
    stays.inside("stat -c '%a %n' c; touch c/file").expect(0, "700 c\n");
    stays.code(&stays.files("remove", &["c"]), "folder_not_empty");
    stays.files("remove", &["-r", "c", "a"]).expect(0, "");
    stays.inside("ls -A").expect(0, "");
    assert_eq!(stays.files("chmod", &["a", "4755"]).code, 2);
}

#[test]
fn files_and_folders_are_copied_both_ways() {
    let stays = Stays::new();
    stays.bench.write("tree/deep/file", "content");
    let tool = stays.bench.write("tree/tool", "#!/bin/sh\necho tool\n");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("it is ours");
    stays.cp("tree", "box:").expect(0, "");
    stays.cp("tree/tool", "box:one").expect(0, "");
    stays.cp("tree/.", "box:contents").expect(0, "");
    stays.inside("tree/tool; cat tree/deep/file contents/deep/file; ./one").expect(0, "tool\ncontentcontenttool\n");
    stays.cp("box:tree", "back").expect(0, "");
    stays.cp("box:tree", ".").expect(0, "");
    stays.cp("box:one", "copied").expect(0, "");
    let work = stays.bench.work();
    assert_eq!(fs::read(work.join("back/deep/file")).expect("it is there"), b"content");
    let copied = fs::metadata(work.join("copied")).expect("it is there");
    assert_eq!(copied.permissions().mode() & 0o777, 0o755);
    stays.cp("box:tree", "box:again").expect(0, "");
    stays.inside("cat again/deep/file").expect(0, "content");
    assert_eq!(stays.cp("tree", "back").code, 2, "neither path is in a sandbox");
    stays.code(&stays.cp("box:missing", "."), "file_not_found");
    stays.code(&stays.cp("missing", "box:"), "file_not_found");
}

#[test]
fn a_dash_is_standard_input_and_output_and_folders_are_tar_there() {
    let stays = Stays::new();
    let input = vec![7; 3_000_000];
    assert_eq!(stays.bench.call_with_input(["cp", "-", "box:data"], &input).code, 0);
    assert!(stays.cp("box:data", "-").stdout == input);
    stays.inside("mkdir -p tree/a; echo x > tree/a/file").expect(0, "");
    let archive = stays.cp("box:tree", "-");
    assert_eq!(archive.code, 0, "{}", archive.stderr);
    assert_eq!(stays.bench.call_with_input(["cp", "-", "box:copy/"], &archive.stdout).code, 0);
    stays.inside("cat copy/a/file").expect(0, "x\n");
    stays.code(&stays.bench.call_with_input(["cp", "-", "box:copy/"], b"not an archive"), "invalid_archive");
}

#[test]
fn what_is_copied_out_stays_in_its_folder() {
    let stays = Stays::new();
    let line = "mkdir t; ln -s /etc/passwd t/out; ln -s ../../x t/up; echo ok > t/ok; mkfifo t/pipe; cp /bin/true t/s; chmod 755 t/s; chmod 4755 t/s || true";
    assert_eq!(stays.inside(line).code, 0);
    let copied = stays.cp("box:t", "here");
    stays.code(&copied, "file_unreadable");
    assert!(copied.stderr.contains("2 files"), "{}", copied.stderr);
    let mut names: Vec<_> = fs::read_dir(stays.bench.work().join("here"))
        .expect("the rest is there")
        .map(|entry| entry.expect("it is there").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    assert_eq!(names, ["ok", "s"]);
    let mode = fs::metadata(stays.bench.work().join("here/s")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn a_name_of_any_bytes_is_shown_safely_and_given_exactly() {
    let stays = Stays::new();
    stays.inside("touch \"$(printf 'new\\nline')\" \"$(printf 'not\\377text')\"").expect(0, "");
    let list = stays.files("list", &[".", "--json"]).document();
    let [line, odd] = [&list["entries"][0], &list["entries"][1]];
    assert_eq!(line["path"], "/workspace/agent_workspace/new\nline");
    assert_eq!(line.get("path_base64"), None);
    assert_eq!(odd["path"], "/workspace/agent_workspace/not\\xfftext");
    assert_eq!(odd["path_base64"], "L3dvcmtzcGFjZS9hZ2VudF93b3Jrc3BhY2Uvbm90/3RleHQ=");
    assert!(stays.files("list", &[]).text().contains("new\\nline\n"));
    let name = OsStr::from_bytes(b"not\xfftext");
    let args = [OsStr::new("files"), OsStr::new("remove"), OsStr::new("box"), name];
    stays.bench.call(args).expect(0, "");
}

#[test]
fn a_large_folder_comes_in_pages() {
    let stays = Stays::new();
    stays.inside("mkdir many; cd many; seq 2500 | xargs touch").expect(0, "");
    let mut seen = std::collections::BTreeSet::new();
    let mut after = "0".to_owned();
    loop {
        let page = stays.files("list", &["many", "--json", "--limit", "1000", "--after", &after]).document();
        for entry in page["entries"].as_array().expect("a list") {
            assert!(seen.insert(entry["path"].to_string()));
        }
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen.len(), 2500);
}

#[test]
fn a_watch_prints_an_object_a_line_and_begins_with_ready() {
    let stays = Stays::new();
    let mut command = stays.bench.glovebox(["files", "watch", "--json", "box", "."]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next =
        || -> Value { serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("an object") };
    assert_eq!(next()["event"], "ready");
    stays.inside("mkdir -p a; mv a b; rmdir b").expect(0, "");
    let path = |name: &str| json!(format!("/workspace/agent_workspace/{name}"));
    assert_eq!(next(), json!({"event": "create", "kind": "directory", "path": path("a")}));
    assert_eq!(next(), json!({"event": "rename", "kind": "directory", "path": path("b"), "from": path("a")}));
    assert_eq!(next(), json!({"event": "remove", "kind": "directory", "path": path("b")}));
    child.kill().expect("it is still there");
    child.wait().expect("it ends");
}

#[test]
fn a_write_over_the_disk_limit_is_refused_and_leaves_the_old_file() {
    let stays = Stays::with(&["--disk", "20m"]);
    stays.bench.call_with_input(["files", "write", "box", "file"], b"old").expect(0, "");
    // Far more than can be written before somebody looks.
    let mut command = stays.bench.glovebox(["files", "write", "box", "file"]);
    let mut zeros =
        Command::new("head").args(["-c", "4G", "/dev/zero"]).stdout(Stdio::piped()).spawn().expect("it runs");
    let written = command.stdin(zeros.stdout.take().expect("a pipe")).output().expect("the binary runs");
    // The command holds on to our end of the pipe, and while somebody does, nobody tells the writer to stop.
    drop(command);
    zeros.wait().expect("it ends");
    stays.code(&Called::new(written), "disk_full");
    let line = "for i in $(seq 100); do [ \"$(ls -A)\" = file ] && break; sleep 0.05; done; ls -A; cat file";
    stays.inside(line).expect(0, "file\nold");
}

#[test]
fn a_write_that_is_killed_leaves_the_old_file() {
    let stays = Stays::new();
    stays.bench.call_with_input(["files", "write", "box", "file"], b"old").expect(0, "");
    let mut command = stays.bench.glovebox(["files", "write", "box", "file"]);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut stdin, &vec![1; 300_000]).expect("it reads");
    child.kill().expect("it is still there");
    child.wait().expect("it ends");
    drop(stdin);
    let line = "for i in $(seq 100); do [ \"$(ls -A)\" = file ] && break; sleep 0.05; done; ls -A; cat file";
    stays.inside(line).expect(0, "file\nold");
}
