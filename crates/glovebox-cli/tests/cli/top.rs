//! `glovebox top`, on a real terminal with real sandboxes.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, kill_process},
    termios::{Winsize, tcgetattr, tcsetwinsize},
};

use crate::{Bench, living::Living, terminal::open_terminal};

/// How long something may take to be seen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A terminal of 80 columns and 24 rows with `glovebox top` on it.
struct View {
    master: File,
    line: OwnedFd,
    child: Child,
    screen: vt100::Parser,
    /// Every byte that was written.
    written: Vec<u8>,
    /// The mode of the line before.
    before: String,
}

impl View {
    fn new(bench: &Bench, variables: &[(&str, &str)]) -> View {
        let (master, line) = open_terminal(24, 80);
        let before = format!("{:?}", tcgetattr(&line).unwrap());
        let end = || Stdio::from(line.try_clone().unwrap());
        let mut command = bench.glovebox(["top", "--interval", "200ms"]);
        command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
        let child = command.envs(variables.iter().copied()).stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        View { master, line, child, screen: vt100::Parser::new(24, 80, 0), written: Vec::new(), before }
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn resize(&mut self, rows: u16, columns: u16) {
        self.screen.screen_mut().set_size(rows, columns);
        tcsetwinsize(&self.master, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        // The test is no session leader, so the kernel does not tell by itself.
        self.signal(Signal::WINCH);
    }

    /// Takes what was written, waiting a moment for it.
    fn take(&mut self) {
        let moment = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        if poll(&mut [PollFd::new(&self.master, PollFlags::IN)], Some(&moment)) != Ok(0) {
            let mut buffer = [0; 16 * 1024];
            let count = self.master.read(&mut buffer).unwrap_or(0);
            self.screen.process(&buffer[..count]);
            self.written.extend_from_slice(&buffer[..count]);
        }
    }

    fn shown(&self) -> String {
        self.screen.screen().contents()
    }

    /// The row of a sandbox.
    fn row(&self, name: &str) -> Option<String> {
        self.shown().lines().find(|line| line.starts_with(name)).map(str::to_owned)
    }

    /// Looks until the screen is so.
    #[track_caller]
    fn until(&mut self, what: &str, holds: impl Fn(&View) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < deadline, "{what}:\n{}", self.shown());
            self.take();
        }
    }

    #[track_caller]
    fn until_shown(&mut self, text: &str) {
        self.until(text, |view| view.shown().contains(text));
    }

