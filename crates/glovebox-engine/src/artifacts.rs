//! Artifacts: files that are kept from a run, stored below the data folder.
//!
//! Names and bytes come from inside and are hostile: names are checked part by part, files are made anew in a folder
//! that only we write to, counts and sizes are bounded.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use glovebox_core::{Artifact, Denial, Error, ErrorCode, InsidePath, Result, Secret};
use glovebox_proto::{ArtifactQuery, FileEntry, Frame, FrameKind, path};
use sha2::{Digest, Sha256};

use crate::channel::{Channel, Receiving, read, unexpected};

/// What is always kept.
const ALWAYS: &str = "outputs/**";
const MOST_FILES: u64 = 10_000;

/// Checks globs before anything runs.
pub(crate) fn check_globs(globs: &[String]) -> Result<()> {
    for glob in globs {
        let wrong = |why: String| {
            Error::new(ErrorCode::InvalidValue, format!("the artifact glob {glob:?} cannot be used: {why}"))
        };
        if glob.starts_with('/') || glob.split('/').any(|part| part == "..") {
            return Err(wrong("it must stay below /workspace, without a leading '/' or '..'".into())
                .hint("for example outputs/*.png or agent_workspace/**"));
        }
        globset::Glob::new(glob).map_err(|error| wrong(error.kind().to_string()))?;
    }
    Ok(())
}

/// What was kept, and what was left out.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) artifacts: Vec<Artifact>,
    pub(crate) denials: Vec<Denial>,
}

impl Kept {
    /// Notes what lies in the outputs folder and was not kept, because it is no ordinary file.
    pub(crate) fn note_left_out(&mut self, added: &[String]) {
        for path in added.iter().filter(|path| path.starts_with("outputs/")) {
            let target = printable(path);
            let kept = self.artifacts.iter().any(|artifact| artifact.path == *path);
            if !kept && !self.denials.iter().any(|denial| denial.target == target) {
                let hint = "only ordinary files that can be read are kept: no links, empty folders or special files";
                self.denials.push(Denial { kind: "artifact".into(), target, hint: hint.into() });
            }
        }
    }
}

/// Fetches the files that match and stores them below `folder`.
pub(crate) async fn collect(
    channel: &Channel,
    globs: &[String],
    most_bytes: u64,
    folder: &Path,
    secrets: &[&Secret],
) -> Result<Kept> {
    let (mut sending, opening) = channel.request(path::FETCH).await?;
    let globs = globs.iter().cloned().chain([ALWAYS.to_owned()]).collect();
    sending.send(Frame::message(FrameKind::Query, &ArtifactQuery { globs, most: MOST_FILES })).await?;
    sending.end()?;
    let mut receiving = opening.answer().await?;
    let mut kept = Kept::default();
    let mut left = most_bytes;
    loop {
        match receiving.next().await? {
            Some(frame) if frame.kind == FrameKind::File => {
                if kept.artifacts.len() + kept.denials.len() >= MOST_FILES as usize {
                    return Err(unexpected(&frame));
                }
                let entry: FileEntry = read(&frame)?;
                store(&mut receiving, entry, folder, secrets, &mut left, &mut kept).await?;
            }
            Some(frame) if frame.kind == FrameKind::Done => break,
            Some(frame) => return Err(unexpected(&frame)),
            None => return Err(Error::new(ErrorCode::SandboxLost, "the sandbox went away while artifacts were kept")),
        }
    }
    kept.artifacts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(kept)
}

/// Receives one file. Its frames are always taken to the end, kept or not.
async fn store(
    receiving: &mut Receiving,
    entry: FileEntry,
    folder: &Path,
    secrets: &[&Secret],
    left: &mut u64,
    kept: &mut Kept,
) -> Result<()> {
    let place = safe_place(folder, &entry.path);
    let mut writing = place.as_ref().map(|place| Writing::begin(place, secrets)).transpose()?;
    loop {
        match receiving.next().await? {
            Some(frame) if frame.kind == FrameKind::FileData => {
                if *left < frame.payload.len() as u64 {
                    let message = "the artifacts are larger than all that could be written inside";
                    return Err(Error::new(ErrorCode::ChannelViolation, message));
                }
                *left -= frame.payload.len() as u64;
                if let Some(writing) = &mut writing {
                    writing.push(&frame.payload)?;
                }
            }
            Some(frame) if frame.kind == FrameKind::FileEnd => break,
            Some(frame) => return Err(unexpected(&frame)),
            None => return Err(Error::new(ErrorCode::SandboxLost, "the sandbox went away within an artifact")),
        }
    }
    let denied = |hint: &str| Denial { kind: "artifact".into(), target: printable(&entry.path), hint: hint.into() };
    match writing {
        None => kept.denials.push(denied("the name cannot be stored; use another name inside")),
        Some(writing) if writing.has_secret => {
            writing.discard()?;
            kept.denials.push(denied("the file holds the value of a --secret and was left out"));
        }
        Some(writing) => kept.artifacts.push(writing.finish(entry.path)),
    }
    Ok(())
}

/// A file that is being stored.
struct Writing<'a> {
    file: File,
    place: PathBuf,
    hash: Sha256,
    bytes: u64,
    secrets: &'a [&'a Secret],
    /// The end of what was seen, as long as the longest secret less one, for secrets across two chunks.
    seen: Vec<u8>,
    has_secret: bool,
}

impl<'a> Writing<'a> {
    fn begin(place: &Path, secrets: &'a [&'a Secret]) -> Result<Self> {
        if let Some(folder) = place.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let file = File::create_new(place).map_err(failed)?;
        let place = place.to_owned();
        Ok(Writing { file, place, hash: Sha256::new(), bytes: 0, secrets, seen: Vec::new(), has_secret: false })
    }

    fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        self.hash.update(bytes);
        self.file.write_all(bytes).map_err(failed)?;
        if !self.secrets.is_empty() {
            self.seen.extend_from_slice(bytes);
            self.has_secret |= self.secrets.iter().any(|secret| secret.is_in(&self.seen));
            let longest = self.secrets.iter().map(|secret| secret.expose().len()).max().unwrap_or(0);
            self.seen.drain(..self.seen.len().saturating_sub(longest.saturating_sub(1)));
        }
        Ok(())
    }

    fn finish(self, path: String) -> Artifact {
        let sha256 = self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Artifact { path, bytes: self.bytes, sha256 }
    }

    fn discard(self) -> Result<()> {
        fs::remove_file(self.place).map_err(failed)
    }
}

/// Where a file goes, if its name is one that can be stored safely.
fn safe_place(folder: &Path, path: &str) -> Option<PathBuf> {
    let checked = InsidePath::absolute(&format!("/{path}")).ok()?;
    // A name that the check had to clean is not the name of a file that exists.
    (checked.as_str()[1..] == *path && !path.is_empty()).then(|| folder.join(path))
}

fn printable(path: &str) -> String {
    path.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn failed(error: std::io::Error) -> Error {
    Error::new(ErrorCode::ArtifactFailed, "an artifact could not be stored").because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_have_no_place() {
        let folder = Path::new("/store");
        assert_eq!(safe_place(folder, "outputs/a.png"), Some(PathBuf::from("/store/outputs/a.png")));
        for name in ["../x", "a/../../x", "/etc/passwd", "a//b", "a/./b", "", "a\nb", "a\0b", ".."] {
            assert_eq!(safe_place(folder, name), None, "{name:?}");
        }
    }
}
