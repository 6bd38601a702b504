//! What lies in a folder inside, to a depth, with bounds: a program inside can make any number of files.

use globset::{GlobBuilder, GlobMatcher};
use glovebox_core::{Error, ErrorCode, FilePath, Result};
use glovebox_engine::{Entry, EntryKind, Files, Page};

/// Folders that nobody wants to look through unless they are named: what tools make and other people wrote.
pub(crate) const SKIPPED: [&[u8]; 6] = [b".git", b"node_modules", b"__pycache__", b".venv", b"target", b".cache"];

/// The deepest that is looked.
const DEEPEST: usize = 64;

/// What was met on a walk.
#[derive(Default)]
pub(crate) struct Walked {
    /// In the order of their paths.
    pub(crate) entries: Vec<Met>,
    /// There is more than was looked at.
    pub(crate) cut: bool,
}

/// One thing that was met.
pub(crate) struct Met {
    pub(crate) entry: Entry,
    /// A folder that was not entered because of its name.
    pub(crate) skipped: bool,
}

/// How far to walk.
#[derive(Clone, Copy)]
pub(crate) struct Reach {
    pub(crate) depth: usize,
    /// At most so many files and folders are met.
    pub(crate) most: usize,
    /// Also folders of tools.
    pub(crate) all: bool,
}

/// Walks through a folder. Links are met and not followed.
pub(crate) async fn walk(files: &Files, top: &FilePath, reach: Reach) -> Result<Walked> {
    let mut walked = Walked::default();
    let mut open = vec![(top.clone(), 1)];
    let mut met = 0;
    while let Some((folder, depth)) = open.pop() {
        let mut inner = Vec::new();
        let most = (reach.most - met) as u64;
        let mut listing = match files.list(&folder, Page { after: None, most: Some(most) }).await {
            Ok(listing) => listing,
            // The folder itself must be there; one below may have gone, or be closed to everybody.
            Err(error) if folder == *top || error.code == ErrorCode::SandboxLost => return Err(error),
            Err(_) => continue,
        };
        while let Some(entry) = listing.next().await? {
            inner.push(entry);
        }
        walked.cut |= listing.cursor().is_some();
        met += inner.len();
        inner.sort_by(|a, b| a.path.cmp(&b.path));
        let begin = open.len();
        for entry in inner {
            let skipped = entry.kind == EntryKind::Directory && !reach.all && SKIPPED.contains(&entry.path.name());
            let enters = entry.kind == EntryKind::Directory && !skipped && depth < reach.depth.min(DEEPEST);
            if enters {
                open.push((entry.path.clone(), depth + 1));
            }
            walked.entries.push(Met { entry, skipped });
        }
        open[begin..].reverse();
        if met >= reach.most {
            walked.cut |= !open.is_empty();
            break;
        }
    }
    walked.entries.sort_by(|a, b| a.entry.path.cmp(&b.entry.path));
    Ok(walked)
}

/// A pattern for paths below a folder. One without a slash is for names at any depth.
pub(crate) struct Pattern(GlobMatcher);

impl Pattern {
    /// Reads a pattern such as `*.py` or `src/**/*.rs`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let anywhere = if text.contains('/') { text.trim_start_matches("./").to_owned() } else { format!("**/{text}") };
        let built = GlobBuilder::new(&anywhere).literal_separator(true).build();
        built.map(|glob| Pattern(glob.compile_matcher())).map_err(|error| {
            Error::new(ErrorCode::InvalidValue, format!("the pattern {text:?} cannot be used: {}", error.kind()))
                .hint("*.py is every Python file, src/**/*.rs those below src")
        })
    }

    /// Whether a path below `top` fits.
    pub(crate) fn fits(&self, top: &FilePath, path: &FilePath) -> bool {
        let below = path.as_bytes().strip_prefix(top.as_bytes()).unwrap_or(path.as_bytes());
        let below = below.strip_prefix(b"/").unwrap_or(below);
        self.0.is_match(String::from_utf8_lossy(below).as_ref())
    }
}

/// Reads a file of a bounded size.
pub(crate) async fn read_whole(files: &Files, path: &FilePath, most: u64) -> Result<Vec<u8>> {
    let mut stream = files.read(path, glovebox_engine::Range::default()).await?;
    let bytes = stream.entry().bytes;
    let too_large = |bytes: u64| {
        let sizes = (crate::text::size(bytes), crate::text::size(most));
        Error::new(ErrorCode::TooLarge, format!("{path} has {}, and at most {} are read", sizes.0, sizes.1))
    };
    if bytes > most {
        return Err(too_large(bytes));
    }
    let mut content = Vec::with_capacity(bytes as usize);
    while let Some(chunk) = stream.next().await? {
        // More may come than was said.
        if (content.len() + chunk.len()) as u64 > most {
            return Err(too_large((content.len() + chunk.len()) as u64));
        }
        content.extend_from_slice(&chunk);
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_without_a_slash_is_for_names_at_any_depth() {
        let top = FilePath::absolute("/workspace").unwrap();
        let fits = |pattern: &str, path: &str| {
            Pattern::parse(pattern).unwrap().fits(&top, &FilePath::absolute(format!("/workspace/{path}")).unwrap())
        };
        assert!(fits("*.py", "a.py") && fits("*.py", "a/b/c.py") && !fits("*.py", "a.pyc"));
        assert!(fits("src/*.rs", "src/a.rs") && !fits("src/*.rs", "src/b/a.rs") && fits("src/**/*.rs", "src/b/a.rs"));
        assert!(Pattern::parse("a[").is_err());
    }
}
