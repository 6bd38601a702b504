//! Sandboxes that stay: their files, their states, their ends.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use glovebox_core::{
    Command, EndReason, ErrorCode, Lifetime, LimitKind, Outcome, SandboxId, SandboxName, SandboxState, Workspace,
    WorkspaceMode,
};
use glovebox_engine::{NewSandbox, RunRequest, Sandbox};

use crate::{World, case::cases, finished::Finished};

cases!["living":
    a_sandbox_that_stays_keeps_files_and_processes_from_run_to_run needs(living),
    who_looks_at_a_sandbox_takes_it_from_nobody needs(living),
    one_that_nobody_holds_is_found_by_its_id_the_beginning_of_it_and_its_name needs(living),
    whoever_opens_a_sandbox_is_told_of_its_layers_and_limits_as_who_made_it needs(living),
    the_processor_time_of_a_run_is_its_own needs(living),
    a_name_belongs_to_one_sandbox needs(living),
    a_stopped_sandbox_has_no_process_and_all_of_its_files needs(living),
    what_lies_in_memory_and_in_tmp_is_gone_after_a_stop needs(living),
    a_reset_sandbox_is_as_new needs(living),
    the_changes_of_a_workspace_survive_a_stop needs(living),
    nothing_moves_in_a_paused_sandbox_and_it_goes_on_where_it_was needs(pause),
    a_paused_sandbox_takes_no_run_and_can_be_destroyed needs(pause),
    a_sandbox_whose_guest_was_killed_is_stopped_and_starts_again needs(living),
    an_unused_sandbox_ends_and_says_why needs(living),
    a_running_process_is_use needs(living),
    a_sandbox_that_is_too_old_ends_although_it_is_used needs(living),
    what_is_written_is_held_to_the_disk_limit_and_room_can_be_made needs(living),
    memory_is_held_to_its_limit_run_after_run needs(cgroup_limits),
    a_run_whose_time_is_over_is_asked_to_end_once_however_long_it_tidies_up needs(living),
    variables_of_the_sandbox_reach_every_run_and_those_of_the_run_win needs(living),
    a_sandbox_that_could_not_be_made_leaves_nothing needs(living),
    what_is_destroyed_is_gone needs(living),
    whoever_works_in_a_sandbox_that_is_ended_is_told_by_whom needs(living),
    who_held_a_sandbox_before_its_end_takes_nothing_from_who_holds_it_after_a_start needs(living),
    the_end_that_is_told_is_the_one_that_comes_first needs(living),
];

pub(super) fn request(line: &str) -> RunRequest {
    RunRequest::new(Command::argv(["/bin/sh", "-c", line]).expect("the case names a command"))
}

pub(super) async fn create(w: &World, new: NewSandbox) -> Sandbox {
    w.engine().create_living(new).await.unwrap_or_else(|error| panic!("{}: {error}", error.code))
}

pub(super) async fn run(sandbox: &Sandbox, line: &str) -> Finished {
    Finished(sandbox.run(request(line)).await.unwrap_or_else(|error| panic!("{}: {error}", error.code)))
}

/// Ends a sandbox, and makes sure that nothing of it is left.
pub(super) async fn destroy(w: &World, id: SandboxId) {
    w.engine().destroy(&id.to_string()).await.unwrap_or_else(|error| panic!("{}: {error}", error.code));
    expect_nothing(w, id);
}

pub(super) fn expect_nothing(w: &World, id: SandboxId) {
    let name = id.to_string();
    let mounts = fs::read_to_string("/proc/mounts").expect("the mounts can be read");
    let hierarchies = mounts.lines().filter(|line| line.contains(" cgroup")).filter_map(|line| line.split(' ').nth(1));
    let groups =
        hierarchies.flat_map(|mount| fs::read_dir(format!("{mount}/glovebox")).into_iter().flatten().flatten());
    let mut left: Vec<PathBuf> = groups.map(|group| group.path()).collect();
    left.retain(|group| group.to_string_lossy().contains(&name));
    let folders = [place(w, id), glovebox_native::NativeBackend::runtime_folder().join("sandboxes").join(&name)];
    left.extend(folders.into_iter().filter(|folder| folder.exists()));
    assert!(left.is_empty(), "left behind: {left:?}");
    let left = w.subject().traces_of(&BTreeSet::from([id])).0;
    assert!(left.is_empty(), "left behind: {left:?}");
}

