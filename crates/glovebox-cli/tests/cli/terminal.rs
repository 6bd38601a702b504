//! Runs with a terminal, on a real pseudo-terminal.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::Child,
};

use rustix::{
    fs::{Mode, OFlags, open},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};

use crate::{Bench, living::Living};

/// A terminal with `glovebox` on it.
struct Screen {
    master: File,
    child: Child,
    seen: String,
}

impl Screen {
    fn new(bench: &Bench, args: &[&str]) -> Self {
        let (master, line) = open_terminal(33, 99);
        // Only glovebox holds the line afterwards, so that its end is the end of what the screen shows.
        let end = || line.try_clone().unwrap();
        let child = bench.glovebox(args).stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        Screen { master, child, seen: String::new() }
    }

    fn type_in(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Reads until the screen shows `text`; what follows it stays for the next call.
    fn expect(&mut self, text: &str) {
        let mut buffer = [0; 1024];
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            let count = self.master.read(&mut buffer).unwrap_or(0);
            assert!(count > 0, "the screen ended before {text:?}: {:?}", self.seen);
            self.seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    }

    /// Reads what the screen still shows until its program is gone.
    fn rest(&mut self) -> String {
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = self.master.read(&mut buffer) {
            self.seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        std::mem::take(&mut self.seen)
    }

    fn echoes(&self) -> bool {
        tcgetattr(&self.master).unwrap().local_modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }
}

/// Both ends of a new terminal: the screen and keyboard, and the line that a program has.
pub(crate) fn open_terminal(rows: u16, columns: u16) -> (File, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let line = open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    tcsetwinsize(&line, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    (File::from(master), line)
}

#[test]
fn a_shell_on_a_terminal_has_its_size_and_its_keys() {
    let bench = Bench::new();
    let mut screen = Screen::new(&bench, &["run", "-t", "--", "bash", "--norc"]);
    screen.type_in("stty size; tty; echo mark$((40+2))\n");
    screen.expect("33 99");
    screen.expect("mark42");
    screen.type_in("exit 5\n");
    assert_eq!(screen.child.wait().unwrap().code(), Some(5));
    assert!(screen.echoes(), "raw mode was left on");
}

#[test]
fn ctrl_c_goes_to_the_program_and_not_to_glovebox() {
    let bench = Bench::new();
    let mut screen = Screen::new(
        &bench,
        &[
            "run",
            "-t",
            "--",
            "bash",
            "--norc",
            "-c",
            "trap 'echo caught; exit 9' INT; echo up; while :; do read x; done",
        ],
    );
    screen.expect("up");
    screen.type_in("\u{3}");
    screen.expect("caught");
    assert_eq!(screen.child.wait().unwrap().code(), Some(9));
}

#[test]
fn a_new_size_reaches_the_program() {
    let bench = Bench::new();
    let mut screen = Screen::new(
        &bench,
        &[
            "run",
            "-t",
            "--",
            "bash",
            "--norc",
            "-c",
            "trap 'stty size; exit' WINCH; echo up; while :; do read -t 1 x; done",
        ],
    );
    screen.expect("up");
    tcsetwinsize(&screen.master, Winsize { ws_row: 20, ws_col: 50, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    // The test is no session leader, so the kernel does not tell glovebox by itself.
    kill_process(Pid::from_child(&screen.child), Signal::WINCH).unwrap();
    screen.expect("20 50");
    assert_eq!(screen.child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_output_of_a_terminal_that_is_over_is_filtered_on_a_terminal_and_whole_elsewhere() {
    let bench = Bench::new();
    // A question, the clipboard, and a mode that is left on.
    let hostile = r"printf 'one\033[c\033]52;c;dGFrZW4=\007\033[31mtwo\033[?25l'";
    let mut screen = Screen::new(&bench, &["run", "-t", "--", "sh", "-c", hostile]);
    screen.expect("two");
    screen.rest();
    let all = "one\x1b[c\x1b]52;c;dGFrZW4=\x07\x1b[31mtwo\x1b[?25l";
    let run = bench.call(["runs", "list", "--json"]).document()["runs"][0]["run"].as_str().expect("a run").to_owned();
    for words in [&["runs", "logs", &run][..], &["attach", &run]] {
        assert_eq!(bench.call(words).text(), all);
        let shown = Screen::new(&bench, words).rest();
        assert!(shown.starts_with("one\x1b[31mtwo\x1b[?25l") && shown.contains("\x1b[?25h"), "{shown:?}");
        assert!(!shown.contains("\x1b[c") && !shown.contains("dGFrZW4"), "{shown:?}");
    }
    // That of a run without a terminal is the caller's, byte for byte.
    bench.call(["run", "--", "sh", "-c", hostile]).expect(0, all);
    assert_eq!(Screen::new(&bench, &["runs", "logs"]).rest(), all);
}

#[test]
fn the_terminal_is_restored_when_the_run_is_ended_from_outside() {
    let bench = Bench::new();
    let mut screen = Screen::new(&bench, &["run", "-t", "--", "sh", "-c", "echo up; sleep 60"]);
    screen.expect("up");
    assert!(!screen.echoes(), "raw mode is not on");
    kill_process(Pid::from_child(&screen.child), Signal::TERM).unwrap();
    assert_eq!(screen.child.wait().unwrap().code(), Some(130));
    assert!(screen.echoes(), "raw mode was left on");
}

#[test]
fn input_from_a_terminal_without_the_flag_is_forwarded_line_by_line() {
    let bench = Bench::new();
    let mut screen = Screen::new(&bench, &["run", "--", "sh", "-c", "read line; echo got $line"]);
    screen.type_in("hello\n");
    screen.expect("got hello");
    assert_eq!(screen.child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_is_longer_than_the_terminal_goes_through_the_pager() {
    let bench = Bench::new();
    bench.call(["run", "--workspace", ".", "--", "sh", "-c", "seq 100 > long"]).expect(0, "");
    let mut screen = Screen::new(&bench, &["changes", "--pager", "sed s/^/paged:/"]);
    screen.expect("paged:run_");
    screen.expect("paged:\u{1b}[32m+100");
    assert!(screen.child.wait().unwrap().success());
    // What fits on the screen does not, and a pager that is not there takes nothing away.
    for args in [&["changes", "--summary", "--pager", "sed s/^/paged:/"][..], &["changes", "--pager", "no-such-pager"]]
    {
        let mut screen = Screen::new(&bench, args);
        let shown = screen.rest();
        assert!(shown.contains("changed 1 file") && !shown.contains("paged:"), "{shown:?}");
        assert!(screen.child.wait().unwrap().success());
    }
}

#[test]
fn a_patch_does_not_go_to_a_terminal() {
    let bench = Bench::new();
    bench.call(["run", "--workspace", ".", "--", "touch", "x"]).expect(0, "");
    let mut screen = Screen::new(&bench, &["changes", "--patch"]);
    screen.expect("glovebox changes --patch > FILE");
    assert_eq!(screen.child.wait().unwrap().code(), Some(2));
}

#[test]
fn to_destroy_all_sandboxes_is_asked_about_at_a_terminal() {
    let bench = Bench::new();
    let _box = Living::new(&bench, &["--name", "box"]);
    let unnamed = Living::new(&bench, &[]);
    let question = format!("destroy 2 sandboxes with all files: box, {}? [y/N] ", unnamed.id);
    for answer in ["n\n", "\n", "\u{4}"] {
        let mut screen = Screen::new(&bench, &["destroy", "--all"]);
        screen.expect(&question);
        screen.type_in(answer);
        screen.expect("nothing was destroyed");
        assert_eq!(screen.child.wait().unwrap().code(), Some(0));
    }
    assert_eq!(bench.call(["list", "--ids"]).text().lines().count(), 2);
    // A file that came with a project asks for documents; it does not agree in the user's place.
    let file = bench.write("glovebox.toml", "json = true");
    let mut screen = Screen::new(&bench, &["destroy", "--all"]);
    screen.expect(&question);
    screen.type_in("n\n");
    assert_eq!(screen.child.wait().unwrap().code(), Some(0));
    std::fs::remove_file(file).unwrap();
    assert_eq!(bench.call(["list", "--ids"]).text().lines().count(), 2);
    let mut screen = Screen::new(&bench, &["destroy", "--all"]);
    screen.expect(&question);
    screen.type_in("y\n");
    assert_eq!(screen.child.wait().unwrap().code(), Some(0));
    bench.call(["list", "--ids"]).expect(0, "");
    let _another = Living::new(&bench, &[]);
    let mut screen = Screen::new(&bench, &["destroy", "--all", "--yes"]);
    assert_eq!((screen.rest().as_str(), screen.child.wait().unwrap().code()), ("", Some(0)));
    bench.call(["list", "--ids"]).expect(0, "");
}
