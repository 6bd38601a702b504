//! `list_changes` and `apply_changes`: what the conversation did to the files, and bringing it to the user's folder.

use std::sync::Arc;

use glovebox_changes::{
    Applies, Diff, DiffLine, Ended, OutwardLinks, Target, Wish, diff, for_host, select, stays_folder,
};
use glovebox_core::{Change, ChangeRecord, ChangeSource, Error, ErrorCode, Result, Secret, WorkspaceMode, printable};
use glovebox_ledger::{Blobs, Ledger};
use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, ToolCall};
use crate::{
    Settings,
    answer::{Answer, schema},
    call::Call,
    conversation::{Conversation, shown_change},
    running,
    text::{self, shorten},
};

/// What a model can do about a link that leads out of the folder.
const OF_LINK: &str = "put a file in its place, or make it a relative link within the folder";
/// So many paths are listed.
const MOST_LISTED: usize = 500;

/// Which changes to show.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListChanges {
    /// Only these paths of the working directory and what is below them.
    #[serde(default)]
    only: Vec<String>,
    /// Also show the text that came and went.
    #[serde(default)]
    diff: bool,
    /// Also what .gitignore leaves out.
    #[serde(default)]
    all: bool,
}

/// What changed.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct ChangesReport {
    /// New files, links and empty folders; paths are relative to the working directory, or absolute.
    added: Vec<String>,
    /// Files whose content, kind or mode changed.
    modified: Vec<String>,
    /// Files that are gone.
    deleted: Vec<String>,
    /// There are more than are listed.
    truncated: bool,
    /// How many files .gitignore left out.
    ignored: usize,
}

impl ToolCall for ListChanges {
    const NAME: &'static str = "list_changes";
    const TITLE: &'static str = "List changes";
    const ABOUT: &'static str =
        "Shows which files were added, modified or deleted since the sandbox was made, with diffs if wanted.";
    const EFFECT: Effect = Effect::Reads;

    fn output() -> Option<Arc<JsonObject>> {
        schema::<ChangesReport>()
    }

    async fn call(self, talk: &Conversation, call: &Call) -> Result<Answer> {
        let changed = tokio::select! {
            changed = Changed::look(talk) => changed?,
            () = call.cancelled() => return Err(running::cancelled()),
        };
        blocking(move || self.show(&changed)).await
    }
}

impl ListChanges {
    fn show(&self, changed: &Changed) -> Result<Answer> {
        let (record, ignored) = changed.select(self.all, &self.only)?;
        let names = record.names();
        let count = names.added.len() + names.modified.len() + names.deleted.len();
        let cut = |list: &[String]| list.iter().take(MOST_LISTED).map(|path| shown_change(path)).collect::<Vec<_>>();
        let report = ChangesReport {
            added: cut(&names.added),
            modified: cut(&names.modified),
            deleted: cut(&names.deleted),
            truncated: names.truncated
                || [&names.added, &names.modified, &names.deleted].iter().any(|list| list.len() > MOST_LISTED),
            ignored,
        };
        let lists = [("added", &report.added), ("modified", &report.modified), ("deleted", &report.deleted)];
        let mut lines: Vec<String> =
            lists.iter().flat_map(|(word, list)| list.iter().map(move |path| format!("{word} {path}"))).collect();
        if count == 0 {
            lines.push("[nothing changed]".to_owned());
        }
        if report.truncated {
            lines.push("[there are more than are listed]".to_owned());
        }
        if ignored > 0 {
            lines.push(format!("[{ignored} files that .gitignore leaves out are not shown; all: true shows them]"));
        }
        if self.diff {
            let text: String = record
                .changes
                .iter()
                .filter(|change| !stays_folder(change))
                .map(|change| changed.diff(change))
                .collect();
            let short = shorten(text.as_bytes(), text.len() as u64);
            lines.push(short.text);
        }
        Ok(Answer::text(lines.join("\n")).with_document(&report))
    }
}

/// Which changes to apply.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApplyChanges {
    /// Only these paths of the working directory and what is below them.
    #[serde(default)]
    only: Vec<String>,
    /// Only say what would be done.
    #[serde(default)]
    dry_run: bool,
    /// Also what .gitignore leaves out.
    #[serde(default)]
    all: bool,
}

/// What was applied.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ApplyReport {
    /// The user's folder.
    folder: String,
    /// Whether it was done; false for a dry run.
    applied: bool,
    /// Paths below the folder that were made, replaced or removed.
    paths: Vec<String>,
    /// What never leaves a sandbox, with the reason.
    left_out: Vec<String>,
}

impl ToolCall for ApplyChanges {
    const NAME: &'static str = "apply_changes";
    const TITLE: &'static str = "Apply changes to the user's folder";
    const ABOUT: &'static str = "Brings changes of the working directory to the folder of the user that it shows: all of them, or \
        none when the folder was changed meanwhile.";
    const EFFECT: Effect = Effect::Acts;

    fn output() -> Option<Arc<JsonObject>> {
        schema::<ApplyReport>()
    }

    fn note(settings: &Settings) -> Option<String> {
        let off = match (&settings.spec.workspace, settings.allow_apply) {
            (_, false) => "Off here: the user did not allow it (glovebox mcp --allow-apply).",
            (None, true) => "Off here: there is no folder of the user (glovebox mcp --workspace DIR).",
            (Some(_), true) => return None,
        };
        Some(off.to_owned())
    }

