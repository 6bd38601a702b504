//! Every flag does what its help says.

use crate::Bench;

#[test]
fn variables_come_from_flags_files_and_the_caller() {
    let bench = Bench::new();
    bench.write("env", "# a comment\nA=from file\nB=with = sign\r\n\nC=overridden\nMINE\n");
    let mut command = bench.glovebox(["run", "--env-file", "env", "--env", "C=flag", "--env", "OWN", "--", "env"]);
    let output = command.env("OWN", "mine\ntoo").env("MINE", "own").env("NOT_GIVEN", "x").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for line in ["A=from file\n", "B=with = sign\n", "C=flag\n", "OWN=mine\ntoo\n", "MINE=own\n", "HOME=/home/user\n"] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
    assert!(!text.contains("NOT_GIVEN") && !text.contains("GLOVEBOX_"), "{text}");
}

#[test]
fn the_working_directory_can_be_another() {
    let bench = Bench::new();
    bench.call(["run", "--", "pwd"]).expect(0, "/workspace/agent_workspace\n");
    bench.call(["run", "--workdir", "/tmp", "--", "pwd"]).expect(0, "/tmp\n");
    bench.write("sub/x", "");
    bench
        .call(["run", "--workspace", ".", "--workdir", "sub", "--", "pwd"])
        .expect(0, "/workspace/agent_workspace/sub\n");
    bench.write("where.py", "import os; print(os.getcwd())");
    bench.call(["run", "--workdir", "/tmp", "where.py"]).expect(0, "/tmp\n");
    assert_eq!(bench.error(&["--workdir", "/missing", "--", "true"]), ("workdir_unusable".into(), 125));
}

#[test]
fn the_user_can_be_another() {
    let bench = Bench::new();
    bench.call(["run", "--", "id", "-u"]).expect(0, "1000\n");
    bench.call(["run", "--user", "nobody", "--", "id", "-u"]).expect(0, "65534\n");
    bench.call(["run", "--user", "12:34", "--", "sh", "-c", "id -u; id -g"]).expect(0, "12\n34\n");
}

#[test]
fn input_can_come_from_a_file() {
    let bench = Bench::new();
    bench.write("input", "from a file");
    bench.call(["run", "--stdin", "input", "--", "cat"]).expect(0, "from a file");
}

#[test]
fn files_and_folders_are_copied_in_and_stay_as_they_were() {
    let bench = Bench::new();
    bench.write("a.txt", "a");
    bench.write("folder/b.txt", "b");
    bench.write("with:colon", "c");
    let script = "cat a.txt renamed.txt deep/er/a.txt folder/b.txt with:colon; echo changed > a.txt";
    let called = bench.call([
        "run",
        "--file",
        "a.txt",
        "--file",
        "a.txt:renamed.txt",
        "--file",
        "a.txt:deep/er/",
        "--file",
        "folder",
        "--file",
        "with:colon",
        "--",
        "sh",
        "-c",
        script,
    ]);
    called.expect(0, "aaabc");
    assert_eq!(std::fs::read_to_string(bench.work().join("a.txt")).unwrap(), "a");
}

#[test]
fn an_executable_that_is_copied_in_stays_executable() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    let tool = bench.write("tool", "#!/bin/sh\necho ran\n");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    bench.call(["run", "--file", "tool", "--", "./tool"]).expect(0, "ran\n");
}

#[test]
fn mounts_are_read_only_unless_asked_otherwise() {
    let bench = Bench::new();
    bench.write("data/x", "x");
    bench
        .call(["run", "--mount", "data:/data", "--", "sh", "-c", "cat /data/x; echo y > /data/x || echo refused"])
        .expect(0, "xrefused\n");
    let called =
        bench.call(["run", "--mount", "data:/data:rw", "--user", "root", "--", "sh", "-c", "echo y > /data/x"]);
    assert_eq!(called.code, 0, "{}", called.stderr);
    assert_eq!(std::fs::read_to_string(bench.work().join("data/x")).unwrap(), "y\n");
}

#[test]
fn a_workspace_is_seen_and_not_changed() {
    let bench = Bench::new();
    bench.write("lib.py", "name = 'neighbour'");
    bench.write("main.py", "import lib; print(lib.name); open('new', 'w').write('x')");
    let result = bench.result(&["--workspace", ".", "main.py"]);
    assert_eq!(result["stdout"]["text"], "neighbour\n", "{result}");
    assert_eq!(result["command"]["argv"], serde_json::json!(["python3", "main.py"]));
    let added = result["changes"]["added"].as_array().unwrap();
    assert!(added.iter().any(|path| path == "agent_workspace/new"), "{added:?}");
    assert!(!bench.work().join("new").exists());
}

