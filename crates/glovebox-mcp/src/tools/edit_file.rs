//! `edit_file`: replaces a text in a file by another one.

use bytes::Bytes;
use glovebox_core::{Error, ErrorCode, Result};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Effect, ToolCall, files};
use crate::{
    answer::Answer,
    call::Call,
    conversation::{Conversation, inside, shown},
    text,
    walk::read_whole,
};

/// The largest file that is edited.
const LARGEST: u64 = 10 << 20;
/// So many lines are compared with a text that was not found.
const COMPARED: usize = 20_000;
/// So many characters of a line.
const COMPARED_WIDTH: usize = 160;
/// Lines of the file that an answer shows around an edit.
const AROUND: usize = 3;

/// An edit.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditFile {
    /// The file, absolute or relative to the working directory.
    path: String,
    /// The text to replace, exactly as it stands in the file, with enough of its neighbours to be there only once.
    old: String,
    /// What stands there afterwards.
    new: String,
    /// Replace it wherever it stands.
    #[serde(default)]
    replace_all: bool,
}

impl ToolCall for EditFile {
    const NAME: &'static str = "edit_file";
    const TITLE: &'static str = "Edit a file";
    const ABOUT: &'static str = "Replaces one text in a file by another. old must stand in the file exactly once, unless \
        replace_all is true.";
    const EFFECT: Effect = Effect::Writes;

    async fn call(self, talk: &Conversation, _call: &Call) -> Result<Answer> {
        let (path, files) = (inside(&self.path)?, talk.files().await?);
        let content = read_whole(&files, &path, LARGEST).await.map_err(|error| match error.code {
            ErrorCode::FileNotFound => error.hint("write_file makes a new file; list_files shows those there are"),
            _ => error,
        })?;
        let content = String::from_utf8(content).map_err(|_| {
            Error::new(ErrorCode::InvalidValue, format!("{} is not text", shown(&path)))
                .hint("write_file replaces it whole")
        })?;
        let edited = edit(&content, &self.old, &self.new, self.replace_all)?;
        files::write(&files, &path, Bytes::from(edited.text.clone()), None).await?;
        let times = if edited.count == 1 { "once".to_owned() } else { format!("{} times", edited.count) };
        Ok(Answer::text(format!("edited {} {times}\n{}", shown(&path), edited.around())))
    }
}

/// A text after an edit.
#[derive(Debug)]
struct Edited {
    text: String,
    count: usize,
    /// The lines of the first place, from 0.
    first: usize,
    length: usize,
}

impl Edited {
    /// The lines around the first place, with their numbers.
    fn around(&self) -> String {
        let begin = self.first.saturating_sub(AROUND);
        let lines = self.text.lines().enumerate().skip(begin).take(self.length.min(20) + 2 * AROUND);
        lines.map(|(at, line)| format!("{:>5}  {}", at + 1, text::cut(line, 200))).collect::<Vec<_>>().join("\n")
    }
}

fn edit(content: &str, old: &str, new: &str, replace_all: bool) -> Result<Edited> {
    let wrong = |message: String, hint: String| Err(Error::new(ErrorCode::InvalidValue, message).hint(hint));
    if old.is_empty() {
        return wrong("old is empty".to_owned(), "write_file writes a whole file".to_owned());
    }
    if old == new {
        return wrong("old and new are the same".to_owned(), "nothing would change".to_owned());
    }
    // A file of Windows, and a model that writes plain ends of lines.
    if !content.contains(old) && content.contains("\r\n") && !old.contains('\r') {
        let (old, new) = (old.replace('\n', "\r\n"), new.replace("\r\n", "\n").replace('\n', "\r\n"));
        if content.contains(&old) {
            return edit(content, &old, &new, replace_all);
        }
    }
    let count = content.matches(old).count();
    let Some(at) = content.find(old) else {
        return wrong("old does not stand in the file".to_owned(), nearest(content, old));
    };
    if count > 1 && !replace_all {
        let lines: Vec<String> =
            content.match_indices(old).take(10).map(|(at, _)| line_of(content, at).to_string()).collect();
        return wrong(
            format!("old stands {count} times in the file, at lines {}", lines.join(", ")),
            "add lines before or behind it to old until it is there once, or set replace_all".to_owned(),
        );
    }
    let text = content.replace(old, new);
    Ok(Edited { text, count, first: line_of(content, at) - 1, length: new.lines().count() })
}

