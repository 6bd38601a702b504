//! `glovebox changes`: shows what a run changed.

use glovebox_changes::{Wish, select};
use glovebox_core::Result;
use glovebox_ledger::Ledger;
use serde_json::json;

use super::{data_dir, runtime};
use crate::{
    args::{ChangesArgs, Globals},
    flags::Flags,
    report,
    review::{self, Reviewed},
};

pub(crate) fn execute(globals: &Globals, args: &ChangesArgs, flags: &Flags) -> Result<u8> {
    let ledger = Ledger::below(data_dir(globals));
    let reviewed = runtime()?.block_on(Reviewed::load(&ledger, args.run.as_deref()))?;
    let only: Vec<String> = flags.list("only", &args.only).into_iter().map(str::to_owned).collect();
    let wish = Wish { all: args.all, only: &only };
    let selection = select(&reviewed.record, wish, &reviewed.blobs, reviewed.workspace.as_deref())?;
    let shown = review::shown(&selection, &reviewed.blobs)?;
    if globals.json {
        let names = selection.record.names();
        report::document(&json!({
            "run": reviewed.run,
            "workspace": reviewed.workspace,
            "added": names.added,
            "modified": names.modified,
            "deleted": names.deleted,
            "truncated": names.truncated,
            "ignored": selection.ignored,
            "files": shown.iter().map(review::Shown::document).collect::<Vec<_>>(),
        }))?;
        return Ok(0);
    }
    let place = reviewed.workspace.as_deref().map_or(String::new(), |path| format!(" in {}", review::folder(path)));
    let mut text = match shown.len() {
        0 => format!("{} changed nothing{place}\n", reviewed.run),
        1 => format!("{} changed 1 file{place}\n", reviewed.run),
        count => format!("{} changed {count} files{place}\n", reviewed.run),
    };
    text.push_str(&review::list(shown.iter()));
    if !args.summary {
        for diff in shown.iter().map(review::Shown::diff_text).filter(|diff| !diff.is_empty()) {
            text.push('\n');
            text.push_str(&diff);
        }
    }
    report::print_coloured(&text)?;
    say_what_is_not_shown(selection.ignored, reviewed.record.truncated);
    if let Some(why) = reviewed.nothing_because.filter(|_| shown.is_empty()) {
        report::say(why);
    }
    Ok(0)
}

/// Nothing is left out silently.
pub(super) fn say_what_is_not_shown(ignored: usize, truncated: bool) {
    if ignored > 0 {
        let files = if ignored == 1 { "1 file is" } else { &format!("{ignored} files are") };
        report::say(&format!("{files} left out because of .gitignore, or because Git keeps them; --all includes them"));
    }
    if truncated {
        report::say("the run changed more than is recorded; the list is not complete");
    }
}
