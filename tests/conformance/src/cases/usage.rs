//! What a sandbox uses, told while it does.

use std::time::{Duration, Instant};

use glovebox_core::{Command, UsageNow};
use glovebox_engine::{NewSandbox, RunRequest, Sandbox};

use crate::{World, case::cases, reading::read_until};

cases!["usage":
    what_a_sandbox_uses_is_told_while_it_runs needs(living),
    many_may_ask_at_once_what_a_sandbox_and_its_run_use needs(living),
    to_look_at_a_paused_sandbox_finds_no_cpu_used needs(pause),
    what_a_sandbox_for_some_runs_uses_is_told_too,
];

const BUSY: &str = "dd if=/dev/zero of=file bs=1M count=8 2> /dev/null; echo ready; while :; do :; done";

fn request(line: &str) -> RunRequest {
    RunRequest::new(Command::argv(["/bin/sh", "-c", line]).expect("the case names a command"))
}

/// Looks until something is so, for what the kernel counts in its own time.
async fn until(sandbox: &Sandbox, what: &str, holds: impl Fn(&UsageNow) -> bool) -> UsageNow {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let usage = sandbox.usage().await.expect("the usage is told");
        if holds(&usage) {
            return usage;
        }
        assert!(Instant::now() < deadline, "{what}: {usage:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn what_a_sandbox_uses_is_told_while_it_runs(w: World) {
    let sandbox = w.engine().create_living(NewSandbox::default()).await.expect("the sandbox is made");
    let before = sandbox.usage().await.expect("the usage is told");
    assert_eq!(before.processes, 0, "{before:?}");
    let mut run = sandbox.start(request(BUSY)).await.expect("the run starts");
    // What wrote the file has ended then.
    read_until(&mut run, "ready\n").await;
    let now = until(&sandbox, "it is busy", |usage| {
        usage.cpu_ms > before.cpu_ms + 50.0 && usage.disk_bytes.is_some_and(|bytes| bytes >= 8 << 20)
    });
    let now = now.await;
    assert_eq!(now.processes, 1, "{now:?}");
    assert!(now.memory_bytes > 100_000 && now.memory_peak_bytes >= now.memory_bytes / 2, "{now:?}");
    let by_name = w.engine().usage(&sandbox.id().to_string()).await.expect("it is found by its id");
    assert!(by_name.cpu_ms >= now.cpu_ms, "{by_name:?} after {now:?}");
    run.cancel();
    while run.next_event().await.is_some() {}
    run.wait().await.expect("the run ends");
    until(&sandbox, "nothing runs", |usage| usage.processes == 0).await;
    sandbox.destroy().await.expect("it can be destroyed");
}

/// Each takes hold of the sandbox and lets go of it while others do.
async fn many_may_ask_at_once_what_a_sandbox_and_its_run_use(w: World) {
    let sandbox = w.engine().create_living(NewSandbox::default()).await.expect("the sandbox is made");
    let run = sandbox.run(request("true")).await.expect("a result").run;
    let id = sandbox.id().to_string();
    // Nobody in this process holds it any more when the first of them asks.
    drop(sandbox);
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (engine, text) = (w.engine().clone(), id.clone());
        asked.spawn(async move { engine.usage(&text).await.map(|usage| usage.cpu_ms) });
        let (engine, text) = (w.engine().clone(), id.clone());
        asked.spawn(async move { engine.run_usage(&text, run).await.map(|usage| usage.cpu_ms) });
    }
    while let Some(answer) = asked.join_next().await {
        answer.expect("it does not panic").expect("it is told");
    }
    w.engine().destroy(&id).await.expect("it can be destroyed");
}

async fn to_look_at_a_paused_sandbox_finds_no_cpu_used(w: World) {
    let sandbox = w.engine().create_living(NewSandbox::default()).await.expect("the sandbox is made");
    let id = sandbox.id().to_string();
    let mut run = sandbox.start(request(BUSY)).await.expect("the run starts");
    read_until(&mut run, "ready\n").await;
    // Whatever is made ahead for the next run is made by then.
    until(&sandbox, "it is busy", |usage| usage.cpu_ms > 20.0 && usage.processes == 1).await;
    w.engine().pause(&id).await.expect("it can be paused");
    let first = w.engine().usage(&id).await.expect("the usage is told");
    let second = w.engine().usage(&id).await.expect("the usage is told");
    assert_eq!((first.cpu_ms, first.processes), (second.cpu_ms, 1));
    w.engine().resume(&id).await.expect("it goes on");
    until(&sandbox, "it goes on", |usage| usage.cpu_ms > second.cpu_ms).await;
    run.cancel();
    run.wait().await.expect("the run ends");
    sandbox.destroy().await.expect("it can be destroyed");
}

async fn what_a_sandbox_for_some_runs_uses_is_told_too(w: World) {
    let sandbox = w.sandbox().create().await;
    let run = sandbox.start(request(BUSY)).await.expect("the run starts");
    until(&sandbox, "it is busy", |usage| {
        usage.cpu_ms > 20.0 && usage.processes == 1 && usage.disk_bytes.is_some_and(|bytes| bytes >= 8 << 20)
    })
    .await;
    run.cancel();
    run.wait().await.expect("the run ends");
    sandbox.destroy().await.expect("it can be destroyed");
}
