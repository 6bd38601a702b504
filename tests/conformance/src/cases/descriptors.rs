//! Processes that may open no more files: the caller, the keeper, the guest. Each says so, and nobody else is harmed.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    time::{Duration, Instant},
};

use glovebox_core::ErrorCode;
use glovebox_engine::{NewSandbox, Stdin};
use glovebox_native::NativeBackend;
use rustix::{
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with},
    process::{Pid, Resource, Rlimit, prlimit},
};

use super::living::{create, destroy, request, run};
use crate::{
    World,
    case::cases,
    leftovers::lock_holders,
    reading::read_until,
    states::{Act, Actor},
};

cases!["descriptors":
    a_caller_without_descriptors_says_so_and_harms_nobody needs(living),
    a_keeper_without_descriptors_turns_others_away_and_keeps_its_sandbox needs(living),
    a_guest_without_descriptors_says_so_and_its_runs_go_on needs(living),
    a_sandbox_with_as_many_connections_as_it_takes_says_so needs(living),
];

async fn a_caller_without_descriptors_says_so_and_harms_nobody(w: World) {
    let mut actor = Actor::start(&w.data_dir()).expect("an actor");
    let mut act = |act: Act| actor.act("one", &act).expect("an answer");
    assert!(act(Act::Create).is_ok());
    let going = act(Act::Detach).expect("a run");
    let mut refused = 0;
    for free in 0..16 {
        assert!(act(Act::Descriptors(Some(free))).is_ok());
        match act(Act::Exec) {
            Ok(word) => assert!(["first", "again"].contains(&word.as_str()), "{free}: {word}"),
            Err((code, message)) => {
                refused += 1;
                assert!(code == "too_many", "{free}: {code}: {message}");
            }
        }
        assert!(act(Act::Descriptors(None)).is_ok());
        assert_eq!(act(Act::Runs), Ok(going.clone()));
    }
    // Connections to an engine on another machine are kept, and used again.
    assert!(refused > 0 || w.features().volumes_elsewhere, "no descriptor was needed");
    assert!(act(Act::Exec).is_ok());
    assert_eq!(act(Act::Destroy), Ok("done".to_owned()));
}

/// CPU time of a process, in the kernel's ticks.
fn ticks(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process is there");
    let fields: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split(' ').collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}

