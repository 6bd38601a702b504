//! Where folders of a sandbox really are.
//!
//! A sandbox usually has a root of its own, and every path on the channel means what it says. One without namespaces has
//! its folders somewhere on the host; there the guest turns each path into the real one, here and nowhere else.

use std::borrow::Cow;

/// Folders of a sandbox by their paths inside, and where each really is. Empty where paths mean what they say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    folders: Vec<(String, String)>,
    names: Vec<(String, String)>,
}

impl Places {
    /// Folders that are elsewhere: the path inside, the real path.
    pub fn new(folders: Vec<(String, String)>) -> Self {
        Places { folders, names: Vec::new() }
    }

    /// Adds a path that only Glovebox itself uses, so that it is replaced wherever it stands in a command.
    #[must_use]
    pub fn with_own(mut self, inside: &str) -> Self {
        self.names.push((inside.to_owned(), self.real(inside).into_owned()));
        self
    }

    /// Whether every path means what it says.
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty()
    }

    /// The real path of a path inside.
    pub fn real<'a>(&self, path: &'a str) -> Cow<'a, str> {
        let rest = |inside: &str| path.strip_prefix(inside).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let found = self.folders.iter().filter_map(|(inside, real)| Some((inside.len(), real, rest(inside)?)));
        match found.max_by_key(|(length, ..)| *length) {
            Some((_, real, rest)) => format!("{real}{rest}").into(),
            None => path.into(),
        }
    }

    /// A word of a command, with Glovebox's own paths in it replaced.
    pub fn in_word(&self, word: &str) -> String {
        self.names.iter().fold(word.to_owned(), |word, (inside, real)| word.replace(inside, real))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places {
        let pairs =
            [("/workspace", "/r/workspace"), ("/home/user", "/r/home"), ("/workspace/agent_workspace", "/mine")];
        Places::new(pairs.map(|(a, b)| (a.to_owned(), b.to_owned())).to_vec()).with_own("/home/user/.program")
    }

    #[test]
    fn the_longest_folder_counts_and_a_longer_name_is_another_folder() {
        for (path, real) in [
            ("/workspace/outputs/a", "/r/workspace/outputs/a"),
            ("/workspace", "/r/workspace"),
            ("/workspaces", "/workspaces"),
            ("/workspace/agent_workspace/x", "/mine/x"),
            ("/usr/bin", "/usr/bin"),
        ] {
            assert_eq!(places().real(path), real);
        }
        assert_eq!(Places::default().real("/workspace"), "/workspace");
    }

    #[test]
    fn only_what_is_gloveboxs_own_is_replaced_within_a_word() {
        assert_eq!(places().in_word("-o/home/user/.program/main"), "-o/r/home/.program/main");
        assert_eq!(places().in_word("echo /workspace/x"), "echo /workspace/x");
    }
}
