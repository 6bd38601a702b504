//! Volumes of an engine on another machine.

use glovebox_core::{ErrorCode, VolumeMount, VolumeName};
use glovebox_engine::NewSandbox;

use super::living::{create, destroy, run};
use crate::{World, case::cases};

cases!["volumes_elsewhere":
    what_is_written_to_a_volume_there_is_found_there needs(volumes_elsewhere),
    a_volume_there_outlives_stops_resets_and_the_removal_of_what_is_left needs(volumes_elsewhere),
    a_volume_of_one_machine_is_not_used_on_another needs(volumes_elsewhere),
    a_volume_there_is_the_users_alone_and_where_no_program_can_put_a_link needs(volumes_elsewhere),
];

fn volume(name: &str) -> VolumeName {
    VolumeName::parse(name).expect("the case names a volume")
}

fn living(volume: &str) -> NewSandbox {
    let mut new = NewSandbox::default();
    new.spec.volumes.push(VolumeMount::parse(volume).expect("the case names a volume"));
    new
}

async fn what_is_written_to_a_volume_there_is_found_there(w: World) {
    let first = w.sandbox().volume("data:/data").sh("mkdir /data/a; echo kept > /data/a/note; test -O /data").await;
    let first = first.expect_exit(0);
    let held = serde_json::to_value(&first.limits.enforcement).expect("it is plain data");
    assert_eq!((&held["disk"], &held["volumes"]), (&"filesystem".into(), &"none".into()));
    assert!(first.changes.added.is_empty(), "{:?}", first.changes);
    let again = w.sandbox().volume("data:/else/where:ro");
    let line = "cat /else/where/a/note; touch /else/where/new 2> /dev/null || echo refused";
    again.sh(line).await.expect_out("kept\nrefused\n");
    let status = w.engine().show_volume(&volume("data")).expect("it was made at its first use");
    assert_eq!((status.place, status.used_bytes), (w.backend().keeps_volumes_at(), None));
    w.engine().remove_volume(&volume("data")).await.expect("nobody has it");
    assert_eq!(w.engine().show_volume(&volume("data")).expect_err("it is gone").code, ErrorCode::VolumeNotFound);
    w.sandbox().volume("data:/data").sh("ls -A /data").await.expect_exit(0).expect_out("");
    w.engine().remove_volume(&volume("data")).await.expect("nobody has it");
}

async fn a_volume_there_outlives_stops_resets_and_the_removal_of_what_is_left(w: World) {
    w.engine().create_volume(&volume("data"), 1 << 30).expect("a volume can be made");
    let sandbox = create(&w, living("data:/data")).await;
    run(&sandbox, "echo kept > /data/note; echo gone > note").await.expect_exit(0);
    let id = sandbox.id();
    drop(sandbox);
    w.engine().stop(&id.to_string()).await.expect("it can be stopped");
    w.backend().collect_garbage().await.expect("what is left can be removed");
    let again = w.engine().restart(&id.to_string()).await.expect("it starts again");
    run(&again, "cat /data/note note").await.expect_out("kept\ngone\n");
    drop(again);
    let reset = w.engine().reset(&id.to_string()).await.expect("it can be reset");
    run(&reset, "cat /data/note note 2> /dev/null").await.expect_out("kept\n");
    drop(reset);
    destroy(&w, id).await;
    w.backend().collect_garbage().await.expect("what is left can be removed");
    w.sandbox().volume("data:/data").sh("cat /data/note").await.expect_out("kept\n");
    w.engine().remove_volume(&volume("data")).await.expect("nobody has it");
}

async fn a_volume_of_one_machine_is_not_used_on_another(w: World) {
    w.engine().volumes().create(&volume("here"), 1 << 30).expect("a volume can be made");
    let error = w.sandbox().volume("here:/data").try_run(["true"]).await.expect_err("it is not there");
    assert_eq!(error.code, ErrorCode::WrongState);
    assert!(error.message.contains("is on this machine"), "{error}");
    let error = w.engine().create_living(living("here:/data")).await.err().expect("it is not there");
    assert_eq!(error.code, ErrorCode::WrongState);
    assert!(w.engine().sandboxes().await.expect("they can be listed").is_empty());
    w.engine().remove_volume(&volume("here")).await.expect("nobody has it");
}

async fn a_volume_there_is_the_users_alone_and_where_no_program_can_put_a_link(w: World) {
    let error = w.sandbox().user("root").volume("data:/data").try_run(["true"]).await.expect_err("it is the user's");
    assert_eq!(error.code, ErrorCode::NotSupported);
    for target in ["/home/user/data", "/workspace/agent_workspace/data"] {
        let error = w.engine().create_living(living(&format!("data:{target}"))).await.err().expect("it is not taken");
        assert_eq!(error.code, ErrorCode::NotSupported);
        assert!(error.message.contains(target), "{error}");
    }
    assert!(w.engine().sandboxes().await.expect("they can be listed").is_empty());
    // Where nothing is left of the sandbox, nothing is in the way.
    let line = "echo x > data/x && cat /workspace/agent_workspace/data/x";
    w.sandbox().volume("data:/workspace/agent_workspace/data").sh(line).await.expect_out("x\n");
    w.engine().remove_volume(&volume("data")).await.expect("nobody has it");
}
