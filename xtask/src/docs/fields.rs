//! The reference of the result document, taken from the documented fields of its types.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use glovebox_core::RunResult;

use super::Page;
use crate::tree;

/// The types that make up the result: the heading, the file, the type, and a word about it.
const PARTS: [(&str, &str, &str, &str); 12] = [
    ("The document", "result.rs", "RunResult", "One object for each run."),
    ("command", "result.rs", "CommandRecord", "Values of secrets are masked."),
    ("workspace", "result.rs", "WorkspaceRecord", "With `overlay`, [`apply`](cli.md) brings the changes there."),
    ("compile", "result.rs", "CompileRecord", "Only for languages that are compiled before they run; else null."),
    ("stdout and stderr", "result.rs", "OutputRecord", "A stream past its limit keeps its head and its tail."),
    ("usage", "evidence.rs", "Usage", "Counted by the host's kernel; nothing here is the guest's word."),
    ("limits", "limits.rs", "LimitsInForce", "What was really in force."),
    ("isolation", "isolation.rs", "Isolation", "The names are those of the [layers](layers.md)."),
    ("changes", "change.rs", "ChangeSet", "Paths below `/workspace`, sorted."),
    ("artifacts", "result.rs", "Artifact", "One object for each file that was kept."),
    ("denials", "result.rs", "Denial", "One object for each thing that the policy refused."),
    ("warnings", "result.rs", "Warning", "The codes are those of the [errors](errors.md)."),
];

/// A field of a struct, as its source documents it.
pub(super) struct Field {
    pub(super) name: String,
    kind: String,
    pub(super) doc: String,
}

/// The page of the result document.
pub(super) fn result() -> Result<Page> {
    let sample: RunResult = serde_json::from_str(SAMPLE).context("the sample result does not fit the type")?;
    let sample = serde_json::to_string_pretty(&sample)?;
    let mut text = String::from(
        "# The result of a run\n\n\
         `glovebox run --json` prints one such document on standard output and nothing else. `--json` changes no exit\n\
         code. Fields are added over time and never change their meaning.\n",
    );
    let _ = write!(text, "\n```json\n{sample}\n```\n");
    for (title, file, name, note) in PARTS {
        let _ = write!(text, "\n## {title}\n\n{note}\n\n| field | type | meaning |\n| --- | --- | --- |\n");
        for Field { name, kind, doc } in of(&format!("crates/glovebox-core/src/{file}"), name)? {
            let _ = writeln!(text, "| `{name}` | {kind} | {doc} |");
        }
    }
    text.push_str(&outcomes()?);
    Ok(Page::markdown("result", &text))
}

/// The outcomes with their fields, from the enum's own docs.
fn outcomes() -> Result<String> {
    let source = read("crates/glovebox-core/src/outcome.rs")?;
    let body = body_of(&source, "pub enum Outcome {")?;
    let mut text = String::from(
        "\n## outcome\n\nThe program's fate, decided from evidence.\n\n| `kind` | meaning | fields |\n| --- | --- | --- |\n",
    );
    let mut docs = Vec::new();
    let mut lines = body.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(doc) = line.strip_prefix("    /// ") {
            docs.push(doc.to_owned());
        } else if let Some(name) = line.strip_prefix("    ").filter(|name| name.starts_with(char::is_uppercase)) {
            let inner: Vec<&str> = if line.ends_with('{') {
                lines.by_ref().take_while(|line| *line != "    },").collect()
            } else {
                Vec::new()
            };
            let fields: Vec<String> = documented(&inner.join("\n"), "        ")
                .into_iter()
                .map(|field| format!("`{}`: {}", field.name, field.doc.trim_end_matches('.')))
                .collect();
            let name = name.trim_end_matches([',', '{', ' ']);
            let _ = writeln!(text, "| `{}` | {} | {} |", snake_case(name), docs.join(" "), fields.join("; "));
            docs.clear();
        }
    }
    Ok(text)
}

/// The fields of a public struct in a source file.
pub(super) fn of(path: &str, name: &str) -> Result<Vec<Field>> {
    let source = read(path)?;
    let fields = documented(body_of(&source, &format!("pub struct {name} {{"))?, "    pub ");
    ensure!(!fields.is_empty(), "{path}: {name} has no documented fields");
    Ok(fields)
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(tree::root().join(path)).with_context(|| format!("cannot read {path}"))
}

/// What stands between the line `start` and the brace that closes it at the line's own indentation.
fn body_of<'a>(source: &'a str, start: &str) -> Result<&'a str> {
    let from = source.find(start).with_context(|| format!("there is no `{start}`"))? + start.len();
    let length = source[from..].find("\n}").with_context(|| format!("`{start}` does not end"))?;
    Ok(&source[from..from + length])
}

/// Lines `NAME: TYPE,` with the doc comment above each.
fn documented(body: &str, indent: &str) -> Vec<Field> {
    let mut fields = Vec::new();
    let mut docs: Vec<&str> = Vec::new();
    for line in body.lines() {
        if let Some(doc) = line.trim_start().strip_prefix("/// ") {
            docs.push(doc);
        } else if let Some((name, kind)) = line.strip_prefix(indent).and_then(|line| line.split_once(": ")) {
            let doc = docs.join(" ").replace("[`", "`").replace("`]", "`").replace('|', "\\|");
            fields.push(Field { name: name.to_owned(), kind: json_type(kind.trim_end_matches(',')), doc });
            docs.clear();
        }
    }
    fields
}

/// The JSON shape of a Rust type, in words.
fn json_type(rust: &str) -> String {
    let inner = |prefix: &str| rust.strip_prefix(prefix).and_then(|tail| tail.strip_suffix('>'));
    if let Some(inner) = inner("Option<") {
        return format!("{} or null", json_type(inner));
    }
    if let Some(inner) = inner("Vec<") {
        return format!("array of {}", json_type(inner));
    }
    if let Some(inner) = inner("BTreeMap<String, ") {
        return format!("object of {}", json_type(inner));
    }
    match rust {
        "String" | "RunId" | "SandboxId" | "Layer" | "LimitKind" | "Enforcement" | "Step" => "string",
        "Timestamp" => "time",
        "bool" => "boolean",
        "f64" => "number",
        "u64" | "u32" | "i32" => "integer",
        _ => "object",
    }
    .to_owned()
}

fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// A result as it may look. It is parsed into the real type and written again, so it cannot drift from the code.
const SAMPLE: &str = include_str!("sample_result.json");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_fields_are_found_with_their_type() {
        let body =
            "\n    /// The a\n    /// of it.\n    pub a: Option<u64>,\n    #[serde(default)]\n    pub b: Vec<String>,";
        let fields = documented(body, "    pub ");
        assert_eq!((fields[0].name.as_str(), fields[0].kind.as_str()), ("a", "integer or null"));
        assert_eq!(fields[0].doc, "The a of it.");
        assert_eq!(fields[1].kind, "array of string");
    }

    #[test]
    fn every_outcome_is_on_the_page() {
        let text = outcomes().unwrap();
        for kind in
            ["exited", "signaled", "timed_out", "out_of_memory", "output_exceeded", "disk_full", "cancelled", "lost"]
        {
            assert!(text.contains(&format!("| `{kind}` |")), "{kind}");
        }
    }
}
