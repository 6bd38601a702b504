//! Listing folders of a living sandbox, and changing what is in them.

use std::collections::BTreeSet;

use glovebox_core::{ErrorCode, shown};
use glovebox_engine::{EntryKind, FollowLinks, Page, Parents, Recursion, Replace};

use crate::{
    World,
    case::cases,
    inside_files::{destroy, expect_refused, list, names, path, read, soon, write},
};

cases!["file_folders":
    a_folder_is_listed_with_what_is_known_of_each_entry needs(namespaces),
    names_of_any_bytes_are_listed needs(namespaces),
    a_folder_of_many_entries_comes_in_pages_without_loss_or_repetition needs(namespaces),
    a_folder_of_many_entries_is_listed_in_bounded_memory needs(living),
    a_listing_goes_on_while_the_folder_changes needs(namespaces),
    a_listing_that_nobody_reads_keeps_no_run_waiting needs(namespaces),
    what_is_no_folder_is_not_listed needs(namespaces),
    folders_are_made_with_those_on_their_way needs(namespaces),
    a_folder_is_made_through_a_link_inside needs(namespaces),
    files_and_folders_are_renamed needs(namespaces),
    nothing_is_renamed_between_mounts needs(namespaces),
    files_links_and_empty_folders_are_removed needs(namespaces),
    a_folder_is_removed_with_all_that_is_in_it needs(namespaces),
    a_folder_of_any_depth_is_removed needs(namespaces),
    a_folder_that_a_program_fills_again_keeps_no_run_waiting needs(namespaces),
    modes_are_set_and_give_nobody_the_rights_of_others needs(namespaces),
    the_inode_limit_is_told_as_a_full_disk needs(namespaces),
];

async fn a_folder_is_listed_with_what_is_known_of_each_entry(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let line = "printf 12345 > file; chmod 640 file; touch -d 2020-01-02T03:04:05.678Z file; mkdir folder; \
                ln -s file link; mkfifo pipe";
    w.sandbox().inside(&sandbox).sh(line).await.expect_exit(0);
    let entries = list(&files, ".").await;
    let kinds: Vec<_> = entries.iter().map(|entry| (shown(entry.path.name()), entry.kind)).collect();
    let expected = [
        ("file", EntryKind::File),
        ("folder", EntryKind::Directory),
        ("link", EntryKind::Symlink),
        ("pipe", EntryKind::Other),
    ];
    assert_eq!(kinds, expected.map(|(name, kind)| (name.to_owned(), kind)));
    let file = &entries[0];
    assert_eq!((file.bytes, file.mode), (5, 0o640));
    assert_eq!(file.modified.to_string(), "2020-01-02T03:04:05.678Z");
    assert_eq!(file.path.to_string(), "/workspace/agent_workspace/file");
    assert_eq!(entries[2].target.as_deref(), Some(&b"file"[..]));
    assert_eq!(*file, files.stat(&path("file"), FollowLinks::No).await.expect("it is there"));
    assert!(list(&files, "folder").await.is_empty());
    assert!(names(&files, "/").await.contains(&"workspace".to_owned()));
    destroy(sandbox).await;
}

async fn names_of_any_bytes_are_listed(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let wanted = [&b"new\nline"[..], b"not\xfftext", b"\x1b[2J", &[b'n'; 255]];
    for name in wanted {
        write(&files, name, "x").await.expect("it is written");
    }
    let listed: BTreeSet<Vec<u8>> = list(&files, ".").await.iter().map(|entry| entry.path.name().to_vec()).collect();
    assert_eq!(listed, wanted.iter().map(|name| name.to_vec()).collect());
    destroy(sandbox).await;
}

