//! A change as Git writes it: for a person to read, or as a patch for `git apply` and `patch -p1`.

use std::{borrow::Cow, fmt::Write as _};

use anstyle::{AnsiColor, Style};
use glovebox_changes::DiffLine;
use glovebox_core::{FileKind, FileState, printable};

pub(crate) const ADDED: Style = AnsiColor::Green.on_default();
pub(crate) const DELETED: Style = AnsiColor::Red.on_default();
const PLACE: Style = AnsiColor::Cyan.on_default();
const HEAD: Style = Style::new().bold();

/// Whom a change is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A person: in colours, and with nothing that could steer a terminal.
    Person,
    /// Git: byte for byte.
    Git,
}

/// A file or link that came, went, changed or was renamed, as Git knows it.
pub(crate) struct Entry<'a> {
    /// Its path before; the same as after, unless it was renamed.
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
    pub(crate) before: Option<&'a FileState>,
    pub(crate) after: Option<&'a FileState>,
    pub(crate) lines: Cow<'a, [DiffLine]>,
}

impl<'a> Entry<'a> {
    /// A link, whose target is its content.
    pub(crate) fn link(path: &'a str, before: Option<&'a FileState>, after: Option<&'a FileState>) -> Self {
        let place = DiffLine::Place(format!("@@ -{} +{} @@", count(before), count(after)));
        let gone = target(before).map(|target| [DiffLine::Removed(target), DiffLine::NoNewline]);
        let new = target(after).map(|target| [DiffLine::Added(target), DiffLine::NoNewline]);
        let lines = std::iter::once(place).chain(gone.into_iter().flatten()).chain(new.into_iter().flatten());
        Entry { from: path, to: path, before, after, lines: lines.collect() }
    }

    /// Writes it down; nothing, where Git sees no change.
    pub(crate) fn text(&self, reader: Reader) -> String {
        let header = self.header(reader);
        let mut text = String::new();
        if header.len() == 1 {
            return text;
        }
        for line in header {
            add(&mut text, reader, HEAD, &line);
        }
        for line in self.lines.iter() {
            match line {
                DiffLine::Place(line) => add(&mut text, reader, PLACE, line),
                DiffLine::Same(line) => add(&mut text, reader, Style::new(), &format!(" {}", content(reader, line))),
                DiffLine::Added(line) => add(&mut text, reader, ADDED, &format!("+{}", content(reader, line))),
                DiffLine::Removed(line) => add(&mut text, reader, DELETED, &format!("-{}", content(reader, line))),
                DiffLine::NoNewline => add(&mut text, reader, Style::new(), "\\ No newline at end of file"),
            }
        }
        text
    }

    /// The lines before the content.
    fn header(&self, reader: Reader) -> Vec<String> {
        let name = |side: &str, path: &str| quoted(reader, &format!("{side}{path}"));
        let mut header = vec![format!("diff --git {} {}", name("a/", self.from), name("b/", self.to))];
        match (self.before, self.after) {
            (None, Some(after)) => header.push(format!("new file mode {}", mode(after))),
            (Some(before), None) => header.push(format!("deleted file mode {}", mode(before))),
            (Some(before), Some(after)) if mode(before) != mode(after) => {
                header.extend([format!("old mode {}", mode(before)), format!("new mode {}", mode(after))]);
            }
            _ => {}
        }
        if self.from != self.to {
            header.push(format!("rename from {}", name("", self.from)));
            header.push(format!("rename to {}", name("", self.to)));
        }
        if !self.lines.is_empty() {
            let line = |sign: &str, side: &str, path: &str, there: bool| match there {
                // A tab ends a name with a space in it, which `patch` would cut there.
                true => format!("{sign} {}{}", name(side, path), if path.contains(' ') { "\t" } else { "" }),
                false => format!("{sign} /dev/null"),
            };
            header.push(line("---", "a/", self.from, self.before.is_some()));
            header.push(line("+++", "b/", self.to, self.after.is_some()));
        }
        header
    }
}

fn add(text: &mut String, reader: Reader, style: Style, line: &str) {
    let style = if reader == Reader::Person { style } else { Style::new() };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{style}{line}{style:#}");
}

fn content(reader: Reader, line: &str) -> Cow<'_, str> {
    match reader {
        Reader::Person => printable(line).into(),
        Reader::Git => line.into(),
    }
}

/// A name; one that would break the line is quoted, as in C.
fn quoted(reader: Reader, name: &str) -> String {
    let odd = |c: char| c.is_ascii_control() || c == '"' || c == '\\';
    if reader == Reader::Person || !name.contains(odd) {
        return content(reader, name).into_owned();
    }
    let mut text = String::from("\"");
    for c in name.chars() {
        let _ = match c {
            '"' | '\\' => write!(text, "\\{c}"),
            c if c.is_ascii_control() => write!(text, "\\{:03o}", u32::from(c)),
            c => write!(text, "{c}"),
        };
    }
    text + "\""
}

/// Git knows of a mode only whether it is a link, and whether somebody may execute it.
fn mode(state: &FileState) -> u32 {
    match state.kind {
        FileKind::Symlink { .. } => 120_000,
        _ if state.mode & 0o111 != 0 => 100_755,
        _ => 100_644,
    }
}

fn target(state: Option<&FileState>) -> Option<String> {
    match state.map(|state| &state.kind) {
        Some(FileKind::Symlink { target }) => Some(target.clone()),
        _ => None,
    }
}

fn count(state: Option<&FileState>) -> &'static str {
    if state.is_some() { "1" } else { "0,0" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_break_a_line_are_quoted_for_git_and_made_safe_for_people() {
        assert_eq!(quoted(Reader::Git, "a/two words ü"), "a/two words ü");
        assert_eq!(quoted(Reader::Git, "a/new\nline \"x\" \\"), r#""a/new\012line \"x\" \\""#);
        assert_eq!(quoted(Reader::Person, "a/\u{1b}[2J"), r"a/\u{1b}[2J");
    }
}
