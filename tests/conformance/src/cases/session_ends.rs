//! How sessions and the runs in them end: by an interrupt, by a kill, by themselves.

use std::time::{Duration, Instant};

use glovebox_core::{ErrorCode, Lifetime, Outcome};
use glovebox_engine::NewSandbox;

use super::{
    living,
    sessions::{destroy, expect_lost, finish, name, python, request, start},
};
use crate::{World, case::cases, reading::read_until};

cases!["session_ends":
    a_run_over_its_time_is_interrupted_and_the_session_goes_on,
    a_run_that_is_cancelled_is_interrupted_and_the_session_goes_on,
    a_run_that_takes_no_interrupt_is_killed_and_the_next_one_says_that_state_is_lost,
    what_runs_in_a_session_can_be_interrupted,
    an_interpreter_that_ends_is_the_outcome_and_the_next_run_says_that_state_is_lost,
    an_interpreter_that_memory_ended_says_so needs(cgroup_limits),
    a_session_that_is_closed_ends_with_all_that_it_started,
    a_session_that_says_what_it_may_not_is_ended,
    code_that_says_it_is_done_and_goes_on_is_found_out,
    a_shell_that_another_program_replaces_says_so,
    a_session_whose_reader_stands_still_can_be_closed,
    an_interpreter_that_died_unseen_is_not_listed_as_ready,
    a_session_begins_anew_and_keeps_its_language,
    a_session_of_a_sandbox_that_was_stopped_is_said_to_be_lost needs(living),
    a_sandbox_with_a_session_at_rest_ends_when_it_is_not_used needs(run_groups),
];

async fn a_run_over_its_time_is_interrupted_and_the_session_goes_on(w: World) {
    let sandbox = w.sandbox().create().await;
    for (session, language, before, code, after) in [
        ("py", "python", "x = 'kept'", "while True: pass", "print(x)"),
        ("sleeper", "python", "x = 'kept'; import subprocess", "subprocess.run(['sleep', '60'])", "print(x)"),
        ("sh", "bash", "x=kept", "while true; do sleep 0.1; done", "echo $x"),
    ] {
        finish(start(&sandbox, request(session, language, before)).await).await.expect_exit(0);
        let mut long = request(session, language, code);
        long.spec.limits.timeout = Duration::from_millis(300);
        let run = finish(start(&sandbox, long).await).await.expect_outcome(&Outcome::TimedOut { limit_ms: 300 });
        assert!(run.session.as_ref().is_some_and(|session| session.alive), "{session}: {}", run.story());
        let next = finish(start(&sandbox, request(session, language, after)).await).await;
        expect_lost(&next, false);
        next.expect_exit(0).expect_out("kept\n");
    }
    destroy(sandbox).await;
}

async fn a_run_that_is_cancelled_is_interrupted_and_the_session_goes_on(w: World) {
    let sandbox = w.sandbox().create().await;
    python(&sandbox, "x = 'kept'").await.expect_exit(0);
    let mut run = start(&sandbox, request("main", "python", "print('on', flush=True)\nwhile True: pass")).await;
    read_until(&mut run, "on\n").await;
    run.cancel();
    finish(run).await.expect_outcome(&Outcome::Cancelled);
    // Also when the code has hardly begun.
    let run = start(&sandbox, request("main", "python", "while True: pass")).await;
    run.cancel();
    finish(run).await.expect_outcome(&Outcome::Cancelled);
    let next = python(&sandbox, "print(x)").await.expect_out("kept\n");
    expect_lost(&next, false);
    destroy(sandbox).await;
}

async fn a_run_that_takes_no_interrupt_is_killed_and_the_next_one_says_that_state_is_lost(w: World) {
    let sandbox = w.sandbox().create().await;
    let mut stubborn = request(
        "main",
        "python",
        "x = 1\nimport signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\nwhile True: pass",
    );
    stubborn.spec.limits.timeout = Duration::from_millis(200);
    stubborn.spec.limits.grace = Duration::from_millis(300);
    let run = finish(start(&sandbox, stubborn).await).await.expect_outcome(&Outcome::TimedOut { limit_ms: 200 });
    assert!(run.session.as_ref().is_some_and(|session| !session.alive), "{}", run.story());
    assert!(run.warnings.iter().any(|warning| warning.code == "session_lost"), "{:?}", run.warnings);
    let next = python(&sandbox, "print('x' in globals())").await.expect_out("False\n");
    expect_lost(&next, true);
    expect_lost(&python(&sandbox, "1").await, false);
    destroy(sandbox).await;
}

