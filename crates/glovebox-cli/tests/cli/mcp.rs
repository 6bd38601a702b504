//! `glovebox mcp`, by a client that writes the protocol by hand: what a well-behaved one never sends, and how it ends.

mod bounds;
mod client;

use std::{
    io::{BufRead, BufReader, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Bench, folders_with, is_running};
use client::Client;

/// Waits until nothing of a sandbox is left: no process with a word, no group, no folder.
#[track_caller]
fn expect_gone(sandbox: &str, word: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let left = || {
        let groups = folders_with("/sys/fs/cgroup".as_ref(), sandbox);
        let files = folders_with("/run/glovebox".as_ref(), sandbox);
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts").contains(sandbox);
        let running = is_running(word).then(|| word.into());
        let mounts = mounts.then(|| "a mount".into());
        [groups, files, running.into_iter().collect(), mounts.into_iter().collect()].concat()
    };
    while !left().is_empty() {
        assert!(Instant::now() < deadline, "left of {sandbox}: {:?}", left());
        std::thread::yield_now();
    }
}

/// Starts a command that lasts, and waits until it is there.
fn at_work(client: &mut Client, word: &str) -> String {
    let sandbox = client.sandbox();
    client.begin("run_command", json!({ "argv": ["sleep", word] }));
    while !is_running(word) {
        std::thread::yield_now();
    }
    // What is not found while it is there would not be missed afterwards.
    assert!(!folders_with("/sys/fs/cgroup".as_ref(), &sandbox).is_empty(), "no group of {sandbox}");
    sandbox
}

#[test]
fn a_client_that_closes_its_end_leaves_nothing() {
    let bench = Bench::new();
    let mut client = Client::start(&bench, &[]);
    let sandbox = client.sandbox();
    client.text("start_process", json!({ "argv": ["sleep", "71001"] }));
    assert_eq!(client.close(), 0);
    assert!(!is_running("71001"));
    expect_gone(&sandbox, "71001");
}

#[test]
fn a_client_that_is_killed_in_the_middle_of_a_call_leaves_nothing() {
    let bench = Bench::new();
    let mut client = Client::start(&bench, &[]);
    let sandbox = at_work(&mut client, "71002");
    // What the kernel does for a client that dies: both ends are closed at once.
    let Client { mut child, stdin, stdout, .. } = client;
    drop((stdin, stdout));
    let began = Instant::now();
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(4), "it waited for a run that nobody wants");
    expect_gone(&sandbox, "71002");
}

#[test]
fn a_server_that_is_killed_in_the_middle_of_a_call_leaves_nothing() {
    let bench = Bench::new();
    let mut client = Client::start(&bench, &[]);
    let sandbox = at_work(&mut client, "71003");
    kill_process(Pid::from_child(&client.child), Signal::KILL).expect("a signal");
    client.child.wait().expect("it ends");
    expect_gone(&sandbox, "71003");
}

#[test]
fn a_signal_ends_the_conversation_and_leaves_nothing() {
    for (signal, word) in [(Signal::TERM, "71004"), (Signal::INT, "71005")] {
        let bench = Bench::new();
        let mut client = Client::start(&bench, &[]);
        let sandbox = at_work(&mut client, word);
        kill_process(Pid::from_child(&client.child), signal).expect("a signal");
        assert_eq!(client.wait(), 0);
        expect_gone(&sandbox, word);
    }
}

