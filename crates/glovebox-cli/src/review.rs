//! The changes of a run as people and programs look at them.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    io::Read,
    path::{Component, Path, PathBuf},
};

use anstyle::{AnsiColor, Style};
use glovebox_changes::{Diff, DiffLine, Rename, Selection, WORKING, Wish, diff, find_renames, select, stays_folder};
use glovebox_core::{
    Change, ChangeRecord, ChangeSource, Error, ErrorCode, FileKind, FileState, NotKept, Obstacle, Result, RunId,
    SandboxId, WorkspaceMode, printable,
};
use glovebox_engine::{CHANGE_RECORD, Engine, SandboxStatus};
use glovebox_ledger::{Blobs, Filter, Ledger};
use serde_json::{Value, json};

use crate::{
    flags::Flags,
    patch::{ADDED, DELETED, Entry, Reader},
    report,
};

/// Why a read-write workspace has no changes.
const WRITTEN_AT_ONCE: &str = "its workspace was read-write, so writes reached the host at once";

const MODIFIED: Style = AnsiColor::Yellow.on_default();

/// Changes that are to be reviewed.
pub(crate) struct Reviewed {
    /// Whose they are.
    pub(crate) source: ChangeSource,
    /// The sandbox in which they were made.
    pub(crate) sandbox: Option<SandboxId>,
    /// The host's folder that the working directory showed, where writes stayed inside.
    pub(crate) workspace: Option<PathBuf>,
    pub(crate) record: ChangeRecord,
    pub(crate) blobs: Blobs,
    /// Why there are no changes, where that needs a word.
    pub(crate) nothing_because: Option<&'static str>,
}

impl Reviewed {
    /// Loads what somebody named, a run or a sandbox, or else the last run of the folder that we are in.
    pub(crate) async fn load(engine: &Engine, ledger: &Ledger, named: Option<&str>) -> Result<Reviewed> {
        let source = match named {
            Some(text) => find(engine, ledger, text).await?,
            None => last_of_this_folder(ledger).await?.into(),
        };
        match source {
            ChangeSource::Run(run) => Reviewed::of_run(ledger, run).await,
            ChangeSource::Sandbox(sandbox) => Reviewed::of_sandbox(engine, ledger, sandbox).await,
        }
    }

    async fn of_run(ledger: &Ledger, run: RunId) -> Result<Reviewed> {
        let document: Value = serde_json::from_str(&ledger.document(run).await?)
            .map_err(|error| damaged(run, "document").because(error))?;
        let sandbox = document["sandbox"].as_str().and_then(|id| id.parse().ok());
        if document["outcome"].is_null() {
            let all = document["sandbox"].as_str().unwrap_or("ID");
            return Err(Error::new(ErrorCode::RunNotFound, format!("{run} is still running")).hint(format!(
                "its changes are known when it is over; glovebox changes {all} shows those of its sandbox"
            )));
        }
        let workspace = document["workspace"]["path"].as_str().filter(|_| document["workspace"]["mode"] == "overlay");
        let record = record(ledger, run).await?;
        let nothing_because = match (&document["outcome"]["kind"], &document["workspace"]["mode"]) {
            (kind, _) if kind == "lost" => Some("it was lost, and what it changed with it"),
            (_, mode) if mode == "read-write" => Some(WRITTEN_AT_ONCE),
            _ => None,
        };
        let workspace = workspace.map(PathBuf::from);
        Ok(Reviewed { source: run.into(), sandbox, workspace, record, blobs: ledger.blobs()?, nothing_because })
    }

    async fn of_sandbox(engine: &Engine, ledger: &Ledger, sandbox: SandboxId) -> Result<Reviewed> {
        let engine = engine.clone().with_ledger(ledger.clone());
        let changes = engine.sandbox_changes(&sandbox.to_string()).await.map_err(|error| match error.code {
            ErrorCode::SandboxNotFound => {
                error.hint(format!("glovebox runs list --sandbox {sandbox} shows its runs, whose changes are recorded"))
            }
            _ => error,
        })?;
        let nothing_because = (changes.mode == Some(WorkspaceMode::ReadWrite)).then_some(WRITTEN_AT_ONCE);
        Ok(Reviewed {
            source: ChangeSource::Sandbox(sandbox),
            sandbox: Some(sandbox),
            workspace: changes.workspace.filter(|_| changes.mode == Some(WorkspaceMode::Overlay)),
            record: changes.record,
            blobs: ledger.blobs()?,
            nothing_because,
        })
    }

