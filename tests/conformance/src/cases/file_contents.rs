//! Reading and writing files of a living sandbox.

use std::io;

use bytes::Bytes;
use glovebox_core::ErrorCode;
use glovebox_engine::{Content, EntryKind, FollowLinks, Range, WriteOptions};
use tokio::sync::mpsc;

use crate::{
    World,
    case::cases,
    inside_files::{destroy, expect_refused, names, path, read, read_range, soon, write},
    reading::read_until,
};

cases!["file_contents":
    a_file_is_written_and_read_back_byte_for_byte needs(namespaces),
    a_file_that_is_written_belongs_to_the_user_and_has_its_mode needs(namespaces),
    a_part_of_a_file_can_be_read needs(namespaces),
    a_file_larger_than_the_guest_may_grow_goes_in_and_out needs(namespaces),
    a_write_that_breaks_off_leaves_the_old_file_and_nothing_else needs(namespaces),
    a_reader_sees_the_old_file_or_the_new_one_and_never_half_of_it needs(namespaces),
    a_write_keeps_the_mode_of_the_file_that_it_replaces needs(namespaces),
    a_write_replaces_a_link_and_not_what_it_leads_to needs(namespaces),
    links_inside_are_followed_within_the_sandbox needs(namespaces),
    the_kernels_own_files_are_refused_however_they_are_reached needs(namespaces),
    pipes_and_devices_are_refused_at_once needs(namespaces),
    a_socket_is_refused_at_once needs(namespaces),
    a_file_that_a_program_holds_by_a_lease_keeps_nobody_waiting needs(namespaces),
    a_part_of_a_terabyte_of_holes_is_read needs(namespaces),
    a_file_that_grows_ends_where_it_ended_when_it_was_opened needs(namespaces),
    a_file_that_shrinks_ends_where_it_ends needs(namespaces),
    a_file_that_is_replaced_while_it_is_read_stays_the_one_that_was_opened needs(namespaces),
    names_of_any_bytes_are_read_and_written needs(namespaces),
    what_the_user_may_not_do_is_not_done needs(namespaces),
    a_full_disk_is_told_and_leaves_the_old_file needs(namespaces),
    a_reader_that_stands_still_keeps_no_run_waiting needs(namespaces),
    sixty_files_are_written_and_read_at_once needs(namespaces),
];

async fn a_file_is_written_and_read_back_byte_for_byte(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let bytes: Vec<u8> = (0..1_000_003u32).map(|number| (number * 7 % 251) as u8).collect();
    assert_eq!(write(&files, "data", bytes.clone()).await.expect("it is written"), bytes.len() as u64);
    assert!(read(&files, "data").await.expect("it is read") == bytes, "the bytes differ");
    write(&files, "empty", "").await.expect("an empty file is written");
    assert_eq!(read(&files, "empty").await.expect("it is read"), b"");
    w.sandbox().inside(&sandbox).sh("wc -c < data; ls -A").await.expect_out("1000003\ndata\nempty\n");
    destroy(sandbox).await;
}

async fn a_file_that_is_written_belongs_to_the_user_and_has_its_mode(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let options = WriteOptions { mode: Some(0o751), sync: true };
    files.write(&path("tool"), options, Content::Bytes("#!/bin/sh\necho tool".into())).await.expect("it is written");
    write(&files, "plain", "x").await.expect("it is written");
    let line = "stat -c '%u:%g %a' tool plain; ./tool";
    w.sandbox().inside(&sandbox).sh(line).await.expect_out("1000:1000 751\n1000:1000 644\ntool\n");
    let setuid = WriteOptions { mode: Some(0o4755), sync: false };
    let refused = files.write(&path("root"), setuid, Content::Bytes(Bytes::new())).await;
    expect_refused(refused, ErrorCode::InvalidValue);
    destroy(sandbox).await;
}

