//! Escape and control sequences: which of them are let through, and how what they change is put back.

use std::ops::BitOr;

/// Modes that a program may set and reset, with what they are before anybody does. All are put back at the end.
///
/// Not here are those that make a terminal answer in another way than programs of the host expect, that change its size, that turn it
/// into an older terminal, or that lock the keyboard.
// tidy: table
const MODES: [(u16, bool); 41] = [
    // Keys: cursor keys and keypad of applications, keys that repeat, meta as a bit or as an escape character.
    (1, false),
    (8, true),
    (66, false),
    (67, false),
    (1034, false),
    (1035, true),
    (1036, true),
    (1039, true),
    // How things are drawn: reverse video, origin, wrapping, left and right margins, the cursor.
    (5, false),
    (6, false),
    (7, true),
    (12, false),
    (25, true),
    (45, false),
    (69, false),
    (1045, false),
    // The mouse, and the focus of the window.
    (9, false),
    (1000, false),
    (1001, false),
    (1002, false),
    (1003, false),
    (1004, false),
    (1005, false),
    (1006, false),
    (1007, false),
    (1015, false),
    (1016, false),
    // The second screen, and the cursor that is kept for it.
    (47, false),
    (1047, false),
    (1048, false),
    (1049, false),
    // Pasting, drawing at one go, width of characters, changes of colours and of the size told as keys.
    (2004, false),
    (2026, false),
    (2027, false),
    (2031, false),
    (2048, false),
    // Pictures.
    (80, false),
    (1070, true),
    (8452, false),
    // Scrolling at once or smoothly; the second only looks different.
    (4, false),
    (1010, false),
];

/// Modes that make the terminal send what nobody typed.
const REPORTING: [u16; 9] = [9, 1000, 1001, 1002, 1003, 1004, 2031, 2048, 2004];
/// Modes that show the second screen.
const SECOND_SCREEN: [u16; 3] = [47, 1047, 1049];
/// So many keyboard states can be put on top of each other. Terminals keep about as many.
const MOST_KEYBOARDS: u16 = 16;

/// What a program has changed, beside [`MODES`]. Each is put back by one sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed(u32);

impl BitOr for Changed {
    type Output = Changed;
    fn bitor(self, other: Changed) -> Changed {
        Changed(self.0 | other.0)
    }
}

impl Changed {
    pub(crate) const ATTRIBUTES: Changed = Changed(1);
    pub(crate) const CHARSETS: Changed = Changed(1 << 1);
    pub(crate) const KEYPAD: Changed = Changed(1 << 2);
    pub(crate) const INSERT: Changed = Changed(1 << 3);
    pub(crate) const NEW_LINE: Changed = Changed(1 << 4);
    pub(crate) const MARGINS: Changed = Changed(1 << 5);
    pub(crate) const CURSOR_STYLE: Changed = Changed(1 << 6);
    pub(crate) const MODIFIED_KEYS: Changed = Changed(1 << 7);
    pub(crate) const PALETTE: Changed = Changed(1 << 8);
    pub(crate) const FOREGROUND: Changed = Changed(1 << 9);
    pub(crate) const BACKGROUND: Changed = Changed(1 << 10);
    pub(crate) const CURSOR_COLOUR: Changed = Changed(1 << 11);
    pub(crate) const LINK: Changed = Changed(1 << 12);
    pub(crate) const TITLE: Changed = Changed(1 << 13);

    /// How each is put back. Margins also move the cursor, which is therefore kept meanwhile.
    const UNDO: [(Changed, &'static [u8]); 14] = [
        (Changed::LINK, b"\x1b]8;;\x1b\\"),
        (Changed::ATTRIBUTES, b"\x1b[m"),
        (Changed::CHARSETS, b"\x0f\x1b(B\x1b)B\x1b*B\x1b+B"),
        (Changed::KEYPAD, b"\x1b>"),
        (Changed::INSERT, b"\x1b[4l"),
        (Changed::NEW_LINE, b"\x1b[20l"),
        (Changed::MARGINS, b"\x1b7\x1b[r\x1b8"),
        (Changed::CURSOR_STYLE, b"\x1b[0 q"),
        (Changed::MODIFIED_KEYS, b"\x1b[>4m"),
        (Changed::PALETTE, b"\x1b]104\x1b\\"),
        (Changed::FOREGROUND, b"\x1b]110\x1b\\"),
        (Changed::BACKGROUND, b"\x1b]111\x1b\\"),
        (Changed::CURSOR_COLOUR, b"\x1b]112\x1b\\"),
        (Changed::TITLE, b"\x1b[23;0t"),
    ];

    fn has(self, other: Changed) -> bool {
        self.0 & other.0 != 0
    }
}

/// What a program has changed of a terminal.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Modes of [`MODES`] that are not as they were, by their place.
    modes: u64,
    changed: Changed,
    /// Keyboard states that the program has put on top of the caller's: on the first screen and on the second.
    keyboards: [u16; 2],
}

