//! A data folder on a disk without room: nothing hangs, nothing is left half made, and all works again once there is room.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use glovebox_core::{EndReason, ErrorCode, SandboxState};
use glovebox_engine::{Engine, NewSandbox, Stdin};
use glovebox_ledger::{Ledger, Stream};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::living::{living_for, request, run};
use crate::{World, case::cases, finished::Finished, reading::read_until};

cases!["full_disk":
    a_sandbox_for_which_there_is_no_room_leaves_nothing root(),
    a_sandbox_on_a_full_disk_runs_and_is_followed_stopped_and_destroyed root(),
    what_cannot_be_recorded_for_want_of_room_says_so root(),
    a_sandbox_that_ends_by_itself_on_a_full_disk_says_why root(),
];

/// More than what a test fills by itself, in few inodes.
const INODES: usize = 200;

/// A small disk for a data folder, gone when this is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(w: &World) -> SmallDisk {
        let place = w.folder("small-disk");
        let options = format!("size=4m,nr_inodes={INODES},mode=700");
        let options = std::ffi::CString::new(options).expect("no NUL");
        mount("small", &place, "tmpfs", MountFlags::empty(), Some(options.as_c_str())).expect("a disk can be mounted");
        SmallDisk(place)
    }

    fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    /// Takes all bytes.
    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("ballast")).expect("a file");
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    /// Takes all inodes but so many.
    fn leave_inodes(&self, left: usize) {
        let folder = self.0.join("many");
        fs::create_dir_all(&folder).expect("a folder");
        let made = (0..INODES).take_while(|n| fs::File::create(folder.join(n.to_string())).is_ok()).count();
        (0..left.min(made)).for_each(|n| fs::remove_file(folder.join(n.to_string())).expect("it is there"));
    }

    /// Gives all room back.
    fn make_room(&self) {
        let _ = fs::remove_file(self.0.join("ballast"));
        let _ = fs::remove_dir_all(self.0.join("many"));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).expect("it can be unmounted");
    }
}

/// What is below a folder, but for the folder of names.
fn sandboxes_below(data: &Path) -> Vec<String> {
    let entries = fs::read_dir(data.join("sandboxes")).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name() != "names").flat_map(|entry| all_below(&entry.path())).collect()
}

/// A folder with all that is in it, for whoever has to find out why.
fn all_below(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let below = entries.flat_map(|entry| all_below(&entry.path()));
    [path.display().to_string()].into_iter().chain(below).collect()
}

async fn end(engine: &Engine, id: glovebox_core::SandboxId) {
    engine.destroy(&id.to_string()).await.unwrap_or_else(|error| panic!("{}: {error}", error.code));
}

async fn a_sandbox_for_which_there_is_no_room_leaves_nothing(w: World) {
    let disk = SmallDisk::mount(&w);
    let engine = w.engine().clone().with_data_dir(disk.data());
    let named = || NewSandbox { name: glovebox_core::SandboxName::parse("one").ok(), ..NewSandbox::default() };
    let mut refused = 0;
    for (full, left) in [true, false].into_iter().flat_map(|full| (0..24).map(move |left| (full, left))) {
        if full {
            disk.fill();
        }
        disk.leave_inodes(left);
        match engine.create_living(named()).await {
            Ok(sandbox) => end(&engine, sandbox.id()).await,
            Err(error) => {
                refused += 1;
                assert_eq!(error.code, ErrorCode::HostIo, "{left}: {error}");
                assert!(error.message.contains("No space left"), "{left}: {error}");
                assert!(error.hint.as_ref().is_some_and(|hint| hint.contains("make room")), "{left}: {error:?}");
            }
        }
        assert_eq!(sandboxes_below(&disk.data()), Vec::<String>::new(), "{full} {left}");
        let names = fs::read_dir(disk.data().join("sandboxes/names")).into_iter().flatten().count();
        assert_eq!(names, 0, "{full} {left}");
        disk.make_room();
    }
    assert!(refused > 12, "the disk was full {refused} times");
    let sandbox = engine.create_living(named()).await.expect("there is room");
    run(&sandbox, "echo room > file; cat file").await.expect_out("room\n");
    end(&engine, sandbox.id()).await;
}

