//! Guests that lie, go away or are killed: their sandbox fails, and no other.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use glovebox_core::{Command, ErrorCode, Outcome, SandboxSpec};
use glovebox_engine::{Content, Engine, Files, FollowLinks, Page, Recursion, RunRequest, Sandbox, WriteOptions};

use crate::{
    World,
    case::cases,
    file_lies::FileLie,
    finished::Finished,
    inside_files::{path, read, soon},
    liar::{Liar, Lie},
    reading::read_until,
};

cases!["liars":
    a_guest_that_breaks_the_rules_at_a_start_fails_its_sandbox_and_no_other,
    a_guest_that_breaks_the_rules_after_the_start_fails_its_sandbox,
    a_guest_that_lists_without_an_end_is_stopped,
    a_guest_that_goes_away_again_and_again_is_given_up,
    a_guest_that_is_killed_loses_all_its_runs_and_no_others,
    a_guest_that_lies_about_its_workspace_fails_its_sandbox,
    a_guest_that_lies_about_files_fails_its_sandbox,
    a_guest_that_sends_a_hostile_archive_makes_nothing_on_the_host,
    a_guest_that_gives_strange_reasons_is_only_an_error,
];

/// Far more than a refusal takes, far less than somebody would wait.
const SOON: Duration = Duration::from_secs(5);

fn request(line: &str) -> RunRequest {
    RunRequest::new(Command::argv(["/bin/sh", "-c", line]).expect("the case names a command"))
}

async fn sandbox_of(w: &World, lie: Lie) -> Sandbox {
    let engine = Engine::new(Arc::new(Liar(lie))).with_data_dir(w.data_dir());
    engine.create(SandboxSpec::default()).await.expect("a liar makes sandboxes")
}

async fn a_guest_that_breaks_the_rules_at_a_start_fails_its_sandbox_and_no_other(w: World) {
    let honest = w.sandbox().create().await;
    for lie in Lie::AT_START {
        let sandbox = sandbox_of(&w, lie).await;
        let start = Instant::now();
        let error = sandbox.start(request("true")).await.map(drop).expect_err("a lie is no start");
        assert_eq!(error.code, ErrorCode::ChannelViolation, "{lie:?}: {error:?}");
        // It is not asked again, and the first failure is what is told.
        let again = sandbox.start(request("true")).await.map(drop).expect_err("it has failed");
        assert!(
            again.code == ErrorCode::ChannelViolation && again.message.contains(&error.message),
            "{lie:?}: {again}"
        );
        assert!(again.hint.is_some() && start.elapsed() < SOON, "{lie:?}: {:?}", start.elapsed());
        w.sandbox().inside(&honest).sh("echo fine").await.expect_exit(0).expect_out("fine\n");
    }
    honest.destroy().await.expect("the sandbox can be destroyed");
}

async fn a_guest_that_breaks_the_rules_after_the_start_fails_its_sandbox(w: World) {
    let sandbox = sandbox_of(&w, Lie::Confused).await;
    let error = sandbox.run(request("true")).await.expect_err("a lie is no result");
    assert_eq!(error.code, ErrorCode::ChannelViolation, "{error}");
    assert_eq!(sandbox.runs().await.expect_err("it has failed").code, ErrorCode::ChannelViolation);
}

async fn a_guest_that_lists_without_an_end_is_stopped(w: World) {
    let sandbox = sandbox_of(&w, Lie::EndlessList).await;
    let error = sandbox.runs().await.expect_err("no sandbox has so many runs");
    assert_eq!(error.code, ErrorCode::ChannelViolation, "{error}");
}

async fn a_guest_that_goes_away_again_and_again_is_given_up(w: World) {
    let sandbox = sandbox_of(&w, Lie::GoesAway).await;
    let start = Instant::now();
    let run = sandbox.start(request("true")).await.expect("it says that it started");
    let ended = run.wait().await;
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    match ended {
        Ok(result) => assert_eq!(result.outcome, Outcome::Lost),
        Err(error) => assert_eq!(error.code, ErrorCode::ChannelViolation, "{error}"),
    }
}

async fn a_guest_that_is_killed_loses_all_its_runs_and_no_others(w: World) {
    let (doomed, other) = (w.sandbox().create().await, w.sandbox().create().await);
    let mut runs = Vec::new();
    for _ in 0..5 {
        let mut run = doomed.start(request("echo up; sleep 60")).await.expect("the run is made");
        read_until(&mut run, "up\n").await;
        runs.push(run);
    }
    let unharmed = other.start(request("sleep 0.3; echo unharmed")).await.expect("the run is made");
    w.kill_guest(doomed.id());
    for run in runs {
        Finished(run.wait().await.expect("the loss of a sandbox is an outcome")).expect_outcome(&Outcome::Lost);
    }
    assert_eq!(doomed.run(request("true")).await.expect_err("it is gone").code, ErrorCode::SandboxLost);
    Finished(unharmed.wait().await.expect("the run ends")).expect_exit(0).expect_out("unharmed\n");
    doomed.destroy().await.expect("what is left can be destroyed");
    other.destroy().await.expect("the sandbox can be destroyed");
}

