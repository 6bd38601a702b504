//! bash.

use super::{Session, done, driver};

fn bash() -> Session {
    Session::start("bash")
}

#[test]
fn what_a_run_sets_is_there_for_the_next() {
    let mut bash = bash();
    bash.run("cd /usr; X=5; declare -A map=([a]=b); f() { local y=$1; echo \"f $y $X\"; return 3; }; set -f")
        .expect("", 0);
    bash.run("pwd; echo $X ${map[a]} *; set +f; f z").expect("/usr\n5 b *\nf z 5\n", 3);
    bash.run("echo $?").expect("3\n", 0);
    bash.run("sleep 0.1 & echo begun").expect("begun\n", 0);
    bash.run("jobs %1 > /dev/null; wait %1; echo $?").expect("0\n", 0);
    bash.run("cat <<END\nhere $X\nEND\ncat <<< there").expect("here 5\nthere\n", 0);
    bash.run("cd; exec 5> /dev/null; trap 'echo usr1' USR1").expect("", 0);
    bash.run("echo x >&5; kill -USR1 $$; echo after").expect("usr1\nafter\n", 0);
}

#[test]
fn no_program_has_more_than_its_three_descriptors() {
    let mut bash = bash();
    // The control socket is the only one that there is.
    for (code, input) in [
        ("ls -l /proc/self/fd", "/dev/null"),
        ("(ls -l /proc/self/fd | cat); x=$(ls -l /proc/self/fd); echo \"$x\"", "/dev/null"),
        ("ls -l /proc/self/fd > /dev/stdout & wait", "/dev/null"),
        ("cat <(ls -l /proc/self/fd)", "/dev/null"),
        // It waits until it is read from, as bash forgets a coprocess that is over.
        (
            "coproc { read word; ls -l /proc/self/fd; }; exec 7<&${COPROC[0]}; echo >&${COPROC[1]}; cat <&7; exec 7<&-",
            "pipe:",
        ),
    ] {
        let seen = bash.run(code);
        assert!(seen.out.contains(&format!(" 0 -> {input}")) && !seen.out.contains("socket:"), "{code}: {seen:?}");
    }
    bash.run("read line; echo $?; cat; wc -c < /dev/stdin").expect("1\n0\n", 0);
    bash.run("exec < /etc/passwd; read line; echo ${line%%:*}").expect("root\n", 0);
    bash.run("read line; echo \"$?\"").expect("1\n", 0);
}

#[test]
fn what_is_wrong_ends_the_run_as_it_would_end_a_script() {
    let mut bash = bash();
    let seen = bash.run("echo one\necho two; )");
    seen.expect("one\n", 2);
    assert!(seen.err.contains("syntax error"), "{}", seen.err);
    let seen = bash.run("echo 'never closed");
    assert!(seen.err.contains("unexpected EOF"), "{}", seen.err);
    let seen = bash.run("nosuchprogram; echo $?");
    seen.expect("127\n", 0);
    assert_eq!(seen.err, "bash: nosuchprogram: command not found\n");
    let seen = bash.run("set -u; echo $nope; echo not reached");
    seen.expect("", 1);
    assert_eq!(seen.err, "bash: nope: unbound variable\n");
    bash.run("set +u; echo \"$nope\" ${other:?not set}; echo not reached").expect("", 1);
    bash.run("trap 'echo error $?' ERR; false; true").expect("error 1\n", 0);
    bash.run("trap - ERR; (exit 9)").expect("", 9);
    bash.run("echo alive").expect("alive\n", 0);
}

#[test]
fn the_shell_that_ends_is_dead() {
    let mut one = bash();
    let seen = one.run("trap 'echo bye' EXIT; exit 3");
    assert_eq!((seen.out.as_str(), seen.err.as_str(), seen.code), ("bye\n", "", None));
    assert_eq!(seen.died.and_then(|status| status.code()), Some(3));
    let mut two = bash();
    two.run("set -e; false || true").expect("", 0);
    let seen = two.run("echo a; false; echo not reached");
    assert_eq!((seen.out.as_str(), seen.died.and_then(|status| status.code())), ("a\n", Some(1)));
    let mut three = bash();
    let seen = three.run("exec sh -c 'echo replaced; exit 4'");
    assert_eq!((seen.out.as_str(), seen.died.and_then(|status| status.code())), ("replaced\n", Some(4)));
}

