//! The screen that a program has drawn, from the bytes that it printed.

use std::time::{Duration, Instant};

use crate::Filter;

/// A screen is not larger than this in either direction, nor smaller than [`SMALLEST`].
const LARGEST: u16 = 500;
const SMALLEST: u16 = 2;
/// Bytes that are looked at between two looks at the clock.
const PIECE: usize = 64;
/// How long a screen may take to be made. A program can print what takes long to draw; what is left then is not drawn.
const LONGEST: Duration = Duration::from_millis(500);

/// A picture of what a program has printed to its terminal.
pub struct Screen {
    parser: vt100::Parser<Title>,
    filter: Filter,
    deadline: Option<Instant>,
}

#[derive(Default)]
struct Title(Option<Vec<u8>>);

impl vt100::Callbacks for Title {
    fn set_window_title(&mut self, _: &mut vt100::Screen, title: &[u8]) {
        self.0 = Some(title.to_vec());
    }
}

impl Screen {
    /// An empty screen of so many rows and columns.
    pub fn new(rows: u16, columns: u16) -> Self {
        let clamp = |n: u16| n.clamp(SMALLEST, LARGEST);
        let parser = vt100::Parser::new_with_callbacks(clamp(rows), clamp(columns), 0, Title::default());
        Screen { parser, filter: Filter::new(), deadline: None }
    }

    /// Draws what a program printed next. The time for all of it together is bounded.
    pub fn draw(&mut self, bytes: &[u8]) {
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + LONGEST);
        let mut harmless = Vec::new();
        self.filter.push(bytes, &mut harmless);
        for piece in with_small_counts(&harmless).chunks(PIECE) {
            if Instant::now() >= deadline {
                return;
            }
            self.parser.process(piece);
        }
    }

    /// The text on the screen, for programs.
    pub fn text(&self) -> String {
        self.parser.screen().contents()
    }

    /// What draws the same on a terminal of so many rows and columns, whatever was there before, with the modes that the program
    /// has set. The caller's own lines are scrolled away first, and not overwritten.
    pub fn paint(&mut self, rows: u16, columns: u16) -> Vec<u8> {
        let second = self.parser.screen().alternate_screen();
        let (rows, columns) = (rows.clamp(SMALLEST, LARGEST), columns.clamp(SMALLEST, LARGEST));
        if self.parser.screen().size() != (rows, columns) {
            self.fit(rows, columns);
        }
        let mut out = Vec::new();
        match second {
            true => out.extend_from_slice(b"\x1b[?1049h"),
            false => out.extend(std::iter::repeat_n(b'\n', rows.into())),
        }
        out.extend_from_slice(&self.parser.screen().state_formatted());
        if let Some(title) = &self.parser.callbacks().0 {
            out.extend_from_slice(&[b"\x1b]2;", title.as_slice(), b"\x1b\\"].concat());
        }
        out
    }

    /// Makes the screen another size. Where it gets lower, the lines at the cursor are those that stay.
    fn fit(&mut self, rows: u16, columns: u16) {
        let (cursor, _) = self.parser.screen().cursor_position();
        if cursor >= rows && !self.parser.screen().alternate_screen() {
            let up = format!("\x1b7\x1b[r\x1b[{}S\x1b8\x1b[{}A", cursor + 1 - rows, cursor + 1 - rows);
            self.parser.process(up.as_bytes());
        }
        self.parser.screen_mut().set_size(rows, columns);
    }
}

/// The same with no count of more than three digits: who inserts more lines than there are on any screen means all of them, and the
/// parser would insert each of them. `bytes` holds whole sequences only, as the filter gives them.
fn with_small_counts(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut parts = bytes.split(|byte| *byte == 0x1b);
    out.extend_from_slice(parts.next().unwrap_or_default());
    for part in parts {
        out.push(0x1b);
        let length = match part {
            [b'[', b'0'..=b'9' | b';' | b':', ..] => {
                part.iter().skip(1).take_while(|byte| byte.is_ascii_digit() || b";:".contains(byte)).count() + 1
            }
            _ => 0,
        };
        let (head, rest) = part.split_at(length);
        for number in head.split_inclusive(|byte| !byte.is_ascii_digit()) {
            let digits = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
            out.extend_from_slice(if digits > 3 { b"999" } else { &number[..digits] });
            out.extend_from_slice(&number[digits..]);
        }
        out.extend_from_slice(rest);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a terminal shows after `bytes`.
    fn shown(rows: u16, columns: u16, bytes: &[u8]) -> vt100::Screen {
        let mut parser = vt100::Parser::new(rows, columns, 0);
        parser.process(bytes);
        parser.screen().clone()
    }

    #[test]
    fn what_was_on_the_screen_is_painted_again_with_colours_modes_and_title() {
        let printed =
            "one\r\n\x1b[38;2;1;2;3mtwo\x1b[m \u{4e2d}\u{1f600}\r\n\x1b[?2004h\x1b[?1h\x1b]2;name\x07$ ".as_bytes();
        let mut screen = Screen::new(5, 20);
        screen.draw(printed);
        let painted = screen.paint(5, 20);
        let (before, after) = (shown(5, 20, printed), shown(5, 20, &painted));
        assert_eq!(before.contents_formatted(), after.contents_formatted());
        assert!(after.bracketed_paste() && after.application_cursor());
        assert!(painted.ends_with(b"\x1b]2;name\x1b\\"));
    }

    #[test]
    fn the_second_screen_is_painted_as_one() {
        let mut screen = Screen::new(5, 20);
        screen.draw(b"$ vim\r\n\x1b[?1049h\x1b[2;3Hedited");
        let after = shown(5, 20, &screen.paint(5, 20));
        assert!(after.alternate_screen());
        assert_eq!(after.contents(), "\n  edited");
    }

    #[test]
    fn a_lower_screen_keeps_the_lines_at_the_cursor() {
        let mut screen = Screen::new(10, 20);
        screen.draw(b"a\r\nb\r\nc\r\nd\r\ne\r\n$ ");
        let after = shown(3, 20, &screen.paint(3, 20));
        assert_eq!((after.contents().as_str(), after.cursor_position()), ("d\ne\n$ ", (2, 2)));
    }

    #[test]
    fn a_program_cannot_make_the_painter_work_for_long() {
        let mut screen = Screen::new(1000, 1000);
        let started = Instant::now();
        screen.draw("\x1b[65535L\x1b[65535@\x1b[65535T".repeat(20_000).as_bytes());
        assert!(started.elapsed() < 20 * LONGEST, "{:?}", started.elapsed());
        assert_eq!(
            with_small_counts(b"a\x1b[12345;7Lb9999\x1b[?1049h\x1b[4000"),
            b"a\x1b[999;7Lb9999\x1b[?1049h\x1b[999"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_and_any_sizes_are_painted(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0x1b), Just(b'['), Just(b'5'), Just(b'\n')], 0..400),
            (rows, columns, new_rows, new_columns) in (0u16..40, 0u16..40, 0u16..40, 0u16..40),
        ) {
            let mut screen = Screen::new(rows, columns);
            screen.draw(&bytes);
            screen.draw("\u{4e2d}".as_bytes());
            let _ = screen.paint(new_rows, new_columns);
        }
    }
}
