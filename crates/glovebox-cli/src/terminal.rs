//! The caller's own terminal: its size, and raw mode while a program inside has it.

use std::io::{IsTerminal, stdin, stdout};

use glovebox_core::{Command, EnvName, Error, ErrorCode, Result};
use glovebox_engine::TerminalSize;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Whether standard input is a terminal.
pub(crate) fn is_here() -> bool {
    stdin().is_terminal()
}

/// The size of the terminal.
pub(crate) fn size() -> Result<TerminalSize> {
    let size = tcgetwinsize(stdin()).map_err(|error| no_terminal(error.into()))?;
    // A terminal that does not know its size says 0; programs inside cope better with the classic one.
    let or = |value: u16, default: u16| if value == 0 { default } else { value };
    Ok(TerminalSize { rows: or(size.ws_row, 24), columns: or(size.ws_col, 80) })
}

/// The columns of the terminal that standard output is, if it is one.
pub(crate) fn output_columns() -> Option<usize> {
    let size = tcgetwinsize(stdout()).ok().filter(|size| size.ws_col > 0)?;
    Some(size.ws_col.into())
}

/// Whether standard output is a terminal that can do more than write on.
pub(crate) fn can_be_drawn_on() -> bool {
    stdout().is_terminal() && std::env::var_os("TERM").is_some_and(|kind| kind != "dumb")
}

/// The columns and rows of the terminal that standard output is, or the classic ones where it does not say.
pub(crate) fn output_size() -> (u16, u16) {
    let size = tcgetwinsize(stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    size.map_or((80, 24), |size| (size.ws_col, size.ws_row))
}

/// The rows of the terminal that standard output is, if it is one that can do more than write on.
pub(crate) fn output_rows() -> Option<usize> {
    let size = tcgetwinsize(stdout()).ok().filter(|size| size.ws_row > 0)?;
    can_be_drawn_on().then_some(size.ws_row.into())
}

/// Lets a command know what kind of terminal it has, unless the caller said something else.
pub(crate) fn with_terminal_type(command: Command) -> Result<Command> {
    let given = command.env.contains_key(&EnvName::parse("TERM")?);
    match std::env::var("TERM") {
        Ok(kind) if !given => command.env("TERM", &kind),
        _ => Ok(command),
    }
}

/// Raw mode: every key goes to the program inside. The former mode comes back when this is dropped, also by a panic.
#[derive(Debug)]
pub(crate) struct RawMode {
    former: Termios,
}

impl RawMode {
    /// Switches the terminal of standard input to raw mode.
    pub(crate) fn enter() -> Result<RawMode> {
        let former = tcgetattr(stdin()).map_err(|error| no_terminal(error.into()))?;
        let mut raw = former.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw).map_err(|error| no_terminal(error.into()))?;
        Ok(RawMode { former })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that is gone.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.former);
    }
}

fn no_terminal(error: std::io::Error) -> Error {
    Error::new(ErrorCode::HostIo, "the terminal of standard input cannot be used").because(error)
}
