//! Regular expressions that a model writes. The engine takes time in step with the text, times the size of the pattern, so both
//! are bounded; and whoever searches does so beside the thread that serves the client.

use glovebox_core::{Error, ErrorCode, Result};
use regex::bytes::{Regex, RegexBuilder};

use crate::text;

/// The longest pattern, in bytes.
const LONGEST: usize = 1000;
/// What a pattern may take once it is compiled, in bytes.
const LARGEST: usize = 1 << 20;

/// A pattern in the field of a name, for text of many lines.
pub(crate) fn parse(field: &str, pattern: &str, ignore_case: bool) -> Result<Regex> {
    let invalid = |why: String| Error::new(ErrorCode::InvalidValue, format!("{field} {why}"));
    if pattern.len() > LONGEST {
        return Err(invalid(format!("is longer than {LONGEST} bytes")).hint("look for a part of it"));
    }
    let built = RegexBuilder::new(pattern)
        .case_insensitive(ignore_case)
        .multi_line(true)
        .size_limit(LARGEST)
        .dfa_size_limit(LARGEST)
        .build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => invalid("is too large once it is compiled".to_owned())
            .hint("repeat less often (.* in place of .{1000}), or name letters: [0-9a-z] in place of \\w"),
        other => invalid(format!("is no regular expression: {}", text::cut(&other.to_string(), 300)))
            .hint("a backslash takes the meaning from . * + ? ( ) [ ] { } | ^ $; there is no lookaround"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_take_long_or_is_no_pattern_is_refused_in_words_that_help() {
        assert!(parse("until", r"^Listening on .*:\d+$", false).unwrap().is_match(b"x\nListening on a:80\ny"));
        assert!(parse("pattern", r"(?i)\bpräzise\w*\s+\w+[äöü]\w{1,3}", true).is_ok());
        for (pattern, why) in [
            ("a".repeat(1001), "until is longer than 1000 bytes"),
            ("(x{1000}){1000}".to_owned(), "until is too large once it is compiled"),
            ("a(".to_owned(), "until is no regular expression"),
            ("(?=a)".to_owned(), "until is no regular expression"),
        ] {
            let error = parse("until", &pattern, false).unwrap_err();
            assert!(error.message.starts_with(why) && error.hint.is_some(), "{error:?}");
        }
    }
}
