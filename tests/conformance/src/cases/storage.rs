//! What outlives sandboxes: volumes, caches, projects and their files.

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
};

use glovebox_core::{
    ErrorCode, LimitKind, Mount, Outcome, ProjectName, SandboxName, VolumeMount, VolumeName, Workspace, WorkspaceMode,
};
use glovebox_engine::{NewSandbox, ProjectRules};

use super::living::{create, destroy, run};
use crate::{World, case::cases};

cases!["storage":
    what_one_sandbox_writes_to_a_volume_another_reads needs(mounts),
    whoever_commands_run_as_a_volume_is_theirs needs(mounts),
    a_volume_takes_no_layer_away needs(mounts),
    a_read_only_volume_cannot_be_written needs(mounts),
    a_volume_is_held_to_a_size_of_its_own needs(mounts),
    what_lies_in_a_volume_never_belongs_to_root needs(idmapped_mounts),
    a_volume_with_hostile_content_is_removed_and_nothing_else needs(namespaces),
    a_volume_is_no_part_of_a_change_set needs(mounts),
    living_sandboxes_share_a_volume_at_the_same_time needs(living),
    a_volume_that_a_sandbox_has_stays_and_the_error_names_it needs(living),
    a_living_sandbox_is_held_to_the_size_of_its_volume needs(living),
    a_full_volume_is_named_and_only_its_writer_is_ended needs(run_groups),
    a_sandbox_starts_again_whatever_is_in_the_way_of_its_mounts needs(living),
    a_reset_keeps_volumes_and_files_of_the_project needs(living),
    files_added_to_a_project_appear_in_a_living_sandbox_and_cannot_be_changed needs(living),
    a_project_keeps_names_apart_and_content_once needs(mounts),
    a_project_takes_only_what_its_rules_allow needs(mounts),
    one_project_never_reaches_another needs(mounts),
    a_cache_is_found_by_its_tool_and_projects_have_their_own needs(mounts),
    a_sandbox_whose_folders_are_gone_can_be_destroyed needs(living),
    what_was_left_half_removed_is_finished_by_the_next_sandbox needs(living),
    a_project_that_is_not_there_is_an_error_and_leaves_nothing needs(mounts),
];

fn volume(name: &str) -> VolumeName {
    VolumeName::parse(name).expect("the case names a volume")
}

fn project(w: &World, name: &str) -> ProjectName {
    let project = ProjectName::parse(name).expect("the case names a project");
    w.engine().projects().create(&project, ProjectRules::default()).expect("a project can be made");
    project
}

fn add(w: &World, project: &ProjectName, name: &str, content: &str) -> String {
    let file = w.folder("given").join(name);
    fs::write(&file, content).expect("a file can be written");
    w.engine().projects().files(project).expect("it is there").add(&file).expect("it can be added").name
}

/// Removes what a case made, as anybody would. The suite finds what is left.
async fn remove_all(w: &World) {
    for volume in w.engine().list_volumes().expect("they can be listed") {
        w.engine().remove_volume(&volume.name).await.unwrap_or_else(|error| panic!("{error}"));
    }
    for project in w.engine().list_projects().expect("they can be listed") {
        w.engine().remove_project(&project.name).await.unwrap_or_else(|error| panic!("{error}"));
    }
}

fn living(volume: &str) -> NewSandbox {
    let mut new = NewSandbox::default();
    new.spec.volumes.push(VolumeMount::parse(volume).expect("the case names a volume"));
    new
}

async fn what_one_sandbox_writes_to_a_volume_another_reads(w: World) {
    w.sandbox().volume("data:/data").sh("mkdir /data/a; echo kept > /data/a/note").await.expect_exit(0);
    w.sandbox().volume("data:/else/where").sh("cat /else/where/a/note").await.expect_out("kept\n");
    let status = w.engine().show_volume(&volume("data")).expect("it was made at its first use");
    assert!(status.used_bytes.is_some_and(|bytes| bytes > 0) && status.sandboxes.is_empty(), "{status:?}");
    w.engine().remove_volume(&volume("data")).await.expect("nobody has it");
    w.sandbox().volume("data:/data").sh("ls -A /data").await.expect_exit(0).expect_out("");
    remove_all(&w).await;
}

