//! Names of files in a project: made safe for every system and every terminal that will see them.

/// The longest name that is kept as it is, bytes. Every file system takes 255; a number may still be added.
const LONGEST: usize = 200;

/// What follows the last dot is no ending when it is longer.
const LONGEST_ENDING: usize = 20;

/// A name that is one plain part of a path wherever it is used, as near to what was given as can be.
pub(crate) fn safe(given: &str) -> String {
    let last = given.trim_end_matches(['/', '\\']).rsplit(['/', '\\']).next().unwrap_or_default();
    let plain: String = last.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    // Some systems take spaces at both ends and dots at the end away.
    let mut name = plain.trim_start_matches(' ').trim_end_matches([' ', '.']).to_owned();
    // A name that begins so is hidden, or is taken for a flag or a home.
    if name.starts_with(['.', '-', '~']) {
        name.replace_range(..1, "_");
    }
    if name.is_empty() {
        return "file".to_owned();
    }
    if name.len() <= LONGEST {
        return name;
    }
    let (stem, ending) = split(&name);
    let stem = stem[..stem.floor_char_boundary(LONGEST - ending.len())].trim_end_matches([' ', '.']);
    format!("{stem}{ending}")
}

/// The name for the nth file of a name: `report (2).pdf`.
pub(crate) fn numbered(name: &str, n: usize) -> String {
    let (stem, ending) = split(name);
    if n == 1 { name.to_owned() } else { format!("{stem} ({n}){ending}") }
}

/// Whether a text can be the name of a file of a project at all. Nothing else is looked up.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= 255 && !text.contains(['/', '\0']) && ![".", ".."].contains(&text)
}

/// The ending without its dot, in small letters, or nothing.
pub(crate) fn ending(name: &str) -> String {
    split(name).1.trim_start_matches('.').to_ascii_lowercase()
}

/// A name as what is before its ending, and the ending with its dot.
fn split(name: &str) -> (&str, &str) {
    match name.rfind('.') {
        Some(at) if at > 0 && (2..=LONGEST_ENDING).contains(&(name.len() - at)) => name.split_at(at),
        _ => (name, ""),
    }
}

fn is_plain(c: char) -> bool {
    // What some systems cannot have in a name, what moves a cursor, and what is not seen or turns the writing around.
    let unseen = matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}');
    !c.is_control() && !unseen && !"<>:\"|?*".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_names_stay_and_others_come_near() {
        for (given, name) in [
            ("report.pdf", "report.pdf"),
            ("Übersicht 2026.xlsx", "Übersicht 2026.xlsx"),
            ("a.tar.gz", "a.tar.gz"),
            ("../../etc/passwd", "passwd"),
            ("..", "file"),
            (".env", "_env"),
            ("-rf", "_rf"),
            ("C:\\Users\\x\\a.txt", "a.txt"),
            ("a\u{1b}[2Jb\n.txt", "a_[2Jb_.txt"),
            ("exe\u{202e}fdp.exe", "exe_fdp.exe"),
            ("folder/", "folder"),
            ("  . ", "file"),
            ("", "file"),
        ] {
            assert_eq!(safe(given), name, "{given:?}");
        }
        assert_eq!(numbered("report.pdf", 1), "report.pdf");
        assert_eq!(numbered("report.pdf", 2), "report (2).pdf");
        assert_eq!(numbered("Makefile", 3), "Makefile (3)");
        assert_eq!(ending("A.PDF"), "pdf");
        assert_eq!(safe(&format!("{}.pdf", "x".repeat(400))), format!("{}.pdf", "x".repeat(196)));
    }

    proptest! {
        #[test]
        fn a_safe_name_is_one_visible_part_of_a_path_and_stays_what_it_is(given in "(.|[./\\\\ ~-]){0,300}") {
            let name = safe(&given);
            prop_assert!(is_name(&name) && name.len() <= LONGEST, "{name:?}");
            prop_assert!(!name.contains(['/', '\\']) && !name.chars().any(char::is_control));
            prop_assert!(!name.starts_with(['.', '-', '~', ' ']) && !name.ends_with(['.', ' ']));
            prop_assert_eq!(safe(&name), name);
        }

        #[test]
        fn a_numbered_name_is_another_one_that_fits(given in ".{0,300}", n in 2usize..20_000) {
            let name = safe(&given);
            let other = numbered(&name, n);
            prop_assert!(other != name && is_name(&other));
            prop_assert_eq!(ending(&other), ending(&name));
        }
    }
}
