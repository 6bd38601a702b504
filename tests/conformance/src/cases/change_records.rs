//! The whole record of what changed, with contents; and what is special where files are reached through the guest alone.

use std::{
    fs,
    io::Read,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use glovebox_core::{
    Access, Change, FileKind, FileState, Obstacle, SandboxSpec, WORKING_DIR, Workspace, WorkspaceMode,
};
use glovebox_engine::{Engine, NewSandbox};
use glovebox_ledger::{Blobs, Ledger};

use super::living::{create, destroy, request, run};
use crate::{World, case::cases, finished::Finished};

cases!["change_records":
    a_record_holds_what_was_on_the_host_and_what_is_inside needs(workspace_overlay),
    a_record_of_a_sandbox_that_was_started_again_is_the_same needs(living),
    a_file_whose_time_was_set_back_is_a_change needs(workspace_overlay),
    a_mount_within_a_workspace_hides_what_is_there_and_is_not_touched needs(mounts),
    names_that_are_no_text_are_told_and_cannot_be_applied,
    a_workspace_that_does_not_fit_is_not_copied needs(files_through_guest),
    what_cannot_be_copied_of_a_workspace_is_said needs(files_through_guest),
    a_folder_that_nobody_may_read_makes_the_changes_incomplete needs(files_through_guest),
    a_workspace_is_copied_again_for_a_sandbox_that_was_reset needs(files_through_guest),
];

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        fs::create_dir_all(folder.join(name).parent().expect("a folder")).expect("the host may");
        fs::write(folder.join(name), text).expect("the host may");
    }
}

fn overlay(folder: &Path) -> SandboxSpec {
    let workspace = Some(Workspace { source: folder.to_owned(), mode: WorkspaceMode::Overlay });
    SandboxSpec { workspace, ..SandboxSpec::default() }
}

fn recording(w: &World) -> (Engine, Blobs) {
    let ledger = Ledger::below(w.folder("ledger"));
    let blobs = ledger.blobs().expect("there is room for contents");
    (w.engine().clone().with_ledger(ledger), blobs)
}

/// A change in one line: what was there, what is there, and what is in the way.
fn line(change: &Change, blobs: &Blobs) -> String {
    let state = |state: &Option<FileState>| match state {
        None => "nothing".to_owned(),
        Some(FileState { mode, kind }) => match kind {
            FileKind::File { sha256: Some(sha256), .. } => {
                let mut text = String::new();
                let mut blob = blobs.open_blob(&sha256.parse().expect("a hash")).expect("it was kept");
                blob.read_to_string(&mut text).expect("it is text");
                format!("{mode:o} {text:?}")
            }
            FileKind::File { not_kept, .. } => format!("{mode:o} {not_kept:?}"),
            FileKind::Symlink { target } => format!("-> {target}"),
            FileKind::Directory => format!("{mode:o} folder"),
            FileKind::Special => "special".to_owned(),
        },
    };
    let obstacle = change.obstacle.map_or(String::new(), |obstacle| format!(" {obstacle:?}"));
    format!("{}: {}, {}{obstacle}", change.path, state(&change.before), state(&change.after))
}

/// Changes a file after this moment, as the kernel's clock for files has it: that goes by ticks.
fn change_later(file: &Path) {
    let now = std::time::SystemTime::now();
    loop {
        fs::write(file, "two\n").expect("the host may");
        if fs::metadata(file).and_then(|file| file.modified()).expect("the file is there") > now {
            return;
        }
    }
}

const EDIT: &str = "echo new > edited; echo same > same; echo NEW > meanwhile; rm gone; mv folder moved; \
    echo more > moved/b; ln -sf nowhere link; chmod 750 script; mkdir empty; rm -r tree; echo x > tree; \
    rm was; mkdir was; echo in > was/in; mkfifo pipe; echo out > ../outputs/out";

