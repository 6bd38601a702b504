//! Terminals that are left and found again, shared, closed and filled, in windows of tmux.

use std::{process::Command, time::Instant};

use crate::{
    Bench,
    living::Living,
    tmux::{LOOK_AGAIN, PATIENCE, Window, fresh, run},
};

#[test]
fn a_terminal_can_be_left_and_found_again_with_its_screen() {
    let bench = Bench::new();
    let _living = Living::new(&bench, &["--name", "box"]);
    let window = Window::new(&bench);
    window.line("glovebox shell box");
    let screen = window.shows("ctrl-] d leaves this terminal");
    assert!(screen.contains("glovebox: "));
    window.prompt("box:");
    window.line(r"clear; printf '\033[38;2;9;8;7mkept\033[m\n'; n=41");
    window.shows("kept");
    window.keys(&["C-]"]);
    window.types("d");
    let screen = window.shows("the run goes on: glovebox attach run_");
    assert!(screen.contains("kept"));
    window.line("clear");
    window.line("glovebox attach");
    window.shows("kept");
    window.prompt("box:");
    assert!(window.tmux(&["capture-pane", "-p", "-e"]).contains("\u{1b}[38;2;9;8;7mkept"));
    // The first key twice is that key, and what runs is what ran.
    window.line("clear; echo up-$n; cat -v");
    window.shows("up-41\n");
    window.keys(&["C-]", "C-]", "Enter", "C-d"]);
    window.shows("^]");
    window.line("vim -u NONE");
    window.shows("~");
    window.types("iseen");
    window.keys(&["C-]"]);
    window.types("d");
    window.shows("the run goes on");
    window.tmux(&["resize-window", "-x", "66", "-y", "22"]);
    window.line("clear; glovebox attach");
    window.until("seen", |screen| screen.starts_with("seen"));
    window.until("22 rows", |screen| screen.lines().nth(20).is_some_and(|line| line.starts_with('~')));
    window.keys(&["Escape"]);
    window.types(":q!");
    window.keys(&["Enter"]);
    window.prompt("box:");
    window.line("stty size; exit $((n+1))");
    window.shows("22 66");
    window.ended_with(42);
    window.is_clean();
}

#[test]
fn several_may_be_at_one_terminal_and_several_terminals_in_one_sandbox() {
    let bench = Bench::new();
    let _living = Living::new(&bench, &["--name", "box"]);
    let (first, beside) = (Window::new(&bench), Bench::new());
    first.line("glovebox shell box");
    first.prompt("box:");
    let second = window_beside(&beside, &bench);
    second.line("glovebox attach");
    second.prompt("box:");
    second.line("echo from-second-$((1+1))");
    first.shows("from-second-2");
    first.line("echo from-first-$((1+1))");
    second.shows("from-first-2");
    // The size is that of the one who typed last.
    second.tmux(&["resize-window", "-x", "60", "-y", "20"]);
    second.line("stty size");
    second.shows("20 60");
    first.line("stty size");
    first.shows("30 100");
    second.keys(&["C-]"]);
    second.types("d");
    second.shows("the run goes on");
    second.line("glovebox shell box");
    second.prompt("box:");
    second.line("tty");
    second.shows("/dev/pts/1");
    second.line("exit 6");
    second.ended_with(6);
    // Both hear the end of the one that they share.
    second.line("clear; glovebox attach");
    second.prompt("box:");
    first.line("exit 5");
    first.ended_with(5);
    second.ended_with(5);
}

/// A window of another tmux that works with the same sandboxes.
fn window_beside<'a>(own: &'a Bench, with: &Bench) -> Window<'a> {
    let window = Window::new(own);
    window.line(&format!("export GLOVEBOX_DATA_DIR={}; clear", with.data().display()));
    window.until("host$", |screen| screen.trim() == "host$");
    window
}

#[test]
fn a_window_that_is_closed_leaves_the_shell_of_a_sandbox_that_stays_and_ends_that_of_a_fresh_one() {
    let bench = Bench::new();
    let living = Living::new(&bench, &["--name", "box"]);
    let window = Window::new(&bench);
    window.line("glovebox shell box");
    window.prompt("box:");
    window.line("echo still-$((40+2))");
    window.shows("still-42");
    drop(window);
    let running =
        |bench: &Bench| bench.call(["runs", "list", "--json", "--outcome", "running"]).document()["runs"].clone();
    assert_eq!(running(&bench).as_array().expect("a list").len(), 1);
    let window = Window::new(&bench);
    window.line("glovebox attach");
    window.shows("still-42");
    // The same when it is killed outright.
    run(&format!("pkill -KILL -P {} glovebox", window.says("#{pane_pid}")));
    window.line("reset; clear");
    assert_eq!(living.exec(&["--", "pgrep", "-c", "bash"]).text(), "1\n");
    window.line("glovebox attach");
    window.prompt("box:");
    window.line("exit 4");
    window.ended_with(4);
    drop(window);
    let window = fresh(&bench);
    drop(window);
    let deadline = Instant::now() + PATIENCE;
    while !running(&bench).as_array().expect("a list").is_empty() {
        assert!(Instant::now() < deadline, "the shell of a fresh sandbox goes on: {}", running(&bench));
        std::thread::sleep(LOOK_AGAIN);
    }
}

#[test]
fn a_terminal_in_the_background_waits_for_whoever_comes() {
    let bench = Bench::new();
    let living = Living::new(&bench, &[]);
    let called = bench.call(["exec", "-t", "--detach", &living.id, "--", "bash", "--norc"]);
    assert_eq!(called.code, 0, "{called:?}");
    let window = Window::new(&bench);
    window.line(&format!("glovebox attach {}", called.text().trim()));
    window.until("bash", |screen| screen.trim_end().ends_with('$') && !screen.trim_end().ends_with("host$"));
    window.line("stty size; exit 6");
    window.shows("30 100");
    window.ended_with(6);
}

#[test]
fn a_large_paste_arrives_whole_and_a_program_that_does_not_read_does_not_keep_anybody() {
    let bench = Bench::new();
    let window = fresh(&bench);
    window.line("stty -icanon -echo; echo up-$((40+2)); head -c 100000 | md5sum");
    window.shows("up-42");
    let paste: String = (0..20_000).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
    for _ in 0..5 {
        bench.write("paste", &paste);
        window.tmux(&["load-buffer", &bench.work().join("paste").display().to_string()]);
        window.tmux(&["paste-buffer"]);
    }
    let line = "for i in 1 2 3 4 5; do cat paste; done | md5sum";
    let output = Command::new("sh").args(["-c", line]).current_dir(bench.work()).output().expect("md5sum runs");
    let sum = String::from_utf8(output.stdout).expect("text");
    window.shows(sum.split_whitespace().next().expect("a sum"));
    window.line("stty sane; echo up-$((40+3)); sleep 1000");
    window.shows("up-43");
    for _ in 0..5 {
        window.tmux(&["paste-buffer"]);
    }
    run(&format!("pkill -TERM -P {} glovebox", window.says("#{pane_pid}")));
    window.until("host$", |screen| screen.trim_end().ends_with("host$"));
}
