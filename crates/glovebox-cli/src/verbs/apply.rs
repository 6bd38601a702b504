//! `glovebox apply`: brings the changes of a run or a sandbox to a folder of the host.

use std::{
    io::{BufRead, Write, stderr, stdin},
    path::{Path, PathBuf},
};

use glovebox_changes::{
    Applied, Applies, Conflict, Ended, ForHost, LeftOut, Mended, OutwardLinks, Plan, Target, for_host, narrow, reversed,
};
use glovebox_core::{Change, ChangeRecord, ChangeSource, Error, ErrorCode, Result, printable};
use glovebox_engine::Engine;
use glovebox_ledger::{Blobs, Ledger};
use serde_json::json;

use super::{
    changes::{left_out_line, why_nothing},
    data_dir, living, runtime,
};
use crate::{
    args::{ApplyArgs, Globals},
    files,
    flags::Flags,
    patch::Reader,
    report,
    review::{self, Reviewed},
};

pub(crate) fn execute(globals: &Globals, args: &ApplyArgs, flags: &Flags) -> Result<u8> {
    let data_dir = data_dir(globals);
    let applies = applies(&data_dir);
    let ledger = Ledger::below(&data_dir);
    let engine = living::engine_below(&data_dir);
    let work = match args.reverse {
        true => reverse(args, &engine, &ledger, &applies)?,
        false => forward(args, flags, (&engine, &ledger), &applies)?,
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

/// What to do about conflicts with a run whose sandbox is gone.
const AGAIN: &str = "run again on the folder as it is now, or apply the rest with --skip-conflicts, --only or -i";

/// An apply that is planned.
struct Work {
    source: ChangeSource,
    target: Target,
    plan: Plan,
    left_out: Vec<LeftOut>,
    /// Conflicts that are not applied, because the caller wants the rest.
    skipped: Vec<Conflict>,
    /// What else there is to say.
    notes: Vec<String>,
    blobs: Blobs,
    undoes: Option<Applied>,
    /// What to do about conflicts, where that is not to run again.
    way_out: Option<String>,
}

fn forward(
    args: &ApplyArgs,
    flags: &Flags,
    (engine, ledger): (&Engine, &Ledger),
    applies: &Applies,
) -> Result<Option<Work>> {
    let runtime = runtime()?;
    let reviewed = runtime.block_on(Reviewed::load(engine, ledger, args.id.as_deref()))?;
    let to = args.to.clone().or_else(|| reviewed.workspace.clone()).ok_or_else(|| {
        Error::new(
            ErrorCode::Usage,
            format!("{} had no workspace, so it is not known where to apply it", reviewed.source),
        )
        .hint("name the folder with --to DIR")
    })?;
    // What is applied is what `changes` shows, wherever it goes.
    let rules = reviewed.workspace.as_deref().unwrap_or(&to);
    let selection = reviewed.select(args.all, &args.only, flags, Some(rules))?;
    if reviewed.record.truncated {
        return Err(Error::new(ErrorCode::Conflicts, format!("{} changed more than is recorded", reviewed.source))
            .hint("a part of its changes would be neither before nor after; limit what the run writes"));
    }
    let links = match args.outward_links {
        true => OutwardLinks::Bring,
        false => OutwardLinks::LeaveOut("--outward-links brings it"),
    };
    let ForHost { mut changes, left_out } = for_host(&selection.record, links);
    let mut notes: Vec<String> = left_out_line(&selection).into_iter().collect();
    if changes.is_empty() {
        notes.extend(runtime.block_on(why_nothing(&reviewed, ledger))?);
    } else if args.interactive {
        changes = ask(&changes, &reviewed.blobs)?;
        if changes.is_empty() {
            report::say("nothing was applied");
            return Ok(None);
        }
    }
    let way_out = runtime.block_on(way_out(&reviewed, engine));
    let target = open(&to, applies)?;
    let mut plan = target.plan(&changes);
    let mut skipped = Vec::new();
    while args.skip_conflicts && !plan.conflicts.is_empty() {
        let conflicts = std::mem::take(&mut plan.conflicts);
        changes.retain(|change| !conflicts.iter().any(|c| c.path == change.path || change.is_below(&c.path)));
        skipped.extend(conflicts);
        plan = target.plan(&changes);
    }
    Ok(Some(Work {
        source: reviewed.source,
        target,
        plan,
        left_out,
        skipped,
        notes,
        blobs: reviewed.blobs,
        undoes: None,
        way_out,
    }))
}

/// What to do about conflicts with the changes of a sandbox that stays, or of a run in one.
async fn way_out(reviewed: &Reviewed, engine: &Engine) -> Option<String> {
    const REST: &str = "apply the rest with --skip-conflicts, --only or -i";
    let sandbox = reviewed.sandbox?;
    engine.status(&sandbox.to_string()).await.ok()?;
    Some(match reviewed.source {
        ChangeSource::Run(_) => format!(
            "what builds on earlier runs of its sandbox needs theirs first; glovebox apply {sandbox} brings all, or {REST}"
        ),
        ChangeSource::Sandbox(_) => format!("bring the folder back to what the sandbox saw, or {REST}"),
    })
}

/// The last apply to this folder, or of a run that was named, turned round.
fn reverse(args: &ApplyArgs, engine: &Engine, ledger: &Ledger, applies: &Applies) -> Result<Option<Work>> {
    let source = args.id.as_deref().map(|text| runtime()?.block_on(review::find(engine, ledger, text))).transpose()?;
    let folder = match (&args.to, source) {
        (Some(to), _) => Some(files::canonical(to)?),
        (None, Some(_)) => None,
        (None, None) => Some(files::canonical(Path::new("."))?),
    };
    let fits = |applied: &Applied| {
        source.is_none_or(|source| source == applied.source)
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
    let (left_out, skipped, notes, way_out) = Default::default();
    let source = applied.source;
    Ok(Some(Work { source, target, plan, left_out, skipped, notes, blobs, undoes: Some(applied), way_out }))
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
        let Work { source, target, mut plan, left_out, skipped, notes, blobs, undoes, way_out } = self;
        // What cannot be shown is not applied, so this comes first.
        let (list, count) =
            if globals.json { Default::default() } else { review::applied_list(&plan.changes, &blobs)? };
        let summary = Summary {
            source,
            folder: target.path().to_owned(),
            list,
            count,
            changes: plan.changes.clone(),
            already: std::mem::take(&mut plan.already),
            kept_folders: std::mem::take(&mut plan.kept_folders),
            left_out,
            skipped,
            notes,
            reverse: undoes.is_some(),
            dry_run: args.dry_run,
            way_out,
        };
        let to_do = !(plan.changes.is_empty() || args.dry_run);
        let ended = match plan.conflicts.is_empty() {
            true if to_do => target.carry_out(plan, source, &blobs, undoes.as_ref())?,
            true => Ended::Applied,
            false => Ended::Conflicts(plan.conflicts),
        };
        match ended {
            Ended::Applied if globals.json => summary.document().map(|()| 0),
            Ended::Applied => summary.tell().map(|()| 0),
            Ended::Conflicts(conflicts) => refuse(&summary, &conflicts, globals.json),
        }
    }
}

/// What an apply did, or would do.
struct Summary {
    source: ChangeSource,
    folder: PathBuf,
    /// The lines for people, and how many they are.
    list: String,
    count: usize,
    changes: Vec<Change>,
    already: Vec<String>,
    kept_folders: Vec<String>,
    left_out: Vec<LeftOut>,
    skipped: Vec<Conflict>,
    notes: Vec<String>,
    reverse: bool,
    dry_run: bool,
    way_out: Option<String>,
}

impl Summary {
    fn document(&self) -> Result<()> {
        let record = ChangeRecord { changes: self.changes.clone(), truncated: false };
        report::document(&json!({
            "run": self.source.run(),
            "sandbox": match self.source { ChangeSource::Sandbox(sandbox) => Some(sandbox), _ => None },
            "to": self.folder,
            "reverse": self.reverse,
            "dry_run": self.dry_run,
            "applied": record.names(),
            "already": self.already,
            "skipped": self.skipped,
            "left_out": self.left_out,
            "kept_folders": self.kept_folders,
        }))
    }

    fn tell(&self) -> Result<()> {
        let changes = report::counted(self.count, "change");
        let (run, folder) = (self.source, review::folder(&self.folder));
        let done = match (self.count, self.reverse, self.dry_run) {
            (0, ..) if !self.already.is_empty() => format!("nothing to do: {folder} is as {run} wants it"),
            (0, ..) => format!("nothing to do: {run} has nothing for {folder}"),
            (_, false, false) => format!("applied {changes} of {run} in {folder}"),
            (_, false, true) => format!("would apply {changes} of {run} in {folder}"),
            (_, true, false) => format!("undid {changes} of {run} in {folder}"),
            (_, true, true) => format!("would undo {changes} of {run} in {folder}"),
        };
        report::print_coloured(&format!("{}{done}\n", self.list))?;
        self.notes.iter().for_each(|note| report::say(note));
        for conflict in &self.skipped {
            report::say(&format!("skipped: {} {}", printable(&conflict.path), printable(&conflict.reason)));
        }
        for left in &self.left_out {
            report::say(&format!("{} {}", printable(&left.path), printable(&left.reason)));
        }
        for folder in &self.kept_folders {
            report::say(&format!("kept: the folder {}, which holds something else", printable(folder)));
        }
        // Of a folder that was there, only what is in it counts.
        let holds = |at: usize| {
            self.already.get(at + 1).is_some_and(|next| next.starts_with(&format!("{}/", self.already[at])))
        };
        let already = (0..self.already.len()).filter(|at| !holds(*at)).count();
        if already > 0 && self.count > 0 {
            report::say(&format!("there already: {}", report::counted(already, "change")));
        }
        if self.count > 0 && !self.reverse && !self.dry_run {
            report::say("glovebox apply --reverse takes this back");
        }
        Ok(())
    }
}

/// Says what stands in the way. That is a verdict about the folder and no failure of ours, so it has an exit code of its own.
fn refuse(summary: &Summary, conflicts: &[Conflict], as_json: bool) -> Result<u8> {
    let folder = review::folder(&summary.folder);
    let count = report::counted(conflicts.len(), "conflict");
    let error = Error::new(ErrorCode::Conflicts, format!("{count} in {folder}; nothing was changed")).hint(
        match summary.reverse {
            true => "undo what was changed since, and try again",
            false => summary.way_out.as_deref().unwrap_or(AGAIN),
        },
    );
    if as_json {
        let body = json!({ "code": error.code.as_str(), "message": error.message, "hint": error.hint });
        report::document(
            &json!({ "error": body, "run": summary.source.run(), "to": summary.folder, "conflicts": conflicts }),
        )?;
        return Ok(error.code.exit_code());
    }
    for conflict in conflicts {
        report::say(&format!("conflict: {} {}", printable(&conflict.path), printable(&conflict.reason)));
    }
    Err(error)
}

/// Asks about each change, and gives back those that are wanted.
fn ask(changes: &[Change], blobs: &Blobs) -> Result<Vec<Change>> {
    let record = review::in_working_folder(changes);
    let shown = review::shown(&record, blobs)?;
    let mut wanted = std::collections::HashSet::new();
    let mut rest: Option<bool> = None;
    for (at, one) in shown.iter().enumerate() {
        let yes = match rest {
            Some(yes) => yes,
            None => {
                report::print_coloured(&format!("\n{}\n{}", one.line(0), one.text(Reader::Person)))?;
                match answer(at + 1, shown.len())? {
                    Answer::Yes => true,
                    Answer::No => false,
                    Answer::Rest(yes) => *rest.insert(yes),
                    Answer::Quit => return Ok(Vec::new()),
                }
            }
        };
        if yes {
            wanted.extend(one.paths());
        }
    }
    let chosen = narrow(&record, |change| wanted.contains(change.path.as_str()));
    // What never comes out was left out before.
    Ok(for_host(&chosen, OutwardLinks::Bring).changes)
}

enum Answer {
    Yes,
    No,
    Rest(bool),
    Quit,
}

const ANSWERS: &str = "\
y  apply this
n  do not apply this
a  apply this and all that follow
d  done: apply what was chosen, and nothing that follows
q  quit, and apply nothing
";

fn answer(number: usize, of: usize) -> Result<Answer> {
    let failed = |error| Error::new(ErrorCode::HostIo, "no answer could be read").because(error);
    loop {
        // The question goes where the caller reads, not where the output goes.
        let _ = write!(stderr(), "({number}/{of}) apply this? [y,n,a,d,q,?] ");
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
            _ => drop(write!(stderr(), "{ANSWERS}")),
        }
    }
}