async fn whoever_commands_run_as_a_volume_is_theirs(w: World) {
    for (i, user) in ["user", "root", "nobody", "user"].into_iter().enumerate() {
        let line = format!(
            "test -O /data && for f in /data/*; do test ! -e $f || test -O $f || exit 9; done; \
                            chmod 700 /data && rm -rf /data/old && touch /data/f{i} && mkdir -m 700 /data/old && touch /data/old/x"
        );
        w.sandbox().user(user).volume("data:/data").sh(&line).await.expect_exit(0);
    }
    remove_all(&w).await;
}

async fn a_read_only_volume_cannot_be_written(w: World) {
    w.sandbox().volume("data:/data").sh("echo kept > /data/note").await.expect_exit(0);
    for user in ["user", "root"] {
        let setup = w.sandbox().user(user).volume("data:/data:ro");
        setup
            .sh("cat /data/note; echo x > /data/note; touch /data/new; rm -f /data/note; true")
            .await
            .expect_out("kept\n");
    }
    w.sandbox().volume("data:/data").sh("ls /data; cat /data/note").await.expect_out("note\nkept\n");
    remove_all(&w).await;
}

async fn a_volume_is_held_to_a_size_of_its_own(w: World) {
    w.engine().volumes().create(&volume("small"), 4 << 20).expect("a volume can be made");
    w.engine().volumes().create(&volume("large"), 64 << 20).expect("a volume can be made");
    let write = |name: &str| format!("head -c 16m /dev/zero > /{name}/zeros && sleep 20");
    let run = w.sandbox().volume("small:/small").sh(&write("small")).await;
    assert!(matches!(run.outcome, Outcome::DiskFull { .. }), "{}", run.story());
    let held = serde_json::to_value(&run.limits.enforcement).expect("it is plain data");
    assert_eq!((&held["disk"], &held["volumes"]), (&"filesystem".into(), &"watched".into()));
    // One that is full can be read, and room can be made.
    w.sandbox().volume("small:/small").sh("sleep 1; rm /small/zeros; echo x > /small/x; sleep 1").await.expect_exit(0);
    // What is in a volume is not charged to the sandbox.
    let run = w.sandbox().disk("1m").volume("large:/large").sh("head -c 16m /dev/zero > /large/zeros; sleep 1").await;
    assert_eq!(run.expect_exit(0).limits_hit, Vec::<LimitKind>::new());
    remove_all(&w).await;
}

async fn what_lies_in_a_volume_never_belongs_to_root(w: World) {
    for user in ["user", "root"] {
        let line = "cp /bin/sh /data/sh-$(id -u); chmod 6755 /data/sh-$(id -u)";
        w.sandbox().user(user).volume("data:/data").sh(line).await.expect_exit(0);
    }
    let folder = w.data_dir().join("volumes/data/files");
    let written = fs::read_dir(&folder).expect("it is there").map(|entry| entry.expect("it can be read").path());
    let all: Vec<PathBuf> = written.chain([folder.clone()]).collect();
    assert_eq!(all.len(), 3);
    for path in all {
        let facts = fs::metadata(&path).expect("it can be looked at");
        assert!(facts.uid() > 65536 && facts.gid() > 65536, "{path:?}");
    }
    // And it gives nobody anything inside another sandbox.
    w.sandbox().volume("data:/data").sh("/data/sh-0 -c 'id -u'").await.expect_out("1000\n");
    remove_all(&w).await;
}

