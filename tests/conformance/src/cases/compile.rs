//! The compile step: inside, limited, told apart from the run, and kept only where nothing but the source decides.

use std::path::PathBuf;

use glovebox_core::{LimitKind, Outcome, PROGRAM_DIR, Step, WorkspaceMode};

use crate::{World, case::cases, finished::Finished, setup::Setup};

cases!["compile":
    a_compile_step_makes_the_program_and_the_result_tells_them_apart,
    a_program_whose_compile_step_fails_never_runs_and_the_outcome_says_so,
    the_compiler_is_in_the_sandbox_with_its_layers_and_limits,
    the_same_source_is_compiled_once_and_another_one_never_gets_its_program,
    a_program_that_is_made_of_more_than_its_source_is_not_kept,
    a_program_that_is_compiled_in_a_living_sandbox_is_not_kept,
    what_a_compiler_makes_in_place_of_a_program_is_not_kept,
    neither_variables_nor_secrets_of_the_caller_reach_the_compiler,
    a_secret_in_the_source_is_masked_and_its_program_is_not_kept,
    the_time_limit_covers_both_steps_and_the_result_says_which_one_it_ended,
    a_compiler_that_runs_out_of_memory_is_told_from_a_program_that_does needs(cgroup_limits),
    a_run_that_is_cancelled_while_it_compiles_ends_at_once,
    what_a_compiler_says_is_kept_in_bounded_memory,
];

const SOURCE: &str = "/workspace/agent_workspace/main.txt";
const PROGRAM: &str = "/home/user/.program/main";
/// Makes a shell script of the source.
const COPY: &str = "{ echo '#!/bin/sh'; cat main.txt; } > $OUT/main; chmod +x $OUT/main";

fn compiled<'a>(w: &'a World, source: &str, line: &str) -> Setup<'a> {
    w.sandbox().file(SOURCE, source.to_owned(), 0o644).compile(SOURCE, line)
}

