//! What is drawn of what is known, and what keys do with it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use glovebox_core::{
    Error, ErrorCode, RunId, SandboxId, SandboxName, SandboxRecord, SandboxSpec, SandboxState, Usage, UsageNow,
};
use glovebox_engine::SandboxStatus;
use glovebox_ledger::{ListedCommand, Summary};
use jiff::{Timestamp, ToSpan};
use ratatui::{
    Terminal,
    backend::TestBackend,
    buffer::Buffer,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    style::Color,
};

use super::{
    draw,
    keys::Wish,
    paint::Look,
    state::{Act, Focus, News, Order, Page, Top},
};

const SECOND: Duration = Duration::from_secs(1);

fn look() -> Look {
    Look { colours: true, blocks: true, host: ("build7".to_owned(), 2, 8 << 30) }
}

fn status(name: &str, state: SandboxState) -> SandboxStatus {
    let (sandbox, created_at) = (SandboxId::new(), Timestamp::now() - 2.hours());
    let name = SandboxName::parse(name).ok();
    let record = SandboxRecord {
        sandbox,
        name: name.clone(),
        backend: "native".to_owned(),
        labels: Default::default(),
        env: Default::default(),
        spec: SandboxSpec::default(),
        created_at,
    };
    SandboxStatus {
        sandbox,
        name,
        state,
        trouble: None,
        ended: None,
        backend: "native".to_owned(),
        image: "host".to_owned(),
        project: None,
        created_at,
        expires_at: Some(created_at + 24.hours()),
        ends_at: Some(created_at + 24.hours()),
        isolation: None,
        idle_timeout_ms: None,
        labels: Default::default(),
        record: Arc::new(record),
    }
}

fn run_in(sandbox: SandboxId, argv: &[&str]) -> Summary {
    let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
    Summary {
        run: RunId::new(),
        sandbox,
        backend: "native".to_owned(),
        image: "host".to_owned(),
        project: None,
        labels: Default::default(),
        command: ListedCommand { argv, language: None },
        workspace: None,
        outcome: None,
        started_at: Timestamp::now() - 90.seconds(),
        duration_ms: None,
        usage: Usage::default(),
    }
}

/// A view that has looked at sandboxes for a while, each with its share of a CPU and its memory.
struct Scene {
    top: Top,
    all: Vec<SandboxStatus>,
    runs: Option<Vec<Summary>>,
    now: Instant,
}

impl Scene {
    fn new(all: Vec<SandboxStatus>, runs: Vec<Summary>) -> Scene {
        let mut scene = Scene { top: Top::new(SECOND), all, runs: Some(runs), now: Instant::now() };
        scene.list();
        scene
    }

    fn list(&mut self) {
        self.top.hear(News::Sandboxes(Ok((self.all.clone(), self.runs.clone()))), self.now);
        self.top.arrange();
    }

    /// Lets seconds pass, in which sandboxes use so much CPU, in percent, and memory.
    fn pass(&mut self, seconds: u64, used: &[(usize, f64, u64)]) {
        for second in 0..seconds {
            self.now += SECOND;
            self.list();
            for (index, percent, memory_bytes) in used {
                let cpu_ms = percent * 10.0 * (second + 1) as f64;
                let usage = UsageNow {
                    cpu_ms,
                    memory_bytes: *memory_bytes,
                    processes: 3,
                    written_bytes: 2048 * second,
                    disk_bytes: Some(5 << 20),
                    ..UsageNow::default()
                };
                self.top.hear(News::Usage(self.all[*index].sandbox, self.now, Ok(usage)), self.now);
            }
            self.top.arrange();
        }
    }

    fn press(&mut self, keys: &str) -> Option<Wish> {
        let press = |top: &mut Top, code| top.press(KeyEvent::new(code, KeyModifiers::NONE));
        keys.chars().fold(None, |_, key| {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                key => KeyCode::Char(key),
            };
            press(&mut self.top, code)
        })
    }

    fn picture(&self, width: u16, height: u16, look: &Look) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &self.top, look)).unwrap();
        terminal.backend().buffer().clone()
    }

    fn lines(&self, width: u16, height: u16) -> Vec<String> {
        lines(&self.picture(width, height, &look()))
    }

    fn names(&self) -> Vec<String> {
        self.top.rows().map(|seen| seen.name()).collect()
    }
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let rows = buffer.content().chunks(buffer.area().width.into());
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()).collect()
}