async fn a_volume_with_hostile_content_is_removed_and_nothing_else(w: World) {
    let outside = w.host_file("outside", "stays");
    let line = format!(
        "cd /data; mkdir -p a/b; touch a/b/c; chmod 0 a/b a; mkfifo pipe; ln -s {} link; ln -s / root; ln -s ../.. up; \
         i=0; while [ $i -lt 100 ]; do mkdir d; cd d; i=$((i+1)); done; touch \"$(printf 'new\\nline')\"",
        outside.display()
    );
    w.sandbox().volume("data:/data").sh(&line).await.expect_exit(0);
    w.engine().show_volume(&volume("data")).expect("it can be looked at");
    w.engine().remove_volume(&volume("data")).await.expect("it can be removed");
    assert_eq!(fs::read_to_string(outside).expect("it is there"), "stays");
    assert_eq!(fs::read_dir(w.data_dir().join("volumes")).expect("it is there").count(), 0);
}

async fn a_volume_is_no_part_of_a_change_set(w: World) {
    let project = project(&w, "plans");
    let setup = w.sandbox().project(project.as_str()).volume("deps:/workspace/agent_workspace/deps");
    let run = setup.sh("echo x > deps/x; echo y > ../project/y; echo z > z").await.expect_exit(0);
    assert_eq!(run.changes.added, ["agent_workspace/z"]);
    assert_eq!(run.project.as_deref(), Some("plans"));
    remove_all(&w).await;
}

async fn a_volume_takes_no_layer_away(w: World) {
    let plain = create(&w, NewSandbox::default()).await;
    let with_volume = create(&w, living("data:/data")).await;
    let [plain, with_volume] = [plain, with_volume].map(|sandbox| async move {
        let ran =
            run(&sandbox, "touch /data/x /dev/mqueue/x 2>/dev/null; ls /data /dev/mqueue 2>/dev/null | grep -c x")
                .await;
        (sandbox.id(), ran)
    });
    let ((one, plain), (other, with_volume)) = tokio::join!(plain, with_volume);
    assert_eq!(with_volume.isolation, plain.isolation);
    with_volume.expect_out("1\n");
    destroy(&w, one).await;
    destroy(&w, other).await;
    remove_all(&w).await;
}

async fn living_sandboxes_share_a_volume_at_the_same_time(w: World) {
    let (first, second) = (create(&w, living("data:/data")).await, create(&w, living("data:/data:ro")).await);
    run(&first, "echo one > /data/note").await.expect_exit(0);
    run(&second, "cat /data/note; touch /data/x 2>/dev/null || echo refused").await.expect_out("one\nrefused\n");
    run(&first, "echo two > /data/note").await.expect_exit(0);
    run(&second, "cat /data/note").await.expect_out("two\n");
    destroy(&w, first.id()).await;
    run(&second, "cat /data/note").await.expect_out("two\n");
    destroy(&w, second.id()).await;
    remove_all(&w).await;
}

async fn a_volume_that_a_sandbox_has_stays_and_the_error_names_it(w: World) {
    let mut new = living("data:/data");
    new.name = SandboxName::parse("holder").ok();
    let sandbox = create(&w, new).await;
    run(&sandbox, "echo kept > /data/note").await.expect_exit(0);
    let id = sandbox.id();
    drop(sandbox);
    for _ in ["ready", "stopped"] {
        let error = w.engine().remove_volume(&volume("data")).await.expect_err("it is attached");
        assert_eq!(error.code, ErrorCode::InUse);
        assert!(error.message.contains("holder"), "{error}");
        assert_eq!(w.engine().show_volume(&volume("data")).expect("it is there").sandboxes, ["holder"]);
        w.engine().stop("holder").await.expect("it can be stopped");
    }
    let again = w.engine().restart("holder").await.expect("it starts again");
    run(&again, "cat /data/note").await.expect_out("kept\n");
    drop(again);
    destroy(&w, id).await;
    w.engine().remove_volume(&volume("data")).await.expect("nobody has it any more");
    assert_eq!(w.engine().show_volume(&volume("data")).expect_err("it is gone").code, ErrorCode::VolumeNotFound);
}

