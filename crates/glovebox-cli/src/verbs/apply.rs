//! `glovebox apply`: brings the changes of a run to a folder of the host.

use std::{
    io::{BufRead, Write, stderr, stdin},
    path::{Path, PathBuf},
};

use glovebox_changes::{
    Applied, Applies, Conflict, Ended, ForHost, LeftOut, Mended, Plan, Selection, Target, Wish, for_host, narrow,
    reversed, select,
};
use glovebox_core::{Change, ChangeRecord, Error, ErrorCode, Result, RunId, printable};
use glovebox_ledger::{Blobs, Ledger};
use serde_json::json;

use super::{changes::say_what_is_not_shown, data_dir, runtime};
use crate::{
    args::{ApplyArgs, Globals},
    flags::Flags,
    report,
    review::{self, Reviewed},
};

pub(crate) fn execute(globals: &Globals, args: &ApplyArgs, flags: &Flags) -> Result<u8> {
    let data_dir = data_dir(globals);
    let applies = applies(&data_dir);
    let ledger = Ledger::below(&data_dir);
    let work = if args.reverse {
        reverse(args, &ledger, &applies)?
    } else {
        forward(globals, args, flags, &ledger, &applies)?
    };
    match work {
        Some(work) => work.finish(globals, args),
        None => Ok(0),
    }
}

/// The list of applies below a data folder.
pub(super) fn applies(data_dir: &Path) -> Applies {
    Applies::new(data_dir.join("applies"))
}

/// An apply that is planned.
struct Work {
    run: RunId,
    target: Target,
    plan: Plan,
    left_out: Vec<LeftOut>,
    blobs: Blobs,
    undoes: Option<Applied>,
}

fn forward(
    globals: &Globals,
    args: &ApplyArgs,
    flags: &Flags,
    ledger: &Ledger,
    applies: &Applies,
) -> Result<Option<Work>> {
    let reviewed = runtime()?.block_on(Reviewed::load(ledger, args.run.as_deref()))?;
    let to = args.to.clone().or_else(|| reviewed.workspace.clone()).ok_or_else(|| {
        Error::new(ErrorCode::Usage, format!("{} had no workspace, so it is not known where to apply it", reviewed.run))
            .hint("name the folder with --to DIR")
    })?;
    let only: Vec<String> = flags.list("only", &args.only).into_iter().map(str::to_owned).collect();
    let wish = Wish { all: args.all, only: &only };
    // The rules that count are those of the folder that the changes go to.
    let mut selection = select(&reviewed.record, wish, &reviewed.blobs, Some(&to))?;
    if reviewed.record.truncated {
        return Err(Error::new(ErrorCode::Conflicts, format!("{} changed more than is recorded", reviewed.run))
            .hint("a part of its changes would be neither before nor after; limit what the run writes"));
    }
    if args.interactive {
        match ask(&selection, &reviewed)? {
            Some(chosen) => selection.record = chosen,
            None => {
                report::say("nothing was applied");
                return Ok(None);
            }
        }
    }
    if !globals.json {
        say_what_is_not_shown(selection.ignored, false);
    }
    let ForHost { changes, left_out } = for_host(&selection.record, args.outward_links);
    let target = open(&to, applies)?;
    let plan = target.plan(&changes);
    Ok(Some(Work { run: reviewed.run, target, plan, left_out, blobs: reviewed.blobs, undoes: None }))
}

/// The last apply to this folder, or of a run that was named, turned round.
fn reverse(args: &ApplyArgs, ledger: &Ledger, applies: &Applies) -> Result<Option<Work>> {
    let run = args.run.as_deref().map(|text| runtime()?.block_on(ledger.find(text))).transpose()?;
    let folder = match (&args.to, run) {
        (Some(to), _) => Some(canonical(to)?),
        (None, Some(_)) => None,
        (None, None) => Some(canonical(Path::new("."))?),
    };
    let fits = |applied: &Applied| {
        run.is_none_or(|run| run == applied.run)
            && folder.as_ref().is_none_or(|folder| {
                // From within a folder below, the apply to the whole is meant.
                *folder == applied.folder || args.to.is_none() && folder.starts_with(&applied.folder)
            })
    };
    let applied = applies.last(fits)?.ok_or_else(|| {
        let place = folder.as_deref().map_or(String::new(), |folder| format!(" to {}", review::folder(folder)));
        Error::new(ErrorCode::NothingToReverse, format!("there is no apply{place} that can be undone"))
            .hint("call it in the folder that was changed, or name that with --to DIR")
    })?;
    let target = open(&applied.folder, applies)?;
    let plan = target.plan(&reversed(&applied.changes));
    let blobs = ledger.blobs()?;
    Ok(Some(Work { run: applied.run, target, plan, left_out: Vec::new(), blobs, undoes: Some(applied) }))
}

fn canonical(path: &Path) -> Result<PathBuf> {
    crate::files::canonical(path)
}

fn open(path: &Path, applies: &Applies) -> Result<Target> {
    let (target, mended) = Target::open(path, applies)?;
    if let Some(how) = mended {
        report::say(&mended_line(path, how));
    }
    Ok(target)
}

/// What was done about an apply that was cut short.
pub(super) fn mended_line(path: &Path, how: Mended) -> String {
    let what = match how {
        Mended::Undone => "was undone",
        Mended::Finished => "had been done; what it left is removed",
    };
    format!("an earlier apply to {} was cut short and {what}", review::folder(path))
}

