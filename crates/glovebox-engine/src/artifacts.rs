//! Artifacts: files that are kept from a run, stored below the data folder.
//!
//! Names and bytes come from inside and are hostile: names are checked part by part, files are made anew in a folder
//! that only we write to, counts and sizes are bounded.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use glovebox_core::{
    Artifact, Denial, Error, ErrorCode, InsidePath, Result, Secret, SecretScan, WORKSPACE_DIR, printable,
};
use glovebox_proto::{ArtifactQuery, FileEntry, Frame, FrameKind, path};
use sha2::{Digest, Sha256};

use crate::channel::{Channel, Receiving, read, unexpected};

/// What is always kept.
const ALWAYS: &str = "outputs/**";
const MOST_FILES: u64 = 10_000;
/// Bytes of the names of one question.
const LONGEST_QUERY: usize = 32 * 1024;

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
                let hint = "only ordinary files that can be read and fit the disk limit are kept, at most 10000";
                self.denials.push(Denial { kind: "artifact".into(), target, hint: hint.into() });
            }
        }
    }
}

/// Which files to fetch.
pub(crate) struct Query {
    /// The folder inside that globs and names count from.
    pub(crate) root: &'static str,
    pub(crate) globs: Vec<String>,
    pub(crate) most: u64,
    pub(crate) most_bytes: u64,
}

/// Which files in the outputs folder are artifacts of a run.
pub(crate) enum Outputs {
    /// All that are there.
    All,
    /// These.
    These(Vec<String>),
    /// None.
    None,
}

/// Fetches what the caller asked for and what is always kept, and stores it below `folder`.
pub(crate) async fn collect_all(
    channel: &Channel,
    (globs, outputs, most_bytes): (&[String], Outputs, u64),
    folder: &Path,
    secrets: &[&Secret],
    kept: &mut Kept,
) -> Result<()> {
    let mut globs = globs.to_vec();
    let mut names = match outputs {
        Outputs::All => {
            globs.push(ALWAYS.to_owned());
            Vec::new()
        }
        Outputs::These(names) => names,
        Outputs::None => Vec::new(),
    };
    // A question must fit into a frame, so there may be several.
    loop {
        let mut room = LONGEST_QUERY.saturating_sub(globs.iter().map(String::len).sum());
        let fit = names.iter().take_while(|name| {
            room = room.saturating_sub(2 * name.len() + 1);
            room > 0
        });
        let some: Vec<String> = names.drain(..fit.count().max(1).min(names.len())).collect();
        let met = |name: &String| kept.artifacts.iter().any(|artifact| artifact.path == *name);
        globs.extend(some.iter().filter(|name| !met(name)).map(|name| escaped(name)));
        let bytes: u64 = kept.artifacts.iter().map(|artifact| artifact.bytes).sum();
        let most = MOST_FILES.saturating_sub((kept.artifacts.len() + kept.denials.len()) as u64);
        let query = Query { root: WORKSPACE_DIR, globs, most, most_bytes: most_bytes.saturating_sub(bytes) };
        collect(channel, query, folder, secrets, kept).await?;
        if names.is_empty() || most == 0 {
            return Ok(());
        }
        globs = Vec::new();
    }
}