async fn a_folder_of_many_entries_comes_in_pages_without_loss_or_repetition(w: World) {
    const COUNT: usize = 30_000;
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let line = format!("mkdir many; cd many; seq {COUNT} | xargs touch");
    w.sandbox().inside(&sandbox).sh(&line).await.expect_exit(0);
    assert_eq!(list(&files, "many").await.len(), COUNT);
    let (mut seen, mut after, mut pages) = (BTreeSet::new(), None, 0);
    loop {
        let page = Page { after, most: Some(4000) };
        let mut entries = soon(files.list(&path("many"), page)).await.expect("it is listed");
        let mut count = 0;
        while let Some(entry) = soon(entries.next()).await.expect("it is listed") {
            assert!(seen.insert(entry.path.name().to_vec()), "{} came twice", entry.path);
            count += 1;
        }
        assert!(count <= 4000, "a page has {count} entries");
        pages += 1;
        after = entries.cursor();
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), COUNT);
    assert!(pages >= COUNT / 4000, "{pages} pages");
    destroy(sandbox).await;
}

/// The soak test lists a million.
async fn a_folder_of_many_entries_is_listed_in_bounded_memory(w: World) {
    const COUNT: u64 = 30_000;
    let seen = crate::soak::list_many(w.engine(), w.subject(), COUNT).await.unwrap_or_else(|error| panic!("{error:#}"));
    assert!(seen.is_fine(COUNT), "{seen:?}");
}

async fn a_listing_goes_on_while_the_folder_changes(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let line = "mkdir many; cd many; seq 20000 | xargs touch; touch stays";
    w.sandbox().inside(&sandbox).sh(line).await.expect_exit(0);
    let mut entries = files.list(&path("many"), Page::default()).await.expect("it is listed");
    assert!(soon(entries.next()).await.expect("it is listed").is_some());
    w.sandbox().inside(&sandbox).sh("cd many; seq 20000 | xargs rm; touch new").await.expect_exit(0);
    let mut count = 1;
    while soon(entries.next()).await.expect("what is gone is no error").is_some() {
        count += 1;
    }
    assert!(count <= 20_002, "{count} entries");
    assert_eq!(names(&files, "many").await, ["new", "stays"]);
    destroy(sandbox).await;
}

async fn a_listing_that_nobody_reads_keeps_no_run_waiting(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    w.sandbox().inside(&sandbox).sh("mkdir many; cd many; seq 30000 | xargs touch").await.expect_exit(0);
    let mut still = Vec::new();
    for _ in 0..10 {
        still.push(files.list(&path("many"), Page::default()).await.expect("it is listed"));
    }
    soon(w.sandbox().inside(&sandbox).sh("echo alive")).await.expect_out("alive\n");
    drop(still);
    destroy(sandbox).await;
}

async fn what_is_no_folder_is_not_listed(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    w.sandbox().inside(&sandbox).sh("echo x > file; mkdir shut; chmod 000 shut; ln -s /proc proc").await.expect_exit(0);
    for (name, code) in [
        ("file", ErrorCode::NotADirectory),
        ("missing", ErrorCode::FileNotFound),
        ("shut", ErrorCode::PermissionDenied),
        ("/proc", ErrorCode::NotAnOrdinaryFile),
        ("proc", ErrorCode::NotAnOrdinaryFile),
        ("/dev", ErrorCode::NotAnOrdinaryFile),
    ] {
        expect_refused(soon(files.list(&path(name), Page::default())).await.map(drop), code);
    }
    destroy(sandbox).await;
}

async fn folders_are_made_with_those_on_their_way(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let make = async |name: &str, parents| files.make_folder(&path(name), 0o750, parents).await;
    make("one", Parents::Require).await.expect("it is made");
    expect_refused(make("one", Parents::Require).await, ErrorCode::FileExists);
    make("one", Parents::Make).await.expect("one that is there is fine");
    expect_refused(make("a/b", Parents::Require).await, ErrorCode::FileNotFound);
    make("a/b/c", Parents::Make).await.expect("it is made");
    w.sandbox()
        .inside(&sandbox)
        .sh("stat -c '%a %U' one a/b/c; echo x > file")
        .await
        .expect_out("750 user\n750 user\n");
    expect_refused(make("file", Parents::Make).await, ErrorCode::NotADirectory);
    expect_refused(make("file/x", Parents::Make).await, ErrorCode::NotADirectory);
    assert!(make("/usr/new", Parents::Make).await.is_err());
    expect_refused(make("/proc/new", Parents::Make).await, ErrorCode::NotAnOrdinaryFile);
    expect_refused(files.make_folder(&path("x"), 0o2755, Parents::Make).await, ErrorCode::InvalidValue);
    destroy(sandbox).await;
}

