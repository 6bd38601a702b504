//! Sessions: interpreters that stay, and what becomes of the runs in them.

use std::time::{Duration, Instant};

use glovebox_core::{
    Command, EnvName, ErrorCode, InsidePath, Outcome, ResultKind, RunId, Secret, SessionName, WORKING_DIR,
};
use glovebox_engine::{Event, NewSandbox, Run, RunRequest, Sandbox, Stdin};

use super::living;
use crate::{World, case::cases, finished::Finished, reading::read_until};

cases!["sessions":
    what_a_run_defines_is_there_for_the_next,
    the_value_of_the_last_expression_is_shown_and_what_is_displayed_too,
    an_exception_is_told_with_its_name_message_and_line,
    a_figure_comes_back_as_a_picture_and_as_numbers file("/usr/lib/python3/dist-packages/matplotlib"),
    a_table_comes_back_as_text_html_and_data file("/usr/lib/python3/dist-packages/pandas"),
    a_node_session_remembers program("node"),
    a_bash_session_keeps_folder_variables_and_functions,
    sessions_are_apart_from_each_other,
    output_comes_as_it_appears_and_before_what_is_shown_after_it,
    runs_of_one_session_take_turns,
    a_run_that_waits_for_its_turn_can_be_given_up,
    a_run_that_waits_for_its_turn_can_be_cancelled_and_the_others_go_on,
    whoever_waits_longer_than_its_time_is_told_that_the_session_is_busy,
    a_run_in_a_session_of_another_language_is_refused,
    variables_and_folder_stay_and_secrets_are_masked,
    what_a_session_shows_comes_whole_however_large,
    code_may_be_longer_than_a_window_of_the_channel,
    others_can_follow_a_run_in_a_session,
    what_a_session_used_before_is_not_the_next_runs needs(run_groups),
    no_more_sessions_than_there_may_be,
    a_session_needs_a_sandbox_that_stays,
];

pub(super) fn name(text: &str) -> SessionName {
    SessionName::parse(text).expect("the case names a session")
}

pub(super) fn request(session: &str, language: &str, code: &str) -> RunRequest {
    RunRequest::in_session(name(session), language, code).expect("there are sessions in this language")
}

pub(super) async fn start(sandbox: &Sandbox, request: RunRequest) -> Run {
    sandbox.start(request).await.unwrap_or_else(|error| panic!("{}: {error}", error.code))
}

pub(super) async fn python(sandbox: &Sandbox, code: &str) -> Finished {
    finish(start(sandbox, request("main", "python", code)).await).await
}

pub(super) async fn finish(run: Run) -> Finished {
    Finished(run.wait().await.unwrap_or_else(|error| panic!("{}: {error}", error.code)))
}

/// What a run shows as plain text.
fn shown(run: &Finished) -> Vec<&str> {
    let results = run.results.iter().flatten();
    results.filter(|shown| shown.mime == "text/plain").filter_map(|shown| shown.text.as_deref()).collect()
}

/// Expects that a run says whether state was lost before it.
#[track_caller]
pub(super) fn expect_lost(run: &Finished, lost: bool) {
    let session = run.session.as_ref().expect("it was in a session");
    assert_eq!(session.state_lost, lost, "{:?}\n{}", run.warnings, run.story());
    let warned = run.warnings.iter().any(|warning| warning.code == "session_lost" && warning.message.contains("anew"));
    assert_eq!(warned, lost, "{:?}", run.warnings);
}

pub(super) async fn destroy(sandbox: Sandbox) {
    sandbox.destroy().await.expect("the sandbox can be destroyed");
}

async fn what_a_run_defines_is_there_for_the_next(w: World) {
    let sandbox = w.sandbox().create().await;
    let first = python(&sandbox, "x = 1\ndef double(n):\n    return 2 * n\n").await.expect_exit(0);
    let session = first.session.clone().expect("it was in a session");
    assert_eq!((session.name.as_str(), session.new, session.alive, session.number), ("main", true, true, 1));
    expect_lost(&first, false);
    let second = python(&sandbox, "print(double(x))").await.expect_exit(0).expect_out("2\n");
    let session = second.session.clone().expect("it was in a session");
    assert_eq!((session.new, session.number), (false, 2));
    destroy(sandbox).await;
}

