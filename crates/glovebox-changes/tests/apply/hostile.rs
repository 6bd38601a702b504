//! Folders and change sets that are made to do harm, and disks that give out.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use glovebox_changes::{Ended, JOURNAL_FOLDER, OutwardLinks, Target, for_host};
use glovebox_core::{Change, ChangeRecord, FileKind, FileState};

use crate::{Bench, change_everything, set_mode, tree};

fn new_file(bench: &Bench, path: &str) -> Change {
    let blob = bench.blobs.put(&b"evil"[..]).unwrap();
    let kind = FileKind::File { bytes: 4, sha256: Some(blob.sha256.to_string()), not_kept: None };
    Change { path: path.into(), before: None, after: Some(FileState { mode: 0o644, kind }), obstacle: None }
}

#[test]
fn no_path_leads_out_of_the_folder() {
    let bench = Bench::new();
    let outside = bench.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, bench.host().join("way_out")).unwrap();
    symlink("../outside", bench.host().join("relative")).unwrap();
    for path in ["../outside/x", "a/../../outside/x", "way_out/x", "relative/x", "/tmp/x", "", ".", "src//x", "src/./x"]
    {
        let conflicts = bench.refused(&[new_file(&bench, path)]);
        assert_eq!(conflicts.len(), 1, "{path}");
    }
    assert!(outside.read_dir().unwrap().next().is_none(), "something was written outside");
}

#[test]
fn a_folder_that_becomes_a_link_between_look_and_change_leads_nowhere() {
    let bench = Bench::new();
    change_everything(&bench.inside());
    let outside = bench.dir.path().join("outside");
    fs::create_dir_all(outside.join("deep")).unwrap();
    fs::write(outside.join("c"), "three\n").unwrap();
    let changes = bench.changes();
    let (target, _) = bench.open();
    let plan = target.plan(&changes);
    assert!(plan.conflicts.is_empty());
    fs::rename(bench.host().join("src"), bench.dir.path().join("moved")).unwrap();
    symlink(&outside, bench.host().join("src")).unwrap();
    let (before, before_outside) = (tree(&bench.host()), tree(&outside));
    assert!(matches!(target.carry_out(plan, bench.run, &bench.blobs, None).unwrap(), Ended::Conflicts(_)));
    assert_eq!((tree(&bench.host()), tree(&outside)), (before, before_outside));
}

