use super::*;
use proptest::prelude::*;

fn filtered(bytes: &[u8]) -> Vec<u8> {
    let (mut filter, mut out) = (Filter::new(), Vec::new());
    filter.push(bytes, &mut out);
    out
}

#[test]
fn questions_of_a_program_that_is_over_are_not_asked_and_all_else_is_as_it_was() {
    let questions: [&[u8]; 8] = [
        b"\x1b[6n",
        b"\x1b[c",
        b"\x1b[>0q",
        b"\x1b[?2026$p",
        b"\x1b[18t",
        b"\x1b[?u",
        b"\x1b]11;?\x1b\\",
        b"\x1b]4;1;?\x07",
    ];
    for question in questions {
        let (mut filter, mut out) = (Filter::of_the_past(), Vec::new());
        filter.push(&[b"\x1b[1ma", question, "\u{e4}\x1b]2;t\x07\x1b[?25l".as_bytes()].concat(), &mut out);
        let plain = filtered("\x1b[1ma\u{e4}\x1b]2;t\x07\x1b[?25l".as_bytes());
        assert_eq!(out.escape_ascii().to_string(), plain.escape_ascii().to_string());
        assert!(!filter.may_answer());
    }
}

/// What goes to the terminal, for people who read a failure.
fn text(bytes: &[u8]) -> String {
    filtered(bytes).escape_ascii().to_string()
}

/// Sequences that pass as they are. None of them changes what passes after it.
const HARMLESS: [&[u8]; 57] = [
    b"plain text, tabs\tand lines\r\n\x08\x07",
    "\u{e4}\u{20ac}\u{4e2d}\u{1f600}\u{1f469}\u{200d}\u{1f680}".as_bytes(),
    b"\x1b[m\x1b[1;31m\x1b[38;5;200m\x1b[48;2;10;20;30m\x1b[4:3m\x1b[58:2::1:2:3m",
    b"\x1b[H\x1b[2J\x1b[K\x1b[1K\x1b[10;20H\x1b[5A\x1b[6B\x1b[7C\x1b[8D\x1b[3G\x1b[4d",
    b"\x1b[2L\x1b[3M\x1b[4P\x1b[5@\x1b[6X\x1b[2S\x1b[3T\x1b[7b",
    b"\x1b7\x1b8\x1b[s\x1b[u\x1bM\x1bD\x1bE",
    b"\x1b(0lqk\x1b(B\x0e\x0f",
    b"\x1b=\x1b>",
    b"\x1b[?1049h\x1b[?1049l",
    b"\x1b[?25l\x1b[?25h\x1b[?12;25h\x1b[?7l\x1b[?7h",
    b"\x1b[?1000h\x1b[?1002h\x1b[?1006h\x1b[?1006l\x1b[?1002l\x1b[?1000l",
    b"\x1b[?2004h\x1b[?2004l\x1b[?2026h\x1b[?2026l\x1b[?1004h\x1b[?1004l",
    b"\x1b[?1h\x1b[?1l",
    b"\x1b[1;24r\x1b[r",
    b"\x1b[4h\x1b[4l",
    b"\x1b[2 q\x1b[ q",
    b"\x1b[!p",
    b"\x1b[6n",
    b"\x1b[5n",
    b"\x1b[?6n",
    b"\x1b[c",
    b"\x1b[0c",
    b"\x1b[>c",
    b"\x1b[>0q",
    b"\x1b[?2026$p",
    b"\x1b[4$p",
    b"\x1b[?u",
    b"\x1b[14t",
    b"\x1b[16t",
    b"\x1b[18t",
    b"\x1b[>4;2m\x1b[>4m",
    b"\x1b[>1u\x1b[<u",
    b"\x1b[>1u\x1b[=5;1u\x1b[<1u",
    b"\x1b]4;1;#ff0000\x1b\\",
    b"\x1b]4;1;rgb:ff/00/00\x07",
    b"\x1b]4;1;?\x07",
    b"\x1b]10;?\x07",
    b"\x1b]11;?\x1b\\",
    b"\x1b]12;red\x07",
    b"\x1b]104\x07",
    b"\x1b]104;1;2\x07",
    b"\x1b]110\x07\x1b]111\x1b\\\x1b]112\x07",
    b"\x1b]8;;https://example.com/a?b=c#d\x1b\\link\x1b]8;;\x1b\\",
    b"\x1b]8;id=1;http://example.com\x07link\x1b]8;;\x07",
    b"\x1bPq#0;2;0;0;0#0~~@@vv@@~~$-\x1b\\",
    b"\x1bP0;1;0q\"1;1;2;2#1!255~\r\n-\x1b\\",
    b"\x1b#8",
    b"\x1b%G",
    b"\x1b[#{\x1b[#}",
    b"\x1b[1;2;3;4$z",
    b"\x1b[2 @",
    b"\x1b[1\"q",
    b"\x1b[I\x1b[2Z\x1b[3`\x1b[4a\x1b[5e\x1b[6;7f",
    b"\x1b[J\x1b[0J\x1b[1J\x1b[?2J\x1b[?K",
    b"\x1b[E\x1b[2F",
    b"\x1b[20h\x1b[20l",
    b"\x1b[?5h\x1b[?5l",
];