async fn the_value_of_the_last_expression_is_shown_and_what_is_displayed_too(w: World) {
    let sandbox = w.sandbox().create().await;
    let run = python(&sandbox, "display('seen')\n6 * 7").await.expect_exit(0).expect_out("");
    assert_eq!(shown(&run), ["'seen'", "42"]);
    let kinds: Vec<_> = run.results.iter().flatten().map(|shown| (shown.value, shown.kind)).collect();
    assert_eq!(kinds, [(0, ResultKind::Display), (1, ResultKind::Value)]);
    let nothing = python(&sandbox, "None").await.expect_exit(0);
    assert_eq!(nothing.results.as_deref(), Some(&[][..]), "a session always says what it shows");
    let code = "class Table:\n    def _repr_html_(self):\n        return '<b>1</b>'\nTable()";
    let run = python(&sandbox, code).await.expect_exit(0);
    let html = run.results.iter().flatten().find(|shown| shown.mime == "text/html").expect("it has a form in HTML");
    assert_eq!(html.text.as_deref(), Some("<b>1</b>"));
    destroy(sandbox).await;
}

async fn an_exception_is_told_with_its_name_message_and_line(w: World) {
    let sandbox = w.sandbox().create().await;
    let run = python(&sandbox, "def f():\n    raise ValueError('not so')\nf()").await.expect_exit(1);
    let exception = run.exception.clone().expect("it failed");
    assert_eq!((exception.name.as_str(), exception.message.as_str()), ("ValueError", "not so"));
    assert!(exception.traceback.contains("raise ValueError('not so')"), "{}", exception.traceback);
    assert!(exception.traceback.contains("line 2"), "{}", exception.traceback);
    assert!(run.err().contains("ValueError: not so"), "{}", run.story());
    python(&sandbox, "print('alive')").await.expect_exit(0).expect_out("alive\n");
    destroy(sandbox).await;
}

async fn a_figure_comes_back_as_a_picture_and_as_numbers(w: World) {
    let sandbox = w.sandbox().create().await;
    let code = "import matplotlib.pyplot as plt\nplt.bar(['a', 'b'], [1, 2], label='sold')\nplt.title('Sales')\nplt.ylabel('EUR');";
    let run = python(&sandbox, code).await.expect_exit(0);
    let find = |mime: &str| run.results.iter().flatten().find(|shown| shown.mime == mime);
    let picture = find("image/png").unwrap_or_else(|| panic!("no picture\n{}", run.story()));
    assert!(picture.to_bytes().starts_with(b"\x89PNG\r\n\x1a\n"));
    let chart = find("application/vnd.glovebox.chart+json").and_then(|shown| shown.text.as_deref());
    let chart = chart.unwrap_or_else(|| panic!("no numbers\n{}", run.story()));
    for part in ["bar", "Sales", "EUR", "sold"] {
        assert!(chart.contains(part), "{part}: {chart}");
    }
    // Figures are closed, so that none comes back twice.
    let next = python(&sandbox, "plt.get_fignums()").await.expect_exit(0);
    assert_eq!(shown(&next), ["[]"]);
    destroy(sandbox).await;
}

async fn a_table_comes_back_as_text_html_and_data(w: World) {
    let sandbox = w.sandbox().create().await;
    let run = python(&sandbox, "import pandas\npandas.DataFrame({'a': [1, 2], 'b': ['x', 'y']})").await.expect_exit(0);
    let find = |mime: &str| run.results.iter().flatten().find(|shown| shown.mime == mime);
    let text = |mime: &str| find(mime).and_then(|shown| shown.text.clone()).unwrap_or_default();
    assert!(text("text/plain").contains("1  x"), "{}", text("text/plain"));
    assert!(text("text/html").contains("<td>x</td>"), "{}", text("text/html"));
    let data: serde_json::Value = serde_json::from_str(&text("application/json")).expect("it is JSON");
    assert_eq!(data["data"], serde_json::json!([[1, "x"], [2, "y"]]));
    destroy(sandbox).await;
}

