//! The changes of a run as people and programs look at them.

use std::{
    collections::HashMap,
    fmt::Write as _,
    io::Read,
    path::{Path, PathBuf},
};

use anstyle::{AnsiColor, Style};
use glovebox_changes::{Diff, DiffLine, Rename, Selection, diff, find_renames, stays_folder};
use glovebox_core::{
    Change, ChangeRecord, Error, ErrorCode, FileKind, FileState, NotKept, Obstacle, Result, RunId, printable,
};
use glovebox_engine::CHANGE_RECORD;
use glovebox_ledger::{Blobs, Filter, Ledger};
use serde_json::{Value, json};

use crate::report;

/// What stands before the paths of the working directory.
const WORKING: &str = "agent_workspace/";

const ADDED: Style = AnsiColor::Green.on_default();
const MODIFIED: Style = AnsiColor::Yellow.on_default();
const DELETED: Style = AnsiColor::Red.on_default();
const PLACE: Style = AnsiColor::Cyan.on_default();
const HEAD: Style = Style::new().bold();

/// A run that is to be reviewed.
pub(crate) struct Reviewed {
    pub(crate) run: RunId,
    /// The host's folder that its working directory showed, where writes stayed inside.
    pub(crate) workspace: Option<PathBuf>,
    pub(crate) record: ChangeRecord,
    pub(crate) blobs: Blobs,
    /// Why there are no changes, where that needs a word.
    pub(crate) nothing_because: Option<&'static str>,
}

impl Reviewed {
    /// Loads the run that somebody named, or else the last one of the folder that we are in.
    pub(crate) async fn load(ledger: &Ledger, named: Option<&str>) -> Result<Reviewed> {
        let run = match named {
            Some(text) => ledger.find(text).await?,
            None => last_of_this_folder(ledger).await?,
        };
        let damaged = |what: &str| Error::new(ErrorCode::LedgerDamaged, format!("the {what} of {run} cannot be read"));
        let document: Value =
            serde_json::from_str(&ledger.document(run).await?).map_err(|error| damaged("document").because(error))?;
        if document["outcome"].is_null() {
            return Err(Error::new(ErrorCode::RunNotFound, format!("{run} is still running"))
                .hint("its changes are known when it is over"));
        }
        let workspace = document["workspace"]["path"].as_str().filter(|_| document["workspace"]["mode"] == "overlay");
        let record = match ledger.file(run, CHANGE_RECORD).await? {
            Some(mut file) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).map_err(|error| damaged("changes").because(error))?;
                serde_json::from_slice(&bytes).map_err(|error| damaged("changes").because(error))?
            }
            None => ChangeRecord::default(),
        };
        let nothing_because = match (&document["outcome"]["kind"], &document["workspace"]["mode"]) {
            (kind, _) if kind == "lost" => Some("it was lost, and what it changed with it"),
            (_, mode) if mode == "read-write" => {
                Some("its workspace was read-write, so writes reached the host at once")
            }
            _ => None,
        };
        let workspace = workspace.map(PathBuf::from);
        Ok(Reviewed { run, workspace, record, blobs: ledger.blobs()?, nothing_because })
    }
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