async fn a_part_of_a_file_can_be_read(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    write(&files, "digits", "0123456789").await.expect("it is written");
    for (offset, length, expected) in [
        (0, Some(3), "012"),
        (4, Some(2), "45"),
        (7, None, "789"),
        (8, Some(99), "89"),
        (10, None, ""),
        (99, Some(1), ""),
    ] {
        let range = Range { offset, length };
        assert_eq!(read_range(&files, "digits", range).await.expect("it is read"), expected.as_bytes(), "{range:?}");
    }
    destroy(sandbox).await;
}

async fn a_file_larger_than_the_guest_may_grow_goes_in_and_out(w: World) {
    const PIECES: usize = 320;
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let (sender, receiver) = mpsc::channel(2);
    let piece = Bytes::from(vec![7; 1 << 20]);
    tokio::task::spawn_local(async move {
        for _ in 0..PIECES {
            if sender.send(Ok(piece.clone())).await.is_err() {
                return;
            }
        }
    });
    let large = path("large");
    let written = soon(files.write(&large, WriteOptions::default(), Content::Channel(receiver))).await;
    assert_eq!(written.expect("it is written"), (PIECES << 20) as u64);
    let mut stream = files.read(&large, Range::default()).await.expect("it is read");
    let mut bytes = 0;
    while let Some(chunk) = soon(stream.next()).await.expect("it is read") {
        assert!(chunk.iter().all(|byte| *byte == 7));
        bytes += chunk.len();
    }
    assert_eq!(bytes, PIECES << 20);
    destroy(sandbox).await;
}

async fn a_write_that_breaks_off_leaves_the_old_file_and_nothing_else(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    write(&files, "file", "old").await.expect("it is written");
    let (sender, receiver) = mpsc::channel(4);
    sender.send(Ok(Bytes::from(vec![1; 500_000]))).await.expect("the channel is open");
    sender.send(Err(io::ErrorKind::Interrupted.into())).await.expect("the channel is open");
    let broken = soon(files.write(&path("file"), WriteOptions::default(), Content::Channel(receiver))).await;
    expect_refused(broken, ErrorCode::FileUnreadable);
    let (sender, receiver) = mpsc::channel(4);
    sender.send(Ok(Bytes::from(vec![1; 500_000]))).await.expect("the channel is open");
    let target = path("file");
    let mut writing = Box::pin(files.write(&target, WriteOptions::default(), Content::Channel(receiver)));
    // It waits for more, and then nobody waits for it.
    let waits = tokio::time::timeout(std::time::Duration::from_millis(100), &mut writing).await;
    assert!(waits.is_err(), "a write without its end is not done");
    drop(writing);
    assert_eq!(read(&files, "file").await.expect("it is read"), b"old");
    // The guest learns of it soon after.
    let line = "for i in $(seq 100); do [ \"$(ls -A)\" = file ] && exit 0; sleep 0.05; done; ls -A; exit 1";
    w.sandbox().inside(&sandbox).sh(line).await.expect_exit(0);
    destroy(sandbox).await;
}

async fn a_reader_sees_the_old_file_or_the_new_one_and_never_half_of_it(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    write(&files, "file", "a".repeat(300_000)).await.expect("it is written");
    let line = "echo up; while [ ! -e stop ]; do cat file | fold -w 300000 | sed 's/aa*/a/;s/bb*/b/' | sort -u; done | sort -u";
    let mut run = w.sandbox().inside(&sandbox).start(["/bin/sh", "-c", line]).await;
    read_until(&mut run, "up\n").await;
    for round in 0..40 {
        let letter = if round % 2 == 0 { "b" } else { "a" };
        write(&files, "file", letter.repeat(300_000)).await.expect("it is written");
    }
    write(&files, "stop", "").await.expect("it is written");
    let result = soon(run.wait()).await.expect("the run ends");
    let seen = result.stdout.text.unwrap_or_default();
    assert!(["up\na\nb\n", "up\na\n", "up\nb\n"].contains(&seen.as_str()), "{seen:?}");
    destroy(sandbox).await;
}