#[test]
fn programs_that_speak_by_sockets_are_served_as_those_that_speak_by_pipes() {
    // As those do that are written with Node.
    let bench = Bench::new();
    let connect = || {
        let ((near, far), (listening, speaking)) =
            (UnixStream::pair().expect("sockets"), UnixStream::pair().expect("sockets"));
        let mut command = bench.glovebox(["mcp"]);
        let child = command.stdin(OwnedFd::from(far)).stdout(OwnedFd::from(speaking)).spawn().expect("it starts");
        (child, near, BufReader::new(listening))
    };
    let call = |input: &mut UnixStream, output: &mut BufReader<UnixStream>, word: &str| {
        let about = json!({ "name": "test", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about });
        let usage = json!({ "name": "usage", "arguments": {} });
        let sleep = json!({ "name": "run_command", "arguments": { "argv": ["sleep", word] } });
        for message in [
            json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }),
            json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
            json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": usage }),
            json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": sleep }),
        ] {
            input.write_all(format!("{message}\n").as_bytes()).expect("the server reads");
        }
        let answers: Vec<Value> = output
            .lines()
            .take(2)
            .map(|line| serde_json::from_str(&line.expect("a line")).expect("a message"))
            .collect();
        while !is_running(word) {
            std::thread::yield_now();
        }
        answers[1]["result"]["structuredContent"]["sandbox"].as_str().expect("an id").to_owned()
    };
    let ends_soon = |mut child: Child| {
        let began = Instant::now();
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
        assert!(began.elapsed() < Duration::from_secs(4), "it ended late");
    };
    let (child, mut input, mut output) = connect();
    let sandbox = call(&mut input, &mut output, "71008");
    drop((input, output));
    ends_soon(child);
    expect_gone(&sandbox, "71008");

    let (child, mut input, mut output) = connect();
    let sandbox = call(&mut input, &mut output, "71009");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("a signal");
    ends_soon(child);
    expect_gone(&sandbox, "71009");
}

#[test]
fn a_call_that_is_cancelled_ends_what_it_runs_and_the_next_one_works() {
    let bench = Bench::new();
    let mut client = Client::start(&bench, &[]);
    at_work(&mut client, "71006");
    let id = client.last;
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }));
    let deadline = Instant::now() + Duration::from_secs(10);
    while is_running("71006") {
        assert!(Instant::now() < deadline, "it still runs");
        std::thread::yield_now();
    }
    assert!(client.text("run_command", json!({ "command": "echo on" })).starts_with("on\n"));
    assert_eq!(client.close(), 0);
}

