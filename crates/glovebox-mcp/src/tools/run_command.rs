//! `run_command`: one command in the sandbox, to its end.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use glovebox_core::Result;
use glovebox_engine::Stdin;
use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Effect, ToolCall, time_limit,
    what::{Variables, What},
};
use crate::{
    answer::{Answer, schema},
    call::Call,
    conversation::Conversation,
    report::{self, RunReport},
    running,
};

/// A command to run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunCommand {
    /// A line for bash, such as "pytest -q | tail -5". Either this or argv.
    #[serde(default)]
    command: Option<String>,
    /// A program and its arguments, without a shell. Either this or command.
    #[serde(default)]
    argv: Option<Vec<String>>,
    /// The folder to start in; by default the working directory.
    #[serde(default)]
    cwd: Option<String>,
    /// Variables to set. Their values stand in the record of the run.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    env: Variables,
    /// What the command reads on standard input.
    #[serde(default)]
    stdin: Option<String>,
    /// Ends the command after this many seconds; by default and at most the time limit of a call.
    #[serde(default)]
    timeout_seconds: Option<f64>,
}

impl ToolCall for RunCommand {
    const NAME: &'static str = "run_command";
    const TITLE: &'static str = "Run a command";
    const ABOUT: &'static str = "Runs a shell line (command) or a program with arguments (argv) in the sandbox and waits for \
        its end. Gives stdout, stderr and the exit code. Each call is a fresh shell: cd and variables do not carry over; \
        files do. For servers and long jobs use start_process.";
    const EFFECT: Effect = Effect::Acts;

    fn output() -> Option<Arc<JsonObject>> {
        schema::<RunReport>()
    }

    async fn call(self, talk: &Conversation, call: &Call) -> Result<Answer> {
        let limit = time_limit(&talk.settings, self.timeout_seconds)?;
        let (command, argv) = (self.command.as_deref(), self.argv.as_deref());
        let what = What { command, argv, cwd: self.cwd.as_deref(), env: &self.env };
        let stdin = self.stdin.as_ref().map(|text| Bytes::copy_from_slice(text.as_bytes()));
        let run = async || {
            let mut request = what.request(talk)?;
            request.spec.limits.timeout = limit;
            request.stdin = stdin.clone().map_or(Stdin::Empty, Stdin::Bytes);
            running::run(talk, call, request).await
        };
        let result = match run().await {
            Err(error) if what.needs_sh(&error, talk) => run().await,
            other => other,
        };
        result.map(|result| report::answer(&result)).map_err(|error| what.explain(error))
    }
}