/// Three sandboxes: one that burns, one that holds memory, one that is stopped.
fn three() -> Scene {
    let all = vec![
        status("holder", SandboxState::Ready),
        status("burner", SandboxState::Ready),
        status("sleeper", SandboxState::Stopped),
    ];
    let runs = vec![run_in(all[1].sandbox, &["make", "-j2"]), run_in(all[1].sandbox, &["true"])];
    let mut scene = Scene::new(all, runs);
    scene.pass(12, &[(0, 1.0, 1 << 30), (1, 100.0, 1 << 20)]);
    scene
}

#[test]
fn eighty_columns_show_a_row_for_each_sandbox_with_a_plot_and_a_bar() {
    let shown = three().lines(80, 24);
    assert_eq!(shown[0], "build7  3 sandboxes: 2 ready, 1 stopped");
    assert_eq!(shown[1], "CPU 101.0% of 200%   memory 1.0G of 8.0G   every 1s   by CPU");
    assert_eq!(shown[2], "SANDBOX     STATE     AGE  CPU%            MEMORY       PROC DISK  R/s  W/s RUNS");
    assert_eq!(shown[3], "burner      ready      2h 100.0 ███████ 1.0M/2.0G          3 5.0M    0 2.0K    2");
    assert_eq!(shown[4], "holder      ready      2h   1.0         1.0G/2.0G ██▌      3 5.0M    0 2.0K    0");
    assert_eq!(shown[5], "sleeper     stopped    2h     -                 -          -    -    -    -    0");
    assert!(shown[6..23].iter().all(String::is_empty) && shown[23].contains("? help"), "{shown:?}");
}

#[test]
fn the_details_of_one_show_larger_plots_and_what_each_run_uses() {
    let mut scene = three();
    scene.press("\n");
    let (id, first) = (scene.all[1].sandbox, scene.runs.as_ref().unwrap()[0].run);
    for (second, cpu_ms) in [(1, 1000.0), (2, 1500.0)] {
        let used = Usage { cpu_ms, memory_peak_bytes: 3 << 20, processes_peak: 4, ..Usage::default() };
        scene.top.hear(News::Runs(id, scene.now + SECOND * second, vec![(first, used)]), scene.now);
    }
    let shown = scene.lines(80, 24);
    assert!(shown[0].starts_with("ready  burner  sb_"), "{}", shown[0]);
    assert_eq!(shown[1], "made 2h ago, ends in 21h");
    assert_eq!(shown[2], "CPU 100.0% of 100%");
    assert!(shown[3..6].iter().all(|line| line.ends_with("███████████")), "{shown:#?}");
    assert!(shown[6].starts_with("Memory 1.0M of 2.0G, at most 0; 3 of 100 processes (plot to 2.0M)"), "{}", shown[6]);
    assert!(shown[10].contains("Written 2.0K/s; disk 5.0M of 1.0G"), "{}", shown[10]);
    assert!(shown[14].starts_with("RUN             FOR  CPU%   CPU s PEAK PROC"), "{}", shown[14]);
    assert!(shown[15].ends_with("90s  50.0     1.5 3.0M    4    0    0 make -j2") || shown[15].contains("1m  50.0"));
    assert!(shown[16].ends_with("-     -       -    -    -    -    - true") || shown[16].contains("-       -    -"));
    assert_eq!(scene.press("q"), None);
    assert_eq!(scene.top.page, Page::List);
}

