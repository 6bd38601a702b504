//! A finished run and what can be expected of it.

use std::ops::Deref;

use glovebox_core::{LimitKind, Outcome, RunResult};

/// A finished run. All fields of the result can be read through it.
#[derive(Debug)]
pub(crate) struct Finished(pub(crate) RunResult);

impl Deref for Finished {
    type Target = RunResult;
    fn deref(&self) -> &RunResult {
        &self.0
    }
}

impl Finished {
    /// Standard output as text; bytes that are not UTF-8 are shown as such.
    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout.to_bytes()).into_owned()
    }

    /// Standard error as text.
    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr.to_bytes()).into_owned()
    }

    /// Standard output as it was written.
    pub(crate) fn out_bytes(&self) -> Vec<u8> {
        self.0.stdout.to_bytes()
    }

    /// The value of a line `name value` that the probe printed.
    #[track_caller]
    pub(crate) fn fact(&self, name: &str) -> String {
        let out = self.out();
        let found = out.lines().find_map(|line| match line.split_once(' ') {
            Some((first, rest)) if first == name => Some(rest.to_owned()),
            None if line == name => Some(String::new()),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("the probe said nothing of {name}\n{}", self.story()))
    }

    /// The value of such a line as a number.
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u64 {
        let text = self.fact(name);
        text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, not a number\n{}", self.story()))
    }

    /// Expects an exit code.
    #[track_caller]
    pub(crate) fn expect_exit(self, code: i32) -> Self {
        self.expect_outcome(&Outcome::Exited { code })
    }

    /// Expects an outcome with all its fields.
    #[track_caller]
    pub(crate) fn expect_outcome(self, outcome: &Outcome) -> Self {
        assert_eq!(&self.outcome, outcome, "\n{}", self.story());
        self
    }

    /// Expects that memory ended the run, at this limit.
    #[track_caller]
    pub(crate) fn expect_out_of_memory(self, limit: u64) -> Self {
        match &self.outcome {
            Outcome::OutOfMemory { limit_bytes, process, .. } => {
                assert_eq!(*limit_bytes, limit, "\n{}", self.story());
                assert!(!process.is_empty(), "the victim has no name\n{}", self.story());
            }
            other => panic!("expected out_of_memory, got {other:?}\n{}", self.story()),
        }
        self
    }

    /// Expects that a limit was touched, or was not, without deciding the end.
    #[track_caller]
    pub(crate) fn expect_limit_hit(self, limit: LimitKind, hit: bool) -> Self {
        assert_eq!(self.limits_hit.contains(&limit), hit, "{limit:?} in limits_hit\n{}", self.story());
        self
    }

    /// Expects the whole of standard output.
    #[track_caller]
    pub(crate) fn expect_out(self, text: &str) -> Self {
        assert_eq!(self.out(), text, "\n{}", self.story());
        self
    }

    /// The run in a few lines, for the message of a failure.
    pub(crate) fn story(&self) -> String {
        let cut = |text: String| match text.char_indices().nth(1500) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        };
        format!(
            "command {:?}\noutcome {:?}, limits_hit {:?}, {:.0} ms\nstdout ({} bytes) {:?}\nstderr ({} bytes) {:?}",
            self.command.argv,
            self.outcome,
            self.limits_hit,
            self.duration_ms,
            self.0.stdout.bytes,
            cut(self.out()),
            self.0.stderr.bytes,
            cut(self.err()),
        )
    }
}
