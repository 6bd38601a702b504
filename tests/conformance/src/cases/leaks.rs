//! Nothing of the caller or the host is seen inside.

use std::{
    fs,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
};

use glovebox_core::WorkspaceMode;

use crate::{CALLER_MARK, World, case::cases};

cases!["leaks":
    the_environment_is_clean_and_holds_only_what_was_given,
    the_environment_of_the_first_process_holds_nothing_of_the_caller,
    no_process_of_the_host_is_seen,
    command_lines_of_the_host_are_not_seen,
    no_descriptor_of_the_caller_is_open,
    host_paths_do_not_show_in_the_mount_table,
    group_paths_of_the_host_are_not_seen,
    system_v_memory_of_the_host_is_not_reachable,
    keys_of_the_caller_are_not_reachable,
    the_folder_of_the_kernels_devices_is_empty,
    folders_of_the_host_that_are_not_allowed_are_not_there,
    accounts_of_the_host_are_not_seen,
    abstract_sockets_of_the_host_are_not_reachable needs(scoped_sockets),
    other_sandboxes_are_not_reachable,
    the_terminal_of_the_caller_is_not_reachable,
];

async fn the_environment_is_clean_and_holds_only_what_was_given(w: World) {
    let run = w.sandbox().env("GIVEN", "a b\nc=d").env("EMPTY", "").run(["env", "-0"]).await.expect_exit(0);
    let out = run.out();
    let entries: Vec<&str> = out.split('\0').filter(|entry| !entry.is_empty()).collect();
    for entry in &entries {
        let name = entry.split('=').next().unwrap_or_default();
        assert!(["PATH", "HOME", "LANG", "TERM", "GIVEN", "EMPTY"].contains(&name), "{entry} was not given");
    }
    for expected in ["HOME=/home/user", "GIVEN=a b\nc=d", "EMPTY="] {
        assert!(entries.contains(&expected), "{expected} is not there: {entries:?}");
    }
    assert!(!out.contains(CALLER_MARK.1), "{out}");
}

async fn the_environment_of_the_first_process_holds_nothing_of_the_caller(w: World) {
    for user in ["user", "root"] {
        let run = w.sandbox().user(user).sh("cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'").await;
        assert!(run.out().contains("HOME="), "not even the program's own environment was read\n{}", run.story());
        assert!(!run.out().contains(CALLER_MARK.0) && !run.out().contains("CARGO"), "{}", run.story());
    }
}

async fn no_process_of_the_host_is_seen(w: World) {
    let run = w.sandbox().sh("echo $$; ls /proc | grep -E '^[0-9]+$'").await.expect_exit(0);
    let out = run.out();
    let mut pids = out.lines().map(|line| line.parse::<u32>().expect("process ids are numbers"));
    let shell = pids.next().expect("the shell says its id");
    let pids: Vec<u32> = pids.collect();
    assert!(pids.contains(&shell), "{pids:?}");
    // The guest and its helper where they can be seen, the shell, ls and grep; nothing else can be there.
    assert!(pids.len() <= 6 && pids.iter().all(|pid| *pid < 64), "{pids:?}");
}

async fn command_lines_of_the_host_are_not_seen(w: World) {
    for user in ["user", "root"] {
        let run = w.sandbox().user(user).sh("cat /proc/[12]/cmdline /proc/[12]/comm | tr '\\0' ' '").await;
        assert!(!run.out().contains("conformance") && !run.out().contains('/'), "{}", run.story());
        let links = w.sandbox().user(user).sh("readlink /proc/[12]/exe /proc/[12]/cwd /proc/[12]/root").await;
        let host = w.probe().parent().expect("the probe lies in a folder").to_string_lossy().into_owned();
        assert!(!links.out().contains(&host), "{}", links.story());
    }
}

async fn no_descriptor_of_the_caller_is_open(w: World) {
    w.sandbox().probe("raw-fd-scan").await.expect_exit(0).expect_out("0\n1\n2\n");
    let run = w.sandbox().probe("fds").await.expect_exit(0);
    for line in run.out().lines() {
        let (_, target) = line.split_once(' ').expect("a descriptor and what it is");
        let harmless = target.starts_with("pipe:") || target.starts_with("socket:") || target == "/dev/null";
        assert!(harmless, "{line}");
    }
}

async fn host_paths_do_not_show_in_the_mount_table(w: World) {
    let folder = w.folder("telltale-folder");
    let tables = "cat /proc/mounts /proc/self/mountinfo /proc/1/mountinfo 2>/dev/null";
    let run = w.sandbox().workspace(&folder, WorkspaceMode::Overlay).sh(tables).await;
    assert!(run.out().contains("/workspace"), "{}", run.story());
    assert!(!run.out().contains("telltale"), "{}", run.story());
    let run = w.sandbox().workspace(&folder, WorkspaceMode::ReadWrite).sh("cat /proc/mounts").await;
    assert!(!run.out().contains("telltale"), "{}", run.story());
}