#[test]
fn what_is_malformed_is_refused_and_the_conversation_goes_on() {
    let bench = Bench::new();
    let mut client = Client::start(&bench, &[]);
    client.send_line("this is not JSON");
    client.send_line(r#"{"jsonrpc": "2.0", "id": 900, "method": "#);
    client.send_line("");
    client.send_line(&"x".repeat(200_000));
    let unknown = client.ask("no/such/method", json!({}));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    let no_tool = client.ask("tools/call", json!({ "name": "no_such_tool", "arguments": {} }));
    assert_eq!(no_tool["error"]["code"], -32602, "{no_tool}");
    for (tool, arguments, word) in [
        ("run_command", json!({}), "one of command and argv"),
        ("run_command", json!({ "command": "ls", "argv": ["ls"] }), "one of command and argv"),
        ("run_command", json!({ "comand": "ls" }), "unknown field"),
        ("run_command", json!({ "command": 7 }), "string"),
        ("run_command", json!({ "command": "ls", "timeout_seconds": -1 }), "above 0"),
        ("run_command", json!({ "argv": [] }), "no command"),
        ("run_command", json!({ "argv": ["no-such-program"] }), "command_not_found"),
        ("run_command", json!({ "command": "ls", "cwd": "/no/such/folder" }), "workdir_unusable"),
        ("read_file", json!({ "path": "../../etc/passwd" }), "'..'"),
        ("read_file", json!({ "path": "/proc/self/environ" }), "not_an_ordinary_file"),
        ("read_file", json!({ "path": "not-there" }), "file_not_found"),
        ("write_file", json!({ "path": "/etc/x", "content": "" }), "hint:"),
        ("search_files", json!({ "pattern": "(" }), "literal"),
        ("read_process", json!({ "process": "p9" }), "list_processes"),
        ("run_code", json!({ "code": "1", "language": "cobol" }), "sessions are in"),
        ("run_code", json!({ "code": "1", "session": "no/name" }), "letters"),
        ("control_session", json!({ "action": "interrupt", "session": "none" }), "session_not_found"),
    ] {
        let said = client.failure(tool, arguments.clone());
        assert!(said.contains(word), "{tool} {arguments}: {said}");
    }
    assert_eq!(client.close(), 0);
}

#[test]
fn nothing_of_the_host_is_reached_unless_the_user_opened_it() {
    let bench = Bench::new();
    bench.write("open/in.txt", "brought in");
    bench.write("closed.txt", "private");
    std::os::unix::fs::symlink("../closed.txt", bench.work().join("open/link")).expect("a link");
    let mut closed = Client::start(&bench, &[]);
    assert!(closed.failure("upload", json!({ "source": "/etc/passwd" })).contains("--root"));
    assert!(closed.failure("apply_changes", json!({})).contains("--allow-apply"));
    assert_eq!(closed.close(), 0);

    let mut client = Client::start(&bench, &["--root", "open"]);
    client.text("upload", json!({ "source": "in.txt" }));
    assert!(client.text("run_command", json!({ "command": "cat in.txt" })).starts_with("brought in"));
    let outside = bench.work().join("closed.txt");
    for source in ["link", "../closed.txt", outside.to_str().expect("text")] {
        assert!(client.failure("upload", json!({ "source": source })).contains("permission_denied"), "{source}");
    }
    client.text("run_command", json!({ "command": "mkdir -p out; echo made > out/file; ln -s /etc/passwd out/link" }));
    client.text("download", json!({ "path": "out/file", "target": "deep/er/out.txt" }));
    assert_eq!(std::fs::read_to_string(bench.work().join("open/deep/er/out.txt")).expect("a file"), "made\n");
    assert!(client.failure("download", json!({ "path": "out/file", "target": "in.txt" })).contains("overwrite"));
    client.text("download", json!({ "path": "out/file", "target": "link", "overwrite": true }));
    assert_eq!(std::fs::read_to_string(&outside).expect("a file"), "private");
    let said = client.failure("download", json!({ "path": "out", "target": "folder" }));
    assert!(said.contains("link"), "a link that leads out is left out, and said: {said}");
    assert_eq!(std::fs::read_to_string(bench.work().join("open/folder/file")).expect("a file"), "made\n");
    assert!(!bench.work().join("open/folder/link").exists());
    assert_eq!(client.close(), 0);
}

#[test]
fn changes_reach_the_users_folder_only_when_they_are_applied() {
    let bench = Bench::new();
    bench.write("project/main.py", "print(1)\n");
    let mut client = Client::start(&bench, &["--workspace", "project", "--allow-apply"]);
    client.text("edit_file", json!({ "path": "main.py", "old": "print(1)", "new": "print(2)" }));
    client.text("write_file", json!({ "path": "new/file.txt", "content": "new" }));
    let file = bench.work().join("project/main.py");
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), "print(1)\n");
    let changes = client.call("list_changes", json!({ "diff": true }));
    assert_eq!(changes["structuredContent"]["modified"], json!(["main.py"]));
    let text = changes["content"][0]["text"].as_str().expect("text");
    assert!(text.contains("-print(1)\n+print(2)"), "{text}");
    client.text("run_command", json!({ "command": "ln -s /etc/passwd outward" }));
    let left = client.text("apply_changes", json!({ "only": ["outward"], "dry_run": true }));
    assert!(left.contains("put a file in its place") && !left.contains("--"), "{left}");
    client.text("run_command", json!({ "command": "rm outward" }));
    let applied = client.call("apply_changes", json!({ "only": ["main.py"] }));
    assert_eq!(applied["structuredContent"]["paths"], json!(["main.py"]), "{applied}");
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), "print(2)\n");
    assert!(!bench.work().join("project/new").exists());
    std::fs::write(&file, "changed by hand\n").expect("a file");
    client.text("write_file", json!({ "path": "main.py", "content": "print(3)\n" }));
    assert!(client.failure("apply_changes", json!({})).contains("conflicts"));
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), "changed by hand\n");
    assert_eq!(client.close(), 0);

    let mut client = Client::start(&bench, &["--workspace", "project", "--read-only"]);
    assert!(client.failure("write_file", json!({ "path": "main.py", "content": "" })).contains("read_only"));
    assert_eq!(client.close(), 0);
}

