//! Bytes and files of all that can be written.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use glovebox_core::{Enforcement, LimitKind, Outcome, WorkspaceMode};

use crate::{World, case::cases};

const MIB: u64 = 1 << 20;
/// A backend may give the sandbox's own folders room of their own, which a program can use as well.
const SLACK_BYTES: u64 = 256 << 10;
const SLACK_FILES: u64 = 128;
const WRITABLE: [&str; 5] = ["/workspace/agent_workspace", "/workspace/outputs", "/tmp", "/dev/shm", "/home/user"];

cases!["limits":
    the_disk_limit_holds_in_every_folder_that_can_be_written needs(disk_limit),
    all_folders_that_can_be_written_share_one_disk_limit needs(disk_limit),
    the_number_of_files_is_limited_in_every_folder needs(disk_limit),
    a_full_disk_that_the_program_survives_is_a_limit_that_was_hit needs(disk_limit),
    room_that_is_freed_can_be_used_again needs(disk_limit),
    an_overlay_workspace_is_under_the_disk_limit needs(disk_limit),
    a_file_in_a_read_write_workspace_cannot_outgrow_the_disk_limit needs(disk_limit),
    a_read_write_workspace_that_outgrows_the_disk_limit_is_watched_and_ended needs(disk_limit),
    files_that_are_deleted_while_open_count_in_a_read_write_workspace needs(disk_limit),
    files_that_are_deleted_while_open_count_in_a_living_sandbox needs(living),
    what_lies_in_very_deep_folders_counts_in_a_living_sandbox needs(living),
    a_run_is_not_ended_for_what_a_daemon_of_another_one_writes needs(run_groups),
    a_daemon_that_goes_on_writing_is_ended_at_the_disk_limit needs(living),
    nobody_watches_the_workspace_of_a_run_that_is_over needs(disk_limit),
    a_look_at_the_disk_is_over_when_its_answer_comes needs(living),
];

async fn the_disk_limit_holds_in_every_folder_that_can_be_written(w: World) {
    for folder in WRITABLE {
        let run = w.sandbox().disk("16m").probe(&format!("fill-disk {folder}/file")).await;
        let run = run.expect_outcome(&Outcome::DiskFull { code: 1, limit: LimitKind::Disk });
        assert_eq!(run.fact("stopped"), "ENOSPC", "{folder}");
        let wrote = run.number("wrote");
        assert!((12 * MIB..=16 * MIB + SLACK_BYTES).contains(&wrote), "{wrote} bytes fitted into {folder}");
    }
}

async fn all_folders_that_can_be_written_share_one_disk_limit(w: World) {
    let line = "for d in . ../outputs /tmp /dev/shm /home/user; do $P write-file $d/x 4 || exit 9; done";
    w.sandbox().disk("32m").sh_with_probe(line).await.expect_exit(0);
    w.sandbox()
        .disk("16m")
        .sh_with_probe(line)
        .await
        .expect_outcome(&Outcome::DiskFull { code: 9, limit: LimitKind::Disk });
}

async fn the_number_of_files_is_limited_in_every_folder(w: World) {
    for folder in WRITABLE {
        let run = w.sandbox().inodes(300).probe(&format!("fill-inodes {folder}")).await;
        let run = run.expect_outcome(&Outcome::DiskFull { code: 1, limit: LimitKind::Inodes });
        assert_eq!(run.fact("stopped"), "ENOSPC", "{folder}");
        let made = run.number("made");
        assert!((200..=300 + SLACK_FILES).contains(&made), "{made} files fitted into {folder}");
    }
}

async fn a_full_disk_that_the_program_survives_is_a_limit_that_was_hit(w: World) {
    let run = w.sandbox().disk("8m").sh_with_probe("$P fill-disk file; true").await.expect_exit(0);
    run.expect_limit_hit(LimitKind::Disk, true);
}

async fn room_that_is_freed_can_be_used_again(w: World) {
    let line = "for i in 1 2 3 4; do $P write-file file 12 || exit 1; rm file; done";
    let run = w.sandbox().disk("16m").sh_with_probe(line).await.expect_exit(0);
    run.expect_limit_hit(LimitKind::Disk, false);
}

async fn an_overlay_workspace_is_under_the_disk_limit(w: World) {
    let folder = w.folder("project");
    fs::write(folder.join("old"), "old").expect("the host writes");
    let run = w.sandbox().workspace(&folder, WorkspaceMode::Overlay).disk("16m").probe("fill-disk new").await;
    let run = run.expect_outcome(&Outcome::DiskFull { code: 1, limit: LimitKind::Disk });
    assert!(run.number("wrote") <= 16 * MIB + SLACK_BYTES, "{}", run.story());
    assert!(!folder.join("new").exists());
}

