//! Runs of one sandbox, told apart by the kernel.

use glovebox_core::{LimitKind, Outcome, SandboxId};
use glovebox_engine::Sandbox;

use crate::{World, case::cases, finished::Finished, reading::read_until};

cases!["run_groups":
    usage_is_that_of_the_run_alone needs(run_groups),
    a_look_at_a_run_under_way_does_not_change_what_is_told_of_its_end needs(run_groups),
    a_run_that_is_out_of_memory_does_not_make_others_so needs(run_groups),
    a_lack_of_memory_ends_commands_and_not_what_starts_them needs(run_groups),
    a_sandbox_tells_what_was_killed_or_refused_in_any_of_its_runs needs(run_groups),
    what_an_earlier_run_left_running_is_not_ended_with_a_later_one needs(run_groups),
    all_that_a_cancelled_run_started_is_ended_and_nothing_of_others needs(run_groups),
    processes_that_fork_others_and_end_are_ended_with_their_run needs(run_groups),
    chains_of_processes_that_each_leave_their_session_are_ended_with_their_run needs(run_groups),
    a_process_whose_first_thread_has_ended_is_ended_with_its_run needs(run_groups),
    a_program_that_cannot_start_is_told_so_and_the_next_one_starts needs(run_groups),
    a_burst_of_runs_gets_a_group_for_each needs(run_groups),
    groups_of_runs_that_are_over_are_removed needs(run_groups),
    a_compiled_program_is_counted_with_its_compiler needs(run_groups),
];

