//! Hosts that give less than a plain machine: each is made for real, with the tools of util-linux.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{Bench, Called};

/// The binary below other programs, which make the host what it is to be.
fn below(bench: &Bench, host: &[&str], args: &[&str]) -> Command {
    let glovebox = bench.glovebox(args);
    let mut command = Command::new(host[0]);
    command.args(&host[1..]).arg(glovebox.get_program()).args(glovebox.get_args()).current_dir(bench.work());
    for (name, value) in glovebox.get_envs() {
        value.map(|value| command.env(name, value));
    }
    command.stdin(Stdio::null());
    command
}

fn call_below(bench: &Bench, host: &[&str], args: &[&str]) -> Called {
    Called::new(below(bench, host, args).output().expect("util-linux is there"))
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

/// The ids on the host of a process that has this word among its arguments.
fn ids_outside(word: &str) -> Vec<u32> {
    let is_it = |folder: &std::path::Path| {
        let line = std::fs::read(folder.join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).next_back() == Some(b"")
            && line.split(|byte| *byte == 0).nth(3) == Some(word.as_bytes())
    };
    let mut processes = std::fs::read_dir("/proc").expect("/proc").filter_map(Result::ok).map(|entry| entry.path());
    let found = processes.find(|folder| is_it(folder)).expect("the program runs");
    let status = std::fs::read_to_string(found.join("status")).expect("its status");
    let ids = status.lines().filter(|line| line.starts_with("Uid:") || line.starts_with("Gid:"));
    ids.flat_map(|line| line.split_whitespace().skip(1).map(|id| id.parse().expect("an id"))).collect()
}

#[test]
fn commands_of_a_root_without_rights_are_nobody_outside_and_work_in_its_workspace_all_the_same() {
    let bench = Bench::new();
    let host = ["setpriv", "--bounding-set", "-sys_admin"];
    let word = format!("word-{}", std::process::id());
    let mut command = below(&bench, &host, &["run", "--", "/bin/sh", "-c", "echo started; read line", &word]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("util-linux is there");
    let mut said = String::new();
    BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut said).expect("the program speaks");
    let ids = ids_outside(&word);
    drop(child.stdin.take());
    child.wait().expect("the run ends");
    assert!(ids.len() == 8 && ids.iter().all(|id| *id > 0x2000_0000), "{ids:?}");

    bench.write("old", "old\n");
    let line = "cat old && echo new > new && mkdir -m 700 deep && echo x > deep/file";
    let document = call_below(&bench, &host, &["run", "--json", "--workspace", ".", "--", "sh", "-c", line]).document();
    assert_eq!(document["stdout"]["text"], "old\n", "{document}");
    let added = serde_json::json!(["agent_workspace/deep/file", "agent_workspace/new"]);
    assert_eq!(document["changes"]["added"], added, "{document}");
    let line = "mkdir -m 700 ../outputs/deep && (umask 077; echo x > ../outputs/deep/file)";
    let document = call_below(&bench, &host, &["run", "--json", "--", "sh", "-c", line]).document();
    assert_eq!(document["artifacts"][0]["path"], "outputs/deep/file", "{document}");
}

#[test]
fn the_doctor_tries_to_make_a_group_and_leaves_none() {
    let bench = Bench::new();
    let look = |host: &[&str]| {
        let document = call_below(&bench, host, &["doctor", "--json"]).document();
        let checks = document["checks"].as_array().expect("checks").clone();
        checks.into_iter().find(|check| check["name"] == "control groups").expect("the check of groups")
    };
    let found = look(&["env"]);
    assert_eq!(found["status"], "ok", "{found}");
    // The folders can be written as far as their modes tell, and yet they cannot.
    let close = after("for f in /sys/fs/cgroup/*; do mount --bind -o ro $f $f || exit; done");
    let found = look(&["unshare", "--mount", "sh", "-c", &close, "sh"]);
    assert_eq!(found["status"], "degraded", "{found}");
    assert!(found["detail"].as_str().expect("a detail").contains("no group can be made"), "{found}");
    let left = crate::folders_with(std::path::Path::new("/sys/fs/cgroup"), "glovebox.trial");
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_root_who_has_lost_everything_is_told_what_helps() {
    let bench = Bench::new();
    let host = ["setpriv", "--bounding-set", "-all"];
    let called = call_below(&bench, &host, &["run", "--", "true"]);
    assert_eq!(called.code, 125, "{}", called.stderr);
    assert!(called.stderr.contains("this is a root without CAP_SETFCAP: docker run --user 1000"), "{}", called.stderr);
    let doctor = call_below(&bench, &host, &["doctor"]);
    assert_eq!(doctor.code, 1, "{}", doctor.text());
    assert!(doctor.text().contains("fix: docker run --user 1000, or --cap-add SETFCAP"), "{}", doctor.text());
}

#[test]
fn a_user_whose_group_is_not_that_of_the_account_makes_sandboxes_without_sub_ids() {
    let bench = Bench::new();
    let folder = bench.dir.path();
    for path in [folder.to_owned(), bench.work(), bench.home()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("open to the user");
    }
    let program = folder.join("glovebox");
    super::copy_of_the_binary(&program);
    for (name, text) in [
        ("passwd", "root:x:0:0::/root:/bin/sh\nanna:x:54320:54320::/:/bin/sh\n"),
        ("subuid", "anna:700000:65536\n"),
        ("subgid", "anna:700000:65536\n"),
    ] {
        std::fs::write(folder.join(name), text).expect("a table of accounts");
    }
    let tables = after("for f in passwd subuid subgid; do mount --bind ../$f /etc/$f; done");
    let call = |group: &str, args: &[&str]| {
        let host = ["unshare", "--mount", "sh", "-c", &tables, "sh", "setpriv", "--clear-groups", "--reuid", "54320"];
        let mut command = Command::new(host[0]);
        command.args(&host[1..]).args(["--regid", group]).arg(&program).args(args);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/usr/sbin:/bin:/sbin")
            .env("HOME", bench.home())
            .current_dir(bench.work());
        Called::new(command.output().expect("util-linux is there"))
    };
    let own = call("54320", &["run", "--json", "--", "true"]).document();
    assert!(!missing(&own).contains(&"separate_guest"), "{own}");
    let other = call("54399", &["run", "--json", "--", "true"]).document();
    assert!(missing(&other).contains(&"separate_guest"), "{other}");
    let doctor = call("54399", &["doctor"]);
    assert!(doctor.text().contains("newgidmap refuses a group that is not your account's"), "{}", doctor.text());
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
    super::copy_of_the_binary(&root.join("bin/glovebox"));
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