async fn a_living_sandbox_is_held_to_the_size_of_its_volume(w: World) {
    w.engine().volumes().create(&volume("small"), 4 << 20).expect("a volume can be made");
    let sandbox = create(&w, living("small:/data")).await;
    let full = run(&sandbox, "head -c 16m /dev/zero > /data/zeros && sleep 20").await;
    assert!(matches!(full.outcome, Outcome::DiskFull { .. }), "{}", full.story());
    run(&sandbox, "rm /data/zeros; echo room > /data/x; cat /data/x").await.expect_out("room\n");
    destroy(&w, sandbox.id()).await;
    remove_all(&w).await;
}

async fn a_full_volume_is_named_and_only_its_writer_is_ended(w: World) {
    w.engine().volumes().create(&volume("small"), 4 << 20).expect("a volume can be made");
    let one_shot = w.sandbox().volume("small:/first").timeout("20s");
    let run = one_shot.sh("head -c 16m /dev/zero > /first/zeros && sleep 20").await;
    assert!(matches!(run.outcome, Outcome::DiskFull { limit: LimitKind::Volume, .. }), "{}", run.story());
    let named = |run: &crate::finished::Finished, target: &str| {
        let warning = run.warnings.iter().find(|warning| warning.code == "disk_full");
        let message = warning.map(|warning| warning.message.clone()).unwrap_or_default();
        assert!(message.contains(target) && message.contains("4194304"), "{message:?}");
    };
    named(&run, "/first");
    w.sandbox().volume("small:/first").sh("rm /first/zeros").await.expect_exit(0);
    let (one, other) = (create(&w, living("small:/one")).await, create(&w, living("small:/other")).await);
    let line = "until [ -e /other/done ]; do echo x >> log; sleep 0.05; done; sleep 0.5; echo fine";
    let innocent = w.sandbox().inside(&other).timeout("20s").start(["sh", "-c", line]).await;
    let write = "i=0; while [ $i -lt 300 ]; do head -c 1m /dev/zero > /one/f$i; i=$((i+1)); sleep 0.02; done; sleep 20";
    let run = w.sandbox().inside(&one).timeout("20s").sh(write).await;
    assert!(matches!(run.outcome, Outcome::DiskFull { limit: LimitKind::Volume, .. }), "{}", run.story());
    named(&run, "/one");
    w.sandbox().inside(&one).sh("touch /one/done").await.expect_exit(0);
    let innocent = crate::finished::Finished(innocent.wait().await.expect("it ends"));
    innocent.expect_exit(0).expect_out("fine\n");
    destroy(&w, one.id()).await;
    destroy(&w, other.id()).await;
    remove_all(&w).await;
}

async fn a_sandbox_starts_again_whatever_is_in_the_way_of_its_mounts(w: World) {
    let mut new = living("cache:/home/user/.cache/deep/er");
    let file = w.host_file("settings", "given\n");
    new.spec.mounts.push(Mount::parse(&format!("{}:/home/user/a/settings", file.display())).expect("a mount"));
    let sandbox = create(&w, new).await;
    let id = sandbox.id();
    run(&sandbox, "echo kept > ~/.cache/deep/er/note; echo mine > ~/mine").await.expect_exit(0);
    drop(sandbox);
    // A mount point itself cannot be replaced inside, but the folders around it can.
    let tricks = [
        "mv ~/.cache ~/moved-1 && ln -s /etc ~/.cache",
        "mv ~/.cache ~/moved-2 && echo x > ~/.cache",
        "mv ~/a ~/moved-3 && mkdir -p ~/a/settings/below",
        "mv ~/a ~/moved-4 && mkdir ~/a && ln -s /etc/passwd ~/a/settings",
    ];
    for trick in tricks {
        let sandbox = w.engine().open(&id.to_string()).await.unwrap_or_else(|error| panic!("{error}"));
        run(&sandbox, trick).await.expect_exit(0);
        drop(sandbox);
        w.engine().stop(&id.to_string()).await.expect("it can be stopped");
        let again = w.engine().restart(&id.to_string()).await.unwrap_or_else(|error| panic!("{trick}: {error}"));
        let look = "cat ~/.cache/deep/er/note ~/a/settings ~/mine";
        run(&again, look).await.expect_out("kept\ngiven\nmine\n");
    }
    let again = w.engine().open(&id.to_string()).await.unwrap_or_else(|error| panic!("{error}"));
    run(&again, "ls -d ~/glovebox-aside-* ~/*/glovebox-aside-* | wc -l").await.expect_out("4\n");
    destroy(&w, id).await;
    remove_all(&w).await;
}

