//! The tools of `glovebox mcp`, as it lists them itself.

use std::{
    fmt::Write as _,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Page;

/// The page of all tools with their inputs.
pub(super) fn tools(glovebox: &Path) -> Result<Page> {
    let mut text = String::from(
        "# The tools of `glovebox mcp`\n\nWhat a model is told of each, and what each takes. How to give them to an agent: \
         [the guide](../guides/mcp.md).\n\n\
         Reads: it changes nothing. Document: structured content comes with its answer.\n\n\
         | tool | what it is for | reads | document |\n| --- | --- | --- | --- |\n",
    );
    let listed = ask(glovebox)?;
    let tools = listed["tools"].as_array().context("no tools were listed")?;
    // A bar would end the cell of a table.
    let word = |value: &Value| value.as_str().unwrap_or_default().replace('|', "\\|");
    for tool in tools {
        let yes = |yes: bool| if yes { "yes" } else { "" };
        let reads = yes(tool["annotations"]["readOnlyHint"] == true);
        let document = yes(tool["outputSchema"].is_object());
        let _ = writeln!(text, "| `{}` | {} | {reads} | {document} |", word(&tool["name"]), word(&tool["description"]));
    }
    for tool in tools {
        let _ = write!(text, "\n## {}\n\n", word(&tool["name"]));
        let empty = serde_json::Map::new();
        let fields = tool["inputSchema"]["properties"].as_object().unwrap_or(&empty);
        if fields.is_empty() {
            text.push_str("Takes nothing.\n");
            continue;
        }
        text.push_str("| field | type | default | meaning |\n| --- | --- | --- | --- |\n");
        let required: Vec<&Value> = tool["inputSchema"]["required"].as_array().into_iter().flatten().collect();
        for (name, field) in fields {
            let default = match (&field["default"], required.iter().any(|needed| *needed == name)) {
                (_, true) => "needed".to_owned(),
                (Value::Null, false) => String::new(),
                (default, false) => format!("`{default}`"),
            };
            let _ = writeln!(text, "| `{name}` | {} | {default} | {} |", kind(field), word(&field["description"]));
        }
    }
    Ok(Page::markdown("mcp", &text))
}

fn kind(field: &Value) -> String {
    match field["type"].as_str() {
        Some("string") if field["enum"].is_array() => "word".to_owned(),
        Some("array") => format!("list of {}", kind(&field["items"])),
        Some("object") => "map".to_owned(),
        Some(name) => name.to_owned(),
        None => "value".to_owned(),
    }
}

/// Asks the server itself.
fn ask(glovebox: &Path) -> Result<Value> {
    let mut child = Command::new(glovebox)
        .arg("mcp")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("glovebox mcp cannot be started")?;
    let about = json!({ "name": "docs", "version": "1" });
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about });
    let messages = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }),
    ];
    let mut stdin = child.stdin.take().context("it has an input")?;
    for message in messages {
        writeln!(stdin, "{message}")?;
    }
    drop(stdin);
    let output = child.wait_with_output()?;
    let answers = String::from_utf8(output.stdout)?;
    let answers = answers.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
    let listed = answers.iter().find(|answer| answer["id"] == 2).context("it did not list its tools")?;
    Ok(listed["result"].clone())
}