async fn what_runs_in_a_session_can_be_interrupted(w: World) {
    let sandbox = w.sandbox().create().await;
    let code = "x = 1\nprint('on', flush=True)\nwhile True: pass";
    let mut run = start(&sandbox, request("main", "python", code)).await;
    read_until(&mut run, "on\n").await;
    let listed = sandbox.sessions().await.expect("they can be listed");
    assert_eq!(listed[0].busy, Some(run.id()));
    sandbox.interrupt_session(&name("main")).await.expect("it can be interrupted");
    let run = finish(run).await.expect_exit(130);
    assert_eq!(run.exception.as_ref().map(|exception| exception.name.as_str()), Some("KeyboardInterrupt"));
    // Where nothing runs there is nothing to interrupt, and nothing is lost.
    sandbox.interrupt_session(&name("main")).await.expect("it can be interrupted");
    python(&sandbox, "print(x)").await.expect_exit(0).expect_out("1\n");
    let error = sandbox.interrupt_session(&name("none")).await.expect_err("there is no such session");
    assert_eq!(error.code, ErrorCode::SessionNotFound);
    destroy(sandbox).await;
}

async fn an_interpreter_that_ends_is_the_outcome_and_the_next_run_says_that_state_is_lost(w: World) {
    let sandbox = w.sandbox().create().await;
    for (code, outcome) in [
        ("x = 1; print('last', flush=True); import os; os._exit(3)", Outcome::Exited { code: 3 }),
        ("x = 1; print('last', flush=True); import os; os.kill(os.getpid(), 9)", Outcome::Signaled { signal: 9 }),
        ("x = 1; print('last', flush=True); import os; os.abort()", Outcome::Signaled { signal: 6 }),
    ] {
        let run = python(&sandbox, code).await.expect_outcome(&outcome).expect_out("last\n");
        assert!(run.session.as_ref().is_some_and(|session| !session.alive), "{}", run.story());
        let next = python(&sandbox, "print('x' in globals())").await.expect_exit(0).expect_out("False\n");
        expect_lost(&next, true);
    }
    destroy(sandbox).await;
}

async fn an_interpreter_that_memory_ended_says_so(w: World) {
    let sandbox = w.sandbox().memory("256m").create().await;
    python(&sandbox, "x = 1").await.expect_exit(0);
    let run = python(&sandbox, "y = bytearray(1 << 30)").await.expect_out_of_memory(256 << 20);
    assert!(run.session.as_ref().is_some_and(|session| !session.alive), "{}", run.story());
    let next = python(&sandbox, "import os; os.kill(os.getpid(), 9)").await;
    expect_lost(&next, true);
    // What was counted before is no reason for this end.
    next.expect_outcome(&Outcome::Signaled { signal: 9 });
    destroy(sandbox).await;
}

async fn a_session_that_is_closed_ends_with_all_that_it_started(w: World) {
    let sandbox = w.sandbox().create().await;
    let beats = "while true; do echo >> beats; sleep 0.02; done";
    let code = format!("import subprocess\nsubprocess.Popen(['sh', '-c', '{beats}'], start_new_session=True);");
    python(&sandbox, &code).await.expect_exit(0);
    let is_there = "touch beats; before=$(wc -c < beats); sleep 0.5; test $(wc -c < beats) != $before";
    living::run(&sandbox, is_there).await.expect_exit(0);
    sandbox.close_session(&name("main")).await.expect("it can be closed");
    assert!(sandbox.sessions().await.expect("they can be listed").is_empty());
    living::run(&sandbox, is_there).await.expect_exit(1);
    // Whoever closed it knows that nothing of it is left.
    let next = python(&sandbox, "1").await;
    expect_lost(&next, false);
    assert_eq!(next.session.as_ref().map(|session| session.number), Some(1));
    let error = sandbox.close_session(&name("none")).await.expect_err("there is no such session");
    assert_eq!(error.code, ErrorCode::SessionNotFound);
    // One that is busy too.
    let mut busy = start(&sandbox, request("main", "python", "print('on', flush=True)\nwhile True: pass")).await;
    read_until(&mut busy, "on\n").await;
    sandbox.close_session(&name("main")).await.expect("it can be closed");
    finish(busy).await.expect_outcome(&Outcome::Cancelled);
    destroy(sandbox).await;
}