async fn a_file_in_a_read_write_workspace_cannot_outgrow_the_disk_limit(w: World) {
    let folder = w.open_folder("project");
    let setup = w.sandbox().workspace(&folder, WorkspaceMode::ReadWrite).disk("8m");
    let run = setup.probe("write-file large 64").await;
    assert_ne!(run.outcome, Outcome::Exited { code: 0 }, "{}", run.story());
    let size = fs::metadata(folder.join("large")).map_or(0, |file| file.len());
    assert!(size <= 8 * MIB, "the file has {size} bytes");
}

async fn a_read_write_workspace_that_outgrows_the_disk_limit_is_watched_and_ended(w: World) {
    let folder = w.open_folder("project");
    let line = "i=0; while :; do head -c 2m /dev/zero > f$i; i=$((i+1)); sleep 0.01; done";
    let setup = w.sandbox().workspace(&folder, WorkspaceMode::ReadWrite).disk("16m").timeout("20s");
    let run = setup.sh(line).await;
    assert!(matches!(run.outcome, Outcome::DiskFull { limit: LimitKind::Disk, .. }), "{}", run.story());
    let enforcement = &run.limits.enforcement;
    assert!(enforcement.values().any(|by| *by == Enforcement::Watched), "{enforcement:?}");
    assert!(size_of(&folder) < 512 * MIB, "{} MiB were written", size_of(&folder) / MIB);
}

/// Writes to files that have no name, each below what one file may have.
const DELETED: &str = "import os, time\n\
    files = []\n\
    while len(files) < 200:\n\
    \x20   files.append(open('file', 'wb', buffering=0))\n\
    \x20   os.remove('file')\n\
    \x20   files[-1].write(bytes(4 << 20))\n\
    \x20   time.sleep(0.02)\n\
    time.sleep(20)";

async fn files_that_are_deleted_while_open_count_in_a_read_write_workspace(w: World) {
    let folder = w.open_folder("project");
    let setup = w.sandbox().workspace(&folder, WorkspaceMode::ReadWrite).disk("16m").timeout("20s");
    let run = setup.run(["python3", "-c", DELETED]).await;
    assert!(matches!(run.outcome, Outcome::DiskFull { limit: LimitKind::Disk, .. }), "{}", run.story());
}

async fn files_that_are_deleted_while_open_count_in_a_living_sandbox(w: World) {
    let folder = w.folder("project");
    for workspace in [false, true] {
        let setup = w.sandbox().disk("16m");
        let setup = if workspace { setup.workspace(&folder, WorkspaceMode::Overlay) } else { setup };
        let sandbox = setup.create_living().await;
        let run = w.sandbox().inside(&sandbox).timeout("20s").run(["python3", "-c", DELETED]).await;
        assert!(
            matches!(run.outcome, Outcome::DiskFull { limit: LimitKind::Disk, .. }),
            "{workspace}: {}",
            run.story()
        );
        // What lies in memory is no file of the disk.
        let line = "import os, time\nf = os.memfd_create('x')\nos.write(f, bytes(64 << 20))\ntime.sleep(1)";
        w.sandbox().inside(&sandbox).run(["python3", "-c", line]).await.expect_exit(0);
        sandbox.destroy().await.expect("the sandbox can be destroyed");
    }
}

