//! `glovebox doctor`: what this host can do, and how to get the rest.

use glovebox_core::{Error, ErrorCode, Result};

use super::{data_dir, require_native};
use crate::{
    args::{DoctorArgs, Globals},
    check, doctor,
    flags::{Flags, Origin},
    report,
};

pub(crate) fn execute(globals: &Globals, args: &DoctorArgs, flags: &Flags) -> Result<u8> {
    require_native(&globals.backend, flags)?;
    // The variable and the key `user` are those of runs, so only what was typed counts here.
    let user = args.user.as_deref().filter(|_| flags.origin("user") == Origin::Flag);
    if user.is_some() && !args.fix {
        let error = Error::new(ErrorCode::Usage, "--user says for whom --fix is to work");
        return Err(error.hint("glovebox doctor --fix --user NAME"));
    }
    let data_dir = data_dir(globals);
    let fixed = if args.fix { Some(fix_all(&data_dir, user)?) } else { None };
    let mut checks = doctor::checks(&doctor::Facts::gather());
    checks.extend(doctor::stores(&data_dir));
    // Languages are many, so they come last.
    checks.sort_by_key(|check| check.group == "languages");
    if let Some(done) = fixed.as_ref().filter(|_| !globals.json) {
        let lines = done.iter().map(|what| format!("fixed: {}\n", report::printable(what))).collect::<String>();
        report::print(if lines.is_empty() { "fixed: there was nothing to fix by itself\n" } else { &lines })?;
        report::print("\n")?;
    }
    check::print(&checks, fixed.as_deref(), &doctor::summary(&checks), globals.json)
}

fn fix_all(data_dir: &std::path::Path, user: Option<&str>) -> Result<Vec<String>> {
    let mut done = match user {
        Some(user) => doctor::fix::sub_ids(user)?,
        None => Vec::new(),
    };
    done.extend(doctor::fix::stores(data_dir)?);
    Ok(done)
}