async fn a_sandbox_on_a_full_disk_runs_and_is_followed_stopped_and_destroyed(w: World) {
    let disk = SmallDisk::mount(&w);
    let engine = w.engine().clone().with_data_dir(disk.data());
    let sandbox = engine.create_living(NewSandbox::default()).await.expect("there is room");
    let (id, text) = (sandbox.id(), sandbox.id().to_string());
    disk.fill();
    disk.leave_inodes(0);
    run(&sandbox, "echo fine").await.expect_out("fine\n").expect_exit(0);
    let ended = run(&sandbox, "echo much > file").await;
    assert!(ended.outcome.exit_code() != 0 && ended.err().contains("No space left"), "{}", ended.story());
    let mut detached = sandbox.start(request("echo one; exec sleep 100")).await.expect("it starts");
    read_until(&mut detached, "one\n").await;
    let again = sandbox.attach(detached.id(), Stdin::Empty).await.expect("it is there");
    sandbox.cancel(detached.id()).await.expect("it can be cancelled");
    drop((detached, again));
    if w.features().pause {
        engine.pause(&text).await.expect("it can be paused");
        engine.resume(&text).await.expect("it goes on");
    }
    drop(sandbox);
    engine.stop(&text).await.expect("it can be stopped");
    match engine.restart(&text).await {
        Ok(again) => drop(run(&again, "echo again").await.expect_out("again\n")),
        Err(error) => assert!(error.hint.is_some_and(|hint| hint.contains("make room")), "{}", error.message),
    }
    disk.make_room();
    let again = engine.restart(&text).await.unwrap_or_else(|error| panic!("{error}"));
    run(&again, "echo room > file; cat file").await.expect_out("room\n");
    disk.fill();
    disk.leave_inodes(0);
    // A reset makes its folders anew, for which there may be no room; then it is there still, and can be destroyed.
    let _ = engine.reset(&text).await;
    end(&engine, id).await;
    assert_eq!(sandboxes_below(&disk.data()), Vec::<String>::new());
}

async fn what_cannot_be_recorded_for_want_of_room_says_so(w: World) {
    let disk = SmallDisk::mount(&w);
    let ledger = Ledger::below(disk.data());
    let engine = w.engine().clone().with_data_dir(disk.data()).with_ledger(ledger.clone());
    let sandbox = engine.create_living(NewSandbox::default()).await.expect("there is room");
    let first = run(&sandbox, "echo first").await;
    assert!(first.recorded, "{:?}", first.warnings);
    disk.fill();
    disk.leave_inodes(0);
    // Long enough that it is not in the row alone.
    let lost = Finished(sandbox.run(request("seq 20000")).await.unwrap_or_else(|error| panic!("{error}")));
    let lost = lost.expect_exit(0);
    assert!(!lost.recorded, "there was no room for it");
    assert!(lost.stdout.bytes > 100_000, "{}", lost.story());
    let warning = lost.warnings.iter().find(|warning| warning.code == "ledger_unavailable");
    assert!(warning.and_then(|warning| warning.hint.as_ref()).is_some(), "{:?}", lost.warnings);
    disk.make_room();
    let second = run(&sandbox, "echo second").await;
    assert!(second.recorded, "{:?}", second.warnings);
    assert_eq!(ledger.output(first.run, Stream::Stdout).await.expect("it is recorded"), b"first\n");
    assert_eq!(ledger.output(second.run, Stream::Stdout).await.expect("it is recorded"), b"second\n");
    end(&engine, sandbox.id()).await;
}

async fn a_sandbox_that_ends_by_itself_on_a_full_disk_says_why(w: World) {
    let disk = SmallDisk::mount(&w);
    let engine = w.engine().clone().with_data_dir(disk.data());
    let sandbox =
        engine.create_living(living_for(Some(Duration::from_millis(300)), None)).await.expect("there is room");
    let text = sandbox.id().to_string();
    run(&sandbox, "echo x > x").await.expect_exit(0);
    drop(sandbox);
    disk.fill();
    disk.leave_inodes(0);
    let deadline = Instant::now() + Duration::from_secs(20);
    let status = loop {
        let status = engine.status(&text).await.expect("it is there");
        if status.state == SandboxState::Gone {
            break status;
        }
        assert!(Instant::now() < deadline, "it does not end: {}", status.state);
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(status.ended.expect("a reason").reason, EndReason::IdleTimeout);
    engine.destroy(&text).await.expect("it can be destroyed");
    assert_eq!(sandboxes_below(&disk.data()), Vec::<String>::new());
}