/// What becomes of a control sequence.
enum Verdict {
    Drop,
    /// It only draws or moves.
    Pass,
    /// It changes what is put back at the end.
    Change(Changed),
    /// The terminal answers it.
    Ask,
}

impl State {
    /// Notes a change, and says whether it is the first of its kind.
    pub(crate) fn change(&mut self, change: Changed) -> bool {
        let first = !self.changed.has(change);
        self.changed = self.changed | change;
        first
    }

    /// Whether the terminal may send what nobody typed, because of a mode.
    pub(crate) fn may_report(&self) -> bool {
        REPORTING.iter().any(|number| self.is_changed(*number)) || self.keyboards != [0, 0]
    }

    fn is_changed(&self, number: u16) -> bool {
        MODES.iter().position(|(known, _)| *known == number).is_some_and(|at| self.modes & (1 << at) != 0)
    }

    fn second_screen(&self) -> usize {
        usize::from(SECOND_SCREEN.iter().any(|number| self.is_changed(*number)))
    }

    /// Adds what puts everything back.
    pub(crate) fn restore(&mut self, out: &mut Vec<u8>) {
        for (change, undo) in Changed::UNDO {
            if self.changed.has(change) {
                out.extend_from_slice(undo);
            }
        }
        self.changed = Changed::default();
        // Each screen has keyboard states of its own; those of the second are taken away while it is shown.
        for screen in [1, 0] {
            if self.keyboards[screen] > 0 && screen == self.second_screen() {
                out.extend_from_slice(format!("\x1b[<{}u", self.keyboards[screen]).as_bytes());
                self.keyboards[screen] = 0;
            }
            if screen == 1 {
                self.restore_modes(out);
            }
        }
        self.keyboards = [0, 0];
    }

    fn restore_modes(&mut self, out: &mut Vec<u8>) {
        for (at, (number, normal)) in MODES.iter().enumerate() {
            if self.modes & (1 << at) != 0 {
                let end = if *normal { 'h' } else { 'l' };
                out.extend_from_slice(format!("\x1b[?{number}{end}").as_bytes());
            }
        }
        self.modes = 0;
    }

    /// Judges an escape sequence without parameters. `held` is all of it.
    pub(crate) fn escape(&mut self, held: &[u8], out: &mut Vec<u8>) {
        match &held[1..] {
            // Keep and bring back the cursor, move it, shift for one character.
            b"7" | b"8" | b"D" | b"E" | b"M" | b"N" | b"O" => {}
            b"=" | b">" => drop(self.change(Changed::KEYPAD)),
            // Lines of double size, and the test picture.
            b"#3" | b"#4" | b"#5" | b"#6" | b"#8" => {}
            [b'(' | b')' | b'*' | b'+', b'0' | b'A' | b'B'] => drop(self.change(Changed::CHARSETS)),
            // The encoding is UTF-8 as it is.
            b"%G" => {}
            b"c" => return self.reset(out),
            _ => return,
        }
        out.extend_from_slice(held);
    }

    /// In place of the full reset, which would take away the caller's settings and earlier output too: what the program changed is put
    /// back, and the screen cleared.
    fn reset(&mut self, out: &mut Vec<u8>) {
        self.restore(out);
        out.extend_from_slice(b"\x1b[!p\x1b[H\x1b[2J");
    }

    /// Judges a control sequence. `held` is all of it. Says whether the terminal answers it.
    pub(crate) fn control(&mut self, held: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(parts) = Parts::of(held) else { return false };
        let verdict = match (parts.private, parts.between, parts.last) {
            (Some(b'?'), b"", b'h' | b'l') => return self.set_modes(&parts, held, out),
            (Some(b'>' | b'<' | b'='), b"", b'u') => return self.keyboard(&parts, held, out),
            _ => judge(&parts),
        };
        match verdict {
            Verdict::Drop => return false,
            Verdict::Pass | Verdict::Ask => {}
            Verdict::Change(change) => drop(self.change(change)),
        }
        out.extend_from_slice(held);
        matches!(verdict, Verdict::Ask)
    }

    /// Sets or resets modes, if all of them are known.
    fn set_modes(&mut self, parts: &Parts<'_>, held: &[u8], out: &mut Vec<u8>) -> bool {
        let on = parts.last == b'h';
        let places: Option<Vec<usize>> =
            parts.numbers().map(|number| MODES.iter().position(|(known, _)| Some(*known) == number)).collect();
        for at in places.iter().flatten() {
            match on == MODES[*at].1 {
                true => self.modes &= !(1 << at),
                false => self.modes |= 1 << at,
            }
        }
        if places.is_some() {
            out.extend_from_slice(held);
        }
        false
    }

    /// Keyboard states: the program may put some on top, and take away only those.
    fn keyboard(&mut self, parts: &Parts<'_>, held: &[u8], out: &mut Vec<u8>) -> bool {
        let screen = self.second_screen();
        let count = &mut self.keyboards[screen];
        let first = parts.numbers().next().flatten();
        match parts.private {
            Some(b'>') if *count < MOST_KEYBOARDS => *count += 1,
            Some(b'<') if first.unwrap_or(1).max(1) <= *count => *count -= first.unwrap_or(1).max(1),
            Some(b'=') => {
                if *count == 0 {
                    // What it changes is one of its own then.
                    *count = 1;
                    out.extend_from_slice(b"\x1b[>0u");
                }
            }
            _ => return false,
        }
        out.extend_from_slice(held);
        false
    }
}