#[test]
fn no_text_of_others_steers_the_terminal() {
    let mut bad = status("box", SandboxState::Ready);
    let evil = "\u{1b}[2J\u{9b}31m\u{202e}\r\n\t\u{7}漢字";
    bad.labels.insert("k".to_owned(), evil.to_owned());
    bad.project = Some(evil.to_owned());
    let runs = vec![run_in(bad.sandbox, &["sh", "-c", evil])];
    let mut scene = Scene::new(vec![bad], runs);
    scene.pass(3, &[(0, 5.0, 1 << 20)]);
    let mut host = look();
    host.host.0 = evil.to_owned();
    let failed = Error::new(ErrorCode::Internal, evil.to_owned());
    scene.top.hear(News::Acted(Act::Pause, scene.all[0].sandbox, Err(failed)), scene.now);
    for keys in ["", "\n", "\u{1b}/\u{7}\u{1b}"] {
        scene.press(keys);
        for cell in scene.picture(200, 30, &host).content() {
            let misleads = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
            assert!(!cell.symbol().contains(misleads), "{:?}", cell.symbol());
        }
    }
}

#[test]
fn every_size_is_drawn_and_one_that_is_too_small_is_told() {
    let mut scene = three();
    for keys in ["", "?", "q\n", "?", "qx", "nq/burn", "\u{1b}x"] {
        scene.press(keys);
        let widths = (1..42).chain([79, 80, 81, 111, 200]);
        for (width, height) in widths.flat_map(|width| (1..28).map(move |height| (width, height))) {
            let shown = scene.lines(width, height);
            let small = width < 30 || height < 6;
            assert_eq!(small && width >= 9, shown[0] == "too small", "{width}x{height}: {shown:?}");
        }
    }
}

#[test]
fn without_colours_there_are_none_and_without_utf8_there_is_only_ascii() {
    let mut scene = three();
    let plain = Look { colours: false, blocks: false, ..look() };
    for keys in ["", "\n", "?", "q", "qx"] {
        scene.press(keys);
        for cell in scene.picture(60, 24, &plain).content() {
            assert!(cell.symbol().is_ascii(), "{:?}", cell.symbol());
            assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
        }
    }
    scene.press("nq");
    let shown = lines(&scene.picture(80, 24, &plain));
    assert!(shown[3].contains("#######") && shown[4].contains("|||"), "{shown:#?}");
}

#[test]
fn one_that_does_not_answer_is_silent_and_the_others_go_on() {
    let mut scene = three();
    scene.pass(3, &[(0, 1.0, 1 << 30)]);
    assert!(scene.lines(80, 24).iter().any(|line| line.starts_with("burner      ready")));
    scene.pass(2, &[(0, 1.0, 1 << 30)]);
    let shown = scene.lines(80, 24);
    assert!(shown[0].ends_with("(1 silent)"), "{}", shown[0]);
    let row = |name: &str| shown.iter().find(|line| line.starts_with(name)).unwrap().clone();
    assert!(row("burner").contains("silent     2h     - ") && row("burner").contains('·'), "{}", row("burner"));
    assert!(row("holder").contains("ready      2h   1.0"), "{}", row("holder"));
    // It answers again.
    scene.pass(2, &[(1, 50.0, 1 << 20)]);
    assert!(scene.lines(80, 24).iter().any(|line| line.starts_with("burner      ready      2h  50.0")));
}

#[test]
fn the_selected_sandbox_stays_selected_wherever_it_goes() {
    let mut scene = three();
    assert_eq!(scene.names(), ["burner", "holder", "sleeper"]);
    scene.press("j");
    assert_eq!(scene.top.subject().unwrap().name(), "holder");
    scene.press("m");
    assert_eq!((scene.top.order, scene.names()[0].as_str()), (Order::Memory, "holder"));
    assert_eq!((scene.top.subject().unwrap().name().as_str(), scene.top.selected_at()), ("holder", 0));
    scene.press("n");
    assert_eq!(scene.names(), ["burner", "holder", "sleeper"]);
    scene.press("sG");
    assert_eq!((scene.top.order, scene.top.subject().unwrap().name().as_str()), (Order::Age, "sleeper"));
    // The last one goes; the one before it takes its place.
    scene.all.pop();
    scene.list();
    assert_eq!(scene.top.subject().unwrap().name(), "burner");
}

