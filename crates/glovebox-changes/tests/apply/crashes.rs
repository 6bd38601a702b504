//! An apply that is killed, wherever that happens: the folder is wholly as before or wholly as after.

use std::{
    env, fs,
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
    time::Duration,
};

use glovebox_changes::{Ended, JOURNAL_FOLDER, Mended, Target, mend_all};

use crate::{Bench, change_everything, tree};

/// Set for the process that applies and is killed: the folder of its bench.
const VICTIM: &str = "GLOVEBOX_TEST_APPLY_IN";
const KILLS: u32 = 100;
const SPREAD: u32 = 40;

/// Not a test of its own: the process that the test below kills.
#[test]
fn the_process_that_is_killed() {
    let Ok(folder) = env::var(VICTIM) else { return };
    let folder = std::path::PathBuf::from(folder);
    let blobs = glovebox_ledger::Blobs::open(folder.join("blobs")).unwrap();
    let applies = glovebox_changes::Applies::new(folder.join("applies"));
    let changes: Vec<glovebox_core::Change> =
        serde_json::from_slice(&fs::read(folder.join("changes.json")).unwrap()).unwrap();
    let (target, _) = Target::open(&folder.join("host"), &applies).unwrap();
    let plan = target.plan(&changes);
    let ended = target.carry_out(plan, glovebox_core::RunId::new(), &blobs, None).unwrap();
    assert!(matches!(ended, Ended::Applied), "{ended:?}");
}

#[test]
fn kill_nine_at_any_moment_leaves_all_or_nothing() {
    let bench = Bench::new();
    change_everything(&bench.inside());
    // Many files make the time long in which a kill can hit.
    for number in 0..60 {
        fs::write(bench.host().join(format!("src/old{number}")), "old").unwrap();
        fs::write(bench.inside().join(format!("new{number}")), "new").unwrap();
    }
    let changes = bench.changes();
    fs::write(bench.dir.path().join("changes.json"), serde_json::to_vec(&changes).unwrap()).unwrap();
    let (before, after) = (tree(&bench.host()), tree(&bench.inside()));
    let (mut undone, mut applied, mut killed) = (0, 0, 0);
    let mut longest = time_of_one(&bench);
    back(&bench);
    let mut round = 0;
    // A victim that was faster than its kill does not count.
    while killed < KILLS {
        round += 1;
        assert!(round < 20 * KILLS, "only {killed} of {round} kills came in time");
        let mut victim = victim(&bench).spawn().unwrap();
        // Moments are spread evenly over the time that an apply takes, from its start to its end.
        std::thread::sleep(longest * (round % SPREAD) / SPREAD);
        let _ = victim.kill();
        let in_time = victim.wait().unwrap().signal() == Some(9);
        killed += u32::from(in_time);
        // A machine that was busy when the time was taken is quicker later.
        longest = if in_time { longest * 21 / 20 } else { longest * 19 / 20 };
        let journal_left = bench.host().join(JOURNAL_FOLDER).exists();
        // The next apply mends, and so does gc; each takes every other turn.
        let mended = if round % 2 == 0 {
            bench.open().1
        } else {
            mend_all(&bench.applies).unwrap().pop().map(|(_, mended)| mended.unwrap())
        };
        assert_eq!(mended.is_some(), journal_left, "round {round}");
        let now = tree(&bench.host());
        assert!(!bench.host().join(JOURNAL_FOLDER).exists());
        assert!(now == before || now == after, "round {round}: neither before nor after: {now:#?}");
        undone += u32::from(mended == Some(Mended::Undone));
        mend_all(&bench.applies).unwrap();
        let listed = bench.applies.all().unwrap();
        if now == after {
            applied += 1;
            assert!(listed.len() == 1 && listed[0].done, "round {round}: {listed:?}");
            back(&bench);
            assert_eq!(tree(&bench.host()), before);
        } else {
            assert!(listed.is_empty(), "round {round}: {listed:?}");
        }
    }
    println!("{killed} kills in {round} rounds: {undone} had begun and were undone, {applied} were applied");
    assert!(undone > 0, "no kill hit an apply that had begun ({killed} kills, {applied} applied)");
}

fn victim(bench: &Bench) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "crashes::the_process_that_is_killed"]).env(VICTIM, bench.dir.path());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// How long one whole apply takes, with the start of its process.
fn time_of_one(bench: &Bench) -> Duration {
    let started = std::time::Instant::now();
    assert!(victim(bench).status().unwrap().success());
    started.elapsed()
}

fn back(bench: &Bench) {
    assert!(matches!(bench.reverse().unwrap(), Ended::Applied));
}
