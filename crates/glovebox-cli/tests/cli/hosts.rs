//! Hosts that give less than a plain machine: each is made for real, with the tools of util-linux.

use std::{ffi::OsStr, process::Command};

use serde_json::Value;

use crate::{Bench, Called};

/// Calls the binary below other programs, which make the host what it is to be.
fn call_below(bench: &Bench, host: &[&str], args: &[&str]) -> Called {
    let glovebox = bench.glovebox(args);
    let mut command = Command::new(host[0]);
    command.args(&host[1..]).arg(glovebox.get_program()).args(glovebox.get_args()).current_dir(bench.work());
    for (name, value) in glovebox.get_envs() {
        value.map(|value| command.env(name, value));
    }
    Called::new(command.stdin(std::process::Stdio::null()).output().expect("util-linux is there"))
}

fn missing(document: &Value) -> Vec<&str> {
    let layers = document["isolation"]["missing"].as_array().unwrap_or_else(|| panic!("no result: {document}"));
    layers.iter().filter_map(Value::as_str).collect()
}

/// What a shell does before it becomes the program that follows.
fn after(line: &str) -> String {
    format!("{line} && exec \"$@\"")
}

#[test]
fn a_root_who_lacks_a_capability_makes_sandboxes_as_an_ordinary_user_does() {
    let bench = Bench::new();
    for lack in ["-sys_admin", "-net_admin", "-sys_ptrace", "-net_admin,-sys_ptrace,-kill"] {
        let host = ["setpriv", "--bounding-set", lack];
        let document = call_below(&bench, &host, &["run", "--json", "--", "true"]).document();
        assert_eq!(document["outcome"]["code"], 0, "{lack}: {document}");
        let missing = missing(&document);
        assert!(!missing.iter().any(|layer| layer.ends_with("_ns")), "{lack}: {missing:?}");
        let doctor = call_below(&bench, &host, &["doctor", "--json"]);
        assert_eq!(doctor.code, 0, "{lack}: {}", doctor.text());
        assert!(doctor.text().contains("and is treated as an ordinary user"), "{lack}: {}", doctor.text());
    }
}

#[test]
fn the_root_of_a_user_namespace_makes_sandboxes_as_an_ordinary_user_does() {
    let bench = Bench::new();
    let host = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc"];
    let document = call_below(&bench, &host, &["run", "--json", "--", "echo", "hi"]).document();
    assert_eq!(document["stdout"]["text"], "hi\n", "{document}");
    assert!(!missing(&document).contains(&"user_ns"), "{document}");
}

#[test]
fn where_parts_of_proc_are_covered_the_step_is_named_and_not_a_broken_pipe() {
    let bench = Bench::new();
    let cover = after("mount -t tmpfs none /proc/sys");
    for lack in ["-wake_alarm", "-net_admin"] {
        let host = ["setpriv", "--bounding-set", lack, "unshare", "--mount", "--pid", "--fork", "--mount-proc"];
        let host = [host.as_slice(), &["sh", "-c", &cover, "sh"]].concat();
        // What was lost was lost in a race.
        for _ in 0..10 {
            let called = call_below(&bench, &host, &["run", "--", "true"]);
            assert_eq!(called.code, 125, "{}", called.stderr);
            assert!(called.stderr.contains("make /proc: Operation not permitted"), "{lack}: {}", called.stderr);
            assert!(called.stderr.contains("hint: "), "{lack}: {}", called.stderr);
        }
    }
}

#[test]
fn a_host_that_allows_no_user_namespace_is_called_by_its_name() {
    let bench = Bench::new();
    let close = after("echo 0 > /proc/sys/user/max_user_namespaces");
    let host = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc"];
    let host = [host.as_slice(), &["sh", "-c", &close, "sh"]].concat();
    let called = call_below(&bench, &host, &["run", "--", "true"]);
    assert_eq!(called.code, 125, "{}", called.stderr);
    assert!(called.stderr.contains("this is a host that allows no user namespaces"), "{}", called.stderr);
}

#[test]
fn in_a_chroot_a_run_says_what_the_doctor_says() {
    let bench = Bench::new();
    let root = bench.dir.path().join("root");
    for folder in ["bin", "proc", "dev", "usr", "tmp", "run", "etc"] {
        std::fs::create_dir_all(root.join(folder)).expect("a folder of the new root");
    }
    for folder in ["lib", "lib64"] {
        std::os::unix::fs::symlink(format!("usr/{folder}"), root.join(folder)).expect("a link of the new root");
    }
    std::fs::copy(env!("CARGO_BIN_EXE_glovebox"), root.join("bin/glovebox")).expect("the program in the new root");
    let enter = "for f in usr dev; do mount --rbind /$f $f; done && mount -t proc proc proc && exec chroot . \"$@\"";
    let call = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "sh", "-c", enter, "sh", "/bin/glovebox"]).args(args);
        let home = OsStr::new("/tmp");
        Called::new(
            command
                .current_dir(&root)
                .env_clear()
                .env("PATH", "/usr/bin:/usr/sbin:/bin")
                .env("HOME", home)
                .output()
                .expect("util-linux is there"),
        )
    };
    for args in [&["run", "--", "true"][..], &["doctor"]] {
        let called = call(args);
        let said = format!("{}{}", called.text(), called.stderr);
        assert_ne!(called.code, 0, "{said}");
        assert!(said.contains("a changed root (chroot)"), "{args:?}: {said}");
        assert!(said.contains("systemd-nspawn or pivot_root in place of chroot"), "{args:?}: {said}");
    }
}
