//! `glovebox doctor`: what this host can do, and how to get the rest.

use std::path::Path;

use glovebox_core::{Error, ErrorCode, Result};
use glovebox_ledger::{Filter, Ledger};

use super::{data_dir, gc, runtime};
use crate::{
    args::{DoctorArgs, Globals},
    backends::{self, Kind},
    check::{self, Check, Status},
    doctor,
    flags::{Flags, Origin},
    report,
};

pub(crate) fn execute(globals: &Globals, args: &DoctorArgs, flags: &Flags) -> Result<u8> {
    let kind = backends::kind(globals, flags)?;
    // The variable and the key `user` are those of runs, so only what was typed counts here.
    let user = args.user.as_deref().filter(|_| flags.origin("user") == Origin::Flag);
    if user.is_some() && !args.fix {
        let error = Error::new(ErrorCode::Usage, "--user says for whom --fix is to work");
        return Err(error.hint("glovebox doctor --fix --user NAME"));
    }
    let data_dir = data_dir(globals);
    // The facts of the host come first: some are tried in a forked process, and what follows starts threads.
    let facts = doctor::Facts::gather();
    let fixed = if args.fix { Some(fix_all(&data_dir, user)?) } else { None };
    let mut checks = doctor::checks(&facts, kind);
    checks.extend(doctor::stores(&data_dir));
    checks.push(ledger(&data_dir)?);
    checks.extend(doctor::docker(&facts.caller(), kind == Kind::Docker)?);
    // Languages are many, so they come last.
    checks.sort_by_key(|check| check.group == "languages");
    if let Some(done) = fixed.as_ref().filter(|_| !globals.json) {
        let lines = done.iter().map(|what| format!("fixed: {}\n", glovebox_core::printable(what))).collect::<String>();
        report::print(if lines.is_empty() { "fixed: there was nothing to fix by itself\n" } else { &lines })?;
        report::print("\n")?;
    }
    check::print(&checks, fixed.as_deref(), &doctor::summary(&checks), globals.json)
}

fn fix_all(data_dir: &Path, user: Option<&str>) -> Result<Vec<String>> {
    let mut done = match user {
        Some(user) => doctor::fix::sub_ids(user)?,
        None => Vec::new(),
    };
    done.extend(doctor::fix::folders(data_dir)?);
    done.extend(gc::remove(data_dir)?.into_iter().map(|what| format!("removed {what}")));
    Ok(done)
}

/// Whether the record of runs can be read. One that is not there yet is not made.
fn ledger(data_dir: &Path) -> Result<Check> {
    let file = data_dir.join("ledger.db");
    let check = |status, detail: String| Check::new("stores", "ledger", status, detail);
    if !file.exists() {
        return Ok(check(Status::Ok, format!("{} is made by the first run", file.display())));
    }
    let newest = Filter { limit: 1, ..Filter::default() };
    Ok(match runtime()?.block_on(Ledger::below(data_dir).list(&newest)) {
        Ok(_) => check(Status::Ok, file.display().to_string()),
        Err(error) => check(Status::Missing, error.message).fix(
            error.hint.unwrap_or_else(|| format!("move {} away, and the next run makes a new one", file.display())),
        ),
    })
}