/// Python that finds the token of its run, and says something on its own socket.
fn saying(what: &str) -> String {
    format!(
        "import os, stat, sys\nframe = sys._getframe()\nwhile 'request' not in frame.f_locals: frame = frame.f_back\n\
        token = frame.f_locals['request']['token']\nfor fd in range(1024):\n    try: mode = os.fstat(fd).st_mode\n    \
        except OSError: continue\n    if stat.S_ISSOCK(mode): os.write(fd, f'{what}'.encode())"
    )
}

async fn code_that_says_it_is_done_and_goes_on_is_found_out(w: World) {
    let sandbox = w.sandbox().create().await;
    python(&sandbox, "x = 1").await.expect_exit(0);
    // With more behind it, at once.
    let twice = saying("done 0 {token}\\ndone 0 {token}\\n");
    // Or without knowing what only its own run is told.
    for forged in [&twice, &saying("done 0\\n"), &saying("done 0 run_01M7GDM3ZWEK286J5RRB9QZANH\\n")] {
        let run = python(&sandbox, forged).await;
        assert!(run.session.as_ref().is_some_and(|session| !session.alive), "{forged}: {}", run.story());
    }
    // What the driver itself says later belongs to no run, and least of all to the next.
    python(&sandbox, "x = 1").await.expect_exit(0);
    let forged = format!(
        "{}\nimport time\ntime.sleep(0.2)\nopen('over', 'w')\nraise ValueError('mine')",
        saying("done 0 {token}\\n")
    );
    python(&sandbox, &forged).await.expect_exit(0);
    living::run(&sandbox, "while [ ! -e over ]; do sleep 0.02; done; sleep 0.2").await.expect_exit(0);
    let next = python(&sandbox, "print('next')").await.expect_exit(0).expect_out("next\n");
    assert!(next.exception.is_none(), "{:?}", next.exception);
    expect_lost(&next, true);
    // Nor does the next run get the end of one that is still at work when it begins.
    let forged = format!(
        "{}\nimport time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('late')",
        saying("done 0 {token}\\n")
    );
    python(&sandbox, &forged).await.expect_exit(0);
    let next = start(&sandbox, request("main", "python", "print('next')")).await;
    living::run(&sandbox, "touch go").await.expect_exit(0);
    let next = finish(next).await;
    assert!(next.session.as_ref().is_some_and(|session| !session.alive), "{}", next.story());
    assert!(next.warnings.iter().any(|warning| warning.message.contains("control socket")), "{:?}", next.warnings);
    destroy(sandbox).await;
}

async fn a_shell_that_another_program_replaces_says_so(w: World) {
    let sandbox = w.sandbox().create().await;
    let run = finish(start(&sandbox, request("sh", "bash", "exec sleep 20")).await).await;
    assert!(run.session.as_ref().is_some_and(|session| !session.alive), "{}", run.story());
    let said: Vec<&str> = run.warnings.iter().map(|warning| warning.message.as_str()).collect();
    assert!(said.iter().any(|said| said.contains("exec put another program in the place of its shell")), "{said:?}");
    let run = finish(start(&sandbox, request("sh", "bash", "builtin() { :; }")).await).await.expect_exit(125);
    let hints: Vec<&str> = run.warnings.iter().filter_map(|warning| warning.hint.as_deref()).collect();
    assert!(hints.iter().any(|hint| hint.contains("hiding builtin")), "{hints:?}");
    finish(start(&sandbox, request("sh", "bash", "echo anew")).await).await.expect_exit(0).expect_out("anew\n");
    destroy(sandbox).await;
}

async fn a_session_whose_reader_stands_still_can_be_closed(w: World) {
    let sandbox = w.sandbox().create().await;
    let run = start(&sandbox, request("main", "python", "import os\nos.write(1, b'x' * 40_000_000)")).await;
    // Nobody takes its events. That it has written as much as fits is seen by nothing but time.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let main = name("main");
    let closing = sandbox.close_session(&main);
    tokio::time::timeout(Duration::from_secs(10), closing).await.expect("it does not hang").expect("it can be closed");
    finish(run).await.expect_outcome(&Outcome::Cancelled);
    destroy(sandbox).await;
}