    async fn call(self, talk: &Conversation, _call: &Call) -> Result<Answer> {
        if !talk.settings.allow_apply {
            return Err(Error::new(
                ErrorCode::PermissionDenied,
                "changes are not brought to the user's folder from here",
            )
            .hint("the user can allow it with glovebox mcp --allow-apply; download copies files and folders"));
        }
        let changed = Changed::look(talk).await?;
        let applies = Applies::new(talk.settings.data_dir.join("applies"));
        blocking(move || self.apply(&changed, &applies)).await
    }
}

impl ApplyChanges {
    fn apply(&self, changed: &Changed, applies: &Applies) -> Result<Answer> {
        let Some(folder) = &changed.workspace else {
            return Err(Error::new(ErrorCode::NotSupported, "the working directory shows no folder of the user")
                .hint("the user names one with glovebox mcp --workspace DIR; download copies files and folders"));
        };
        let (record, _) = changed.select(self.all, &self.only)?;
        if record.truncated {
            return Err(Error::new(ErrorCode::Conflicts, "more was changed than is known of")
                .hint("a part of the changes would be neither before nor after; use only"));
        }
        let for_host = for_host(&record, OutwardLinks::LeaveOut(OF_LINK));
        let (target, _) = Target::open(folder, applies)?;
        let plan = target.plan(&for_host.changes);
        let paths: Vec<String> = plan.changes.iter().map(|change| printable(&change.path)).take(MOST_LISTED).collect();
        let left_out: Vec<String> =
            for_host.left_out.iter().map(|left| printable(&format!("{} {}", left.path, left.reason))).collect();
        let ended = match plan.conflicts.is_empty() {
            true if !self.dry_run => target.carry_out(plan, changed.source, &changed.blobs, None)?,
            true => Ended::Applied,
            false => Ended::Conflicts(plan.conflicts),
        };
        if let Ended::Conflicts(conflicts) = ended {
            let all = conflicts.iter().take(20).map(|c| printable(&format!("{} {}", c.path, c.reason)));
            let message = format!(
                "{} in the user's folder, so nothing was changed: {}",
                counted(conflicts.len()),
                all.collect::<Vec<_>>().join("; ")
            );
            return Err(Error::new(ErrorCode::Conflicts, message).hint("apply the rest with only"));
        }
        let folder = printable(&target.path().display().to_string());
        let word = if self.dry_run { "would apply" } else { "applied" };
        let mut lines = vec![format!(
            "{word} {} to {folder}",
            if paths.is_empty() { "nothing".to_owned() } else { format!("{} paths", paths.len()) }
        )];
        lines.extend(paths.iter().cloned());
        lines.extend(left_out.iter().map(|left| format!("[{left}]")));
        let report = ApplyReport { folder, applied: !self.dry_run, paths, left_out };
        Ok(Answer::text(lines.join("\n")).with_document(&report))
    }
}

fn counted(conflicts: usize) -> String {
    if conflicts == 1 { "1 conflict".to_owned() } else { format!("{conflicts} conflicts") }
}

/// What the sandbox changed, as it is now.
struct Changed {
    source: ChangeSource,
    record: ChangeRecord,
    blobs: Blobs,
    /// The folder of the host that the working directory shows, where writes stay inside.
    workspace: Option<std::path::PathBuf>,
}

impl Changed {
    async fn look(talk: &Conversation) -> Result<Changed> {
        let Settings { ledger, data_dir, variables, .. } = &talk.settings;
        let sandbox = talk.sandbox().await?;
        let secrets: Vec<Secret> = variables.secrets.values().cloned().collect();
        let record = sandbox.change_record(secrets).await?;
        let spec = sandbox.record().map_or(&talk.settings.spec, |record| &record.spec);
        let overlay = spec.workspace.as_ref().filter(|workspace| workspace.mode == WorkspaceMode::Overlay);
        let blobs = match ledger {
            Some(ledger) => ledger.blobs()?,
            None => Ledger::below(data_dir).blobs()?,
        };
        let workspace = overlay.map(|workspace| workspace.source.clone());
        Ok(Changed { source: ChangeSource::Sandbox(sandbox.id()), record, blobs, workspace })
    }

    fn select(&self, all: bool, only: &[String]) -> Result<(ChangeRecord, usize)> {
        let selection = select(&self.record, Wish { all, only }, &self.blobs, self.workspace.as_deref());
        let selection = selection.map_err(|error| match error.code {
            ErrorCode::FileNotFound => error.hint("paths count from the working directory; list_changes names all"),
            _ => error,
        })?;
        Ok((selection.record, selection.ignored))
    }

    fn diff(&self, change: &Change) -> String {
        let path = shown_change(&change.path);
        let mut text = format!(
            "--- {}\n+++ {}\n",
            if change.before.is_some() { &path } else { "/dev/null" },
            if change.after.is_some() { &path } else { "/dev/null" }
        );
        match diff(&self.blobs, change) {
            Ok(Diff::Text(lines)) => lines.iter().for_each(|line| {
                let line = match line {
                    DiffLine::Place(place) => place.clone(),
                    DiffLine::Same(line) => format!(" {line}"),
                    DiffLine::Added(line) => format!("+{line}"),
                    DiffLine::Removed(line) => format!("-{line}"),
                    DiffLine::NoNewline => "\\ No newline at end of file".to_owned(),
                };
                text.push_str(&line);
                text.push('\n');
            }),
            Ok(Diff::Binary) => text.push_str("[not text]\n"),
            Ok(Diff::TooLarge) => text.push_str("[too large to show]\n"),
            Ok(Diff::Nothing) => text.push_str("[no text to show]\n"),
            Err(error) => text.push_str(&format!("[{}]\n", text::cut(&error.message, 200))),
        }
        text
    }
}

/// Work on the host's disk, beside the one thread that serves the client.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::new(ErrorCode::Internal, "the work broke off").because(error))?
}