/// A character is repeated no more often than this at one go.
const MOST_REPEATS: u16 = 10_000;

/// Judges a control sequence that needs no more than a look at it.
fn judge(parts: &Parts<'_>) -> Verdict {
    let first = parts.numbers().next().flatten().unwrap_or(0);
    match (parts.private, parts.between, parts.last) {
        // More often than there are places on any screen.
        (None, b"", b'b') if parts.numbers().next().flatten().is_none_or(|times| times > MOST_REPEATS) => Verdict::Drop,
        // Movement, erasing, inserting, deleting, scrolling, repeating.
        (None, b"", b'@'..=b'I' | b'K'..=b'M' | b'P' | b'S' | b'T' | b'X' | b'Z' | b'`' | b'a' | b'b') => Verdict::Pass,
        (None, b"", b'd' | b'e' | b'f' | b'u') => Verdict::Pass,
        // All but what is above the screen: it was there before the program.
        (None | Some(b'?'), b"", b'J') if first <= 2 => Verdict::Pass,
        (Some(b'?'), b"", b'K') => Verdict::Pass,
        (None, b"", b'm') => Verdict::Change(Changed::ATTRIBUTES),
        // Top and bottom margin; left and right margin, or keeping the cursor.
        (None, b"", b'r') => Verdict::Change(Changed::MARGINS),
        (None, b"", b's') => Verdict::Pass,
        (None, b"", b'h' | b'l') if parts.are_all(4) => Verdict::Change(Changed::INSERT),
        (None, b"", b'h' | b'l') if parts.are_all(20) => Verdict::Change(Changed::NEW_LINE),
        // Size of the window, of a character and of the screen. To put titles aside and take them back is ours, or one of the
        // program's would come back at the end in place of the caller's.
        (None, b"", b't') if [14, 16, 18].contains(&first) => Verdict::Ask,
        // Where the cursor is, what the terminal is, whether a mode is set, which keyboard states there are.
        (None, b"", b'n') if [5, 6].contains(&first) => Verdict::Ask,
        (Some(b'?'), b"", b'n') if [6, 996].contains(&first) => Verdict::Ask,
        (None | Some(b'>'), b"", b'c') if first == 0 => Verdict::Ask,
        (Some(b'>'), b"", b'q') if first == 0 => Verdict::Ask,
        (None | Some(b'?'), b"$", b'p') => Verdict::Ask,
        (Some(b'?'), b"", b'm' | b'u') => Verdict::Ask,
        (Some(b'>'), b"", b'm' | b'n') if first == 4 => Verdict::Change(Changed::MODIFIED_KEYS),
        (None, b" ", b'q') => Verdict::Change(Changed::CURSOR_STYLE),
        // Scrolling sideways, columns, what is protected from erasing, the soft reset.
        (None, b" ", b'@' | b'A') | (None, b"'", b'}' | b'~') | (None, b"\"", b'q') | (None, b"!", b'p') => {
            Verdict::Pass
        }
        // Filling, erasing, copying and colouring rectangles.
        (None, b"$", b'r' | b't' | b'v' | b'x' | b'z' | b'{') => Verdict::Change(Changed::ATTRIBUTES),
        // Attributes put aside and taken back.
        (None, b"#", b'p' | b'q' | b'{' | b'}') => Verdict::Change(Changed::ATTRIBUTES),
        _ => Verdict::Drop,
    }
}

/// A control sequence, taken apart.
struct Parts<'a> {
    private: Option<u8>,
    parameters: &'a [u8],
    between: &'a [u8],
    last: u8,
}

impl<'a> Parts<'a> {
    /// Nothing where the parts are not in their order: terminals do not agree on what that means.
    fn of(held: &'a [u8]) -> Option<Self> {
        let (last, body) = held.get(2..)?.split_last()?;
        let (private, body) = match body.split_first() {
            Some((mark @ 0x3c..=0x3f, rest)) => (Some(*mark), rest),
            _ => (None, body),
        };
        let length = body.iter().position(|byte| !(0x30..=0x3b).contains(byte)).unwrap_or(body.len());
        let (parameters, between) = body.split_at(length);
        let in_order = between.iter().all(|byte| (0x20..=0x2f).contains(byte));
        in_order.then_some(Parts { private, parameters, between, last: *last })
    }

    /// The parameters; nothing for one that is no number.
    fn numbers(&self) -> impl Iterator<Item = Option<u16>> + use<'a> {
        self.parameters.split(|byte| *byte == b';').map(|digits| match digits {
            [] => Some(0),
            _ => std::str::from_utf8(digits).ok()?.parse().ok(),
        })
    }

    fn are_all(&self, wanted: u16) -> bool {
        self.numbers().all(|number| number == Some(wanted))
    }
}