/// Asks for whatever the lie is about, to its end.
async fn ask(files: &Files, lie: FileLie) -> glovebox_core::Result<()> {
    match lie {
        FileLie::TooMuch | FileLie::NoEnd => read(files, "file").await.map(drop),
        FileLie::ClimbingName | FileLie::EmptyName | FileLie::TooManyEntries => {
            let mut entries = files.list(&path("."), Page::default()).await?;
            while entries.next().await?.is_some() {}
            Ok(())
        }
        FileLie::ClimbingEvent | FileLie::NoWatch => {
            files.watch(&path("."), Recursion::All).await?.next().await.map(drop)
        }
        FileLie::OtherAnswer => {
            files.write(&path("file"), WriteOptions::default(), Content::Bytes("x".into())).await.map(drop)
        }
        _ => files.stat(&path("file"), FollowLinks::Yes).await.map(drop),
    }
}

async fn a_guest_that_lies_about_its_workspace_fails_its_sandbox(w: World) {
    use FileLie::{ClimbingMet, EndlessSurvey, MetTwice, NoSurveyEnd, OtherAnswer, TooManyEntries};
    for lie in [MetTwice, ClimbingMet, EndlessSurvey, OtherAnswer, TooManyEntries] {
        let sandbox = sandbox_of(&w, Lie::File(lie)).await;
        let error = soon(sandbox.changes()).await.expect_err("a lie is no answer");
        assert_eq!(error.code, ErrorCode::ChannelViolation, "{lie:?}: {error:?}");
    }
    let sandbox = sandbox_of(&w, Lie::File(NoSurveyEnd)).await;
    assert_eq!(soon(sandbox.changes()).await.expect_err("it is cut off").code, ErrorCode::SandboxLost);
}

async fn a_guest_that_lies_about_files_fails_its_sandbox(w: World) {
    for lie in [
        FileLie::TooMuch,
        FileLie::ClimbingName,
        FileLie::EmptyName,
        FileLie::TooManyEntries,
        FileLie::ClimbingEvent,
        FileLie::NoWatch,
        FileLie::OtherAnswer,
    ] {
        let sandbox = sandbox_of(&w, Lie::File(lie)).await;
        let error = soon(ask(&sandbox.files(), lie)).await.expect_err("a lie is no answer");
        assert_eq!(error.code, ErrorCode::ChannelViolation, "{lie:?}: {error:?}");
        let again = soon(ask(&sandbox.files(), lie)).await.expect_err("it has failed");
        assert!(again.message.contains(&error.message), "{lie:?}: {again}");
    }
    let sandbox = sandbox_of(&w, Lie::File(FileLie::NoEnd)).await;
    let error = soon(ask(&sandbox.files(), FileLie::NoEnd)).await.expect_err("half a file is no file");
    assert_eq!(error.code, ErrorCode::SandboxLost, "{error}");
}

async fn a_guest_that_sends_a_hostile_archive_makes_nothing_on_the_host(w: World) {
    let target = w.folder("around/target");
    for lie in [FileLie::NoArchive, FileLie::ClimbingArchive, FileLie::CutArchive] {
        let sandbox = sandbox_of(&w, Lie::File(lie)).await;
        let error = soon(sandbox.files().pull_folder(&path("."), &target)).await.expect_err("it is no archive");
        assert_eq!(error.code, ErrorCode::ChannelViolation, "{lie:?}: {error:?}");
        assert_eq!(std::fs::read_dir(&target).expect("it is there").count(), 0, "{lie:?}");
    }
    assert_eq!(std::fs::read_dir(w.folder("around")).expect("it is there").count(), 1);
}

async fn a_guest_that_gives_strange_reasons_is_only_an_error(w: World) {
    for errno in [0, -1, 4096, i32::MAX, i32::MIN] {
        let lie = FileLie::StrangeErrno(errno);
        let sandbox = sandbox_of(&w, Lie::File(lie)).await;
        let error = soon(ask(&sandbox.files(), lie)).await.expect_err("it failed");
        assert_eq!(error.code, ErrorCode::FileFailed, "{errno}: {error:?}");
    }
}