async fn a_folder_is_made_through_a_link_inside(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    w.sandbox().inside(&sandbox).sh("mkdir real; ln -s real way; ln -s /proc kernel").await.expect_exit(0);
    files.make_folder(&path("way/a/b"), 0o755, Parents::Make).await.expect("it is made");
    w.sandbox().inside(&sandbox).sh("ls -d real/a/b").await.expect_out("real/a/b\n");
    assert!(files.make_folder(&path("kernel/a"), 0o755, Parents::Make).await.is_err());
    destroy(sandbox).await;
}

async fn files_and_folders_are_renamed(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    write(&files, "a", "a").await.expect("it is written");
    write(&files, "b", "b").await.expect("it is written");
    let rename = async |from: &str, to: &str, replace| files.rename(&path(from), &path(to), replace).await;
    expect_refused(rename("a", "b", Replace::No).await, ErrorCode::FileExists);
    rename("a", "b", Replace::Yes).await.expect("it is replaced");
    assert_eq!(read(&files, "b").await.expect("it is read"), b"a");
    expect_refused(rename("a", "c", Replace::Yes).await, ErrorCode::FileNotFound);
    expect_refused(rename("b", "missing/c", Replace::Yes).await, ErrorCode::FileNotFound);
    w.sandbox().inside(&sandbox).sh("mkdir -p folder/full other/full; ln -s b link").await.expect_exit(0);
    rename("folder", "moved", Replace::No).await.expect("a folder is renamed");
    expect_refused(rename("moved", "other", Replace::Yes).await, ErrorCode::FolderNotEmpty);
    rename("link", "new-link", Replace::No).await.expect("a link is renamed, and not what it leads to");
    assert_eq!(names(&files, ".").await, ["b", "moved", "new-link", "other"]);
    destroy(sandbox).await;
}

async fn nothing_is_renamed_between_mounts(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    write(&files, "a", "a").await.expect("it is written");
    let moved = files.rename(&path("a"), &path("/tmp/a"), Replace::Yes).await;
    expect_refused(moved, ErrorCode::DifferentMounts);
    assert_eq!(read(&files, "a").await.expect("it is still there"), b"a");
    destroy(sandbox).await;
}

async fn files_links_and_empty_folders_are_removed(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let line = "mkdir empty full closed; echo x > full/file; ln -s full link; echo y > file; mkfifo pipe; echo z > closed/f; chmod 500 closed";
    w.sandbox().inside(&sandbox).sh(line).await.expect_exit(0);
    for name in ["empty", "link", "file", "pipe"] {
        soon(files.remove(&path(name), Recursion::None)).await.expect("it is removed");
    }
    expect_refused(files.remove(&path("full"), Recursion::None).await, ErrorCode::FolderNotEmpty);
    expect_refused(files.remove(&path("missing"), Recursion::All).await, ErrorCode::FileNotFound);
    expect_refused(files.remove(&path("closed"), Recursion::All).await, ErrorCode::PermissionDenied);
    for name in ["/", "/proc", "/proc/1", "/dev/null", "/etc/passwd", "/workspace"] {
        assert!(files.remove(&path(name), Recursion::All).await.is_err(), "{name} was removed");
    }
    assert_eq!(names(&files, ".").await, ["closed", "full"]);
    assert_eq!(names(&files, "full").await, ["file"]);
    destroy(sandbox).await;
}

