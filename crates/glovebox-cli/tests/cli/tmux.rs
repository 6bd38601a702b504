//! Terminals as people have them: `glovebox` in a window of tmux, which is a whole terminal with a keyboard and a screen to look at.

use std::{
    marker::PhantomData,
    path::Path,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use crate::{Bench, living::Living};

/// How long anything may take to be seen. Machines of tests are busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How often the screen is looked at; tmux has no other way to tell.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A window of tmux with a shell of the host in it.
pub(crate) struct Window<'a> {
    socket: String,
    /// Its folder holds the socket.
    _bench: PhantomData<&'a Bench>,
}

impl<'a> Window<'a> {
    pub(crate) fn new(bench: &'a Bench) -> Self {
        // One that is ending still has its socket.
        static WINDOWS: AtomicU32 = AtomicU32::new(0);
        let name = format!("tmux-{}", WINDOWS.fetch_add(1, Ordering::Relaxed));
        let socket = bench.dir.path().join(name).display().to_string();
        let window = Window { socket, _bench: PhantomData };
        let mut command = bench.glovebox(["--version"]);
        let variables: Vec<String> = command
            .get_envs()
            .filter_map(|(name, value)| Some(format!("{}={}", name.to_str()?, value?.to_str()?)))
            .collect();
        let folder = Path::new(command.get_program()).parent().expect("a folder").display().to_string();
        assert!(command.output().expect("the binary runs").status.success());
        let path = format!("PATH={folder}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        let shell = format!(
            "env -i {} {path} LANG=C.UTF-8 TERM=tmux-256color PS1='host$ ' bash --norc --noprofile",
            variables.join(" ")
        );
        let folder = bench.work().display().to_string();
        window.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "-c", &folder, &shell]);
        // A terminal that obeys: what programs print may set its clipboard.
        window.tmux(&["set-option", "-s", "set-clipboard", "on"]);
        window.shows("host$");
        window
    }

    /// Asks tmux for something.
    pub(crate) fn tmux(&self, words: &[&str]) -> String {
        let output = Command::new("tmux").args(["-S", &self.socket]).args(words).output().expect("tmux is installed");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Types text as it is.
    pub(crate) fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    /// Types a line.
    pub(crate) fn line(&self, text: &str) {
        self.types(text);
        self.keys(&["Enter"]);
    }

    /// Presses keys by their names.
    pub(crate) fn keys(&self, names: &[&str]) {
        self.tmux(&[&["send-keys"], names].concat());
    }

    pub(crate) fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// What tmux says of the window.
    pub(crate) fn says(&self, format: &str) -> String {
        self.tmux(&["display-message", "-p", format]).trim_end().to_owned()
    }

    /// Waits until the screen is as it is wanted.
    #[track_caller]
    pub(crate) fn until(&self, wanted: &str, is_so: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "no {wanted:?} on the screen:\n{screen}");
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    #[track_caller]
    pub(crate) fn shows(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }

    /// Waits for the prompt of a sandbox on the last line, with nothing behind it.
    #[track_caller]
    pub(crate) fn prompt(&self, prompt: &str) {
        self.until(prompt, |screen| {
            let last = screen.trim_end().lines().last().unwrap_or_default();
            last.contains(prompt) && last.ends_with('$')
        });
    }

    /// Waits until the host's shell is back, and asks it how `glovebox` ended.
    #[track_caller]
    pub(crate) fn ended_with(&self, code: i32) {
        self.until("host$", |screen| screen.trim_end().ends_with("host$"));
        self.line("echo code $?");
        self.shows(&format!("\ncode {code}\n"));
    }

    /// The host's shell is back, and got no keys but those that were typed.
    #[track_caller]
    pub(crate) fn is_clean(&self) {
        self.until("host$", |screen| screen.trim_end().ends_with("host$"));
        self.line("clear; echo clean-$((40+2))");
        let screen =
            self.until("clean-42", |screen| screen.contains("clean-42\n") && screen.trim_end().ends_with("host$"));
        assert_eq!(screen.trim(), "clean-42\nhost$", "the shell got something else");
        assert_eq!(
            self.says("#{alternate_on}#{mouse_any_flag}#{keypad_cursor_flag}#{insert_flag}#{cursor_flag}"),
            "00001"
        );
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-S", &self.socket, "kill-server"]).output();
    }
}

/// A window with a shell in a fresh sandbox.
pub(crate) fn fresh<'a>(bench: &'a Bench) -> Window<'a> {
    let window = Window::new(bench);
    window.line("glovebox shell");
    window.prompt("glovebox:");
    window
}

