//! The source tree: where it is, and which files are in it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Folders that hold nothing written by people.
const NOT_SOURCE: [&str; 6] = [".git", "target", "fuzz/target", "fuzz/corpus", "fuzz/artifacts", "fuzz/coverage"];

/// The root of the tree.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies below the root")
}

/// A text file of the tree.
pub(crate) struct SourceFile {
    /// Its path below the root, with `/`.
    pub(crate) path: String,
    /// Its content.
    pub(crate) text: String,
}

/// Every text file of the tree, sorted. Files that are not UTF-8 are left out.
pub(crate) fn source_files() -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    collect(root(), &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn collect(folder: &Path, files: &mut Vec<SourceFile>) -> Result<()> {
    let entries = folder.read_dir().with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = below_root(&entry.path());
        let kind = entry.file_type()?;
        if kind.is_dir() && !NOT_SOURCE.contains(&path.as_str()) {
            collect(&entry.path(), files)?;
        } else if kind.is_file()
            && let Ok(text) = String::from_utf8(std::fs::read(entry.path())?)
        {
            files.push(SourceFile { path, text });
        }
    }
    Ok(())
}

fn below_root(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy().into_owned()
}

/// A program that cargo built.
pub(crate) fn built(profile: &str, name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join(profile).join(name)
}
