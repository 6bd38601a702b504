//! What programs wrote, as a model may read it: bounded, and without what would steer a terminal.

use std::fmt::Write as _;

use glovebox_core::Secret;
use serde_json::Value;

/// So many bytes of a stream reach a model: half of its beginning, half of its end.
pub(crate) const SHOWN: usize = 16 * 1024;

/// A text that may be a part of a longer one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Shortened {
    /// Head and tail, with a line between them that says how much was left out.
    pub(crate) text: String,
    /// Bytes that were left out.
    pub(crate) omitted: u64,
}

/// Output as text: head and tail when it is long. `bytes` is how many the program wrote, of which `kept` may be a part.
pub(crate) fn shorten(kept: &[u8], bytes: u64) -> Shortened {
    if kept.len() <= SHOWN {
        let omitted = bytes.saturating_sub(kept.len() as u64);
        return Shortened { text: readable(kept), omitted };
    }
    let head = &kept[..line_end(kept, SHOWN / 2)];
    let tail = &kept[line_start(kept, kept.len() - SHOWN / 2)..];
    let shown = (head.len() + tail.len()) as u64;
    let omitted = bytes.max(kept.len() as u64) - shown;
    let text = format!("{}\n[... {omitted} bytes left out ...]\n{}", readable(head).trim_end(), readable(tail));
    Shortened { text, omitted }
}

/// The end of the last line before a place, or of the last character where the line is long.
fn line_end(bytes: &[u8], place: usize) -> usize {
    let near = place.saturating_sub(1024);
    match bytes[near..place].iter().rposition(|byte| *byte == b'\n') {
        Some(at) => near + at + 1,
        None => (near..=place).rev().find(|at| is_boundary(bytes, *at)).unwrap_or(place),
    }
}

/// The start of the first line after a place, or of the first character where the line is long.
fn line_start(bytes: &[u8], place: usize) -> usize {
    let near = (place + 1024).min(bytes.len());
    match bytes[place..near].iter().position(|byte| *byte == b'\n') {
        Some(at) => place + at + 1,
        None => (place..near).find(|at| is_boundary(bytes, *at)).unwrap_or(place),
    }
}

fn is_boundary(bytes: &[u8], at: usize) -> bool {
    bytes.get(at).is_none_or(|byte| byte & 0xc0 != 0x80)
}

/// Bytes as text: colours and other orders to a terminal are taken out, and what is left of control characters is spelled.
pub(crate) fn readable(bytes: &[u8]) -> String {
    let plain = String::from_utf8_lossy(bytes);
    let stripped = anstream::adapter::strip_str(&plain).to_string();
    let mut text = String::with_capacity(stripped.len());
    let mut characters = stripped.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\n' | '\t' => text.push(character),
            // A line that is written over, as progress bars do, is a line.
            '\r' if characters.peek() != Some(&'\n') => text.push('\n'),
            '\r' => {}
            c if c.is_control() => {
                // Writing to a String cannot fail.
                let _ = write!(text, "\\x{:02x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text
}

/// Masks secrets in a text.
pub(crate) fn mask(secrets: &[&Secret], text: &mut String) {
    if secrets.iter().any(|secret| secret.is_in(text.as_bytes())) {
        let masked = Secret::mask_all(secrets.iter().copied(), std::mem::take(text).into_bytes());
        *text = String::from_utf8_lossy(&masked).into_owned();
    }
}

/// Masks secrets in every text of a document.
pub(crate) fn mask_value(secrets: &[&Secret], value: &mut Value) {
    match value {
        Value::String(text) => mask(secrets, text),
        Value::Array(items) => items.iter_mut().for_each(|item| mask_value(secrets, item)),
        Value::Object(fields) => fields.values_mut().for_each(|field| mask_value(secrets, field)),
        _ => {}
    }
}

/// A text cut to so many characters, with a mark where it was cut.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// A size for people and models.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(&str, u32); 3] = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match UNITS.iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / f64::from(1_u32 << shift)),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_output_keeps_its_head_and_its_tail_by_whole_lines() {
        let lines: String = (0..10_000).map(|n| format!("line {n}\n")).collect();
        let short = shorten(lines.as_bytes(), lines.len() as u64);
        assert!(short.text.starts_with("line 0\nline 1\n") && short.text.ends_with("line 9999\n"));
        let marker = short.text.lines().position(|line| line.contains("bytes left out")).unwrap();
        let all: Vec<&str> = short.text.lines().collect();
        assert!(lines.contains(&format!("{}\n", all[marker - 1])) && lines.contains(&format!("{}\n", all[marker + 1])));
        let without_marker: usize = short.text.len() - all[marker].len() - 1;
        assert_eq!(without_marker as u64 + short.omitted, lines.len() as u64);
        assert_eq!(shorten(b"short\n", 6), Shortened { text: "short\n".into(), omitted: 0 });
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let line = "ü".repeat(30_000);
        let short = shorten(line.as_bytes(), line.len() as u64);
        assert!(!short.text.contains('\u{fffd}'));
        assert!(short.omitted > 20_000);
    }

    #[test]
    fn what_steers_a_terminal_is_taken_out_or_spelled() {
        assert_eq!(readable(b"\x1b[31mred\x1b[0m\x07 a\rb\r\nc\x1b]0;title\x07d"), "red a\nb\ncd");
        assert_eq!(readable("a\u{9b}2Jb".as_bytes()), "a\\x9b2Jb");
        assert_eq!(readable(b"\xff ok\t1\n"), "\u{fffd} ok\t1\n");
    }

    #[test]
    fn secrets_are_masked_in_every_text_of_a_document() {
        let secret = Secret::new("hunter2");
        let mut value = serde_json::json!({ "a": ["x hunter2 y", { "b": "hunter2" }], "n": 1 });
        mask_value(&[&secret], &mut value);
        assert_eq!(value.to_string(), r#"{"a":["x [redacted] y",{"b":"[redacted]"}],"n":1}"#);
    }
}