async fn a_reset_keeps_volumes_and_files_of_the_project(w: World) {
    let project = project(&w, "plans");
    add(&w, &project, "given.txt", "given\n");
    let mut new = living("data:/data");
    new.spec.project = Some(project.clone());
    let sandbox = create(&w, new).await;
    let id = sandbox.id();
    run(&sandbox, "echo a > a; echo data > /data/x; echo project > ../project/x").await.expect_exit(0);
    drop(sandbox);
    let again = w.engine().reset(&id.to_string()).await.unwrap_or_else(|error| panic!("{error}"));
    run(&again, "ls -A; cat /data/x ../project/x ../project_files/given.txt")
        .await
        .expect_out("data\nproject\ngiven\n");
    let status = w.engine().status(&id.to_string()).await.expect("it is there");
    assert_eq!(status.project.as_deref(), Some("plans"));
    drop(again);
    let error = w.engine().remove_project(&project).await.expect_err("it has a sandbox");
    assert_eq!(error.code, ErrorCode::InUse);
    destroy(&w, id).await;
    w.engine().remove_project(&project).await.expect("it has none any more");
    remove_all(&w).await;
}

async fn files_added_to_a_project_appear_in_a_living_sandbox_and_cannot_be_changed(w: World) {
    let project = project(&w, "plans");
    let mut new = NewSandbox::default();
    new.spec.project = Some(project.clone());
    let sandbox = create(&w, new).await;
    let ran = run(&sandbox, "ls /workspace/project_files").await.expect_out("");
    assert_eq!(ran.project.as_deref(), Some("plans"));
    add(&w, &project, "late.txt", "late\n");
    let line = "cd /workspace/project_files; cat late.txt; echo x > late.txt; rm -f late.txt; mv late.txt other; touch new; \
                chmod 777 . late.txt; ln late.txt ../project/hard; true";
    run(&sandbox, line).await.expect_out("late\n");
    run(&sandbox, "cat /workspace/project_files/late.txt; ls /workspace/project_files /workspace/project")
        .await
        .expect_out("late\n/workspace/project:\n\n/workspace/project_files:\nlate.txt\n");
    w.engine().projects().files(&project).expect("it is there").remove("late.txt").expect("it can be removed");
    run(&sandbox, "ls /workspace/project_files").await.expect_out("");
    destroy(&w, sandbox.id()).await;
    remove_all(&w).await;
}

async fn a_project_keeps_names_apart_and_content_once(w: World) {
    let project = project(&w, "plans");
    let names: Vec<String> = ["same", "same", "other"].map(|text| add(&w, &project, "a report.pdf", text)).into();
    assert_eq!(names, ["a report.pdf", "a report (2).pdf", "a report (3).pdf"]);
    let hostile = add(&w, &project, "-rf \u{1b}[2J\u{202e}x", "same");
    assert_eq!(hostile, "_rf _[2J_x");
    let content = w.data_dir().join("projects/plans/content");
    let count = || fs::read_dir(&content).expect("it is there").count();
    assert_eq!(count(), 2);
    let files = w.engine().projects().files(&project).expect("it is there");
    for name in ["../project.json", "..", ".", "", "/etc/passwd", "a report (9).pdf"] {
        assert_eq!(files.open(name).err().map(|error| error.code), Some(ErrorCode::FileNotFound), "{name:?}");
        assert_eq!(files.remove(name).err().map(|error| error.code), Some(ErrorCode::FileNotFound), "{name:?}");
    }
    for name in ["a report.pdf", "a report (2).pdf"] {
        files.remove(name).expect("it can be removed");
    }
    let setup = w.sandbox().project("plans");
    setup.sh("cd /workspace/project_files; cat -- *").await.expect_out("sameother");
    files.remove(&hostile).expect("it can be removed");
    assert_eq!(count(), 1, "a content goes with its last name");
    drop(files);
    remove_all(&w).await;
}

