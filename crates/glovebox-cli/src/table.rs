//! Plain text for people: a table, and words that programs chose, made safe for a terminal.

use glovebox_core::printable;

/// A table with a heading. Columns are as wide as they need to be; the last one is cut at `width`, where there is one.
pub(crate) fn table<const N: usize>(heading: [&str; N], rows: &[[String; N]], width: Option<usize>) -> String {
    of_columns([true; N], heading, rows, width)
}

/// The same with some of the columns alone.
pub(crate) fn of_columns<const N: usize>(
    shown: [bool; N],
    heading: [&str; N],
    rows: &[[String; N]],
    width: Option<usize>,
) -> String {
    let heading = heading.map(str::to_owned);
    let lines = || std::iter::once(&heading).chain(rows);
    let columns: Vec<usize> = (0..N).filter(|column| shown[*column]).collect();
    let widths: Vec<usize> =
        columns.iter().map(|column| lines().map(|line| line[*column].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines() {
        let mut cells = String::new();
        for (column, width) in columns.iter().zip(&widths) {
            let cell = &line[*column];
            cells.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(cut(cells.trim_end().to_owned(), width).as_str());
        text.push('\n');
    }
    text
}

fn cut(line: String, width: Option<usize>) -> String {
    match width {
        Some(width) if line.chars().count() > width => {
            line.chars().take(width.saturating_sub(1)).chain(['…']).collect()
        }
        _ => line,
    }
}

/// A command as it would be typed.
pub(crate) fn typed(argv: &[String]) -> String {
    let plain = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_./=:,+@%".contains(c));
    let quoted = |word: &String| if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) };
    printable(&argv.iter().map(quoted).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_need_to_be_and_the_last_is_cut() {
        let rows = [["run_1".to_owned(), "a long command".to_owned()], ["r".to_owned(), String::new()]];
        assert_eq!(table(["RUN", "COMMAND"], &rows, None), "RUN    COMMAND\nrun_1  a long command\nr\n");
        assert_eq!(table(["RUN", "COMMAND"], &rows, Some(12)), "RUN    COMM…\nrun_1  a lo…\nr\n");
    }

    #[test]
    fn a_command_is_shown_as_it_would_be_typed_and_cannot_move_the_cursor() {
        let argv = ["sh", "-c", "echo 'x' \u{1b}[2J", ""].map(str::to_owned);
        assert_eq!(typed(&argv), r"sh -c 'echo '\''x'\'' \u{1b}[2J' ''");
    }
}
