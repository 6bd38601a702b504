//! Runs of a living sandbox: they belong to it, not to those who started them.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use glovebox_core::{Command, ErrorCode, Outcome, RunId, SandboxSpec};
use glovebox_engine::{Capture, Engine, EngineLimits, Event, Run, RunRequest, Sandbox, Stdin, WhenFull};
use glovebox_ledger::{Filter, Ledger};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{World, case::cases, finished::Finished, reading::read_until};

cases!["runs":
    a_run_that_is_dropped_goes_on_and_can_be_attached_to,
    two_readers_see_the_same,
    a_reader_that_comes_late_is_told_what_is_gone,
    a_run_that_ended_alone_is_told_to_whoever_attaches,
    input_goes_to_a_run_that_was_attached_to,
    a_signal_reaches_one_run_by_its_id,
    a_run_can_be_cancelled_by_its_id_and_all_who_follow_it_say_so,
    a_run_that_is_cancelled_at_any_moment_is_the_same_to_all_who_follow_it,
    the_runs_of_a_sandbox_can_be_listed,
    a_run_that_the_sandbox_does_not_know_is_an_error,
    a_start_that_is_not_waited_for_leaves_no_run,
    working_directory_environment_and_limits_are_those_of_each_run,
    two_hundred_runs_at_once_do_not_mix,
    a_reader_of_one_byte_a_second_harms_nobody,
    an_onlooker_that_is_too_slow_harms_nobody,
    a_run_that_is_dropped_is_recorded_at_its_end,
    what_an_engine_may_not_have_is_refused,
    what_an_engine_may_not_have_yet_waits,
    processes_that_run_away_are_ended_with_the_only_run needs(living),
];

/// A line of the shell that waits until a file is there.
const UNTIL_GO: &str = "while [ ! -e go ]; do sleep 0.01; done";

fn request(line: &str) -> RunRequest {
    RunRequest::new(Command::argv(["/bin/sh", "-c", line]).expect("the case names a command"))
}

async fn start(sandbox: &Sandbox, line: &str) -> Run {
    sandbox.start(request(line)).await.unwrap_or_else(|error| panic!("{}: {error}", error.code))
}

async fn run(sandbox: &Sandbox, line: &str) -> Finished {
    Finished(sandbox.run(request(line)).await.unwrap_or_else(|error| panic!("{}: {error}", error.code)))
}

async fn attach(sandbox: &Sandbox, run: RunId) -> Run {
    sandbox.attach(run, Stdin::Empty).await.unwrap_or_else(|error| panic!("{}: {error}", error.code))
}

async fn wait(run: Run) -> Finished {
    Finished(run.wait().await.unwrap_or_else(|error| panic!("{}: {error}", error.code)))
}

