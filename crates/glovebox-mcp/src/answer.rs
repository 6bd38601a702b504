//! What came of a call, as content of the protocol.

use std::sync::Arc;

use glovebox_core::{Error, Secret};
use rmcp::{
    handler::server::tool::schema_for_output,
    model::{CallToolResult, ContentBlock, JsonObject, ProtocolVersion},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::text;

/// What came of a call.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) content: Vec<ContentBlock>,
    document: Option<Value>,
}

impl Answer {
    /// An answer in words.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Answer { content: vec![ContentBlock::text(text)], document: None }
    }

    /// The same answer with more content.
    #[must_use]
    pub(crate) fn and(mut self, content: ContentBlock) -> Self {
        self.content.push(content);
        self
    }

    /// The same answer with a document for programs.
    #[must_use]
    pub(crate) fn with_document(mut self, document: &impl Serialize) -> Self {
        // Plain data; only a map with odd keys could fail.
        self.document = serde_json::to_value(document).ok();
        self
    }

    /// The answer as the protocol has it, without secrets.
    pub(crate) fn into_result(
        mut self,
        note: Option<String>,
        secrets: &[&Secret],
        version: Option<&ProtocolVersion>,
    ) -> CallToolResult {
        if let Some(note) = note {
            self.content.insert(0, ContentBlock::text(note));
        }
        if version.is_some_and(|version| *version < ProtocolVersion::V_2025_06_18) {
            self.content = self.content.into_iter().map(without_link).collect();
        }
        mask_all(&mut self.content, secrets);
        let mut result = CallToolResult::success(self.content);
        result.structured_content = self.document.map(|mut document| {
            text::mask_value(secrets, &mut document);
            document
        });
        result
    }
}

/// Clients of older protocols know no links, and take an answer with one for malformed.
fn without_link(block: ContentBlock) -> ContentBlock {
    match block {
        ContentBlock::ResourceLink(link) => ContentBlock::text(format!("[{}: {}]", link.name, link.uri)),
        other => other,
    }
}

/// The error of a call, for the model that made it: what happened, and what to do.
pub(crate) fn failed(error: &Error, note: Option<String>, secrets: &[&Secret]) -> CallToolResult {
    let mut message = format!("{}: {}", error.code, error.message);
    if let Some(hint) = &error.hint {
        message.push_str("\nhint: ");
        message.push_str(hint);
    }
    let mut content: Vec<ContentBlock> = note.into_iter().map(ContentBlock::text).collect();
    content.push(ContentBlock::text(message));
    mask_all(&mut content, secrets);
    CallToolResult::error(content)
}

fn mask_all(content: &mut [ContentBlock], secrets: &[&Secret]) {
    if secrets.is_empty() {
        return;
    }
    for block in content {
        if let ContentBlock::Text(content) = block {
            text::mask(secrets, &mut content.text);
        }
    }
}

/// The schema of a document.
pub(crate) fn schema<T: JsonSchema + 'static>() -> Option<Arc<JsonObject>> {
    Some(schema_for_output::<T>())
}
