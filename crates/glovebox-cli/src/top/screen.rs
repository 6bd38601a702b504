//! The terminal while it is ours: raw mode and the alternate screen, given back on every way out.

use std::{
    io::{Stdout, Write, stdout},
    panic,
    sync::{Mutex, Once, PoisonError},
};

use glovebox_core::{Error, ErrorCode, Result};
use ratatui::{Frame, Terminal, TerminalOptions, Viewport, backend::CrosstermBackend, layout::Rect};
use rustix::process::{Signal, getpid, kill_process};

use crate::terminal::{self, RawMode};

/// Shows the alternate screen, empty, without a cursor.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[2J\u{1b}[?25l";
/// Colours and cursor as usual, and what was there before.
const LEAVE: &str = "\u{1b}[0m\u{1b}[?25h\u{1b}[?1049l";

/// The former mode of the terminal while it is ours. It is not a part of [`Screen`], so that a panic, wherever it happens, can
/// give the terminal back before it writes its message.
static FORMER: Mutex<Option<RawMode>> = Mutex::new(None);

/// The whole terminal. Dropped, it is given back.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    area: Rect,
}

impl Screen {
    /// Takes the terminal.
    pub(crate) fn open() -> Result<Screen> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                give_back();
                before(info);
            }));
        });
        let area = area();
        take()?;
        // The size is ours to look at: the library would ask the controlling terminal, which may be another one.
        let options = TerminalOptions { viewport: Viewport::Fixed(area) };
        let terminal = Terminal::with_options(CrosstermBackend::new(stdout()), options).inspect_err(|_| give_back());
        Ok(Screen { terminal: terminal.map_err(unusable)?, area })
    }

    /// Draws a picture. Only what differs from the last one is sent.
    pub(crate) fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        let area = area();
        if area != self.area {
            self.area = area;
            self.terminal.resize(area).map_err(unusable)?;
        }
        self.terminal.draw(picture).map(drop).map_err(unusable)
    }

    /// Gives the terminal back and stops, as Ctrl-Z does; takes it again when somebody lets us go on.
    pub(crate) fn stop(&mut self) -> Result<()> {
        give_back();
        kill_process(getpid(), Signal::STOP).map_err(|error| unusable(error.into()))?;
        take()?;
        self.terminal.clear().map_err(unusable)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn area() -> Rect {
    let (columns, rows) = terminal::output_size();
    Rect::new(0, 0, columns, rows)
}

fn take() -> Result<()> {
    let raw = RawMode::enter()?;
    *FORMER.lock().unwrap_or_else(PoisonError::into_inner) = Some(raw);
    let written = stdout().write_all(ENTER.as_bytes()).and_then(|()| stdout().flush());
    written.map_err(unusable).inspect_err(|_| give_back())
}

fn give_back() {
    let former = FORMER.lock().unwrap_or_else(PoisonError::into_inner).take();
    if former.is_some() {
        // Nothing can be done about a terminal that is gone.
        let _ = stdout().write_all(LEAVE.as_bytes()).and_then(|()| stdout().flush());
    }
}

fn unusable(error: std::io::Error) -> Error {
    Error::new(ErrorCode::HostIo, "the terminal cannot be used").because(error)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::Read,
        process::{Command, Stdio},
    };

    use rustix::{
        fs::{Mode, OFlags, open},
        pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
        termios::tcgetattr,
    };

    use super::*;

    /// Says that this process is the one on the terminal.
    const ON_TERMINAL: &str = "TEST_TOP_SCREEN_ON_TERMINAL";

    #[test]
    fn a_panic_gives_the_terminal_back_before_it_writes_its_message() {
        if std::env::var_os(ON_TERMINAL).is_some() {
            let _screen = Screen::open().unwrap();
            panic!("on purpose");
        }
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let line = open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let before = format!("{:?}", tcgetattr(&line).unwrap());
        let own_name = "top::screen::tests::a_panic_gives_the_terminal_back_before_it_writes_its_message";
        let end = || Stdio::from(line.try_clone().unwrap());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", own_name, "--nocapture", "--test-threads=1"])
            .env(ON_TERMINAL, "1")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        // Read while it writes: what is in the terminal at its end is little.
        let mut reader = File::from(master.try_clone().unwrap());
        let mut seen = String::new();
        let mut buffer = [0; 4096];
        while !seen.contains("test result") {
            let count = reader.read(&mut buffer).unwrap();
            seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        assert!(!child.wait().unwrap().success());
        let at = |text: &str| seen.find(text).unwrap_or_else(|| panic!("no {text:?} in {seen:?}"));
        assert!(at(ENTER) < at(LEAVE) && at(LEAVE) < at("on purpose"), "{seen:?}");
        assert_eq!(seen.matches(LEAVE).count(), 1, "{seen:?}");
        assert_eq!(format!("{:?}", tcgetattr(&line).unwrap()), before);
    }
}