/// Sequences of which nothing passes.
const REFUSED: [&[u8]; 76] = [
    // Reports of what the program has chosen: as if it had been typed.
    b"\x1b[2147483647b",
    b"\x1b[22;0t",
    b"\x1b[23;0t",
    b"\x1b[21t",
    b"\x1b[20t",
    b"\x05",
    b"\x1bP$qm\x1b\\",
    b"\x1bP$q\"p\x1b\\",
    b"\x1bP+q544e\x1b\\",
    b"\x1bP+p544e=41\x1b\\",
    b"\x1b[1;1;1;1;1;1*y",
    b"\x1b[1$w",
    b"\x1b[2;2$u",
    b"\x1b[x",
    b"\x1b[=c",
    b"\x1bZ",
    b"\x1b[?15n",
    b"\x1b[?25n",
    b"\x1b[?62n",
    b"\x1b[?63;1n",
    b"\x1b[1#R",
    b"\x1b[#|",
    b"\x1b[1'|",
    b"\x1b[1'z",
    b"\x1b[19t",
    b"\x1b[11t",
    b"\x1b[13t",
    b"\x1b[15t",
    // The clipboard, files, programs, notifications, fonts.
    b"\x1b]52;c;ZWNobyBoaQo=\x07",
    b"\x1b]52;c;?\x1b\\",
    b"\x1b]50;?\x07",
    b"\x1b]50;xterm*font\x07",
    b"\x1b]1337;File=name=YQ==;inline=0:YQ==\x07",
    b"\x1b]1337;Copy=:aGk=\x07",
    b"\x1b]777;notify;a;b\x07",
    b"\x1b]9;done\x07",
    b"\x1b]9;9;/\x07",
    b"\x1b]99;;hi\x1b\\",
    b"\x1b]7;file://host/etc\x07",
    b"\x1b]46;/tmp/log\x07",
    b"\x1b]3;WM_CLASS=x\x07",
    b"\x1b]5;0;?\x07",
    b"\x1b]22;hand\x07",
    b"\x1b]133;A\x07",
    b"\x1b]P0ff0000\x07",
    b"\x1b]R\x07",
    b"\x1b]l\x07",
    b"\x1b_Gf=32,t=f;L2V0Yy9wYXNzd2Q=\x1b\\",
    b"\x1b_tmux\x1b\\",
    b"\x1b^message\x1b\\",
    b"\x1bXstring\x1b\\",
    b"\x1bktitle\x1b\\",
    b"\x1bPtmux;\x1b\x1b]52;c;YQ==\x07\x1b\\",
    b"\x1bP1000p\x1b\\",
    b"\x1bP=1s\x1b\\",
    // User-defined keys and characters, printers, tests, other terminals, other encodings.
    b"\x1bP0;1|17/6c73\x1b\\",
    b"\x1bP1;1;1{ @\x1b\\",
    b"\x1b[i",
    b"\x1b[5i",
    b"\x1b[?4i",
    b"\x1b[2;1y",
    b"\x1b[62;1\"p",
    b"\x1b G",
    b"\x1b F",
    b"\x1b%@",
    b"\x1b<",
    b"\x1b[?2l",
    b"\x1b[?3h",
    b"\x1b[?40h",
    b"\x1b[?1049;3h",
    b"\x1b[2h",
    b"\x1b[3J",
    b"\x1b[8;1;1t",
    b"\x1b[2t",
    b"\x1b[<5u",
    b"\xc2\x85\xc2\x90\x00\x01\x11\x13\x7f",
];

