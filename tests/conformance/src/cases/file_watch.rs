//! Being told what happens to the files of a living sandbox.

use glovebox_core::ErrorCode;
use glovebox_engine::{FileEvent, FileEvents, Recursion, Sandbox};

use crate::{
    World,
    case::cases,
    inside_files::{destroy, expect_refused, next_event, path, soon, write},
};

cases!["file_watch":
    creations_writes_removals_and_renames_are_told needs(namespaces),
    a_watch_without_recursion_tells_of_one_folder needs(namespaces),
    new_folders_are_watched_with_all_that_is_in_them needs(namespaces),
    a_renamed_folder_is_watched_under_its_new_name needs(namespaces),
    what_goes_where_nobody_watches_is_gone_and_what_comes_from_there_is_new needs(namespaces),
    one_file_can_be_watched needs(namespaces),
    a_watch_ends_with_what_it_watches needs(namespaces),
    what_is_lost_is_told_as_lost needs(namespaces),
    more_folders_than_can_be_watched_are_told_as_lost needs(namespaces),
    names_of_any_bytes_are_told needs(namespaces),
    what_cannot_be_watched_is_refused needs(namespaces),
    a_watch_that_is_dropped_leaves_room_for_others needs(namespaces),
];

async fn watch(sandbox: &Sandbox, name: &str, recursion: Recursion) -> FileEvents {
    soon(sandbox.files().watch(&path(name), recursion)).await.expect("it is watched")
}

/// An event in short: `create a`, `rename a b`, and `/` behind folders.
fn short(event: &FileEvent) -> String {
    let base = format!("{}/", path("."));
    let name = |path: &glovebox_core::FilePath, folder: &bool| {
        let text = path.to_string();
        format!("{}{}", text.strip_prefix(&base).unwrap_or(&text), if *folder { "/" } else { "" })
    };
    match event {
        FileEvent::Create { path, folder } => format!("create {}", name(path, folder)),
        FileEvent::Write { path } => format!("write {}", name(path, &false)),
        FileEvent::Remove { path, folder } => format!("remove {}", name(path, folder)),
        FileEvent::Rename { from, to, folder } => format!("rename {} {}", name(from, folder), name(to, folder)),
        FileEvent::Lost { .. } => "lost".to_owned(),
        other => panic!("{other:?}"),
    }
}

/// All events up to the creation of a file called `end`.
async fn up_to_end(events: &mut FileEvents) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let event = short(&next_event(events).await);
        if event.ends_with("create end") {
            return seen;
        }
        seen.push(event);
    }
}

/// The events without repetitions side by side: how often a program writes is its own affair.
fn once(mut events: Vec<String>) -> Vec<String> {
    events.dedup();
    events
}

async fn creations_writes_removals_and_renames_are_told(w: World) {
    let sandbox = w.sandbox().create().await;
    let mut events = watch(&sandbox, ".", Recursion::All).await;
    let line = "echo x > a; mv a b; echo more >> b; rm b; mkdir d; mv d e; rmdir e; ln -s nowhere l; : > end";
    w.sandbox().inside(&sandbox).sh(line).await.expect_exit(0);
    let expected = [
        "create a",
        "write a",
        "rename a b",
        "write b",
        "remove b",
        "create d/",
        "rename d/ e/",
        "remove e/",
        "create l",
    ];
    assert_eq!(once(up_to_end(&mut events).await), expected);
    // What we write ourselves is told as well, under its real name in the end.
    write(&sandbox.files(), "written", "x").await.expect("it is written");
    loop {
        if let FileEvent::Rename { to, .. } = next_event(&mut events).await {
            assert_eq!(to.name(), b"written");
            break;
        }
    }
    destroy(sandbox).await;
}

async fn a_watch_without_recursion_tells_of_one_folder(w: World) {
    let sandbox = w.sandbox().create().await;
    w.sandbox().inside(&sandbox).sh("mkdir old").await.expect_exit(0);
    let mut events = watch(&sandbox, ".", Recursion::None).await;
    w.sandbox().inside(&sandbox).sh("echo x > old/a; mkdir new; echo x > new/b; : > end").await.expect_exit(0);
    assert_eq!(up_to_end(&mut events).await, ["create new/"]);
    destroy(sandbox).await;
}

