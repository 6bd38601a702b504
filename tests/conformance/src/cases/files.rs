//! Files that are copied in, and where programs may write.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::{World, case::cases};

const WORK: &str = "/workspace/agent_workspace";

cases!["files":
    files_are_copied_in_with_their_bytes_and_modes,
    a_file_of_the_host_is_copied_in_and_not_touched,
    a_folder_of_the_host_is_copied_in_whole,
    files_that_are_copied_in_belong_to_the_user,
    a_large_file_is_copied_in,
    files_may_be_copied_into_the_home_and_temporary_folders,
    a_program_that_is_copied_in_can_be_run,
];

async fn files_are_copied_in_with_their_bytes_and_modes(w: World) {
    let bytes: Vec<u8> = (0..=255).collect();
    let setup = w.sandbox().file(&format!("{WORK}/deep/er/data.bin"), bytes.clone(), 0o640);
    let run = setup.sh("stat -c %a deep/er/data.bin >&2; cat deep/er/data.bin").await.expect_exit(0);
    assert_eq!(run.out_bytes(), bytes);
    assert_eq!(run.err(), "640\n");
}

async fn a_file_of_the_host_is_copied_in_and_not_touched(w: World) {
    let source = w.host_file("source.txt", "from the host");
    let setup = w.sandbox().host_file(&format!("{WORK}/copy.txt"), &source, 0o644);
    setup.sh("cat copy.txt; echo changed > copy.txt").await.expect_exit(0).expect_out("from the host");
    assert_eq!(fs::read_to_string(&source).expect("the file is there"), "from the host");
}

async fn a_folder_of_the_host_is_copied_in_whole(w: World) {
    let folder = w.folder("tree");
    fs::create_dir_all(folder.join("a/b")).expect("the host may");
    fs::write(folder.join("a/b/leaf"), "leaf").expect("the host may");
    fs::write(folder.join("tool"), "#!/bin/sh\necho tool\n").expect("the host may");
    fs::set_permissions(folder.join("tool"), fs::Permissions::from_mode(0o755)).expect("the host may");
    std::os::unix::fs::symlink("a/b/leaf", folder.join("link")).expect("the host may");
    let setup = w.sandbox().host_file(&format!("{WORK}/tree"), &folder, 0o755);
    setup.sh("tree/tool; cat tree/a/b/leaf tree/link").await.expect_exit(0).expect_out("tool\nleafleaf");
}

async fn files_that_are_copied_in_belong_to_the_user(w: World) {
    let setup = w.sandbox().file(&format!("{WORK}/mine"), "x", 0o600);
    setup.sh("stat -c %u:%g mine; echo more >> mine").await.expect_exit(0).expect_out("1000:1000\n");
}

async fn a_large_file_is_copied_in(w: World) {
    let setup = w.sandbox().file(&format!("{WORK}/large"), vec![7u8; 20 << 20], 0o644);
    setup.sh("wc -c < large; tr -d '\\007' < large | wc -c").await.expect_exit(0).expect_out("20971520\n0\n");
}

async fn files_may_be_copied_into_the_home_and_temporary_folders(w: World) {
    let setup = w.sandbox().file("/home/user/.netrc", "home", 0o600).file("/tmp/t", "tmp", 0o644);
    setup.sh("cat ~/.netrc /tmp/t").await.expect_exit(0).expect_out("hometmp");
}

async fn a_program_that_is_copied_in_can_be_run(w: World) {
    let setup = w.sandbox().file(&format!("{WORK}/hello"), "#!/bin/sh\necho hello $1\n", 0o755);
    setup.run(["./hello", "world"]).await.expect_exit(0).expect_out("hello world\n");
}