#[test]
fn code_that_hides_what_the_driver_uses_ends_the_shell_and_nothing_hangs() {
    for code in [
        "builtin() { :; }",
        "builtin() { :; }; exit() { :; }; unset() { :; }",
        "readonly -f builtin 2>/dev/null; builtin() { :; }; readonly -f builtin",
        "enable -n builtin",
        "enable -n printf",
        "enable -n eval",
    ] {
        let seen = bash().run(code);
        assert_eq!(seen.died.and_then(|status| status.code()), Some(125), "{code}: {seen:?}");
    }
    // What it does not use, or reaches by `builtin`, may be anything.
    let mut bash = bash();
    let functions = ["printf", "eval", "set", "return", "unset", "exit", "echo", "cd", "read", "local", "test", ":"];
    for name in functions {
        bash.run(&format!("{name}() {{ builtin echo mine; }}")).expect("", 0);
        bash.run(&format!("{name} x")).expect("mine\n", 0);
    }
    bash.run("shopt -s expand_aliases; alias builtin=: printf=:").expect("", 0);
    bash.run("command echo here").expect("here\n", 0);
}

#[test]
fn an_interrupt_goes_back_to_the_top_from_wherever_the_shell_is() {
    let mut bash = bash();
    bash.run(
        "x=kept; deep() { if [ $1 = 0 ]; then echo go >&2; while true; do sleep 1; done; else deep $(($1 - 1)); fi; }",
    );
    bash.run("program() { sh -c 'echo go >&2; exec sleep 100'; }");
    for code in [
        "echo go >&2; while true; do sleep 1; done; echo no",
        "echo go >&2; while :; do :; done; echo no",
        "deep 5; echo no",
        "program; echo no",
        "for i in 1 2 3; do (program); done; echo no",
        "y=$(program); echo no",
        "sh -c 'echo; exec sleep 100' | sh -c 'read line; echo go >&2; exec cat'; echo no",
        "eval 'eval program'; echo no",
    ] {
        let seen = bash.interrupt(code, "go\n");
        assert_eq!((seen.out.as_str(), seen.code), ("", Some(130)), "{code}: {seen:?}");
        bash.run("echo $? $x").expect("130 kept\n", 0);
    }
    let _ = rustix::process::kill_process_group(bash.group(), rustix::process::Signal::INT);
    bash.run("echo $x").expect("kept\n", 0);
}

/// A program that is about to begin does not see an interrupt, and then bash goes on; the session must be there after it.
#[test]
fn an_interrupt_at_any_moment_leaves_a_session_that_goes_on() {
    let mut bash = bash();
    bash.run("x=kept");
    for code in ["echo go >&2; sleep 100", "echo go >&2; sleep 100 | cat", "echo go >&2", "echo go >&2; y=$(sleep 100)"]
    {
        for _ in 0..5 {
            let seen = bash.interrupt(code, "go\n");
            assert!(matches!(seen.code, Some(0 | 130)), "{code}: {seen:?}");
            bash.run("echo $x").expect("kept\n", 0);
        }
    }
}

#[test]
fn any_code_is_taken_as_it_is() {
    let mut bash = bash();
    bash.run("echo 'it'\"'\"'s' \\\\n $'a\\tb' ä\u{1f600} \"!x\" '\r'").expect("it's \\n a\tb ä\u{1f600} !x \r\n", 0);
    let long = format!("x='{}'\necho ${{#x}}", "line\n".repeat(200_000));
    bash.run(&long).expect("1000000\n", 0);
    let error = driver("bash").expect("there").run("echo \0", &[], None, "t").expect_err("no shell takes NUL");
    assert_eq!(error.code, glovebox_core::ErrorCode::InvalidValue);
    let error = driver("bash").expect("there").run("", &[("a-b".into(), "1".into())], None, "t").expect_err("no name");
    assert_eq!(error.code, glovebox_core::ErrorCode::InvalidEnvironment);
    bash.send("echo \"$A\"; pwd", &[("A".into(), "b 'c'\n$d".into())], Some("/usr/bin"));
    bash.follow(&done()).expect("b 'c'\n$d\n/usr/bin\n", 0);
    bash.run("sh -c 'echo \"$A\"'; pwd").expect("b 'c'\n$d\n/usr/bin\n", 0);
    bash.send("echo not reached", &[], Some("/nonexistent"));
    let seen = bash.follow(&done());
    seen.expect("", 1);
    assert_eq!(seen.err, "bash: cd: /nonexistent: No such file or directory\n");
}

#[test]
fn tracing_shows_the_users_commands_only() {
    let mut bash = bash();
    let seen = bash.run("set -x; echo a");
    assert_eq!((seen.out.as_str(), seen.err.trim_start_matches('+')), ("a\n", " echo a\n"));
    let seen = bash.run("echo b");
    assert_eq!((seen.out.as_str(), seen.err.trim_start_matches('+')), ("b\n", " echo b\n"));
    bash.run("set +x");
    assert_eq!(bash.run("set -v; PS1='prompt> ' PS2='more> ' PROMPT_COMMAND='echo prompt'").err, "");
    let seen = bash.run("echo c");
    assert_eq!((seen.out.as_str(), seen.err.as_str()), ("c\n", ""));
}