async fn end(sandbox: Sandbox) {
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

async fn usage_is_that_of_the_run_alone(w: World) {
    let sandbox = w.sandbox().create_living().await;
    let large = w.sandbox().inside(&sandbox).probe("eat-memory 64").await.expect_exit(0);
    let busy =
        w.sandbox().inside(&sandbox).sh("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done").await.expect_exit(0);
    let small = w.sandbox().inside(&sandbox).sh("sleep 0.05 & wait").await.expect_exit(0);
    assert!(large.usage.memory_peak_bytes > 60 << 20, "{}", large.story());
    assert!(small.usage.memory_peak_bytes < 16 << 20, "{}", small.story());
    assert!(small.usage.memory_peak_bytes > 0 && small.usage.cpu_ms > 0.0, "{}", small.story());
    assert!(busy.usage.cpu_ms > 2.0 * small.usage.cpu_ms, "{} and {}", busy.story(), small.story());
    end(sandbox).await;
}

async fn a_look_at_a_run_under_way_does_not_change_what_is_told_of_its_end(w: World) {
    let sandbox = w.sandbox().create_living().await;
    let id = sandbox.id().to_string();
    let script = "read go; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let (input, stdin) = tokio::sync::mpsc::channel(1);
    let run = w.sandbox().inside(&sandbox).stdin_stream(stdin).start(["sh", "-c", script]).await;
    let seen = w.engine().run_usage(&id, run.id()).await.expect("it can be looked at");
    input.send("go\n".into()).await.expect("it reads");
    // Each makes the keeper look for groups that can go.
    for _ in 0..3 {
        w.sandbox().inside(&sandbox).run(["true"]).await.expect_exit(0);
    }
    let told = Finished(run.wait().await.expect("it ends"));
    assert!(told.usage.cpu_ms > seen.cpu_ms + 10.0, "{} ms then, {}", seen.cpu_ms, told.story());
    end(sandbox).await;
}

async fn a_run_that_is_out_of_memory_does_not_make_others_so(w: World) {
    let sandbox = w.sandbox().memory("64m").create_living().await;
    let beside = w.sandbox().inside(&sandbox).start(["sleep", "60"]).await;
    let run = w.sandbox().inside(&sandbox).probe("eat-memory 512").await;
    assert!(matches!(run.outcome, Outcome::OutOfMemory { .. }), "{}", run.story());
    let killed = w.sandbox().inside(&sandbox).sh("kill -9 $$").await;
    killed.expect_outcome(&Outcome::Signaled { signal: 9 });
    beside.cancel();
    Finished(beside.wait().await.expect("it ends")).expect_outcome(&Outcome::Cancelled);
    end(sandbox).await;
}

/// Each of these processes is smaller than those that wait for the next command.
async fn a_lack_of_memory_ends_commands_and_not_what_starts_them(w: World) {
    let sandbox = w.sandbox().memory("24m").pids(400).create_living().await;
    let small = "if (open(my $f, '<', '/proc/self/oom_score_adj')) { print <$f> } $| = 1; \
                 for (1..300) { my $pid = fork; if (defined $pid && $pid == 0) { my $x = 'x' x 200_000; sleep 2; exit } } sleep 2";
    for _ in 0..3 {
        let run = w.sandbox().inside(&sandbox).timeout("20s").run(["perl", "-e", small]).await;
        assert!(run.out().starts_with("500\n") || run.out().is_empty(), "{}", run.story());
        let evidence = sandbox.evidence().await.expect("the evidence is told");
        assert!(evidence.memory_kills > 0, "{}", run.story());
        while sandbox.usage().await.expect("the usage is told").processes > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        w.sandbox().inside(&sandbox).sh("cat /proc/self/oom_score_adj").await.expect_out("500\n");
    }
    end(sandbox).await;
}

async fn a_sandbox_tells_what_was_killed_or_refused_in_any_of_its_runs(w: World) {
    let sandbox = w.sandbox().memory("64m").pids(8).create_living().await;
    let before = sandbox.evidence().await.expect("the evidence is told");
    assert_eq!((before.memory_kills, before.pids_refused), (0, 0));
    for kills in 1..=2 {
        let run = w.sandbox().inside(&sandbox).probe("eat-memory 512").await;
        assert!(matches!(run.outcome, Outcome::OutOfMemory { .. }), "{}", run.story());
        // Another run's group comes and goes in between.
        w.sandbox().inside(&sandbox).sh("true").await.expect_exit(0);
        assert_eq!(sandbox.evidence().await.expect("the evidence is told").memory_kills, kills);
    }
    let many = "for i in 1 2 3 4 5 6 7 8 9; do sleep 1 & done 2> /dev/null; exit 0";
    w.sandbox().inside(&sandbox).sh(many).await.expect_limit_hit(LimitKind::Pids, true);
    assert!(sandbox.evidence().await.expect("the evidence is told").pids_refused > 0);
    end(sandbox).await;
}

async fn what_an_earlier_run_left_running_is_not_ended_with_a_later_one(w: World) {
    let sandbox = w.sandbox().create_living().await;
    let left = "setsid sleep 61 > /dev/null 2>&1 & echo $! > pid";
    w.sandbox().inside(&sandbox).sh(left).await.expect_exit(0);
    let run = w.sandbox().inside(&sandbox).timeout("200ms").grace("100ms").run(["sleep", "60"]).await;
    run.expect_outcome(&Outcome::TimedOut { limit_ms: 200 });
    w.sandbox().inside(&sandbox).sh("kill -0 $(cat pid) && echo alive").await.expect_out("alive\n");
    end(sandbox).await;
}

async fn all_that_a_cancelled_run_started_is_ended_and_nothing_of_others(w: World) {
    let sandbox = w.sandbox().create_living().await;
    let started = |file: &str| format!("setsid sh -c 'echo $$ > {file}; exec sleep 60' & sleep 61");
    let (one, other) = (started("one"), started("other"));
    let first = w.sandbox().inside(&sandbox).start(["sh", "-c", &one]).await;
    let second = w.sandbox().inside(&sandbox).start(["sh", "-c", &other]).await;
    let wait = "until [ -s one ] && [ -s other ]; do sleep 0.02; done";
    w.sandbox().inside(&sandbox).sh(wait).await.expect_exit(0);
    first.cancel();
    Finished(first.wait().await.expect("it ends")).expect_outcome(&Outcome::Cancelled);
    let look = "kill -0 $(cat one) 2> /dev/null && echo one; kill -0 $(cat other) && echo other";
    w.sandbox().inside(&sandbox).sh(look).await.expect_out("other\n");
    second.cancel();
    second.wait().await.expect("it ends");
    end(sandbox).await;
}

async fn processes_that_fork_others_and_end_are_ended_with_their_run(w: World) {
    let sandbox = w.sandbox().create_living().await;
    let id = sandbox.id().to_string();
    let chains = "for (1..3) { if (fork == 0) { while (1) { exit if fork } } } sleep 100";
    for _ in 0..5 {
        let run = w.sandbox().inside(&sandbox).timeout("300ms").grace("50ms").run(["perl", "-e", chains]).await;
        run.expect_outcome(&Outcome::TimedOut { limit_ms: 300 });
        let left = w.engine().usage(&id).await.expect("it can be looked at").processes;
        assert_eq!(left, 0, "processes are left");
    }
    end(sandbox).await;
}

/// No process group holds such a chain, and each of its processes lives for microseconds. That they are refused at last is our
/// doing, and no limit that the program hit. On a busy machine the dead are many before they are reaped, and count.
async fn chains_of_processes_that_each_leave_their_session_are_ended_with_their_run(w: World) {
    let sandbox = w.sandbox().pids(4000).create_living().await;
    let id = sandbox.id().to_string();
    let chains = "use POSIX; for (1..4) { if (fork == 0) { while (1) { POSIX::setsid(); exit if fork } } } \
                  print qq(on\n); close STDOUT; sleep 100";
    for _ in 0..5 {
        let setup = w.sandbox().inside(&sandbox).timeout("300ms").grace("50ms");
        let run = setup.run(["perl", "-e", chains]).await.expect_outcome(&Outcome::TimedOut { limit_ms: 300 });
        run.expect_limit_hit(LimitKind::Pids, false);
        let left = w.engine().usage(&id).await.expect("it can be looked at").processes;
        assert_eq!(left, 0, "processes are left after the time limit");
        let mut run = w.sandbox().inside(&sandbox).start(["perl", "-e", chains]).await;
        read_until(&mut run, "on\n").await;
        run.cancel();
        Finished(run.wait().await.expect("it ends")).expect_outcome(&Outcome::Cancelled);
        let left = w.engine().usage(&id).await.expect("it can be looked at").processes;
        assert_eq!(left, 0, "processes are left after a cancel");
    }
    end(sandbox).await;
}

/// To the kernel's table it looks like one that is over.
async fn a_process_whose_first_thread_has_ended_is_ended_with_its_run(w: World) {
    let sandbox = w.sandbox().create_living().await;
    let id = sandbox.id().to_string();
    let line = "import ctypes, os, threading, time\n\
                if os.fork() == 0:\n\
                \x20   os.setsid()\n\
                \x20   threading.Thread(target=time.sleep, args=(100,)).start()\n\
                \x20   print('on', flush=True)\n\
                \x20   ctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)\n\
                time.sleep(100)";
    let mut run = w.sandbox().inside(&sandbox).start(["python3", "-c", line]).await;
    read_until(&mut run, "on\n").await;
    run.cancel();
    Finished(run.wait().await.expect("it ends")).expect_outcome(&Outcome::Cancelled);
    let left = w.engine().usage(&id).await.expect("it can be looked at").processes;
    assert_eq!(left, 0, "processes are left");
    end(sandbox).await;
}

async fn a_program_that_cannot_start_is_told_so_and_the_next_one_starts(w: World) {
    let sandbox = w.sandbox().create_living().await;
    for _ in 0..3 {
        let error = w.sandbox().inside(&sandbox).try_run(["/nothing"]).await.expect_err("there is no such program");
        assert_eq!(error.code, glovebox_core::ErrorCode::CommandNotFound);
        w.sandbox().inside(&sandbox).sh("echo here; cat /proc/self/cgroup").await.expect_exit(0);
    }
    end(sandbox).await;
}

async fn a_burst_of_runs_gets_a_group_for_each(w: World) {
    let sandbox = w.sandbox().create_living().await;
    let line = "cut -d/ -f2- /proc/self/cgroup | grep -xE '[0-9]+' | sort -u; sleep 0.2";
    let mut runs = Vec::new();
    for _ in 0..24 {
        runs.push(w.sandbox().inside(&sandbox).start(["sh", "-c", line]).await);
    }
    let mut groups = Vec::new();
    for run in runs {
        groups.push(Finished(run.wait().await.expect("it ends")).expect_exit(0).out());
    }
    groups.sort();
    groups.dedup();
    assert_eq!(groups.len(), 24, "{groups:?}");
    end(sandbox).await;
}

/// The groups of runs that are there now.
fn groups_of(id: SandboxId) -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/mounts").expect("the mounts can be read");
    let mut found = Vec::new();
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    for mount in mounts.lines().filter(|line| line.contains(" cgroup")).filter_map(|line| line.split(' ').nth(1)) {
        let tops = own.lines().filter_map(|line| line.splitn(3, ':').nth(2)).chain(["/"]);
        for top in tops {
            let group = format!("{mount}{top}/glovebox/living.{id}.run");
            let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
            found.extend(entries.filter_map(|entry| entry.file_name().into_string().ok()));
        }
    }
    found.retain(|name| name.parse::<u64>().is_ok());
    found.sort();
    found.dedup();
    found
}

async fn groups_of_runs_that_are_over_are_removed(w: World) {
    let sandbox = w.sandbox().create_living().await;
    for _ in 0..20 {
        w.sandbox().inside(&sandbox).sh("true & true").await.expect_exit(0);
    }
    let left = groups_of(sandbox.id());
    assert!((1..=4).contains(&left.len()), "{left:?}");
    end(sandbox).await;
}

async fn a_compiled_program_is_counted_with_its_compiler(w: World) {
    let sandbox = w.sandbox().create_living().await;
    let compiler = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; cp /bin/true $OUT/main";
    let setup = w.sandbox().inside(&sandbox).file("/workspace/agent_workspace/a", "x", 0o644);
    let run = setup.compile("/workspace/agent_workspace/a", compiler).run(["/home/user/.program/main"]).await;
    let compiled = run.compile.as_ref().map(|compile| compile.usage.cpu_ms).unwrap_or_default();
    assert!(compiled > 1.0 && run.usage.cpu_ms >= compiled, "{}", run.story());
    end(sandbox).await;
}