/// What is to be shown of a selection: no folder that shows by what is in it, and each rename once.
pub(crate) fn shown<'a>(selection: &'a Selection, blobs: &Blobs) -> Result<Vec<Shown<'a>>> {
    let changes = &selection.record.changes;
    let renames = find_renames(blobs, changes)?;
    let by_path: HashMap<&str, &Change> = changes.iter().map(|change| (change.path.as_str(), change)).collect();
    let from: HashMap<&str, &str> = renames.iter().map(|Rename { from, to }| (to.as_str(), from.as_str())).collect();
    let gone: std::collections::HashSet<&str> = from.values().copied().collect();
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

    fn path(&self) -> String {
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
            && matches!(state.kind, FileKind::File { .. })
            && state.mode & 0o7111 != 0
        {
            parts.push(format!("mode {:o}", state.mode));
        }
        match (&self.diff, after.or(before)) {
            (Diff::Text(lines), _) => parts.push(counts(lines)),
            (Diff::Binary, Some(state)) => parts.push(format!("binary, {}", size_and_hash(state))),
            (Diff::TooLarge, Some(state)) => parts.push(format!("large, {}", size_and_hash(state))),
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

    /// The change as text that `git apply` and `patch -p1` take, in colours; nothing where that cannot say it.
    pub(crate) fn diff_text(&self) -> String {
        let old = self.renamed_from.unwrap_or(self.change);
        let (before, after) = (old.before.as_ref(), self.change.after.as_ref());
        let is_file = |state: &&FileState| matches!(state.kind, FileKind::File { .. });
        let lines = match &self.diff {
            Diff::Text(lines) => &lines[..],
            // A rename or a new mode is a change without lines.
            Diff::Nothing if before.is_some() && after.is_some() => &[],
            _ => return String::new(),
        };
        // What is kept as an artifact is not for a patch, nor is what was or became something else than a file.
        if !self.change.path.starts_with(WORKING) || ![before, after].into_iter().flatten().all(|state| is_file(&state))
        {
            return String::new();
        }
        let mut text = String::new();
        let (from, to) = (short(&old.path), short(&self.change.path));
        for line in self.header(&from, &to, before, after, lines) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{HEAD}{line}{HEAD:#}");
        }
        for line in lines {
            let _ = match line {
                DiffLine::Place(line) => writeln!(text, "{PLACE}{line}{PLACE:#}"),
                DiffLine::Same(line) => writeln!(text, " {line}"),
                DiffLine::Added(line) => writeln!(text, "{ADDED}+{line}{ADDED:#}"),
                DiffLine::Removed(line) => writeln!(text, "{DELETED}-{line}{DELETED:#}"),
                DiffLine::NoNewline => writeln!(text, "\\ No newline at end of file"),
            };
        }
        text
    }

    /// The lines before a diff, as Git writes them.
    fn header(
        &self,
        from: &str,
        to: &str,
        before: Option<&FileState>,
        after: Option<&FileState>,
        lines: &[DiffLine],
    ) -> Vec<String> {
        // Git knows of a mode only whether somebody may execute the file.
        let mode = |state: &FileState| if state.mode & 0o111 == 0 { 100_644 } else { 100_755 };
        let mut header = vec![format!("diff --git a/{from} b/{to}")];
        match (before, after) {
            (None, Some(after)) => header.push(format!("new file mode {}", mode(after))),
            (Some(before), None) => header.push(format!("deleted file mode {}", mode(before))),
            (Some(before), Some(after)) if mode(before) != mode(after) => {
                header.extend([format!("old mode {}", mode(before)), format!("new mode {}", mode(after))]);
            }
            _ => {}
        }
        if self.renamed_from.is_some() {
            header.extend([format!("rename from {from}"), format!("rename to {to}")]);
        }
        if !lines.is_empty() {
            header.push(before.map_or("--- /dev/null".to_owned(), |_| format!("--- a/{from}")));
            header.push(after.map_or("+++ /dev/null".to_owned(), |_| format!("+++ b/{to}")));
        }
        header
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

/// The lines of a list of what was applied; paths count from the folder.
pub(crate) fn applied_list(changes: &[Change]) -> String {
    let full = |change: &Change| Change { path: format!("{WORKING}{}", change.path), ..change.clone() };
    let full: Vec<Change> = changes.iter().map(full).collect();
    let own_line = |at: &usize| {
        let next_is_below = full.get(at + 1).is_some_and(|next| next.is_below(&full[*at].path));
        !(stays_folder(&full[*at]) && next_is_below)
    };
    let lines: Vec<Shown<'_>> = (0..full.len())
        .filter(own_line)
        .map(|at| Shown { change: &full[at], renamed_from: None, diff: Diff::Nothing })
        .collect();
    list(lines.iter())
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