async fn a_write_keeps_the_mode_of_the_file_that_it_replaces(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    w.sandbox().inside(&sandbox).sh("echo old > kept; chmod 600 kept; echo x > read-only; chmod 444 read-only").await;
    write(&files, "kept", "new").await.expect("it is written");
    write(&files, "read-only", "new").await.expect("a folder that can be written is enough");
    let line = "stat -c %a kept read-only; cat kept read-only";
    w.sandbox().inside(&sandbox).sh(line).await.expect_out("600\n444\nnewnew");
    destroy(sandbox).await;
}

async fn a_write_replaces_a_link_and_not_what_it_leads_to(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    w.sandbox().inside(&sandbox).sh("echo -n old > real; ln -s real link; ln -s /etc/passwd away; mkdir folder").await;
    write(&files, "link", "new").await.expect("it is written");
    write(&files, "away", "mine").await.expect("it is written");
    let line = "cat real link away; stat -c %F link away";
    w.sandbox().inside(&sandbox).sh(line).await.expect_out("oldnewmineregular file\nregular file\n");
    expect_refused(write(&files, "folder", "x").await, ErrorCode::IsADirectory);
    expect_refused(write(&files, "missing/file", "x").await, ErrorCode::FileNotFound);
    expect_refused(write(&files, "real/file", "x").await, ErrorCode::NotADirectory);
    destroy(sandbox).await;
}

async fn links_inside_are_followed_within_the_sandbox(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let line = "mkdir real; echo -n found > real/file; ln -s real way; ln -s /workspace/agent_workspace/way/file far; \
                ln -s ../../../../../../../../tmp/t up; echo -n tmp > /tmp/t; ln -s loop loop; ln -s /root/secret out";
    w.sandbox().inside(&sandbox).sh(line).await.expect_exit(0);
    for (name, expected) in [("way/file", "found"), ("far", "found"), ("up", "tmp")] {
        assert_eq!(read(&files, name).await.expect("it is read"), expected.as_bytes(), "{name}");
    }
    write(&files, "way/new", "through").await.expect("it is written");
    assert_eq!(read(&files, "real/new").await.expect("it is read"), b"through");
    expect_refused(read(&files, "loop").await, ErrorCode::FileFailed);
    assert!(read(&files, "out").await.is_err());
    // The same path on the host is another file.
    let host = w.host_file("of-the-host", "telltale");
    let line = format!("ln -s {} host", host.display());
    w.sandbox().inside(&sandbox).sh(&line).await.expect_exit(0);
    assert!(read(&files, "host").await.is_err());
    let link = files.stat(&path("far"), FollowLinks::No).await.expect("it is there");
    assert_eq!(link.kind, EntryKind::Symlink);
    assert_eq!(link.target.as_deref(), Some(&b"/workspace/agent_workspace/way/file"[..]));
    let file = files.stat(&path("far"), FollowLinks::Yes).await.expect("it is there");
    assert_eq!((file.kind, file.bytes, file.target), (EntryKind::File, 5, None));
    destroy(sandbox).await;
}

async fn the_kernels_own_files_are_refused_however_they_are_reached(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let line = "ln -s /proc proc; ln -s /proc/self/environ env; ln -s /proc/self/fd/0 fd; ln -s /dev/pts pts; \
                ln -s /proc/1/root root; ln -s /dev/ptmx terminal";
    w.sandbox().inside(&sandbox).sh(line).await.expect_exit(0);
    for name in ["/proc/version", "/proc/1/mem", "/sys/kernel", "/dev/null", "proc/version", "proc/1/status", "env"] {
        expect_refused(read(&files, name).await, ErrorCode::NotAnOrdinaryFile);
    }
    for name in ["fd", "root/etc/passwd", "terminal", "pts/ptmx"] {
        assert!(read(&files, name).await.is_err(), "{name} was read");
    }
    for name in ["/proc/x", "/dev/x", "/dev/shm/x", "proc/self/comm", "proc/1/comm", "pts/x"] {
        assert!(write(&files, name, "x").await.is_err(), "{name} was written");
    }
    assert!(files.set_mode(&path("proc"), 0o777).await.is_err());
    destroy(sandbox).await;
}