    /// What the caller wants of the changes. `rules` is the folder whose `.gitignore` files count.
    pub(crate) fn select(&self, all: bool, only: &[String], flags: &Flags, rules: Option<&Path>) -> Result<Selection> {
        let here = std::env::current_dir().and_then(std::fs::canonicalize).ok();
        let only: Vec<String> =
            flags.list("only", only).into_iter().map(|path| self.in_workspace(path, here.as_deref())).collect();
        select(&self.record, Wish { all, only: &only }, &self.blobs, rules)
    }

    /// A path as the record has it. The caller writes it as seen from where they are, or as it was listed.
    fn in_workspace(&self, path: &str, here: Option<&Path>) -> String {
        let (Some(workspace), Some(here)) = (&self.workspace, here) else { return path.to_owned() };
        let mut full = PathBuf::new();
        for part in here.join(path).components() {
            match part {
                Component::ParentDir => drop(full.pop()),
                Component::CurDir => {}
                part => full.push(part),
            }
        }
        let seen_from_here = full.strip_prefix(workspace).ok().and_then(Path::to_str);
        let is_changed = |path: &str| {
            let path = format!("{WORKING}{path}");
            self.record.changes.iter().any(|change| change.path == path || change.is_below(&path))
        };
        match seen_from_here {
            Some("") => ".".to_owned(),
            Some(seen) if path.starts_with('/') || is_changed(seen) => seen.to_owned(),
            _ => path.to_owned(),
        }
    }

    /// The last run before this one, in the same folder, that changed something.
    pub(crate) async fn earlier(&self, ledger: &Ledger) -> Result<Option<(RunId, usize)>> {
        let (Some(workspace), Some(run)) = (&self.workspace, self.source.run()) else { return Ok(None) };
        let workspace = Some(workspace.display().to_string());
        let listed = ledger.list(&Filter { workspace, before: Some(run), limit: 20, ..Filter::default() }).await?;
        for run in listed.runs.iter().filter(|run| run.outcome.is_some()) {
            let names = record(ledger, run.run).await?.names();
            let count = names.added.len() + names.modified.len() + names.deleted.len();
            if count > 0 {
                return Ok(Some((run.run, count)));
            }
        }
        Ok(None)
    }
}

/// Finds the run or the sandbox that a text stands for: an id, the beginning of one, or the name of a sandbox.
pub(crate) async fn find(engine: &Engine, ledger: &Ledger, text: &str) -> Result<ChangeSource> {
    // A whole id says of what it is, and need not be there any more.
    if let Ok(sandbox) = text.parse() {
        return Ok(ChangeSource::Sandbox(sandbox));
    }
    if text.starts_with("run_") {
        return ledger.find(text).await.map(ChangeSource::Run);
    }
    let (sandbox, run) = (engine.status(text).await, ledger.find(text).await);
    let is_named = |status: &SandboxStatus| status.name.as_ref().is_some_and(|name| name.as_str() == text);
    match (sandbox, run) {
        (Ok(sandbox), Ok(_)) if !is_named(&sandbox) => {
            Err(Error::new(ErrorCode::AmbiguousId, format!("{text} stands for a sandbox and for a run"))
                .hint("write sb_ or run_ before it, or more of it"))
        }
        (Ok(sandbox), _) => Ok(ChangeSource::Sandbox(sandbox.sandbox)),
        (Err(error), _) if error.code != ErrorCode::SandboxNotFound => Err(error),
        (_, Ok(run)) => Ok(ChangeSource::Run(run)),
        (_, Err(error)) if error.code != ErrorCode::RunNotFound => Err(error),
        _ => Err(Error::new(ErrorCode::RunNotFound, format!("there is no run and no sandbox {text}"))
            .hint("glovebox runs list shows the runs there are, glovebox list the sandboxes")),
    }
}

