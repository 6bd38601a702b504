//! What a run in a sandbox that stays changed, and what the sandbox changed in all.

use std::fs;

use glovebox_core::{EnvName, FileKind, InsidePath, NotKept, Outcome, SandboxState, Secret, Workspace, WorkspaceMode};
use glovebox_engine::{FileContent, InputFile, NewSandbox, Recursion};
use glovebox_ledger::Ledger;

use super::living::{create, destroy, request, run, state};
use crate::{
    World,
    case::cases,
    finished::Finished,
    inside_files::{path, write},
    leftovers::wait_until_clean,
};

cases!["run_changes":
    a_run_tells_what_it_changed_and_not_what_runs_before_it_did needs(living),
    artifacts_are_the_outputs_that_the_run_wrote needs(living),
    what_is_asked_for_by_name_is_kept_although_the_run_did_not_write_it needs(living),
    what_was_put_in_between_two_runs_is_told_by_none needs(living),
    a_file_that_is_copied_in_for_a_run_is_no_change_of_a_later_one needs(living),
    a_reset_sandbox_has_nothing_that_could_be_deleted needs(living),
    runs_at_the_same_time_tell_what_changed_while_they_were_at_work needs(living),
    all_changes_of_a_sandbox_are_told_in_every_state needs(living),
    what_is_mounted_in_a_workspace_is_no_change_of_a_stopped_sandbox needs(living),
    who_looks_at_a_stopped_sandbox_is_in_nobodys_way needs(living),
    who_gives_up_a_look_at_a_stopped_sandbox_keeps_it_from_nothing needs(living),
    what_a_run_with_a_secret_wrote_is_not_kept_by_a_later_look needs(living),
    a_sandbox_of_one_process_tells_its_runs_apart_too,
    a_sandbox_whose_workspace_was_moved_goes_on needs(living),
];

/// Added, modified and deleted, below the working directory.
#[track_caller]
fn expect(run: &Finished, changes: [&[&str]; 3]) {
    let told = [&run.changes.added, &run.changes.modified, &run.changes.deleted].map(Clone::clone);
    let wanted = changes.map(|names| names.iter().map(|name| format!("agent_workspace/{name}")).collect::<Vec<_>>());
    assert_eq!(told, wanted);
}

fn artifacts(run: &Finished) -> Vec<&str> {
    run.artifacts.iter().map(|artifact| artifact.path.as_str()).collect()
}

async fn a_run_tells_what_it_changed_and_not_what_runs_before_it_did(w: World) {
    let folder = w.folder("work");
    for name in ["kept", "edited", "gone"] {
        fs::write(folder.join(name), "old\n").expect("a file can be written");
    }
    let mut new = NewSandbox::default();
    new.spec.workspace = Some(Workspace { source: folder, mode: WorkspaceMode::Overlay });
    let sandbox = create(&w, new).await;
    expect(&run(&sandbox, "echo 1 > edited; echo 1 > added").await, [&["added"], &["edited"], &[]]);
    expect(&run(&sandbox, "cat edited added").await, [&[], &[], &[]]);
    expect(&run(&sandbox, "echo 2 >> edited; echo 2 >> added; rm gone").await, [&[], &["added", "edited"], &["gone"]]);
    expect(&run(&sandbox, "rm added; echo old > edited").await, [&[], &["edited"], &["added"]]);
    expect(&run(&sandbox, "mkdir -p a/b; echo x > a/b/x").await, [&["a/b/x"], &[], &[]]);
    expect(&run(&sandbox, "mv a c").await, [&["c/b/x"], &[], &["a/b/x"]]);
    expect(&run(&sandbox, "rm -r c").await, [&[], &[], &["c/b/x"]]);
    expect(&run(&sandbox, "true").await, [&[], &[], &[]]);
    let id = sandbox.id();
    drop(sandbox);
    destroy(&w, id).await;
}

async fn artifacts_are_the_outputs_that_the_run_wrote(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let line = "mkdir ../outputs/d; echo 1 > ../outputs/a; echo 1 > '../outputs/d/b [1]*'; echo 1 > ../outputs/c";
    assert_eq!(artifacts(&run(&sandbox, line).await), ["outputs/a", "outputs/c", "outputs/d/b [1]*"]);
    assert!(artifacts(&run(&sandbox, "echo 1 > other").await).is_empty());
    assert_eq!(artifacts(&run(&sandbox, "echo 2 > '../outputs/d/b [1]*'").await), ["outputs/d/b [1]*"]);
    let again = run(&sandbox, "echo 1 > ../outputs/a").await;
    assert_eq!(artifacts(&again), ["outputs/a"], "it was made again as it was");
    let moved = run(&sandbox, "mkdir m; echo 1 > m/x; sleep 0.1; mv m ../outputs/m; rm ../outputs/c").await;
    assert_eq!(artifacts(&moved), ["outputs/m/x"]);
    assert_eq!(
        (&moved.changes.added[..], &moved.changes.deleted[..]),
        (&["outputs/m/x".to_owned()][..], &["outputs/c".to_owned()][..])
    );
    let id = sandbox.id();
    drop(sandbox);
    destroy(&w, id).await;
}

