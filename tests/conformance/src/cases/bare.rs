//! What holds where there are no namespaces, and nothing but refusals is between a program and its host.

use std::{fs, os::unix::fs::PermissionsExt, os::unix::net::UnixDatagram};

use glovebox_core::{Enforcement, Layer, Tier, WorkspaceMode};

use crate::{World, case::cases};

cases!["bare":
    the_result_names_the_tier_and_all_that_is_missing without(namespaces),
    nothing_can_be_done_to_the_caller without(namespaces),
    modes_and_times_of_own_files_can_be_changed without(namespaces),
    a_program_that_runs_away_is_caught without(namespaces),
    forks_without_end_are_ended without(namespaces),
    a_daemon_does_not_outlive_its_sandbox without(namespaces),
    a_workspace_is_copied_and_compared without(namespaces),
    a_workspace_that_does_not_fit_is_refused without(namespaces),
    a_mount_elsewhere_is_refused without(namespaces),
    limits_say_by_what_they_are_held without(namespaces),
];

async fn the_result_names_the_tier_and_all_that_is_missing(w: World) {
    let run = w.sandbox().run(["true"]).await.expect_exit(0);
    assert_eq!(run.isolation.tier, Tier::Landlock);
    let mut present = vec![
        Layer::Keyring,
        Layer::NoCapabilities,
        Layer::NoNewPrivs,
        Layer::Seccomp,
        Layer::Landlock,
        Layer::Rlimits,
        Layer::CleanStart,
    ];
    present.extend(w.features().separate_guest.then_some(Layer::SeparateGuest));
    present.push(Layer::UnprivilegedUser);
    assert_eq!(run.isolation.present, present);
    assert!(
        run.command.cwd.ends_with("/workspace/agent_workspace") && run.command.cwd.len() > 40,
        "{}",
        run.command.cwd
    );
}

async fn nothing_can_be_done_to_the_caller(w: World) {
    let file = w.host_file("precious", "as it was");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("the mode can be set");
    let before = fs::metadata(&file).expect("the file is there");
    let socket = w.scratch().join("socket");
    let listener = UnixDatagram::bind(&socket).expect("a socket can be made");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).expect("the mode can be set");
    listener.set_nonblocking(true).expect("the socket can be set");
    let words = format!("harm {} {} {}", std::process::id(), file.display(), socket.display());
    let run = w.sandbox().probe(&words).await.expect_exit(0);
    // Those of an id that nobody else has are the sandbox's own processes.
    let own = |line: &&str| w.features().separate_guest && *line == "renice-user ok";
    let out = run.out();
    let done: Vec<&str> = out.lines().filter(|line| line.ends_with(" ok")).filter(|line| !own(line)).collect();
    assert!(done.is_empty(), "{}\n{}", done.join(", "), run.story());
    let after = fs::metadata(&file).expect("the file is still there");
    assert_eq!(after.permissions().mode(), before.permissions().mode());
    assert_eq!(after.modified().ok(), before.modified().ok());
    assert_eq!(fs::read_to_string(&file).ok().as_deref(), Some("as it was"));
    assert!(listener.recv(&mut [0; 8]).is_err(), "a socket of the host was reached");
}

async fn modes_and_times_of_own_files_can_be_changed(w: World) {
    let line = "echo 'echo ran' > tool; chmod +x tool; ./tool 2>/dev/null || sh ./tool; stat -c %a tool; chmod 640 tool; \
                stat -c %a tool; touch -d @86400 tool; stat -c %Y tool; cp -p tool other; stat -c %Y other; mkdir d; \
                chmod 700 d; stat -c %a d; ln -s tool l; chmod 600 l; stat -c %a tool";
    let run = w.sandbox().sh(line).await.expect_exit(0);
    assert_eq!(run.out(), "ran\n755\n640\n86400\n86400\n700\n600\n", "{}", run.story());
}

async fn a_program_that_runs_away_is_caught(w: World) {
    w.sandbox().pids(30).probe("run-away").await.expect_exit(0);
}

async fn forks_without_end_are_ended(w: World) {
    let run = w.sandbox().pids(40).timeout("1s").grace("100ms").probe("fork-for-ever").await;
    assert!(run.duration_ms < 20_000.0, "{}", run.story());
}

async fn a_daemon_does_not_outlive_its_sandbox(w: World) {
    w.sandbox().probe("daemon").await.expect_exit(0);
}

async fn a_workspace_is_copied_and_compared(w: World) {
    let folder = w.folder("work");
    for (name, text) in [("same", "1"), ("changed", "2"), ("gone", "3")] {
        fs::write(folder.join(name), text).expect("the host may");
    }
    std::os::unix::fs::symlink("/etc/shadow", folder.join("link")).expect("the host may");
    let line = "cat same; echo more >> changed; rm gone; echo new > new; readlink link";
    let run = w.sandbox().workspace(&folder, WorkspaceMode::Overlay).sh(line).await.expect_exit(0);
    assert_eq!(run.out(), "1/etc/shadow\n");
    assert_eq!(run.changes.added, ["agent_workspace/new"]);
    assert_eq!(run.changes.modified, ["agent_workspace/changed"]);
    assert_eq!(run.changes.deleted, ["agent_workspace/gone"]);
    assert_eq!(fs::read_to_string(folder.join("changed")).ok().as_deref(), Some("2"));
}

async fn a_workspace_that_does_not_fit_is_refused(w: World) {
    let folder = w.folder("large");
    fs::write(folder.join("file"), vec![1; 3 << 20]).expect("the host may");
    let setup = w.sandbox().disk("2m").workspace(&folder, WorkspaceMode::Overlay);
    let error = setup.try_run(["true"]).await.expect_err("there is no room");
    assert!(error.message.contains("--disk"), "{}", error.message);
}

async fn a_mount_elsewhere_is_refused(w: World) {
    let folder = w.folder("given");
    let setup = w.sandbox().mount(&folder, "/data", glovebox_core::Access::ReadOnly);
    let error = setup.try_run(["true"]).await.expect_err("nothing can be mounted");
    assert!(error.message.contains("its own path"), "{}", error.message);
    fs::write(folder.join("file"), "given").expect("the host may");
    let line = format!("cat {0}/file; touch {0}/made", folder.display());
    let place = folder.to_string_lossy().into_owned();
    let run = w.sandbox().mount(&folder, &place, glovebox_core::Access::ReadOnly).sh(&line).await.expect_exit(1);
    assert_eq!(run.out(), "given");
}

async fn limits_say_by_what_they_are_held(w: World) {
    let run = w.sandbox().run(["true"]).await.expect_exit(0);
    let held = |name: &str| run.limits.enforcement.get(name).copied();
    assert_eq!(held("disk"), Some(Enforcement::Watched));
    assert_eq!(held("memory"), Some(Enforcement::Watched));
    assert_eq!(held("cpus"), Some(Enforcement::None));
    assert_eq!(run.limits.store, "folder");
}
