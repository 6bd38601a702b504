//! Folders of a living sandbox as archives, and folders of the host copied in and out.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    process::Command,
};

use bytes::Bytes;
use glovebox_core::{Error, ErrorCode, Result};
use glovebox_engine::{Content, Files};

use crate::{
    World,
    case::cases,
    inside_files::{destroy, expect_refused, names, path, read, soon},
};

cases!["file_archives":
    a_folder_comes_out_as_an_archive_and_goes_in_as_the_same_folder needs(namespaces),
    an_archive_is_one_that_tar_reads needs(namespaces),
    an_archive_that_tar_made_goes_in needs(namespaces),
    a_folder_of_the_host_is_copied_in_and_out needs(namespaces),
    nothing_is_made_outside_the_folder_of_the_host needs(namespaces),
    an_archive_does_not_become_terabytes needs(namespaces),
    pipes_are_not_packed_and_nobody_waits_for_them needs(namespaces),
    what_cannot_be_read_is_left_out_and_told needs(namespaces),
    a_folder_that_is_not_there_is_not_packed needs(namespaces),
    a_hostile_archive_makes_nothing_outside_its_folder needs(namespaces),
    what_is_no_archive_is_refused needs(namespaces),
    an_archive_that_fills_the_disk_is_told needs(namespaces),
    an_archive_that_nobody_reads_keeps_no_run_waiting needs(namespaces),
];

async fn pull(files: &Files, name: &str) -> (Vec<u8>, Result<(), Error>) {
    let mut all = Vec::new();
    let mut archive = match soon(files.pull_tar(&path(name))).await {
        Ok(archive) => archive,
        Err(error) => return (all, Err(error)),
    };
    loop {
        match soon(archive.next()).await {
            Ok(Some(bytes)) => all.extend_from_slice(&bytes),
            Ok(None) => return (all, Ok(())),
            Err(error) => return (all, Err(error)),
        }
    }
}

async fn push(files: &Files, name: &str, archive: impl Into<Bytes>) -> Result<()> {
    soon(files.push_tar(&path(name), Content::Bytes(archive.into()))).await
}

const TREE: &str = "mkdir -p tree/a/b tree/empty; printf one > tree/one; head -c 300000 /dev/urandom > tree/a/big; \
                    printf tool > tree/a/b/tool; chmod 750 tree/a/b/tool; ln -s ../one tree/a/link; ln -s /etc/passwd tree/out; \
                    printf x > \"tree/$(printf 'new\\nline')\"; printf y > \"tree/$(printf 'not\\377text')\"; \
                    printf z > tree/$(printf 'n%.0s' $(seq 255))";

/// What there is to know of a tree, from inside.
const FINGERPRINT: &str =
    "find . -printf '%y %m %l %s %P\\n' | grep -v '^d .* $' | sort; find . -type f -exec md5sum {} + | sort";

async fn a_folder_comes_out_as_an_archive_and_goes_in_as_the_same_folder(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    w.sandbox().inside(&sandbox).sh(TREE).await.expect_exit(0);
    let (archive, end) = pull(&files, "tree").await;
    end.expect("all is packed");
    w.sandbox().inside(&sandbox).sh("mkdir copy").await.expect_exit(0);
    push(&files, "copy", archive).await.expect("all is unpacked");
    let before = w.sandbox().inside(&sandbox).sh(&format!("cd tree; {FINGERPRINT}")).await.expect_exit(0);
    let after = w.sandbox().inside(&sandbox).sh(&format!("cd copy; {FINGERPRINT}")).await.expect_exit(0);
    let sizes_of_folders = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with("d ")).map(str::to_owned).collect()
    };
    assert_eq!(
        sizes_of_folders(&String::from_utf8_lossy(&before.out_bytes())),
        sizes_of_folders(&String::from_utf8_lossy(&after.out_bytes()))
    );
    assert_eq!(names(&files, "copy/empty").await.len(), 0);
    destroy(sandbox).await;
}