const EDITED: [&str; 17] = [
    "agent_workspace/edited: 644 \"old\\n\", 644 \"new\\n\"",
    "agent_workspace/empty: nothing, 755 folder",
    "agent_workspace/folder: 755 folder, nothing",
    "agent_workspace/folder/a: 644 \"a\\n\", nothing",
    "agent_workspace/gone: 644 \"gone\\n\", nothing",
    "agent_workspace/link: -> edited, -> nowhere",
    "agent_workspace/meanwhile: 644 \"two\\n\", 644 \"NEW\\n\" ChangedMeanwhile",
    "agent_workspace/moved: nothing, 755 folder",
    "agent_workspace/moved/a: nothing, 644 \"a\\n\"",
    "agent_workspace/moved/b: nothing, 644 \"more\\n\"",
    "agent_workspace/pipe: nothing, special",
    "agent_workspace/script: 4755 \"#!\\n\", 750 \"#!\\n\"",
    "agent_workspace/tree: 755 folder, 644 \"x\\n\"",
    "agent_workspace/tree/leaf: 644 \"leaf\\n\", nothing",
    "agent_workspace/was: 644 \"file\\n\", 755 folder",
    "agent_workspace/was/in: nothing, 644 \"in\\n\"",
    "outputs/out: nothing, 644 \"out\\n\"",
];

/// A project of which everything that can happen to files will happen to some.
fn project(w: &World) -> std::path::PathBuf {
    let folder = w.folder("project");
    write(&folder, &[("edited", "old\n"), ("same", "same\n"), ("meanwhile", "one\n"), ("gone", "gone\n")]);
    write(&folder, &[("folder/a", "a\n"), ("tree/leaf", "leaf\n"), ("script", "#!\n"), ("was", "file\n")]);
    write(&folder, &[("deep/down/kept", "kept\n")]);
    symlink("edited", folder.join("link")).expect("the host may");
    fs::set_permissions(folder.join("script"), fs::Permissions::from_mode(0o4755)).expect("the host may");
    folder
}

async fn a_record_holds_what_was_on_the_host_and_what_is_inside(w: World) {
    let (folder, (engine, blobs)) = (project(&w), recording(&w));
    let sandbox = engine.create(overlay(&folder)).await.unwrap_or_else(|error| panic!("{error}"));
    change_later(&folder.join("meanwhile"));
    Finished(sandbox.run(request(EDIT)).await.expect("a result")).expect_exit(0);
    let record = sandbox.change_record(Vec::new()).await.expect("the changes are told");
    let lines: Vec<String> = record.changes.iter().map(|change| line(change, &blobs)).collect();
    assert_eq!((&lines[..], record.truncated), (&EDITED.map(str::to_owned)[..], false));
    sandbox.destroy().await.expect("it can be destroyed");
}

async fn a_record_of_a_sandbox_that_was_started_again_is_the_same(w: World) {
    let (folder, (engine, blobs)) = (project(&w), recording(&w));
    let new = NewSandbox { spec: overlay(&folder), ..NewSandbox::default() };
    let sandbox = engine.create_living(new).await.unwrap_or_else(|error| panic!("{error}"));
    change_later(&folder.join("meanwhile"));
    Finished(sandbox.run(request(EDIT)).await.expect("a result")).expect_exit(0);
    let id = sandbox.id().to_string();
    drop(sandbox);
    for again in [false, true] {
        if again {
            engine.stop(&id).await.expect("it can be stopped");
            engine.restart(&id).await.unwrap_or_else(|error| panic!("{error}"));
        }
        let record = engine.sandbox_changes(&id).await.expect("the changes are told").record;
        let lines: Vec<String> = record.changes.iter().map(|change| line(change, &blobs)).collect();
        assert_eq!((&lines[..], record.truncated), (&EDITED.map(str::to_owned)[..], false));
    }
    engine.destroy(&id).await.expect("it can be destroyed");
}

async fn a_file_whose_time_was_set_back_is_a_change(w: World) {
    let folder = w.folder("work");
    write(&folder, &[("a", "old\n"), ("b", "b\n")]);
    let setup = w.sandbox().workspace(&folder, WorkspaceMode::Overlay);
    let run = setup.sh("touch -r a mark; echo new > a; touch -r mark a; rm mark; touch b").await.expect_exit(0);
    assert_eq!(run.changes.modified, ["agent_workspace/a"]);
    assert!(run.changes.added.is_empty() && run.changes.deleted.is_empty(), "{:?}", run.changes);
}

async fn a_mount_within_a_workspace_hides_what_is_there_and_is_not_touched(w: World) {
    let (folder, mounted) = (w.folder("work"), w.folder("mounted"));
    write(&folder, &[("data/hidden", "hidden\n"), ("seen", "seen\n")]);
    write(&mounted, &[("own", "own\n")]);
    let target = format!("{WORKING_DIR}/data");
    let setup = w.sandbox().workspace(&folder, WorkspaceMode::Overlay).mount(&mounted, &target, Access::ReadWrite);
    let run = setup.sh("ls data; cat seen; echo 1 > data/made; echo 1 > new").await.expect_exit(0);
    let run = run.expect_out("own\nseen\n");
    assert_eq!((&run.changes.added[..], run.changes.deleted.len()), (&["agent_workspace/new".to_owned()][..], 0));
    assert!(mounted.join("made").exists() && !mounted.join("hidden").exists());
}