/// The number of the line of a place, from 1.
fn line_of(content: &str, at: usize) -> usize {
    content[..at].matches('\n').count() + 1
}

/// What the file holds that is nearest to a text which it does not hold.
fn nearest(content: &str, old: &str) -> String {
    let lines: Vec<&str> = content.lines().take(COMPARED).collect();
    let wanted: Vec<&str> = old.lines().collect();
    let same = |a: &&str, b: &&str| a.split_whitespace().eq(b.split_whitespace());
    if let Some(at) =
        lines.windows(wanted.len().max(1)).position(|window| window.iter().zip(&wanted).all(|(a, b)| same(a, b)))
    {
        return format!("it stands at line {} with other blanks: {}", at + 1, shown_lines(&lines, at, wanted.len()));
    }
    let Some(longest) = wanted.iter().max_by_key(|line| line.trim().len()).filter(|line| !line.trim().is_empty())
    else {
        return "read_file shows the file as it is".to_owned();
    };
    let likeness = |line: &str| {
        strsim::normalized_damerau_levenshtein(
            &text::cut(line.trim(), COMPARED_WIDTH),
            &text::cut(longest.trim(), COMPARED_WIDTH),
        )
    };
    // Lines of a very different length cannot be alike, and comparing is what takes time.
    let length = longest.trim().len();
    let alike = |line: &&str| (length / 2..=length * 2 + 8).contains(&line.trim().len());
    let best = lines.iter().enumerate().filter(|(_, line)| alike(line)).map(|(at, line)| (at, likeness(line)));
    match best.max_by(|a, b| a.1.total_cmp(&b.1)) {
        Some((at, score)) if score > 0.6 => {
            format!("the nearest is at line {}: {}", at + 1, shown_lines(&lines, at, 1))
        }
        _ => "read_file shows the file as it is; old must be copied from it exactly".to_owned(),
    }
}

fn shown_lines(lines: &[&str], at: usize, count: usize) -> String {
    let shown = lines[at..].iter().take(count.clamp(1, 5)).map(|line| text::cut(line, 200)).collect::<Vec<_>>();
    format!("{:?}", shown.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "fn main() {\n    let answer = 41;\n    println!(\"{answer}\");\n}\n// end\n// end\n";

    #[test]
    fn a_text_that_is_there_once_is_replaced() {
        let edited = edit(FILE, "answer = 41", "answer = 42", false).unwrap();
        assert!(edited.text.contains("answer = 42;") && edited.count == 1);
        assert!(edited.around().contains("    2      let answer = 42;"));
        assert_eq!(edit(FILE, "// end", "", true).unwrap().count, 2);
    }

    #[test]
    fn a_text_that_is_there_twice_or_not_at_all_is_an_error_that_says_what_to_do() {
        let twice = edit(FILE, "// end", "x", false).unwrap_err();
        assert!(twice.message.contains("lines 5, 6") && twice.hint.unwrap().contains("replace_all"));
        let blanks = edit(FILE, "let answer = 41;\nprintln!(\"{answer}\");", "x", false).unwrap_err();
        assert!(blanks.hint.unwrap().contains("line 2 with other blanks"));
        let near = edit(FILE, "let anwser = 41;", "x", false).unwrap_err();
        assert!(near.hint.unwrap().contains("line 2"));
        assert!(edit(FILE, "nothing like this at all", "x", false).unwrap_err().hint.unwrap().contains("read_file"));
        assert!(edit(FILE, "", "x", false).is_err() && edit(FILE, "a", "a", false).is_err());
    }

    #[test]
    fn the_ends_of_lines_of_the_file_are_kept() {
        let edited = edit("one\r\ntwo\r\nthree\r\n", "one\ntwo", "1\n2", false).unwrap();
        assert_eq!(edited.text, "1\r\n2\r\nthree\r\n");
    }
}