impl Work {
    fn finish(self, globals: &Globals, args: &ApplyArgs) -> Result<u8> {
        let Work { run, target, mut plan, left_out, blobs, undoes } = self;
        let summary = Summary {
            run,
            folder: target.path().to_owned(),
            changes: std::mem::take(&mut plan.changes),
            already: std::mem::take(&mut plan.already),
            kept_folders: std::mem::take(&mut plan.kept_folders),
            left_out,
            reverse: undoes.is_some(),
            dry_run: args.dry_run,
        };
        plan.changes = summary.changes.clone();
        let ended = match plan.conflicts.is_empty() {
            _ if args.dry_run && plan.conflicts.is_empty() => Ended::Applied,
            true if plan.changes.is_empty() => Ended::Applied,
            true => target.carry_out(plan, run, &blobs, undoes.as_ref())?,
            false => Ended::Conflicts(plan.conflicts),
        };
        match ended {
            Ended::Applied => summary.tell(globals.json).map(|()| 0),
            Ended::Conflicts(conflicts) => refuse(&summary, &conflicts, globals.json),
        }
    }
}

/// What an apply did, or would do.
struct Summary {
    run: RunId,
    folder: PathBuf,
    changes: Vec<Change>,
    already: Vec<String>,
    kept_folders: Vec<String>,
    left_out: Vec<LeftOut>,
    reverse: bool,
    dry_run: bool,
}

impl Summary {
    fn tell(&self, as_json: bool) -> Result<()> {
        if as_json {
            let record = ChangeRecord { changes: self.changes.clone(), truncated: false };
            return report::document(&json!({
                "run": self.run,
                "to": self.folder,
                "reverse": self.reverse,
                "dry_run": self.dry_run,
                "applied": record.names(),
                "already": self.already,
                "left_out": self.left_out,
                "kept_folders": self.kept_folders,
            }));
        }
        let mut text = review::applied_list(&self.changes);
        let count = text.lines().count();
        let changes = if count == 1 { "1 change".to_owned() } else { format!("{count} changes") };
        let done = match (count, self.reverse, self.dry_run) {
            (0, false, _) => "nothing to apply".to_owned(),
            (0, true, _) => "nothing to undo".to_owned(),
            (_, false, false) => format!("applied {changes}"),
            (_, false, true) => format!("would apply {changes}"),
            (_, true, false) => format!("undid {changes}"),
            (_, true, true) => format!("would undo {changes}"),
        };
        text.push_str(&format!("{done} of {} in {}\n", self.run, review::folder(&self.folder)));
        report::print_coloured(&text)?;
        for left in &self.left_out {
            report::say(&format!("left out: {} {}", printable(&left.path), printable(&left.reason)));
        }
        for folder in &self.kept_folders {
            report::say(&format!("kept: the folder {}, which holds something else", printable(folder)));
        }
        if !self.already.is_empty() {
            report::say(&format!("{} of the changes were there already", self.already.len()));
        }
        if count > 0 && !self.reverse && !self.dry_run {
            report::say("glovebox apply --reverse takes this back");
        }
        Ok(())
    }
}

/// Says what stands in the way. That is a verdict about the folder and no failure of ours, so it has an exit code of its own.
fn refuse(summary: &Summary, conflicts: &[Conflict], as_json: bool) -> Result<u8> {
    let folder = review::folder(&summary.folder);
    let count = if conflicts.len() == 1 { "1 conflict".to_owned() } else { format!("{} conflicts", conflicts.len()) };
    let error = Error::new(ErrorCode::Conflicts, format!("{count} in {folder}; nothing was changed")).hint(
        match summary.reverse {
            true => "undo what was changed since, and try again",
            false => "run again on the folder as it is now, or leave conflicts out with --only or --interactive",
        },
    );
    if as_json {
        let body = json!({ "code": error.code.as_str(), "message": error.message, "hint": error.hint });
        report::document(&json!({ "error": body, "run": summary.run, "to": summary.folder, "conflicts": conflicts }))?;
        return Ok(error.code.exit_code());
    }
    for conflict in conflicts {
        report::say(&format!("conflict: {} {}", printable(&conflict.path), printable(&conflict.reason)));
    }
    Err(error)
}

/// Asks about each change. `None`: the caller wants none of it.
fn ask(selection: &Selection, reviewed: &Reviewed) -> Result<Option<ChangeRecord>> {
    let shown = review::shown(selection, &reviewed.blobs)?;
    let mut wanted = std::collections::HashSet::new();
    let mut rest: Option<bool> = None;
    for one in &shown {
        let yes = match rest {
            Some(yes) => yes,
            None => {
                report::print_coloured(&format!("\n{}\n{}", one.line(0), one.diff_text()))?;
                match answer()? {
                    Answer::Yes => true,
                    Answer::No => false,
                    Answer::Rest(yes) => *rest.insert(yes),
                    Answer::Quit => return Ok(None),
                }
            }
        };
        if yes {
            wanted.extend(one.paths());
        }
    }
    Ok(Some(narrow(&selection.record, |change| wanted.contains(change.path.as_str()))))
}

enum Answer {
    Yes,
    No,
    Rest(bool),
    Quit,
}

fn answer() -> Result<Answer> {
    let failed = |error| Error::new(ErrorCode::HostIo, "no answer could be read").because(error);
    loop {
        // The question goes where the caller reads, not where the output goes.
        let _ = write!(stderr(), "apply this? [y]es, [n]o, [a]ll that follow, [d]one, [q]uit without applying: ");
        let _ = stderr().flush();
        let mut line = String::new();
        if stdin().lock().read_line(&mut line).map_err(failed)? == 0 {
            let _ = writeln!(stderr());
            return Ok(Answer::Quit);
        }
        match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => return Ok(Answer::Yes),
            "n" | "no" => return Ok(Answer::No),
            "a" | "all" => return Ok(Answer::Rest(true)),
            "d" | "done" => return Ok(Answer::Rest(false)),
            "q" | "quit" => return Ok(Answer::Quit),
            _ => {}
        }
    }
}