async fn a_node_session_remembers(w: World) {
    let sandbox = w.sandbox().create().await;
    let node = async |code: &str| finish(start(&sandbox, request("js", "javascript", code)).await).await;
    node("const x = 20; function double(n) { return 2 * n }").await.expect_exit(0);
    let run = node("console.log('out'); await Promise.resolve(double(x) + 2)").await.expect_exit(0).expect_out("out\n");
    assert_eq!(shown(&run), ["42"]);
    let run = node("null.x").await.expect_exit(1);
    assert_eq!(run.exception.as_ref().map(|exception| exception.name.as_str()), Some("TypeError"), "{}", run.story());
    destroy(sandbox).await;
}

async fn a_bash_session_keeps_folder_variables_and_functions(w: World) {
    let sandbox = w.sandbox().create().await;
    let bash = async |code: &str| finish(start(&sandbox, request("sh", "bash", code)).await).await;
    let first = bash("mkdir -p a; cd a; X=5; greet() { echo \"hello $1\"; }").await.expect_exit(0);
    let expected = format!("{}/a\n5\nhello you\n", first.command.cwd);
    bash("pwd; echo $X; greet you").await.expect_exit(0).expect_out(&expected);
    bash("false").await.expect_exit(1);
    // No program that the code starts has a descriptor besides the usual three.
    let open = "import os\nfor fd in range(1024):\n    try: os.fstat(fd)\n    except OSError: continue\n    print(fd)";
    bash(&format!("python3 -c '{open}'")).await.expect_exit(0).expect_out("0\n1\n2\n");
    let run = bash("exit 7").await.expect_exit(7);
    assert!(run.session.as_ref().is_some_and(|session| !session.alive), "{}", run.story());
    destroy(sandbox).await;
}

async fn sessions_are_apart_from_each_other(w: World) {
    let sandbox = w.sandbox().create().await;
    let (first, second) = (request("one", "python", "x = 1"), request("two", "python", "x = 2"));
    finish(start(&sandbox, first).await).await.expect_exit(0);
    finish(start(&sandbox, second).await).await.expect_exit(0);
    let run = finish(start(&sandbox, request("one", "python", "x")).await).await;
    assert_eq!(shown(&run), ["1"]);
    let mut names: Vec<_> = sandbox.sessions().await.expect("they can be listed").into_iter().map(|s| s.name).collect();
    names.sort();
    assert_eq!(names, ["one", "two"]);
    // One that is busy does not hold up the other.
    let long = start(&sandbox, request("one", "python", "import time\nwhile True: time.sleep(1)")).await;
    finish(start(&sandbox, request("two", "python", "print(x)")).await).await.expect_out("2\n");
    long.cancel();
    finish(long).await.expect_outcome(&Outcome::Cancelled);
    destroy(sandbox).await;
}

async fn output_comes_as_it_appears_and_before_what_is_shown_after_it(w: World) {
    let sandbox = w.sandbox().create().await;
    let code =
        "import os, time\nprint('one')\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('two')\ndisplay(3)";
    let mut run = start(&sandbox, request("main", "python", code)).await;
    read_until(&mut run, "one\n").await;
    living::run(&sandbox, "touch go").await.expect_exit(0);
    let mut seen = Vec::new();
    while let Some(event) = run.next_event().await {
        match event {
            Event::Stdout(bytes) => seen.push(String::from_utf8_lossy(&bytes).trim().to_owned()),
            Event::Result(shown) => seen.push(String::from_utf8_lossy(&shown.bytes).into_owned()),
            _ => {}
        }
    }
    assert_eq!(seen.join(" "), "two 3");
    finish(run).await.expect_exit(0);
    destroy(sandbox).await;
}

async fn runs_of_one_session_take_turns(w: World) {
    let sandbox = w.sandbox().create().await;
    python(&sandbox, "n = 0").await.expect_exit(0);
    let code = "m = n\nimport time\ntime.sleep(0.01)\nn = m + 1";
    let all = (0..20).map(|_| async { finish(start(&sandbox, request("main", "python", code)).await).await });
    for run in futures_join(all).await {
        run.expect_exit(0);
    }
    python(&sandbox, "print(n)").await.expect_out("20\n");
    destroy(sandbox).await;
}