/// A glob that fits one name.
fn escaped(name: &str) -> String {
    let special = |c: char| ['*', '?', '[', ']', '{', '}', '\\'].contains(&c);
    name.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// Fetches the files that match and stores them below `folder`.
pub(crate) async fn collect(
    channel: &Channel,
    query: Query,
    folder: &Path,
    secrets: &[&Secret],
    kept: &mut Kept,
) -> Result<()> {
    let (sending, opening) = channel.request(path::FETCH).await?;
    let Query { root, globs, most, most_bytes } = query;
    let query = ArtifactQuery { globs, most, most_bytes, root: root.into() };
    sending.send_last(Frame::message(FrameKind::Query, &query)).await?;
    let mut receiving = opening.answer().await?;
    let (mut left, before) = (most_bytes, kept.artifacts.len() + kept.denials.len());
    loop {
        match receiving.next().await? {
            Some(frame) if frame.kind == FrameKind::File => {
                if (kept.artifacts.len() + kept.denials.len() - before) as u64 >= most {
                    return Err(unexpected(&frame));
                }
                let entry: FileEntry = read(&frame)?;
                store(&mut receiving, entry, folder, secrets, &mut left, kept).await?;
            }
            Some(frame) if frame.kind == FrameKind::Done => break,
            Some(frame) => return Err(unexpected(&frame)),
            None => return Err(Error::new(ErrorCode::SandboxLost, "the sandbox went away while artifacts were kept")),
        }
    }
    kept.artifacts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(())
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
    let mut writing = safe_place(folder, &entry.path, secrets)
        .ok_or("the name cannot be stored; use another name inside")
        .and_then(|place| Writing::begin(&place, secrets).map_err(|_| "the file cannot be stored under its name"));
    loop {
        match receiving.next().await? {
            Some(frame) if frame.kind == FrameKind::FileData => {
                if *left < frame.payload.len() as u64 {
                    let message = "the guest sent more than it was asked for";
                    return Err(Error::new(ErrorCode::ChannelViolation, message));
                }
                *left -= frame.payload.len() as u64;
                if let Ok(file) = &mut writing
                    && file.push(&frame.payload).is_err()
                {
                    writing = Err("there is no room for the file on the host");
                }
            }
            Some(frame) if frame.kind == FrameKind::FileEnd => break,
            Some(frame) => return Err(unexpected(&frame)),
            None => return Err(Error::new(ErrorCode::SandboxLost, "the sandbox went away within an artifact")),
        }
    }
    let denied = |hint: &str| Denial { kind: "artifact".into(), target: printable(&entry.path), hint: hint.into() };
    match writing {
        Err(hint) => kept.denials.push(denied(hint)),
        Ok(writing) if writing.has_secret => {
            kept.denials.push(denied("the file holds the value of a --secret and was left out"));
        }
        Ok(writing) => kept.artifacts.push(writing.finish(entry.path)),
    }
    Ok(())
}

/// A file that is being stored.
struct Writing<'a> {
    file: File,
    place: PathBuf,
    hash: Sha256,
    bytes: u64,
    scan: SecretScan<'a>,
    has_secret: bool,
    finished: bool,
}

impl<'a> Writing<'a> {
    fn begin(place: &Path, secrets: &'a [&'a Secret]) -> io::Result<Self> {
        if let Some(folder) = place.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let file = File::options().write(true).create_new(true).mode(0o600).open(place)?;
        let place = place.to_owned();
        Ok(Writing {
            file,
            place,
            hash: Sha256::new(),
            bytes: 0,
            scan: SecretScan::new(secrets.iter().copied()),
            has_secret: false,
            finished: false,
        })
    }

    fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.hash.update(bytes);
        self.file.write_all(bytes)?;
        self.has_secret |= self.scan.finds_in(bytes);
        Ok(())
    }

    fn finish(mut self, path: String) -> Artifact {
        self.finished = true;
        let hash = std::mem::take(&mut self.hash).finalize();
        Artifact { path, bytes: self.bytes, sha256: hash.iter().map(|byte| format!("{byte:02x}")).collect() }
    }
}

impl Drop for Writing<'_> {
    /// A file that is not kept, for whatever reason, leaves no bytes behind: they may hold a secret.
    fn drop(&mut self) {
        if !self.finished {
            let _ = fs::remove_file(&self.place);
        }
    }
}

/// Where a file goes, if its name is one that can be stored safely.
fn safe_place(folder: &Path, path: &str, secrets: &[&Secret]) -> Option<PathBuf> {
    if secrets.iter().any(|secret| secret.is_in(path.as_bytes())) {
        return None;
    }
    let checked = InsidePath::absolute(&format!("/{path}")).ok()?;
    // A name that the check had to clean is not the name of a file that exists.
    (checked.as_str()[1..] == *path && !path.is_empty()).then(|| folder.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_wildcards_in_it_is_asked_for_as_it_is() {
        for name in ["outputs/a b", "outputs/[x]*?{a,b}\\", "outputs/!z"] {
            let glob = globset::GlobBuilder::new(&escaped(name)).literal_separator(true).build().unwrap();
            assert!(glob.compile_matcher().is_match(name), "{name}");
        }
        let glob = globset::Glob::new(&escaped("outputs/*")).unwrap();
        assert!(!glob.compile_matcher().is_match("outputs/x"));
    }

    #[test]
    fn hostile_names_have_no_place() {
        let folder = Path::new("/store");
        assert_eq!(safe_place(folder, "outputs/a.png", &[]), Some(PathBuf::from("/store/outputs/a.png")));
        for name in ["../x", "a/../../x", "/etc/passwd", "a//b", "a/./b", "", "a\nb", "a\0b", ".."] {
            assert_eq!(safe_place(folder, name, &[]), None, "{name:?}");
        }
    }
}
