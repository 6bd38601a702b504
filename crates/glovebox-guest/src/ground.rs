//! What a guest stands on: a sandbox with namespaces, or a folder of the host and a mark.

use std::borrow::Cow;

use glovebox_proto::{Places, StartRun};

/// What a guest stands on. The default is a sandbox with namespaces and a root of its own.
#[derive(Clone, Debug, Default)]
pub struct Ground {
    /// Where the sandbox's folders are.
    pub places: Places,
    /// Which processes are the sandbox's.
    pub members: Members,
    /// Whether the kernel does not tell who is at the other end of a socket, and only root could have connected.
    pub unknown_peers: bool,
    /// The variables of an image, which commands have unless they are given others of the same names.
    pub environment: Vec<(String, String)>,
}

/// Which processes belong to a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Members {
    /// All that are visible: the process namespace has no others.
    #[default]
    Visible,
    /// Those that carry this mark.
    Marked(u64),
}

impl Ground {
    /// The real path of one that the host names.
    pub(crate) fn real<'a>(&self, path: &'a str) -> Cow<'a, str> {
        self.places.real(path)
    }

    /// Makes a command one of this ground: its folders are where they really are.
    pub(crate) fn adapt(&self, request: &mut StartRun) {
        for (name, value) in &self.environment {
            let is_given = |pair: &String| pair.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('='));
            if !request.env.iter().any(is_given) {
                request.env.push(format!("{name}={value}"));
            }
        }
        if self.places.is_empty() {
            return;
        }
        request.cwd = self.real(&request.cwd).into_owned();
        for word in &mut request.argv {
            *word = self.places.in_word(word);
        }
        for pair in &mut request.env {
            *pair = match pair.strip_prefix("HOME=") {
                Some(home) => format!("HOME={}", self.real(home)),
                None => self.places.in_word(pair),
            };
        }
        if !request.env.iter().any(|pair| pair.starts_with("TMPDIR=")) {
            request.env.push(format!("TMPDIR={}", self.real("/tmp")));
        }
    }
}