/// Waits for all of them at once.
async fn futures_join<T>(all: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<_> = all.into_iter().map(Box::pin).collect();
    let mut done = Vec::new();
    std::future::poll_fn(|cx| {
        waiting.retain_mut(|future| match future.as_mut().poll(cx) {
            std::task::Poll::Ready(value) => {
                done.push(value);
                false
            }
            std::task::Poll::Pending => true,
        });
        if waiting.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done
}

async fn a_run_that_waits_for_its_turn_can_be_given_up(w: World) {
    let sandbox = w.sandbox().create().await;
    let mut long =
        start(&sandbox, request("main", "python", "n = 1\nprint('on', flush=True)\nimport time\ntime.sleep(60)")).await;
    read_until(&mut long, "on\n").await;
    let waiting = sandbox.start(request("main", "python", "n = 2"));
    assert!(tokio::time::timeout(Duration::from_millis(200), waiting).await.is_err(), "the session is busy");
    sandbox.interrupt_session(&name("main")).await.expect("it can be interrupted");
    finish(long).await.expect_exit(130);
    python(&sandbox, "print(n)").await.expect_out("1\n");
    destroy(sandbox).await;
}

/// The runs that wait for their turn, once there are as many.
async fn waiting(sandbox: &Sandbox, count: usize) -> Vec<RunId> {
    let began = Instant::now();
    loop {
        let known = sandbox.runs().await.expect("they can be listed");
        let waiting: Vec<RunId> = known.iter().filter(|known| known.waiting).map(|known| known.run).collect();
        if waiting.len() == count {
            return waiting;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{known:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn a_run_that_waits_for_its_turn_can_be_cancelled_and_the_others_go_on(w: World) {
    let sandbox = w.sandbox().create().await;
    let busy = "n = [1]\nprint('on', flush=True)\nwhile True: pass";
    let mut busy = start(&sandbox, request("main", "python", busy)).await;
    read_until(&mut busy, "on\n").await;
    let first = python(&sandbox, "open('first', 'w'); n.append(2)");
    let rest = async {
        let run = waiting(&sandbox, 1).await[0];
        let cancelling = async {
            let both = waiting(&sandbox, 2).await;
            assert_eq!(both[0], run);
            assert_eq!(sandbox.sessions().await.expect("they can be listed")[0].waiting, both);
            // Whoever looks on is told as well. What is no end for a run that waits leaves it alone.
            let watcher = sandbox.attach(run, Stdin::Empty).await.expect("it can be attached to");
            sandbox.signal(run, 10).await.expect("it can be sent");
            assert_eq!(waiting(&sandbox, 2).await, both);
            sandbox.cancel(run).await.expect("it can be cancelled");
            finish(watcher).await.expect_outcome(&Outcome::Cancelled);
            assert_eq!(waiting(&sandbox, 1).await, both[1..]);
            assert_eq!(sandbox.sessions().await.expect("they can be listed")[0].busy, Some(busy.id()));
            sandbox.interrupt_session(&name("main")).await.expect("it can be interrupted");
            finish(busy).await.expect_exit(130);
        };
        tokio::join!(python(&sandbox, "n.append(3); print(n)"), cancelling).0
    };
    let (first, second) = tokio::join!(first, rest);
    let first = first.expect_outcome(&Outcome::Cancelled).expect_out("");
    assert!(first.changes.added.is_empty() && first.usage.cpu_ms == 0.0, "{}", first.story());
    expect_lost(&first, false);
    // What was kept of the session is there, and nothing of the one that waited ran.
    let second = second.expect_exit(0).expect_out("[1, 3]\n");
    assert_eq!(second.session.as_ref().map(|session| session.number), Some(2));
    living::run(&sandbox, "test ! -e first").await.expect_exit(0);
    destroy(sandbox).await;
}

async fn whoever_waits_longer_than_its_time_is_told_that_the_session_is_busy(w: World) {
    let sandbox = w.sandbox().create().await;
    let mut long = start(&sandbox, request("main", "python", "print('on', flush=True)\nwhile True: pass")).await;
    read_until(&mut long, "on\n").await;
    let mut second = request("main", "python", "1");
    second.spec.limits.timeout = Duration::from_millis(200);
    let error = sandbox.start(second).await.err().expect("it is busy");
    assert_eq!(error.code, ErrorCode::SessionBusy, "{error}");
    waiting(&sandbox, 0).await;
    long.cancel();
    finish(long).await.expect_outcome(&Outcome::Cancelled);
    destroy(sandbox).await;
}

async fn a_run_in_a_session_of_another_language_is_refused(w: World) {
    let sandbox = w.sandbox().create().await;
    python(&sandbox, "x = 1").await.expect_exit(0);
    let error = sandbox.start(request("main", "bash", "true")).await.err().expect("it is one in Python");
    assert_eq!(error.code, ErrorCode::WrongState, "{error}");
    let error = RunRequest::in_session(name("main"), "sql", "select 1").expect_err("there are none in SQL");
    assert_eq!(error.code, ErrorCode::NotSupported);
    assert!(error.hint.as_deref().is_some_and(|hint| hint.contains("python")), "{error:?}");
    destroy(sandbox).await;
}

async fn variables_and_folder_stay_and_secrets_are_masked(w: World) {
    let sandbox = w.sandbox().create().await;
    living::run(&sandbox, "mkdir sub").await.expect_exit(0);
    for (language, code, again) in [
        (
            "python",
            "import os; print(os.environ['A'], os.environ['TOKEN'], os.getcwd())",
            "print(os.environ['A'], os.getcwd())",
        ),
        ("bash", "echo $A $TOKEN $PWD", "echo $A $PWD; sh -c 'test \"$A\" = 1'"),
    ] {
        // Begun before, so that neither is there from its start.
        let begun = finish(start(&sandbox, request(language, language, "")).await).await.expect_exit(0);
        let mut run = request(language, language, code);
        run.command.env.insert(EnvName::parse("A").expect("a name"), "1".to_owned());
        run.command.secrets.insert(EnvName::parse("TOKEN").expect("a name"), Secret::new("hunter2"));
        let session = run.session.as_mut().expect("it is in a session");
        session.workdir = Some(InsidePath::absolute(&format!("{WORKING_DIR}/sub")).expect("a path"));
        let out = format!("1 [redacted] {}/sub\n", begun.command.cwd);
        finish(start(&sandbox, run).await).await.expect_exit(0).expect_out(&out);
        let out = format!("1 {}/sub\n", begun.command.cwd);
        finish(start(&sandbox, request(language, language, again)).await).await.expect_exit(0).expect_out(&out);
    }
    let mut run = request("python", "python", "display(os.environ['TOKEN'])\nraise ValueError(os.environ['TOKEN'])");
    run.command.secrets.insert(EnvName::parse("TOKEN").expect("a name"), Secret::new("hunter2"));
    let run = finish(start(&sandbox, run).await).await.expect_exit(1);
    let document = serde_json::to_string(&*run).expect("it can be written");
    assert!(!document.contains("hunter2"), "{document}");
    destroy(sandbox).await;
}

async fn code_may_be_longer_than_a_window_of_the_channel(w: World) {
    let sandbox = w.sandbox().create().await;
    let long = format!("x = '{}'\nprint(len(x))", "y".repeat(600 << 10));
    python(&sandbox, &long).await.expect_exit(0).expect_out(&format!("{}\n", 600 << 10));
    let error = sandbox.start(request("main", "python", &"y".repeat(700 << 10))).await.err().expect("it is too long");
    assert_eq!(error.code, ErrorCode::InvalidValue, "{error}");
    // Arguments of a command may be long, and those that are too long are refused and not waited for.
    let request = |words: usize| {
        let words = (0..words).map(|_| "z".repeat(60 << 10));
        let argv = ["/bin/sh", "-c", "echo $#", "sh"].map(str::to_owned).into_iter().chain(words);
        RunRequest::new(Command::argv(argv).expect("a command"))
    };
    Finished(sandbox.run(request(3)).await.expect("it runs")).expect_exit(0).expect_out("3\n");
    let error = sandbox.run(request(4)).await.expect_err("it is too long");
    assert_eq!(error.code, ErrorCode::InvalidValue, "{error}");
    destroy(sandbox).await;
}

async fn what_a_session_shows_comes_whole_however_large(w: World) {
    let sandbox = w.sandbox().create().await;
    let code = "class Picture:\n    def __init__(self, n): self.n = n\n    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n' + bytes(range(256)) * self.n\n    def __repr__(self): return 'p'\nfor n in [1, 20000]: display(Picture(n))";
    let run = python(&sandbox, code).await.expect_exit(0);
    let pictures: Vec<_> = run.results.iter().flatten().filter(|shown| shown.mime == "image/png").collect();
    let lengths: Vec<u64> = pictures.iter().map(|shown| shown.bytes).collect();
    assert_eq!(lengths, [8 + 256, 8 + 256 * 20_000]);
    assert!(
        pictures[1].to_bytes()[8..]
            .chunks(256)
            .all(|part| part.iter().enumerate().all(|(at, &byte)| at == byte as usize))
    );
    destroy(sandbox).await;
}

async fn others_can_follow_a_run_in_a_session(w: World) {
    let sandbox = w.sandbox().create().await;
    let code = "import os, time\nprint('one', flush=True)\ndisplay(1)\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('two')\n2";
    let mut first = start(&sandbox, request("main", "python", code)).await;
    read_until(&mut first, "one\n").await;
    let second = sandbox.attach(first.id(), Stdin::Empty).await.expect("it can be attached to");
    living::run(&sandbox, "touch go").await.expect_exit(0);
    let (first, second) = tokio::join!(finish(first), finish(second));
    for run in [first, second] {
        let run = run.expect_exit(0).expect_out("one\ntwo\n");
        assert_eq!(shown(&run), ["1", "2"], "{}", run.story());
    }
    destroy(sandbox).await;
}

async fn what_a_session_used_before_is_not_the_next_runs(w: World) {
    let sandbox = living::create(&w, NewSandbox::default()).await;
    let id = sandbox.id();
    let burn = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass";
    let first = python(&sandbox, burn).await.expect_exit(0);
    assert!(first.usage.cpu_ms > 400.0, "{:?}", first.usage);
    let second = python(&sandbox, "1").await.expect_exit(0);
    assert!(second.usage.cpu_ms < 200.0, "{:?}", second.usage);
    drop(sandbox);
    living::destroy(&w, id).await;
}

async fn no_more_sessions_than_there_may_be(w: World) {
    let sandbox = w.sandbox().pids(400).create().await;
    for number in 0..64 {
        finish(start(&sandbox, request(&format!("s{number}"), "bash", "true")).await).await.expect_exit(0);
    }
    let error = sandbox.start(request("more", "bash", "true")).await.err().expect("there are enough");
    assert_eq!(error.code, ErrorCode::TooMany, "{error}");
    sandbox.close_session(&name("s0")).await.expect("it can be closed");
    finish(start(&sandbox, request("more", "bash", "true")).await).await.expect_exit(0);
    destroy(sandbox).await;
}

async fn a_session_needs_a_sandbox_that_stays(w: World) {
    let error = w.engine().run(request("main", "python", "1")).await.expect_err("it would be gone at once");
    assert_eq!(error.code, ErrorCode::Usage);
    // A sandbox that nobody could start an interpreter in says which one is missing.
    let sandbox = w.sandbox().create().await;
    let mut run = request("main", "python", "1");
    run.command.env.insert(EnvName::parse("PATH").expect("a name"), "/nowhere".to_owned());
    let error = sandbox.start(run).await.err().expect("there is no interpreter");
    assert_eq!(error.code, ErrorCode::CommandNotFound, "{error}");
    assert!(sandbox.sessions().await.expect("they can be listed").is_empty());
    destroy(sandbox).await;
}