async fn a_project_takes_only_what_its_rules_allow(w: World) {
    let name = ProjectName::parse("strict").expect("a name");
    let rules = ProjectRules { file_bytes: 10, files: 1, types: vec!["txt".to_owned()], ..ProjectRules::default() };
    w.engine().projects().create(&name, rules).expect("a project can be made");
    let files = w.engine().projects().files(&name).expect("it is there");
    let folder = w.folder("given");
    let refused = |path: &Path| files.add(path).err().map(|error| error.code);
    fs::write(folder.join("large.txt"), "eleven bytes").expect("it can be written");
    fs::write(folder.join("a.exe"), "x").expect("it can be written");
    fs::write(folder.join("a.TXT"), "x").expect("it can be written");
    symlink(folder.join("a.TXT"), folder.join("link.txt")).expect("a link can be made");
    let pipe = folder.join("pipe.txt");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()));
    for path in ["large.txt", "a.exe", "link.txt", "pipe.txt", "."].map(|name| folder.join(name)) {
        assert_eq!(refused(&path), Some(ErrorCode::FileRefused), "{path:?}");
    }
    assert_eq!(refused(Path::new("/dev/zero")), Some(ErrorCode::FileRefused));
    assert_eq!(refused(&folder.join("none.txt")), Some(ErrorCode::FileNotFound));
    files.add(&folder.join("a.TXT")).expect("it fits");
    assert_eq!(refused(&folder.join("a.TXT")), Some(ErrorCode::FileRefused), "there is one already");
    assert_eq!(files.list().expect("they can be listed").len(), 1);
    drop(files);
    remove_all(&w).await;
}

async fn one_project_never_reaches_another(w: World) {
    let (victim, attacker) = (project(&w, "victim"), project(&w, "attacker"));
    add(&w, &victim, "secret.txt", "victims-own");
    w.sandbox()
        .project("victim")
        .cache("pip")
        .sh("echo victims-own | tee ../project/s > /var/cache/pip/s")
        .await
        .expect_exit(0);
    let place = w.data_dir().join("projects/victim");
    // Links that lead to the other's folders by every path there is, planted in what outlives the sandbox.
    let plant = format!(
        "cd /workspace/project; ln -s {0}/files host; ln -s ../../victim/volume up; ln -s ../../../projects/victim deep; \
         ln -s /workspace/project_files/../../victim/files odd; mkdir -p victim/files; ln -s {0}/volume victim/volume; true",
        place.display()
    );
    w.sandbox().project("attacker").cache("all").sh(&plant).await.expect_exit(0);
    add(&w, &attacker, "secret.txt", "attackers");
    let look = "cat host/* up/* deep/*/* odd/* victim/*/* ../project_files/* /var/cache/*/s /proc/self/root/*/victim/* 2>/dev/null; \
                grep -rs victims-own / --include=secret.txt --include=s --exclude-dir=proc --exclude-dir=usr; \
                ln ../project_files/secret.txt hard 2>/dev/null && echo linked; ls -d /workspace/*; true";
    for user in ["user", "root"] {
        let setup = w.sandbox().user(user).project("attacker").cache("all").cwd("/workspace/project");
        let run = setup.sh(look).await.expect_exit(0);
        let known =
            "attackers/workspace/agent_workspace\n/workspace/outputs\n/workspace/project\n/workspace/project_files\n";
        assert_eq!(run.out(), known, "{}", run.story());
    }
    // Nor does a sandbox without a project, or by names that climb.
    w.sandbox().sh("ls /workspace/project_files; ls /workspace/project 2>/dev/null").await.expect_out("");
    for name in ["../victim", "victim/../victim", ".", "..", "victim/files", "attacker/../victim"] {
        assert!(ProjectName::parse(name).is_err() && VolumeName::parse(name).is_err(), "{name}");
        assert!(VolumeMount::parse(&format!("{name}:/data")).is_err(), "{name}");
    }
    w.engine().remove_project(&attacker).await.expect("it can be removed");
    w.sandbox()
        .project("victim")
        .sh("cat ../project/s ../project_files/secret.txt")
        .await
        .expect_out("victims-own\nvictims-own");
    remove_all(&w).await;
}