async fn what_is_asked_for_by_name_is_kept_although_the_run_did_not_write_it(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    run(&sandbox, "echo 1 > ../outputs/a; echo 1 > ../outputs/b; echo 1 > report").await.expect_exit(0);
    let mut asking = request("echo 2 > ../outputs/b");
    asking.artifacts = vec!["agent_workspace/report".to_owned(), "outputs/*".to_owned()];
    let asked = Finished(sandbox.run(asking).await.expect("it runs"));
    assert_eq!(artifacts(&asked), ["agent_workspace/report", "outputs/a", "outputs/b"]);
    assert!(asked.denials.is_empty(), "{:?}", asked.denials);
    let id = sandbox.id();
    drop(sandbox);
    destroy(&w, id).await;
}

async fn what_was_put_in_between_two_runs_is_told_by_none(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    run(&sandbox, "echo 1 > first; echo 1 > ../outputs/first").await.expect_exit(0);
    let files = sandbox.files();
    for name in ["/workspace/agent_workspace/put", "/workspace/outputs/put"] {
        write(&files, name, "from outside").await.expect("it can be written");
    }
    files.remove(&path("first"), Recursion::None).await.expect("it can be removed");
    // The kernel's clock for files goes by ticks.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let idle = run(&sandbox, "cat put").await;
    expect(&idle, [&[], &[], &[]]);
    assert!(idle.artifacts.is_empty(), "{:?}", idle.artifacts);
    let id = sandbox.id();
    drop(sandbox);
    destroy(&w, id).await;
}

async fn a_file_that_is_copied_in_for_a_run_is_no_change_of_a_later_one(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let mut given = request("cat in; echo 1 > out");
    let target = InsidePath::absolute("/workspace/agent_workspace/in").expect("a path");
    given.files = vec![InputFile { target, content: FileContent::Bytes("given\n".into()), mode: 0o644 }];
    expect(&Finished(sandbox.run(given).await.expect("it runs")).expect_out("given\n"), [&["out"], &[], &[]]);
    expect(&run(&sandbox, "true").await, [&[], &[], &[]]);
    expect(&run(&sandbox, "echo more >> in").await, [&[], &["in"], &[]]);
    let id = sandbox.id();
    drop(sandbox);
    destroy(&w, id).await;
}

async fn a_reset_sandbox_has_nothing_that_could_be_deleted(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let id = sandbox.id();
    run(&sandbox, "echo 1 > a").await.expect_exit(0);
    drop(sandbox);
    let again = w.engine().reset(&id.to_string()).await.expect("it can be reset");
    expect(&run(&again, "echo 1 > b").await, [&["b"], &[], &[]]);
    drop(again);
    destroy(&w, id).await;
}

async fn runs_at_the_same_time_tell_what_changed_while_they_were_at_work(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    run(&sandbox, "echo 1 > before").await.expect_exit(0);
    // The kernel's clock for files goes by ticks.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let long = sandbox.start(request("echo 1 > long; until [ -e go ]; do sleep 0.01; done")).await.expect("it starts");
    let short = run(&sandbox, "until [ -s long ]; do sleep 0.01; done; echo 1 > short; touch go").await;
    for name in ["agent_workspace/go", "agent_workspace/short"] {
        assert!(short.changes.added.iter().any(|added| added == name), "{:?}", short.changes);
    }
    let long = long.wait().await.expect("it ends");
    assert_eq!(long.outcome, Outcome::Exited { code: 0 });
    assert_eq!(long.changes.added, ["go", "long", "short"].map(|name| format!("agent_workspace/{name}")));
    let id = sandbox.id();
    drop(sandbox);
    destroy(&w, id).await;
}