async fn new_folders_are_watched_with_all_that_is_in_them(w: World) {
    let sandbox = w.sandbox().create().await;
    w.sandbox().inside(&sandbox).sh("mkdir -p old/deep; echo x > old/deep/before").await.expect_exit(0);
    let mut events = watch(&sandbox, ".", Recursion::All).await;
    // All of it is there long before the first event is read, and some of it comes late.
    let line = "mkdir -p a/b/c; : > a/b/c/early; : > a/one; : > old/deep/new; sleep 0.3; : > a/b/c/late; : > end";
    w.sandbox().inside(&sandbox).sh(line).await.expect_exit(0);
    let mut seen = up_to_end(&mut events).await;
    assert!(seen.contains(&"create a/b/c/late".to_owned()), "{seen:?}");
    seen.sort();
    let expected = [
        "create a/",
        "create a/b/",
        "create a/b/c/",
        "create a/b/c/early",
        "create a/b/c/late",
        "create a/one",
        "create old/deep/new",
    ];
    assert_eq!(seen, expected, "each is told exactly once");
    destroy(sandbox).await;
}

async fn a_renamed_folder_is_watched_under_its_new_name(w: World) {
    let sandbox = w.sandbox().create().await;
    w.sandbox().inside(&sandbox).sh("mkdir -p one/deep").await.expect_exit(0);
    let mut events = watch(&sandbox, ".", Recursion::All).await;
    let line = "mv one two; : > two/a; : > two/deep/b; mkdir one; : > one/c; : > end";
    w.sandbox().inside(&sandbox).sh(line).await.expect_exit(0);
    let mut seen = up_to_end(&mut events).await;
    assert_eq!(seen.remove(0), "rename one/ two/");
    seen.sort();
    assert_eq!(seen, ["create one/", "create one/c", "create two/a", "create two/deep/b"]);
    destroy(sandbox).await;
}

async fn what_goes_where_nobody_watches_is_gone_and_what_comes_from_there_is_new(w: World) {
    let sandbox = w.sandbox().create().await;
    w.sandbox()
        .inside(&sandbox)
        .sh("mkdir -p in/folder out/other; : > out/other/file; : > in/file")
        .await
        .expect_exit(0);
    let mut events = watch(&sandbox, "in", Recursion::All).await;
    let line = "mv in/folder out; : > out/folder/unseen; mv in/file out; mv out/other in; : > in/end";
    w.sandbox().inside(&sandbox).sh(line).await.expect_exit(0);
    let mut seen = Vec::new();
    loop {
        let event = short(&next_event(&mut events).await);
        if event == "create in/end" {
            break;
        }
        seen.push(event);
    }
    assert_eq!(seen, ["remove in/folder/", "remove in/file", "create in/other/", "create in/other/file"]);
    destroy(sandbox).await;
}

async fn one_file_can_be_watched(w: World) {
    let sandbox = w.sandbox().create().await;
    w.sandbox().inside(&sandbox).sh(": > log; : > other").await.expect_exit(0);
    let mut events = watch(&sandbox, "log", Recursion::None).await;
    w.sandbox().inside(&sandbox).sh("echo x >> other; echo y >> log; rm log").await.expect_exit(0);
    assert_eq!(short(&next_event(&mut events).await), "write log");
    assert_eq!(short(&next_event(&mut events).await), "remove log");
    assert_eq!(soon(events.next()).await.expect("it ends"), None);
    // One that a program has open, and one that another file takes the place of.
    for line in ["exec 3> log; rm log; sleep 60", ": > log; : > new; mv new log; sleep 60"] {
        w.sandbox().inside(&sandbox).sh(": > log").await.expect_exit(0);
        let mut events = watch(&sandbox, "log", Recursion::None).await;
        let run = w.sandbox().inside(&sandbox).start(["/bin/sh", "-c", line]).await;
        while short(&next_event(&mut events).await) != "remove log" {}
        run.canceller().cancel();
    }
    destroy(sandbox).await;
}