async fn a_folder_is_removed_with_all_that_is_in_it(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let line = "mkdir -p keep tree/a/b tree/c; echo kept > keep/file; ln -s ../keep tree/a/link; ln -s /tmp tree/out; \
                (cd tree/c; seq 5000 | xargs touch; seq -f d%g 500 | xargs mkdir); echo x > tree/a/b/file; echo y > /tmp/y";
    w.sandbox().inside(&sandbox).sh(line).await.expect_exit(0);
    soon(files.remove(&path("tree"), Recursion::All)).await.expect("it is removed");
    assert_eq!(names(&files, ".").await, ["keep"]);
    w.sandbox().inside(&sandbox).sh("cat keep/file /tmp/y").await.expect_out("kept\ny\n");
    destroy(sandbox).await;
}

async fn a_folder_of_any_depth_is_removed(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let line = "for (1..4000) { mkdir 'deep' or die; chdir 'deep' or die; } open F, '>leaf' or die;";
    w.sandbox().inside(&sandbox).run(["perl", "-e", line]).await.expect_exit(0);
    soon(files.remove(&path("deep"), Recursion::All)).await.expect("it is removed");
    assert!(names(&files, ".").await.is_empty());
    destroy(sandbox).await;
}

async fn a_folder_that_a_program_fills_again_keeps_no_run_waiting(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let line = "mkdir -p again; echo up; while :; do mkdir -p again/a/b; : > again/a/f; : > again/g; done";
    let mut run = w.sandbox().inside(&sandbox).start(["/bin/sh", "-c", line]).await;
    crate::reading::read_until(&mut run, "up\n").await;
    let target = path("again");
    // It may win or lose this race, but it does not take the guest along.
    let removal = files.remove(&target, Recursion::All);
    let _ = tokio::time::timeout(std::time::Duration::from_millis(500), removal).await;
    soon(w.sandbox().inside(&sandbox).sh("echo alive")).await.expect_out("alive\n");
    drop(run);
    destroy(sandbox).await;
}

async fn modes_are_set_and_give_nobody_the_rights_of_others(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    w.sandbox().inside(&sandbox).sh("echo x > file; ln -s file link; mkdir folder; mkfifo pipe").await.expect_exit(0);
    files.set_mode(&path("file"), 0).await.expect("it is set");
    files.set_mode(&path("file"), 0o754).await.expect("a file that cannot be read has a mode, too");
    files.set_mode(&path("folder"), 0o1777).await.expect("it is set");
    soon(files.set_mode(&path("pipe"), 0o600)).await.expect("it is set");
    let line = "stat -c %a file folder pipe";
    w.sandbox().inside(&sandbox).sh(line).await.expect_out("754\n1777\n600\n");
    files.set_mode(&path("link"), 0o600).await.expect("it is set");
    assert_eq!(files.stat(&path("file"), FollowLinks::No).await.expect("it is there").mode, 0o600);
    for mode in [0o4755, 0o2755, 0o10_0644] {
        expect_refused(files.set_mode(&path("file"), mode).await, ErrorCode::InvalidValue);
    }
    let foreign = files.set_mode(&path("/etc/passwd"), 0o777).await.expect_err("it is not the user's");
    assert!(matches!(foreign.code, ErrorCode::PermissionDenied | ErrorCode::ReadOnly), "{foreign}");
    destroy(sandbox).await;
}

async fn the_inode_limit_is_told_as_a_full_disk(w: World) {
    let sandbox = w.sandbox().inodes(200).create().await;
    let files = sandbox.files();
    let mut result = Ok(());
    for number in 0..250 {
        result = files.make_folder(&path(format!("f{number}")), 0o755, Parents::Require).await;
        if result.is_err() {
            break;
        }
    }
    expect_refused(result, ErrorCode::DiskFull);
    destroy(sandbox).await;
}
