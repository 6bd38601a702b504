//! What a client can cost: time, memory, processes. And what is left when it takes no more than it gives.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{Bench, Client, at_work, expect_gone};

/// Bytes that a process has read so far, by any system call.
fn bytes_read(pid: u32) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).expect("the kernel counts");
    let read = io.lines().find_map(|line| line.strip_prefix("rchar: ")).expect("a count");
    read.parse().expect("a number")
}

#[test]
fn files_that_no_run_touched_are_not_read_again() {
    let bench = Bench::new();
    let mut client = Client::start(&bench, &[]);
    client.text("run_command", json!({ "command": "head -c 20000000 /dev/zero > large" }));
    let deadline = Instant::now() + Duration::from_secs(60);
    // What changed a moment ago may change again unseen, so it is read once more.
    loop {
        let before = bytes_read(client.child.id());
        client.text("run_command", json!({ "command": "true" }));
        if bytes_read(client.child.id()) - before < 1_000_000 {
            break;
        }
        assert!(Instant::now() < deadline, "every run reads all files");
    }
    let before = bytes_read(client.child.id());
    assert!(client.text("list_changes", json!({})).contains("added large"));
    assert!(bytes_read(client.child.id()) - before < 1_000_000, "to list changes is to read all files");
    // One that changes is read, and told.
    let told = client.text("run_command", json!({ "command": "echo more >> large" }));
    assert!(told.contains("~ large"), "{told}");
    assert_eq!(client.close(), 0);
}

#[test]
fn a_run_is_not_charged_for_what_ran_before_it() {
    let bench = Bench::new();
    let mut client = Client::start(&bench, &["--memory", "100m"]);
    let burn = "python3 -c 'n = sum(range(20_000_000))'";
    let burnt = client.call("run_command", json!({ "command": burn }))["structuredContent"]["usage"].clone();
    let eaten = client.call("run_command", json!({ "command": "python3 -c 'bytearray(1 << 30)'" }));
    assert_eq!(eaten["structuredContent"]["outcome"]["kind"], "out_of_memory", "{eaten}");
    let next = client.call("run_command", json!({ "command": "kill -9 $$" }))["structuredContent"].clone();
    assert_eq!(next["outcome"]["kind"], "signaled", "{next}");
    assert_eq!(next["limits_hit"], json!([]), "{next}");
    let used = |usage: &Value| usage["cpu_ms"].as_f64().expect("a number");
    assert!(used(&next["usage"]) < used(&burnt) / 2.0, "{next}, {burnt}");
    assert_eq!(client.close(), 0);
}

/// Waits for the end of a server whose client listens no more and only holds its standard output.
#[track_caller]
fn expect_end(mut client: Client, sandbox: &str, word: &str) {
    drop(client.stdin.take());
    let deadline = Instant::now() + Duration::from_secs(15);
    let code = loop {
        if let Some(status) = client.child.try_wait().expect("a child") {
            break status.code();
        }
        if Instant::now() > deadline {
            client.child.kill().expect("it can be killed");
            panic!("the server did not end");
        }
        std::thread::yield_now();
    };
    assert_eq!(code, Some(0));
    expect_gone(sandbox, word);
}

#[test]
fn a_client_that_closes_its_end_and_never_reads_leaves_nothing() {
    let bench = Bench::new();
    let mut client = Client::start(&bench, &[]);
    let sandbox = at_work(&mut client, "71021");
    // More answers than a pipe holds.
    for _ in 0..20 {
        client.begin("run_command", json!({ "command": "seq 1 50000" }));
    }
    while rustix::io::ioctl_fionread(client.stdout.get_ref()).expect("a pipe") < 60_000 {
        std::thread::yield_now();
    }
    expect_end(client, &sandbox, "71021");
}