async fn a_watch_ends_with_what_it_watches(w: World) {
    let sandbox = w.sandbox().create().await;
    for line in ["rmdir folder", "mv folder elsewhere"] {
        w.sandbox().inside(&sandbox).sh("mkdir folder").await.expect_exit(0);
        let mut events = watch(&sandbox, "folder", Recursion::All).await;
        w.sandbox().inside(&sandbox).sh(line).await.expect_exit(0);
        assert_eq!(short(&next_event(&mut events).await), "remove folder/");
        assert_eq!(soon(events.next()).await.expect("it ends"), None);
    }
    // The end of the sandbox is no end of the watch but an error.
    let mut events = watch(&sandbox, ".", Recursion::All).await;
    destroy(sandbox).await;
    expect_refused(soon(events.next()).await, ErrorCode::SandboxLost);
}

async fn what_is_lost_is_told_as_lost(w: World) {
    let sandbox = w.sandbox().create().await;
    let mut events = watch(&sandbox, ".", Recursion::All).await;
    let line = "for (1..60000) { open F, '>', \"some-name-that-is-not-short-$_\"; close F; unlink \"some-name-that-is-not-short-$_\" }";
    w.sandbox().inside(&sandbox).run(["perl", "-e", line]).await.expect_exit(0);
    let mut count = 0;
    while short(&next_event(&mut events).await) != "lost" {
        count += 1;
    }
    assert!(count < 120_000, "nothing was lost");
    // The watch goes on, and folders that were made meanwhile are watched.
    w.sandbox().inside(&sandbox).sh("mkdir after; sleep 0.2; : > after/file").await.expect_exit(0);
    while short(&next_event(&mut events).await) != "create after/file" {}
    destroy(sandbox).await;
}

async fn more_folders_than_can_be_watched_are_told_as_lost(w: World) {
    let sandbox = w.sandbox().create().await;
    let line = "for (1..9000) { mkdir \"d$_\" or die }";
    w.sandbox().inside(&sandbox).run(["perl", "-e", line]).await.expect_exit(0);
    let mut events = watch(&sandbox, ".", Recursion::All).await;
    let FileEvent::Lost { why, .. } = next_event(&mut events).await else { panic!("nothing was said") };
    assert!(why.contains("watch"), "{why}");
    w.sandbox().inside(&sandbox).sh(": > end").await.expect_exit(0);
    assert!(up_to_end(&mut events).await.is_empty(), "it is said once");
    destroy(sandbox).await;
}

async fn names_of_any_bytes_are_told(w: World) {
    let sandbox = w.sandbox().create().await;
    let mut events = watch(&sandbox, ".", Recursion::All).await;
    let wanted = [&b"new\nline"[..], b"not\xfftext", &[b'n'; 255]];
    let line = ": > \"$(printf 'new\\nline')\"; : > \"$(printf 'not\\377text')\"; : > $(printf 'n%.0s' $(seq 255))";
    w.sandbox().inside(&sandbox).sh(line).await.expect_exit(0);
    for name in wanted {
        let FileEvent::Create { path, .. } = next_event(&mut events).await else { panic!("another event") };
        assert_eq!(path.name(), name);
    }
    destroy(sandbox).await;
}

async fn what_cannot_be_watched_is_refused(w: World) {
    let sandbox = w.sandbox().create().await;
    w.sandbox().inside(&sandbox).sh("mkdir shut; chmod 000 shut; ln -s /proc proc").await.expect_exit(0);
    for (name, code) in [
        ("missing", ErrorCode::FileNotFound),
        ("shut", ErrorCode::PermissionDenied),
        ("/proc", ErrorCode::NotAnOrdinaryFile),
        ("proc", ErrorCode::NotAnOrdinaryFile),
    ] {
        expect_refused(soon(sandbox.files().watch(&path(name), Recursion::All)).await.map(drop), code);
    }
    destroy(sandbox).await;
}

async fn a_watch_that_is_dropped_leaves_room_for_others(w: World) {
    let sandbox = w.sandbox().create().await;
    // The kernel gives a user 128 instances.
    for _ in 0..300 {
        drop(watch(&sandbox, ".", Recursion::All).await);
    }
    let mut events = watch(&sandbox, ".", Recursion::All).await;
    w.sandbox().inside(&sandbox).sh(": > file").await.expect_exit(0);
    assert_eq!(short(&next_event(&mut events).await), "create file");
    destroy(sandbox).await;
}