#[test]
fn special_files_and_links_that_lead_out_stay_and_special_bits_go() {
    let bench = Bench::new();
    let inside = bench.inside();
    assert!(Command::new("mkfifo").arg(inside.join("pipe")).status().unwrap().success());
    symlink("/etc/passwd", inside.join("absolute")).unwrap();
    symlink("../../x", inside.join("src/up")).unwrap();
    symlink("deep/../../../x", inside.join("src/around")).unwrap();
    symlink("../a", inside.join("src/fine")).unwrap();
    fs::write(inside.join("setuid"), "x").unwrap();
    set_mode(&inside.join("setuid"), 0o6755);
    let record = bench.record();
    let chosen = for_host(&record, OutwardLinks::LeaveOut("make it shorter"));
    let left: Vec<&str> = chosen.left_out.iter().map(|left| left.path.as_str()).collect();
    assert!(chosen.left_out[0].reason.ends_with("to /etc/passwd; make it shorter"), "{:?}", chosen.left_out);
    assert_eq!(left, ["absolute", "pipe", "setuid", "src/around", "src/up"]);
    assert!(matches!(bench.apply(&chosen.changes).unwrap(), Ended::Applied));
    assert_eq!(fs::metadata(bench.host().join("setuid")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::read_link(bench.host().join("src/fine")).unwrap(), Path::new("../a"));
    for path in ["pipe", "absolute", "src/up", "src/around"] {
        assert!(fs::symlink_metadata(bench.host().join(path)).is_err(), "{path} came out");
    }
    assert_eq!(for_host(&record, OutwardLinks::Bring).left_out.len(), 2, "--outward-links brings links");
}

#[test]
fn special_bits_do_not_come_out_even_when_nobody_took_them_away() {
    let bench = Bench::new();
    let mut change = new_file(&bench, "x");
    change.after.as_mut().unwrap().mode = 0o7777;
    assert!(matches!(bench.apply(&[change]).unwrap(), Ended::Applied));
    assert_eq!(fs::metadata(bench.host().join("x")).unwrap().mode() & 0o7777, 0o777);
}

#[test]
fn the_place_of_the_journal_cannot_be_written_by_a_run() {
    let bench = Bench::new();
    for path in [".glovebox-apply/journal", ".GLOVEBOX-APPLY/done", JOURNAL_FOLDER] {
        bench.refused(&[new_file(&bench, path)]);
    }
}

#[test]
fn a_journal_that_came_with_the_folder_is_not_believed() {
    let bench = Bench::new();
    let journal = bench.host().join(JOURNAL_FOLDER);
    fs::create_dir(&journal).unwrap();
    fs::write(
        journal.join("journal"),
        r#"{"version":1,"id":"x","steps":[{"do":"make_folder","path":"src/deep","mode":493,"owner":[0,0]}]}"#,
    )
    .unwrap();
    let before = tree(&bench.host());
    let error = Target::open(&bench.host(), &bench.applies).err().expect("it is not believed");
    assert!(error.message.contains(JOURNAL_FOLDER), "{}", error.message);
    assert_eq!(tree(&bench.host()), before);
    fs::remove_dir_all(&journal).unwrap();
    symlink(bench.inside(), &journal).unwrap();
    assert!(Target::open(&bench.host(), &bench.applies).is_err());
}

#[test]
fn a_journal_that_a_program_forged_is_not_believed() {
    let bench = Bench::new();
    let journal = bench.host().join(JOURNAL_FOLDER);
    fs::create_dir(&journal).unwrap();
    set_mode(&journal, 0o700);
    fs::write(journal.join("0"), "#!/bin/sh\necho evil\n").unwrap();
    let was = r#"{"mode":0,"bytes":0,"modified":[0,0]}"#;
    let to = fs::metadata(bench.host().join("script")).unwrap().permissions().mode() & 0o7777;
    let steps = format!(
        r#"{{"do":"take","path":"src/hook","slot":0,"was":{was}}},
           {{"do":"set_mode","path":"script","folder":false,"from":2541,"to":{to}}}"#
    );
    fs::write(journal.join("journal"), format!(r#"{{"version":1,"id":"x","steps":[{steps}]}}"#)).unwrap();
    let before = tree(&bench.host());
    let error = Target::open(&bench.host(), &bench.applies).err().expect("it is not believed");
    assert!(error.message.contains(JOURNAL_FOLDER), "{}", error.message);
    assert_eq!(tree(&bench.host()), before);
}

#[test]
fn a_folder_that_cannot_be_written_is_named_before_anything_happens() {
    let bench = Bench::new();
    change_everything(&bench.inside());
    let changes = bench.changes();
    // Root may write anywhere but on a file system that is read-only, or to what is marked as never to be changed.
    let immutable = |flag: &str| Command::new("chattr").arg(flag).arg(bench.host().join("src")).status().unwrap();
    if immutable("+i").success() {
        let before = tree(&bench.host());
        let ended = bench.apply(&changes);
        let after = tree(&bench.host());
        assert!(immutable("-i").success());
        assert_eq!(after, before, "half of it was applied");
        match ended {
            Err(error) => assert!(error.message.contains("src"), "{}", error.message),
            Ok(ended) => assert!(matches!(ended, Ended::Conflicts(_)), "{ended:?}"),
        }
    }
    let mounted = Mounted::tmpfs(&bench.host().join("src"), "size=1m,mode=755");
    fs::create_dir(bench.host().join("src/deep")).unwrap();
    let conflicts = bench.refused(&changes);
    assert!(conflicts.iter().all(|conflict| conflict.reason.contains("another file system")), "{conflicts:?}");
    drop(mounted);
    bench.apply_all();
}

#[test]
fn a_disk_that_is_full_half_way_leaves_everything_as_it_was() {
    let bench = Bench::new();
    let _mounted = Mounted::tmpfs(&bench.host(), "size=256k,nr_inodes=64,mode=755");
    fs::write(bench.host().join("a"), "one\n").unwrap();
    fs::remove_dir_all(bench.inside()).unwrap();
    fs::create_dir(bench.inside()).unwrap();
    for number in 0..8 {
        fs::write(bench.inside().join(format!("big{number}")), vec![number; 60_000]).unwrap();
    }
    fs::write(bench.inside().join("a"), "changed\n").unwrap();
    let before = tree(&bench.host());
    let error = bench.apply(&bench.changes()).expect_err("there is no room");
    assert!(error.message.contains("No space left"), "{}", error.message);
    assert_eq!(error.hint.as_deref(), Some("nothing was changed"));
    assert_eq!(tree(&bench.host()), before);
    assert!(bench.applies.all().unwrap().is_empty());
    // Neither is there room for so many files.
    for number in 0..8 {
        fs::remove_file(bench.inside().join(format!("big{number}"))).unwrap();
    }
    for number in 0..80 {
        fs::write(bench.inside().join(format!("small{number}")), "x").unwrap();
    }
    bench.apply(&bench.changes()).expect_err("there is no room");
    assert_eq!(tree(&bench.host()), before);
}

#[test]
fn names_that_differ_only_in_case_clash_where_case_does_not_count() {
    let bench = Bench::new();
    let image = bench.dir.path().join("image");
    let _mounted = Mounted::ntfs(&bench.host(), &image);
    fs::write(bench.host().join("readme"), "theirs\n").unwrap();
    let before = tree(&bench.host());
    let conflicts = bench.refused(&[new_file(&bench, "README")]);
    assert_eq!(conflicts[0].path, "README");
    let both = [new_file(&bench, "Notes"), new_file(&bench, "notes")];
    match bench.apply(&both) {
        Ok(Ended::Conflicts(conflicts)) => assert!(conflicts[0].reason.contains("case"), "{conflicts:?}"),
        other => panic!("two names became one file: {other:?}"),
    }
    assert_eq!(tree(&bench.host()), before);
}

#[test]
fn a_file_system_without_the_newer_renames_is_changed_all_the_same() {
    let bench = Bench::new();
    let image = bench.dir.path().join("image");
    let _mounted = Mounted::ntfs(&bench.host(), &image);
    set_mode(&bench.host(), 0o755);
    for name in ["a", "b"] {
        fs::copy(bench.inside().join(name), bench.host().join(name)).unwrap();
        set_mode(&bench.host().join(name), 0o644);
    }
    for gone in ["src/deep/d", "src/c", "script", "link"] {
        fs::remove_file(bench.inside().join(gone)).unwrap();
    }
    fs::write(bench.inside().join("a"), "changed\n").unwrap();
    fs::remove_file(bench.inside().join("b")).unwrap();
    fs::write(bench.inside().join("new"), "new\n").unwrap();
    let before = tree(&bench.host());
    bench.apply_all();
    assert_eq!(tree(&bench.host()), tree(&bench.inside()));
    assert!(matches!(bench.reverse().unwrap(), Ended::Applied));
    assert_eq!(tree(&bench.host()), before);
}

#[test]
fn names_that_differ_only_in_case_are_two_files_where_case_counts() {
    let bench = Bench::new();
    let both = [new_file(&bench, "Notes"), new_file(&bench, "notes")];
    assert!(matches!(bench.apply(&both).unwrap(), Ended::Applied));
    assert!(bench.host().join("Notes").exists() && bench.host().join("notes").exists());
}

#[test]
fn a_record_that_lies_about_kinds_does_no_harm() {
    let bench = Bench::new();
    let special = Change {
        path: "agent_workspace/dev".into(),
        before: None,
        after: Some(FileState { mode: 0o666, kind: FileKind::Special }),
        obstacle: None,
    };
    let record = ChangeRecord { changes: vec![special.clone()], truncated: false };
    assert!(for_host(&record, OutwardLinks::Bring).changes.is_empty());
    bench.refused(&[Change { path: "dev".into(), ..special }]);
    assert_eq!(fs::metadata(bench.host()).unwrap().permissions().mode() & 0o777, 0o755);
}

/// A file system that is mounted for a test.
struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(place: &Path, options: &str) -> Self {
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(place).status().unwrap();
        assert!(status.success(), "this test needs root");
        Mounted(place.to_owned())
    }

    /// A file system on which case does not count, and which has none of the newer kinds of rename.
    fn ntfs(place: &Path, image: &Path) -> Self {
        fs::File::create(image).unwrap().set_len(16 << 20).unwrap();
        let made = Command::new("mkfs.ntfs").args(["-q", "-F", "-f"]).arg(image).output();
        let made = made.expect("mkfs.ntfs is needed: apt-get install ntfs-3g");
        assert!(made.status.success(), "{made:?}");
        let mounted = Command::new("lowntfs-3g").args(["-o", "ignore_case,permissions"]).arg(image).arg(place).output();
        let mounted = mounted.expect("lowntfs-3g is needed: apt-get install ntfs-3g");
        assert!(mounted.status.success(), "this test needs root and FUSE: {mounted:?}");
        Mounted(place.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