#[test]
fn a_sandbox_of_the_user_is_used_and_stays() {
    let bench = Bench::new();
    let id = bench.call(["create", "--name", "box"]).text().trim().to_owned();
    let mut client = Client::start(&bench, &["--sandbox", "box"]);
    assert_eq!(client.sandbox(), id);
    client.text("write_file", json!({ "path": "left.txt", "content": "here" }));
    client.text("start_process", json!({ "argv": ["sleep", "71007"] }));
    assert!(client.failure("reset_sandbox", json!({})).contains("glovebox reset box"));
    assert_eq!(client.close(), 0);
    let deadline = Instant::now() + Duration::from_secs(10);
    while is_running("71007") {
        assert!(Instant::now() < deadline, "a process of the conversation outlived it");
        std::thread::yield_now();
    }
    bench.call(["files", "read", "box", "left.txt"]).expect(0, "here");
    bench.call(["destroy", "box"]);
}

#[test]
fn a_sandbox_that_is_lost_is_replaced_and_that_is_said() {
    let bench = Bench::new();
    let mut client = Client::start(&bench, &[]);
    let first = client.sandbox();
    client.text("write_file", json!({ "path": "file", "content": "x" }));
    // The guest is PID 1 inside: its end is the end of the sandbox.
    let inside = client.call("run_command", json!({ "command": "readlink /proc/self/ns/pid" }));
    let namespace = inside["structuredContent"]["stdout"].as_str().expect("text").trim().to_owned();
    let of_sandbox = |entry: &std::fs::DirEntry| {
        let link = std::fs::read_link(entry.path().join("ns/pid")).unwrap_or_default();
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let ids = status.lines().find(|line| line.starts_with("NSpid:")).unwrap_or_default();
        link.to_string_lossy() == namespace && ids.split_whitespace().next_back() == Some("1")
    };
    let guest = std::fs::read_dir("/proc").expect("/proc").flatten().find(of_sandbox).expect("a guest");
    let pid = guest.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw).expect("a number");
    kill_process(pid, Signal::KILL).expect("a signal");
    let lost = client.failure("run_command", json!({ "command": "echo" }));
    assert!(lost.contains("sandbox_lost"), "{lost}");
    let next = client.call("list_files", json!({}));
    let said = next["content"][0]["text"].as_str().expect("text");
    assert!(said.contains("lost") && said.contains("new sandbox"), "{next}");
    assert_ne!(client.sandbox(), first);
    let after = client.text("list_files", json!({}));
    assert!(!after.contains("lost"), "it is said once: {after}");
    assert_eq!(client.close(), 0);
}

#[test]
fn a_process_that_writes_without_end_is_read_in_bounded_parts() {
    let bench = Bench::new();
    let mut client = Client::start(&bench, &[]);
    client.text(
        "start_process",
        json!({ "command": "yes 0123456789 | head -c 30000000; echo; echo the end; sleep 71010" }),
    );
    let read = client.call("read_process", json!({ "process": "p1", "until": "^the end$", "wait_seconds": 60 }));
    assert_eq!(read["structuredContent"]["found"], true, "{read}");
    assert!(read["structuredContent"]["output_omitted_bytes"].as_u64() > Some(29_000_000), "{read}");
    assert!(read.to_string().len() < 100_000);
    let usage = std::fs::read_to_string(format!("/proc/{}/status", client.child.id())).expect("a process");
    let peak = usage.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak").trim();
    let peak: u64 = peak.trim_end_matches(" kB").parse().expect("a number");
    assert!(peak < 150_000, "{peak} kB");
    assert_eq!(client.close(), 0);
    assert!(!is_running("71010"));
}

