//! The same as an ordinary user. These tests run as root, before whom no permission stands.

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt, chown},
    process::Command,
};

use glovebox_changes::JOURNAL_FOLDER;
use glovebox_core::ErrorCode;

use crate::{Bench, change_everything, set_mode, tree};

/// An id that no account of a machine has.
const USER: u32 = 64_321;
/// Set for the tests that the ordinary user runs.
const SWITCHED: &str = "GLOVEBOX_TEST_AS_USER";
/// What only root can do: mount, and give files away.
const FOR_ROOT: [&str; 5] = [
    "new_files_get_the_owner_of_their_folder",
    "a_folder_that_cannot_be_written_is_named",
    "a_disk_that_is_full_half_way",
    "names_that_differ_only_in_case_clash",
    "a_file_system_without_the_newer_renames",
];

#[test]
fn everything_holds_for_an_ordinary_user() {
    if env::var_os(SWITCHED).is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (program, scratch) = (folder.path().join("tests"), folder.path().join("scratch"));
    // By a process of its own: a child of another test would hold the copy open for writing, and then nobody can execute it.
    assert!(Command::new("cp").arg(env::current_exe().unwrap()).arg(&program).status().unwrap().success());
    fs::create_dir(&scratch).unwrap();
    chown(&scratch, Some(USER), Some(USER)).expect("this test needs root");
    let mut command = Command::new("setpriv");
    let id = USER.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(program);
    command.args(FOR_ROOT.iter().flat_map(|name| ["--skip", name]));
    let output = command.env(SWITCHED, "1").env("TMPDIR", &scratch).current_dir(&scratch).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("a_folder_without_the_right_to_write_is_a_conflict ... ok"), "{said}");
    assert!(said.contains("kill_nine_at_any_moment_leaves_all_or_nothing ... ok"), "{said}");
}

#[test]
fn a_folder_without_the_right_to_write_is_a_conflict() {
    if env::var_os(SWITCHED).is_none() {
        return;
    }
    let bench = Bench::new();
    change_everything(&bench.inside());
    let changes = bench.changes();
    set_mode(&bench.host().join("src"), 0o555);
    let conflicts = bench.refused(&changes);
    let named: Vec<(&str, &str)> = conflicts.iter().map(|c| (c.path.as_str(), c.reason.as_str())).collect();
    assert_eq!(
        named,
        [
            ("src/c", "lies in a folder that cannot be written to"),
            ("src/c/inner", "lies behind something that is no folder"),
            ("src/deep", "lies in a folder that cannot be written to"),
        ]
    );
    set_mode(&bench.host().join("src"), 0o755);
    // Without room for the journal there is no apply at all, and nothing is left of the attempt.
    fs::remove_file(bench.inside().join("a")).unwrap();
    fs::write(bench.inside().join("src/only"), "x").unwrap();
    let below: Vec<_> = bench.changes().into_iter().filter(|change| change.path == "src/only").collect();
    set_mode(&bench.host(), 0o555);
    let before = tree(&bench.host());
    let error = bench.apply(&below).expect_err("there is no place for the journal");
    set_mode(&bench.host(), 0o755);
    assert_eq!((error.code, tree(&bench.host())), (ErrorCode::HostIo, before));
    assert!(!bench.host().join(JOURNAL_FOLDER).exists() && bench.applies.all().unwrap().is_empty());
    bench.apply_all();
}

#[test]
fn a_file_that_may_not_be_read_is_a_conflict_and_not_a_failure() {
    if env::var_os(SWITCHED).is_none() {
        return;
    }
    let bench = Bench::new();
    fs::write(bench.inside().join("a"), "changed\n").unwrap();
    let changes = bench.changes();
    set_mode(&bench.host().join("a"), 0o000);
    // The tree cannot be compared by one who may not read it.
    let (target, _) = bench.open();
    let conflicts = target.plan(&changes).conflicts;
    assert_eq!(conflicts[0].path, "a");
    set_mode(&bench.host().join("a"), 0o644);
}