#[test]
fn a_shell_has_a_prompt_a_type_a_size_job_control_and_its_own_exit_code() {
    let bench = Bench::new();
    let window = fresh(&bench);
    window.line("clear; tty; stty size; tput cols; echo $TERM $LANG; echo x > /dev/tty");
    let screen = window.shows("x\n");
    assert!(screen.contains("/dev/pts/0\n30 100\n100\ntmux-256color C.UTF-8\n"), "{screen}");
    // A key counts for the job once that speaks.
    let job = "clear; sh -c 'echo job-$((40+2)); exec sleep 1000'";
    window.line(job);
    window.shows("job-42\n");
    window.keys(&["C-z"]);
    window.shows("Stopped");
    window.line("clear; fg; echo back-$?");
    window.until("fg", |screen| screen.trim_end().ends_with("exec sleep 1000'"));
    window.keys(&["C-c"]);
    window.prompt("glovebox:");
    window.line(job);
    window.shows("job-42\n");
    window.keys(&["C-\\"]);
    window.shows("Quit");
    window.prompt("glovebox:");
    // An end of input counts for a prompt that reads: one that comes before it is lost, on any terminal.
    window.line("clear; echo last-$((40+2)); (exit 7)");
    window.shows("last-42\n");
    window.prompt("glovebox:");
    window.keys(&["C-d"]);
    window.ended_with(7);
    window.is_clean();
}

#[test]
fn what_a_shell_cannot_be_is_said() {
    let bench = Bench::new();
    for (words, part) in [
        (&["shell"][..], "shell needs a terminal as standard input"),
        (&["shell", "--json"], "shell and --json do not go together"),
        (&["shell", "--stdin", "x"], "--stdin does not belong to a shell"),
        (&["shell", "box", "--memory", "1g"], "--memory is for a fresh sandbox"),
        (&["attach", "--detach-keys", "ctrl-"], "expected keys such as ctrl-],d"),
        (&["exec", "--detach-keys", "ab", "box", "--", "ls"], "expected keys such as ctrl-],d"),
    ] {
        let called = bench.call(words);
        assert_eq!(called.code, 2, "{called:?}");
        assert!(called.stderr.contains(part) || called.text().contains(part), "{called:?}");
    }
}

#[test]
fn a_new_size_reaches_the_program_at_once() {
    let bench = Bench::new();
    let window = fresh(&bench);
    window.line("trap 'stty size' WINCH; echo set-$((40+2))");
    window.shows("set-42");
    window.tmux(&["resize-window", "-x", "73", "-y", "21"]);
    window.shows("21 73");
}

#[test]
fn vim_edits_and_saves_and_the_screen_comes_back() {
    let bench = Bench::new();
    let living = Living::new(&bench, &["--name", "box"]);
    let window = Window::new(&bench);
    window.line("glovebox shell box");
    window.prompt("box:");
    window.line("vim -u NONE note.txt");
    window.shows("~");
    window.types("ione \u{4e2d}\u{1f600} two");
    window.keys(&["Escape"]);
    window.types("yyp:wq");
    window.keys(&["Enter"]);
    window.prompt("box:");
    assert_eq!(
        living.exec(&["--", "cat", "note.txt"]).text(),
        "one \u{4e2d}\u{1f600} two\none \u{4e2d}\u{1f600} two\n"
    );
    window.line("exit");
    window.is_clean();
}

#[test]
fn programs_that_fill_the_screen_draw_scroll_and_leave_it() {
    let bench = Bench::new();
    let window = fresh(&bench);
    window.line("htop");
    window.shows("F10");
    window.shows("Load average");
    window.tmux(&["resize-window", "-x", "120", "-y", "40"]);
    window.until("more rows", |screen| screen.trim_end().lines().count() == 40);
    window.keys(&["q"]);
    window.prompt("glovebox:");
    window.line("seq 1000 | less");
    window.shows("37\n38");
    window.keys(&["G"]);
    window.shows("999\n1000");
    window.line("?500");
    window.shows("500\n501");
    window.keys(&["q"]);
    window.prompt("glovebox:");
    window.line("tmux -f /dev/null");
    window.shows("[0] 0:");
    window.line("echo inner-$((40+2))");
    window.shows("inner-42");
    window.keys(&["C-b", "%"]);
    window.shows("\u{2502}");
    window.keys(&["C-b", "d"]);
    window.shows("[detached");
    window.line("exit");
    window.is_clean();
}

#[test]
fn the_prompts_of_languages_have_history_and_can_be_interrupted() {
    let bench = Bench::new();
    let window = fresh(&bench);
    for (program, loops, interrupted) in [
        ("python3 -q", "import time; print(40 + 3); time.sleep(1000)", "KeyboardInterrupt"),
        ("node", "console.log(40 + 3); for (;;) {}", "interrupted"),
    ] {
        window.line(&format!("clear; {program}"));
        window.until(">", |screen| screen.trim_end().ends_with('>'));
        // Keys count for the prompt once it is there again.
        let answered =
            |text: &str| drop(window.until(text, |screen| screen.contains(text) && screen.trim_end().ends_with('>')));
        window.line("40 + 1");
        answered("\n41");
        window.keys(&["Up", "BSpace"]);
        window.line("2");
        answered("\n42");
        window.line(loops);
        window.shows("\n43");
        window.keys(&["C-c"]);
        answered(interrupted);
        window.keys(&["C-d"]);
        window.prompt("glovebox:");
    }
}

