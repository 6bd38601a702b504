//! Paths of files inside a sandbox as the kernel has them: bytes.

use std::fmt;

use crate::{Error, ErrorCode, InsidePath, Result, printable};

const LONGEST: usize = 4095;
const LONGEST_NAME: usize = 255;

/// An absolute path of a file inside a sandbox. Unlike an [`InsidePath`], which people choose, it may be that of a file which
/// a program made: any bytes but NUL. No `..`, no empty part.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilePath(Vec<u8>);

impl FilePath {
    /// Checks an absolute path. `//` and `/./` are folded away.
    pub fn absolute(bytes: impl AsRef<[u8]>) -> Result<Self> {
        let path = Self::clean(bytes.as_ref())?;
        match path.0.len() <= LONGEST {
            true => Ok(path),
            false => Err(too_long(bytes.as_ref(), "it is longer than 4095 bytes")),
        }
    }

    fn clean(bytes: &[u8]) -> Result<Self> {
        if !bytes.starts_with(b"/") {
            return Err(wrong(bytes, "it must start with '/'"));
        }
        if bytes.contains(&0) {
            return Err(wrong(bytes, "it holds a NUL byte"));
        }
        let parts: Vec<&[u8]> = bytes.split(|b| *b == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
        if parts.contains(&&b".."[..]) {
            return Err(wrong(bytes, "it holds '..'"));
        }
        if parts.iter().any(|part| part.len() > LONGEST_NAME) {
            return Err(too_long(bytes, "a name in it is longer than 255 bytes"));
        }
        Ok(FilePath([b"/", &parts.join(&b'/')[..]].concat()))
    }

    /// Checks a path that may be relative to `base`.
    pub fn relative_to(base: &InsidePath, bytes: impl AsRef<[u8]>) -> Result<Self> {
        let bytes = bytes.as_ref();
        match bytes.starts_with(b"/") {
            true => Self::absolute(bytes),
            false => Self::absolute([base.as_str().as_bytes(), b"/", bytes].concat()),
        }
    }

    /// The path of a name, or of several names with `/` between them, in this folder. What programs make may lie so deep that
    /// its path is too long to be used; it is a path all the same, and can be told.
    pub fn join(&self, name: &[u8]) -> Result<Self> {
        Self::clean(&[&self.0[..], b"/", name].concat())
    }

    /// The last name; empty for the root.
    pub fn name(&self) -> &[u8] {
        self.0.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// The path as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<InsidePath> for FilePath {
    fn from(path: InsidePath) -> Self {
        FilePath(path.as_str().as_bytes().to_vec())
    }
}

impl fmt::Display for FilePath {
    /// As it may be shown: what is no text, or would steer a terminal, is escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.0))
    }
}

/// Bytes of a name as they may be shown: a byte that is no text as `\xHH`, what would steer a terminal escaped.
pub fn shown(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(&printable(chunk.valid()));
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

fn wrong(bytes: &[u8], why: &str) -> Error {
    let message = format!("the path '{}' cannot be used inside a sandbox: {why}", cut(bytes));
    Error::new(ErrorCode::InvalidPath, message)
}

fn too_long(bytes: &[u8], why: &str) -> Error {
    let message = format!("the path '{}' cannot be used inside a sandbox: {why}", cut(bytes));
    Error::new(ErrorCode::NameTooLong, message)
}

fn cut(bytes: &[u8]) -> String {
    if bytes.len() > 80 { format!("{}…", shown(&bytes[..80])) } else { shown(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn any_bytes_but_nul_may_be_in_a_name() {
        for path in [&b"/new\nline"[..], b"/not\xfftext", b"/..a", b"/a\\b", b"/"] {
            assert_eq!(FilePath::absolute(path).unwrap().as_bytes(), path);
        }
        for path in [&b"/a\0b"[..], b"", b"a", b"/a/../b", b"/.."] {
            assert_eq!(FilePath::absolute(path).unwrap_err().code, ErrorCode::InvalidPath, "{path:?}");
        }
        assert_eq!(FilePath::absolute([b'/'; 1].repeat(5000)).unwrap().as_bytes(), b"/");
        let long = [b"/".to_vec(), vec![b'n'; 256]].concat();
        assert_eq!(FilePath::absolute(long).unwrap_err().code, ErrorCode::NameTooLong);
        assert_eq!(FilePath::absolute(b"/abc".repeat(1024)).unwrap_err().code, ErrorCode::NameTooLong);
        let deep = FilePath::absolute(b"/abc".repeat(1000)).unwrap();
        assert_eq!(deep.join(&[b'n'; 200]).unwrap().as_bytes().len(), 4201);
    }

    #[test]
    fn a_path_is_shown_without_what_steers_a_terminal() {
        let path = FilePath::absolute(b"/a\n\x1b[2J/\xff\xc3\xa4").unwrap();
        assert_eq!(path.to_string(), "/a\\n\\u{1b}[2J/\\xff\u{e4}");
        assert_eq!(path.name(), b"\xff\xc3\xa4");
    }

    proptest! {
        #[test]
        fn a_checked_path_stays_below_its_base(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let base = InsidePath::absolute("/base").unwrap();
            if let Ok(path) = FilePath::relative_to(&base, &bytes) {
                prop_assert!(path.as_bytes().split(|b| *b == b'/').all(|part| part != b".."));
                prop_assert!(bytes.starts_with(b"/") || path.as_bytes().starts_with(b"/base"));
            }
        }
    }
}
