//! `read_file`: text by lines, images as images, everything else as it is.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use glovebox_core::{Error, ErrorCode, FilePath, Result};
use glovebox_engine::{EntryKind, Files, FollowLinks, Range};
use rmcp::model::{ContentBlock, Resource, ResourceContents};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Effect, ToolCall};
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
        let entry = files.stat(&path, FollowLinks::Yes).await?;
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
        let window = read_lines(&files, &path, self.offset.max(1), self.limit.max(1)).await?;
        Ok(window.answer(&path, self.offset.max(1)))
    }
}

/// Some lines of a file.
struct Window {
    text: Vec<u8>,
    /// How many lines these are.
    lines: u64,
    /// Whether there is more behind them.
    more: bool,
    /// Lines of the whole file, if they were counted to the end.
    total: Option<u64>,
}

impl Window {
    fn answer(self, path: &FilePath, offset: u64) -> Answer {
        let total = self.total.map_or("many".to_owned(), |total| total.to_string());
        let name = shown(path);
        let Window { text, lines, more, .. } = self;
        if lines == 0 {
            return Answer::text(match offset {
                1 => format!("[{name} is empty]"),
                _ => format!("[{name} has {total} lines, so line {offset} is behind its end]"),
            });
        }
        let answer = Answer::text(String::from_utf8_lossy(&text).into_owned());
        if more || offset > 1 {
            let last = offset + lines - 1;
            let next = if more { format!("; offset {} goes on", last + 1) } else { String::new() };
            return answer.and(ContentBlock::text(format!("[lines {offset} to {last} of {total} of {name}{next}]")));
        }
        answer
    }
}

/// Reads lines without keeping the others.
async fn read_lines(files: &Files, path: &FilePath, offset: u64, limit: u64) -> Result<Window> {
    let mut stream = files.read(path, Range { offset: 0, length: Some(FURTHEST) }).await?;
    let mut window = Window { text: Vec::new(), lines: 0, more: false, total: None };
    let (mut line, mut inside_line) = (1_u64, false);
    while let Some(chunk) = stream.next().await? {
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            let wanted = line >= offset && line - offset < limit;
            if wanted && window.text.len() + part.len() <= MOST_TEXT {
                if !inside_line || window.lines == 0 {
                    window.lines += 1;
                }
                window.text.extend_from_slice(part);
            } else if line >= offset {
                window.more = true;
            }
            inside_line = !part.ends_with(b"\n");
            line += u64::from(!inside_line);
        }
        if window.more && stream.entry().bytes > (8 << 20) {
            // To count the rest of a large file would take long, and helps nobody.
            return Ok(window);
        }
    }
    window.total = Some(line - 1 + u64::from(inside_line));
    Ok(window)
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
