//! What a sandbox starts from.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The name of the image that shows the host's own programs.
const HOST: &str = "host";

/// No reference is longer.
const LONGEST: usize = 512;

/// A root file system to start from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Image {
    /// The host's own programs, read-only.
    #[default]
    Host,
    /// An image of a registry or of a container engine.
    Reference(ImageReference),
}

/// The name of an image: `[REGISTRY/]NAME[:TAG][@DIGEST]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageReference(String);

impl Image {
    /// Parses `host` or the name of an image.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == HOST { Ok(Image::Host) } else { ImageReference::parse(text).map(Image::Reference) }
    }
}

impl ImageReference {
    /// Parses the name of an image.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || "expected an image as [REGISTRY/]NAME[:TAG][@sha256:DIGEST], such as python:3.12-slim".to_owned();
        if text.is_empty() || text.len() > LONGEST {
            return Err(wrong());
        }
        let (name, digest) = text.split_once('@').map_or((text, None), |(name, digest)| (name, Some(digest)));
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(wrong());
        }
        // The last colon parts off a tag, unless it belongs to the port of a registry.
        let (path, tag) = match name.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
            _ => (name, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(wrong());
        }
        let mut parts: Vec<&str> = path.split('/').collect();
        if parts.len() > 1 && is_registry(parts[0]) {
            parts.remove(0);
        }
        if parts.is_empty() || !parts.iter().all(|part| is_part(part)) {
            return Err(wrong());
        }
        Ok(ImageReference(text.to_owned()))
    }

    /// As it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name without tag and digest.
    pub fn name(&self) -> &str {
        let name = self.0.split('@').next().unwrap_or_default();
        match name.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => path,
            _ => name,
        }
    }

    /// The tag, where one was given.
    pub fn tag(&self) -> Option<&str> {
        let name = self.0.split('@').next().unwrap_or_default();
        name.strip_prefix(self.name())?.strip_prefix(':')
    }

    /// The digest, where one was given.
    pub fn digest(&self) -> Option<&str> {
        self.0.split_once('@').map(|(_, digest)| digest)
    }

    /// The registry that it is on, where the name holds one.
    pub fn registry(&self) -> Option<&str> {
        self.name().split_once('/').map(|(first, _)| first).filter(|first| is_registry(first))
    }
}

/// Whether the first part of a name is a host: it has a dot or a port, or is the machine itself.
fn is_registry(part: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    (part.contains(['.', ':']) || part == "localhost") && part.chars().all(fits)
}

/// Lower-case letters and digits, with `.`, `_`, `__` or `-` between them.
fn is_part(part: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fits = |c: char| letter(c) || matches!(c, '.' | '_' | '-');
    part.starts_with(letter) && part.ends_with(letter) && part.chars().all(fits) && !part.contains("..")
}

fn is_tag(tag: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= 128 && tag.starts_with(word) && tag.chars().all(|c| word(c) || matches!(c, '.' | '-'))
}

fn is_digest(digest: &str) -> bool {
    digest
        .strip_prefix("sha256:")
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Image::Host => f.write_str(HOST),
            Image::Reference(reference) => reference.fmt(f),
        }
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Image {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Image::parse(&text)
    }
}

impl From<Image> for String {
    fn from(image: Image) -> String {
        image.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_taken_apart() {
        let full = format!("registry.example:5000/team/tool:1.2@sha256:{}", "a".repeat(64));
        let reference = ImageReference::parse(&full).unwrap();
        assert_eq!(reference.registry(), Some("registry.example:5000"));
        assert_eq!(reference.name(), "registry.example:5000/team/tool");
        assert_eq!(reference.tag(), Some("1.2"));
        assert!(reference.digest().is_some_and(|digest| digest.starts_with("sha256:")));
        let plain = ImageReference::parse("python").unwrap();
        assert_eq!((plain.name(), plain.tag(), plain.digest(), plain.registry()), ("python", None, None, None));
        assert_eq!(ImageReference::parse("localhost:5000/a").unwrap().tag(), None);
        assert_eq!(ImageReference::parse("library/python:3").unwrap().registry(), None);
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        let words = ["", "A", "a b", "a:", "a@b", "/a", "a//b", "-a", "a:b:c", "a@sha256:00", "..", "a\n", "--flag"];
        for text in words {
            assert!(ImageReference::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(Image::parse("host"), Ok(Image::Host));
    }
}