#[test]
fn a_filter_takes_text_and_escape_takes_it_back() {
    let mut scene = three();
    assert_eq!(scene.press("/Sleep"), None);
    assert_eq!((scene.names(), scene.top.focus), (vec!["sleeper".to_owned()], Focus::Filter));
    scene.press("q\n");
    assert!(scene.names().is_empty(), "keys of the filter are text");
    assert!(scene.lines(80, 24)[3].contains("no sandbox fits"));
    assert_eq!(scene.press("\u{1b}"), None);
    assert_eq!(scene.names().len(), 3);
    assert_eq!(scene.press("\u{1b}"), Some(Wish::Quit));
}

#[test]
fn only_a_yes_destroys_and_only_what_runs_is_paused() {
    let mut scene = three();
    let (burner, holder) = (scene.all[1].sandbox, scene.all[0].sandbox);
    scene.press("x");
    assert!(scene.lines(80, 24)[23].contains("Destroy burner with all its files?"));
    // It is about the one that was named, whatever the order is by then.
    scene.pass(3, &[(0, 90.0, 1), (1, 1.0, 1)]);
    assert_eq!(scene.press("y"), Some(Wish::Do(Act::Destroy, burner)));
    for keys in ["xn", "d\n", "x\u{1b}", "xq"] {
        assert_eq!((scene.press(keys), scene.top.focus), (None, Focus::Page), "{keys:?}");
    }
    scene.press("g");
    assert_eq!(scene.press("p"), Some(Wish::Do(Act::Pause, holder)));
    scene.all[0].state = SandboxState::Paused;
    scene.list();
    assert_eq!(scene.press("p"), Some(Wish::Do(Act::Resume, holder)));
    scene.press("nG");
    assert_eq!(scene.press("p"), None);
    assert!(scene.top.message.as_ref().unwrap().contains("sleeper is stopped"));
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    scene.press("/");
    assert_eq!(scene.top.press(control_c), Some(Wish::Quit));
}

#[test]
fn runs_that_cannot_be_read_are_not_told_to_be_none() {
    let mut scene = three();
    scene.runs = None;
    scene.list();
    assert!(scene.lines(80, 24)[3].ends_with("2.0K    -"), "{:?}", scene.lines(80, 24));
    scene.press("\n");
    let cannot = "its runs cannot be read; glovebox runs list says why";
    assert!(scene.lines(80, 24).iter().any(|line| line == cannot), "{:#?}", scene.lines(80, 24));
    scene.runs = Some(Vec::new());
    scene.list();
    assert!(scene.lines(80, 24).iter().any(|line| line == "no recorded run is at work"));
}

#[test]
fn every_state_is_told_in_words_and_the_longest_where_there_is_room() {
    use SandboxState::{Creating, Destroying, Paused, Ready, Stopped, Stopping};
    for state in [Creating, Ready, Paused, Stopping, Stopped, Destroying] {
        let scene = Scene::new(vec![status("box", state)], Vec::new());
        let word = |width| scene.lines(width, 24)[3].split_whitespace().nth(1).unwrap().to_owned();
        assert_eq!(word(100), state.as_str());
        let narrow = if state == Destroying { "destroy…" } else { state.as_str() };
        assert_eq!(word(80), narrow);
    }
}

#[test]
fn the_help_names_every_key_that_does_something() {
    let mut scene = three();
    let key = |top: &mut Top, code| top.press(KeyEvent::new(code, KeyModifiers::NONE));
    key(&mut scene.top, KeyCode::F(1));
    assert_eq!(scene.top.focus, Focus::Help);
    let shown = scene.lines(80, 24).join(" ");
    for name in [
        "up",
        "down",
        "k",
        "j",
        "PgUp",
        "PgDn",
        "Home",
        "g",
        "End",
        "G",
        "Enter",
        "c",
        "m",
        "i",
        "n",
        "a",
        "s",
        "/",
        "p",
        "x",
        "d",
        "Del",
        "Esc",
        "q",
        "Backspace",
        "Ctrl-C",
        "Ctrl-Z",
        "?",
        "F1",
    ] {
        let is_named = |word: &str| word.split(['/', ',', ';']).any(|part| part == name) || word == name;
        assert!(shown.split_whitespace().any(is_named), "{name}: {shown}");
    }
    key(&mut scene.top, KeyCode::Esc);
    key(&mut scene.top, KeyCode::Delete);
    assert!(matches!(scene.top.focus, Focus::Confirm(_)));
}