#[test]
fn a_workspace_can_be_read_only_or_read_write() {
    let bench = Bench::new();
    bench.write("w/x", "x");
    let write = ["--", "sh", "-c", "echo y > new 2>/dev/null || echo refused"];
    let with = |mode: &'static str| ["run", "--workspace", "w", "--user", "root", "--workspace-mode", mode];
    bench.call(with("read-only").iter().chain(&write)).expect(0, "refused\n");
    assert!(!bench.work().join("w/new").exists());
    bench.call(with("read-write").iter().chain(&write)).expect(0, "");
    assert!(bench.work().join("w/new").exists());
}

#[test]
fn a_file_below_the_workspace_runs_in_place() {
    let bench = Bench::new();
    bench.write("sub/main.py", "import sys; print(sys.argv[0])");
    bench.call(["run", "--workspace", ".", "sub/main.py"]).expect(0, "sub/main.py\n");
}

#[test]
fn artifacts_are_kept_and_their_folder_is_said() {
    let bench = Bench::new();
    let script = "echo a > /workspace/outputs/a.txt; echo b > b.log; echo c > c.txt";
    let called = bench.call(["run", "--artifact", "agent_workspace/*.log", "--", "sh", "-c", script]);
    assert_eq!(called.code, 0, "{}", called.stderr);
    let line = called
        .stderr
        .lines()
        .find(|line| line.contains("kept 2 files in "))
        .unwrap_or_else(|| panic!("{}", called.stderr));
    let folder = std::path::Path::new(line.split("kept 2 files in ").nth(1).unwrap());
    assert_eq!(std::fs::read_to_string(folder.join("outputs/a.txt")).unwrap(), "a\n");
    assert_eq!(std::fs::read_to_string(folder.join("agent_workspace/b.log")).unwrap(), "b\n");
    assert!(!folder.join("agent_workspace/c.txt").exists());
}

#[test]
fn limits_are_those_that_were_asked_for() {
    let bench = Bench::new();
    let result = bench.result(&[
        "--memory",
        "64m",
        "--cpus",
        "0.5",
        "--pids",
        "20",
        "--disk",
        "32m",
        "--inodes",
        "500",
        "--open-files",
        "64",
        "--timeout",
        "10s",
        "--grace",
        "1s",
        "--output-limit",
        "1m",
        "--",
        "sh",
        "-c",
        "ulimit -n",
    ]);
    assert_eq!(result["stdout"]["text"], "64\n", "{result}");
    let limits = &result["limits"];
    assert_eq!(limits["memory_bytes"], 64 << 20);
    assert_eq!(limits["cpus"], 0.5);
    assert_eq!(limits["pids"], 20);
    assert_eq!(limits["disk_bytes"], 32 << 20);
    assert_eq!(limits["inodes"], 500);
    assert_eq!(limits["open_files"], 64);
    assert_eq!(limits["timeout_ms"], 10_000);
    assert_eq!(limits["output_bytes"], 1 << 20);
}

#[test]
fn the_network_is_none_unless_asked_for() {
    let bench = Bench::new();
    let script = "ls /sys/class/net 2>/dev/null; cat /proc/net/dev | tail -n +3 | wc -l";
    bench.call(["run", "--", "sh", "-c", script]).expect(0, "1\n");
    let result = bench.result(&["--network", "full", "--", "true"]);
    assert!(result["isolation"]["missing"].as_array().unwrap().iter().any(|layer| layer == "network_ns"), "{result}");
    let called = bench.call(["run", "--network", "full", "--", "true"]);
    assert!(!called.stderr.contains("network_ns"), "{}", called.stderr);
}

#[test]
fn labels_stand_in_the_result() {
    let bench = Bench::new();
    let result = bench.result(&["--label", "task=42", "--label", "who=me", "--", "true"]);
    assert_eq!(result["labels"], serde_json::json!({"task": "42", "who": "me"}));
}

#[test]
fn a_layer_that_is_there_can_be_required_and_one_that_is_missing_is_an_error() {
    let bench = Bench::new();
    bench.call(["run", "--require-layer", "pid_ns", "--require-layer", "seccomp", "--", "true"]).expect(0, "");
    let error = bench.error(&["--network", "full", "--require-layer", "network_ns", "--", "true"]);
    assert_eq!(error, ("layer_missing".into(), 125));
}

#[test]
fn verbose_says_what_it_took_on_standard_error_only() {
    let bench = Bench::new();
    let called = bench.call(["-v", "run", "--", "echo", "x"]);
    called.expect(0, "x\n");
    assert!(called.stderr.contains("run_") && called.stderr.contains("wall time"), "{}", called.stderr);
    assert!(called.stderr.lines().all(|line| line.starts_with("glovebox: ")), "{}", called.stderr);
}