async fn what_a_run_with_a_secret_wrote_is_not_kept_by_a_later_look(w: World) {
    let folder = w.folder("recorded");
    let engine = w.engine().clone().with_data_dir(&folder).with_ledger(Ledger::below(&folder));
    let sandbox = engine.create_living(NewSandbox::default()).await.unwrap_or_else(|error| panic!("{error}"));
    let mut asked = request("echo key=$TOKEN > .env; ln -s $TOKEN link; echo plain > other");
    asked.command.secrets.insert(EnvName::parse("TOKEN").expect("a name"), Secret::new("hunter2-hunter2"));
    Finished(sandbox.run(asked).await.expect("a result")).expect_exit(0);
    let id = sandbox.id().to_string();
    let kept = async |path: &str| {
        let changes = engine.sandbox_changes(&id).await.expect("the changes are told").record.changes;
        let change = changes.into_iter().find(|change| change.path.ends_with(path)).expect("it is a change");
        match change.after.expect("it is there").kind {
            FileKind::File { not_kept, sha256, .. } => (not_kept, sha256.is_some()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((kept(".env").await, kept("other").await), ((Some(NotKept::Secret), false), (None, true)));
    // Nor by a run that does not know the secret.
    Finished(sandbox.run(request("echo more > third")).await.expect("a result")).expect_exit(0);
    assert_eq!(kept(".env").await, (Some(NotKept::Secret), false));
    let noted = fs::read_to_string(folder.join("sandboxes").join(&id).join("seen")).expect("a look is remembered");
    assert!(!noted.contains("hunter2") && noted.contains("third"), "{noted}");
    sandbox.destroy().await.expect("it can be destroyed");
}

async fn all_changes_of_a_sandbox_are_told_in_every_state(w: World) {
    let folder = w.folder("work");
    fs::write(folder.join("edited"), "old\n").expect("a file can be written");
    let mut new = NewSandbox::default();
    new.spec.workspace = Some(Workspace { source: folder, mode: WorkspaceMode::Overlay });
    let sandbox = create(&w, new).await;
    let id = sandbox.id();
    run(&sandbox, "echo 1 > edited").await.expect_exit(0);
    run(&sandbox, "echo 1 > added; echo 1 > ../outputs/made").await.expect_exit(0);
    drop(sandbox);
    let all = async || {
        let changes = w.engine().sandbox_changes(&id.to_string()).await.expect("the changes are told");
        assert_eq!(changes.sandbox, id);
        let names = changes.record.names();
        (names.added, names.modified, names.deleted)
    };
    let wanted = (
        vec!["agent_workspace/added".to_owned(), "outputs/made".to_owned()],
        vec!["agent_workspace/edited".to_owned()],
        Vec::new(),
    );
    assert_eq!(all().await, wanted);
    if w.features().pause {
        w.engine().pause(&id.to_string()).await.expect("it can be paused");
        assert_eq!(all().await, wanted);
        w.engine().resume(&id.to_string()).await.expect("it goes on");
    }
    w.engine().stop(&id.to_string()).await.expect("it can be stopped");
    assert_eq!(all().await, wanted);
    assert_eq!(state(&w, id).await, SandboxState::Stopped, "to look is not to start it");
    w.engine().restart(&id.to_string()).await.expect("it starts again");
    assert_eq!(all().await, wanted);
    destroy(&w, id).await;
}

async fn what_is_mounted_in_a_workspace_is_no_change_of_a_stopped_sandbox(w: World) {
    let (folder, mounted) = (w.folder("work"), w.folder("mounted"));
    for name in ["kept", "gone"] {
        fs::write(folder.join(name), "old\n").expect("a file can be written");
    }
    fs::write(mounted.join("m"), "m\n").expect("a file can be written");
    let mut new = NewSandbox::default();
    new.spec.workspace = Some(Workspace { source: folder, mode: WorkspaceMode::Overlay });
    for (source, target) in [(mounted.clone(), "a/b"), (mounted.join("m"), "file")] {
        let text = format!("{}:/workspace/agent_workspace/{target}", source.display());
        new.spec.mounts.push(glovebox_core::Mount::parse(&text).expect("a mount"));
    }
    let sandbox = create(&w, new).await;
    let id = sandbox.id();
    run(&sandbox, "cat a/b/m file; rm gone; mkdir c; echo 1 > c/new").await.expect_out("m\nm\n").expect_exit(0);
    drop(sandbox);
    let all = async || {
        let changes = w.engine().sandbox_changes(&id.to_string()).await.unwrap_or_else(|error| panic!("{error}"));
        assert!(!changes.record.truncated);
        changes.record.changes.into_iter().map(|change| change.path).collect::<Vec<_>>()
    };
    let running = all().await;
    assert_eq!(running, ["c", "c/new", "gone"].map(|name| format!("agent_workspace/{name}")));
    w.engine().stop(&id.to_string()).await.expect("it can be stopped");
    assert_eq!(all().await, running);
    // What it was shown may be gone: nothing of it is needed to look.
    fs::rename(&mounted, mounted.with_file_name("mounted elsewhere")).expect("it can be moved");
    assert_eq!(all().await, running);
    destroy(&w, id).await;
}

async fn who_looks_at_a_stopped_sandbox_is_in_nobodys_way(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let (id, text) = (sandbox.id(), sandbox.id().to_string());
    run(&sandbox, "echo 1 > added").await.expect_exit(0);
    drop(sandbox);
    w.engine().stop(&text).await.expect("it can be stopped");
    let look = async || {
        let changes = w.engine().sandbox_changes(&text).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(changes.record.names().added, ["agent_workspace/added"]);
    };
    // Others look too, and somebody starts it meanwhile: it runs then, whoever looked last.
    let (again, ..) = tokio::join!(w.engine().restart(&text), look(), look(), look());
    let again = again.unwrap_or_else(|error| panic!("{error}"));
    run(&again, "cat added").await.expect_out("1\n");
    let (long, ()) = tokio::join!(run(&again, "sleep 0.5; echo whole"), look());
    long.expect_out("whole\n").expect_exit(0);
    drop(again);
    destroy(&w, id).await;
}

async fn who_gives_up_a_look_at_a_stopped_sandbox_keeps_it_from_nothing(w: World) {
    let before = w.traces();
    let sandbox = create(&w, NewSandbox::default()).await;
    let (id, text) = (sandbox.id(), sandbox.id().to_string());
    drop(sandbox);
    w.engine().stop(&text).await.expect("it can be stopped");
    for moment in [1, 5, 20, 50, 100, 200, 300, 400] {
        let moment = std::time::Duration::from_millis(moment);
        drop(tokio::time::timeout(moment, w.engine().sandbox_changes(&text)).await);
    }
    destroy(&w, id).await;
    let look = || w.traces().things_since(&before);
    let left = wait_until_clean(look, std::time::Duration::from_secs(10)).await;
    assert_eq!(left.0, Vec::<String>::new());
}

async fn a_sandbox_of_one_process_tells_its_runs_apart_too(w: World) {
    let sandbox = w.sandbox().create().await;
    let run = async |line: &str| w.sandbox().inside(&sandbox).sh(line).await;
    expect(&run("echo 1 > a; echo 1 > b").await, [&["a", "b"], &[], &[]]);
    expect(&run("echo 2 > a; rm b; echo 1 > c").await, [&["c"], &["a"], &["b"]]);
    sandbox.destroy().await.expect("it can be destroyed");
}

async fn a_sandbox_whose_workspace_was_moved_goes_on(w: World) {
    let folder = w.folder("work");
    fs::write(folder.join("edited"), "old\n").expect("a file can be written");
    let mounted = w.folder("mounted");
    fs::write(mounted.join("m"), "m\n").expect("a file can be written");
    let mut new = NewSandbox::default();
    new.spec.workspace = Some(Workspace { source: folder.clone(), mode: WorkspaceMode::Overlay });
    new.spec.mounts.push(glovebox_core::Mount::parse(&format!("{}:/mnt/m", mounted.display())).expect("a mount"));
    let sandbox = create(&w, new).await;
    let id = sandbox.id();
    drop(sandbox);
    let elsewhere = folder.with_file_name("elsewhere");
    fs::rename(&folder, &elsewhere).expect("it can be moved");
    fs::rename(&mounted, mounted.with_file_name("mounted elsewhere")).expect("it can be moved");
    let sandbox = w.engine().open(&id.to_string()).await.expect("it can be opened");
    let quiet = run(&sandbox, "cat edited /mnt/m/m").await.expect_out("old\nm\n");
    assert!(quiet.warnings.is_empty() && !quiet.changes.truncated, "{:?}", quiet.warnings);
    let wrote = run(&sandbox, "echo new > edited; echo 1 > ../outputs/a").await;
    assert_eq!(artifacts(&wrote), ["outputs/a"]);
    assert!(wrote.changes.truncated, "not all changes could be told");
    assert!(wrote.warnings.iter().any(|warning| warning.code == "file_not_found"), "{:?}", wrote.warnings);
    w.engine().usage(&id.to_string()).await.expect("its usage is told");
    let refused = w.engine().sandbox_changes(&id.to_string()).await.expect_err("it cannot be compared");
    assert_eq!(refused.code.as_str(), "file_not_found");
    assert!(refused.message.contains("gone"), "{}", refused.message);
    drop(sandbox);
    w.engine().stop(&id.to_string()).await.expect("it can be stopped");
    let again = w.engine().restart(&id.to_string()).await;
    if !w.features().files_through_guest {
        assert_eq!(again.err().expect("there is nothing to show").code.as_str(), "file_not_found");
    }
    destroy(&w, id).await;
}
