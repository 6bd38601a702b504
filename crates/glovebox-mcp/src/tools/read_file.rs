//! `read_file`: text by lines, images as images, everything else as it is.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use glovebox_core::{Error, ErrorCode, FilePath, Result};
use glovebox_engine::{EntryKind, Files, FollowLinks, Range};
use rmcp::model::{ContentBlock, Resource, ResourceContents};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Effect, ToolCall, files};
use crate::{
    answer::Answer,
    call::Call,
    conversation::{Conversation, inside, shown},
    resources::{below_workspace, mime_of, workspace_uri},
    text,
    walk::read_whole,
};

/// Lines that are read when nobody says how many.
const LINES: u64 = 2000;
/// Bytes of text that one call gives.
const MOST_TEXT: usize = 128 * 1024;
/// The largest image that is shown.
const MOST_IMAGE: u64 = 5 << 20;
/// The largest other file that is handed over whole.
const MOST_BINARY: u64 = 256 << 10;
/// So many bytes tell what a file is.
const BEGINNING: u64 = 8192;
/// So far into a file lines are counted.
const FURTHEST: u64 = 256 << 20;
/// The lines of a larger file are not counted when all that was asked for has come.
const COUNTED: u64 = 8 << 20;

/// A file to read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadFile {
    /// The file, absolute or relative to the working directory.
    path: String,
    /// The first line to read, from 1.
    #[serde(default = "one")]
    offset: u64,
    /// How many lines to read.
    #[serde(default = "lines")]
    limit: u64,
}

fn one() -> u64 {
    1
}

fn lines() -> u64 {
    LINES
}

impl ToolCall for ReadFile {
    const NAME: &'static str = "read_file";
    const TITLE: &'static str = "Read a file";
    const ABOUT: &'static str = "Reads a file of the sandbox. Text comes exactly as it is, from line offset, at most limit lines. \
        PNG, JPEG, GIF and WebP come as images; other binary files as a resource.";
    const EFFECT: Effect = Effect::Reads;

    async fn call(self, talk: &Conversation, _call: &Call) -> Result<Answer> {
        let (path, files) = (inside(&self.path)?, talk.files().await?);
        let entry = files.stat(&path, FollowLinks::Yes).await.map_err(files::missing)?;
        if entry.kind == EntryKind::Directory {
            let message = format!("{} is a folder", shown(&path));
            return Err(Error::new(ErrorCode::IsADirectory, message).hint("list_files shows what is in it"));
        }
        let beginning = read_range(&files, &path, Range { offset: 0, length: Some(BEGINNING) }).await?;
        if let Some(mime) = image_type(&beginning) {
            if entry.bytes > MOST_IMAGE {
                return Ok(too_large(&path, entry.bytes, MOST_IMAGE));
            }
            let content = read_whole(&files, &path, MOST_IMAGE).await?;
            let about = format!("{}: {mime}, {}", shown(&path), text::size(entry.bytes));
            return Ok(Answer::text(about).and(ContentBlock::image(BASE64_STANDARD.encode(content), mime)));
        }
        if beginning.contains(&0) || is_binary(&beginning) {
            if entry.bytes > MOST_BINARY {
                return Ok(too_large(&path, entry.bytes, MOST_BINARY));
            }
            let content = read_whole(&files, &path, MOST_BINARY).await?;
            let about = format!("{}: not text, {}", shown(&path), text::size(entry.bytes));
            let uri = workspace_uri(below_workspace(&path));
            let mime = Some(mime_of(&path)).filter(|mime| !mime.starts_with("text/"));
            let blob = ResourceContents::blob(BASE64_STANDARD.encode(content), uri)
                .with_mime_type(mime.unwrap_or_else(|| "application/octet-stream".to_owned()));
            return Ok(Answer::text(about).and(ContentBlock::resource(blob)));
        }
        let (window, total) = read_lines(&files, &path, self.offset.max(1), self.limit.max(1)).await?;
        Ok(window.answer(&path, total))
    }
}

/// Some lines of a file, as they are found in what comes of it.
struct Window {
    offset: u64,
    limit: u64,
    text: Vec<u8>,
    /// How many lines these are.
    lines: u64,
    /// Whether there is more behind them.
    more: bool,
    /// Whether the last of them is not whole.
    cut: bool,
    /// The line that comes next, and whether a part of it has come.
    line: u64,
    inside_line: bool,
}

impl Window {
    fn new(offset: u64, limit: u64) -> Self {
        let (text, line) = (Vec::new(), 1);
        Window { offset, limit, text, lines: 0, more: false, cut: false, line, inside_line: false }
    }