async fn pipes_and_devices_are_refused_at_once(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    w.sandbox().inside(&sandbox).sh("mkfifo pipe; ln -s pipe link; ln -s /dev/zero zero").await.expect_exit(0);
    for name in ["pipe", "link", "zero"] {
        expect_refused(read(&files, name).await, ErrorCode::NotAnOrdinaryFile);
    }
    // With a writer that never writes, too.
    let writer = w.sandbox().inside(&sandbox).start(["/bin/sh", "-c", "exec 3<>pipe; sleep 60"]).await;
    expect_refused(read(&files, "pipe").await, ErrorCode::NotAnOrdinaryFile);
    assert_eq!(soon(files.stat(&path("pipe"), FollowLinks::Yes)).await.expect("it is there").kind, EntryKind::Other);
    write(&files, "pipe", "replaced").await.expect("what is there is replaced");
    assert_eq!(read(&files, "pipe").await.expect("it is a file now"), b"replaced");
    drop(writer);
    destroy(sandbox).await;
}

async fn a_socket_is_refused_at_once(w: World) {
    let sandbox = w.sandbox().create().await;
    let line = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('socket')";
    w.sandbox().inside(&sandbox).run(["python3", "-c", line]).await.expect_exit(0);
    expect_refused(read(&sandbox.files(), "socket").await, ErrorCode::NotAnOrdinaryFile);
    destroy(sandbox).await;
}

async fn a_file_that_a_program_holds_by_a_lease_keeps_nobody_waiting(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    write(&files, "held", "x").await.expect("it is written");
    let line = "import fcntl, signal, time\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\nf = open('held', 'r+')\n\
                fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)\nprint('held', flush=True)\ntime.sleep(60)";
    let mut run = w.sandbox().inside(&sandbox).start(["python3", "-c", line]).await;
    read_until(&mut run, "held\n").await;
    expect_refused(read(&files, "held").await, ErrorCode::FileFailed);
    write(&files, "held", "new").await.expect("another file takes its place");
    drop(run);
    destroy(sandbox).await;
}

async fn a_part_of_a_terabyte_of_holes_is_read(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    w.sandbox().inside(&sandbox).sh("truncate -s 1T huge; printf end >> huge").await.expect_exit(0);
    let entry = files.stat(&path("huge"), FollowLinks::No).await.expect("it is there");
    assert_eq!(entry.bytes, (1 << 40) + 3);
    let range = Range { offset: (1 << 40) - 2, length: Some(100) };
    assert_eq!(read_range(&files, "huge", range).await.expect("it is read"), b"\0\0end");
    // A caller that has seen enough lets it go.
    let mut stream = files.read(&path("huge"), Range::default()).await.expect("it is read");
    assert!(soon(stream.next()).await.expect("it is read").is_some());
    drop(stream);
    w.sandbox().inside(&sandbox).sh("echo alive").await.expect_out("alive\n");
    destroy(sandbox).await;
}

/// A file of which more is under way than anybody has read.
const LARGE: usize = 4 << 20;

async fn a_file_that_grows_ends_where_it_ended_when_it_was_opened(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    write(&files, "log", vec![1; LARGE]).await.expect("it is written");
    let mut stream = files.read(&path("log"), Range::default()).await.expect("it is read");
    w.sandbox().inside(&sandbox).sh("head -c 3000000 /dev/zero >> log").await.expect_exit(0);
    let mut bytes = 0;
    while let Some(chunk) = soon(stream.next()).await.expect("it is read") {
        bytes += chunk.len();
    }
    assert_eq!((bytes, stream.entry().bytes), (LARGE, LARGE as u64));
    destroy(sandbox).await;
}

async fn a_file_that_shrinks_ends_where_it_ends(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    write(&files, "log", vec![1; LARGE]).await.expect("it is written");
    let mut stream = files.read(&path("log"), Range::default()).await.expect("it is read");
    w.sandbox().inside(&sandbox).sh("truncate -s 2000000 log").await.expect_exit(0);
    let mut bytes = 0;
    while let Some(chunk) = soon(stream.next()).await.expect("it is read") {
        bytes += chunk.len();
    }
    assert_eq!(bytes, 2_000_000);
    destroy(sandbox).await;
}