#[test]
fn a_server_that_can_say_no_more_sees_the_end_of_its_input_all_the_same() {
    let bench = Bench::new();
    let mut client = Client::start(&bench, &[]);
    let sandbox = at_work(&mut client, "71022");
    // Each is answered before the next one is read, until nothing more fits into the pipe.
    for _ in 0..2000 {
        client.send_line(r#"{"jsonrpc":"2.0","method":5}"#);
    }
    expect_end(client, &sandbox, "71022");
}

#[test]
fn answers_that_are_on_their_way_come_although_the_input_is_closed() {
    let bench = Bench::new();
    let mut client = Client::start(&bench, &[]);
    client.sandbox();
    let id = client.begin("run_command", json!({ "command": "sleep 0.5; echo late" }));
    drop(client.stdin.take());
    let answer = client.next();
    assert_eq!(answer["id"], id);
    assert_eq!(answer["result"]["structuredContent"]["stdout"], "late\n", "{answer}");
    assert_eq!(client.wait(), 0);
}

#[test]
fn a_wait_for_a_process_lasts_no_longer_than_a_call_may() {
    let bench = Bench::new();
    let mut client = Client::start(&bench, &["--timeout", "1s"]);
    client.text("start_process", json!({ "command": "echo up; sleep 71023" }));
    let began = Instant::now();
    let said = client.text("read_process", json!({ "process": "p1", "until": "never", "wait_seconds": 500 }));
    assert!(began.elapsed() < Duration::from_secs(5), "it waited for {:?}", began.elapsed());
    assert!(said.contains("up\n") && said.contains("a call may last 1s"), "{said}");
    assert_eq!(client.close(), 0);
}

#[test]
fn a_text_that_is_waited_for_is_found_wherever_it_was_cut_and_keeps_nobody_waiting() {
    let bench = Bench::new();
    let mut client = Client::start(&bench, &[]);
    client.text("start_process", json!({ "command": "sleep 71024" }));
    for (pattern, why) in [("a".repeat(5000), "longer than"), ("(x{1000}){1000}".to_owned(), "too large")] {
        let said = client.failure("read_process", json!({ "process": "p1", "until": pattern }));
        assert!(said.contains(why), "{said}");
        let said = client.failure("search_files", json!({ "pattern": pattern }));
        assert!(said.contains(why), "{said}");
    }
    // Half a megabyte of what nearly fits, then in two parts what does; and `until` alone waits.
    let line = "head -c 500000 /dev/zero | tr '\\0' a; printf '\\nread'; sleep 0.2; echo y; sleep 71024";
    client.text("start_process", json!({ "command": line }));
    let id = client.begin("read_process", json!({ "process": "p2", "until": "(a?){60}b|^ready$", "wait_seconds": 60 }));
    let began = Instant::now();
    let mut answers: Vec<Value> = Vec::new();
    let usage = client.begin("usage", json!({}));
    while answers.len() < 2 {
        let answer = client.next();
        assert!(answer["id"] != usage || began.elapsed() < Duration::from_secs(2), "a pattern held up another call");
        answers.push(answer);
    }
    let read = answers.iter().find(|answer| answer["id"] == id).expect("an answer");
    assert_eq!(read["result"]["structuredContent"]["found"], true, "{read}");
    client.text("start_process", json!({ "command": "sleep 0.3; echo by itself" }));
    let read = client.call("read_process", json!({ "process": "p3", "until": "itself" }));
    assert_eq!(read["structuredContent"]["found"], true, "{read}");
    assert_eq!(client.close(), 0);
}

#[test]
fn processes_that_are_started_at_one_time_are_no_more_than_there_may_be() {
    let bench = Bench::new();
    let mut client = Client::start(&bench, &[]);
    let sandbox = client.sandbox();
    let mut waited: HashSet<u64> =
        (0..40).map(|_| client.begin("start_process", json!({ "argv": ["sleep", "71025"] }))).collect();
    let mut refused = 0;
    while !waited.is_empty() {
        let answer = client.next();
        if waited.remove(&answer["id"].as_u64().expect("an id")) && answer["result"]["isError"] == true {
            assert!(answer.to_string().contains("stop_process"), "{answer}");
            refused += 1;
        }
    }
    assert_eq!(refused, 8);
    client.text("stop_process", json!({ "process": "p1" }));
    client.text("start_process", json!({ "argv": ["sleep", "71025"] }));
    assert_eq!(client.close(), 0);
    expect_gone(&sandbox, "71025");
}

#[test]
fn what_is_watched_no_more_takes_no_room() {
    let bench = Bench::new();
    let mut client = Client::start(&bench, &[]);
    client.sandbox();
    let uri = |name: &str| json!({ "uri": format!("workspace:///agent_workspace/{name}") });
    for n in 0..64 {
        let answer = client.ask("resources/subscribe", uri(&format!("old-{n}")));
        assert!(answer["error"].is_null(), "{answer}");
    }
    let answer = client.ask("resources/subscribe", uri("one-more"));
    assert!(answer["error"]["message"].as_str().expect("a message").contains("64"), "{answer}");
    // What was watched goes with the sandbox.
    client.text("reset_sandbox", json!({}));
    let deadline = Instant::now() + Duration::from_secs(10);
    while !client.ask("resources/subscribe", uri("new"))["error"].is_null() {
        assert!(Instant::now() < deadline, "what is gone is still counted");
    }
    assert_eq!(client.close(), 0);
}