    fn push(&mut self, chunk: &[u8]) {
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.add(part);
            self.inside_line = !part.ends_with(b"\n");
            self.line += u64::from(!self.inside_line);
        }
    }

    /// Adds a line, or a part of one.
    fn add(&mut self, part: &[u8]) {
        if self.line < self.offset || self.more {
            return;
        }
        let room = MOST_TEXT - self.text.len();
        if self.line - self.offset >= self.limit || part.len() > room && !self.inside_line && self.lines > 0 {
            self.more = true;
            return;
        }
        self.lines += u64::from(!self.inside_line);
        // A line that is longer than all that one call gives.
        self.cut = part.len() > room;
        self.more = self.cut;
        let most = part.len().min(room);
        let end = (0..=most).rev().find(|at| part.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80)).unwrap_or(most);
        self.text.extend_from_slice(&part[..end]);
    }

    /// Lines of all that came.
    fn total(&self) -> u64 {
        self.line - 1 + u64::from(self.inside_line)
    }

    fn answer(self, path: &FilePath, total: Option<u64>) -> Answer {
        let total = total.map_or("many".to_owned(), |total| total.to_string());
        let (name, first) = (shown(path), self.offset);
        if self.lines == 0 {
            return Answer::text(match first {
                1 => format!("[{name} is empty]"),
                _ => format!("[{name} has {total} lines, so line {first} is behind its end]"),
            });
        }
        let answer = Answer::text(String::from_utf8_lossy(&self.text).into_owned());
        if !self.more && first == 1 {
            return answer;
        }
        let last = first + self.lines - 1;
        let next = match (self.more, self.cut) {
            (false, _) => String::new(),
            (true, false) => format!("; offset {} goes on", last + 1),
            (true, true) => format!("; line {last} is long and was cut, a command can show the rest of it"),
        };
        answer.and(ContentBlock::text(format!("[lines {first} to {last} of {total} of {name}{next}]")))
    }
}

/// Reads lines without keeping the others. Says how many the file has, if it was read to its end.
async fn read_lines(files: &Files, path: &FilePath, offset: u64, limit: u64) -> Result<(Window, Option<u64>)> {
    let mut stream = files.read(path, Range { offset: 0, length: Some(FURTHEST) }).await?;
    let (mut window, bytes) = (Window::new(offset, limit), stream.entry().bytes);
    while let Some(chunk) = stream.next().await? {
        window.push(&chunk);
        if window.more && bytes > COUNTED {
            return Ok((window, None));
        }
    }
    let total = (bytes <= FURTHEST).then(|| window.total());
    Ok((window, total))
}

async fn read_range(files: &Files, path: &FilePath, range: Range) -> Result<Vec<u8>> {
    let mut stream = files.read(path, range).await?;
    let mut content = Vec::new();
    while let Some(chunk) = stream.next().await? {
        content.extend_from_slice(&chunk);
    }
    Ok(content)
}

/// Whether the beginning of a file is no text. A character may be cut at its end.
fn is_binary(beginning: &[u8]) -> bool {
    match std::str::from_utf8(beginning) {
        Ok(_) => false,
        Err(error) => error.error_len().is_some() && beginning.len() - error.valid_up_to() > 3,
    }
}

/// The type of an image by its first bytes.
pub(crate) fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

fn too_large(path: &FilePath, bytes: u64, most: u64) -> Answer {
    let sizes = (text::size(bytes), text::size(most));
    let about = format!("{}: {}, and at most {} come with an answer", shown(path), sizes.0, sizes.1);
    let link =
        Resource::new(workspace_uri(below_workspace(path)), shown(path)).with_size(bytes).with_mime_type(mime_of(path));
    Answer::text(about).and(ContentBlock::resource_link(link))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window of a text that comes in pieces of this size.
    fn window(text: &str, piece: usize, offset: u64, limit: u64) -> Window {
        let mut window = Window::new(offset, limit);
        text.as_bytes().chunks(piece).for_each(|chunk| window.push(chunk));
        window
    }

    #[test]
    fn lines_are_the_same_however_a_file_comes() {
        for piece in [1, 3, 7, 1000] {
            let found = window("one\ntwo\nthree\nfour", piece, 2, 2);
            assert_eq!((&found.text[..], found.lines, found.more, found.total()), (&b"two\nthree\n"[..], 2, true, 4));
            let found = window("one\ntwo\n", piece, 1, 10);
            assert_eq!((&found.text[..], found.lines, found.more, found.total()), (&b"one\ntwo\n"[..], 2, false, 2));
            assert_eq!(window("one\n", piece, 5, 10).lines, 0);
        }
    }

    #[test]
    fn what_does_not_fit_is_left_out_from_there_on_and_said() {
        let (short, long) = ("x\n".repeat(10), format!("{}\n", "ü".repeat(MOST_TEXT)));
        let found = window(&format!("{short}{long}{short}"), 4096, 1, 2000);
        assert!(found.cut && found.more && found.lines == 11 && found.total() == 21);
        assert!(found.text.len() <= MOST_TEXT && str::from_utf8(&found.text).is_ok());
        let whole = window(&format!("{}{short}", "y".repeat(1023) + "\n").repeat(200), 1 << 20, 1, 5000);
        assert!(!whole.cut && whole.more && whole.text.ends_with(b"\n"));
    }
}
