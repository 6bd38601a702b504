//! `usage` and `reset_sandbox`.

use std::sync::Arc;

use glovebox_core::Result;
use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, ToolCall};
use crate::{
    answer::{Answer, schema},
    call::Call,
    conversation::Conversation,
    text,
};

/// Nothing is needed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsageNow {}

/// What the sandbox uses, and what it may use.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UsageReport {
    /// The sandbox.
    sandbox: String,
    /// CPU time since it was made, milliseconds.
    cpu_ms: f64,
    /// Memory in use, bytes.
    memory_bytes: u64,
    /// Highest memory use, bytes.
    memory_peak_bytes: u64,
    /// Processes and threads now.
    processes: u64,
    /// What its files take, bytes.
    disk_bytes: Option<u64>,
    /// Memory that it may use, bytes.
    memory_limit_bytes: u64,
    /// CPUs that it may use.
    cpus_limit: f64,
    /// Processes and threads that it may have.
    processes_limit: u64,
    /// Bytes that it may write.
    disk_limit_bytes: u64,
    /// Seconds that one call may take.
    call_limit_seconds: f64,
}

impl ToolCall for UsageNow {
    const NAME: &'static str = "usage";
    const TITLE: &'static str = "Usage and limits";
    const ABOUT: &'static str =
        "Shows what the sandbox uses now, and its limits: CPU, memory, processes, disk, time of a call.";
    const EFFECT: Effect = Effect::Reads;

    fn output() -> Option<Arc<JsonObject>> {
        schema::<UsageReport>()
    }

    async fn call(self, talk: &Conversation, _call: &Call) -> Result<Answer> {
        let sandbox = talk.sandbox().await?;
        let (now, limits) = (sandbox.usage().await?, &sandbox.created().limits);
        let report = UsageReport {
            sandbox: sandbox.id().to_string(),
            cpu_ms: now.cpu_ms,
            memory_bytes: now.memory_bytes,
            memory_peak_bytes: now.memory_peak_bytes,
            processes: now.processes,
            disk_bytes: now.disk_bytes,
            memory_limit_bytes: limits.memory_bytes,
            cpus_limit: limits.cpus,
            processes_limit: limits.pids,
            disk_limit_bytes: limits.disk_bytes,
            call_limit_seconds: talk.settings.longest().as_secs_f64(),
        };
        let of = |used: u64, limit: u64| format!("{} of {}", text::size(used), text::size(limit));
        let lines = [
            format!(
                "memory: {}, peak {}",
                of(report.memory_bytes, limits.memory_bytes),
                text::size(now.memory_peak_bytes)
            ),
            format!("cpu: {:.1} s used, limit {} CPU", now.cpu_ms / 1000.0, limits.cpus),
            format!("processes: {} of {}", now.processes, limits.pids),
            now.disk_bytes.map_or("disk: more files than can be counted".into(), |used| {
                format!("disk: {}", of(used, limits.disk_bytes))
            }),
            format!("time: {:?} for each call at the most", talk.settings.longest()),
        ];
        Ok(Answer::text(lines.join("\n")).with_document(&report))
    }
}

/// Nothing is needed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResetSandbox {}

impl ToolCall for ResetSandbox {
    const NAME: &'static str = "reset_sandbox";
    const TITLE: &'static str = "Start afresh";
    const ABOUT: &'static str =
        "Throws the sandbox away with its files, sessions and processes. The next call gets a fresh one.";
    const EFFECT: Effect = Effect::Acts;

    async fn call(self, talk: &Conversation, _call: &Call) -> Result<Answer> {
        Ok(Answer::text(match talk.reset().await? {
            Some(_) => "the sandbox is gone; the next call gets a fresh one",
            None => "there was no sandbox yet; the next call gets a fresh one",
        }))
    }
}
