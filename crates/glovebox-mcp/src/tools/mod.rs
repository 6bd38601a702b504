//! The tools: one table, a file for each group.

mod changes;
mod edit_file;
mod files;
mod processes;
pub(crate) mod read_file;
mod run_code;
mod run_command;
mod sandbox;
mod schemas;
mod search_files;
mod transfer;
mod what;

use std::{pin::Pin, sync::Arc, time::Duration};

use glovebox_core::{Error, ErrorCode, Network, Result};
use rmcp::{
    handler::server::common::schema_for_input,
    model::{JsonObject, Tool, ToolAnnotations},
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::{Settings, answer::Answer, call::Call, conversation::Conversation};

/// What a tool does to the sandbox, as hints for clients.
#[derive(Clone, Copy)]
pub(crate) enum Effect {
    /// It only looks.
    Reads,
    /// It adds or changes something inside that can be made again.
    Writes,
    /// It runs what it is given, or takes something away.
    Acts,
}

/// A tool: the type is its input.
pub(crate) trait ToolCall: DeserializeOwned + JsonSchema + Send + 'static {
    const NAME: &'static str;
    const TITLE: &'static str;
    const ABOUT: &'static str;
    const EFFECT: Effect;

    /// The schema of the document that comes with an answer, if one does.
    fn output() -> Option<Arc<JsonObject>> {
        None
    }

    /// What the settings of the user add to what a model is told.
    fn note(_settings: &Settings) -> Option<String> {
        None
    }

    fn call(self, talk: &Conversation, call: &Call) -> impl Future<Output = Result<Answer>> + Send;
}

type Calling<'a> = Pin<Box<dyn Future<Output = Result<Answer>> + Send + 'a>>;

/// One line of the table.
pub(crate) struct Entry {
    name: &'static str,
    describe: fn() -> Tool,
    note: fn(&Settings) -> Option<String>,
    start: for<'a> fn(&'a Conversation, &'a Call, JsonObject) -> Calling<'a>,
}

/// Every tool, in the order in which models see them.
const TOOLS: [Entry; 19] = [
    entry::<run_code::RunCode>(),
    entry::<run_command::RunCommand>(),
    entry::<read_file::ReadFile>(),
    entry::<files::WriteFile>(),
    entry::<edit_file::EditFile>(),
    entry::<files::ListFiles>(),
    entry::<search_files::SearchFiles>(),
    entry::<transfer::Upload>(),
    entry::<transfer::Download>(),
    entry::<processes::StartProcess>(),
    entry::<processes::ReadProcess>(),
    entry::<processes::WriteProcess>(),
    entry::<processes::StopProcess>(),
    entry::<processes::ListProcesses>(),
    entry::<changes::ListChanges>(),
    entry::<changes::ApplyChanges>(),
    entry::<sandbox::UsageNow>(),
    entry::<sandbox::ResetSandbox>(),
    entry::<run_code::ControlSession>(),
];

const fn entry<T: ToolCall>() -> Entry {
    Entry { name: T::NAME, describe: describe::<T>, note: T::note, start: start::<T> }
}

impl Entry {
    /// The tool as clients see it.
    pub(crate) fn tool(&self, settings: &Settings) -> Tool {
        let mut tool = (self.describe)();
        if let (Some(note), Some(about)) = ((self.note)(settings), &tool.description) {
            tool.description = Some(format!("{about} {note}").into());
        }
        // What is run reaches whatever the sandbox reaches.
        if let Some(hints) = tool.annotations.as_mut().filter(|hints| hints.destructive_hint == Some(true)) {
            hints.open_world_hint = Some(settings.spec.network == Network::Full);
        }
        tool
    }

    /// Calls it.
    pub(crate) async fn call(&self, talk: &Conversation, call: &Call, given: JsonObject) -> Result<Answer> {
        (self.start)(talk, call, given).await
    }
}

/// All tools as clients see them.
pub(crate) fn all(settings: &Settings) -> Vec<Tool> {
    TOOLS.iter().map(|entry| entry.tool(settings)).collect()
}