#[test]
fn all_colours_wide_characters_and_titles_arrive_however_they_are_cut() {
    let bench = Bench::new();
    let window = Window::new(&bench);
    let title = window.says("#{pane_title}");
    let code = "import sys,time
for b in '\\x1b]0;t\u{e4}st \u{1f600}\\x07\\x1b[38;2;1;2;3mA\u{4e2d}\u{1f469}\u{200d}\u{1f680}B\\x1b[m\\n'.encode():
    sys.stdout.buffer.write(bytes([b])); sys.stdout.buffer.flush(); time.sleep(0.002)
sys.stdin.readline()
";
    bench.write("slow.py", code);
    window.line("clear; glovebox run -t slow.py");
    let screen = window.shows("B");
    assert!(screen.contains("A\u{4e2d}\u{1f469}"), "{screen}");
    let coloured = window.tmux(&["capture-pane", "-p", "-e"]);
    assert!(coloured.contains("\u{1b}[38;2;1;2;3mA\u{4e2d}"), "{coloured:?}");
    assert_eq!(window.says("#{pane_title}"), "t\u{e4}st \u{1f600}");
    window.keys(&["Enter"]);
    window.ended_with(0);
    window.is_clean();
    assert_eq!(window.says("#{pane_title}"), title);
}

#[test]
fn nothing_that_a_program_prints_is_typed_into_the_shell_or_put_into_the_clipboard() {
    let bench = Bench::new();
    let attacks = [
        // Questions, many of them, and the end before they can be answered.
        r"\033[6n\033[c\033[>c\033[5n\033[18t\033[14t\033]10;?\007\033]11;?\007\033[?2026$p\033[>q",
        // Reports of what the program has chosen.
        r"\033]2;touch pwned\007\033[21t\033[20t\005\033P$qm\033\\\033P+q544e\033\\\033]50;?\007\033[1;1;1;1;1;1*y",
        // The clipboard, files, and what goes through to the terminal outside.
        r"\033]52;c;dG91Y2ggcHduZWQK\007\033]52;c;?\007\033Ptmux;\033\033]52;c;YQ==\007\033\\\033_Gt=f;L2V0Yy9wYXNzd2Q=\033\\",
        r"\033]1337;File=:YQ==\007\033]777;notify;a;b\007\033]9;x\007\033[5i\033[?4i\033kname\033\\",
        // All that can be left on.
        r"\033[?1049h\033[?1003h\033[?1006h\033[?2004h\033[?1h\033=\033[?25l\033[4h\033[5;9r\033(0\033[>1u\033[31m\033]0;x",
    ];
    // The terminal does obey: without a filter the clipboard is the program's, and the shell gets an answer.
    let window = Window::new(&bench);
    window.line(r"clear; printf '\033]52;c;dGFrZW4=\007\033[c'");
    window.shows("host$ 1;2c");
    assert!(window.tmux(&["list-buffers"]).contains("taken"));
    for attack in attacks {
        let window = Window::new(&bench);
        bench.write("attack.sh", format!("for i in 1 2 3 4 5 6 7 8 9; do printf '{attack}'; done\n"));
        window.line("clear; glovebox run -t attack.sh; echo ended-$((40+2))");
        window.shows("ended-42");
        window.is_clean();
        assert_eq!(window.tmux(&["list-buffers"]), "");
        assert!(!bench.work().join("pwned").exists());
    }
}

#[test]
fn one_who_only_looks_at_a_terminal_is_safe_too() {
    let bench = Bench::new();
    let living = Living::new(&bench, &[]);
    let line =
        r"printf '\033]52;c;dGFrZW4=\007\033[c\033[?1003hseen'; read x; printf '\033]52;c;dGFrZW4=\007\033[21tlast\n'";
    let called = bench.call(["exec", "-t", "--detach", &living.id, "--", "sh", "-c", line]);
    assert_eq!(called.code, 0, "{called:?}");
    let window = Window::new(&bench);
    let run = called.text().trim();
    window.line(&format!("clear; glovebox attach {run} < /dev/null; echo ended-$((40+2))"));
    window.shows("seen");
    assert_eq!(bench.call_with_input(["attach", run], b"\n").code, 0);
    window.shows("ended-42");
    window.is_clean();
    assert_eq!(window.tmux(&["list-buffers"]), "");
}

#[test]
fn a_terminal_is_put_back_whatever_ends_the_run() {
    let bench = Bench::new();
    let leave_all_on =
        r"printf '\033[?1049h\033[?1003h\033[?1006h\033[?2004h\033[?1h\033[?25l\033[4h\033[Hup'; sleep 1000";
    for (flags, signal) in [("--timeout 1s --grace 10ms", None), ("", Some("TERM")), ("", Some("INT"))] {
        let window = Window::new(&bench);
        bench.write("leave.sh", leave_all_on);
        window.line(&format!("glovebox run -t {flags} leave.sh 2> /dev/null; echo ended-$((40+2))"));
        window.until("up", |screen| screen.starts_with("up"));
        if let Some(signal) = signal {
            run(&format!("pkill -{signal} -P {} glovebox", window.says("#{pane_pid}")));
        }
        window.shows("ended-42");
        window.is_clean();
    }
}

pub(crate) fn run(line: &str) {
    assert!(Command::new("sh").args(["-c", line]).status().expect("sh runs").success(), "{line}");
}
