//! From what was seen of a run to its result.

use std::{collections::BTreeMap, time::Duration};

use glovebox_core::{
    ChangeSet, Command, CommandRecord, CompileRecord, Created, Ending, ErrorCode, Evidence, Isolation, Label,
    LimitKind, LimitsInForce, Outcome, Outgrown, OutputRecord, PROGRAM_DIR, RunId, RunResult, SandboxId, Secret,
    SessionRecord, Step, Usage, Warning, WorkspaceRecord, decide_outcome,
};
use glovebox_proto::Places;
use jiff::{Timestamp, Unit};

use crate::{RunRequest, artifacts::Kept, output::Output, sessions::Shown};

/// What identifies a run and never changes while it goes on.
pub(crate) struct Identity {
    pub(crate) run: RunId,
    pub(crate) sandbox: SandboxId,
    pub(crate) backend: &'static str,
    pub(crate) created: std::sync::Arc<Created>,
}

/// What was seen of a run when it is over.
pub(crate) struct Seen {
    pub(crate) started_at: Timestamp,
    pub(crate) duration: Duration,
    /// The step that was the last one.
    pub(crate) step: Step,
    pub(crate) compiled: Option<CompileRecord>,
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
    pub(crate) ending: Ending,
    /// Memory kills that were counted before the last step.
    pub(crate) kills_before: u64,
    pub(crate) evidence: Evidence,
    pub(crate) changes: ChangeSet,
    pub(crate) kept: Kept,
    pub(crate) artifacts_dir: std::path::PathBuf,
    /// The limit for whose sake a watch ended the run.
    pub(crate) watched: Option<LimitKind>,
    /// What it showed, and the session that it was in.
    pub(crate) shown: Shown,
    pub(crate) session: Option<SessionRecord>,
}

/// What of a request is needed when the run is over.
pub(crate) struct Asked {
    pub(crate) command: Command,
    pub(crate) terminal: bool,
    pub(crate) labels: Vec<Label>,
    pub(crate) workspace: Option<WorkspaceRecord>,
    pub(crate) project: Option<String>,
    pub(crate) timeout: Duration,
    pub(crate) output: u64,
    pub(crate) warnings: Vec<Warning>,
}

impl Asked {
    pub(crate) fn of(request: &RunRequest) -> Self {
        Asked {
            command: request.command.clone(),
            terminal: request.terminal.is_some(),
            labels: request.labels.clone(),
            workspace: workspace(request),
            project: project(request),
            timeout: request.spec.limits.timeout,
            output: request.spec.limits.output,
            warnings: request.warnings.clone(),
        }
    }

    pub(crate) fn secrets(&self) -> Vec<&Secret> {
        self.command.secrets.values().collect()
    }
}

/// Makes the result document.
pub(crate) fn make(identity: &Identity, asked: &Asked, mut seen: Seen) -> RunResult {
    seen.ending.memory_kill = seen.evidence.memory_kills > seen.kills_before;
    seen.ending.watched_memory = seen.evidence.watched_memory;
    seen.ending.disk_full = what_was_full(&seen.evidence, seen.watched);
    let outcome = decide_outcome(&seen.ending);
    let limits_hit = limits_hit(&outcome, &seen);
    let mut limits = identity.created.limits.clone();
    limits.timeout_ms = asked.timeout.as_millis() as u64;
    limits.output_bytes = asked.output;
    let places = Places::new(identity.created.places.clone()).with_own(PROGRAM_DIR);
    let secrets = asked.secrets();
    let (results, exception, left_out) = std::mem::take(&mut seen.shown).records(&secrets);
    seen.kept.denials.extend(left_out);
    let in_session = seen.session.is_some();
    if !secrets.is_empty() {
        mask_names(&asked.command, &mut seen);
    }
    RunResult {
        run: identity.run,
        sandbox: identity.sandbox,
        backend: identity.backend.into(),
        image: identity.created.image.to_string(),
        image_digest: identity.created.image_digest.clone(),
        project: asked.project.clone(),
        labels: labels(&asked.command, &asked.labels),
        command: record(&asked.command, asked.terminal, &places),
        workspace: asked.workspace.clone(),
        compile: seen.compiled.map(|compiled| CompileRecord {
            argv: compiled.argv.iter().map(|word| mask(&asked.command, &places.in_word(word))).collect(),
            // The end of the sandbox may have told more of the last step than was known when it was over.
            outcome: if seen.step == Step::Compile { outcome.clone() } else { compiled.outcome },
            ..compiled
        }),
        outcome,
        step: seen.step,
        stdout: seen.stdout.record(secrets.iter().copied()),
        stderr: seen.stderr.record(secrets.iter().copied()),
        results: in_session.then_some(results),
        session: seen.session,
        exception: exception.filter(|_| in_session),
        started_at: rounded(seen.started_at),
        duration_ms: (seen.duration.as_secs_f64() * 1e6).round() / 1e3,
        usage: seen.evidence.usage,
        limits,
        isolation: identity.created.isolation.clone(),
        changes: seen.changes,
        artifacts_dir: (!seen.kept.artifacts.is_empty()).then(|| seen.artifacts_dir.display().to_string()),
        artifacts: seen.kept.artifacts,
        limits_hit,
        findings: Vec::new(),
        denials: seen.kept.denials,
        recorded: false,
        warnings: asked.warnings.clone(),
    }
}

