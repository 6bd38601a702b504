//! Further host files and folders.

use std::{fs, os::unix::fs::MetadataExt, path::PathBuf};

use glovebox_core::{Access, Mount};
use glovebox_engine::NewSandbox;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount};

use super::living::{create, destroy, run};
use crate::{World, case::cases};

cases!["mounts":
    a_read_only_folder_can_be_read_and_not_written needs(mounts),
    a_read_write_folder_reaches_the_host_with_its_owner needs(mounts),
    a_single_file_can_be_mounted needs(mounts),
    a_single_file_can_be_mounted_for_writing needs(mounts),
    a_mount_may_lie_inside_the_working_directory needs(mounts),
    mounts_below_a_mounted_folder_of_the_host_are_not_writable_through_it needs(idmapped_mounts),
    what_the_host_mounts_later_does_not_appear_inside needs(idmapped_mounts),
];

async fn a_read_only_folder_can_be_read_and_not_written(w: World) {
    let folder = w.folder("data");
    fs::write(folder.join("file"), "data").expect("the host may");
    let line = "cat /data/file; echo x > /data/file; touch /data/new; rm -f /data/file; true";
    for user in ["user", "root"] {
        let setup = w.sandbox().user(user).mount(&folder, "/data", Access::ReadOnly);
        setup.sh(line).await.expect_exit(0).expect_out("data");
    }
    assert_eq!(fs::read_to_string(folder.join("file")).expect("the file is there"), "data");
    assert_eq!(fs::read_dir(&folder).expect("the folder is there").count(), 1);
}

async fn a_read_write_folder_reaches_the_host_with_its_owner(w: World) {
    let folder = w.folder("data");
    let setup = w.sandbox().mount(&folder, "/data", Access::ReadWrite);
    setup.sh("echo written > /data/file").await.expect_exit(0);
    let facts = fs::metadata(folder.join("file")).expect("the file reached the host");
    let owner = fs::metadata(&folder).expect("the folder is there");
    assert_eq!((facts.uid(), facts.gid()), (owner.uid(), owner.gid()));
}

async fn a_single_file_can_be_mounted(w: World) {
    let file = w.host_file("one.txt", "one");
    let setup = w.sandbox().mount(&file, "/inputs/renamed.txt", Access::ReadOnly);
    let run = setup.sh("cat /inputs/renamed.txt; ls /inputs; echo x > /inputs/renamed.txt").await;
    assert_eq!(run.out(), "onerenamed.txt\n");
    assert_eq!(fs::read_to_string(&file).expect("the file is there"), "one");
}

async fn a_single_file_can_be_mounted_for_writing(w: World) {
    let file = w.host_file("one.txt", "one");
    let setup = w.sandbox().mount(&file, "/inputs/one.txt", Access::ReadWrite);
    setup.sh("echo two > /inputs/one.txt").await.expect_exit(0);
    assert_eq!(fs::read_to_string(&file).expect("the file is there"), "two\n");
}

async fn a_mount_may_lie_inside_the_working_directory(w: World) {
    let folder = w.folder("data");
    fs::write(folder.join("file"), "data").expect("the host may");
    let setup = w.sandbox().mount(&folder, "/workspace/agent_workspace/in/data", Access::ReadOnly);
    let run = setup.sh("cat in/data/file; echo fine > own").await.expect_exit(0).expect_out("data");
    assert_eq!(run.changes.added, ["agent_workspace/own"], "what is mounted is no change");
}

async fn mounts_below_a_mounted_folder_of_the_host_are_not_writable_through_it(w: World) {
    let folder = w.folder("data");
    let inner = MountedHere::new(w.folder("data/inner"));
    let setup = w.sandbox().mount(&folder, "/data", Access::ReadOnly);
    let run = setup.sh("touch /data/inner/x 2>/dev/null && echo written; true").await.expect_exit(0);
    let reached = inner.0.join("x").exists();
    assert!(!reached && run.out().is_empty(), "{}", run.story());
}

async fn what_the_host_mounts_later_does_not_appear_inside(w: World) {
    let folder = w.folder("data");
    fs::create_dir(folder.join("inner")).expect("the host may");
    // A mount that tells others of what is mounted in it, as nearly every mount of a host does.
    mount_bind(&folder, &folder).expect("the host can mount");
    let shared = MountedHere(folder.clone());
    mount_change(&folder, MountPropagationFlags::SHARED).expect("the host can share");
    let mut new = NewSandbox::default();
    new.spec.mounts.push(Mount::parse(&format!("{}:/data", folder.display())).expect("a mount"));
    let sandbox = create(&w, new).await;
    let later = MountedHere::new(folder.join("inner"));
    fs::write(folder.join("inner/later"), "").expect("the host may");
    run(&sandbox, "ls /data; ls -A /data/inner; touch /data/inner/x 2>/dev/null; true").await.expect_out("inner\n");
    destroy(&w, sandbox.id()).await;
    drop(later);
    drop(shared);
}

/// A small file system on the host, unmounted when this value is dropped.
struct MountedHere(PathBuf);

impl MountedHere {
    fn new(folder: PathBuf) -> Self {
        let mounted = mount("none", &folder, "tmpfs", MountFlags::empty(), Some(c"size=1m,mode=777"));
        mounted.expect("the host can mount");
        MountedHere(folder)
    }
}

impl Drop for MountedHere {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).expect("the host can unmount");
    }
}
