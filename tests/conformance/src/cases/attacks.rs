//! What an attack on the whole found: ways to hurt the host, or to lose what is known of a run, by what is left behind.

use std::{fs, os::unix::fs::PermissionsExt};

use glovebox_core::{Access, ErrorCode, LimitKind, Outcome, WorkspaceMode};

use crate::{World, case::cases, reading::read_until};

cases!["attacks":
    no_setuid_program_reaches_a_folder_of_the_host needs(mounts),
    a_huge_hollow_file_of_the_workspace_does_not_hold_up_the_end without(files_through_guest),
    a_hollow_artifact_larger_than_the_disk_is_left_out_and_said,
    names_that_are_no_text_are_left_out_and_said,
    a_path_that_is_too_long_for_the_host_loses_no_outcome,
    workspace_folders_that_root_moved_away_lose_no_outcome,
    a_daemon_that_moves_folders_about_loses_no_outcome,
    long_names_of_many_files_are_cut_off,
    a_secret_in_a_file_that_is_not_kept_is_not_on_the_host,
    a_secret_in_a_name_is_masked,
    many_files_in_a_read_write_folder_are_watched needs(mounts),
    what_lies_in_very_deep_folders_is_watched needs(mounts),
    what_one_sandbox_hoards_is_missing_neither_to_the_host_nor_to_another,
    a_command_that_is_stopped_before_it_starts_holds_up_nobody,
];