async fn a_file_that_is_replaced_while_it_is_read_stays_the_one_that_was_opened(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    write(&files, "file", vec![1; LARGE]).await.expect("it is written");
    let mut stream = files.read(&path("file"), Range::default()).await.expect("it is read");
    w.sandbox().inside(&sandbox).sh("rm file; mkdir file").await.expect_exit(0);
    let mut bytes = 0;
    while let Some(chunk) = soon(stream.next()).await.expect("it is read") {
        assert!(chunk.iter().all(|byte| *byte == 1));
        bytes += chunk.len();
    }
    assert_eq!(bytes, LARGE);
    destroy(sandbox).await;
}

async fn names_of_any_bytes_are_read_and_written(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let long = [b'n'; 255];
    for (number, name) in [&b"new\nline"[..], b"not\xfftext", b"\x1b[2J", b" ", b"-rf", &long].iter().enumerate() {
        write(&files, name, format!("{number}")).await.expect("it is written");
        assert_eq!(read(&files, name).await.expect("it is read"), format!("{number}").as_bytes());
    }
    let line = "cat \"$(printf 'new\\nline')\" \"$(printf 'not\\377text')\" ./-rf; ls -A | wc -c";
    w.sandbox().inside(&sandbox).sh(line).await.expect_out("014285\n");
    destroy(sandbox).await;
}

async fn what_the_user_may_not_do_is_not_done(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    w.sandbox()
        .inside(&sandbox)
        .sh("echo x > shut; chmod 000 shut; mkdir closed; chmod 500 closed")
        .await
        .expect_exit(0);
    expect_refused(read(&files, "shut").await, ErrorCode::PermissionDenied);
    expect_refused(write(&files, "closed/file", "x").await, ErrorCode::PermissionDenied);
    expect_refused(read(&files, "missing").await, ErrorCode::FileNotFound);
    expect_refused(read(&files, ".").await, ErrorCode::IsADirectory);
    for target in ["/etc/new", "/usr/bin/new", "/new"] {
        let error = write(&files, target, "x").await.expect_err("the root is not the user's");
        assert!(matches!(error.code, ErrorCode::ReadOnly | ErrorCode::PermissionDenied), "{error}");
    }
    destroy(sandbox).await;
}

async fn a_full_disk_is_told_and_leaves_the_old_file(w: World) {
    let sandbox = w.sandbox().disk("8m").create().await;
    let files = sandbox.files();
    write(&files, "file", "old").await.expect("it is written");
    expect_refused(write(&files, "file", vec![1; 20 << 20]).await, ErrorCode::DiskFull);
    assert_eq!(read(&files, "file").await.expect("it is read"), b"old");
    assert_eq!(names(&files, ".").await, ["file"]);
    write(&files, "file", "new").await.expect("there is room again");
    destroy(sandbox).await;
}

async fn a_reader_that_stands_still_keeps_no_run_waiting(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    write(&files, "large", vec![1; 30 << 20]).await.expect("it is written");
    let mut still = Vec::new();
    for _ in 0..10 {
        still.push(files.read(&path("large"), Range::default()).await.expect("it is read"));
    }
    soon(w.sandbox().inside(&sandbox).sh("seq 100000 | tail -1")).await.expect_out("100000\n");
    assert_eq!(read_range(&files, "large", Range { offset: 5, length: Some(2) }).await.expect("it is read"), [1, 1]);
    drop(still);
    destroy(sandbox).await;
}

async fn sixty_files_are_written_and_read_at_once(w: World) {
    let sandbox = w.sandbox().create().await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..60u8 {
        let files = sandbox.files();
        tasks.spawn_local(async move {
            let name = format!("file-{number}");
            write(&files, &name, vec![number; 300_000]).await.expect("it is written");
            assert!(read(&files, &name).await.expect("it is read") == vec![number; 300_000], "{name} is mixed up");
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no request fails");
    }
    destroy(sandbox).await;
}
