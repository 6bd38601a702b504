//! Operating system commands: titles, colours and links, and nothing else.

use crate::modes::{Changed, State};

/// Characters of a title.
const LONGEST_TITLE: usize = 256;
/// Bytes of a link. Browsers take about as many.
const LONGEST_LINK: usize = 2083;
/// Links that only show something when they are followed. Others start programs, some of them with words out of the link.
const SCHEMES: [&[u8]; 3] = [b"https://", b"http://", b"mailto:"];

/// Judges a command and adds it to `out`, with its end, if it is harmless. Says whether the terminal answers it.
pub(crate) fn command(body: &[u8], end: &[u8], state: &mut State, out: &mut Vec<u8>) -> bool {
    let (number, text) = match body.iter().position(|byte| *byte == b';') {
        Some(at) => (&body[..at], Some(&body[at + 1..])),
        None => (body, None),
    };
    let passed = match (number, text) {
        (b"0" | b"1" | b"2", Some(text)) => return title(number, text, end, state, out),
        (b"8", Some(text)) => link(text, state),
        (b"4", Some(text)) => colours(text, Changed::PALETTE, state),
        (b"10", Some(text)) => colours(text, Changed::FOREGROUND | Changed::BACKGROUND | Changed::CURSOR_COLOUR, state),
        (b"11", Some(text)) => colours(text, Changed::BACKGROUND | Changed::CURSOR_COLOUR, state),
        (b"12", Some(text)) => colours(text, Changed::CURSOR_COLOUR, state),
        (b"104", Some(text)) => text.iter().all(|byte| byte.is_ascii_digit() || *byte == b';'),
        (b"104" | b"110" | b"111" | b"112", None | Some(b"")) => true,
        _ => false,
    };
    if passed {
        add(body, end, out);
    }
    // A question mark in place of a colour asks for it.
    passed && !number.starts_with(b"8") && body.contains(&b'?')
}

fn add(body: &[u8], end: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"\x1b]");
    out.extend_from_slice(body);
    out.extend_from_slice(end);
}

/// A title, without what is no text in it. The one before is put aside first.
fn title(number: &[u8], text: &[u8], end: &[u8], state: &mut State, out: &mut Vec<u8>) -> bool {
    let clean: String = String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).take(LONGEST_TITLE).collect();
    if state.change(Changed::TITLE) {
        out.extend_from_slice(b"\x1b[22;0t");
    }
    add(&[number, b";", clean.as_bytes()].concat(), end, out);
    false
}

/// Whether these are colours or questions for them, and nothing but.
fn colours(text: &[u8], change: Changed, state: &mut State) -> bool {
    let harmless = |byte: &u8| byte.is_ascii_alphanumeric() || b";:#/?,. ".contains(byte);
    let passed = text.iter().all(harmless);
    if passed {
        state.change(change);
    }
    passed
}

/// Whether this begins a link that may be shown, or ends one.
fn link(text: &[u8], state: &mut State) -> bool {
    let Some(at) = text.iter().position(|byte| *byte == b';') else { return false };
    let (parameters, target) = (&text[..at], &text[at + 1..]);
    let named = parameters.iter().all(|byte| byte.is_ascii_alphanumeric() || b"=:-_.".contains(byte));
    let known = target.is_empty() || SCHEMES.iter().any(|scheme| target.starts_with(scheme));
    let printable = target.len() <= LONGEST_LINK && target.iter().all(u8::is_ascii_graphic);
    let passed = named && known && printable;
    if passed {
        state.change(Changed::LINK);
    }
    passed
}