async fn an_interpreter_that_died_unseen_is_not_listed_as_ready(w: World) {
    let sandbox = w.sandbox().create().await;
    let code = "import os, threading\nthreading.Timer(0.2, lambda: os._exit(3)).start()";
    python(&sandbox, code).await.expect_exit(0);
    let began = Instant::now();
    while sandbox.sessions().await.expect("they can be listed")[0].ended.is_none() {
        assert!(began.elapsed() < Duration::from_secs(20), "it is still ready");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    expect_lost(&python(&sandbox, "1").await, true);
    destroy(sandbox).await;
}

async fn a_session_begins_anew_and_keeps_its_language(w: World) {
    let sandbox = w.sandbox().create().await;
    python(&sandbox, "x = 1").await.expect_exit(0);
    sandbox.restart_session(&name("main")).await.expect("it can begin anew");
    assert_eq!(sandbox.session_language(&name("main")).await.expect("it is known").as_deref(), Some("python"));
    let next = python(&sandbox, "print('x' in globals())").await.expect_out("False\n");
    expect_lost(&next, false);
    let error = sandbox.restart_session(&name("none")).await.expect_err("there is no such session");
    assert_eq!(error.code, ErrorCode::SessionNotFound);
    destroy(sandbox).await;
}

async fn a_session_that_says_what_it_may_not_is_ended(w: World) {
    let sandbox = w.sandbox().create().await;
    for what in [
        "os.write(fd, b'hello\\n')",
        "os.write(fd, b'x' * 1000000)",
        "os.write(fd, b'result text/plain 0 value 99999999999\\n')",
        "os.write(fd, b'exception 2\\n{}exception 2\\n{}')",
        "os.close(fd)",
    ] {
        let code = format!(
            "import os, stat\nfor fd in range(1024):\n    try: mode = os.fstat(fd).st_mode\n    except OSError: continue\n    if stat.S_ISSOCK(mode): {what}\nimport time\ntime.sleep(10)"
        );
        let run = finish(start(&sandbox, request("main", "python", &code)).await).await;
        assert!(run.session.as_ref().is_some_and(|session| !session.alive), "{what}: {}", run.story());
        assert!(run.warnings.iter().any(|warning| warning.message.contains("control socket")), "{:?}", run.warnings);
        finish(start(&sandbox, request("main", "python", "print(1)")).await).await.expect_exit(0).expect_out("1\n");
    }
    destroy(sandbox).await;
}

async fn a_session_of_a_sandbox_that_was_stopped_is_said_to_be_lost(w: World) {
    let sandbox = living::create(&w, NewSandbox::default()).await;
    let id = sandbox.id().to_string();
    python(&sandbox, "x = 1").await.expect_exit(0);
    drop(sandbox);
    w.engine().stop(&id).await.expect("it can be stopped");
    let sandbox = w.engine().restart(&id).await.expect("it can be started");
    let run = python(&sandbox, "print('x' in globals())").await.expect_out("False\n");
    expect_lost(&run, true);
    drop(sandbox);
    // One that is reset is as new, and nothing is missing.
    let sandbox = w.engine().reset(&id).await.expect("it can be reset");
    expect_lost(&python(&sandbox, "1").await, false);
    let id = sandbox.id();
    drop(sandbox);
    living::destroy(&w, id).await;
}

async fn a_sandbox_with_a_session_at_rest_ends_when_it_is_not_used(w: World) {
    let lifetime = Lifetime { idle: Some(Duration::from_secs(2)), max_age: None };
    let sandbox = living::create(&w, NewSandbox { lifetime, ..NewSandbox::default() }).await;
    let id = sandbox.id();
    python(&sandbox, "x = 1").await.expect_exit(0);
    drop(sandbox);
    let began = Instant::now();
    while w.engine().status(&id.to_string()).await.is_ok_and(|status| status.ended.is_none()) {
        assert!(began.elapsed() < Duration::from_secs(20), "it is still there");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    living::destroy(&w, id).await;
}