/// The result of a run that nobody is left to finish, as it is known before its command starts.
pub(crate) fn if_lost(run: RunId, sandbox: SandboxId, backend: &str, request: &RunRequest) -> RunResult {
    let asked = &request.spec.limits;
    RunResult {
        run,
        sandbox,
        backend: backend.into(),
        image: request.spec.image.to_string(),
        image_digest: None,
        project: project(request),
        labels: labels(&request.command, &request.labels),
        command: record(&request.command, request.terminal.is_some(), &Places::default()),
        workspace: workspace(request),
        outcome: Outcome::Lost,
        step: Step::Run,
        compile: None,
        stdout: OutputRecord::default(),
        stderr: OutputRecord::default(),
        results: None,
        exception: None,
        session: request.session.as_ref().map(|session| SessionRecord {
            name: session.name.to_string(),
            language: session.language.to_owned(),
            new: false,
            state_lost: false,
            alive: false,
            number: 0,
        }),
        started_at: rounded(Timestamp::now()),
        duration_ms: 0.0,
        usage: Usage::default(),
        limits: LimitsInForce {
            memory_bytes: asked.memory,
            cpus: asked.cpus,
            pids: asked.pids,
            disk_bytes: asked.disk,
            inodes: asked.inodes,
            open_files: asked.open_files,
            timeout_ms: asked.timeout.as_millis() as u64,
            output_bytes: asked.output,
            ..LimitsInForce::default()
        },
        isolation: Isolation::default(),
        changes: ChangeSet::default(),
        artifacts: Vec::new(),
        artifacts_dir: None,
        limits_hit: Vec::new(),
        findings: Vec::new(),
        denials: Vec::new(),
        recorded: true,
        warnings: request.warnings.clone(),
    }
}

fn labels(command: &Command, labels: &[Label]) -> BTreeMap<String, String> {
    Label::collect(labels).into_iter().map(|(key, value)| (key, mask(command, &value))).collect()
}

fn rounded(time: Timestamp) -> Timestamp {
    time.round(Unit::Millisecond).unwrap_or(time)
}

/// The host's folder under the working directory, as it is recorded.
fn workspace(request: &RunRequest) -> Option<WorkspaceRecord> {
    let workspace = request.spec.workspace.as_ref()?;
    let path = mask(&request.command, &workspace.source.display().to_string());
    Some(WorkspaceRecord { path, mode: workspace.mode })
}

/// The project, as it is recorded.
fn project(request: &RunRequest) -> Option<String> {
    request.spec.project.as_ref().map(ToString::to_string)
}

/// What there was no room for at the end of a step, if anything.
pub(crate) fn what_was_full(evidence: &Evidence, watched: Option<LimitKind>) -> Option<LimitKind> {
    match evidence.store {
        store if store.free_bytes == 0 => Some(LimitKind::Disk),
        store if store.free_inodes == 0 => Some(LimitKind::Inodes),
        _ => watched.filter(|kind| matches!(kind, LimitKind::Disk | LimitKind::Inodes | LimitKind::Volume)),
    }
}

/// Says which volume was full.
pub(crate) fn full_volume(outgrown: &Outgrown) -> Option<Warning> {
    let Outgrown::Volume { target, bytes } = outgrown else { return None };
    Some(Warning {
        code: ErrorCode::DiskFull.as_str().into(),
        message: format!("the volume at {target} holds more than its size of {bytes} bytes, whoever wrote it"),
        hint: Some("remove files from it, or use a larger one: glovebox volumes create NAME --size SIZE".into()),
    })
}

/// Masks secrets in names that the program chose.
fn mask_names(command: &Command, seen: &mut Seen) {
    for denial in &mut seen.kept.denials {
        denial.target = mask(command, &denial.target);
    }
}

/// Limits that were touched without deciding the end.
fn limits_hit(outcome: &Outcome, seen: &Seen) -> Vec<LimitKind> {
    let full = seen.ending.disk_full.filter(|_| !matches!(outcome, Outcome::DiskFull { .. }));
    let output = seen.stdout.exceeded() || seen.stderr.exceeded();
    let touched = [
        (LimitKind::Memory, seen.evidence.memory_kills > 0 && !matches!(outcome, Outcome::OutOfMemory { .. })),
        (LimitKind::Disk, matches!(full, Some(LimitKind::Disk | LimitKind::Inodes))),
        (LimitKind::Inodes, full == Some(LimitKind::Inodes)),
        (LimitKind::Volume, full == Some(LimitKind::Volume)),
        (LimitKind::Pids, seen.evidence.pids_refused > 0),
        (LimitKind::Output, output && !matches!(outcome, Outcome::OutputExceeded { .. })),
    ];
    touched.into_iter().filter(|(_, touched)| *touched).map(|(kind, _)| kind).collect()
}

/// A text of a run without the values of its secrets.
pub(crate) fn mask(command: &Command, text: &str) -> String {
    let masked = Secret::mask_all(command.secrets.values(), text.as_bytes().to_vec());
    String::from_utf8(masked).unwrap_or_default()
}

/// The command as it is recorded: values of secrets are masked wherever they stand, and paths are the real ones.
fn record(command: &Command, terminal: bool, places: &Places) -> CommandRecord {
    let mask = |text: &str| mask(command, text);
    let plain = command.env.iter().map(|(name, value)| (name.as_str().to_owned(), mask(value)));
    let secret = command.secrets.iter().map(|(name, secret)| (name.as_str().to_owned(), secret.to_string()));
    CommandRecord {
        argv: command.argv.iter().map(|arg| mask(&places.in_word(arg))).collect(),
        cwd: mask(&places.real(command.cwd.as_str())),
        env: plain.chain(secret).collect(),
        language: command.language.clone(),
        terminal,
    }
}
