//! The filter before the caller's terminal and the painter of screens get what programs print, who mean no good. However it is cut
//! into pieces, the same must pass; what has passed must pass again unchanged; none of what types or reaches outside may be in it; and
//! nothing may make the painter panic or work for long.
#![no_main]

use std::time::{Duration, Instant};

use glovebox_terminal::{Filter, Keys, Screen};
use libfuzzer_sys::fuzz_target;

/// Beginnings of sequences that never pass: answers that hold what the program chose, the clipboard, files, strings among programs.
const NEVER: [&[u8]; 15] = [
    b"\x05", b"\x1b[21t", b"\x1b[20t", b"\x1bP$", b"\x1bP+", b"\x1bPt", b"\x1b]5", b"\x1b]7", b"\x1b]9", b"\x1b]13", b"\x1b_",
    b"\x1b^", b"\x1bX", b"\x1bk", b"\x1bc",
];

fuzz_target!(|input: (u8, u8, u8, Vec<u8>)| {
    let (piece, rows, columns, bytes) = input;
    let whole = filtered(&bytes, bytes.len().max(1), true);
    assert_eq!(whole, filtered(&bytes, usize::from(piece).max(1), true));
    for never in NEVER {
        assert!(!whole.windows(never.len()).any(|part| part == never), "{}", whole.escape_ascii());
    }
    let text = String::from_utf8(whole).expect("only text passes");
    assert!(text.chars().all(|c| !('\u{80}'..'\u{a0}').contains(&c)), "a control above 0x80 passed");
    // The second filter puts the former title aside as the first did; nothing else differs.
    let again = String::from_utf8(filtered(text.as_bytes(), text.len().max(1), false)).expect("only text passes");
    assert_eq!(again.replace("\x1b[22;0t", ""), text.replace("\x1b[22;0t", ""));

    let (mut keys, mut typed) = (Keys::default(), Vec::new());
    let detached = bytes.chunks(usize::from(piece).max(1)).any(|piece| keys.push(piece, &mut typed));
    assert!(detached || typed.len() <= bytes.len());

    let started = Instant::now();
    let mut screen = Screen::new(rows.into(), columns.into());
    screen.draw(&bytes);
    let painted = screen.paint(columns.into(), rows.into());
    // What is painted is made by us, and still nothing else than what may pass.
    filtered(&painted, painted.len(), true);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
});

fn filtered(bytes: &[u8], piece: usize, restored: bool) -> Vec<u8> {
    let (mut filter, mut out) = (Filter::new(), Vec::new());
    bytes.chunks(piece).for_each(|piece| filter.push(piece, &mut out));
    if restored {
        filter.restore(&mut out);
    }
    out
}