async fn an_archive_is_one_that_tar_reads(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    w.sandbox().inside(&sandbox).sh(TREE).await.expect_exit(0);
    let (archive, end) = pull(&files, "tree").await;
    end.expect("all is packed");
    let (file, folder) = (w.folder("packed").join("tree.tar"), w.folder("unpacked"));
    fs::write(&file, archive).expect("the host may");
    let unpacked = Command::new("tar").arg("-xf").arg(&file).arg("-C").arg(&folder).status().expect("tar runs");
    assert!(unpacked.success());
    assert_eq!(fs::read(folder.join("one")).expect("it is there"), b"one");
    assert_eq!(fs::metadata(folder.join("a/b/tool")).expect("it is there").permissions().mode() & 0o7777, 0o750);
    destroy(sandbox).await;
}

async fn an_archive_that_tar_made_goes_in(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let folder = w.folder("source");
    let long = "long-".repeat(50);
    fs::create_dir_all(folder.join("deep").join(&long)).expect("the host may");
    fs::write(folder.join("deep").join(&long).join("leaf"), "leaf").expect("the host may");
    symlink("deep", folder.join("link")).expect("the host may");
    for format in ["gnu", "pax", "ustar", "v7"] {
        let folder = if ["ustar", "v7"].contains(&format) { w.folder("source/deep") } else { folder.clone() };
        if ["ustar", "v7"].contains(&format) {
            fs::write(folder.join("plain"), "plain").expect("the host may");
        }
        let picked = if ["ustar", "v7"].contains(&format) { "plain" } else { "." };
        let made =
            Command::new("tar").arg(format!("--format={format}")).arg("-C").arg(&folder).args(["-c", picked]).output();
        let archive = made.expect("tar runs").stdout;
        w.sandbox().inside(&sandbox).sh(&format!("mkdir {format}")).await.expect_exit(0);
        push(&files, format, archive).await.unwrap_or_else(|error| panic!("{format}: {error}"));
    }
    for format in ["gnu", "pax"] {
        assert_eq!(read(&files, format!("{format}/link/{long}/leaf")).await.expect("it is there"), b"leaf");
    }
    assert_eq!(read(&files, "v7/plain").await.expect("it is there"), b"plain");
    destroy(sandbox).await;
}

async fn a_folder_of_the_host_is_copied_in_and_out(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let (from, to) = (w.folder("from"), w.folder("to"));
    fs::create_dir_all(from.join("a/b")).expect("the host may");
    fs::write(from.join("a/b/file"), "content").expect("the host may");
    fs::set_permissions(from.join("a/b/file"), fs::Permissions::from_mode(0o4755)).expect("the host may");
    symlink("b/file", from.join("a/link")).expect("the host may");
    w.sandbox().inside(&sandbox).sh("mkdir copy").await.expect_exit(0);
    files.push_folder(&from, &path("copy")).await.expect("it is copied in");
    w.sandbox().inside(&sandbox).sh("cat copy/a/link; stat -c %a copy/a/b/file").await.expect_out("content755\n");
    files.pull_folder(&path("copy"), &to).await.expect("it is copied out");
    assert_eq!(fs::read(to.join("a/link")).expect("it is there"), b"content");
    assert_eq!(fs::metadata(to.join("a/b/file")).expect("it is there").permissions().mode() & 0o7777, 0o755);
    destroy(sandbox).await;
}

