//! What `doctor` and `prove` print: a list of checks, as a table or as a document.

use std::fmt::Write as _;

use glovebox_core::Result;
use serde::Serialize;

use crate::report;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// It is there; it holds.
    Ok,
    /// It is not there; it does not hold.
    Missing,
    /// It is there in part, or could not be judged.
    Degraded,
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Missing => "missing",
            Status::Degraded => "degraded",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    /// What belongs together is printed together.
    pub(crate) group: &'static str,
    /// What was looked at.
    pub(crate) name: String,
    /// How it ended.
    pub(crate) status: Status,
    /// What was seen.
    pub(crate) detail: String,
    /// What would help: a command where there is one.
    pub(crate) fix: Option<String>,
    /// Whether its absence is a failure.
    pub(crate) needed: bool,
}

impl Check {
    /// Something that was looked at and is needed.
    pub(crate) fn new(group: &'static str, name: &str, status: Status, detail: impl Into<String>) -> Self {
        Check { group, name: name.to_owned(), status, detail: detail.into(), fix: None, needed: true }
    }

    /// The same check with what would help, unless all is well.
    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into()).filter(|_| self.status != Status::Ok);
        self
    }

    /// The same check of something that one can do without.
    pub(crate) fn optional(mut self) -> Self {
        self.needed = false;
        self
    }
}

/// The document that `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    checks: &'a [Check],
    #[serde(skip_serializing_if = "Option::is_none")]
    fixed: Option<&'a [String]>,
}

/// Prints checks, and what was fixed where that was asked for, and returns the exit code: 1 when something needed is
/// missing.
pub(crate) fn print(checks: &[Check], fixed: Option<&[String]>, summary: &str, json: bool) -> Result<u8> {
    if json {
        report::document(&Document { checks, fixed })?;
    } else {
        report::print(&table(checks, summary))?;
    }
    Ok(u8::from(checks.iter().any(|check| check.needed && check.status == Status::Missing)))
}

/// A table for people. What is well takes one line; the rest says why, and what helps.
fn table(checks: &[Check], summary: &str) -> String {
    let mut text = String::new();
    let mut group = "";
    for check in checks {
        if check.group != group {
            let gap = if group.is_empty() { "" } else { "\n" };
            group = check.group;
            let _ = writeln!(text, "{gap}{group}");
        }
        let detail = if check.detail.is_empty() { String::new() } else { format!(": {}", check.detail) };
        let line = format!("{}{detail}", check.name);
        let _ = writeln!(text, "  {:<8}  {}", check.status.as_str(), glovebox_core::printable(&line));
        if let Some(fix) = &check.fix {
            let _ = writeln!(text, "            fix: {}", glovebox_core::printable(fix));
        }
    }
    let _ = writeln!(text, "\n{summary}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_groups_reasons_and_remedies() {
        let checks = [
            Check::new("kernel", "landlock", Status::Ok, "version 6").fix("not shown"),
            Check::new("kernel", "overlay", Status::Missing, "no\u{1b}module").fix("modprobe overlay"),
        ];
        let text = table(&checks, "done");
        assert_eq!(
            text,
            "kernel\n  ok        landlock: version 6\n  missing   overlay: no\\u{1b}module\n            fix: modprobe \
             overlay\n\ndone\n"
        );
    }
}