async fn a_cache_is_found_by_its_tool_and_projects_have_their_own(w: World) {
    let project = project(&w, "plans");
    let all = w
        .sandbox()
        .cache("all")
        .sh("env | grep -o '=.*/var/cache/[a-z]*' | sort -u | wc -l; echo $PIP_CACHE_DIR")
        .await;
    all.expect_out("9\n/var/cache/pip\n");
    w.sandbox().cache("pip").sh("echo own > $PIP_CACHE_DIR/x").await.expect_exit(0);
    w.sandbox().cache("pip").sh("cat $PIP_CACHE_DIR/x").await.expect_out("own\n");
    w.sandbox().cache("pip").env("PIP_CACHE_DIR", "/tmp/x").sh("echo $PIP_CACHE_DIR").await.expect_out("/tmp/x\n");
    w.sandbox()
        .project(project.as_str())
        .cache("pip")
        .sh("ls -A $PIP_CACHE_DIR; echo p > $PIP_CACHE_DIR/p")
        .await
        .expect_out("");
    w.sandbox().cache("pip").sh("ls $PIP_CACHE_DIR").await.expect_out("x\n");
    assert!(w.engine().show_volume(&volume("cache-pip")).is_ok());
    remove_all(&w).await;
}

async fn a_project_that_is_not_there_is_an_error_and_leaves_nothing(w: World) {
    let error = w.sandbox().project("nowhere").cache("pip").try_run(["true"]).await.expect_err("there is none");
    assert_eq!(error.code, ErrorCode::ProjectNotFound);
    assert!(error.hint.is_some_and(|hint| hint.contains("projects create nowhere")));
    let mut new = NewSandbox::default();
    new.spec.project = ProjectName::parse("nowhere").ok();
    let error = w.engine().create_living(new).await.err().expect("there is none");
    assert_eq!(error.code, ErrorCode::ProjectNotFound);
    assert!(w.engine().sandboxes().await.expect("they can be listed").is_empty());
    assert!(!w.data_dir().join("projects/nowhere").exists());
}

async fn a_sandbox_whose_folders_are_gone_can_be_destroyed(w: World) {
    let (project, folder) = (project(&w, "plans"), w.folder("shown"));
    let mut new = NewSandbox::default();
    new.spec.project = Some(project);
    new.spec.mounts.push(Mount::parse(&format!("{}:/shown", folder.display())).expect("a mount"));
    new.spec.workspace = Some(Workspace { source: w.folder("work"), mode: WorkspaceMode::Overlay });
    let id = create(&w, new).await.id();
    for gone in [folder, w.folder("work"), w.data_dir().join("projects/plans")] {
        fs::remove_dir_all(gone).expect("the host may");
    }
    destroy(&w, id).await;
}

async fn what_was_left_half_removed_is_finished_by_the_next_sandbox(w: World) {
    w.sandbox().volume("data:/data").sh("mkdir -m 0 /data/a").await.expect_exit(0);
    let volumes = w.data_dir().join("volumes");
    // As a removal leaves it that is killed after its first step.
    fs::rename(volumes.join("data"), volumes.join(".left")).expect("the host may");
    assert!(w.engine().list_volumes().expect("they can be listed").is_empty());
    let sandbox = create(&w, NewSandbox::default()).await;
    assert!(!volumes.join(".left").exists());
    destroy(&w, sandbox.id()).await;
}