/// The programs in the data folder.
fn kept(w: &World) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(w.data_dir().join("programs")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[track_caller]
fn was_cached(run: &Finished) -> bool {
    run.compile.as_ref().unwrap_or_else(|| panic!("there is no compile step\n{}", run.story())).cached
}

async fn a_compile_step_makes_the_program_and_the_result_tells_them_apart(w: World) {
    let line = format!("echo to out; echo to err >&2; {COPY}");
    let run = compiled(&w, "echo ran; exit 3", &line).run([PROGRAM]).await.expect_exit(3).expect_out("ran\n");
    assert_eq!(run.step, Step::Run);
    assert_eq!(run.err(), "", "the compiler's words are its own");
    let compile = run.compile.as_ref().expect("there is a compile step");
    assert_eq!(compile.outcome, Outcome::Exited { code: 0 });
    assert_eq!((compile.stdout.text.as_deref(), compile.stderr.text.as_deref()), (Some("to out\n"), Some("to err\n")));
    assert!(compile.duration_ms > 0.0 && compile.duration_ms < run.duration_ms, "{}", run.story());
    assert_eq!(run.changes.added, Vec::<String>::new(), "what was compiled is no change");
}

async fn a_program_whose_compile_step_fails_never_runs_and_the_outcome_says_so(w: World) {
    let line = format!("{COPY}; echo line 1: wrong; echo 1 error >&2; exit 9");
    let run = compiled(&w, "touch /workspace/outputs/ran", &line).run([PROGRAM]).await.expect_exit(9).expect_out("");
    assert_eq!(run.step, Step::Compile);
    assert_eq!(run.compile.as_ref().map(|compile| &compile.outcome), Some(&Outcome::Exited { code: 9 }));
    // Two pipes: which of them is read first is up to the machine.
    let said = run.err();
    assert!(["line 1: wrong\n1 error\n", "1 error\nline 1: wrong\n"].contains(&said.as_str()), "{said}");
    assert!(run.artifacts.is_empty(), "the program ran");
    assert!(kept(&w).is_empty(), "a failed compile step is kept");
}

async fn the_compiler_is_in_the_sandbox_with_its_layers_and_limits(w: World) {
    let line = format!(
        "id -u; grep -E '^(NoNewPrivs|Seccomp|CapEff):' /proc/self/status | tr -d '\\t'; ulimit -n; \
         cat /etc/shadow 2>&1 || true; ls /sys | wc -l; {COPY}"
    );
    let run = compiled(&w, "true", &line).open_files(77).run([PROGRAM]).await.expect_exit(0);
    let said = run.compile.as_ref().and_then(|compile| compile.stdout.text.clone()).unwrap_or_default();
    let expected =
        "1000\nCapEff:0000000000000000\nNoNewPrivs:1\nSeccomp:2\n77\ncat: /etc/shadow: No such file or directory\n0\n";
    assert_eq!(said, expected);
}

async fn the_same_source_is_compiled_once_and_another_one_never_gets_its_program(w: World) {
    let first = compiled(&w, "echo one", COPY).run([PROGRAM]).await.expect_exit(0).expect_out("one\n");
    assert!(!was_cached(&first));
    assert_eq!(kept(&w).len(), 1);
    let again = compiled(&w, "echo one", COPY).run([PROGRAM]).await.expect_exit(0).expect_out("one\n");
    assert!(was_cached(&again), "{}", again.story());
    let other = compiled(&w, "echo two", COPY).run([PROGRAM]).await.expect_exit(0).expect_out("two\n");
    let flags = compiled(&w, "echo one", &format!(": ; {COPY}")).run([PROGRAM]).await.expect_out("one\n");
    assert!(!was_cached(&other) && !was_cached(&flags));
    assert_eq!(kept(&w).len(), 3);
}

async fn a_program_that_is_made_of_more_than_its_source_is_not_kept(w: World) {
    let folder = w.folder("workspace");
    std::fs::write(folder.join("main.txt"), "echo mine").expect("the source can be written");
    let in_workspace = w.sandbox().workspace(&folder, WorkspaceMode::Overlay).compile(SOURCE, COPY);
    in_workspace.run([PROGRAM]).await.expect_exit(0).expect_out("mine\n");
    let with_file = compiled(&w, "echo mine", COPY).file("/workspace/agent_workspace/other.h", "x", 0o644);
    with_file.run([PROGRAM]).await.expect_exit(0).expect_out("mine\n");
    let with_mount = compiled(&w, "echo mine", COPY).mount(&folder, "/data", glovebox_core::Access::ReadOnly);
    with_mount.run([PROGRAM]).await.expect_exit(0).expect_out("mine\n");
    assert!(kept(&w).is_empty(), "{:?}", kept(&w));
}

async fn a_program_that_is_compiled_in_a_living_sandbox_is_not_kept(w: World) {
    let sandbox = w.sandbox().create().await;
    let run = compiled(&w, "echo here", COPY).inside(&sandbox).run([PROGRAM]).await;
    run.expect_exit(0).expect_out("here\n");
    assert!(kept(&w).is_empty(), "{:?}", kept(&w));
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

async fn what_a_compiler_makes_in_place_of_a_program_is_not_kept(w: World) {
    for line in [
        "ln -s /bin/true $OUT/main",
        "mkdir -p $OUT/main",
        "mkfifo $OUT/main",
        "true",
        "cp /bin/true $OUT/main; truncate -s 70M $OUT/main",
        "rmdir $OUT; ln -s /bin $OUT",
    ] {
        // Whether it can be run is the program's own business.
        let _ = compiled(&w, "x", line).try_run([PROGRAM]).await;
        assert!(kept(&w).is_empty(), "{line}: {:?}", kept(&w));
    }
}

async fn neither_variables_nor_secrets_of_the_caller_reach_the_compiler(w: World) {
    let line = format!("env | cut -d= -f1 | sort | tr '\\n' ' '; {COPY}");
    let setup = compiled(&w, "echo $GIVEN $TOKEN", &line).env("GIVEN", "given").secret("TOKEN", "hunter2");
    let run = setup.run([PROGRAM]).await.expect_exit(0).expect_out("given [redacted]\n");
    let said = run.compile.as_ref().and_then(|compile| compile.stdout.text.clone()).unwrap_or_default();
    assert_eq!(said, "HOME LANG OUT PATH PWD TERM ");
}

async fn a_secret_in_the_source_is_masked_and_its_program_is_not_kept(w: World) {
    let line = format!("cat main.txt main.txt >&2; cat main.txt; {COPY}");
    let source = "echo ran # hunter2\n";
    let run = compiled(&w, source, &line).secret("TOKEN", "hunter2").run([PROGRAM]).await.expect_out("ran\n");
    let document = serde_json::to_string(&run.0).expect("a result is JSON");
    assert!(!document.contains("hunter2") && document.contains("ran # [redacted]"), "{document}");
    assert!(kept(&w).is_empty(), "{:?}", kept(&w));
    let fails = compiled(&w, source, "cat main.txt; exit 1").secret("TOKEN", "hunter2").run([PROGRAM]).await;
    assert_eq!(fails.err(), "echo ran # [redacted]\n");
}

async fn the_time_limit_covers_both_steps_and_the_result_says_which_one_it_ended(w: World) {
    let slow = format!("{COPY}; sleep 30");
    let run = compiled(&w, "true", &slow).timeout("300ms").grace("200ms").run([PROGRAM]).await;
    let run = run.expect_outcome(&Outcome::TimedOut { limit_ms: 300 });
    assert_eq!(run.step, Step::Compile);
    assert!(run.duration_ms < 5000.0, "{}", run.story());
    // The program alone would be in time, and so would the compiler.
    let both = format!("{COPY}; sleep 1");
    let run = compiled(&w, "sleep 2", &both).timeout("2500ms").grace("200ms").run([PROGRAM]).await;
    let run = run.expect_outcome(&Outcome::TimedOut { limit_ms: 2500 });
    assert_eq!(run.step, Step::Run);
}

async fn a_compiler_that_runs_out_of_memory_is_told_from_a_program_that_does(w: World) {
    let eat = "exec /probe/bin eat-memory 512";
    let run = compiled(&w, "true", eat).with_probe().memory("64m").run([PROGRAM]).await.expect_out_of_memory(64 << 20);
    assert_eq!(run.step, Step::Compile);
    // A child of the compiler is killed, and the compiler copes; then the program is killed by somebody else.
    let child = format!("/probe/bin eat-memory 512 || true; {COPY}");
    let run = compiled(&w, "kill -9 $$", &child).with_probe().memory("64m").run([PROGRAM]).await;
    let run = run.expect_outcome(&Outcome::Signaled { signal: 9 }).expect_limit_hit(LimitKind::Memory, true);
    assert_eq!(run.step, Step::Run);
}

async fn a_run_that_is_cancelled_while_it_compiles_ends_at_once(w: World) {
    let run = compiled(&w, "true", "sleep 30").start([PROGRAM]).await;
    run.canceller().cancel();
    let result = run.wait().await.expect("a cancelled run has a result");
    assert_eq!((result.outcome, result.step), (Outcome::Cancelled, Step::Compile));
    assert!(result.duration_ms < 5000.0);
}

async fn what_a_compiler_says_is_kept_in_bounded_memory(w: World) {
    let loud = format!("head -c 30000000 /dev/zero; head -c 30000000 /dev/zero >&2; {COPY}; exit 1");
    let run = compiled(&w, "true", &loud).run([PROGRAM]).await.expect_exit(1);
    let compile = run.compile.as_ref().expect("there is a compile step");
    assert_eq!((compile.stdout.bytes, compile.stdout.truncated), (30_000_000, true));
    assert_eq!((run.0.stderr.bytes, run.0.stderr.truncated), (60_000_000, true));
    assert!(run.0.stderr.to_bytes().len() < 2 << 20);
    assert!(PROGRAM.starts_with(PROGRAM_DIR));
}
