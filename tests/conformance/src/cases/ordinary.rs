//! What ordinary software does must work: a filter that breaks packages would be turned off.

use crate::{World, case::cases};

cases!["ordinary":
    processes_and_threads_work,
    waiting_for_events_works,
    memory_files_pipes_and_random_bytes_work,
    sockets_of_the_allowed_families_work,
    a_program_can_trace_its_own_child,
    ordinary_file_operations_work,
    extended_attributes_work needs(user_xattrs),
    ordinary_file_operations_work_in_every_writable_folder,
    system_v_memory_works_within_the_sandbox,
    processes_can_be_watched_moved_and_made_nice,
    the_usual_folders_and_names_are_there,
    temporary_files_are_private_and_gone_with_the_sandbox,
    pipelines_and_job_control_of_the_shell_work,
    a_time_zone_and_the_clock_are_there,
];

async fn works(w: World, names: &str) {
    let run = w.sandbox().probe(&format!("works {names}")).await.expect_exit(0);
    let refused: Vec<String> = names
        .split(' ')
        .map(|name| (name, run.fact(name)))
        .filter(|(_, answer)| answer != "ok")
        .map(|(name, answer)| format!("{name} gave {answer}"))
        .collect();
    assert!(refused.is_empty(), "{}", refused.join(", "));
}

async fn processes_and_threads_work(w: World) {
    works(w, "fork exec threads setsid").await;
}

async fn waiting_for_events_works(w: World) {
    works(w, "epoll inotify timerfd eventfd").await;
}

async fn memory_files_pipes_and_random_bytes_work(w: World) {
    works(w, "memfd sendfile splice getrandom shared-memory").await;
}

async fn sockets_of_the_allowed_families_work(w: World) {
    works(w.clone(), "unix-socket unix-socketpair netlink-route").await;
    let run = w.sandbox().probe("listen-loopback").await.expect_exit(0);
    for name in ["tcp-ipv4", "udp-ipv4", "tcp-ipv6", "udp-ipv6"] {
        assert_eq!(run.fact(name), "ok", "{name}");
    }
}

async fn a_program_can_trace_its_own_child(w: World) {
    works(w, "ptrace-own-child").await;
}

async fn extended_attributes_work(w: World) {
    works(w, "xattr").await;
}

async fn ordinary_file_operations_work(w: World) {
    works(w, "chmod rename link symlink fifo flock fallocate copy_file_range utimes").await;
}

async fn ordinary_file_operations_work_in_every_writable_folder(w: World) {
    for folder in ["/tmp", "/home/user", "/dev/shm", "/workspace/outputs"] {
        let run = w.sandbox().cwd(folder).probe("works chmod rename link symlink flock inotify").await.expect_exit(0);
        assert!(run.out().lines().all(|line| line.ends_with(" ok")), "{folder}\n{}", run.story());
    }
}

async fn system_v_memory_works_within_the_sandbox(w: World) {
    works(w, "sysv-shm").await;
}

async fn processes_can_be_watched_moved_and_made_nice(w: World) {
    works(w, "pidfd affinity nice personality-query").await;
}

async fn the_usual_folders_and_names_are_there(w: World) {
    let line = "set -e; test -d \"$HOME\"; test -w \"$HOME\"; test -w /tmp; test -x /usr/bin/env; id -un; whoami; \
                getent hosts localhost > /dev/null; test -e /dev/fd/0; test -e /dev/stdin; pwd";
    let run = w.sandbox().sh(line).await.expect_exit(0);
    let lines: Vec<String> = run.out().lines().map(str::to_owned).collect();
    assert_eq!(lines[0], lines[1]);
    assert_eq!(lines[2], "/workspace/agent_workspace");
}

async fn temporary_files_are_private_and_gone_with_the_sandbox(w: World) {
    w.sandbox().sh("mktemp && echo mine > /tmp/mine && stat -c %a /tmp").await.expect_exit(0);
    w.sandbox().sh("ls -A /tmp /home/user /dev/shm | grep -v : | grep .").await.expect_exit(1).expect_out("");
}

async fn pipelines_and_job_control_of_the_shell_work(w: World) {
    let line = "seq 1 1000 | sort -n | tail -1; sleep 0.01 & wait $!; echo $?; (exit 3) || echo $?";
    w.sandbox().sh(line).await.expect_exit(0).expect_out("1000\n0\n3\n");
}

async fn a_time_zone_and_the_clock_are_there(w: World) {
    let run = w.sandbox().run(["date", "+%s"]).await.expect_exit(0);
    let inside: i64 = run.out().trim().parse().expect("date prints seconds");
    let outside = std::time::UNIX_EPOCH.elapsed().expect("the clock is after 1970").as_secs() as i64;
    assert!((inside - outside).abs() <= 2, "{inside} inside, {outside} outside");
}
