//! Links between the docs lead somewhere.

use std::collections::BTreeMap;

use super::Offence;
use crate::tree::{SourceFile, root};

pub(super) fn links_resolve(files: &[SourceFile]) -> Vec<Offence> {
    let pages: BTreeMap<&str, &str> = files
        .iter()
        .filter(|file| file.path.ends_with(".md"))
        .map(|file| (file.path.as_str(), file.text.as_str()))
        .collect();
    let mut offences = Vec::new();
    for (path, text) in &pages {
        for (line, link) in links(text) {
            if let Err(message) = resolve(path, &link, &pages) {
                offences.push(Offence::new(path, line, message));
            }
        }
    }
    offences
}

fn resolve(page: &str, link: &str, pages: &BTreeMap<&str, &str>) -> Result<(), String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return Ok(());
    }
    let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path = if target.is_empty() { page.to_owned() } else { join(page, target)? };
    if !root().join(&path).exists() && !pages.contains_key(path.as_str()) {
        return Err(format!("the link {link} leads to {path}, which does not exist"));
    }
    match pages.get(path.as_str()) {
        Some(text) if !anchor.is_empty() && !anchors(text).any(|found| found == anchor) => {
            Err(format!("the link {link} leads to a heading that does not exist"))
        }
        _ => Ok(()),
    }
}

/// The path of a link as seen from a page, below the root.
fn join(page: &str, target: &str) -> Result<String, String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop().ok_or_else(|| format!("the link {target} leaves the tree"))?;
        } else {
            parts.push(part);
        }
    }
    Ok(parts.join("/"))
}

/// Lines outside of code fences, with their numbers from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((at + 1, line))
    })
}

/// Targets of `[text](target)` and of `src="target"`.
fn links(text: &str) -> impl Iterator<Item = (usize, String)> {
    prose(text).flat_map(|(line, text)| {
        let ends = [("](", ')'), ("src=\"", '"'), ("href=\"", '"')];
        ends.into_iter().flat_map(move |(open, close)| {
            text.split(open)
                .skip(1)
                .filter_map(move |tail| tail.split_once(close).map(|(link, _)| (line, link.to_owned())))
        })
    })
}

/// The anchors of a page's headings, as the usual renderers make them.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::{super::tests::file, *};

    #[test]
    fn links_to_missing_pages_and_headings_are_offences() {
        let files = [
            file("docs/a.md", "[b](b.md) [c](../docs/b.md#the-b-s) [web](https://docs.rs)\n```\n[no](no.md)\n```\n"),
            file("docs/b.md", "# The `b` s\n"),
        ];
        assert_eq!(links_resolve(&files), []);
        let files = [file("docs/a.md", "[x](x.md)\n[y](#y)\n[z](../../z.md)\n<img src=\"p.svg\">\n")];
        assert_eq!(links_resolve(&files).iter().map(|offence| offence.line).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
}