async fn a_keeper_without_descriptors_turns_others_away_and_keeps_its_sandbox(w: World) {
    let mut actor = Actor::start_with_descriptors(&w.data_dir(), 48).expect("an actor");
    assert_eq!(actor.act("one", &Act::Create).expect("an answer"), Ok("done".to_owned()));
    actor.act("one", &Act::Detach).expect("an answer").expect("a run");
    let id = w.engine().status("one").await.expect("it is there").sandbox;
    let folder = NativeBackend::runtime_folder().join("sandboxes").join(id.to_string());
    let lock = fs::metadata(folder.join("lock")).expect("a lock").ino();
    let keeper = lock_holders().into_iter().find(|(_, held)| *held == lock).expect("somebody keeps it").0;
    assert_eq!(keeper, actor.launcher);
    // Others who connect and say nothing.
    let address = SocketAddrUnix::new(folder.join("keeper")).expect("an address");
    let silent: Vec<_> = (0..60)
        .map(|_| {
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
            let socket = socket.expect("a socket");
            connect(&socket, &address).expect("the keeper listens");
            socket
        })
        .collect();
    let (before, began) = (ticks(keeper), Instant::now());
    // What the keeper had open for a moment may be free by now; whoever gets in takes it.
    let (mut refused, mut let_in) = (0, Vec::new());
    while refused < 20 {
        match w.engine().open("one").await {
            Ok(sandbox) => let_in.push(sandbox),
            Err(error) => {
                assert_eq!(error.code, ErrorCode::TooMany, "{error}");
                refused += 1;
            }
        }
        assert!(let_in.len() < 48, "there is no bound");
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(ticks(keeper) - before < 40, "the keeper spins: {} ticks", ticks(keeper) - before);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    // Nor can it make another one, and that harms nobody either.
    let (code, message) =
        actor.act("two", &Act::Create).expect("an answer").expect_err("there is no descriptor for it");
    // It has no descriptor even to answer with.
    assert!(["too_many", "sandbox_lost"].contains(&code.as_str()), "{code}: {message}");
    // Whoever speaks with it already goes on.
    assert_eq!(actor.act("one", &Act::Show).expect("an answer"), Ok("ready".to_owned()));
    assert_eq!(actor.act("one", &Act::Exec).expect("an answer"), Ok("first".to_owned()));
    drop((silent, let_in));
    let deadline = Instant::now() + Duration::from_secs(10);
    let sandbox = loop {
        match w.engine().open("one").await {
            Ok(sandbox) => break sandbox,
            Err(error) => assert!(error.code == ErrorCode::TooMany && Instant::now() < deadline, "{error}"),
        }
    };
    run(&sandbox, "echo again").await.expect_out("again\n");
    drop(sandbox);
    destroy(&w, id).await;
}

async fn a_guest_without_descriptors_says_so_and_its_runs_go_on(w: World) {
    let mut actor = Actor::start_with_descriptors(&w.data_dir(), 64).expect("an actor");
    assert_eq!(actor.act("one", &Act::Create).expect("an answer"), Ok("done".to_owned()));
    // The guest has the limit of who made it, or gets it where that is an engine. Somebody else, who has none, works with it.
    if actor.launcher == 0 {
        let id = w.engine().status("one").await.expect("it is there").sandbox;
        let guest = Pid::from_raw(w.subject().guest(id)).expect("a process id");
        prlimit(Some(guest), Resource::Nofile, Rlimit { current: Some(64), maximum: Some(64) }).expect("root may");
    }
    let mut other = Actor::start(&w.data_dir()).expect("another actor");
    let mut runs = Vec::new();
    let (code, message) = loop {
        match other.act("one", &Act::Detach).expect("an answer") {
            Ok(run) => runs.push(run),
            Err(error) => break error,
        }
        assert!(runs.len() < 64, "there is no bound");
    };
    assert_eq!(code, "too_many", "{message}");
    assert!(runs.len() > 5, "{}", runs.len());
    runs.sort();
    let known = other.act("one", &Act::Runs).expect("an answer");
    assert_eq!(known, Ok(runs.join(" ")), "others go on");
    let end = Act::Cancel(runs.pop().expect("a run").parse().expect("an id"));
    assert_eq!(other.act("one", &end).expect("an answer"), Ok("done".to_owned()));
    let deadline = Instant::now() + Duration::from_secs(10);
    while let Err((code, message)) = other.act("one", &Act::Exec).expect("an answer") {
        assert!(code == "too_many" && Instant::now() < deadline, "{code}: {message}");
    }
    assert_eq!(actor.act("one", &Act::Destroy).expect("an answer"), Ok("done".to_owned()));
}

async fn a_sandbox_with_as_many_connections_as_it_takes_says_so(w: World) {
    let sandbox = create(&w, NewSandbox::default()).await;
    let text = sandbox.id().to_string();
    let mut going = sandbox.start(request("echo up; exec sleep 100")).await.expect("it starts");
    read_until(&mut going, "up\n").await;
    let mut others = Vec::new();
    let error = loop {
        assert!(others.len() <= glovebox_proto::bound::CONNECTIONS, "there is no bound");
        let attached = match w.engine().open(&text).await {
            Ok(other) => other.attach(going.id(), Stdin::Empty).await.map(|run| (other, run)),
            Err(error) => Err(error),
        };
        match attached {
            Ok(both) => others.push(both),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code, ErrorCode::TooMany, "{error}");
    assert!(others.len() > 200, "{}", others.len());
    run(&sandbox, "echo beside").await.expect_out("beside\n");
    for (_, other) in &mut others {
        read_until(other, "up\n").await;
    }
    drop(others);
    let deadline = Instant::now() + Duration::from_secs(10);
    while let Err(error) = w.engine().open(&text).await.map(drop) {
        assert!(Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    going.cancel();
    going.wait().await.expect("a result");
    destroy(&w, sandbox.id()).await;
}