async fn nothing_is_made_outside_the_folder_of_the_host(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let (target, outside) = (w.folder("target"), w.folder("outside"));
    fs::write(outside.join("mine"), "mine").expect("the host may");
    symlink(&outside, target.join("way")).expect("the host may");
    let line = format!(
        "mkdir -p tree/way; echo theirs > tree/way/mine; ln -s {} tree/abs; ln -s ../.. tree/up; ln -s . tree/dot; \
         ln -s dot/.. tree/trick; echo ok > tree/ok; mkfifo tree/pipe; cp /bin/true tree/setuid; chmod 6755 tree/setuid",
        outside.display()
    );
    w.sandbox().inside(&sandbox).sh(&line).await.expect_exit(0);
    // The link in the way is the host's own, and is not gone through.
    assert!(files.pull_folder(&path("tree"), &target).await.is_err());
    assert_eq!(fs::read(outside.join("mine")).expect("it is there"), b"mine");
    fs::remove_file(target.join("way")).expect("the host may");
    let error = files.pull_folder(&path("tree"), &target).await.expect_err("links were left out");
    assert_eq!(error.code, ErrorCode::FileUnreadable, "{error}");
    assert!(error.message.contains("3 files"), "{error}");
    for name in ["abs", "up", "trick", "pipe"] {
        assert!(fs::symlink_metadata(target.join(name)).is_err(), "{name} is on the host");
    }
    assert_eq!(fs::read(target.join("ok")).expect("all else was copied"), b"ok\n");
    assert_eq!(fs::metadata(target.join("setuid")).expect("it is there").permissions().mode() & 0o7777, 0o755);
    assert_eq!(fs::read_dir(&outside).expect("it is there").count(), 1);
    destroy(sandbox).await;
}

async fn an_archive_does_not_become_terabytes(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    w.sandbox().inside(&sandbox).sh("mkdir tree; truncate -s 1T tree/huge").await.expect_exit(0);
    let (archive, end) = pull(&files, "tree").await;
    expect_refused(end, ErrorCode::TooLarge);
    assert!(archive.len() < 100_000, "{} bytes came", archive.len());
    // Ten thousand names of one megabyte are ten gigabytes of archive.
    let line = "mkdir 'names'; chdir 'names'; open F, '>0'; print F 'x' x 1000000; close F; for (1..9999) { link '0', $_ or die }";
    w.sandbox().inside(&sandbox).run(["perl", "-e", line]).await.expect_exit(0);
    let mut stream = files.pull_tar(&path("names")).await.expect("it begins");
    let mut bytes = 0;
    let end = loop {
        match soon(stream.next()).await {
            Ok(Some(chunk)) => bytes += chunk.len() as u64,
            other => break other,
        }
    };
    expect_refused(end, ErrorCode::TooLarge);
    assert!(bytes < 2 << 30, "{bytes} bytes came");
    destroy(sandbox).await;
}

async fn pipes_are_not_packed_and_nobody_waits_for_them(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    w.sandbox().inside(&sandbox).sh("mkdir tree copy; mkfifo tree/pipe; echo x > tree/file").await.expect_exit(0);
    let (archive, end) = pull(&files, "tree").await;
    end.expect("pipes mean nothing elsewhere");
    push(&files, "copy", archive).await.expect("it is unpacked");
    assert_eq!(names(&files, "copy").await, ["file"]);
    destroy(sandbox).await;
}

async fn what_cannot_be_read_is_left_out_and_told(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let line = "mkdir -p tree/closed copy; echo x > tree/shut; echo y > tree/open; chmod 000 tree/shut tree/closed";
    w.sandbox().inside(&sandbox).sh(line).await.expect_exit(0);
    let (archive, end) = pull(&files, "tree").await;
    let error = end.expect_err("two things cannot be read");
    assert_eq!(error.code, ErrorCode::FileUnreadable, "{error}");
    assert!(error.message.contains('2'), "{error}");
    push(&files, "copy", archive).await.expect("the archive is whole");
    assert_eq!(names(&files, "copy").await, ["open"]);
    destroy(sandbox).await;
}