#[test]
fn names_and_output_that_programs_choose_steer_no_terminal() {
    let bench = Bench::new();
    let mut client = Client::start(&bench, &[]);
    let make =
        r#"printf x > $'a\e[2J\nb'; printf x > $'\xff'; ln -s $'\e]0;t\a' link; printf '\e]0;title\a\e[31mred\e[0m\n'"#;
    let mut said = client.call("run_command", json!({ "command": make })).to_string();
    assert!(said.contains(r#""stdout":"red\n""#), "{said}");
    for (tool, arguments) in [
        ("list_files", json!({})),
        ("search_files", json!({ "pattern": "x" })),
        ("list_changes", json!({ "diff": true })),
        ("read_file", json!({ "path": "a\u{1b}[2J\nb" })),
        ("read_file", json!({ "path": "\u{1b}[2J" })),
    ] {
        said += &client.call(tool, arguments).to_string();
    }
    let listed = client.ask("resources/list", json!({}));
    said += &listed.to_string();
    assert!(!said.contains("\\u001b") && !said.contains("\\u0007"), "{said}");
    let uri = "workspace:///agent_workspace/%FF";
    assert!(listed.to_string().contains(uri), "{listed}");
    let read = client.ask("resources/read", json!({ "uri": uri }));
    assert_eq!(read["result"]["contents"][0]["text"], "x", "{read}");
    assert_eq!(client.close(), 0);
}

#[test]
fn a_secret_is_masked_wherever_it_would_show() {
    let bench = Bench::new();
    let mut command = bench.glovebox(["mcp", "--secret", "TOKEN"]);
    let mut child =
        command.env("TOKEN", "hunter2-x").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().expect("a pipe")));
    let mut client = Client { child, stdin, stdout, last: 0 };
    let hello =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    client.ask("initialize", hello);
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let mut all =
        client.call("run_command", json!({ "command": "echo $TOKEN; echo $TOKEN > f; echo $TOKEN >&2" })).to_string();
    all += &client.call("read_file", json!({ "path": "f" })).to_string();
    all += &client.call("search_files", json!({ "pattern": "hunter" })).to_string();
    client.call("start_process", json!({ "command": "printf hunt; read x; printf er2-x; echo" }));
    all += &client.call("read_process", json!({ "process": "p1", "wait_seconds": 1, "until": "hunt" })).to_string();
    client.call("write_process", json!({ "process": "p1", "input": "\n" }));
    all += &client.call("read_process", json!({ "process": "p1", "wait_seconds": 5 })).to_string();
    all += &client.call("list_changes", json!({ "diff": true })).to_string();
    all += &client.ask("resources/read", json!({ "uri": "workspace:///agent_workspace/f" })).to_string();
    assert!(!all.contains("hunter2-x") && all.matches("[redacted]").count() >= 6, "{all}");
    assert_eq!(client.close(), 0);
}

#[test]
fn flags_that_do_not_go_together_are_refused_before_anything_starts() {
    let bench = Bench::new();
    for (args, word) in [
        (&["--read-only"][..], "--workspace"),
        (&["--allow-apply"], "--workspace"),
        (&["--allow-apply", "--workspace", ".", "--no-record"], "--no-record"),
        (&["--sandbox", "x", "--workspace", "."], "--sandbox"),
        (&["--root", "not-there"], "--root"),
        (&["--timeout", "soon"], "--timeout"),
        (&["--name", ""], "--name"),
        (&["--network", "some"], "--network"),
    ] {
        let called = bench.call([&["mcp"], args].concat());
        assert!(called.code != 0 && called.stderr.contains(word) && called.stdout.is_empty(), "{args:?}: {called:?}");
    }
    let called = bench.call(["mcp"]);
    assert_eq!((called.code, called.text()), (0, ""), "a client that says nothing is no failure: {}", called.stderr);
}