#[test]
fn what_is_harmless_passes_byte_for_byte() {
    for sequence in HARMLESS {
        assert_eq!(filtered(sequence), sequence, "{}", sequence.escape_ascii());
    }
}

#[test]
fn nothing_passes_of_what_is_refused() {
    for sequence in REFUSED {
        assert_eq!(text(sequence), "", "{}", sequence.escape_ascii());
        assert_eq!(text(&[b"a", sequence, b"b"].concat()), "ab", "{}", sequence.escape_ascii());
    }
}

#[test]
fn links_lead_to_pages_and_nowhere_else() {
    for target in
        ["file:///etc/passwd", "ssh://-oProxyCommand=x", "x-man-page://1/ls", "javascript:1", "https://a\u{e4}"]
    {
        assert_eq!(text(format!("\x1b]8;;{target}\x07x\x1b]8;;\x07").as_bytes()), "x\\x1b]8;;\\x07", "{target}");
    }
}

#[test]
fn titles_pass_without_controls_and_the_former_one_comes_back() {
    let (mut filter, mut out) = (Filter::new(), Vec::new());
    filter.push(b"\x1b]0;a\x01b\xc2\x9bc\xffd\x07\x1b]2;\xc3\xa4\x1b\\", &mut out);
    assert_eq!(out, "\x1b[22;0t\x1b]0;abc\u{fffd}d\x07\x1b]2;\u{e4}\x1b\\".as_bytes());
    out.clear();
    filter.restore(&mut out);
    assert_eq!(out, b"\x1b[23;0t");
    assert_eq!(filtered(format!("\x1b]2;{}\x07", "x".repeat(4000)).as_bytes()).len(), 7 + 4 + 256 + 1);
    assert_eq!(text(format!("\x1b]2;{}\x07y", "x".repeat(5000)).as_bytes()), "y");
}

#[test]
fn bytes_that_are_no_text_become_a_mark_and_harm_nothing_after_them() {
    assert_eq!(filtered(b"a\xffb"), "a\u{fffd}b".as_bytes());
    assert_eq!(filtered(b"\x9b21t\xe4\xb8"), "\u{fffd}21t".as_bytes());
    assert_eq!(filtered(b"\xe4\xb8x\xed\xa0\x80y"), "\u{fffd}x\u{fffd}y".as_bytes());
    assert_eq!(filtered(b"\xf5z\xc0\xafw"), "\u{fffd}z\u{fffd}\u{fffd}w".as_bytes());
}

#[test]
fn a_sequence_that_is_cut_off_is_dropped_and_the_next_one_counts() {
    assert_eq!(text(b"\x1b]0;half\x1b[31mx"), "\\x1b[31mx");
    assert_eq!(text(b"\x1b[12\x18x"), "x");
    assert_eq!(text(b"\x1b[\x1b[1mx"), "\\x1b[1mx");
    assert_eq!(text(b"\x1b[1\nmx"), "\\n\\x1b[1mx");
    assert_eq!(text(b"\x1bPq~~\x1b[1m"), "\\x1bPq~~\\x1b\\\\\\x1b[1m");
    assert_eq!(text("\x1b[31\u{e4}mx".as_bytes()), "\\xc3\\xa4mx");
    assert_eq!(text(format!("\x1b[{}mx", "1;".repeat(1000)).as_bytes()), "x");
}

#[test]
fn a_full_reset_puts_back_what_the_program_changed_and_no_more() {
    assert_eq!(text(b"\x1b[?1049h\x1bcx"), "\\x1b[?1049h\\x1b[?1049l\\x1b[!p\\x1b[H\\x1b[2Jx");
}