pub(super) fn place(w: &World, id: SandboxId) -> PathBuf {
    w.data_dir().join("sandboxes").join(id.to_string())
}

pub(super) async fn state(w: &World, id: SandboxId) -> SandboxState {
    w.engine().status(&id.to_string()).await.expect("the sandbox is there").state
}

/// Looks until a sandbox is in a state, which somebody else brings about.
pub(super) async fn until(w: &World, id: SandboxId, wanted: SandboxState) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while state(w, id).await != wanted {
        assert!(Instant::now() < deadline, "{id} does not become {wanted}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn a_sandbox_that_stays_keeps_files_and_processes_from_run_to_run(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    run(&sandbox, "echo kept > note; echo home > ~/note; (while :; do sleep 1; done) & echo $! > pid")
        .await
        .expect_exit(0);
    run(&sandbox, "cat note ~/note; kill -0 $(cat pid) && echo alive").await.expect_out("kept\nhome\nalive\n");
    let id = sandbox.id();
    drop(sandbox);
    destroy(&w, id).await;
}

async fn who_looks_at_a_sandbox_takes_it_from_nobody(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let text = sandbox.id().to_string();
    w.engine().usage(&text).await.expect("it can be looked at");
    drop(w.engine().open(&text).await.expect("it can be opened twice"));
    sandbox.evidence().await.expect("it is still held");
    run(&sandbox, "true").await.expect_exit(0);
    let id = sandbox.id();
    drop(sandbox);
    destroy(&w, id).await;
}

async fn one_that_nobody_holds_is_found_by_its_id_the_beginning_of_it_and_its_name(w: World) {
    let name = SandboxName::parse("found-again").expect("a name");
    let sandbox = create(&w, NewSandbox { name: Some(name), ..NewSandbox::default() }).await;
    let id = sandbox.id();
    run(&sandbox, "echo here > note").await.expect_exit(0);
    drop(sandbox);
    for text in [id.to_string(), id.to_string()[..25].to_owned(), "found-again".to_owned()] {
        let again = w.engine().open(&text).await.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(again.id(), id);
        run(&again, "cat note").await.expect_out("here\n");
    }
    let listed = w.engine().sandboxes().await.expect("the sandboxes can be listed");
    assert_eq!(
        listed.iter().map(|status| (status.sandbox, status.state)).collect::<Vec<_>>(),
        [(id, SandboxState::Ready)]
    );
    let error = w.engine().open("somebody").await.err().expect("there is none");
    assert_eq!(error.code, ErrorCode::SandboxNotFound);
    destroy(&w, id).await;
}

async fn whoever_opens_a_sandbox_is_told_of_its_layers_and_limits_as_who_made_it(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let id = sandbox.id();
    let first = run(&sandbox, "true").await;
    drop(sandbox);
    let opened = w.engine().open(&id.to_string()).await.expect("it can be opened");
    let second = run(&opened, "true").await;
    assert!(!first.isolation.present.is_empty(), "no layer is told");
    assert_eq!(second.isolation, first.isolation);
    assert_eq!(second.limits.enforcement, first.limits.enforcement);
    assert_eq!(second.image_digest, first.image_digest);
    drop(opened);
    destroy(&w, id).await;
}

async fn the_processor_time_of_a_run_is_its_own(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let long = run(&sandbox, "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done").await;
    let short = run(&sandbox, "true").await;
    assert!(short.usage.cpu_ms < long.usage.cpu_ms / 2.0, "{} and {} ms", long.usage.cpu_ms, short.usage.cpu_ms);
    destroy(&w, sandbox.id()).await;
}

async fn a_name_belongs_to_one_sandbox(w: World) {
    let named = || NewSandbox { name: SandboxName::parse("one").ok(), ..NewSandbox::default() };
    let first = create(&w, named()).await;
    let error = w.engine().create_living(named()).await.err().expect("the name is taken");
    assert_eq!(error.code, ErrorCode::NameTaken);
    destroy(&w, first.id()).await;
    let second = create(&w, named()).await;
    destroy(&w, second.id()).await;
}

async fn a_stopped_sandbox_has_no_process_and_all_of_its_files(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let id = sandbox.id();
    run(&sandbox, "echo a > a; echo b > ../outputs/b; echo c > ~/c; (while :; do sleep 1; done) &")
        .await
        .expect_exit(0);
    drop(sandbox);
    w.engine().stop(&id.to_string()).await.expect("it can be stopped");
    assert_eq!(state(&w, id).await, SandboxState::Stopped);
    let error = w.engine().open(&id.to_string()).await.err().expect("it is stopped");
    assert_eq!(error.code, ErrorCode::WrongState);
    assert!(error.hint.is_some_and(|hint| hint.contains("glovebox start")));
    w.engine().stop(&id.to_string()).await.expect("one that is stopped stays so");
    let again = w.engine().restart(&id.to_string()).await.unwrap_or_else(|error| panic!("{error}"));
    run(&again, "cat a ../outputs/b ~/c; echo d > a").await.expect_out("a\nb\nc\n").expect_exit(0);
    destroy(&w, id).await;
}

async fn what_lies_in_memory_and_in_tmp_is_gone_after_a_stop(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let id = sandbox.id();
    run(&sandbox, "echo x > /tmp/x; mkdir -p /dev/shm/a/b; echo y > /dev/shm/a/b/y").await.expect_exit(0);
    drop(sandbox);
    w.engine().stop(&id.to_string()).await.expect("it can be stopped");
    let again = w.engine().restart(&id.to_string()).await.expect("it starts again");
    run(&again, "ls -A /tmp /dev/shm").await.expect_out("/dev/shm:\n\n/tmp:\n");
    destroy(&w, id).await;
}

async fn a_reset_sandbox_is_as_new(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let id = sandbox.id();
    run(&sandbox, "echo a > a; echo b > ../outputs/b; echo c > ~/c; mkdir -p d/e; (while :; do sleep 1; done) &")
        .await
        .expect_exit(0);
    drop(sandbox);
    let again = w.engine().reset(&id.to_string()).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again.id(), id);
    run(&again, "ls -A . ../outputs ~ | grep -v ':$' | grep . ; ls -d /proc/[0-9]* | wc -l").await.expect_exit(0);
    run(&again, "test -z \"$(ls -A . ../outputs ~ | grep -v ':$')\"").await.expect_exit(0);
    destroy(&w, id).await;
}

