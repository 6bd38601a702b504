//! `write_file` and `list_files`.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use glovebox_core::{Error, ErrorCode, FilePath, Result};
use glovebox_engine::{Content, EntryKind, Files, Parents, WriteOptions};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Effect, ToolCall};
use crate::{
    answer::Answer,
    call::Call,
    conversation::{Conversation, inside, shown},
    text,
    walk::{Pattern, Reach, walk},
};

/// So many entries one call lists.
const MOST_LISTED: usize = 1000;
/// So many are looked at when a pattern leaves some out.
const MOST_MET: usize = 20_000;

/// A file to write.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteFile {
    /// The file, absolute or relative to the working directory. Folders on the way are made.
    path: String,
    /// All that the file is to hold.
    content: String,
    /// Whether content is base64 of bytes that are no text.
    #[serde(default)]
    base64: bool,
    /// Whether the file can be executed.
    #[serde(default)]
    executable: bool,
}

impl ToolCall for WriteFile {
    const NAME: &'static str = "write_file";
    const TITLE: &'static str = "Write a file";
    const ABOUT: &'static str = "Writes a whole file in the sandbox, and replaces one that is there. To change a part of a file \
        use edit_file.";
    const EFFECT: Effect = Effect::Writes;

    async fn call(self, talk: &Conversation, _call: &Call) -> Result<Answer> {
        let path = inside(&self.path)?;
        let content = match self.base64 {
            false => Bytes::from(self.content),
            true => BASE64_STANDARD.decode(self.content.trim()).map(Bytes::from).map_err(|error| {
                Error::new(ErrorCode::InvalidValue, "content is not base64")
                    .because(error)
                    .hint("leave base64 out for text")
            })?,
        };
        let mode = self.executable.then_some(0o755);
        let bytes = write(&talk.files().await?, &path, content, mode).await?;
        Ok(Answer::text(format!("wrote {} ({})", shown(&path), text::size(bytes))))
    }
}

/// Writes a file, with the folders on its way.
pub(super) async fn write(files: &Files, path: &FilePath, content: Bytes, mode: Option<u32>) -> Result<u64> {
    let options = WriteOptions { mode, sync: false };
    match files.write(path, options, Content::Bytes(content.clone())).await {
        Err(error) if error.code == ErrorCode::FileNotFound => {
            make_parents(files, path).await?;
            files.write(path, options, Content::Bytes(content)).await
        }
        other => other,
    }
}

/// Makes the folder that a path is in.
pub(super) async fn make_parents(files: &Files, path: &FilePath) -> Result<()> {
    let bytes = path.as_bytes();
    let end = bytes.iter().rposition(|byte| *byte == b'/').filter(|at| *at > 0).unwrap_or(1);
    files.make_folder(&FilePath::absolute(&bytes[..end])?, 0o755, Parents::Make).await
}

/// A folder to list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListFiles {
    /// The folder, absolute or relative to the working directory.
    #[serde(default = "here")]
    path: String,
    /// How many levels of folders to show.
    #[serde(default = "two")]
    depth: usize,
    /// Only what fits this pattern, such as *.py or src/**/*.ts; looks at all levels.
    #[serde(default)]
    glob: Option<String>,
    /// Also what is in .git, node_modules, target and the like.
    #[serde(default)]
    all: bool,
}

/// The error for a path that is not there, with a hint for a model.
pub(super) fn missing(error: Error) -> Error {
    match error.code {
        ErrorCode::FileNotFound => {
            error.hint("list_files shows what is there; glob: \"**/NAME\" finds a name at any level")
        }
        _ => error,
    }
}

pub(super) fn here() -> String {
    ".".to_owned()
}

fn two() -> usize {
    2
}

impl ToolCall for ListFiles {
    const NAME: &'static str = "list_files";
    const TITLE: &'static str = "List files";
    const ABOUT: &'static str = "Lists files and folders of the sandbox with their sizes, or finds files by a pattern.";
    const EFFECT: Effect = Effect::Reads;

    async fn call(self, talk: &Conversation, _call: &Call) -> Result<Answer> {
        let (top, files) = (inside(&self.path)?, talk.files().await?);
        let pattern = self.glob.as_deref().map(Pattern::parse).transpose()?;
        let (depth, most) = match pattern {
            Some(_) => (usize::MAX, MOST_MET),
            None => (self.depth.max(1), MOST_LISTED),
        };
        let walked = walk(&files, &top, Reach { depth, most, all: self.all }).await.map_err(missing)?;
        let fits = |path: &FilePath| pattern.as_ref().is_none_or(|pattern| pattern.fits(&top, path));
        let mut lines = Vec::new();
        let mut left_out = 0_usize;
        for met in walked.entries.iter().filter(|met| fits(&met.entry.path)) {
            if lines.len() == MOST_LISTED {
                left_out += 1;
                continue;
            }
            let name = shown(&met.entry.path);
            lines.push(match met.entry.kind {
                EntryKind::Directory if met.skipped => format!("{name}/  (not looked into)"),
                EntryKind::Directory => format!("{name}/"),
                EntryKind::File => format!("{name}  {}", text::size(met.entry.bytes)),
                EntryKind::Symlink => {
                    let target = glovebox_core::shown(met.entry.target.as_deref().unwrap_or_default());
                    format!("{name} -> {target}")
                }
                EntryKind::Other => format!("{name}  (pipe, socket or device)"),
            });
        }
        if lines.is_empty() {
            lines.push(format!("[nothing in {}]", shown(&top)));
        }
        if walked.cut || left_out > 0 {
            lines.push("[there is more: name a folder below, or a pattern]".to_owned());
        }
        Ok(Answer::text(lines.join("\n")))
    }
}