async fn group_paths_of_the_host_are_not_seen(w: World) {
    let run = w.sandbox().sh("cat /proc/self/cgroup /proc/1/cgroup /proc/self/mountinfo; ls /sys/fs/cgroup").await;
    assert!(!run.out().contains("/glovebox/") && !run.out().contains("sb_"), "{}", run.story());
    assert!(!run.out().contains("cgroup2 "), "{}", run.story());
}

async fn system_v_memory_of_the_host_is_not_reachable(w: World) {
    let planted = w.plant(&["hold-shm", "190714"]);
    assert_eq!(planted.first, "held ok");
    let run = w.sandbox().probe("ipc 190714").await.expect_exit(0);
    assert_eq!(run.fact("shmget"), "ENOENT");
    for kind in ["listed_shm", "listed_msg", "listed_sem"] {
        assert_eq!(run.number(kind), 0, "{kind}");
    }
}

async fn keys_of_the_caller_are_not_reachable(w: World) {
    let name = format!("glovebox-conformance-{}", std::process::id());
    let planted = w.plant(&["key-add", &name]);
    let serial = planted.first.strip_prefix("session ").expect("the host has keyrings").to_owned();
    for user in ["user", "root"] {
        let run = w.sandbox().user(user).probe(&format!("key-reach {name} {serial}")).await.expect_exit(0);
        for way in ["search-session", "search-user", "search-user-session", "read-by-serial"] {
            assert_ne!(run.fact(way), "ok", "{way}");
        }
        assert_eq!(run.fact("listed"), "false");
    }
}

async fn the_folder_of_the_kernels_devices_is_empty(w: World) {
    w.sandbox().sh("ls -A /sys 2>/dev/null; true").await.expect_exit(0).expect_out("");
}

async fn folders_of_the_host_that_are_not_allowed_are_not_there(w: World) {
    // Empty folders of their own are fine, because programs expect some; what the host has in them is not.
    let line = "ls -A /home; find /root /var /srv /mnt /media /boot /run /host /old_root ! -type d ! -type l 2>/dev/null; \
                find /var/* /root/* /run/* -mindepth 1 2>/dev/null; \
                ls -d /etc/ssl/private /etc/ssh /etc/shadow /etc/sudoers /lost+found 2>/dev/null; true";
    w.sandbox().user("root").sh(line).await.expect_exit(0).expect_out("user\n");
}

async fn accounts_of_the_host_are_not_seen(w: World) {
    let run = w.sandbox().sh("cat /etc/passwd /etc/group /etc/hosts /etc/resolv.conf").await;
    let inside = run.out();
    for line in fs::read_to_string("/etc/passwd").expect("the host has accounts").lines() {
        let name = line.split(':').next().unwrap_or_default();
        let own = ["root", "nobody", "user"].contains(&name);
        assert!(own || !inside.lines().any(|l| l.starts_with(&format!("{name}:"))), "{name} is seen inside");
    }
    let host_name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert!(!inside.split_whitespace().any(|word| word == host_name), "{}", run.story());
}

async fn abstract_sockets_of_the_host_are_not_reachable(w: World) {
    let name = format!("glovebox-conformance-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("the name fits");
    let _listener = UnixListener::bind_addr(&address).expect("the host can listen");
    let run = w.sandbox().probe(&format!("abstract-socket {name}")).await.expect_exit(0);
    assert_eq!(run.fact("connect"), "ECONNREFUSED");
    let run = w.sandbox().network_full().probe(&format!("abstract-socket {name}")).await.expect_exit(0);
    assert_ne!(run.fact("connect"), "ok", "the host's network brings the host's abstract sockets");
}

async fn other_sandboxes_are_not_reachable(w: World) {
    let one = w.sandbox().create().await;
    w.sandbox().inside(&one).sh("echo mine > /tmp/mine; echo mine > /dev/shm/mine").await.expect_exit(0);
    let other = w.sandbox().sh("ls /tmp /dev/shm; ls /proc | grep -cE '^[0-9]+$'").await;
    assert!(!other.out().contains("mine"), "{}", other.story());
    one.destroy().await.expect("the sandbox can be destroyed");
}

async fn the_terminal_of_the_caller_is_not_reachable(w: World) {
    let run = w.sandbox().probe("read /dev/tty /dev/console /dev/pts/0").await.expect_exit(0);
    for path in ["/dev/tty", "/dev/console", "/dev/pts/0"] {
        assert_ne!(run.fact(path), "ok", "{path}");
    }
}
