//! Paths inside a sandbox. They are checked as text and never resolved on the host.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorCode, Result};

const LONGEST: usize = 4096;
const LONGEST_NAME: usize = 255;

/// An absolute path inside a sandbox: no `..`, no empty part, no NUL, no line break.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InsidePath(String);

impl InsidePath {
    /// Checks an absolute path. `//` and `/./` are folded away.
    pub fn absolute(text: &str) -> Result<Self> {
        if !text.starts_with('/') {
            return Err(wrong(text, "it must start with '/'"));
        }
        Ok(InsidePath(format!("/{}", clean(text)?)))
    }

    /// Checks a path that may be relative to `base`.
    pub fn relative_to(base: &InsidePath, text: &str) -> Result<Self> {
        if text.starts_with('/') {
            return Self::absolute(text);
        }
        let tail = clean(text)?;
        Self::absolute(&format!("{base}/{tail}"))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this path is `folder` or lies below it.
    pub fn is_under(&self, folder: &str) -> bool {
        self.0.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl TryFrom<String> for InsidePath {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        InsidePath::absolute(&text)
    }
}

impl From<InsidePath> for String {
    fn from(path: InsidePath) -> String {
        path.0
    }
}

impl fmt::Display for InsidePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn clean(text: &str) -> Result<String> {
    if text.len() > LONGEST {
        return Err(wrong(&text[..text.floor_char_boundary(40)], "it is longer than 4096 bytes"));
    }
    if text.chars().any(|c| c.is_control()) {
        return Err(wrong(text, "it holds a control character"));
    }
    let parts: Vec<&str> = text.split('/').filter(|p| !p.is_empty() && *p != ".").collect();
    if parts.contains(&"..") {
        return Err(wrong(text, "it holds '..'"));
    }
    if parts.iter().any(|p| p.len() > LONGEST_NAME) {
        return Err(wrong(text, "a name in it is longer than 255 bytes"));
    }
    Ok(parts.join("/"))
}

fn wrong(text: &str, why: &str) -> Error {
    Error::new(ErrorCode::InvalidPath, format!("the path {text:?} cannot be used inside a sandbox: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_that_climb_or_break_lines_are_refused() {
        for text in ["..", "/..", "/a/../b", "a", "/a\nb", "/a\0b", ""] {
            assert!(InsidePath::absolute(text).is_err(), "{text:?}");
        }
        assert_eq!(InsidePath::absolute("//a/./b/").unwrap().as_str(), "/a/b");
        assert_eq!(InsidePath::absolute("/..a/b..").unwrap().as_str(), "/..a/b..");
    }

    #[test]
    fn under_means_the_folder_or_below_it_and_not_a_longer_name() {
        let path = InsidePath::absolute("/proc/self").unwrap();
        assert!(path.is_under("/proc"));
        assert!(!InsidePath::absolute("/process").unwrap().is_under("/proc"));
    }

    proptest! {
        #[test]
        fn a_checked_path_never_leaves_its_base(text in "[a-z./\\n]{0,40}") {
            let base = InsidePath::absolute("/base").unwrap();
            if let Ok(path) = InsidePath::relative_to(&base, &text) {
                prop_assert!(path.as_str().starts_with('/'));
                prop_assert!(path.as_str().split('/').all(|part| part != ".."));
                if !text.starts_with('/') {
                    prop_assert!(path.is_under("/base"));
                }
            }
        }
    }
}