async fn no_setuid_program_reaches_a_folder_of_the_host(w: World) {
    let folder = w.folder("shared");
    let line = "cp /bin/true plain; chmod 755 plain && ! chmod 4755 plain && ! chmod 2755 plain; \
                python3 -c 'import os; os.open(\"made\", os.O_CREAT | os.O_WRONLY, 0o4755)' 2>/dev/null; [ ! -e made ]";
    w.sandbox().workspace(&folder, WorkspaceMode::ReadWrite).sh(line).await.expect_exit(0);
    let mode = fs::metadata(folder.join("plain")).expect("the file reached the host").permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

async fn a_huge_hollow_file_of_the_workspace_does_not_hold_up_the_end(w: World) {
    let folder = w.folder("images");
    let file = fs::File::create(folder.join("disk.img")).expect("the host may");
    file.set_len(60 << 30).expect("the file system has hollow files");
    let run = w.sandbox().workspace(&folder, WorkspaceMode::Overlay).sh("touch disk.img").await.expect_exit(0);
    assert_eq!(run.changes.modified, ["agent_workspace/disk.img"], "what cannot be compared counts as modified");
}

async fn a_hollow_artifact_larger_than_the_disk_is_left_out_and_said(w: World) {
    let run = w.sandbox().disk("16m").sh("truncate -s 1T /workspace/outputs/x; exit 3").await.expect_exit(3);
    assert!(run.artifacts.is_empty());
    assert_eq!(run.denials[0].target, "outputs/x");
}

async fn names_that_are_no_text_are_left_out_and_said(w: World) {
    let line = r"cd /workspace/outputs; for n in '\377' '\376'; do : > $(printf $n); done; echo fine > ok; exit 4";
    let run = w.sandbox().sh(line).await.expect_exit(4);
    assert_eq!(run.artifacts.len(), 1, "{:?}", run.artifacts);
    assert!(!run.denials.is_empty());
}

async fn a_path_that_is_too_long_for_the_host_loses_no_outcome(w: World) {
    let line = "cd /workspace/outputs; n=$(printf 'd%.0s' $(seq 250)); for i in $(seq 15); do mkdir $n && cd $n; done; \
                echo x > file; exit 5";
    w.sandbox().sh(line).await.expect_exit(5);
}

async fn workspace_folders_that_root_moved_away_lose_no_outcome(w: World) {
    w.sandbox()
        .user("root")
        .sh("mv /workspace/outputs /workspace/x; exit 6")
        .await
        .expect_outcome(&Outcome::Exited { code: 6 });
}

async fn a_daemon_that_moves_folders_about_loses_no_outcome(w: World) {
    let line = "mkdir a; for i in $(seq 200); do mkdir -p a/d$i/e; echo x > a/d$i/e/f; done; \
                (setsid sh -c 'while :; do for i in $(seq 200); do mv a/d$i a/x$i; ln -s / a/d$i; rm a/d$i; mv a/x$i a/d$i; done; done' \
                > /dev/null 2>&1 &); exit 7";
    w.sandbox().sh(line).await.expect_exit(7);
}

async fn long_names_of_many_files_are_cut_off(w: World) {
    let line = "n=$(printf 'd%.0s' $(seq 250)); for i in $(seq 15); do mkdir $n && cd $n; done; \
                seq 5000 | while read i; do : > $i; done";
    let run = w.sandbox().sh(line).await.expect_exit(0);
    let bytes: usize = run.changes.added.iter().map(String::len).sum();
    assert!(run.changes.truncated && bytes <= 16 << 20, "{bytes} bytes of names");
}

async fn a_secret_in_a_file_that_is_not_kept_is_not_on_the_host(w: World) {
    let line =
        "echo $TOKEN > /workspace/outputs/a; truncate -s 1G /workspace/outputs/a; echo $TOKEN > /workspace/outputs/b";
    let run = w.sandbox().disk("16m").secret("TOKEN", "hunter2-hunter2").sh(line).await.expect_exit(0);
    assert!(run.artifacts.is_empty() && run.denials.len() == 2, "{:?}", run.denials);
}

async fn a_secret_in_a_name_is_masked(w: World) {
    let line = "mkdir $TOKEN; echo x > /workspace/outputs/$TOKEN";
    let run = w.sandbox().secret("TOKEN", "hunter2-hunter2").sh(line).await.expect_exit(0);
    assert!(!format!("{:?}", run.0).contains("hunter2"), "the result shows the secret");
}

async fn many_files_in_a_read_write_folder_are_watched(w: World) {
    let folder = w.folder("shared");
    let line = "i=0; while :; do : > /data/f$i; i=$((i+1)); done";
    let run = w.sandbox().inodes(100).timeout("20s").mount(&folder, "/data", Access::ReadWrite).sh(line).await;
    assert!(matches!(run.outcome, Outcome::DiskFull { limit: LimitKind::Inodes, .. }), "{}", run.story());
}

async fn what_lies_in_very_deep_folders_is_watched(w: World) {
    let folder = w.folder("shared");
    let deep = "cd /data; for i in $(seq 1500); do mkdir -p d && cd ./d || exit 9; done";
    let setup = || w.sandbox().disk("16m").timeout("20s").mount(&folder, "/data", Access::ReadWrite);
    setup().sh(&format!("{deep}; echo x > file; sleep 1")).await.expect_exit(0);
    let write = "for i in 1 2 3; do head -c 8m /dev/zero > f$i; done; exec sleep 30";
    let run = setup().sh(&format!("{deep}; {write}")).await;
    assert!(matches!(run.outcome, Outcome::DiskFull { limit: LimitKind::Disk, .. }), "{}", run.story());
}

/// What the kernel counts by user, or for the whole machine.
async fn what_one_sandbox_hoards_is_missing_neither_to_the_host_nor_to_another(w: World) {
    let (input, waiting) = tokio::sync::mpsc::channel(1);
    let words = ["/probe/bin", "hoard", "inotify", "timers", "aio", "terminals"];
    let mut hoarder = w.sandbox().with_probe().open_files(8000).stdin_stream(waiting).start(words).await;
    let hoarded = read_until(&mut hoarder, "held\n").await;
    for name in ["inotify", "timers", "aio", "terminals"] {
        assert_eq!(w.plant(&["take", name]).first, format!("{name} ok"), "the host has nothing left: {hoarded}");
    }
    let other = w.sandbox().probe("take inotify timers terminals").await.expect_exit(0);
    assert_eq!(other.out(), "inotify ok\ntimers ok\nterminals ok\n", "another sandbox has nothing left: {hoarded}");
    drop(input);
    hoarder.wait().await.expect("the run ends");
}

/// The moment between a new process's change of id and its command is short, so it is tried again and again.
async fn a_command_that_is_stopped_before_it_starts_holds_up_nobody(w: World) {
    for _ in 0..8 {
        let sandbox = w.sandbox().cpus("2").create().await;
        w.sandbox().inside(&sandbox).probe("stop-next").await.expect_exit(0);
        let next = w.sandbox().inside(&sandbox).timeout("1s").grace("100ms").try_run(["true"]);
        match tokio::time::timeout(std::time::Duration::from_secs(20), next).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => assert_eq!(error.code, ErrorCode::SandboxLost, "{error}"),
            Err(_) => panic!("the run neither starts nor ends"),
        }
        sandbox.destroy().await.expect("the sandbox can be destroyed");
    }
}
