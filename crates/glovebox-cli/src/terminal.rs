//! The caller's own terminal: its size, and raw mode while a program inside has it.

mod keyboard;
mod seat;

use std::{
    io::{IsTerminal, stdin, stdout},
    path::Path,
};

use glovebox_core::{Command, EnvName, Error, ErrorCode, Result};
use glovebox_engine::TerminalSize;
use glovebox_terminal::Filter;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

pub(crate) use keyboard::Keyboard;
pub(crate) use seat::Seat;

/// The size of a terminal that nobody looks at yet.
pub(crate) const CLASSIC: TerminalSize = TerminalSize { rows: 24, columns: 80 };

/// Where descriptions of terminals lie that a sandbox of the image `host` also has.
const DESCRIPTIONS: [&str; 3] = ["/usr/share/terminfo", "/lib/terminfo", "/usr/lib/terminfo"];
/// What nearly every terminal understands, and every system has a description of.
const COMMON_TYPE: &str = "xterm-256color";

/// Whether standard input is a terminal.
pub(crate) fn is_here() -> bool {
    stdin().is_terminal()
}

/// The size of the terminal.
pub(crate) fn size() -> Result<TerminalSize> {
    let size = tcgetwinsize(stdin()).map_err(|error| no_terminal(error.into()))?;
    // A terminal that does not know its size says 0; programs inside cope better with the classic one.
    let or = |value: u16, default: u16| if value == 0 { default } else { value };
    Ok(TerminalSize { rows: or(size.ws_row, CLASSIC.rows), columns: or(size.ws_col, CLASSIC.columns) })
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

/// What may be shown of the output of a run that is over: where standard output is a terminal, and it was written to one, only
/// what is harmless, and what puts the terminal back to how it was.
pub(crate) fn of_the_past(output: Vec<u8>, had_terminal: bool) -> Vec<u8> {
    if !had_terminal || !stdout().is_terminal() {
        return output;
    }
    let (mut filter, mut shown) = (Filter::of_the_past(), Vec::with_capacity(output.len()));
    filter.push(&output, &mut shown);
    filter.restore(&mut shown);
    shown
}

/// Lets a command know what kind of terminal it has, and that it shows all colours if it does, unless the caller said something else.
pub(crate) fn with_terminal_type(mut command: Command) -> Result<Command> {
    let own = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let kind = own("TERM").map(|kind| if is_described(&kind) { kind } else { COMMON_TYPE.to_owned() });
    for (name, value) in [("TERM", kind), ("COLORTERM", own("COLORTERM"))] {
        let given = command.env.contains_key(&EnvName::parse(name)?);
        if let Some(value) = value.filter(|_| !given) {
            command = command.env(name, &value)?;
        }
    }
    Ok(command)
}

/// Whether programs inside know this kind of terminal. Some terminals bring a description of their own, which is not inside.
fn is_described(kind: &str) -> bool {
    let Some(first) = kind.chars().next().filter(|_| !kind.contains('/')) else { return false };
    // By its first letter, or by the number of that.
    let folders = [first.to_string(), format!("{:x}", first as u32)];
    DESCRIPTIONS.iter().any(|place| folders.iter().any(|folder| Path::new(place).join(folder).join(kind).exists()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_terminal_that_nobody_describes_is_not_passed_on() {
        assert!(is_described("xterm") || is_described("linux"), "this machine describes no terminal at all");
        for unknown in ["", "xterm-nobody", "../../bin/sh", "x/xterm"] {
            assert!(!is_described(unknown), "{unknown}");
        }
    }
}
