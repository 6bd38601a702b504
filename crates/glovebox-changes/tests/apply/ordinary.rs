//! What an apply that goes well does.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
};

use glovebox_changes::{Ended, JOURNAL_FOLDER, Mended, Target};

use crate::{Bench, change_everything, paths, set_mode, tree};

#[test]
fn changes_of_every_kind_reach_the_host_and_nothing_else_does() {
    let bench = Bench::new();
    change_everything(&bench.inside());
    bench.apply_all();
    assert_eq!(tree(&bench.host()), tree(&bench.inside()));
    assert!(!bench.host().join(JOURNAL_FOLDER).exists());
}

#[test]
fn a_reverse_undoes_an_apply_of_every_kind() {
    let bench = Bench::new();
    let before = tree(&bench.host());
    change_everything(&bench.inside());
    bench.apply_all();
    assert!(matches!(bench.reverse().unwrap(), Ended::Applied));
    assert_eq!(tree(&bench.host()), before);
    assert!(bench.applies.all().unwrap().is_empty(), "what was undone is still on the list");
}

#[test]
fn a_reverse_undoes_the_last_of_several() {
    let bench = Bench::new();
    fs::write(bench.inside().join("a"), "first\n").unwrap();
    bench.apply_all();
    fs::write(bench.inside().join("a"), "second\n").unwrap();
    bench.apply_all();
    assert!(matches!(bench.reverse().unwrap(), Ended::Applied));
    assert_eq!(fs::read_to_string(bench.host().join("a")).unwrap(), "first\n");
    assert!(matches!(bench.reverse().unwrap(), Ended::Applied));
    assert_eq!(fs::read_to_string(bench.host().join("a")).unwrap(), "one\n");
}

#[test]
fn an_apply_that_was_done_already_has_nothing_to_do() {
    let bench = Bench::new();
    change_everything(&bench.inside());
    let changes = bench.changes();
    bench.apply_all();
    let (target, mended) = bench.open();
    assert_eq!(mended, None);
    let plan = target.plan(&changes);
    assert!(plan.conflicts.is_empty() && plan.changes.is_empty(), "{plan:?}");
    assert_eq!(plan.already.len(), changes.len());
}

#[test]
fn a_folder_that_holds_something_of_the_host_stays() {
    let bench = Bench::new();
    fs::remove_dir_all(bench.inside().join("src")).unwrap();
    let changes = bench.changes();
    fs::write(bench.host().join("src/deep/mine"), "mine").unwrap();
    let (target, _) = bench.open();
    let plan = target.plan(&changes);
    assert_eq!(plan.kept_folders, ["src/deep", "src"]);
    assert_eq!(paths(&plan), ["src/c", "src/deep/d"]);
    assert!(matches!(target.carry_out(plan, bench.run, &bench.blobs, None).unwrap(), Ended::Applied));
    assert_eq!(fs::read_to_string(bench.host().join("src/deep/mine")).unwrap(), "mine");
    assert!(!bench.host().join("src/c").exists());
}

#[test]
fn new_files_get_the_owner_of_their_folder_and_replaced_ones_keep_theirs() {
    let bench = Bench::new();
    chown(bench.host().join("src"), Some(4242), Some(4343)).expect("this test needs root");
    chown(bench.host().join("a"), Some(5252), Some(5353)).unwrap();
    fs::write(bench.inside().join("src/new"), "x").unwrap();
    fs::create_dir_all(bench.inside().join("src/one/two")).unwrap();
    fs::write(bench.inside().join("src/one/two/three"), "x").unwrap();
    fs::write(bench.inside().join("a"), "x").unwrap();
    bench.apply_all();
    let owner = |path: &str| fs::metadata(bench.host().join(path)).map(|facts| (facts.uid(), facts.gid())).unwrap();
    for path in ["src/new", "src/one", "src/one/two/three"] {
        assert_eq!(owner(path), (4242, 4343), "{path}");
    }
    assert_eq!(owner("a"), (5252, 5353));
}

#[test]
fn a_folder_of_the_host_keeps_its_group_bit_and_hands_it_on() {
    let bench = Bench::new();
    set_mode(&bench.host().join("src"), 0o2775);
    set_mode(&bench.inside().join("src"), 0o2775);
    fs::create_dir(bench.inside().join("src/new")).unwrap();
    let changes = bench.changes();
    assert!(matches!(bench.apply(&changes).unwrap(), Ended::Applied));
    let mode = |path: &str| fs::metadata(bench.host().join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("src"), mode("src/new")), (0o2775, 0o2755));
}

#[test]
fn folders_that_are_closed_to_their_owner_are_changed_removed_and_brought_back() {
    let bench = Bench::new();
    for root in [bench.host(), bench.inside()] {
        fs::create_dir_all(root.join("closed/below")).unwrap();
        fs::create_dir_all(root.join("gone/below")).unwrap();
        for name in ["closed/a", "closed/below/b", "closed/mode", "gone/c", "gone/below/d"] {
            fs::write(root.join(name), "x").unwrap();
        }
    }
    fs::remove_dir_all(bench.inside().join("gone")).unwrap();
    fs::remove_file(bench.inside().join("closed/a")).unwrap();
    fs::write(bench.inside().join("closed/below/new"), "new").unwrap();
    set_mode(&bench.inside().join("closed/mode"), 0o600);
    set_mode(&bench.inside().join("closed/below"), 0o500);
    for closed in ["closed/below", "closed", "gone/below", "gone"] {
        set_mode(&bench.host().join(closed), 0o555);
    }
    let before = tree(&bench.host());
    bench.apply_all();
    assert_eq!(tree(&bench.host()), tree(&bench.inside()));
    assert!(matches!(bench.reverse().unwrap(), Ended::Applied));
    assert_eq!(tree(&bench.host()), before);
    // A folder that goes but holds something else stays, and is closed again.
    let changes = bench.changes();
    set_mode(&bench.host().join("gone/below"), 0o755);
    fs::write(bench.host().join("gone/below/mine"), "mine").unwrap();
    set_mode(&bench.host().join("gone/below"), 0o555);
    assert!(matches!(bench.apply(&changes).unwrap(), Ended::Applied));
    let mode = |path: &str| fs::metadata(bench.host().join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("gone"), mode("gone/below")), (0o555, 0o555));
    assert!(!bench.host().join("gone/below/d").exists());
    for open in ["closed", "closed/below", "gone", "gone/below"] {
        set_mode(&bench.host().join(open), 0o755);
    }
    set_mode(&bench.inside().join("closed/below"), 0o755);
}

#[test]
fn what_nobody_may_read_any_more_is_applied_too() {
    let bench = Bench::new();
    fs::create_dir(bench.inside().join("shut")).unwrap();
    set_mode(&bench.inside().join("a"), 0o600);
    let mut changes = bench.changes();
    for change in &mut changes {
        change.after.as_mut().unwrap().mode = 0o000;
    }
    assert!(matches!(bench.apply(&changes).unwrap(), Ended::Applied));
    let mode = |path: &str| fs::metadata(bench.host().join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("a"), mode("shut")), (0, 0));
}

#[test]
fn two_applies_to_one_folder_do_not_meet() {
    let bench = Bench::new();
    let (held, _) = bench.open();
    let error = Target::open(&bench.host(), &bench.applies).err().expect("the folder is locked");
    assert!(error.message.contains("another apply"), "{}", error.message);
    drop(held);
    assert_eq!(bench.open().1, None::<Mended>);
}
