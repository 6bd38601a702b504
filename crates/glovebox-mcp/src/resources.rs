//! Files of the workspace and what runs wrote, as resources.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use glovebox_core::{Error, ErrorCode, FilePath, Result, RunId, WORKSPACE_DIR};
use glovebox_engine::EntryKind;
use glovebox_ledger::{Filter, Stream};
use rmcp::{
    ErrorData,
    model::{ErrorCode as RpcCode, ListResourcesResult, Resource, ResourceContents, ResourceTemplate},
};

use crate::{
    conversation::Conversation,
    text,
    walk::{Reach, read_whole, walk},
};

/// The largest resource that is handed out whole.
const LARGEST: u64 = 16 << 20;
/// So many files of the workspace are listed.
const FILES: usize = 1000;
/// So many on one page.
const PAGE: usize = 250;
/// So many runs are listed.
const RUNS: u32 = 20;

/// The address of a file below `/workspace`.
pub(crate) fn workspace_uri(path: &[u8]) -> String {
    format!("workspace:///{}", encoded(path))
}

/// The address of what a run wrote.
pub(crate) fn run_uri(run: RunId, part: &str) -> String {
    format!("run://{run}/{part}")
}

/// The forms of addresses.
pub(crate) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new("workspace:///{+path}", "workspace file")
            .with_title("A file of the workspace")
            .with_description(
                "A file by its path below /workspace, such as agent_workspace/main.py or outputs/plot.png",
            ),
        ResourceTemplate::new("run://{run}/{part}", "run")
            .with_title("What a run wrote")
            .with_description("part is stdout, stderr, or result for the whole document"),
    ]
}

/// Files of the workspace, then the last runs.
pub(crate) async fn list(talk: &Conversation, cursor: Option<String>) -> Result<ListResourcesResult, ErrorData> {
    let begin = match cursor.as_deref().map(str::parse::<usize>) {
        None => 0,
        Some(Ok(begin)) if begin <= FILES => begin,
        Some(_) => return Err(ErrorData::invalid_params("there is no page with this cursor", None)),
    };
    let mut all = files(talk).await.map_err(internal)?;
    all.extend(runs(talk).await.map_err(internal)?);
    let mut result = ListResourcesResult::with_all_items(Vec::new());
    result.next_cursor = (all.len() > begin + PAGE).then(|| (begin + PAGE).to_string());
    result.resources = all.into_iter().skip(begin).take(PAGE).collect();
    Ok(result)
}

/// The files of the workspace. A sandbox that would be empty is not made to be looked at.
async fn files(talk: &Conversation) -> Result<Vec<Resource>> {
    let spec = &talk.settings.spec;
    let shows_something = spec.workspace.is_some() || spec.project.is_some() || talk.settings.sandbox.is_some();
    if !shows_something && talk.made().await.is_none() {
        return Ok(Vec::new());
    }
    let top = FilePath::absolute(WORKSPACE_DIR)?;
    let reach = Reach { depth: 8, most: 4 * FILES, all: false };
    let walked = walk(&talk.files().await?, &top, reach).await?;
    // A name with a secret in it could only be told wrong.
    let secrets = talk.secrets();
    let is_told =
        |entry: &glovebox_engine::Entry| !secrets.iter().any(|secret| secret.is_in(below_workspace(&entry.path)));
    let ordinary = walked.entries.into_iter().filter(|met| met.entry.kind == EntryKind::File && is_told(&met.entry));
    let resource = |entry: glovebox_engine::Entry| {
        let below = below_workspace(&entry.path);
        let name = String::from_utf8_lossy(below).into_owned();
        Resource::new(workspace_uri(below), glovebox_core::printable(&name))
            .with_size(entry.bytes)
            .with_mime_type(mime_by_name(&name))
    };
    Ok(ordinary.map(|met| resource(met.entry)).take(FILES).collect())
}

async fn runs(talk: &Conversation) -> Result<Vec<Resource>> {
    let (Some(ledger), Some(sandbox)) = (&talk.settings.ledger, talk.made().await) else { return Ok(Vec::new()) };
    let filter = Filter { sandbox: Some(sandbox.id()), limit: RUNS, ..Filter::default() };
    let listed = ledger.list(&filter).await?;
    let resource = |run: &glovebox_ledger::Summary| {
        let command = text::cut(&glovebox_core::printable(&run.command.argv.join(" ")), 80);
        Resource::new(run_uri(run.run, "result"), format!("run: {command}")).with_mime_type("application/json")
    };
    Ok(listed.runs.iter().filter(|run| run.outcome.is_some()).map(resource).collect())
}

/// Reads a resource.
pub(crate) async fn read(talk: &Conversation, uri: &str) -> Result<ResourceContents, ErrorData> {
    let read = match uri.split_once("://") {
        Some(("workspace", _)) => read_file(talk, uri).await,
        Some(("run", path)) => read_run(talk, uri, path).await,
        _ => Err(not_found(uri)),
    };
    read.map_err(fault)
}

/// An error as a fault of the protocol, which is all that it has for resources.
pub(crate) fn fault(error: Error) -> ErrorData {
    match error.code {
        ErrorCode::FileNotFound | ErrorCode::RunNotFound | ErrorCode::InvalidPath => {
            ErrorData::new(RpcCode::RESOURCE_NOT_FOUND, error.message, None)
        }
        ErrorCode::TooLarge | ErrorCode::TooMany | ErrorCode::IsADirectory | ErrorCode::NotAnOrdinaryFile => {
            ErrorData::invalid_params(error.message, None)
        }
        _ => internal(error),
    }
}

