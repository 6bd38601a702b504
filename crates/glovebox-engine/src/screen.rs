//! The screen of a run's terminal, for one who attaches to it.

use bytes::Bytes;
use glovebox_proto::{Attached, bound};
use glovebox_terminal::Screen;

use crate::{Event, Run, TerminalSize};

/// A terminal as it was when somebody attached to it.
pub(crate) struct Before {
    size: TerminalSize,
    modes: Bytes,
    /// Bytes that the program had written then.
    written: u64,
}

impl Before {
    /// What the guest tells of it; nothing of a run without a terminal.
    pub(crate) fn of(attached: &Attached) -> Option<Self> {
        let size = attached.terminal.as_ref()?;
        let clamp = |n: u32| n.min(u32::from(u16::MAX)) as u16;
        let size = TerminalSize { rows: clamp(size.rows), columns: clamp(size.columns) };
        Some(Before { size, modes: attached.modes.clone(), written: attached.stdout_bytes })
    }
}

impl Run {
    /// The size of the terminal of a run that was attached to, as it was then. Nothing where it has none.
    pub fn terminal_size(&self) -> Option<TerminalSize> {
        self.before.as_ref().map(|before| before.size)
    }

    /// The screen of a run that was attached to, as it was then: takes the events that lead there and draws what they hold. Events
    /// that come afterwards are new. Nothing where the run has no terminal, or was asked before.
    ///
    /// The second value says whether some of the output was gone. The screen is as right as it can be then; a program that fills the
    /// screen draws it again when its terminal gets another size.
    pub async fn screen(&mut self) -> Option<(Screen, bool)> {
        let Before { size, modes, written } = self.before.take()?;
        let mut screen = Screen::new(size.rows, size.columns);
        screen.draw(&modes);
        let (mut known, mut drawn, mut missed) = (0u64, 0, false);
        // A guest that promises more than it keeps is not waited for.
        while known < written && drawn <= bound::OUTPUT {
            match self.next_event().await? {
                Event::Stdout(bytes) => {
                    screen.draw(&bytes);
                    known = known.saturating_add(bytes.len() as u64);
                    drawn += bytes.len();
                }
                Event::Missed { stdout, .. } => {
                    known = known.saturating_add(stdout);
                    missed = true;
                }
                _ => {}
            }
        }
        Some((screen, missed))
    }
}