async fn the_changes_of_a_workspace_survive_a_stop(w: World) {
    let folder = w.folder("work");
    fs::write(folder.join("kept"), "old\n").expect("a file can be written");
    fs::write(folder.join("gone"), "old\n").expect("a file can be written");
    let mut new = NewSandbox::default();
    new.spec.workspace = Some(Workspace { source: folder.clone(), mode: WorkspaceMode::Overlay });
    let sandbox = create(&w, new).await;
    let id = sandbox.id();
    run(&sandbox, "echo new > kept; rm gone; echo added > added").await.expect_exit(0);
    drop(sandbox);
    w.engine().stop(&id.to_string()).await.expect("it can be stopped");
    let again = w.engine().restart(&id.to_string()).await.expect("it starts again");
    run(&again, "cat kept added; ls").await.expect_out("new\nadded\nadded\nkept\n");
    let changes = again.changes().await.expect("the changes can be read");
    let below = |name: &str| format!("agent_workspace/{name}");
    assert_eq!(
        (changes.added, changes.modified, changes.deleted),
        (vec![below("added")], vec![below("kept")], vec![below("gone")])
    );
    assert_eq!(fs::read_to_string(folder.join("kept")).expect("it is there"), "old\n");
    destroy(&w, id).await;
}

async fn nothing_moves_in_a_paused_sandbox_and_it_goes_on_where_it_was(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let id = sandbox.id();
    let counting =
        sandbox.start(request("i=0; while :; do i=$((i+1)); echo $i > count; done")).await.expect("it starts");
    let count = || fs::read_to_string(place(&w, id).join("files/workspace/agent_workspace/count")).unwrap_or_default();
    while count().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    w.engine().pause(&id.to_string()).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(state(&w, id).await, SandboxState::Paused);
    let before = (sandbox.evidence().await.expect("evidence").usage.cpu_ms, count());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!((sandbox.evidence().await.expect("evidence").usage.cpu_ms, count()), before);
    w.engine().resume(&id.to_string()).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(state(&w, id).await, SandboxState::Ready);
    let deadline = Instant::now() + Duration::from_secs(10);
    while count() == before.1 {
        assert!(Instant::now() < deadline, "it does not go on");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    counting.cancel();
    Finished(counting.wait().await.expect("a result")).expect_outcome(&Outcome::Cancelled);
    destroy(&w, id).await;
}

async fn a_paused_sandbox_takes_no_run_and_can_be_destroyed(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let id = sandbox.id();
    let _ = sandbox.start(request("while :; do :; done")).await.expect("it starts");
    drop(sandbox);
    w.engine().pause(&id.to_string()).await.expect("it can be paused");
    let error = w.engine().open(&id.to_string()).await.err().expect("it is paused");
    assert_eq!(error.code, ErrorCode::WrongState);
    assert!(error.hint.is_some_and(|hint| hint.contains("glovebox resume")));
    destroy(&w, id).await;
}

async fn a_sandbox_whose_guest_was_killed_is_stopped_and_starts_again(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let id = sandbox.id();
    run(&sandbox, "echo kept > note").await.expect_exit(0);
    w.kill_guest(id);
    drop(sandbox);
    until(&w, id, SandboxState::Stopped).await;
    let again = w.engine().restart(&id.to_string()).await.unwrap_or_else(|error| panic!("{error}"));
    run(&again, "cat note").await.expect_out("kept\n");
    destroy(&w, id).await;
}

pub(super) fn living_for(idle: Option<Duration>, max_age: Option<Duration>) -> NewSandbox {
    NewSandbox { lifetime: Lifetime { idle, max_age }, ..NewSandbox::default() }
}

async fn an_unused_sandbox_ends_and_says_why(w: World) {
    let sandbox = create(&w, living_for(Some(Duration::from_millis(300)), None)).await;
    let id = sandbox.id();
    run(&sandbox, "echo x > x").await.expect_exit(0);
    drop(sandbox);
    until(&w, id, SandboxState::Gone).await;
    let status = w.engine().status(&id.to_string()).await.expect("its end is known");
    assert_eq!(status.ended.expect("a reason").reason, EndReason::IdleTimeout);
    let deadline = Instant::now() + Duration::from_secs(10);
    while place(&w, id).join("files").exists() {
        assert!(Instant::now() < deadline, "its files stay");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let error = w.engine().open(&id.to_string()).await.err().expect("it is gone");
    assert_eq!(error.code, ErrorCode::WrongState);
    destroy(&w, id).await;
}

async fn a_running_process_is_use(w: World) {
    let sandbox = create(&w, living_for(Some(Duration::from_millis(200)), None)).await;
    let id = sandbox.id();
    let began = Instant::now();
    run(&sandbox, "sleep 1; echo done").await.expect_out("done\n");
    assert!(began.elapsed() >= Duration::from_secs(1));
    drop(sandbox);
    until(&w, id, SandboxState::Gone).await;
    destroy(&w, id).await;
}

async fn a_sandbox_that_is_too_old_ends_although_it_is_used(w: World) {
    let sandbox = create(&w, living_for(None, Some(Duration::from_millis(700)))).await;
    let id = sandbox.id();
    run(&sandbox, "sleep 100").await.expect_outcome(&Outcome::Lost);
    drop(sandbox);
    until(&w, id, SandboxState::Gone).await;
    let status = w.engine().status(&id.to_string()).await.expect("its end is known");
    assert_eq!(status.ended.expect("a reason").reason, EndReason::MaxAge);
    destroy(&w, id).await;
}

async fn what_is_written_is_held_to_the_disk_limit_and_room_can_be_made(w: World) {
    let mut new = NewSandbox::default();
    new.spec.limits.disk = 32 << 20;
    let sandbox = create(&w, new).await;
    let id = sandbox.id();
    let filling = "i=0; while :; do i=$((i+1)); head -c 8M /dev/zero > f$i || exit 9; sleep 0.05; done";
    let ended = run(&sandbox, filling).await;
    assert!(matches!(ended.outcome, Outcome::DiskFull { limit: LimitKind::Disk, .. }), "{}", ended.story());
    run(&sandbox, "rm f*; echo room > f").await.expect_exit(0);
    run(&sandbox, "cat f; sleep 1").await.expect_out("room\n").expect_exit(0);
    destroy(&w, id).await;
}

async fn memory_is_held_to_its_limit_run_after_run(w: World) {
    let mut new = NewSandbox::default();
    new.spec.limits.memory = 64 << 20;
    let sandbox = create(&w, new).await;
    let id = sandbox.id();
    for _ in 0..2 {
        let ended = run(&sandbox, "exec tail /dev/zero").await;
        assert!(matches!(ended.outcome, Outcome::OutOfMemory { .. }), "{}", ended.story());
        run(&sandbox, "echo fine").await.expect_out("fine\n").expect_exit(0);
    }
    destroy(&w, id).await;
}

async fn a_run_whose_time_is_over_is_asked_to_end_once_however_long_it_tidies_up(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let mut asked = request("trap 'echo told' TERM; echo up; while :; do sleep 0.05; done");
    asked.spec.limits.timeout = Duration::from_millis(500);
    // The guest, who would end it if nobody else did, waits for a second longer than the host.
    asked.spec.limits.grace = Duration::from_millis(2500);
    let result = Finished(sandbox.run(asked).await.unwrap_or_else(|error| panic!("{error}")));
    result.expect_outcome(&Outcome::TimedOut { limit_ms: 500 }).expect_out("up\ntold\n");
    destroy(&w, sandbox.id()).await;
}

async fn variables_of_the_sandbox_reach_every_run_and_those_of_the_run_win(w: World) {
    let env = [("A", "one"), ("B", "two")].map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let sandbox = create(&w, NewSandbox { env, ..NewSandbox::default() }).await;
    let command = Command::argv(["/bin/sh", "-c", "echo $A $B"]).and_then(|c| c.env("B", "other")).expect("a command");
    let result = sandbox.run(RunRequest::new(command)).await.expect("a result");
    Finished(result).expect_out("one other\n");
    let id = sandbox.id();
    drop(sandbox);
    w.engine().stop(&id.to_string()).await.expect("it can be stopped");
    let again = w.engine().restart(&id.to_string()).await.expect("it starts again");
    run(&again, "echo $A $B").await.expect_out("one two\n");
    destroy(&w, id).await;
}

async fn a_sandbox_that_could_not_be_made_leaves_nothing(w: World) {
    let mut new = NewSandbox { name: SandboxName::parse("never").ok(), ..NewSandbox::default() };
    new.spec.workspace = Some(Workspace { source: w.folder("a").join("missing"), mode: WorkspaceMode::Overlay });
    let error = w.engine().create_living(new.clone()).await.err().expect("there is no such folder");
    assert!(matches!(error.code, ErrorCode::FileNotFound | ErrorCode::NotADirectory), "{}", error.code);
    assert!(w.engine().sandboxes().await.expect("a list").is_empty());
    let left: Vec<_> = fs::read_dir(w.data_dir().join("sandboxes")).expect("the folder").flatten().collect();
    assert_eq!(left.len(), 1, "only the folder of names: {left:?}");
    new.spec.workspace = None;
    let sandbox = create(&w, new).await;
    destroy(&w, sandbox.id()).await;
}

async fn what_is_destroyed_is_gone(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let id = sandbox.id();
    run(&sandbox, "mkdir -p a/b/c; chmod 0 a/b; ln -s / link; mkfifo fifo; (while :; do sleep 1; done) &")
        .await
        .expect_exit(0);
    sandbox.destroy().await.expect("it can be destroyed");
    expect_nothing(&w, id);
    let error = w.engine().destroy(&id.to_string()).await.expect_err("it is gone");
    assert_eq!(error.code, ErrorCode::SandboxNotFound);
}

async fn who_held_a_sandbox_before_its_end_takes_nothing_from_who_holds_it_after_a_start(w: World) {
    for by_us in [true, false] {
        let before = create(&w, NewSandbox::default()).await;
        let (id, text) = (before.id(), before.id().to_string());
        match by_us {
            true => drop(w.engine().stop(&text).await.expect("it can be stopped")),
            false => w.kill_guest(id),
        }
        until(&w, id, SandboxState::Stopped).await;
        let after = w.engine().restart(&text).await.expect("it starts again");
        drop(before);
        w.backend().connect(id).await.map(drop).expect("it is still held");
        let result = after.run(request("echo still")).await.expect("it is still held");
        assert_eq!(result.outcome, Outcome::Exited { code: 0 }, "{:?}", result.warnings);
        drop(after);
        assert!(w.backend().connect(id).await.is_err(), "nobody holds it any more");
        destroy(&w, id).await;
    }
}

async fn whoever_works_in_a_sandbox_that_is_ended_is_told_by_whom(w: World) {
    let why = async |ending: &str| {
        let sandbox = create(&w, NewSandbox::default()).await;
        let id = sandbox.id();
        let at_work = sandbox.start(request("exec sleep 1000")).await.expect("it starts");
        let text = id.to_string();
        match ending {
            "stop" => drop(w.engine().stop(&text).await.expect("it can be stopped")),
            "destroy" => drop(w.engine().destroy(&text).await.expect("it can be destroyed")),
            _ => w.kill_guest(id),
        }
        let result = at_work.wait().await.expect("its end is told");
        assert_eq!(result.outcome, Outcome::Lost, "{ending}");
        let told = result.warnings.iter().find(|warning| warning.code == ErrorCode::SandboxLost.as_str());
        let told = told.map(|warning| warning.message.clone());
        drop(sandbox);
        if ending != "destroy" {
            destroy(&w, id).await;
        }
        told.map(|told| told.replace(&text, "it"))
    };
    assert_eq!(why("stop").await.as_deref(), Some("the sandbox it was stopped"));
    assert_eq!(why("destroy").await.as_deref(), Some("the sandbox it was destroyed"));
    // Nobody asked for it; an engine may know how the first process ended.
    let told = why("kill").await;
    assert!(
        told.as_deref()
            .is_none_or(|told| told == "the container was killed: it was out of memory, or somebody ended it"),
        "{told:?}"
    );
}

async fn the_end_that_is_told_is_the_one_that_comes_first(w: World) {
    let (idle, max_age) = (Some(Duration::from_secs(600)), Some(Duration::from_secs(7200)));
    let sandbox = create(&w, NewSandbox { lifetime: Lifetime { idle, max_age }, ..NewSandbox::default() }).await;
    let id = sandbox.id();
    let text = id.to_string();
    let ends_at = async || w.engine().status(&text).await.expect("it is there").ends_at.expect("it ends");
    let expires_at = w.engine().status(&text).await.expect("it is there").expires_at.expect("it ends");
    let earlier = expires_at.duration_since(ends_at().await).as_secs();
    assert!((6590..=6600).contains(&earlier), "{earlier} s");
    let at_work = sandbox.start(request("exec sleep 1000")).await.expect("it starts");
    let deadline = Instant::now() + Duration::from_secs(10);
    while ends_at().await != expires_at {
        assert!(Instant::now() < deadline, "what is at work holds the idle time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    at_work.cancel();
    at_work.wait().await.expect("it ends");
    w.engine().stop(&text).await.expect("it can be stopped");
    assert_eq!(ends_at().await, expires_at, "a stopped one is not unused");
    drop(sandbox);
    destroy(&w, id).await;
}