async fn what_lies_in_very_deep_folders_counts_in_a_living_sandbox(w: World) {
    let sandbox = w.sandbox().disk("16m").create_living().await;
    let deep = "for i in $(seq 1500); do mkdir -p d && cd ./d || exit 9; done";
    let run = |line: String| {
        let setup = w.sandbox().inside(&sandbox).timeout("20s");
        async move { setup.sh(&line).await }
    };
    run(format!("{deep}; echo x > file; sleep 1")).await.expect_exit(0);
    let used = sandbox.usage().await.expect("the usage is told").disk_bytes;
    assert!(used.is_some_and(|bytes| bytes > 1500 * 512), "{used:?}");
    let write = "for i in 1 2 3; do head -c 8m /dev/zero > f$i; done; exec sleep 30";
    let full = run(format!("{deep}; {write}")).await;
    assert!(matches!(full.outcome, Outcome::DiskFull { limit: LimitKind::Disk, .. }), "{}", full.story());
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

async fn a_run_is_not_ended_for_what_a_daemon_of_another_one_writes(w: World) {
    let sandbox = w.sandbox().disk("32m").create_living().await;
    let write = "until [ -e go ]; do sleep 0.02; done; i=0; \
                 while [ $i -lt 300 ]; do head -c 2m /dev/zero > f$i; i=$((i+1)); sleep 0.02; done; sleep 60";
    let left = format!("setsid sh -c '{write}' > /dev/null 2>&1 & echo $! > pid");
    w.sandbox().inside(&sandbox).sh(&left).await.expect_exit(0);
    let line = "touch go; while kill -0 $(cat pid) 2> /dev/null; do sleep 0.02; done; sleep 0.5; echo fine";
    let run = w.sandbox().inside(&sandbox).timeout("20s").sh(line).await;
    run.expect_exit(0).expect_out("fine\n");
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

async fn a_daemon_that_goes_on_writing_is_ended_at_the_disk_limit(w: World) {
    let sandbox = w.sandbox().disk("16m").create_living().await;
    let write = "i=0; while [ $i -lt 2000 ]; do head -c 1m /dev/zero > f$i; i=$((i+1)); sleep 0.02; done; sleep 60";
    let left = format!("setsid sh -c '{write}' > /dev/null 2>&1 & echo $! > ../outputs/pid");
    w.sandbox().inside(&sandbox).sh(&left).await.expect_exit(0);
    // Who only waits may be ended with it, where what runs write is not told apart.
    let line = "while kill -0 $(cat ../outputs/pid) 2> /dev/null; do sleep 0.02; done; echo gone";
    let mut told = 0;
    while w.sandbox().inside(&sandbox).timeout("20s").sh(line).await.outcome != (Outcome::Exited { code: 0 }) {
        told += 1;
        assert!(told < 5, "the daemon goes on");
    }
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

/// How many look at a disk now: processes of the launcher, our only child, or threads of our own where there is none. Little is read,
/// so that none is missed that is about to end.
fn watchers() -> usize {
    let threads = fs::read_dir("/proc/self/task").expect("the kernel tells of threads").flatten();
    let names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    let own = names.filter(|name| name == "glovebox-watch\n").count();
    let children = |of: &str| fs::read_to_string(format!("/proc/{of}/children")).expect("the kernel tells of children");
    let launchers = children("thread-self");
    let below = launchers.split_whitespace().map(|launcher| children(&format!("{launcher}/task/{launcher}")));
    let looks = |pid: &&str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The kernel reaps the launcher's children by itself, a moment after they ended.
        stat.split_once("(glovebox-watch) ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X', 'x']))
    };
    own + below.map(|pids| pids.split_whitespace().filter(looks).count()).sum::<usize>()
}

/// Waits until so many look at a disk that it fits.
async fn until_watchers(what: &str, fits: impl Fn(usize) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !fits(watchers()) {
        assert!(Instant::now() < deadline, "{what}: {}", watchers());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn nobody_watches_the_workspace_of_a_run_that_is_over(w: World) {
    let folder = w.open_folder("project");
    for _ in 0..50 {
        w.sandbox().workspace(&folder, WorkspaceMode::ReadWrite).sh("true").await.expect_exit(0);
        assert_eq!(watchers(), 0);
    }
    // One that takes longer is watched, and nobody watches soon after it.
    let line = "until [ -e go ]; do sleep 0.02; done";
    let mut run = w.sandbox().workspace(&folder, WorkspaceMode::ReadWrite).start(["/bin/sh", "-c", line]).await;
    let watched = async {
        until_watchers("nobody watches", |count| count > 0).await;
        fs::write(folder.join("go"), "").expect("the host writes");
    };
    tokio::join!(async { while run.next_event().await.is_some() {} }, watched);
    assert_eq!(run.wait().await.expect("a result").outcome, Outcome::Exited { code: 0 });
    until_watchers("somebody still watches", |count| count == 0).await;
}

async fn a_look_at_the_disk_is_over_when_its_answer_comes(w: World) {
    let sandbox = w.sandbox().create_living().await;
    let mut seen = 0;
    for _ in 0..200 {
        sandbox.usage().await.expect("the usage is told");
        seen += watchers();
    }
    // While something is made ahead for the first run, a keeper may look by itself.
    assert!(seen <= 2, "{seen} times somebody still looked");
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

fn size_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("the host reads").flatten();
    entries.map(|entry| entry.metadata().map_or(0, |file| file.len())).sum()
}
