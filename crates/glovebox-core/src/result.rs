//! The result document of a run, the same in the CLI, over HTTP and in the ledger.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    ChangeSet, Error, ExceptionRecord, Isolation, LimitKind, LimitsInForce, Outcome, ResultRecord, RunId, SandboxId,
    SessionRecord, Usage, WorkspaceMode,
};

/// Everything that is known of a finished run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The run.
    pub run: RunId,
    /// The sandbox that it ran in.
    pub sandbox: SandboxId,
    /// The backend that made the sandbox.
    pub backend: String,
    /// The image.
    pub image: String,
    /// Its digest, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_digest: Option<String>,
    /// The project, if any.
    pub project: Option<String>,
    /// The caller's labels.
    pub labels: BTreeMap<String, String>,
    /// What ran.
    pub command: CommandRecord,
    /// The host's folder under the working directory, if any.
    #[serde(default)]
    pub workspace: Option<WorkspaceRecord>,
    /// How it ended.
    pub outcome: Outcome,
    /// The step that the outcome is of: `run`, or `compile` when that failed and the program never ran.
    #[serde(default)]
    pub step: Step,
    /// The compile step, for languages that have one.
    #[serde(default)]
    pub compile: Option<CompileRecord>,
    /// Standard output.
    pub stdout: OutputRecord,
    /// Standard error; what the compiler said, when the compile step failed.
    pub stderr: OutputRecord,
    /// The session that it ran in, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionRecord>,
    /// What it shows, in a session: the value of its last expression, and what it displayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<ResultRecord>>,
    /// What failed in its code, in a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception: Option<ExceptionRecord>,
    /// When it started.
    pub started_at: Timestamp,
    /// Wall time of all steps, milliseconds.
    pub duration_ms: f64,
    /// What it used, in all steps.
    pub usage: Usage,
    /// What held it.
    pub limits: LimitsInForce,
    /// What stood between it and the host.
    pub isolation: Isolation,
    /// What it did to its files.
    pub changes: ChangeSet,
    /// Files that were kept.
    pub artifacts: Vec<Artifact>,
    /// The folder of the host that they are in, where there are any. They stay until somebody removes them.
    pub artifacts_dir: Option<String>,
    /// Limits that were touched without deciding the end.
    pub limits_hit: Vec<LimitKind>,
    /// What the code check saw.
    pub findings: Vec<String>,
    /// What the policy refused.
    pub denials: Vec<Denial>,
    /// Whether the run is in the ledger.
    #[serde(default)]
    pub recorded: bool,
    /// What Glovebox could not do for the run although it was asked to.
    #[serde(default)]
    pub warnings: Vec<Warning>,
}

/// The command of a run as it is recorded; secret values are masked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRecord {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Where it started.
    pub cwd: String,
    /// Variables that the caller gave.
    pub env: BTreeMap<String, String>,
    /// The language of the file or code that was given, by its first name; null for a command.
    #[serde(default)]
    pub language: Option<String>,
    /// Whether it had a terminal; left out where it had none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub terminal: bool,
}

/// The host's folder under the working directory of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceRecord {
    /// The folder, an absolute path.
    pub path: String,
    /// What happened to writes: `overlay`, `read-only` or `read-write`.
    pub mode: WorkspaceMode,
}

/// A step of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Source becomes a program.
    Compile,
    /// The program runs.
    #[default]
    Run,
}

/// The compile step of a run. It happens in the same sandbox, before the program, and shares its limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompileRecord {
    /// The compiler and its arguments.
    pub argv: Vec<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// Its standard output.
    pub stdout: OutputRecord,
    /// Its standard error.
    pub stderr: OutputRecord,
    /// Wall time, milliseconds.
    pub duration_ms: f64,
    /// What it used.
    pub usage: Usage,
    /// Whether nothing was compiled, because the same source was before.
    pub cached: bool,
}

/// One output stream: its text, or base64 where it is not UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRecord {
    /// The stream, when it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub text: Option<String>,
    /// The stream in base64, when it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub base64: Option<String>,
    /// Bytes that the program wrote, kept or not.
    pub bytes: u64,
    /// Whether the middle was left out.
    pub truncated: bool,
}

impl OutputRecord {
    /// Records a stream.
    pub fn new(kept: Vec<u8>, bytes: u64, truncated: bool) -> Self {
        match String::from_utf8(kept) {
            Ok(text) => OutputRecord { text: Some(text), base64: None, bytes, truncated },
            Err(error) => {
                let base64 = BASE64_STANDARD.encode(error.as_bytes());
                OutputRecord { text: None, base64: Some(base64), bytes, truncated }
            }
        }
    }
}

impl OutputRecord {
    /// What was kept of the stream, as it was written.
    pub fn to_bytes(&self) -> Vec<u8> {
        match (&self.text, &self.base64) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(base64)) => BASE64_STANDARD.decode(base64).unwrap_or_default(),
            (None, None) => Vec::new(),
        }
    }
}

/// A file that was kept from a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Its path below `/workspace`.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of its bytes, hexadecimal.
    pub sha256: String,
}

/// Something that Glovebox could not do for a run, without effect on how the run went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// A stable code, one of the error codes.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What to do about it, where there is something to do.
    pub hint: Option<String>,
}

impl From<&Error> for Warning {
    fn from(error: &Error) -> Self {
        Warning { code: error.code.as_str().into(), message: error.message.clone(), hint: error.hint.clone() }
    }
}

/// Something the policy refused during a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// What kind of thing: `network`, `artifact` …
    pub kind: String,
    /// What was refused.
    pub target: String,
    /// The option that would allow it.
    pub hint: String,
}
