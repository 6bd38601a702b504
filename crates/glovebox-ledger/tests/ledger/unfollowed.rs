//! Runs in living sandboxes whose process died.

use glovebox_core::Outcome;
use glovebox_ledger::{Ledger, UnderWay, Unfollowed};

use crate::{STARTING, all, begun, data_dir, finished};

#[tokio::test]
async fn a_run_in_a_living_sandbox_is_not_lost_with_its_process() {
    let _nobody_starts = STARTING.read().await;
    let folder = data_dir();
    let ledger = Ledger::below(folder.path());
    let result = finished(b"", b"");
    let recording = ledger.begin_in_living(begun(&result));
    assert_eq!(ledger.unfollowed().unwrap(), []);
    assert!(matches!(ledger.take_over(result.run).unwrap(), UnderWay::Followed));
    assert!(!ledger.give_up(result.run).await.unwrap());
    // What a process leaves that is killed.
    drop(recording);
    assert_eq!(ledger.unfollowed().unwrap(), [Unfollowed { run: result.run, sandbox: result.sandbox }]);
    let listed = all(&ledger).await;
    assert_eq!((listed.len(), &listed[0].outcome, listed[0].sandbox), (1, &None, result.sandbox));
}

#[tokio::test]
async fn whoever_takes_a_run_over_records_it_and_nobody_else_does() {
    let _nobody_starts = STARTING.read().await;
    let folder = data_dir();
    let ledger = Ledger::below(folder.path());
    let mut result = finished(b"out", b"");
    drop(ledger.begin_in_living(begun(&result)));
    let UnderWay::Taken(recording, if_lost) = ledger.take_over(result.run).unwrap() else { panic!("nobody has it") };
    assert_eq!((if_lost.run, if_lost.outcome, if_lost.command), (result.run, Outcome::Lost, result.command.clone()));
    assert!(matches!(ledger.take_over(result.run).unwrap(), UnderWay::Followed));
    assert_eq!(ledger.unfollowed().unwrap(), []);
    recording.finish(&mut result, Vec::new()).await.unwrap();
    assert_eq!(all(&ledger).await[0].outcome.as_ref(), Some(&result.outcome));
    assert!(matches!(ledger.take_over(result.run).unwrap(), UnderWay::NotNoted));
}

#[tokio::test]
async fn a_run_that_is_given_up_is_lost() {
    let _nobody_starts = STARTING.read().await;
    let folder = data_dir();
    let ledger = Ledger::below(folder.path());
    let result = finished(b"", b"");
    drop(ledger.begin_in_living(begun(&result)));
    assert!(ledger.give_up(result.run).await.unwrap());
    assert!(!ledger.give_up(result.run).await.unwrap());
    let listed = all(&ledger).await;
    assert_eq!((listed.len(), listed[0].outcome.as_ref()), (1, Some(&Outcome::Lost)));
    assert_eq!(ledger.unfollowed().unwrap(), []);
}

#[tokio::test]
async fn a_run_of_a_sandbox_that_ended_with_its_process_is_lost_as_ever() {
    let _nobody_starts = STARTING.read().await;
    let folder = data_dir();
    let ledger = Ledger::below(folder.path());
    let result = finished(b"", b"");
    drop(ledger.begin(begun(&result)));
    assert_eq!(ledger.unfollowed().unwrap(), []);
    assert_eq!(all(&ledger).await[0].outcome, Some(Outcome::Lost));
}