async fn read_file(talk: &Conversation, uri: &str) -> Result<ResourceContents> {
    let path = path_of(uri)?;
    let content = read_whole(&talk.files().await?, &path, LARGEST).await?;
    Ok(contents(talk, content, uri, &mime_of(&path)))
}

async fn read_run(talk: &Conversation, uri: &str, path: &str) -> Result<ResourceContents> {
    let (run, part) = path.split_once('/').ok_or_else(|| not_found(uri))?;
    let (Some(ledger), Ok(run)) = (&talk.settings.ledger, run.parse::<RunId>()) else { return Err(not_found(uri)) };
    let document: serde_json::Value = serde_json::from_str(&ledger.document(run).await?)
        .map_err(|error| Error::new(ErrorCode::LedgerDamaged, format!("{run} cannot be read")).because(error))?;
    // The record holds runs of others, too, and those are none of this client's business.
    let is_own = |text: &str| text.parse().is_ok_and(|sandbox| talk.had().contains(&sandbox));
    if !document["sandbox"].as_str().is_some_and(is_own) {
        return Err(not_found(uri));
    }
    let content = match part {
        "stdout" => ledger.output(run, Stream::Stdout).await?,
        "stderr" => ledger.output(run, Stream::Stderr).await?,
        "result" => document.to_string().into_bytes(),
        _ => return Err(not_found(uri)),
    };
    let mime = if part == "result" { "application/json" } else { "text/plain" };
    Ok(contents(talk, content, uri, mime))
}

fn contents(talk: &Conversation, content: Vec<u8>, uri: &str, mime: &str) -> ResourceContents {
    match String::from_utf8(content) {
        Ok(mut content) if !mime.starts_with("image/") || mime == "image/svg+xml" => {
            text::mask(&talk.secrets(), &mut content);
            ResourceContents::text(content, uri).with_mime_type(mime)
        }
        Ok(content) => ResourceContents::blob(BASE64_STANDARD.encode(content), uri).with_mime_type(mime),
        Err(error) => {
            let mime = if mime.starts_with("text/") { "application/octet-stream" } else { mime };
            ResourceContents::blob(BASE64_STANDARD.encode(error.as_bytes()), uri).with_mime_type(mime)
        }
    }
}

/// The file of an address.
pub(crate) fn path_of(uri: &str) -> Result<FilePath> {
    let path = uri.strip_prefix("workspace://").and_then(decoded).ok_or_else(|| not_found(uri))?;
    FilePath::absolute(WORKSPACE_DIR)?.join(path.strip_prefix(b"/").unwrap_or(&path))
}

/// What is below `/workspace` of a path.
pub(crate) fn below_workspace(path: &FilePath) -> &[u8] {
    let below = path.as_bytes().strip_prefix(WORKSPACE_DIR.as_bytes()).unwrap_or(path.as_bytes());
    below.strip_prefix(b"/").unwrap_or(below)
}

/// The type of a file by its ending.
pub(crate) fn mime_of(path: &FilePath) -> String {
    mime_by_name(&String::from_utf8_lossy(path.name())).to_owned()
}

/// The type of a file by the ending of its name.
pub(crate) fn mime_by_name(name: &str) -> &'static str {
    const TYPES: [(&[&str], &str); 16] = [
        (&["png"], "image/png"),
        (&["jpg", "jpeg"], "image/jpeg"),
        (&["gif"], "image/gif"),
        (&["webp"], "image/webp"),
        (&["svg"], "image/svg+xml"),
        (&["pdf"], "application/pdf"),
        (&["json", "ipynb"], "application/json"),
        (&["html", "htm"], "text/html"),
        (&["md"], "text/markdown"),
        (&["csv"], "text/csv"),
        (&["zip"], "application/zip"),
        (&["gz", "tgz"], "application/gzip"),
        (&["tar"], "application/x-tar"),
        (&["mp3"], "audio/mpeg"),
        (&["wav"], "audio/wav"),
        (&["xlsx"], "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ];
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase()).unwrap_or_default();
    TYPES.iter().find(|(endings, _)| endings.contains(&ending.as_str())).map_or("text/plain", |(_, mime)| mime)
}

fn not_found(uri: &str) -> Error {
    Error::new(ErrorCode::FileNotFound, format!("there is no resource {:?}", text::cut(uri, 200)))
}

fn internal(error: Error) -> ErrorData {
    let hint = error.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
    ErrorData::internal_error(format!("{}: {}{hint}", error.code, error.message), None)
}

/// A path as it stands in an address: what is no plain character is written as `%HH`.
fn encoded(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' | b'~' => text.push(char::from(*byte)),
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut path = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        path.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_survives_the_way_through_an_address() {
        for path in [&b"a/b.txt"[..], b"with space/%41", b"\xff\xfe\n", "ü/\u{202e}".as_bytes()] {
            let uri = workspace_uri(path);
            assert!(uri.is_ascii() && !uri.contains(' '));
            assert_eq!(decoded(uri.strip_prefix("workspace:///").unwrap()).unwrap(), path);
        }
        assert!(decoded("%4").is_none() && decoded("%zz").is_none());
    }
}