async fn names_that_are_no_text_are_told_and_cannot_be_applied(w: World) {
    let (engine, _) = recording(&w);
    let sandbox = engine.create(SandboxSpec::default()).await.unwrap_or_else(|error| panic!("{error}"));
    let line = r"echo 1 > $(printf 'a\377b'); ln -s $(printf '\376') link; echo 1 > fine";
    Finished(sandbox.run(request(line)).await.expect("a result")).expect_exit(0);
    let record = sandbox.change_record(Vec::new()).await.expect("the changes are told");
    let told: Vec<_> = record.changes.iter().map(|change| (change.path.as_str(), change.obstacle)).collect();
    let odd = Some(Obstacle::NameNotUtf8);
    let wanted = [("agent_workspace/a\u{fffd}b", odd), ("agent_workspace/fine", None), ("agent_workspace/link", odd)];
    assert_eq!(told, wanted);
    sandbox.destroy().await.expect("it can be destroyed");
}

async fn a_workspace_that_does_not_fit_is_not_copied(w: World) {
    let folder = w.folder("large");
    write(&folder, &[("large", &"x".repeat(3 << 20))]);
    let many = w.folder("many");
    (0..400).for_each(|number| write(&many, &[(&format!("f{number}"), "")]));
    let large = w.sandbox().workspace(&folder, WorkspaceMode::Overlay).disk("2m");
    for setup in [large, w.sandbox().workspace(&many, WorkspaceMode::Overlay).inodes(200)] {
        let refused = setup.try_run(["/bin/true"]).await.expect_err("there is no room");
        assert_eq!(refused.code.as_str(), "disk_full", "{refused}");
        assert!(refused.message.contains("workspace"), "{refused}");
        assert!(refused.hint.is_some_and(|hint| hint.contains("--disk") && hint.contains("--inodes")));
    }
}

async fn what_cannot_be_copied_of_a_workspace_is_said(w: World) {
    let folder = w.folder("work");
    write(&folder, &[("file", "file\n")]);
    let _socket = std::os::unix::net::UnixListener::bind(folder.join("socket")).expect("the host may");
    let run = w.sandbox().workspace(&folder, WorkspaceMode::Overlay).sh("ls; rm file").await.expect_exit(0);
    let run = run.expect_out("file\n");
    assert_eq!((run.changes.added.len(), &run.changes.deleted[..]), (0, &["agent_workspace/file".to_owned()][..]));
    assert!(run.warnings.iter().any(|warning| warning.message.contains("socket")), "{:?}", run.warnings);
}

async fn a_folder_that_nobody_may_read_makes_the_changes_incomplete(w: World) {
    let folder = w.folder("work");
    write(&folder, &[("shut/file", "file\n"), ("open", "open\n")]);
    let setup = w.sandbox().workspace(&folder, WorkspaceMode::Overlay);
    let run = setup.sh("chmod 0 shut; echo 1 > open").await.expect_exit(0);
    assert!(run.changes.truncated, "{:?}", run.changes);
    assert_eq!(run.changes.modified, ["agent_workspace/open", "agent_workspace/shut"]);
    assert!(run.changes.deleted.is_empty(), "what cannot be seen is not gone: {:?}", run.changes);
}

async fn a_workspace_is_copied_again_for_a_sandbox_that_was_reset(w: World) {
    let folder = w.folder("work");
    write(&folder, &[("a", "first\n")]);
    let sandbox = create(&w, NewSandbox { spec: overlay(&folder), ..NewSandbox::default() }).await;
    let id = sandbox.id();
    run(&sandbox, "echo mine > a; cat a").await.expect_out("mine\n");
    drop(sandbox);
    write(&folder, &[("a", "second\n")]);
    let again = w.engine().reset(&id.to_string()).await.unwrap_or_else(|error| panic!("{error}"));
    run(&again, "cat a").await.expect_out("second\n");
    let changes = again.changes().await.expect("the changes are told");
    assert!(changes.added.is_empty() && changes.modified.is_empty() && changes.deleted.is_empty(), "{changes:?}");
    drop(again);
    destroy(&w, id).await;
}