async fn destroy(sandbox: Sandbox) {
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

async fn a_run_that_is_dropped_goes_on_and_can_be_attached_to(w: World) {
    let sandbox = w.sandbox().create().await;
    let mut first = start(&sandbox, &format!("echo one; {UNTIL_GO}; echo two; exit 3")).await;
    let id = first.id();
    read_until(&mut first, "one\n").await;
    drop(first);
    let mut again = attach(&sandbox, id).await;
    assert_eq!((again.id(), again.sandbox()), (id, sandbox.id()));
    read_until(&mut again, "one\n").await;
    run(&sandbox, "touch go").await.expect_exit(0);
    let result = wait(again).await.expect_exit(3).expect_out("one\ntwo\n");
    assert_eq!((result.run, result.command.argv[0].as_str()), (id, "/bin/sh"));
    assert!(!result.stdout.truncated, "{}", result.story());
    destroy(sandbox).await;
}

async fn two_readers_see_the_same(w: World) {
    let sandbox = w.sandbox().create().await;
    let line = format!("echo one; echo err >&2; {UNTIL_GO}; seq 1000");
    let first = start(&sandbox, &line).await;
    let second = attach(&sandbox, first.id()).await;
    run(&sandbox, "touch go").await.expect_exit(0);
    let (first, second) = tokio::join!(wait(first), wait(second));
    let (first, second) = (first.expect_exit(0), second.expect_exit(0));
    assert_eq!((first.out(), first.err()), (second.out(), second.err()));
    assert_eq!(first.err(), "err\n");
    destroy(sandbox).await;
}

async fn a_reader_that_comes_late_is_told_what_is_gone(w: World) {
    let sandbox = w.sandbox().create().await;
    let line = format!("head -c 1048576 /dev/zero; printf err >&2; touch written; {UNTIL_GO}; echo end");
    let first = start(&sandbox, &line).await;
    let id = first.id();
    drop(first);
    run(&sandbox, "while [ ! -e written ]; do sleep 0.01; done").await.expect_exit(0);
    let mut late = attach(&sandbox, id).await;
    run(&sandbox, "touch go").await.expect_exit(0);
    let (mut got, mut missed) = (0, 0);
    while let Some(event) = late.next_event().await {
        match event {
            Event::Stdout(bytes) => got += bytes.len() as u64,
            Event::Missed { stdout, stderr } => {
                assert_eq!((got, stderr), (0, 0), "the oldest is what is gone");
                missed += stdout;
            }
            _ => {}
        }
    }
    let late = wait(late).await.expect_exit(0);
    assert!(missed > 0 && got >= 128 << 10, "{got} bytes came and {missed} were missed");
    assert_eq!(got + missed, (1 << 20) + 4);
    assert_eq!((late.stdout.bytes, late.stdout.truncated), ((1 << 20) + 4, true));
    assert!(late.out().starts_with(&format!("\n[glovebox: {missed} bytes missed]\n")), "{}", late.story());
    assert_eq!(late.err(), "err");
    destroy(sandbox).await;
}

async fn a_run_that_ended_alone_is_told_to_whoever_attaches(w: World) {
    let sandbox = w.sandbox().create().await;
    let first = start(&sandbox, &format!("{UNTIL_GO}; echo alone; exit 4")).await;
    let onlooker = attach(&sandbox, first.id()).await;
    run(&sandbox, "touch go").await.expect_exit(0);
    wait(first).await.expect_exit(4).expect_out("alone\n");
    // The one who looked on hears the same, however much later it listens.
    wait(onlooker).await.expect_exit(4).expect_out("alone\n");
    destroy(sandbox).await;
}

async fn input_goes_to_a_run_that_was_attached_to(w: World) {
    let sandbox = w.sandbox().create().await;
    let (_open, stream) = mpsc::channel(1);
    let mut with_input = request("while read line; do echo got $line; done; echo end");
    with_input.stdin = Stdin::Stream(stream);
    let first = sandbox.start(with_input).await.expect("the run is made");
    let id = first.id();
    drop(first);
    let (keys, stream) = mpsc::channel(1);
    let mut again = sandbox.attach(id, Stdin::Stream(stream)).await.expect("the run is there");
    for word in ["one", "two"] {
        keys.send(Bytes::from(format!("{word}\n"))).await.expect("the run takes input");
        read_until(&mut again, &format!("got {word}\n")).await;
    }
    drop(keys);
    wait(again).await.expect_exit(0).expect_out("got one\ngot two\nend\n");
    destroy(sandbox).await;
}

async fn a_signal_reaches_one_run_by_its_id(w: World) {
    let sandbox = w.sandbox().create().await;
    let line = format!("trap 'echo signal; exit 5' USR1; echo up; {UNTIL_GO}");
    let (mut one, mut other) = (start(&sandbox, &line).await, start(&sandbox, &line).await);
    read_until(&mut one, "up\n").await;
    read_until(&mut other, "up\n").await;
    sandbox.signal(one.id(), 10).await.expect("the signal is sent");
    wait(one).await.expect_exit(5).expect_out("up\nsignal\n");
    run(&sandbox, "touch go").await.expect_exit(0);
    wait(other).await.expect_exit(0).expect_out("up\n");
    destroy(sandbox).await;
}

async fn a_run_can_be_cancelled_by_its_id_and_all_who_follow_it_say_so(w: World) {
    let sandbox = w.sandbox().create().await;
    let owner = start(&sandbox, "sleep 60").await;
    let onlooker = attach(&sandbox, owner.id()).await;
    sandbox.cancel(owner.id()).await.expect("the run is there");
    let (owner, onlooker) = tokio::join!(wait(owner), wait(onlooker));
    owner.expect_outcome(&Outcome::Cancelled);
    onlooker.expect_outcome(&Outcome::Cancelled);
    destroy(sandbox).await;
}

async fn a_run_that_is_cancelled_at_any_moment_is_the_same_to_all_who_follow_it(w: World) {
    let sandbox = w.sandbox().create().await;
    for ms in [0u32, 1, 5, 20, 100] {
        // The command ends by itself at about the same time.
        let owner = start(&sandbox, &format!("sleep {}", f64::from(ms) / 1000.0)).await;
        // It may be over before anybody can look on.
        let onlooker = match sandbox.attach(owner.id(), Stdin::Empty).await {
            Ok(onlooker) => onlooker,
            Err(error) => {
                assert_eq!(error.code, ErrorCode::RunNotFound, "{error}");
                wait(owner).await.expect_exit(0);
                continue;
            }
        };
        let canceller = owner.canceller();
        let cancel = async {
            tokio::time::sleep(Duration::from_millis(ms.into())).await;
            canceller.cancel();
        };
        let (owner, onlooker, ()) = tokio::join!(wait(owner), wait(onlooker), cancel);
        assert_eq!(owner.outcome, onlooker.outcome, "at {ms} ms\n{}", owner.story());
        assert!(matches!(owner.outcome, Outcome::Cancelled | Outcome::Exited { code: 0 }), "{}", owner.story());
    }
    destroy(sandbox).await;
}

async fn the_runs_of_a_sandbox_can_be_listed(w: World) {
    let sandbox = w.sandbox().create().await;
    assert_eq!(sandbox.runs().await.expect("a list"), []);
    let first = start(&sandbox, "sleep 60").await;
    let second = start(&sandbox, "sleep 60").await;
    let runs = sandbox.runs().await.expect("a list");
    let ids: Vec<RunId> = runs.iter().map(|run| run.run).collect();
    assert_eq!(ids, [first.id(), second.id()]);
    assert!(runs.iter().all(|run| run.followed && run.pid > 2 && run.ended.is_none()), "{runs:?}");
    sandbox.cancel(first.id()).await.expect("the run is there");
    wait(first).await.expect_outcome(&Outcome::Cancelled);
    assert_eq!(sandbox.runs().await.expect("a list").len(), 1);
    second.cancel();
    wait(second).await.expect_outcome(&Outcome::Cancelled);
    destroy(sandbox).await;
}

async fn a_run_that_the_sandbox_does_not_know_is_an_error(w: World) {
    let sandbox = w.sandbox().create().await;
    let over = start(&sandbox, "true").await;
    let id = over.id();
    wait(over).await.expect_exit(0);
    for unknown in [RunId::new(), id] {
        let codes = [
            sandbox.attach(unknown, Stdin::Empty).await.map(drop),
            sandbox.signal(unknown, 10).await,
            sandbox.cancel(unknown).await,
        ];
        for result in codes {
            assert_eq!(result.expect_err("nobody knows it").code, ErrorCode::RunNotFound);
        }
    }
    destroy(sandbox).await;
}

async fn a_start_that_is_not_waited_for_leaves_no_run(w: World) {
    let sandbox = w.sandbox().create().await;
    for microseconds in [0, 50, 100, 200, 400, 800, 1600] {
        let starting = sandbox.start(request("sleep 60"));
        if let Ok(Ok(started)) = tokio::time::timeout(Duration::from_micros(microseconds), starting).await {
            started.cancel();
            wait(started).await.expect_outcome(&Outcome::Cancelled);
        }
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    while !sandbox.runs().await.expect("a list").iter().all(|run| run.ended.is_some()) {
        assert!(Instant::now() < deadline, "{:?}", sandbox.runs().await);
        tokio::task::yield_now().await;
    }
    run(&sandbox, "! grep -l sleep /proc/[0-9]*/comm").await.expect_exit(0);
    destroy(sandbox).await;
}

async fn working_directory_environment_and_limits_are_those_of_each_run(w: World) {
    let sandbox = w.sandbox().create().await;
    let in_tmp = w.sandbox().inside(&sandbox).cwd("/tmp").env("NAME", "one").sh("pwd; echo $NAME; sleep 0.2");
    let elsewhere = w.sandbox().inside(&sandbox).env("NAME", "two").output("4").sh("echo $NAME; echo more");
    let short = w.sandbox().inside(&sandbox).timeout("500ms").grace("50ms").sh("echo ${NAME:-none}; sleep 60");
    let (in_tmp, elsewhere, short) = tokio::join!(in_tmp, elsewhere, short);
    in_tmp.expect_exit(0).expect_out("/tmp\none\n");
    let elsewhere = elsewhere.expect_exit(0);
    assert!(elsewhere.stdout.truncated && elsewhere.out().starts_with("tw"), "{}", elsewhere.story());
    short.expect_outcome(&Outcome::TimedOut { limit_ms: 500 }).expect_out("none\n");
    destroy(sandbox).await;
}

async fn two_hundred_runs_at_once_do_not_mix(w: World) {
    let sandbox = Rc::new(w.sandbox().pids(1000).create().await);
    let mut runs = JoinSet::new();
    let mut keys = Vec::new();
    for number in 0..200 {
        let (input, stream) = mpsc::channel(1);
        keys.push(input);
        let mut asked = request("read token; echo $token; echo $NUMBER >&2");
        asked.command = asked.command.env("NUMBER", &number.to_string()).expect("a variable");
        asked.stdin = Stdin::Stream(stream);
        let sandbox = Rc::clone(&sandbox);
        runs.spawn_local(async move {
            let result = sandbox.start(asked).await.expect("the run is made").wait().await;
            (number, Finished(result.expect("the run ends")))
        });
    }
    // All of them are under way at one time.
    let deadline = Instant::now() + Duration::from_secs(35);
    while sandbox.runs().await.expect("a list").len() < 200 {
        assert!(Instant::now() < deadline, "only {} runs came up", sandbox.runs().await.expect("a list").len());
        // A list of so many takes the time that they need to start.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for (number, input) in keys.into_iter().enumerate() {
        input.send(Bytes::from(format!("token-{number}-{}\n", "x".repeat(number)))).await.expect("the run takes input");
    }
    while let Some(ended) = runs.join_next().await {
        let (number, run) = ended.expect("no run panics");
        assert_eq!(run.err(), format!("{number}\n"), "{}", run.story());
        run.expect_exit(0).expect_out(&format!("token-{number}-{}\n", "x".repeat(number)));
    }
    destroy(Rc::into_inner(sandbox).expect("all runs are over")).await;
}

/// How long ten small runs take.
async fn time_of_ten_runs(sandbox: &Sandbox) -> Duration {
    let start = Instant::now();
    for _ in 0..10 {
        run(sandbox, "echo x").await.expect_exit(0).expect_out("x\n");
    }
    start.elapsed()
}

/// Expects that others are as fast as before, and that neither side took more memory than a few buffers.
async fn expect_unharmed(w: &World, sandbox: &Sandbox, before: (Duration, u64, u64)) {
    let (alone, own, guest) = before;
    let beside = time_of_ten_runs(sandbox).await;
    assert!(beside < 4 * alone + Duration::from_millis(200), "ten runs took {beside:?}, {alone:?} alone");
    let (own_now, guest_now) = (w.own_memory(), w.guest_memory(sandbox.id()));
    assert!(own_now < own + (24 << 20), "this process has {own_now} bytes, {own} before");
    assert!(guest_now < guest + (8 << 20), "the guest has {guest_now} bytes, {guest} before");
}

async fn a_reader_of_one_byte_a_second_harms_nobody(w: World) {
    let sandbox = w.sandbox().create().await;
    let before = (time_of_ten_runs(&sandbox).await, w.own_memory(), w.guest_memory(sandbox.id()));
    // A reader that took one event and then hardly anything more.
    let mut slow = start(&sandbox, "head -c 1073741824 /dev/zero").await;
    while !matches!(slow.next_event().await.expect("there is output"), Event::Stdout(_)) {}
    expect_unharmed(&w, &sandbox, before).await;
    slow.cancel();
    let result = wait(slow).await.expect_outcome(&Outcome::Cancelled);
    assert!(result.stdout.bytes < 16 << 20, "{} bytes came past a reader that stood still", result.stdout.bytes);
    destroy(sandbox).await;
}

async fn an_onlooker_that_is_too_slow_harms_nobody(w: World) {
    let sandbox = w.sandbox().create().await;
    let before = (time_of_ten_runs(&sandbox).await, w.own_memory(), w.guest_memory(sandbox.id()));
    // Ten times what either side may hold, and not too much for an emulated machine.
    const WRITTEN: u64 = 256 << 20;
    let mut asked = request(&format!("head -c {WRITTEN} /dev/zero; touch written; {UNTIL_GO}"));
    asked.capture = Capture::Count;
    let owner = sandbox.start(asked).await.expect("the run is made");
    let mut slow = attach(&sandbox, owner.id()).await;
    while !matches!(slow.next_event().await.expect("there is output"), Event::Stdout(_)) {}
    let owner = tokio::task::spawn_local(wait(owner));
    run(&sandbox, "while [ ! -e written ]; do sleep 0.01; done").await.expect_exit(0);
    expect_unharmed(&w, &sandbox, before).await;
    run(&sandbox, "touch go").await.expect_exit(0);
    assert_eq!(owner.await.expect("no panic").expect_exit(0).stdout.bytes, WRITTEN);
    let mut missed = 0;
    while let Some(event) = slow.next_event().await {
        if let Event::Missed { stdout, .. } = event {
            missed += stdout;
        }
    }
    assert!(missed > WRITTEN / 2, "an onlooker that stood still missed only {missed} bytes");
    assert_eq!(wait(slow).await.expect_exit(0).stdout.bytes, WRITTEN);
    destroy(sandbox).await;
}

async fn a_run_that_is_dropped_is_recorded_at_its_end(w: World) {
    let ledger = Ledger::below(w.folder("ledger"));
    let engine = w.engine().clone().with_ledger(ledger.clone());
    let sandbox = engine.create(SandboxSpec::default()).await.expect("the sandbox can be made");
    let dropped = start(&sandbox, &format!("echo recorded; {UNTIL_GO}; exit 6")).await;
    let id = dropped.id();
    drop(dropped);
    let listed = ledger.list(&Filter::default()).await.expect("a list").runs;
    assert_eq!((listed.len(), listed[0].run, &listed[0].outcome), (1, id, &None));
    run(&sandbox, "touch go").await.expect_exit(0);
    let deadline = Instant::now() + Duration::from_secs(10);
    let ended = loop {
        let listed = ledger.list(&Filter::default()).await.expect("a list").runs;
        let run = listed.into_iter().find(|run| run.run == id).expect("the run is listed");
        if let Some(outcome) = run.outcome {
            break outcome;
        }
        assert!(Instant::now() < deadline, "the run was not recorded");
        tokio::task::yield_now().await;
    };
    assert_eq!(ended, Outcome::Exited { code: 6 });
    let kept = ledger.output(id, glovebox_ledger::Stream::Stdout).await.expect("the output is kept");
    assert_eq!(kept, b"recorded\n");
    destroy(sandbox).await;
}

fn limited(w: &World, sandboxes: usize, runs: usize, when_full: WhenFull) -> Engine {
    w.engine().clone().with_limits(EngineLimits { sandboxes: Some(sandboxes), runs: Some(runs), when_full })
}

async fn what_an_engine_may_not_have_is_refused(w: World) {
    let engine = limited(&w, 1, 1, WhenFull::Refuse);
    let sandbox = engine.create(SandboxSpec::default()).await.expect("there is room for one");
    for refused in [engine.create(SandboxSpec::default()).await.map(drop), engine.run(request("true")).await.map(drop)]
    {
        let error = refused.expect_err("there is room for one");
        assert!(error.code == ErrorCode::TooMany && error.hint.is_some(), "{error:?}");
    }
    let first = start(&sandbox, "sleep 60").await;
    assert_eq!(sandbox.start(request("true")).await.map(drop).expect_err("one runs").code, ErrorCode::TooMany);
    first.cancel();
    wait(first).await.expect_outcome(&Outcome::Cancelled);
    run(&sandbox, "echo room").await.expect_exit(0).expect_out("room\n");
    destroy(sandbox).await;
    Finished(engine.run(request("true")).await.expect("there is room again")).expect_exit(0);
}

async fn what_an_engine_may_not_have_yet_waits(w: World) {
    let engine = limited(&w, 2, 2, WhenFull::Wait);
    let mut runs = JoinSet::new();
    for _ in 0..6 {
        let engine = engine.clone();
        runs.spawn_local(async move { engine.run(request("sleep 0.3")).await.expect("the run is made") });
    }
    let mut spans = Vec::new();
    while let Some(ended) = runs.join_next().await {
        let run = Finished(ended.expect("no run panics")).expect_exit(0);
        let start = run.started_at.as_microsecond() as f64 / 1e3;
        spans.push((start, start + run.duration_ms));
    }
    let beside = |at: f64| spans.iter().filter(|(start, end)| (*start..*end).contains(&at)).count();
    let most = spans.iter().map(|(start, _)| beside(*start)).max();
    assert_eq!(most, Some(2), "so many of six ran at one time: {spans:?}");
}

/// Each process of such a chain lives for microseconds. Where commands have an id of their own, not even a session for each helps them,
/// with groups or without.
async fn processes_that_run_away_are_ended_with_the_only_run(w: World) {
    let sandbox = w.sandbox().create_living().await;
    let (once, each) = if w.features().separate_guest { ("", "POSIX::setsid();") } else { ("POSIX::setsid();", "") };
    let chains = format!(
        "use POSIX; for (1..4) {{ if (fork == 0) {{ {once} while (1) {{ {each} exit if fork }} }} }} sleep 100"
    );
    for _ in 0..5 {
        let run = w.sandbox().inside(&sandbox).timeout("300ms").grace("50ms").run(["perl", "-e", &chains]).await;
        run.expect_outcome(&Outcome::TimedOut { limit_ms: 300 });
        let look = "for i in $(seq 30); do cat /proc/[0-9]*/comm 2> /dev/null; done | grep -c perl; true";
        w.sandbox().inside(&sandbox).sh(look).await.expect_out("0\n");
    }
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}