/// The tool of a name.
pub(crate) fn find(name: &str) -> Option<&'static Entry> {
    TOOLS.iter().find(|entry| entry.name == name)
}

fn describe<T: ToolCall>() -> Tool {
    // Input types are structures, so their schemas are of objects.
    let input = schemas::input(&schema_for_input::<T>().unwrap_or_default());
    let hints = ToolAnnotations::with_title(T::TITLE).open_world(false);
    let hints = match T::EFFECT {
        Effect::Reads => hints.read_only(true),
        Effect::Writes => hints.read_only(false).destructive(false),
        Effect::Acts => hints.read_only(false).destructive(true),
    };
    let mut tool = Tool::new(T::NAME, T::ABOUT, input).with_title(T::TITLE).with_annotations(hints);
    tool.output_schema = T::output().map(|schema| Arc::new(schemas::output(&schema)));
    tool
}

fn start<'a, T: ToolCall>(talk: &'a Conversation, call: &'a Call, given: JsonObject) -> Calling<'a> {
    match serde_json::from_value::<T>(given.into()) {
        Ok(input) => Box::pin(input.call(talk, call)),
        Err(error) => Box::pin(std::future::ready(Err(misfit::<T>(&error)))),
    }
}

/// The error for arguments that do not fit, so that a model can mend them.
fn misfit<T: ToolCall>(error: &serde_json::Error) -> Error {
    let why = crate::text::cut(&error.to_string(), 300);
    let schema = schema_for_input::<T>().unwrap_or_default();
    let names = |key: &str| match schema.get(key) {
        Some(serde_json::Value::Object(fields)) => fields.keys().cloned().collect(),
        Some(serde_json::Value::Array(names)) => {
            names.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
        }
        _ => Vec::new(),
    };
    let needed: Vec<String> = names("required");
    let needed = if needed.is_empty() { String::new() } else { format!("; needed: {}", needed.join(", ")) };
    let hint = format!("it takes: {}{needed}", names("properties").join(", "));
    Error::new(ErrorCode::InvalidValue, format!("the arguments of {} do not fit: {why}", T::NAME)).hint(hint)
}

/// How long a call may take: what was asked for, within what the user allows.
pub(crate) fn time_limit(settings: &Settings, seconds: Option<f64>) -> Result<Duration> {
    let longest = settings.longest();
    match seconds {
        None => Ok(longest),
        Some(seconds) if seconds.is_finite() && seconds > 0.0 => {
            Ok(Duration::try_from_secs_f64(seconds).unwrap_or(longest).clamp(Duration::from_millis(1), longest))
        }
        Some(_) => Err(Error::new(ErrorCode::InvalidValue, "timeout_seconds must be above 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_and_every_field_says_what_it_is_for() {
        let mut names = std::collections::HashSet::new();
        for tool in TOOLS.iter().map(|entry| (entry.describe)()) {
            let (name, about) = (tool.name.as_ref(), tool.description.as_deref().unwrap_or_default());
            assert!(names.insert(name.to_owned()), "{name} is there twice");
            assert!(name.len() <= 32 && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            assert!((30..600).contains(&about.len()) && find(name).is_some(), "{name}");
            let fields = tool.input_schema.get("properties").and_then(|fields| fields.as_object());
            for (field, schema) in fields.into_iter().flatten() {
                assert!(schema["description"].is_string(), "{name}.{field} says nothing");
            }
            // Not every client follows references.
            assert!(!serde_json::to_string(&tool.input_schema).unwrap().contains("$ref"), "{name}");
            assert_eq!(tool.input_schema.get("additionalProperties"), Some(&false.into()), "{name}");
        }
    }

    #[test]
    fn all_that_a_model_pays_for_fits_on_a_few_pages() {
        let bytes: usize = TOOLS
            .iter()
            .map(|entry| {
                let mut tool = (entry.describe)();
                // Clients hand input schemas to models, and keep output schemas for themselves.
                tool.output_schema = None;
                serde_json::to_string(&tool).unwrap().len()
            })
            .sum();
        assert!(bytes < 16 * 1024, "{bytes}");
    }
}
