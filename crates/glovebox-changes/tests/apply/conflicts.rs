//! A host that is not as the run saw it: everything is refused, and nothing changes.

use std::{fs, os::unix::fs::symlink};

use glovebox_changes::Ended;
use glovebox_core::{FileKind, FileState, NotKept, Obstacle};

use crate::{Bench, change_everything, set_mode, tree};

#[test]
fn every_kind_of_conflict_is_named_and_nothing_is_applied() {
    let bench = Bench::new();
    change_everything(&bench.inside());
    let changes = bench.changes();
    let host = bench.host();
    fs::write(host.join("a"), "edited\n").unwrap();
    fs::write(host.join("b"), "edited\n").unwrap();
    fs::write(host.join("new"), "mine\n").unwrap();
    fs::remove_file(host.join("script")).unwrap();
    fs::remove_file(host.join("link")).unwrap();
    symlink("b", host.join("link")).unwrap();
    let conflicts = bench.refused(&changes);
    let named: Vec<(&str, &str)> = conflicts.iter().map(|c| (c.path.as_str(), c.reason.as_str())).collect();
    assert_eq!(
        named,
        [
            ("a", "was changed on the host since then"),
            ("b", "was changed on the host since then"),
            ("link", "was changed on the host since then"),
            ("new", "is there already, and it is another"),
            ("script", "is no longer there"),
        ]
    );
}

#[test]
fn a_mode_that_changed_on_the_host_is_a_conflict() {
    let bench = Bench::new();
    fs::write(bench.inside().join("a"), "x").unwrap();
    let changes = bench.changes();
    set_mode(&bench.host().join("a"), 0o600);
    assert_eq!(bench.refused(&changes)[0].path, "a");
}

#[test]
fn a_file_that_the_host_changed_while_the_run_lasted_is_a_conflict() {
    let bench = Bench::new();
    fs::write(bench.inside().join("a"), "x").unwrap();
    let mut changes = bench.changes();
    changes[0].obstacle = Some(Obstacle::ChangedMeanwhile);
    assert!(bench.refused(&changes)[0].reason.contains("while the run lasted"));
}

#[test]
fn a_name_that_cannot_be_written_down_is_a_conflict_whatever_stands_at_its_likeness() {
    let bench = Bench::new();
    fs::remove_file(bench.inside().join("a")).unwrap();
    let mut changes = bench.changes();
    // As the record of a run writes `a\xff`, of which the host has none.
    changes[0].path = "a\u{fffd}".into();
    for (obstacle, word) in [(Obstacle::NameNotUtf8, "UTF-8"), (Obstacle::NameHoldsSecret, "--secret")] {
        changes[0].obstacle = Some(obstacle);
        assert!(bench.refused(&changes)[0].reason.contains(word));
    }
}

#[test]
fn a_content_that_was_not_kept_is_a_conflict_that_says_why() {
    let bench = Bench::new();
    fs::write(bench.inside().join("a"), "x").unwrap();
    fs::write(bench.inside().join("new"), "x").unwrap();
    let lost =
        |why| Some(FileState { mode: 0o644, kind: FileKind::File { bytes: 1, sha256: None, not_kept: Some(why) } });
    let mut changes = bench.changes();
    changes[0].before = lost(NotKept::Secret);
    changes[1].after = lost(NotKept::TooLarge);
    let conflicts = bench.refused(&changes);
    assert!(conflicts[0].reason.contains("--secret"), "{conflicts:?}");
    assert!(conflicts[1].reason.contains("too large"), "{conflicts:?}");
}

#[test]
fn a_missing_folder_and_a_file_in_its_place_are_conflicts() {
    let bench = Bench::new();
    fs::write(bench.inside().join("src/deep/new"), "x").unwrap();
    let changes = bench.changes();
    fs::remove_dir_all(bench.host().join("src/deep")).unwrap();
    assert_eq!(bench.refused(&changes)[0].reason, "lies in a folder that is not there");
    fs::write(bench.host().join("src/deep"), "a file").unwrap();
    assert!(bench.refused(&changes)[0].reason.contains("no folder"));
}

#[test]
fn a_folder_that_a_file_should_replace_must_hold_nothing_else() {
    let bench = Bench::new();
    fs::remove_dir_all(bench.inside().join("src/deep")).unwrap();
    fs::write(bench.inside().join("src/deep"), "x").unwrap();
    let changes = bench.changes();
    fs::write(bench.host().join("src/deep/mine"), "mine").unwrap();
    assert!(bench.refused(&changes)[0].reason.contains("no part of the changes"));
}

#[test]
fn a_reverse_is_refused_when_the_host_went_on() {
    let bench = Bench::new();
    change_everything(&bench.inside());
    bench.apply_all();
    fs::write(bench.host().join("new"), "went on\n").unwrap();
    let before = tree(&bench.host());
    assert!(matches!(bench.reverse().unwrap(), Ended::Conflicts(_)));
    assert_eq!(tree(&bench.host()), before);
}

#[test]
fn a_file_that_changes_between_the_look_and_the_change_is_noticed_and_all_is_undone() {
    let bench = Bench::new();
    change_everything(&bench.inside());
    let changes = bench.changes();
    for path in ["a", "b", "new", "link", "src/c", "script", "src/deep/d"] {
        let (target, _) = bench.open();
        let plan = target.plan(&changes);
        assert!(plan.conflicts.is_empty());
        let place = bench.host().join(path);
        let former = fs::read(&place).ok();
        let _ = fs::remove_file(&place);
        fs::create_dir(&place).unwrap();
        let before = tree(&bench.host());
        match target.carry_out(plan, bench.run, &bench.blobs, None).unwrap() {
            Ended::Conflicts(conflicts) => assert!(!conflicts.is_empty()),
            Ended::Applied => panic!("{path} was changed under the apply, and it did not notice"),
        }
        assert_eq!(tree(&bench.host()), before, "{path}");
        fs::remove_dir(&place).unwrap();
        match (path, former) {
            ("link", _) => symlink("a", &place).unwrap(),
            (_, Some(bytes)) => fs::write(&place, bytes).unwrap(),
            (_, None) => {}
        }
    }
    bench.apply_all();
}
