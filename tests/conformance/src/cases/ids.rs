//! Ids of the host: no two sandboxes of root share one, and files go along when a sandbox comes back with others.

use std::{fs, path::PathBuf};

use glovebox_core::{Lifetime, Living, SandboxId, SandboxSpec};
use glovebox_engine::NewSandbox;
use glovebox_native::NativeBackend;
use rustix::fs::{FlockOperation, flock};

use super::living::{create, destroy, run};
use crate::{World, case::cases};

cases!["ids":
    sandboxes_that_want_the_same_ids_get_different_ones needs(own_ids),
    a_stopped_sandbox_whose_ids_went_to_another_starts_with_its_files needs(own_ids),
    a_one_shot_run_has_other_ids_than_a_sandbox_that_stays needs(own_ids),
];

/// Where ranges begin, how long they are, and how many there are.
const RANGES: (u32, u32, u32) = (0x2000_0000, 65536, 20_000);

/// The range of a living sandbox, as the kernel maps it.
fn range(id: SandboxId) -> u32 {
    let folder = NativeBackend::runtime_folder().join("sandboxes").join(id.to_string());
    let record = fs::read_to_string(folder.join("live.json")).expect("the sandbox lives");
    let record: serde_json::Value = serde_json::from_str(&record).expect("it is JSON");
    let map = fs::read_to_string(format!("/proc/{}/uid_map", record["guest"]["pid"])).expect("the guest lives");
    number(&map)
}

/// The range that a map of ids gives to a sandbox.
fn number(map: &str) -> u32 {
    let words: Vec<u32> = map.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    assert!(matches!(words[..], [0, _, length] if length == RANGES.1), "{map}");
    (words[1] - RANGES.0) / RANGES.1
}

fn file(range: u32) -> PathBuf {
    NativeBackend::runtime_folder().join("ids").join(range.to_string())
}

async fn sandboxes_that_want_the_same_ids_get_different_ones(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let (first, created_at) = (sandbox.id(), sandbox.record().expect("it stays").created_at);
    drop(sandbox);
    let wanted = u128::from(range(first));
    let second = std::iter::repeat_with(SandboxId::new).find(|id| id.as_u128() % u128::from(RANGES.2) == wanted);
    let second = second.expect("there are many ids");
    let living = Living { store: w.folder("store"), lifetime: Lifetime::default(), created_at };
    let spec = SandboxSpec { living: Some(living), ..SandboxSpec::default() };
    w.backend().create(second, &spec).await.expect("the sandbox can be made");
    w.backend().ready(second).await.expect("the sandbox can be made");
    let (one, other) = (range(first), range(second));
    assert!(file(one).exists() && file(other).exists());
    w.backend().destroy(second).await.expect("the sandbox can be destroyed");
    w.backend().remove_store(&w.folder("store")).await.expect("its files can be removed");
    destroy(&w, first).await;
    assert_ne!(one, other);
    assert!(!file(one).exists() && !file(other).exists());
}

async fn a_stopped_sandbox_whose_ids_went_to_another_starts_with_its_files(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let (id, before) = (sandbox.id(), range(sandbox.id()));
    run(&sandbox, "echo kept > note; mkdir -m 700 own; echo mine > own/note").await.expect_exit(0);
    drop(sandbox);
    w.engine().stop(&id.to_string()).await.expect("it can be stopped");
    assert!(!file(before).exists(), "a stopped sandbox has no ids");
    // Another sandbox has the range now, as far as anybody can tell.
    let taken = fs::File::create(file(before)).expect("the file can be made");
    flock(&taken, FlockOperation::NonBlockingLockExclusive).expect("nobody has it");
    let sandbox = w.engine().restart(&id.to_string()).await.expect("it can be started");
    let meanwhile = range(id);
    run(&sandbox, "cat note own/note; echo more >> own/note; stat -c %u:%g note own; touch new")
        .await
        .expect_out("kept\nmine\n1000:1000\n1000:1000\n");
    drop(sandbox);
    w.engine().stop(&id.to_string()).await.expect("it can be stopped");
    fs::remove_file(file(before)).expect("the file is there");
    drop(taken);
    let sandbox = w.engine().restart(&id.to_string()).await.expect("it can be started");
    let again = range(id);
    run(&sandbox, "cat own/note; stat -c %u:%g new").await.expect_out("mine\nmore\n1000:1000\n");
    drop(sandbox);
    destroy(&w, id).await;
    assert_ne!(before, meanwhile);
    assert_eq!(before, again);
}

async fn a_one_shot_run_has_other_ids_than_a_sandbox_that_stays(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let living = range(sandbox.id());
    let run = w.sandbox().sh("cat /proc/self/uid_map").await.expect_exit(0);
    let ranges = [living, number(&run.out())];
    let id = sandbox.id();
    drop(sandbox);
    destroy(&w, id).await;
    assert_ne!(ranges[0], ranges[1]);
}