    /// Waits for the end, and gives the exit code. The terminal must be as it was.
    #[track_caller]
    fn end(mut self) -> i32 {
        let deadline = Instant::now() + PATIENCE;
        let code = loop {
            self.take();
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code().expect("an exit code");
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.shown());
        };
        self.take();
        let screen = self.screen.screen();
        assert!(
            !screen.alternate_screen() && !screen.hide_cursor(),
            "the screen was not left: {:?}",
            screen.contents()
        );
        assert_eq!(format!("{:?}", tcgetattr(&self.line).unwrap()), self.before, "the mode was not restored");
        code
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // Only where the test failed before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The share of a CPU in a row.
fn cpu(row: &str) -> f64 {
    row.split_whitespace().nth(3).and_then(|word| word.parse().ok()).unwrap_or(-1.0)
}

fn has_plot(row: &str) -> bool {
    row.contains(['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'])
}

#[test]
fn a_sandbox_that_burns_is_seen_with_a_plot_paused_looked_into_and_destroyed() {
    let bench = Bench::new();
    let burner = Living::new(&bench, &["--name", "burner", "--label", "team=red"]);
    let _other = Living::new(&bench, &["--name", "other"]);
    let run = burner.detach("while :; do :; done");
    let mut view = View::new(&bench, &[]);
    view.until("a row with a plot", |view| view.row("burner").is_some_and(|row| cpu(&row) > 5.0 && has_plot(&row)));
    view.until("two rows", |view| view.row("other").is_some_and(|row| row.contains("ready")));
    assert!(
        view.screen.screen().alternate_screen() && view.shown().contains("2 sandboxes: 2 ready"),
        "{}",
        view.shown()
    );
    let order = |view: &View| view.shown().find("burner") < view.shown().find("other");
    view.until("the busiest is first", order);
    // Its details: who it is, its run with what that uses, larger plots.
    view.press("\r");
    view.until_shown("team=red");
    assert!(view.shown().contains(&burner.id), "{}", view.shown());
    view.until("the run with its usage", |view| {
        let row = view.row(&run[..13]).unwrap_or_default();
        row.contains("while :;") && row.split_whitespace().nth(3).is_some_and(|seconds| seconds.parse::<f64>().is_ok())
    });
    view.until("a larger plot", |view| view.shown().lines().skip(3).take(3).filter(|line| has_plot(line)).count() > 0);
    view.press("q");
    // Pausing, and what that looks like from elsewhere.
    view.until_shown("SANDBOX");
    view.press("p");
    view.until("it is paused", |view| view.row("burner").is_some_and(|row| row.contains("paused")));
    assert_eq!(burner.state(), "paused");
    view.press("n/burn\rp");
    view.until("it goes on", |view| view.row("burner").is_some_and(|row| row.contains("ready")));
    assert!(view.row("other").is_none(), "{}", view.shown());
    // Only a yes destroys.
    view.press("x");
    view.until_shown("Destroy burner");
    view.press("n");
    view.until("the question is gone", |view| !view.shown().contains("Destroy burner"));
    assert_eq!(burner.state(), "ready");
    view.press("xy");
    view.until_shown("burner is destroyed");
    let gone = bench.call(["show", "burner"]);
    assert!(gone.stderr.contains("sandbox_not_found"), "{gone:?}");
    view.press("\u{3}");
    assert_eq!(view.end(), 0);
}

#[test]
fn it_follows_the_size_of_the_terminal_and_says_when_that_is_too_small() {
    let bench = Bench::new();
    let living = Living::new(&bench, &[]);
    let mut view = View::new(&bench, &[]);
    view.until_shown("1 sandbox: 1 ready");
    assert!(!view.shown().contains(&living.id) && !view.shown().contains("LEFT"), "{}", view.shown());
    view.resize(30, 140);
    view.until("the whole id", |view| view.row(&living.id).is_some_and(|row| row.contains("59m")));
    view.resize(3, 10);
    view.until_shown("too small");
    view.resize(10, 40);
    view.until("a narrow row", |view| view.row("sb_").is_some_and(|row| row.contains("ready")));
    view.press("?");
    view.until_shown("destroy, after a q");
    view.press("qq");
    assert_eq!(view.end(), 0);
}

#[test]
fn without_its_ledger_it_shows_sandboxes_and_claims_nothing_of_runs() {
    let bench = Bench::new();
    let _living = Living::new(&bench, &["--name", "box"]);
    let mut view = View::new(&bench, &[]);
    let runs = |view: &View| view.row("box").and_then(|row| row.split_whitespace().last().map(str::to_owned));
    view.until("no run is at work", |view| runs(view).as_deref() == Some("0"));
    std::fs::write(bench.data().join("running"), "").expect("nothing was recorded");
    view.until("its runs are not known", |view| runs(view).as_deref() == Some("-"));
    view.press("\r");
    view.until_shown("its runs cannot be read");
    view.press("qq");
    assert_eq!(view.end(), 0);
}

#[test]
fn the_terminal_is_given_back_when_it_is_ended_from_outside() {
    let bench = Bench::new();
    for (signal, code) in [(Signal::TERM, 130), (Signal::HUP, 130), (Signal::INT, 130)] {
        let mut view = View::new(&bench, &[]);
        view.until_shown("there is no sandbox");
        view.signal(signal);
        assert_eq!(view.end(), code);
    }
}

#[test]
fn a_sandbox_that_does_not_answer_is_told_and_holds_up_nobody() {
    let bench = Bench::new();
    let stuck = Living::new(&bench, &["--name", "stuck"]);
    let burner = Living::new(&bench, &["--name", "burner"]);
    burner.detach("while :; do :; done");
    let keeper = Pid::from_raw(stuck.keeper().expect("a keeper")).unwrap();
    let mut view = View::new(&bench, &[]);
    view.until("both answer", |view| view.row("stuck").is_some_and(|row| cpu(&row) == 0.0));
    kill_process(keeper, Signal::STOP).unwrap();
    view.until("it is silent", |view| view.row("stuck").is_some_and(|row| row.contains("silent")));
    assert!(view.shown().contains("(1 silent)"), "{}", view.shown());
    view.until("the other goes on", |view| view.row("burner").is_some_and(|row| cpu(&row) > 5.0));
    view.press("n");
    view.until_shown("sorted by name");
    kill_process(keeper, Signal::CONT).unwrap();
    view.until("it answers again", |view| {
        view.row("stuck").is_some_and(|row| row.contains("ready") && cpu(&row) == 0.0)
    });
    view.press("\u{1b}");
    assert_eq!(view.end(), 0);
}

#[test]
fn a_command_cannot_steer_the_terminal_and_without_colours_there_are_none() {
    let bench = Bench::new();
    let living = Living::new(&bench, &["--name", "box"]);
    living.detach("sleep 60 # \u{1b}]0;stolen\u{7}\u{1b}[31mred");
    let mut view = View::new(&bench, &[("NO_COLOR", "1"), ("LC_ALL", "C")]);
    view.until("a row", |view| view.row("box").is_some_and(|row| cpu(&row) >= 0.0));
    view.press("\r");
    view.until_shown("sleep 60 #");
    view.resize(24, 140);
    view.until_shown("stolen");
    view.press("qq");
    let written = String::from_utf8(view.written.clone()).unwrap();
    assert!(written.is_ascii() && !written.contains("\u{1b}]") && !written.contains('\u{7}'), "{written:?}");
    // Bold and reversed are no colours.
    let styles = written.split("\u{1b}[").filter_map(|part| part.split_once('m')).map(|(numbers, _)| numbers);
    let numbers = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b';');
    let colours: Vec<&str> =
        styles.filter(numbers).filter(|text| !["", "0", "1", "7", "22", "27"].contains(text)).collect();
    assert_eq!(colours, [""; 0]);
    assert_eq!(view.end(), 0);
}

#[test]
fn without_a_terminal_it_says_what_there_is_for_programs() {
    let bench = Bench::new();
    let refused = bench.call(["top"]);
    assert_eq!(refused.code, 2);
    assert!(
        refused.stderr.contains("needs a terminal") && refused.stderr.contains("usage --follow --json"),
        "{refused:?}"
    );
    let refused = bench.call(["top", "--json"]).document();
    assert_eq!(refused["error"]["code"], "usage");
    let refused = bench.call(["top", "--interval", "5ms"]);
    assert!(refused.code == 2 && refused.stderr.contains("100ms to 1h"), "{refused:?}");
    let mut view = View::new(&bench, &[("TERM", "dumb")]);
    view.until_shown("needs a terminal");
    assert_eq!(view.end(), 2);
}
