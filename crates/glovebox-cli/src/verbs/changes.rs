//! `glovebox changes`: shows what a run or a sandbox changed.

use std::io::IsTerminal;

use glovebox_changes::Selection;
use glovebox_core::{Error, ErrorCode, Result};
use glovebox_engine::Engine;
use glovebox_ledger::Ledger;
use serde_json::json;

use super::{data_dir, living, runtime};
use crate::{
    args::{ChangesArgs, Globals},
    flags::Flags,
    pager,
    patch::Reader,
    report,
    review::{self, Reviewed, Shown},
};

pub(crate) fn execute(globals: &Globals, args: &ChangesArgs, flags: &Flags) -> Result<u8> {
    if args.patch && std::io::stdout().is_terminal() {
        let message = "a patch has what the run wrote byte for byte, which could steer a terminal";
        return Err(Error::new(ErrorCode::Usage, message).hint("write it to a file: glovebox changes --patch > FILE"));
    }
    let data_dir = data_dir(globals);
    let (ledger, engine) = (Ledger::below(&data_dir), living::engine_below(&data_dir));
    let runtime = runtime()?;
    let reviewed = runtime.block_on(Reviewed::load(&engine, &ledger, args.id.as_deref()))?;
    let selection = reviewed.select(args.all, &args.only, flags, reviewed.workspace.as_deref())?;
    let shown = review::shown(&selection.record, &reviewed.blobs)?;
    if globals.json {
        print_document(&reviewed, &selection, &shown)?;
        return Ok(0);
    }
    if args.patch {
        print_patch(&shown)?;
    } else {
        pager::show(&page(&reviewed, &shown, args.summary), args.pager.as_deref())?;
    }
    left_out_line(&selection).iter().for_each(|line| report::say(line));
    if reviewed.record.truncated {
        report::say("more changed than is recorded; the list is not complete");
    }
    if shown.is_empty() {
        runtime.block_on(why_nothing(&reviewed, &ledger))?.iter().for_each(|line| report::say(line));
    }
    if let Some(line) = runtime.block_on(of_whole_sandbox(&reviewed, &engine)) {
        report::say(&line);
    }
    Ok(0)
}

fn print_document(reviewed: &Reviewed, selection: &Selection, shown: &[Shown<'_>]) -> Result<()> {
    let names = selection.record.names();
    report::document(&json!({
        "run": reviewed.source.run(),
        "sandbox": reviewed.sandbox,
        "workspace": reviewed.workspace,
        "added": names.added,
        "modified": names.modified,
        "deleted": names.deleted,
        "truncated": names.truncated,
        "ignored": selection.ignored + selection.of_git,
        "files": shown.iter().map(Shown::document).collect::<Vec<_>>(),
    }))
}

/// What people see.
fn page(reviewed: &Reviewed, shown: &[Shown<'_>], summary: bool) -> String {
    let place = reviewed.workspace.as_deref().map_or(String::new(), |path| format!(" in {}", review::folder(path)));
    let count = match shown.len() {
        0 => "nothing".to_owned(),
        count => report::counted(count, "file"),
    };
    let mut text = format!("{} changed {count}{place}\n", reviewed.source);
    text.push_str(&review::list(shown.iter()));
    if !summary {
        for diff in shown.iter().map(|one| one.text(Reader::Person)).filter(|diff| !diff.is_empty()) {
            text.push('\n');
            text.push_str(&diff);
        }
    }
    text
}

/// A patch, and which changes are not in it.
fn print_patch(shown: &[Shown<'_>]) -> Result<()> {
    let texts: Vec<String> = shown.iter().map(|one| one.text(Reader::Git)).collect();
    report::print(&texts.concat())?;
    for (one, _) in shown.iter().zip(&texts).filter(|(one, text)| text.is_empty() && one.is_in_workspace()) {
        report::say(&format!("not in the patch, which has only text, links and modes: {}", one.path()));
    }
    Ok(())
}

/// Nothing is left out silently.
pub(super) fn left_out_line(selection: &Selection) -> Option<String> {
    let mut parts = Vec::new();
    if selection.ignored > 0 {
        parts.push(format!("{} that .gitignore names", report::counted(selection.ignored, "file")));
    }
    if selection.of_git > 0 {
        parts.push(format!("{} of Git itself (.git)", report::counted(selection.of_git, "file")));
    }
    (!parts.is_empty()).then(|| format!("left out: {}; --all includes them", parts.join(", ")))
}

/// A run in a sandbox that stays is a part of what happened there.
async fn of_whole_sandbox(reviewed: &Reviewed, engine: &Engine) -> Option<String> {
    reviewed.source.run()?;
    let status = engine.status(&reviewed.sandbox?.to_string()).await.ok().filter(|status| status.ended.is_none())?;
    let name = status.name.map_or_else(|| status.sandbox.to_string(), |name| name.to_string());
    Some(format!("glovebox changes {name} shows all that changed in its sandbox"))
}

/// What there is to say of a run without changes: why that is, and which run may have been meant.
pub(super) async fn why_nothing(reviewed: &Reviewed, ledger: &Ledger) -> Result<Vec<String>> {
    let mut lines: Vec<String> = reviewed.nothing_because.map(str::to_owned).into_iter().collect();
    if let Some((run, count)) = reviewed.earlier(ledger).await? {
        lines.push(format!("an earlier run here, {run}, changed {}", report::counted(count, "file")));
    }
    Ok(lines)
}
