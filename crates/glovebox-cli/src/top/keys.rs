//! What the keys do.

use glovebox_core::{SandboxId, SandboxState};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::state::{Act, Focus, Order, Page, Top};

/// Every key and what it does, for the help.
pub(crate) const HELP: [(&str, &str); 10] = [
    ("up/down, k/j", "select; PgUp, PgDn, Home or g, End or G too"),
    ("Enter", "details of the sandbox: larger plots, its runs"),
    ("c m i n a", "sort by CPU, memory, I/O, name, age; s takes the next"),
    ("/", "show only those with a text in name, state, label …"),
    ("p", "pause, or resume one that is paused"),
    ("x, d, Del", "destroy, after a question"),
    ("Esc, q", "back, as Enter and Backspace; from the list: quit"),
    ("Ctrl-C", "quit"),
    ("Ctrl-Z", "stop; fg goes on"),
    ("?, F1", "this help"),
];

/// A page of rows, for PgUp and PgDn.
const PAGE: usize = 10;
/// A filter is no longer than this.
const LONGEST_FILTER: usize = 64;

/// What a key asks for that the state alone cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Quit,
    Stop,
    Do(Act, SandboxId),
}

impl Top {
    /// Takes a key.
    pub(crate) fn press(&mut self, key: KeyEvent) -> Option<Wish> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Some(Wish::Quit),
            KeyCode::Char('z') if control => return Some(Wish::Stop),
            KeyCode::Char(_) if control => return None,
            _ => {}
        }
        self.message = None;
        match self.focus {
            Focus::Help => {
                self.focus = Focus::Page;
                None
            }
            Focus::Confirm(id) => {
                self.focus = Focus::Page;
                let yes = matches!(key.code, KeyCode::Char('y' | 'Y'));
                yes.then_some(Wish::Do(Act::Destroy, id))
            }
            Focus::Filter => {
                self.edit_filter(key.code);
                None
            }
            Focus::Page => self.press_on_page(key.code),
        }
    }

    fn edit_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.focus = Focus::Page,
            KeyCode::Esc => {
                self.focus = Focus::Page;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(character) if self.filter.chars().count() < LONGEST_FILTER => self.filter.push(character),
            _ => {}
        }
        self.arrange();
    }

    fn press_on_page(&mut self, key: KeyCode) -> Option<Wish> {
        match key {
            KeyCode::Char('?') | KeyCode::F(1) => self.focus = Focus::Help,
            KeyCode::Char('p') => return self.pause_or_resume(),
            KeyCode::Char('x' | 'd') | KeyCode::Delete => match self.subject().map(|seen| seen.status.sandbox) {
                Some(id) => self.focus = Focus::Confirm(id),
                None => self.message = Some("there is no sandbox to destroy".to_owned()),
            },
            key => match self.page {
                Page::List => return self.press_on_list(key),
                Page::Details(_) => {
                    if matches!(key, KeyCode::Char('q') | KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace) {
                        self.page = Page::List;
                    }
                }
            },
        }
        None
    }

    fn press_on_list(&mut self, key: KeyCode) -> Option<Wish> {
        let at = self.selected_at();
        match key {
            KeyCode::Char('q') => return Some(Wish::Quit),
            KeyCode::Esc if self.filter.is_empty() => return Some(Wish::Quit),
            KeyCode::Esc => {
                self.filter.clear();
                self.arrange();
            }
            KeyCode::Up | KeyCode::Char('k') => self.select(at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(at + 1),
            KeyCode::PageUp => self.select(at.saturating_sub(PAGE)),
            KeyCode::PageDown => self.select(at + PAGE),
            KeyCode::Home | KeyCode::Char('g') => self.select_first(),
            KeyCode::End | KeyCode::Char('G') => self.select(usize::MAX),
            KeyCode::Enter => {
                if let Some(id) = self.subject().map(|seen| seen.status.sandbox) {
                    self.page = Page::Details(id);
                }
            }
            KeyCode::Char('/') => self.focus = Focus::Filter,
            KeyCode::Char('c') => self.sort_by(Order::Cpu),
            KeyCode::Char('m') => self.sort_by(Order::Memory),
            KeyCode::Char('i') => self.sort_by(Order::Io),
            KeyCode::Char('n') => self.sort_by(Order::Name),
            KeyCode::Char('a') => self.sort_by(Order::Age),
            KeyCode::Char('s') => {
                let now = Order::ALL.iter().position(|order| *order == self.order).unwrap_or(0);
                self.sort_by(Order::ALL[(now + 1) % Order::ALL.len()]);
            }
            _ => {}
        }
        None
    }

    fn pause_or_resume(&mut self) -> Option<Wish> {
        let seen = self.subject()?;
        let (id, name) = (seen.status.sandbox, seen.name());
        match seen.status.state {
            SandboxState::Ready => Some(Wish::Do(Act::Pause, id)),
            SandboxState::Paused => Some(Wish::Do(Act::Resume, id)),
            state => {
                self.message = Some(format!("{name} is {state}: there is nothing to pause"));
                None
            }
        }
    }
}
