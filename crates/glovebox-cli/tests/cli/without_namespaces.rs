//! Runs on a host that gives no namespaces, which the probe makes: as root of a default container, and as a user there.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::{Bench, Called, is_running};

/// An id that no account has.
const USER: u32 = 64_321;

/// Calls the binary on such a host.
fn call(bench: &Bench, who: &str, args: &[&str]) -> Called {
    let (program, home) = (bench.dir.path().join("glovebox"), bench.home());
    if !program.exists() {
        super::copy_of_the_binary(&program);
        fs::set_permissions(bench.dir.path(), fs::Permissions::from_mode(0o755)).expect("the folder can be opened");
        for folder in [bench.work(), home.clone()] {
            chown(folder, Some(USER), Some(USER)).expect("root gives its files away");
        }
    }
    let mut command = Command::new(&program);
    command.args(["__probe", "without-namespaces", who]).arg(&program).args(args).current_dir(bench.work());
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &home).env("GLOVEBOX_DATA_DIR", home.join(who));
    Called::new(command.output().expect("the binary runs"))
}

fn both() -> [String; 2] {
    ["root".to_owned(), USER.to_string()]
}

#[test]
fn without_the_callers_word_there_is_no_weaker_sandbox_and_the_error_names_it() {
    let bench = Bench::new();
    for who in both() {
        let called = call(&bench, &who, &["run", "--", "true"]);
        assert_eq!(called.code, 125, "{called:?}");
        assert!(called.stderr.contains("--isolation landlock"), "{}", called.stderr);
    }
}

#[test]
fn a_run_says_what_it_was_isolated_by() {
    let bench = Bench::new();
    for who in both() {
        let called = call(&bench, &who, &["run", "--isolation", "landlock", "--", "sh", "-c", "echo hi; pwd"]);
        assert_eq!(called.code, 0, "{called:?}");
        assert!(called.text().starts_with("hi\n/"), "{called:?}");
        assert!(called.stderr.contains("no namespaces") && called.stderr.contains("pid_ns"), "{}", called.stderr);
        let result = call(&bench, &who, &["run", "--json", "--isolation", "landlock", "--", "true"]).document();
        assert_eq!(result["isolation"]["tier"], "landlock");
        assert!(result["command"]["cwd"].as_str().is_some_and(|cwd| cwd.ends_with("/workspace/agent_workspace")));
        let strict = ["run", "--isolation", "landlock", "--require-layer", "pid_ns", "--", "true"];
        assert_eq!(call(&bench, &who, &strict).code, 125);
    }
}

#[test]
fn files_code_artifacts_and_compiled_programs_work() {
    let bench = Bench::new();
    bench.write("main.py", "import sys; open('../outputs/made', 'w').write(sys.argv[1]); print('ran')");
    bench.write("main.c", "#include <stdio.h>\nint main(void) { puts(\"compiled\"); return 3; }\n");
    for who in both() {
        let run = |args: &[&str]| call(&bench, &who, &[&["run", "--isolation", "landlock"][..], args].concat());
        let called = run(&["--json", "main.py", "word"]);
        let result = called.document();
        assert_eq!(result["stdout"]["text"], "ran\n", "{called:?}");
        assert_eq!(result["artifacts"][0]["path"], "outputs/made");
        run(&["-l", "sh", "-c", "echo $1", "x"]).expect(0, "x\n");
        run(&["main.c"]).expect(3, "compiled\n");
        run(&["main.c"]).expect(3, "compiled\n");
        assert_eq!(run(&["--timeout", "300ms", "--", "sleep", "60"]).code, 124);
    }
}

#[test]
fn a_daemon_ends_with_its_run() {
    let bench = Bench::new();
    for who in both() {
        let line = "(setsid sleep 98765 > /dev/null 2>&1 &); exit 4";
        assert_eq!(call(&bench, &who, &["run", "--isolation", "landlock", "--", "sh", "-c", line]).code, 4);
        assert!(!is_running("98765"), "a daemon of {who} is left");
    }
}

#[test]
fn what_a_kill_of_everything_left_is_removed() {
    let bench = Bench::new();
    for (who, word) in both().into_iter().zip(["87654", "76543"]) {
        call(&bench, &who, &["run", "--isolation", "landlock", "--", "true"]).expect(0, "");
        let program = bench.dir.path().join("glovebox");
        let mut command = Command::new(&program);
        command.args(["__probe", "without-namespaces", &who]).arg(&program);
        command.args(["run", "--isolation", "landlock", "--no-record", "--", "sleep", word]).current_dir(bench.work());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut started = command.spawn().expect("the binary starts");
        let sleep = loop {
            match process_named("sleep", word) {
                Some(pid) => break pid,
                None => std::thread::yield_now(),
            }
        };
        let folder = fs::read_link(format!("/proc/{sleep}/cwd")).expect("root may look");
        let guest = parent(sleep);
        let reaper = parent(guest);
        let launcher = parent(reaper);
        for pid in [launcher, parent(launcher), reaper, guest] {
            Command::new("kill").args(["-KILL", &pid.to_string()]).status().expect("kill runs");
        }
        started.wait().expect("it ended");
        // Runs of other tests look for leftovers too, so it may be one of them that removes these.
        let until = Instant::now() + Duration::from_secs(20);
        while process_named("sleep", word).is_some() || folder.exists() {
            assert!(Instant::now() < until, "something of {who} is still there: {}", folder.display());
            assert_eq!(call(&bench, &who, &["gc"]).code, 0);
        }
    }
}

/// The process with this name and this argument.
fn process_named(name: &str, argument: &str) -> Option<u32> {
    let pids =
        fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.into_iter().find(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.first() == Some(&name.as_bytes()) && words.get(1) == Some(&argument.as_bytes())
    })
}

fn parent(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("a process has a parent");
    line.trim().parse().expect("a number")
}
