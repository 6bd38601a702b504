//! The JSON document.

use crate::Bench;

#[test]
fn the_document_has_every_key_of_the_contract() {
    let bench = Bench::new();
    let result = bench.result(&["--env", "A=b", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    let keys = [
        "run",
        "sandbox",
        "backend",
        "image",
        "project",
        "command",
        "outcome",
        "stdout",
        "stderr",
        "started_at",
        "duration_ms",
        "usage",
        "limits",
        "isolation",
        "changes",
        "artifacts",
        "limits_hit",
        "findings",
        "denials",
    ];
    for key in keys {
        assert!(result.get(key).is_some(), "{key} is missing in {result}");
    }
    assert!(result["run"].as_str().unwrap().starts_with("run_"));
    assert!(result["sandbox"].as_str().unwrap().starts_with("sb_"));
    assert_eq!((&result["backend"], &result["image"]), (&"native".into(), &"host".into()));
    assert_eq!(result["command"]["argv"][0], "sh");
    assert_eq!(result["command"]["cwd"], "/workspace/agent_workspace");
    assert_eq!(result["command"]["env"], serde_json::json!({"A": "b"}));
    assert_eq!(result["outcome"], serde_json::json!({"kind": "exited", "code": 3}));
    assert_eq!(result["stdout"], serde_json::json!({"text": "out\n", "bytes": 4, "truncated": false}));
    assert_eq!(result["stderr"]["text"], "err\n");
    assert!(result["started_at"].as_str().unwrap().ends_with('Z'));
    assert!(result["duration_ms"].as_f64().unwrap() > 0.0);
    for key in ["cpu_ms", "memory_peak_bytes", "processes_peak", "read_bytes", "written_bytes"] {
        assert!(result["usage"].get(key).is_some(), "usage.{key}");
    }
    for key in ["memory_bytes", "cpus", "pids", "disk_bytes", "timeout_ms", "output_bytes"] {
        assert!(result["limits"].get(key).is_some(), "limits.{key}");
    }
    for key in ["added", "modified", "deleted"] {
        assert!(result["changes"][key].is_array(), "changes.{key}");
    }
    for layer in ["user_ns", "mount_ns", "pid_ns", "network_ns", "seccomp", "no_new_privs"] {
        assert!(result["isolation"]["present"].as_array().unwrap().iter().any(|name| name == layer), "{layer}");
    }
}

#[test]
fn json_changes_no_exit_code_and_writes_nothing_else() {
    let bench = Bench::new();
    let called = bench.call(["run", "--json", "--", "sh", "-c", "echo x; exit 7"]);
    assert_eq!(called.code, 7);
    assert_eq!(called.text().matches('\n').count(), 1);
    assert_eq!(called.stderr, "");
    assert_eq!(bench.call(["run", "--json", "--timeout", "200ms", "--grace", "50ms", "--", "sleep", "9"]).code, 124);
}

#[test]
fn output_that_is_not_text_comes_as_base64() {
    let bench = Bench::new();
    let result = bench.result(&["--", "printf", "\\377\\376"]);
    assert_eq!(result["stdout"], serde_json::json!({"base64": "//4=", "bytes": 2, "truncated": false}));
}

#[test]
fn long_output_keeps_its_head_and_its_tail() {
    let bench = Bench::new();
    let result = bench.result(&[
        "--output-limit",
        "1k",
        "--",
        "sh",
        "-c",
        "echo head; head -c 100000 /dev/zero | tr '\\0' x; echo tail",
    ]);
    let stdout = &result["stdout"];
    assert_eq!((stdout["truncated"].as_bool(), stdout["bytes"].as_u64()), (Some(true), Some(100_010)));
    let text = stdout["text"].as_str().unwrap();
    assert!(text.starts_with("head\n") && text.ends_with("tail\n") && text.len() < 3000, "{text}");
    assert!(result["limits_hit"].as_array().unwrap().iter().any(|limit| limit == "output"), "{result}");
}

#[test]
fn an_error_is_a_document_with_code_message_and_hint() {
    let bench = Bench::new();
    let document = bench.call(["run", "--json", "--", "no-such-program"]).document();
    let error = document["error"].as_object().unwrap();
    assert_eq!(error.keys().collect::<Vec<_>>(), ["code", "hint", "message"]);
    assert_eq!(document.as_object().unwrap().len(), 1);
}

#[test]
fn gc_says_what_it_removed() {
    let bench = Bench::new();
    let called = bench.call(["gc", "--json"]);
    assert_eq!(called.code, 0, "{}", called.stderr);
    assert!(called.document()["removed"].is_array());
    assert_eq!(bench.call(["gc"]).code, 0);
}

#[test]
fn files_that_were_given_are_no_changes_until_they_are_changed() {
    let bench = Bench::new();
    bench.write("s.sh", "echo x > new\n");
    assert_eq!(bench.result(&["s.sh"])["changes"]["added"], serde_json::json!(["agent_workspace/new"]));
    bench.write("s.sh", "echo x >> s.sh\n");
    assert_eq!(bench.result(&["s.sh"])["changes"]["added"], serde_json::json!(["agent_workspace/s.sh"]));
}

#[test]
fn the_wall_time_of_a_short_run_is_not_below_its_processor_time() {
    let bench = Bench::new();
    let result = bench.result(&["--", "sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"]);
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    // The group's processor time also holds what it took to set the sandbox up, a few milliseconds.
    assert!(number(&result["duration_ms"]) + 5.0 > number(&result["usage"]["cpu_ms"]), "{result}");
    assert!(number(&result["duration_ms"]) > 1.0, "{result}");
}

#[test]
fn the_folder_of_the_artifacts_is_told_and_what_is_not_kept_is_said() {
    let bench = Bench::new();
    let line = "cd /workspace/outputs; echo kept > a; ln -s /etc/passwd l";
    let result = bench.result(&["--", "sh", "-c", line]);
    let folder = std::path::Path::new(result["artifacts_dir"].as_str().unwrap());
    assert_eq!(std::fs::read_to_string(folder.join("outputs/a")).unwrap(), "kept\n");
    assert_eq!(result["denials"][0]["target"], "outputs/l");
    assert!(bench.result(&["--", "true"])["artifacts_dir"].is_null());
}
