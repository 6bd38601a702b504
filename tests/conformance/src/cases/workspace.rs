//! A host directory as the working directory, in its three modes.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
};

use glovebox_core::{ChangeSet, WorkspaceMode};

use crate::{World, case::cases};

cases!["workspace":
    an_overlay_workspace_shows_the_files_of_the_host needs(workspace_overlay),
    writes_into_an_overlay_stay_inside_and_come_back_as_changes needs(workspace_overlay),
    files_that_were_only_read_are_no_changes needs(workspace_overlay),
    a_renamed_folder_of_the_host_comes_back_as_deleted_and_added needs(workspace_overlay),
    a_folder_that_was_deleted_and_made_again_hides_its_old_files needs(workspace_overlay),
    a_change_of_mode_is_a_change needs(workspace_overlay),
    links_are_changes_and_are_not_followed needs(workspace_overlay),
    changes_without_a_workspace_are_what_was_added,
    the_home_and_temporary_folders_are_never_changes,
    an_overlay_workspace_belongs_to_the_user_inside needs(workspace_overlay),
    a_read_only_workspace_cannot_be_written,
    a_read_write_workspace_writes_to_the_host_as_its_owner,
    a_read_write_workspace_of_another_owner_gives_files_that_owner needs(idmapped_mounts),
];

/// A project with a file, a folder of files and a script.
fn project(w: &World) -> PathBuf {
    let folder = w.folder("project");
    fs::create_dir(folder.join("src")).expect("the host may");
    for (name, text) in
        [("keep.txt", "keep"), ("change.txt", "old"), ("delete.txt", "x"), ("src/a", "a"), ("src/b", "b")]
    {
        fs::write(folder.join(name), text).expect("the host may");
    }
    folder
}

/// Every path below a folder with its content, mode and owner, to see that nothing was touched.
fn fingerprint(folder: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is there").flatten() {
        let path = entry.path();
        let facts = fs::symlink_metadata(&path).expect("the file is there");
        let (mode, uid, gid, modified) = (facts.mode(), facts.uid(), facts.gid(), facts.mtime_nsec());
        let content = if facts.is_file() { fs::read(&path).expect("the file is readable") } else { Vec::new() };
        lines.push(format!("{} {mode:o} {uid}:{gid} {modified} {content:?}", path.display()));
        if facts.is_dir() {
            lines.extend(fingerprint(&path));
        }
    }
    lines.sort();
    lines
}

/// Runs a line in an overlay of the project, sees that the host's files are as before, and returns the changes.
async fn changes_of(w: &World, line: &str) -> ChangeSet {
    let folder = project(w);
    let before = fingerprint(&folder);
    let run = w.sandbox().workspace(&folder, WorkspaceMode::Overlay).sh(line).await.expect_exit(0);
    assert_eq!(fingerprint(&folder), before, "the host's files were touched");
    run.changes.clone()
}

fn below(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("agent_workspace/{name}")).collect()
}

async fn an_overlay_workspace_shows_the_files_of_the_host(w: World) {
    let folder = project(&w);
    let run = w.sandbox().workspace(&folder, WorkspaceMode::Overlay).sh("cat keep.txt src/a; ls").await.expect_exit(0);
    run.expect_out("keepachange.txt\ndelete.txt\nkeep.txt\nsrc\n");
}

async fn writes_into_an_overlay_stay_inside_and_come_back_as_changes(w: World) {
    let line = "echo new > new.txt; mkdir -p made/deep; echo x > made/deep/file; echo y > change.txt; rm delete.txt";
    let changes = changes_of(&w, line).await;
    assert_eq!(changes.added, below(&["made/deep/file", "new.txt"]));
    assert_eq!(changes.modified, below(&["change.txt"]));
    assert_eq!(changes.deleted, below(&["delete.txt"]));
}

async fn files_that_were_only_read_are_no_changes(w: World) {
    let changes = changes_of(&w, "cat keep.txt src/* > /dev/null; ls -R > /dev/null").await;
    assert_eq!(changes, ChangeSet::default());
}

async fn a_renamed_folder_of_the_host_comes_back_as_deleted_and_added(w: World) {
    let changes = changes_of(&w, "mv src lib; cat lib/a lib/b > /dev/null").await;
    assert_eq!(changes.added, below(&["lib/a", "lib/b"]));
    assert_eq!(changes.deleted, below(&["src/a", "src/b"]));
    assert!(changes.modified.is_empty(), "{changes:?}");
}