async fn a_folder_that_is_not_there_is_not_packed(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    w.sandbox().inside(&sandbox).sh("echo x > file; ln -s /proc proc").await.expect_exit(0);
    for (name, code) in [
        ("missing", ErrorCode::FileNotFound),
        ("file", ErrorCode::NotADirectory),
        ("/proc", ErrorCode::NotAnOrdinaryFile),
        ("proc", ErrorCode::NotAnOrdinaryFile),
    ] {
        expect_refused(pull(&files, name).await.1, code);
        expect_refused(push(&files, name, vec![0; 1024]).await, code);
    }
    destroy(sandbox).await;
}

/// An archive with one entry, as no honest program would make it: kind, path, link, bytes.
fn hostile(kind: u8, name: &str, link: &str, bytes: &[u8]) -> Vec<u8> {
    let mut block = [0u8; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..107].copy_from_slice(b"0006777");
    block[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
    block[136..147].copy_from_slice(b"00000000000");
    block[156] = kind;
    block[157..157 + link.len()].copy_from_slice(link.as_bytes());
    block[148..156].copy_from_slice(b"        ");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let padding = vec![0; (512 - bytes.len() % 512) % 512];
    [&block[..], bytes, &padding].concat()
}

async fn a_hostile_archive_makes_nothing_outside_its_folder(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    w.sandbox().inside(&sandbox).sh("mkdir in out; echo old > out/file; ln -s ../out in/way").await.expect_exit(0);
    let end = vec![0; 1024];
    for archive in [
        hostile(b'0', "../out/file", "", b"new"),
        hostile(b'0', "way/file", "", b"new"),
        [hostile(b'2', "made", "../out", b""), hostile(b'0', "made/file", "", b"new")].concat(),
        hostile(b'5', "way", "", b""),
        hostile(b'1', "hard", "../out/file", b""),
        hostile(b'1', "hard", "way/file", b""),
    ] {
        assert!(push(&files, "in", [archive, end.clone()].concat()).await.is_err());
    }
    assert_eq!(read(&files, "out/file").await.expect("it is there"), b"old\n");
    assert_eq!(names(&files, "out").await, ["file"]);
    let archive =
        [hostile(b'3', "device", "", b""), hostile(b'6', "pipe", "", b""), hostile(b'0', "tool", "", b"x")].concat();
    expect_refused(push(&files, "in", [archive, end].concat()).await, ErrorCode::FileUnreadable);
    let line = "ls in; stat -c %a in/tool";
    w.sandbox().inside(&sandbox).sh(line).await.expect_out("made\ntool\nway\n777\n");
    destroy(sandbox).await;
}

async fn what_is_no_archive_is_refused(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let whole = [hostile(b'0', "file", "", &[1; 5000]), vec![0; 1024]].concat();
    for bytes in [Vec::new(), b"not an archive".repeat(100), [0x1f, 0x8b].repeat(1000), whole[..3000].to_vec()] {
        expect_refused(push(&files, ".", bytes).await, ErrorCode::InvalidArchive);
    }
    push(&files, ".", whole).await.expect("the whole one is unpacked");
    destroy(sandbox).await;
}

async fn an_archive_that_fills_the_disk_is_told(w: World) {
    let sandbox = w.sandbox().disk("8m").create().await;
    let files = sandbox.files();
    let archive = [hostile(b'0', "file", "", &vec![1; 20 << 20]), vec![0; 1024]].concat();
    expect_refused(push(&files, ".", archive).await, ErrorCode::DiskFull);
    destroy(sandbox).await;
}

async fn an_archive_that_nobody_reads_keeps_no_run_waiting(w: World) {
    let sandbox = w.sandbox().create().await;
    let files = sandbox.files();
    let line = "mkdir tree; cd tree; seq 20000 | xargs touch; head -c 20000000 /dev/zero > big";
    w.sandbox().inside(&sandbox).sh(line).await.expect_exit(0);
    let mut still = Vec::new();
    for _ in 0..5 {
        still.push(files.pull_tar(&path("tree")).await.expect("it begins"));
    }
    soon(w.sandbox().inside(&sandbox).sh("echo alive")).await.expect_out("alive\n");
    drop(still);
    destroy(sandbox).await;
}