/// The changes of a run that is over.
async fn record(ledger: &Ledger, run: RunId) -> Result<ChangeRecord> {
    let Some(mut file) = ledger.file(run, CHANGE_RECORD).await? else { return Ok(ChangeRecord::default()) };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| damaged(run, "changes").because(error))?;
    serde_json::from_slice(&bytes).map_err(|error| damaged(run, "changes").because(error))
}

fn damaged(run: RunId, what: &str) -> Error {
    Error::new(ErrorCode::LedgerDamaged, format!("the {what} of {run} cannot be read"))
}

/// The last run with this folder, or the nearest one above it, under its working directory.
async fn last_of_this_folder(ledger: &Ledger) -> Result<RunId> {
    let here = std::env::current_dir().and_then(std::fs::canonicalize);
    let here = here.map_err(|error| Error::new(ErrorCode::HostIo, "this folder cannot be told").because(error))?;
    for folder in here.ancestors() {
        let workspace = Some(folder.display().to_string());
        let listed = ledger.list(&Filter { workspace, ..Filter::default() }).await?;
        // One that is under way has nothing to show yet.
        if let Some(run) = listed.runs.iter().find(|run| run.outcome.is_some()) {
            return Ok(run.run);
        }
    }
    Err(Error::new(ErrorCode::RunNotFound, format!("no run with --workspace {} is recorded", here.display()))
        .hint("name a run; glovebox runs list shows them"))
}

/// One line of the list, and the diff that belongs to it.
pub(crate) struct Shown<'a> {
    pub(crate) change: &'a Change,
    renamed_from: Option<&'a Change>,
    diff: Diff,
}

/// What is to be shown of changes: no folder that shows by what is in it, and each rename once.
pub(crate) fn shown<'a>(record: &'a ChangeRecord, blobs: &Blobs) -> Result<Vec<Shown<'a>>> {
    let changes = &record.changes;
    let renames = find_renames(blobs, changes)?;
    let by_path: HashMap<&str, &Change> = changes.iter().map(|change| (change.path.as_str(), change)).collect();
    let from: HashMap<&str, &str> = renames.iter().map(|Rename { from, to }| (to.as_str(), from.as_str())).collect();
    let gone: HashSet<&str> = from.values().copied().collect();
    let mut all = Vec::new();
    for (at, change) in changes.iter().enumerate() {
        let only_mode = change.before.is_some() && change.after.is_some();
        let shows_itself = changes.get(at + 1).is_some_and(|next| next.is_below(&change.path));
        if gone.contains(change.path.as_str()) || stays_folder(change) && shows_itself && !only_mode {
            continue;
        }
        let renamed_from = from.get(change.path.as_str()).and_then(|path| by_path.get(path)).copied();
        let diff = match renamed_from {
            Some(old) => diff(blobs, &Change { before: old.before.clone(), ..change.clone() })?,
            None => diff(blobs, change)?,
        };
        all.push(Shown { change, renamed_from, diff });
    }
    Ok(all)
}