#[test]
fn all_that_a_program_left_is_put_back() {
    let (mut filter, mut out) = (Filter::new(), Vec::new());
    let left: &[u8] = b"\x1b[>1u\x1b[?1049h\x1b[>5u\x1b[>5u\x1b[?1002h\x1b[?1006h\x1b[?2004h\x1b[?25l\x1b[1;31m\x1b(0\x1b[4 q\x1b=\x1b[5;9r\
        \x1b]8;;http://a\x07\x1b]11;#000\x07\x1b[>4;2m\x1b]2;\xc3";
    filter.push(left, &mut out);
    assert!(filter.may_answer());
    out.clear();
    filter.restore(&mut out);
    let text = out.escape_ascii().to_string();
    let parts = [
        "]8;;", "[m", "(B", ">", "[r", "[0 q", "[>4m", "]111", "[<2u", "[?25h", "[?1002l", "[?1006l", "[?1049l",
        "[?2004l", "[<1u",
    ];
    for part in parts {
        assert!(text.contains(&format!("\\x1b{part}")), "{part}: {text}");
    }
    // The keyboard of each screen is put back while it is shown.
    let at = |part: &str| text.find(part).expect("it is there");
    assert!(at("[<2u") < at("[?1049l") && at("[?1049l") < at("[<1u"), "{text}");
    assert!(!filter.state.may_report());
    out.clear();
    filter.restore(&mut out);
    assert_eq!(out, b"");
}

#[test]
fn a_program_that_changed_nothing_leaves_nothing_to_put_back() {
    let (mut filter, mut out) = (Filter::new(), Vec::new());
    filter.push(b"text\r\n\x1b[?1049h\x1b[?1049l\x1b[H\x1b[K", &mut out);
    out.clear();
    filter.restore(&mut out);
    assert_eq!((out.as_slice(), filter.may_answer()), (&b""[..], false));
}

#[test]
fn a_gap_ends_what_was_begun() {
    let (mut filter, mut out) = (Filter::new(), Vec::new());
    filter.push(b"a\x1b]0;half", &mut out);
    filter.gap(&mut out);
    filter.push(b"b\x1bPq~", &mut out);
    filter.gap(&mut out);
    filter.push(b"c", &mut out);
    assert_eq!(out, b"ab\x1bPq~\x1b\\c");
}

/// Bytes that look like what a program prints that means no good.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::sample::select(HARMLESS.to_vec()).prop_map(<[u8]>::to_vec),
        prop::sample::select(REFUSED.to_vec()).prop_map(<[u8]>::to_vec),
        prop::collection::vec(any::<u8>(), 0..8),
        prop::sample::select(b"\x1b[]P_^X\\;?>$ tnchqu0123456789\x07\x18\x9b\x9c\x90\xc2".to_vec())
            .prop_map(|b| vec![b]),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn how_the_output_is_cut_makes_no_difference(bytes in hostile(), cut in 1usize..9) {
        let (mut filter, mut out) = (Filter::new(), Vec::new());
        bytes.chunks(cut).for_each(|piece| filter.push(piece, &mut out));
        prop_assert_eq!(out, filtered(&bytes));
    }

    #[test]
    fn what_has_passed_passes_again_unchanged(bytes in hostile()) {
        let (mut filter, mut out) = (Filter::new(), Vec::new());
        filter.push(&bytes, &mut out);
        filter.restore(&mut out);
        // The second filter puts the former title aside once more, and nothing else differs.
        let again = filtered(&out);
        let without_aside = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map(|text| text.replace("\x1b[22;0t", ""));
        prop_assert_eq!(without_aside(&again).expect("text"), without_aside(&out).expect("only text passes"));
    }

    #[test]
    fn no_refused_sequence_is_ever_in_what_passes(bytes in hostile()) {
        let out = filtered(&bytes);
        prop_assert!(!out.contains(&0x05));
        for sign in [&b"\x1b]52"[..], b"\x1b]50", b"\x1b]1337", b"\x1b_", b"\x1b^", b"\x1bX", b"\x1bP$", b"\x1bP+", b"\x1b[21t", b"\x1b[20t", b"\x1bc"] {
            prop_assert!(!out.windows(sign.len()).any(|part| part == sign), "{}", out.escape_ascii());
        }
    }
}
