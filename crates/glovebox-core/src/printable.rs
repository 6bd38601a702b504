//! Text that somebody else chose, as a terminal may show it.

use std::fmt::Write as _;

/// The text with everything escaped that would steer a terminal or deceive a reader: control characters, marks that turn
/// the direction of writing, and characters that have no width. Tabs stay.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\t' => shown.push('\t'),
            '\r' => shown.push_str("\\r"),
            '\n' => shown.push_str("\\n"),
            c if c.is_control() || misleads(c) => {
                // Writing to a String cannot fail.
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
            }
            c => shown.push(c),
        }
    }
    shown
}

/// Characters that cannot be seen and change how others are seen.
fn misleads(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_or_deceives_a_reader_gets_through() {
        assert_eq!(printable("a\x1b[31mb\x07\u{9b}0m"), "a\\u{1b}[31mb\\u{7}\\u{9b}0m");
        assert_eq!(printable("if \u{202e}x\u{2066} \u{200b}"), "if \\u{202e}x\\u{2066} \\u{200b}");
        assert_eq!(printable("one\ntwo\r\tthree äöü 漢字"), "one\\ntwo\\r\tthree äöü 漢字");
    }
}
