//! Rust source with its comments and literals blanked out, so that rules look at code alone.

/// Replaces comments and the insides of string and character literals by spaces. Lines and columns stay.
pub(super) fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut after_word = false;
    while let Some(first) = rest.chars().next() {
        let length = if after_word { 0 } else { raw_string(rest) }.max(comment_or_literal(rest));
        let (blank, take) = if length > 0 { (true, length) } else { (false, first.len_utf8()) };
        let (taken, tail) = rest.split_at(take);
        if blank {
            out.extend(taken.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        } else {
            out.push_str(taken);
        }
        after_word = !blank && (first.is_alphanumeric() || first == '_');
        rest = tail;
    }
    out
}

/// Length of the comment or quoted literal that `text` starts with, or 0.
fn comment_or_literal(text: &str) -> usize {
    if text.starts_with("//") {
        text.find('\n').unwrap_or(text.len())
    } else if text.starts_with("/*") {
        block_comment(text)
    } else if text.starts_with('"') {
        quoted(text, '"')
    } else if text.starts_with('\'') {
        character(text)
    } else {
        0
    }
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    text.len()
}

fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// A character literal, and not a lifetime: `'x'` or `'\…'`.
fn character(text: &str) -> usize {
    let mut chars = text.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(text, '\''),
        _ => 0,
    }
}

/// A raw string: `r"…"`, `r#"…"#`, `br#"…"#` and so on.
fn raw_string(text: &str) -> usize {
    let start = ["r", "br", "cr"]
        .iter()
        .find(|p| text.strip_prefix(**p).is_some_and(|tail| tail.trim_start_matches('#').starts_with('"')));
    let Some(prefix) = start else { return 0 };
    let tail = &text[prefix.len()..];
    let hashes = tail.len() - tail.trim_start_matches('#').len();
    let end = format!("\"{}", "#".repeat(hashes));
    let body = prefix.len() + hashes + 1;
    text[body..].find(&end).map_or(text.len(), |at| body + at + end.len())
}

/// Byte offsets at which `word` stands as a whole word.
pub(super) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        !code[..*at].chars().next_back().is_some_and(part) && !code[at + word.len()..].chars().next().is_some_and(part)
    })
}

/// The line of a byte offset, from 1.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_become_blank_and_code_stays() {
        let text = "let a = \"unsafe \\\" {\"; // unsafe\nlet c = '{'; /* a /* unsafe */ b */ fn f<'a>() {}";
        let code = code_only(text);
        assert_eq!(code.len(), text.len());
        assert!(!code.contains("unsafe"));
        assert_eq!(code.matches('{').count(), 1);
        assert!(code.contains("fn f<'a>() {}"));
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes() {
        let code = code_only("let a = r#\"x\" unsafe {\"#; unsafe { b }");
        assert_eq!(words(&code, "unsafe").count(), 1);
        assert_eq!(words("unsafe_code unsafe", "unsafe").collect::<Vec<_>>(), [12]);
    }
}