async fn a_folder_that_was_deleted_and_made_again_hides_its_old_files(w: World) {
    let changes = changes_of(&w, "rm -r src; mkdir src; echo other > src/a; ls src").await;
    assert_eq!(changes.modified, below(&["src/a"]));
    assert_eq!(changes.deleted, below(&["src/b"]));
    assert!(changes.added.is_empty(), "{changes:?}");
}

async fn a_change_of_mode_is_a_change(w: World) {
    let changes = changes_of(&w, "chmod 755 keep.txt").await;
    assert_eq!(changes.modified, below(&["keep.txt"]));
    assert!(changes.added.is_empty() && changes.deleted.is_empty(), "{changes:?}");
}

async fn links_are_changes_and_are_not_followed(w: World) {
    let changes = changes_of(&w, "ln -s /etc/passwd link; ln -s /usr tree; rm keep.txt; ln -s src keep.txt").await;
    assert_eq!(changes.added, below(&["link", "tree"]));
    assert_eq!(changes.modified, below(&["keep.txt"]));
}

async fn changes_without_a_workspace_are_what_was_added(w: World) {
    let run = w.sandbox().sh("echo 1 > one; echo 2 > ../outputs/two").await.expect_exit(0);
    assert_eq!(run.changes.added, ["agent_workspace/one", "outputs/two"]);
    assert!(run.changes.modified.is_empty() && run.changes.deleted.is_empty(), "{:?}", run.changes);
}

async fn the_home_and_temporary_folders_are_never_changes(w: World) {
    let run = w.sandbox().sh("echo 1 > ~/one; echo 2 > /tmp/two; echo 3 > /dev/shm/three").await.expect_exit(0);
    assert_eq!(run.changes, ChangeSet::default());
}

async fn an_overlay_workspace_belongs_to_the_user_inside(w: World) {
    let folder = project(&w);
    fs::set_permissions(folder.join("keep.txt"), fs::Permissions::from_mode(0o600)).expect("the host may");
    let setup = w.sandbox().workspace(&folder, WorkspaceMode::Overlay);
    setup.sh("stat -c %u . keep.txt src; cat keep.txt").await.expect_exit(0).expect_out("1000\n1000\n1000\nkeep");
}

async fn a_read_only_workspace_cannot_be_written(w: World) {
    let folder = project(&w);
    let before = fingerprint(&folder);
    let line = "cat keep.txt; touch new 2>/dev/null && echo made; rm keep.txt 2>/dev/null && echo removed; \
                chmod 777 keep.txt 2>/dev/null && echo changed; true";
    w.sandbox().workspace(&folder, WorkspaceMode::ReadOnly).sh(line).await.expect_exit(0).expect_out("keep");
    assert_eq!(fingerprint(&folder), before);
}

async fn a_read_write_workspace_writes_to_the_host_as_its_owner(w: World) {
    let folder = project(&w);
    let setup = w.sandbox().workspace(&folder, WorkspaceMode::ReadWrite);
    setup.sh("echo new > new.txt; rm delete.txt; echo y > change.txt; ln -s /etc/shadow link").await.expect_exit(0);
    assert_eq!(fs::read_to_string(folder.join("new.txt")).expect("the file reached the host"), "new\n");
    assert_eq!(fs::read_to_string(folder.join("change.txt")).expect("the file is there"), "y\n");
    assert!(!folder.join("delete.txt").exists());
    assert_owned_alike(&folder, &folder.join("new.txt"));
}

async fn a_read_write_workspace_of_another_owner_gives_files_that_owner(w: World) {
    let folder = w.folder("theirs");
    chown(&folder, Some(4242), Some(4343)).expect("root may give a folder away");
    symlink("nowhere", folder.join("dangling")).expect("the host may");
    let setup = w.sandbox().workspace(&folder, WorkspaceMode::ReadWrite);
    setup.sh("stat -c %u:%g .; mkdir d; echo x > d/file").await.expect_exit(0).expect_out("1000:1000\n");
    assert_owned_alike(&folder, &folder.join("d/file"));
}

#[track_caller]
fn assert_owned_alike(folder: &Path, file: &Path) {
    let owner = |path: &Path| fs::metadata(path).map(|facts| (facts.uid(), facts.gid())).expect("it is there");
    assert_eq!(owner(file), owner(folder), "{} has another owner than its folder", file.display());
}