impl Shown<'_> {
    /// The paths that it is about.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.change).chain(self.renamed_from).map(|change| change.path.as_str())
    }

    /// The line of the list; what is said beside paths begins in one column.
    pub(crate) fn line(&self, width: usize) -> String {
        let (word, style) = self.word();
        let path = self.path();
        match self.details() {
            Some(details) => format!("{style}{word:<9}{style:#} {path:<width$}  {details}"),
            None => format!("{style}{word:<9}{style:#} {path}"),
        }
    }

    /// Whether it is about the working directory, and not about what is kept beside it.
    pub(crate) fn is_in_workspace(&self) -> bool {
        self.change.path.starts_with(WORKING)
    }

    pub(crate) fn path(&self) -> String {
        let path = short(&self.change.path);
        match self.renamed_from {
            Some(old) => format!("{} -> {path}", short(&old.path)),
            None => path,
        }
    }

    fn word(&self) -> (&'static str, Style) {
        match (&self.change.before, &self.change.after) {
            _ if self.renamed_from.is_some() => ("renamed", MODIFIED),
            (None, _) => ("added", ADDED),
            (_, None) => ("deleted", DELETED),
            (Some(before), Some(after)) if before.kind == after.kind => ("mode", MODIFIED),
            _ => ("modified", MODIFIED),
        }
    }

    /// What is to be said beside the path.
    fn details(&self) -> Option<String> {
        let before = self.renamed_from.map_or(self.change.before.as_ref(), |old| old.before.as_ref());
        let after = self.change.after.as_ref();
        let mut parts = Vec::new();
        if let (Some(before), Some(after)) = (before, after) {
            if kind(before) != kind(after) {
                parts.push(format!("{} -> {}", kind(before), kind(after)));
            }
            if before.mode != after.mode && kind(before) == kind(after) {
                parts.push(format!("mode {:o} -> {:o}", before.mode, after.mode));
            }
        } else if let Some(state) = after
            && is_file(state)
            && state.mode & 0o7111 != 0
        {
            parts.push(format!("mode {:o}", state.mode));
        }
        match (&self.diff, after.or(before)) {
            (Diff::Text(lines), _) => parts.push(counts(lines)),
            (Diff::Binary, Some(state)) => {
                parts.push(format!("binary, {}{}", former_size(before, after), size_and_hash(state)))
            }
            (Diff::TooLarge, Some(state)) => {
                parts.push(format!("large, {}{}", former_size(before, after), size_and_hash(state)))
            }
            (_, Some(state)) => parts.extend(other(state)),
            (_, None) => {}
        }
        match self.change.obstacle {
            Some(Obstacle::ChangedMeanwhile) => parts.push("changed on the host while the run lasted".into()),
            Some(Obstacle::NameNotUtf8) => parts.push("its name is not UTF-8".into()),
            Some(Obstacle::NameHoldsSecret) => parts.push("its name held the value of a --secret".into()),
            None => {}
        }
        if runs_by_itself(&self.change.path) {
            parts.push("Git runs what this says, on your machine".into());
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// The change as Git writes it; nothing where Git has no words for it.
    pub(crate) fn text(&self, reader: Reader) -> String {
        let old = self.renamed_from.unwrap_or(self.change);
        let paths = (old.path.strip_prefix(WORKING), self.change.path.strip_prefix(WORKING));
        // What is kept as an artifact is not for a patch, and a name that is only nearly right is not for Git.
        let (Some(from), Some(to)) = paths else { return String::new() };
        if reader == Reader::Git && self.change.obstacle == Some(Obstacle::NameNotUtf8) {
            return String::new();
        }
        let (before, after) = (old.before.as_ref(), self.change.after.as_ref());
        if [before, after].into_iter().flatten().all(is_link) {
            return Entry::link(to, before, after).text(reader);
        }
        let gone_link = before.filter(|state| is_link(state)).map(|state| Entry::link(to, Some(state), None));
        let new_link = after.filter(|state| is_link(state)).map(|state| Entry::link(to, None, Some(state)));
        let (before, after) = (before.filter(|state| is_file(state)), after.filter(|state| is_file(state)));
        let lines = match &self.diff {
            Diff::Text(lines) => Some(Cow::Borrowed(&lines[..])),
            // A rename or a new mode is a change without lines.
            Diff::Nothing if before.is_some() && after.is_some() => Some(Cow::Borrowed(&[][..])),
            _ => None,
        };
        let file = lines.filter(|_| before.is_some() || after.is_some());
        let file = file.map(|lines| Entry { from, to, before, after, lines });
        [gone_link, file, new_link].iter().flatten().map(|entry| entry.text(reader)).collect()
    }

    /// The details for programs.
    pub(crate) fn document(&self) -> Value {
        let mut document = json!({ "path": self.change.path, "change": self.word().0 });
        let renamed = self.renamed_from.map(|old| json!(old.path));
        let before = self.renamed_from.map_or(&self.change.before, |old| &old.before);
        let fields = [
            ("renamed_from", renamed),
            ("before", before.as_ref().map(|state| json!(state))),
            ("after", self.change.after.as_ref().map(|state| json!(state))),
            ("obstacle", self.change.obstacle.map(|obstacle| json!(obstacle))),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                document[name] = value;
            }
        }
        document
    }
}

/// The lines of a list.
pub(crate) fn list<'a>(shown: impl Iterator<Item = &'a Shown<'a>> + Clone) -> String {
    // One very long path does not push everything to the right.
    let width = shown.clone().map(|one| one.path().chars().count()).filter(|width| *width <= 48).max().unwrap_or(0);
    shown.map(|one| format!("  {}\n", one.line(width))).collect()
}

/// Changes with paths that count from the folder, as a record.
pub(crate) fn in_working_folder(changes: &[Change]) -> ChangeRecord {
    let full = |change: &Change| Change { path: format!("{WORKING}{}", change.path), ..change.clone() };
    ChangeRecord { changes: changes.iter().map(full).collect(), truncated: false }
}

/// The list of changes with paths that count from the folder, and how many lines it has.
pub(crate) fn applied_list(changes: &[Change], blobs: &Blobs) -> Result<(String, usize)> {
    let record = in_working_folder(changes);
    let shown = shown(&record, blobs)?;
    Ok((list(shown.iter()), shown.len()))
}

/// A path as somebody in the working directory writes it, safe for a terminal.
pub(crate) fn short(path: &str) -> String {
    match path.strip_prefix(WORKING) {
        Some(path) => printable(path),
        None => format!("../{}", printable(path)),
    }
}

/// How a folder is shown in a message.
pub(crate) fn folder(path: &Path) -> String {
    printable(&path.display().to_string())
}

/// Whether a path is one of those that Git takes commands from.
fn runs_by_itself(path: &str) -> bool {
    let mut parts = path.split('/').skip_while(|part| !part.eq_ignore_ascii_case(".git"));
    parts.next().is_some()
        && parts.any(|part| ["hooks", "config", "modules"].iter().any(|name| part.eq_ignore_ascii_case(name)))
}

fn counts(lines: &[DiffLine]) -> String {
    let added = lines.iter().filter(|line| matches!(line, DiffLine::Added(_))).count();
    let removed = lines.iter().filter(|line| matches!(line, DiffLine::Removed(_))).count();
    if lines.is_empty() {
        return "empty".to_owned();
    }
    format!("{ADDED}+{added}{ADDED:#} {DELETED}-{removed}{DELETED:#}")
}

fn kind(state: &FileState) -> &'static str {
    match state.kind {
        FileKind::File { .. } => "file",
        FileKind::Symlink { .. } => "link",
        FileKind::Directory => "folder",
        FileKind::Special => "special file",
    }
}

fn is_file(state: &FileState) -> bool {
    matches!(state.kind, FileKind::File { .. })
}

fn is_link(state: &FileState) -> bool {
    matches!(state.kind, FileKind::Symlink { .. })
}

/// The size that a file had, to stand before the one that it has.
fn former_size(before: Option<&FileState>, after: Option<&FileState>) -> String {
    match (before.map(|state| &state.kind), after.map(|state| &state.kind)) {
        (Some(FileKind::File { bytes: before, .. }), Some(FileKind::File { bytes: after, .. })) if before != after => {
            format!("{} -> ", report::size(*before))
        }
        _ => String::new(),
    }
}

fn size_and_hash(state: &FileState) -> String {
    match &state.kind {
        FileKind::File { bytes, sha256: Some(sha256), .. } => {
            format!("{}, sha256 {}", report::size(*bytes), sha256.get(..12).unwrap_or(sha256))
        }
        FileKind::File { bytes, .. } => report::size(*bytes),
        _ => String::new(),
    }
}

/// What is to be said of what has no diff.
fn other(state: &FileState) -> Option<String> {
    match &state.kind {
        FileKind::Symlink { target } => Some(format!("link to {}", printable(target))),
        FileKind::Directory => Some("folder".into()),
        FileKind::Special => Some("pipe, socket or device".into()),
        FileKind::File { not_kept: Some(why), .. } => {
            Some(format!("{}, content not kept: {}", size_and_hash(state), NotKept::reason(*why)))
        }
        FileKind::File { .. } => None,
    }
}
